"""Scenarios: a table, two or three transactions, the order in which they begin and commit, and how that ends.

They are written down in the TOML files beside this one, in a few words that both engines are fed from. A transaction::

    T = { reads = ["p = 0", "app stream"], does = ["remove f0", "add t p=0 a=0..9", "txn stream 1"] }

reads at its beginning and stages what it does for its commit. ``reads`` has predicates, ``everything``, or ``app`` and
an application id. ``does`` has

* ``add NAME [p=..] [q=..] [a=LOW..HIGH] [rows=N] [vector=ROWS] [moved|sorted|unrecorded]``: a file of ten rows unless
  said; ``a`` gives it statistics, and its rows are evenly spread between the two; ``vector`` hides rows, such as
  ``0-2,7``; ``moved`` says ``dataChange=false``, as do ``sorted``, where rows changed their order, and ``unrecorded``,
  where the commit does not say which rows came from where;
* ``remove NAME [moved]``: the file as the table, or an earlier transaction of the scenario, added it;
* ``txn APP VERSION``, ``domain NAME TEXT``;
* ``property [KEY=VALUE]``, ``column NAME``: a metaData action; ``protocol READER WRITER [FEATURE]``; ``create``.

Where no ``order`` is given, W is the winner: both begin, W commits, T commits. ``then`` says what delta-spark does, for
each level: which transactions fail, and of what; the others commit.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from pyroaring import BitMap64

from refdelta.protocol.deletion_vector import encode_inline, serialize_bitmap

HERE = Path(__file__).parent
LEVELS = ("Serializable", "WriteSerializable")
ALL_COMMIT = "all commit"
_ORDER = "begin T, begin W, commit W, commit T"
_COLUMNS = {"p": "long", "q": "string", "a": "long"}
_REARRANGED = {"moved", "sorted", "unrecorded"}

Action = dict[str, dict[str, Any]]
"""An action as the log has it."""


@dataclass(frozen=True)
class Transaction:
    """What one transaction reads and does, in the words of its file."""

    name: str
    reads: tuple[str, ...]
    does: tuple[str, ...]


@dataclass(frozen=True)
class Case:
    """A scenario at one level, which is the table's property; ``default`` where the table has none.

    Attributes:
        scenario: its id.
        level: see above.
        table: what is written of the table in tables.toml.
        transactions: by name.
        steps: pairs such as ``("begin", "T")``.
        then: what delta-spark does.
    """

    scenario: str
    level: str
    table: dict[str, Any]
    transactions: dict[str, Transaction]
    steps: tuple[tuple[str, str], ...]
    then: str

    @property
    def id(self) -> str:
        return f"{self.scenario}@{self.level}"

    # --- the table ---

    @property
    def exists(self) -> bool:
        return "files" in self.table

    @property
    def partition_columns(self) -> list[str]:
        return list(self.table.get("partition_by", []))

    def beginning(self) -> list[Action]:
        """Version 0 of the table."""
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
        """The table's metaData, with more properties or one more column."""
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
        """What a transaction stages."""
        return [action for words in self.transactions[name].does for action in self._staged(words.split())]

    def _staged(self, words: list[str]) -> list[Action]:
        match words:
            case ["add", *file]:
                return [self._add(file)]
            case ["remove", file, *moved]:
                added = self._add(self.described(file))["add"]
                kept = {
                    key: added[key] for key in ("path", "partitionValues", "size", "deletionVector") if key in added
                }
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
        raise ValueError(f"{self.scenario}: {' '.join(words)}")

    def described(self, file: str) -> list[str]:
        """What is written of a file: where the table begins with it, there, else where it is added."""
        everywhere = [t.does for t in self.transactions.values()]
        staged = [words[4:] for does in everywhere for words in does if words.startswith("add ")]
        return next(words.split() for words in [*self.table["files"], *staged] if words.split()[0] == file)

    def rows(self, file: str) -> list[dict[str, Any]]:
        """The rows of a file, hidden ones included."""
        given = _given(self.described(file))
        count = int(given.get("rows", 10))
        low, high = map(int, given["a"].split("..")) if "a" in given else (0, count - 1)
        whole = {"p": int(given["p"]) if "p" in given else None, "q": given.get("q")}
        return [{**whole, "a": low + (high - low) * row // (count - 1)} for row in range(count)]

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
    return dict(word.split("=") for word in words if "=" in word)


def hidden_rows(text: str) -> BitMap64:
    """The rows that ``0-2,7`` names."""
    ends = [list(map(int, part.split("-"))) for part in text.split(",")]
    return BitMap64(row for first, *last in ends for row in range(first, (last or [first])[0] + 1))


def _vector(rows: BitMap64) -> dict[str, Any]:
    data = serialize_bitmap(rows)
    inline = {"storageType": "i", "pathOrInlineDv": encode_inline(data)}
    return {**inline, "sizeInBytes": len(data), "cardinality": len(rows)}


def _txn(app: str, version: int) -> Action:
    return {"txn": {"appId": app, "version": version, "lastUpdated": 1}}


def cases() -> list[Case]:
    """All scenarios at all of their levels, in the order of their files."""
    tables = tomllib.loads((HERE / "tables.toml").read_text())
    found = []
    for path in sorted(HERE.glob("*.toml")):
        for told in tomllib.loads(path.read_text()).get("scenario", []):
            found += _levels(told, tables)
    assert len({case.id for case in found}) == len(found), "two scenarios have one id"
    return found


def _levels(told: dict[str, Any], tables: dict[str, Any]) -> list[Case]:
    transactions = {
        name: Transaction(name, tuple(body.get("reads", ())), tuple(body["does"]))
        for name, body in told.items()
        if isinstance(body, dict) and name != "then"
    }
    steps = [step.split() for step in told.get("order", _ORDER).split(", ")]
    assert sorted(name for _, name in steps) == sorted([*transactions, *transactions]), told["id"]
    then = told.get("then", ALL_COMMIT)
    return [
        Case(
            scenario=told["id"],
            level=level,
            table=tables[told.get("table", "parts")],
            transactions=transactions,
            steps=tuple((verb, name) for verb, name in steps),
            then=then.get(level, ALL_COMMIT) if isinstance(then, dict) else then,
        )
        for level in told.get("levels", LEVELS)
    ]
