"""Scenarios: a table, two or more transactions, the order in which they begin and commit, and the expected outcome.

They are written in TOML files, in a small language for both engines. A transaction::

    [[scenario]]
    id = "delete-same-partition-append"
    T = { reads = ["p = 0", "app stream"], does = ["remove f0", "add t p=0 a=0..9", "txn stream 1"] }
    W = { does = ["add w p=0 a=0..9"] }
    then = { Serializable = "T ConcurrentAppend" }

reads at its beginning, and commits the actions of ``does``. ``reads`` has predicates, ``everything``, or ``app`` and
an application id. ``does`` has

* ``add NAME [p=..] [q=..] [a=LOW..HIGH] [rows=N] [vector=ROWS] [moved|sorted|unrecorded]``: a file, of ten rows by
  default; ``a`` gives it statistics, and its rows are evenly spread between the two; ``vector`` deletes rows, such as
  ``0-2,7``; ``moved`` sets ``dataChange=false``, as do ``sorted``, if rows changed their order, and ``unrecorded``,
  if the commit does not record the relocation of rows;
* ``remove NAME [moved]``: a file of the table, or one that an earlier transaction of the scenario added;
* ``txn APP VERSION``, ``domain NAME TEXT``;
* ``property [KEY=VALUE]``, ``column NAME``: a metaData action; ``protocol READER WRITER [FEATURE]``; ``create``.

Without ``order``, W is the winner: both begin, W commits, T commits. ``levels`` are the values of the table's property
``delta.isolationLevel`` with which the scenario runs, by default both; ``default`` is a table without it. ``then`` is
the outcome in delta-spark, for each level: the transactions that fail, with their errors; the others commit.

``table`` names the table at the beginning, by default ``parts``: ``[tables.NAME]`` of the same file, or ``[NAME]``
of the file ``tables.toml`` beside it. Its columns are p long, q string, a long; it says ``partition_by``, ``files`` (as
``add`` has them), ``properties``, ``reader_features``, ``writer_features``, ``applications`` (their last versions) and
``identity`` (a column). One without ``files`` does not exist yet.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from pyroaring import BitMap64

from refdelta.core.rows.deletion_vector import encode_inline, serialize_bitmap
from refdelta.errors import DataFileError, DataFileNotFoundError, InvalidArgumentError
from refdelta.expressions.sql import parse_predicate
from refdelta.schema import Schema

LEVELS: Final = ("Serializable", "WriteSerializable")
ALL_COMMIT: Final = "all commit"
TABLES: Final = "tables.toml"
_ORDER = "begin T, begin W, commit W, commit T"
_COLUMNS = {"p": "long", "q": "string", "a": "long"}
_REARRANGED = {"moved", "sorted", "unrecorded"}
_OF_A_FILE = {"p", "q", "a", "rows", "vector"}
_OF_A_SCENARIO = {"id", "about", "table", "levels", "order", "then"}
_OF_A_TABLE = {
    "partition_by", "files", "properties", "reader_features", "writer_features", "applications", "identity"
}  # fmt: skip

Action = dict[str, dict[str, Any]]
"""An action as the log writes it."""


@dataclass(frozen=True)
class ScenarioTransaction:
    """The reads and the actions of one transaction, in the language of scenarios."""

    name: str
    reads: tuple[str, ...]
    does: tuple[str, ...]


@dataclass(frozen=True)
class Failure:
    """The failure of a transaction.

    Attributes:
        error: the name of the exception without ``Exception``, as in ``then``.
        why: the message of the engine, on one line.
        rule: the rule of refdelta that decided (``refdelta conflicts`` explains them); None in delta-spark.
    """

    error: str
    why: str
    rule: str | None = None


@dataclass(frozen=True)
class ScenarioCase:
    """A scenario at one isolation level.

    Attributes:
        scenario: the id of the scenario.
        level: the property of the table; ``default`` if the table does not have it.
        table: the description of the table.
        transactions: the transactions by name.
        steps: pairs such as ``("begin", "T")``.
        then: the outcome in delta-spark.
    """

    scenario: str
    level: str
    table: dict[str, Any]
    transactions: dict[str, ScenarioTransaction]
    steps: tuple[tuple[str, str], ...]
    then: str

    @property
    def id(self) -> str:
        """``SCENARIO@LEVEL``."""
        return f"{self.scenario}@{self.level}"

    # --- the table ---

    @property
    def exists(self) -> bool:
        """True if there is a table at the beginning."""
        return "files" in self.table

    @property
    def partition_columns(self) -> list[str]:
        """The partition columns of the table."""
        return list(self.table.get("partition_by", []))

    def beginning(self) -> list[Action]:
        """The actions of version 0 of the table."""
        counted = self.table.get("applications", {})
        applications = [_txn(name, version) for name, version in counted.items()]
        files = [self._add(words.split()) for words in self.table.get("files", [])]
        return [self._protocol(), self.metadata(), *applications, *files]

    def _protocol(self) -> Action:
        reader, writer = self.table.get("reader_features", []), self.table.get("writer_features", [])
        if reader:
            features = {"readerFeatures": reader, "writerFeatures": reader}
            return {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
        if writer:
            return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": writer}}
        return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}

    def metadata(self, properties: dict[str, str] | None = None, column: str | None = None) -> Action:
        """The metaData of the table, with further properties or one more column."""
        own = {} if self.level == "default" else {"delta.isolationLevel": self.level}
        kinds = _COLUMNS | ({column: "long"} if column else {})
        fields = [{"name": n, "type": kind, "nullable": True, "metadata": self._marks(n)} for n, kind in kinds.items()]
        schema = msgspec.json.encode({"type": "struct", "fields": fields}).decode()
        return {
            "metaData": {
                "id": "00000000-0000-0000-0000-000000000000",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": schema,
                "partitionColumns": self.partition_columns,
                "configuration": {**own, **self.table.get("properties", {}), **(properties or {})},
                "createdTime": 1,
            }
        }

    def _marks(self, column: str) -> dict[str, Any]:
        if column != self.table.get("identity"):
            return {}
        start = {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.allowExplicitInsert": True}
        return {**start, "delta.identity.highWaterMark": 9}

    # --- what transactions do ---

    def actions(self, name: str) -> list[Action]:
        """The actions that a transaction stages."""
        return [action for words in self.transactions[name].does for action in self._staged(words.split())]

    def _staged(self, words: list[str]) -> list[Action]:
        match words:
            case ["add", name, *more]:
                return [self._add([name, *more])]
            case ["remove", file, *moved] if moved in ([], ["moved"], ["unrecorded"], ["sorted"]):
                added = self._add(self.described(file))["add"]
                names = ("path", "partitionValues", "size", "deletionVector")
                kept: dict[str, Any] = {name: added[name] for name in names if name in added}
                extra = {"deletionTimestamp": 1, "extendedFileMetadata": True, "dataChange": not moved}
                return [{"remove": {**kept, **extra}}]
            case ["txn", app, version]:
                return [_txn(app, int(version))]
            case ["domain", domain, text]:
                return [{"domainMetadata": {"domain": domain, "configuration": text, "removed": False}}]
            case ["property", *pairs]:
                return [self.metadata(properties=dict(pair.split("=") for pair in pairs))]
            case ["column", column]:
                return [self.metadata(column=column)]
            case ["protocol", reader, writer, *features]:
                lists = {"writerFeatures": features} if features else {}
                return [{"protocol": {"minReaderVersion": int(reader), "minWriterVersion": int(writer), **lists}}]
            case ["create"]:
                return [self._protocol(), self.metadata()]
        raise InvalidArgumentError(f"{' '.join(words)!r} is not an action of a transaction")

    def described(self, file: str) -> list[str]:
        """The description of a file: in the table at the beginning, else in the transaction that adds it."""
        everywhere = [t.does for t in self.transactions.values()]
        staged = [words[4:] for does in everywhere for words in does if words.startswith("add ")]
        written: Iterator[list[str]] = (words.split() for words in [*self.table.get("files", []), *staged])
        found = next((words for words in written if words[0] == file), None)
        if found is None:
            raise InvalidArgumentError(f"the file {file!r} is not in the table, and no transaction adds it")
        return found

    def rows(self, file: str) -> list[dict[str, Any]]:
        """The rows of a file, including deleted ones."""
        given = _given(self.described(file)[1:])
        count = int(given.get("rows", 10))
        low, high = map(int, given["a"].split("..")) if "a" in given else (0, count - 1)
        whole = {"p": int(given["p"]) if "p" in given else None, "q": given.get("q")}
        return [{**whole, "a": low + (high - low) * row // max(count - 1, 1)} for row in range(count)]

    def _add(self, words: list[str]) -> Action:
        name, *more = words
        given = _given(more)
        add: dict[str, Any] = {
            "path": name,
            "partitionValues": {column: given.get(column) for column in self.partition_columns},
            "size": 1,
            "modificationTime": 1,
            "dataChange": _REARRANGED.isdisjoint(more),
        }
        bounds: dict[str, Any] = {"numRecords": int(given.get("rows", 10))}
        if "a" in given:
            low, high = map(int, given["a"].split(".."))
            bounds |= {"minValues": {"a": low}, "maxValues": {"a": high}, "nullCount": {"a": 0}}
        if "vector" in given:
            add["deletionVector"] = _vector(hidden_rows(given["vector"]))
            bounds["tightBounds"] = False
        if "a" in given or "vector" in given:
            add["stats"] = msgspec.json.encode(bounds).decode()
        return {"add": add}


def _given(words: list[str]) -> dict[str, str]:
    """The attributes of a file after its name."""
    for word in words:
        if word.partition("=")[0] not in (_OF_A_FILE if "=" in word else _REARRANGED):
            raise InvalidArgumentError(f"{word!r} is not an attribute of a file")
    return dict(word.split("=", 1) for word in words if "=" in word)


def hidden_rows(text: str) -> BitMap64:
    """The rows of a list such as ``0-2,7``."""
    ends = [list(map(int, part.split("-"))) for part in text.split(",")]
    return BitMap64(row for first, *last in ends for row in range(first, (last or [first])[0] + 1))


def _vector(rows: BitMap64) -> dict[str, Any]:
    data = serialize_bitmap(rows)
    inline = {"storageType": "i", "pathOrInlineDv": encode_inline(data)}
    return {**inline, "sizeInBytes": len(data), "cardinality": len(rows)}


def _txn(app: str, version: int) -> Action:
    return {"txn": {"appId": app, "version": version, "lastUpdated": 1}}


def read_scenarios(path: str | Path) -> list[ScenarioCase]:
    """Read the scenarios of a file, or of the files of a folder, each at all of its levels.

    Args:
        path: a TOML file as described at the top of this module, or a folder of such files.

    Returns:
        The cases, in the order of the files.

    Raises:
        DataFileNotFoundError: there is no such file.
        DataFileError: the file cannot be read, or is not TOML.
        InvalidArgumentError: a scenario is invalid; the message names the file and the scenario.
    """
    path = Path(path)
    files = sorted(path.glob("*.toml")) if path.is_dir() else [path]
    found = [case for file in files for case in _read_file(file)]
    if not found:
        raise InvalidArgumentError(f"{path} has no [[scenario]]")
    twice = [case.id for place, case in enumerate(found) if case.id in {other.id for other in found[:place]}]
    if twice:
        raise InvalidArgumentError(f"{path}: two scenarios have the id {twice[0]}")
    return found


def _read_file(file: Path) -> list[ScenarioCase]:
    document = _toml(file)
    beside = file.with_name(TABLES)
    if file == beside:
        return []
    if unknown := document.keys() - {"scenario", "tables"}:
        raise InvalidArgumentError(f"{file}: {min(unknown)} is neither [[scenario]] nor [tables.NAME]")
    tables = {**(_toml(beside) if beside.exists() else {}), **document.get("tables", {})}
    cases = []
    for described in document.get("scenario", []):
        try:
            some = _levels(described, tables)
            for case in some:
                _check(case)
        except (InvalidArgumentError, ValueError, TypeError, AttributeError) as error:
            raise InvalidArgumentError(f"{file}, scenario {described.get('id', '(without id)')}: {error}") from error
        cases += some
    return cases


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except FileNotFoundError:
        raise DataFileNotFoundError("there is no such file", file=str(file)) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataFileError(f"not readable as TOML: {error}", file=str(file)) from error


def _levels(described: dict[str, Any], tables: dict[str, Any]) -> list[ScenarioCase]:
    if "id" not in described:
        raise InvalidArgumentError("it has no id")
    transactions = {name: _transaction(name, body) for name, body in described.items() if name not in _OF_A_SCENARIO}
    table, levels = described.get("table", "parts"), described.get("levels", LEVELS)
    if table not in tables:
        raise InvalidArgumentError(f"no table {table!r} here or in {TABLES} beside it")
    if unknown := tables[table].keys() - _OF_A_TABLE:
        raise InvalidArgumentError(f"table {table!r} has the unknown key {min(unknown)}")
    if unknown := set(levels) - {*LEVELS, "default"}:
        raise InvalidArgumentError(f"{min(unknown)!r} is not an isolation level")
    then = described.get("then", ALL_COMMIT)
    return [
        ScenarioCase(
            scenario=described["id"],
            level=level,
            table=tables[table],
            transactions=transactions,
            steps=_steps(described.get("order", _ORDER), transactions),
            then=then.get(level, ALL_COMMIT) if isinstance(then, dict) else then,
        )
        for level in levels
    ]


def _transaction(name: str, body: Any) -> ScenarioTransaction:
    if not isinstance(body, dict) or body.keys() - {"reads", "does"} or "does" not in body:
        raise InvalidArgumentError(f"{name} is not a transaction: it must be {{ reads = [...], does = [...] }}")
    return ScenarioTransaction(name, tuple(body.get("reads", ())), tuple(body["does"]))


def _steps(order: str, transactions: dict[str, ScenarioTransaction]) -> tuple[tuple[str, str], ...]:
    steps = [tuple(step.split()) for step in order.split(",")]
    wanted = [(verb, name) for name in transactions for verb in ("begin", "commit")]
    if sorted(steps) != sorted(wanted):
        named = ", ".join(" ".join(step) for step in wanted)
        raise InvalidArgumentError(f"the order {order!r} does not consist of these steps: {named}")
    for name in transactions:
        if steps.index(("begin", name)) > steps.index(("commit", name)):
            raise InvalidArgumentError(f"{name} commits before it begins")
    return tuple((verb, name) for verb, name in steps)


def _check(case: ScenarioCase) -> None:
    """Raise an error for a case that no engine can run."""
    begun = case.beginning()
    schema = Schema.from_json(begun[1]["metaData"]["schemaString"]).struct
    for name, transaction in case.transactions.items():
        case.actions(name)
        for words in transaction.reads:
            if words == "everything" or words.startswith("app "):
                continue
            if not case.exists:
                raise InvalidArgumentError(f"{name} reads where {words}, but there is no table yet")
            try:
                parse_predicate(words, schema)
            except InvalidArgumentError as error:
                raise InvalidArgumentError(f"{name} reads: {error}") from error
