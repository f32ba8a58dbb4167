"""The corpus: cases of concurrent transactions, as JSON files that any engine can be held to.

A case is a table, two or more transactions, the order in which they begin and commit, and the outcomes that are right.
``docs/conformance.md`` describes the format and ``corpus/schema.json`` is its schema. There are two kinds of cases:

* Of **statements**: the table has rows, and a transaction has statements (:mod:`~refdelta.conformance.statements`).
* Of **actions**: the table has files, and a transaction reads by predicates and commits actions of the log. There are
  no data files, so engines that check conflicts by the log alone can run them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
from pyroaring import BitMap64

from refdelta.conformance.statements import Statement, parse_statement
from refdelta.core.rows.deletion_vector import encode_inline, serialize_bitmap
from refdelta.errors import DataFileError, DataFileNotFoundError, InvalidArgumentError
from refdelta.expressions.sql import parse_predicate
from refdelta.schema import Schema

LEVELS: Final = ("Serializable", "WriteSerializable")
ALL_COMMIT: Final = "all commit"
TABLES: Final = "tables.json"
SCHEMA: Final = "schema.json"
CORPUS: Final = Path(__file__).with_name("corpus")
FORMAT: Final = 1
"""The version of the format of corpus files."""
_SCHEDULE = ("begin T", "begin W", "commit W", "commit T")
_COLUMNS = {"p": "long", "q": "string", "a": "long"}
_REARRANGED = {"moved", "sorted", "unrecorded"}
_OF_A_FILE = {"p", "q", "a", "rows", "vector"}
_OF_A_FILE_OF_CASES = {"format", "about", "tables", "cases"}
_OF_A_CASE = {
    "id", "about", "clause", "table", "levels", "transactions", "schedule", "cannot_conflict", "delta_spark",
    "expected",
}  # fmt: skip
_OF_A_TABLE = {
    "partition_by", "files", "removed", "rows", "properties", "reader_features", "writer_features", "applications",
    "identity",
}  # fmt: skip

Action = dict[str, dict[str, Any]]
"""An action as the log writes it."""


@dataclass(frozen=True)
class CaseTransaction:
    """One transaction of a case.

    Attributes:
        name: its name, such as ``T``.
        reads: predicates, ``everything``, or ``app`` and an application id.
        does: actions in short form, such as ``add t p=0 a=0..9``.
        statements: of a case of statements, what it executes, in order.
    """

    name: str
    reads: tuple[str, ...] = ()
    does: tuple[str, ...] = ()
    statements: tuple[Statement, ...] = ()


@dataclass(frozen=True)
class Failure:
    """The failure of a transaction.

    Attributes:
        error: the name of the exception without ``Exception``, as in ``delta_spark`` of a case.
        why: the message of the engine, on one line.
        rule: the rule of refdelta that decided (``refdelta conflicts`` explains them); None in other engines.
    """

    error: str
    why: str
    rule: str | None = None


@dataclass(frozen=True)
class Case:
    """A case at one isolation level.

    Attributes:
        name: the id of the case in its file.
        group: the name of its file, without the ending.
        level: the property ``delta.isolationLevel`` of the table; ``default`` if the table does not have it.
        table: the description of the table.
        transactions: the transactions by name.
        steps: pairs such as ``("begin", "T")``.
        delta_spark: the recorded outcome in delta-spark's conflict checker; None if it was not asked.
        about: what the case shows; may be empty.
        clause: the sentence of the documentation, or the clause of the contract; may be empty.
        expected: the outcomes that are right, as the file has them.
        cannot_conflict: True if the documentation promises that all transactions commit.
    """

    name: str
    group: str
    level: str
    table: dict[str, Any]
    transactions: dict[str, CaseTransaction]
    steps: tuple[tuple[str, str], ...]
    delta_spark: str | None = None
    about: str = ""
    clause: str = ""
    expected: dict[str, Any] = field(default_factory=dict)
    cannot_conflict: bool = False

    @property
    def id(self) -> str:
        """``NAME@LEVEL``."""
        return f"{self.name}@{self.level}"

    @property
    def kind(self) -> str:
        """``statements`` or ``actions``."""
        return "statements" if "rows" in self.table else "actions"

    @property
    def commits(self) -> tuple[str, ...]:
        """The names of the transactions, in the order of their commits."""
        return tuple(name for verb, name in self.steps if verb == "commit")

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

    def metadata(self, properties: dict[str, str] | None = None, column: str | None = None, highest: int = 9) -> Action:
        """The metaData of the table, with further properties, one more column, or another highest identity value."""
        own = {} if self.level == "default" else {"delta.isolationLevel": self.level}
        kinds = _COLUMNS | ({column: "long"} if column else {})
        fields = [
            {"name": n, "type": kind, "nullable": True, "metadata": self._marks(n, highest)}
            for n, kind in kinds.items()
        ]
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

    def _marks(self, column: str, highest: int) -> dict[str, Any]:
        if column != self.table.get("identity"):
            return {}
        start = {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.allowExplicitInsert": True}
        return {**start, "delta.identity.highWaterMark": highest}

    # --- what transactions do ---

    def actions(self, name: str) -> list[Action]:
        """The actions that a transaction stages."""
        return [action for words in self.transactions[name].does for action in self._staged(words.split())]

    def _staged(self, words: list[str]) -> list[Action]:
        match words:
            case ["add", name, *more]:
                return [self._add([name, *more])]
            case ["restore", name] if name in self.removed:
                return [self._add(self.described(name))]
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
            case ["identity", highest]:
                return [self.metadata(highest=int(highest))]
            case ["create"]:
                return [self._protocol(), self.metadata()]
            case ["replace", column]:
                return [self._protocol(), self.metadata(column=column)]
            case ["vacuum"]:
                return []
        raise InvalidArgumentError(f"{' '.join(words)!r} is not an action of a transaction")

    @property
    def removed(self) -> list[str]:
        """The names of files that the table had before, and that are still in its folder."""
        return [words.split()[0] for words in self.table.get("removed", [])]

    def described(self, file: str) -> list[str]:
        """The description of a file: of the table at the beginning, else of the transaction that adds it."""
        everywhere = [t.does for t in self.transactions.values()]
        staged = [words[4:] for does in everywhere for words in does if words.startswith("add ")]
        written: Iterator[list[str]] = (
            words.split() for words in [*self.table.get("files", []), *self.table.get("removed", []), *staged]
        )
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


def cases(path: str | Path = CORPUS) -> list[Case]:
    """Read the cases of the corpus, or of a file or folder of one's own, each at all of its levels.

    Args:
        path: a JSON file as described in ``docs/conformance.md``, or a folder of such files; by default the corpus.

    Returns:
        The cases, in the order of the files.

    Raises:
        DataFileNotFoundError: there is no such file.
        DataFileError: the file cannot be read, or is not JSON.
        InvalidArgumentError: a case is invalid; the message names the file and the case.

    Example:
        >>> from refdelta.conformance import cases
        >>> case = next(case for case in cases() if case.name == "lost-update")
        >>> case.commits
        ('W', 'T')
    """
    path = Path(path)
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    found = [case for file in files if file.name != SCHEMA for case in _read_file(file)]
    if not found:
        raise InvalidArgumentError(f"{path} has no cases")
    seen: set[str] = set()
    for case in found:
        if case.id in seen:
            raise InvalidArgumentError(f"{path}: two cases have the id {case.id}")
        seen.add(case.id)
    return found


def _read_file(file: Path) -> list[Case]:
    document = _json(file)
    if file.name == TABLES:
        return []
    beside = file.with_name(TABLES)
    tables = {**(_json(beside).get("tables", {}) if beside.exists() else {}), **document.get("tables", {})}
    found = []
    for described in document.get("cases", []):
        try:
            some = _levels(described, tables, file.stem)
            for case in some:
                _check(case)
        except (InvalidArgumentError, ValueError, TypeError, AttributeError) as error:
            name = described.get("id", "(without id)") if isinstance(described, dict) else "(no object)"
            raise InvalidArgumentError(f"{file}, case {name}: {error}") from error
        found += some
    return found


def _json(file: Path) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(file.read_bytes())
    except FileNotFoundError:
        raise DataFileNotFoundError("there is no such file", file=str(file)) from None
    except (OSError, msgspec.DecodeError) as error:
        raise DataFileError(f"not readable as JSON: {error}", file=str(file)) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InvalidArgumentError(f'{file}: it must be an object with "format": {FORMAT}')
    if unknown := document.keys() - _OF_A_FILE_OF_CASES:
        raise InvalidArgumentError(f"{file}: {min(unknown)} is not one of {', '.join(sorted(_OF_A_FILE_OF_CASES))}")
    return document


def _levels(described: dict[str, Any], tables: dict[str, Any], group: str) -> list[Case]:
    if "id" not in described:
        raise InvalidArgumentError("it has no id")
    if unknown := described.keys() - _OF_A_CASE:
        raise InvalidArgumentError(f"it has the unknown key {min(unknown)}")
    table, levels = described.get("table", "parts"), described.get("levels", LEVELS)
    if isinstance(table, str) and table not in tables:
        raise InvalidArgumentError(f"no table {table!r} here or in {TABLES} beside it")
    begins = tables[table] if isinstance(table, str) else table
    if unknown := begins.keys() - _OF_A_TABLE:
        raise InvalidArgumentError(f"its table has the unknown key {min(unknown)}")
    if unknown := set(levels) - {*LEVELS, "default"}:
        raise InvalidArgumentError(f"{min(unknown)!r} is not an isolation level")
    transactions = {name: _transaction(name, body) for name, body in described.get("transactions", {}).items()}
    steps = _steps(described.get("schedule", _SCHEDULE), transactions)
    recorded = described.get("delta_spark")
    return [
        Case(
            name=described["id"],
            group=group,
            level=level,
            table=begins,
            transactions=transactions,
            steps=steps,
            delta_spark=recorded.get(level, ALL_COMMIT) if isinstance(recorded, dict) else recorded,
            about=described.get("about", ""),
            clause=described.get("clause", ""),
            expected=described.get("expected", {}).get(level, {}),
            cannot_conflict=level in described.get("cannot_conflict", ()),
        )
        for level in levels
    ]


def _transaction(name: str, body: Any) -> CaseTransaction:
    keys = body.keys() if isinstance(body, dict) else set()
    if keys == {"statements"}:
        return CaseTransaction(name, statements=tuple(map(parse_statement, body["statements"])))
    if "does" not in keys or keys - {"reads", "does"}:
        raise InvalidArgumentError(
            f'{name} is not a transaction: it must be {{"statements": [...]}} or {{"reads": [...], "does": [...]}}'
        )
    return CaseTransaction(name, tuple(body.get("reads", ())), tuple(body["does"]))


def _steps(schedule: Sequence[str], transactions: dict[str, CaseTransaction]) -> tuple[tuple[str, str], ...]:
    steps = [tuple(step.split()) for step in schedule]
    wanted = [(verb, name) for name in transactions for verb in ("begin", "commit")]
    if sorted(steps) != sorted(wanted):
        named = ", ".join(" ".join(step) for step in wanted)
        raise InvalidArgumentError(f"its schedule does not consist of these steps: {named}")
    for name in transactions:
        if steps.index(("begin", name)) > steps.index(("commit", name)):
            raise InvalidArgumentError(f"{name} commits before it begins")
    return tuple((verb, name) for verb, name in steps)


def _check(case: Case) -> None:
    """Raise an error for a case that no engine can run."""
    for name, transaction in case.transactions.items():
        if bool(transaction.statements) != (case.kind == "statements"):
            raise InvalidArgumentError(f"{name} has no statements, but the table has rows; or the other way round")
    if case.kind == "statements":
        return
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
