"""Tables with one extreme value: text that nests, times beyond Python's calendar, long durations, odd characters.

A case is a place in a table (a property, a domain, a column's metadata, a value of a data file) and a value for it.
:func:`outcomes` takes a table with it through the API, the command line, the verifier and what a notebook shows.
``python -m fuzz.extremes FIRST EACH STEPS`` runs each EACH-th case of the enumeration with some steps, in children of
its own, and prints what ended in anything else than an answer or a ``DeltaError``. The fuzz target ``extremes`` draws
cases and steps.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import signal
import sys
import traceback
import warnings
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

from fuzz.targets import Target, shown
from handmade import add, field, parquet, struct
from refdelta import DeltaTable, verify, write_deltalake
from refdelta.cli import main
from refdelta.errors import DeltaError
from refdelta_storage import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

NAME = "extremes"
URI = f"memory://{NAME}"
STEERING = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp\u2066\x7f\r\b"

Case = tuple[str, Any]
MEMORY, SECONDS = 4 << 30, 20.0
"""Address space and processor time of a child of the search, the time for each step."""


# --- the table ---------------------------------------------------------------------------------------------------


def _protocol(*readers: str, writers: tuple[str, ...] = ()) -> dict[str, Any]:
    features = {"readerFeatures": list(readers), "writerFeatures": [*readers, *writers]}
    return {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}


_WRITERS = ("appendOnly", "invariants", "checkConstraints", "generatedColumns", "allowColumnDefaults")
_WRITERS += ("changeDataFeed", "domainMetadata", "rowTracking", "clustering", "inCommitTimestamp", "identityColumns")
_TIMES = ("d", "date"), ("at", "timestamp"), ("wall", "timestamp_ntz")


class Raw(str):
    """JSON text that is written as it is, where ``json.dumps`` could not nest as deeply."""

    __slots__ = ()


class Made:
    """The parts of a table, to be changed before they are written."""

    def __init__(self) -> None:
        self.protocol = _protocol("deletionVectors", "timestampNtz", writers=_WRITERS)
        self.fields = [field("id", "long"), field("s", "string"), *(field(name, kind) for name, kind in _TIMES)]
        self.fields.append(field("inner", struct(field("x", "integer"), field("days", {"type": "array",
                           "elementType": "date", "containsNull": True}))))  # fmt: skip
        self.schema: str | None = None
        self.partition_columns: list[str] = []
        self.configuration = {
            "delta.enableRowTracking": "true",
            "delta.rowTracking.materializedRowIdColumnName": "_row-id",
            "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-version",
            "delta.enableChangeDataFeed": "true",
        }
        self.metadata: dict[str, Any] = {}
        self.info: dict[str, Any] = {"timestamp": 1, "operation": "WRITE", "operationParameters": {"mode": "Append"}}
        self.clustering: Any = json.dumps({"clusteringColumns": [["id"]], "domainName": "delta.clustering"})
        self.tracking: Any = json.dumps({"rowIdHighWaterMark": 2})
        self.other: Any = "{}"
        self.domain = "mine"
        self.add: dict[str, Any] = {"baseRowId": 0, "defaultRowCommitVersion": 0, "tags": {"a": "b"}}
        self.stats: Any = json.dumps({"numRecords": 3, "minValues": {"id": 1}, "maxValues": {"id": 3}})
        self.values: dict[str, str | None] = {}
        self.days, self.micros = [0, 1, 2], [0, 1, 2]
        self.txn = "app"
        self.files: dict[str, bytes] = {}
        self.raws: list[Raw] = []

    def raw(self, value: Any) -> Any:
        """The value, or a word that stands for a text of JSON until the log is written."""
        if not isinstance(value, Raw):
            return value
        self.raws.append(value)
        return f"@{len(self.raws) - 1}@"

    def _lines(self, actions: list[dict[str, Any]]) -> bytes:
        text = "\n".join(map(json.dumps, actions))
        for number, value in enumerate(self.raws):
            text = text.replace(f'"@{number}@"', value)
        return text.encode()

    def objects(self) -> dict[str, bytes]:
        """The table's files: two commits, and one data file."""
        days = pa.array(self.days, pa.int32()).view(pa.date32())
        columns: dict[str, Any] = {
            "id": pa.array([1, 2, 3], pa.int64()),
            "s": pa.array(["a", "b", "c"]),
            "d": days,
            "at": pa.array(self.micros, pa.int64()).view(pa.timestamp("us", "UTC")),
            "wall": pa.array(self.micros, pa.int64()).view(pa.timestamp("us")),
            "inner": pa.StructArray.from_arrays(
                [pa.array([1, 2, 3], pa.int32()), pa.ListArray.from_arrays([0, 1, 2, 3], days)], ["x", "days"]
            ),
        }
        data = parquet(pa.table({name: c for name, c in columns.items() if name not in self.partition_columns}))
        schema = json.dumps(struct(*self.fields)) if self.schema is None else self.schema
        metadata = {
            "id": "6f3c2a1e-0000-4000-8000-000000000000",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": self.partition_columns,
            "configuration": self.configuration,
            **self.metadata,
        }
        one = add("f.parquet", size=len(data), **self.add, partitionValues=self.values, stats=self.stats)
        domains = [("delta.clustering", self.clustering), ("delta.rowTracking", self.tracking)]
        domains.append((self.domain, self.other))
        first = [
            {"commitInfo": self.info}, self.protocol, {"metaData": metadata}, one,
            *({"domainMetadata": {"domain": name, "configuration": c, "removed": False}} for name, c in domains),
            {"txn": {"appId": self.txn, "version": 1}},
        ]  # fmt: skip
        if self.partition_columns:
            first = [each for each in first if each.get("domainMetadata", {}).get("domain") != "delta.clustering"]
        second = [{"commitInfo": self.info}, {"txn": {"appId": self.txn, "version": 2}}]
        return {
            "_delta_log/00000000000000000000.json": self._lines(first),
            "_delta_log/00000000000000000001.json": self._lines(second),
            "f.parquet": data,
            **self.files,
        }


# --- values ------------------------------------------------------------------------------------------------------


DEPTHS = (9, 60, 99, 101)
"""Levels of JSON: the last one is refused."""


def _deep_values() -> Iterator[str]:
    return map(Raw, [text for text in _deep() if text[-1] != "["])


def _deep() -> Iterator[str]:
    for depth in DEPTHS:
        yield "[" * depth + "]" * depth
        yield '{"a":' * depth + "1" + "}" * depth
        yield '{"expression":' * depth + "1" + "}" * depth
    yield "[[[["


def _deep_sql() -> Iterator[str]:
    for depth in (3, 9):
        yield "(" * depth + "id > 0" + ")" * depth
        yield "NOT " * depth + "true"
        yield "- " * depth + "id > 0"
        yield "id" + " + 1" * depth + " > 0"
        yield "array(" * depth + "id" + ")" * depth + " IS NULL"
        yield "CASE WHEN " * depth + "true" + " THEN true END" * depth
        yield "CAST(id AS " + "array<" * depth + "int" + ">" * depth + ") IS NULL"
        yield "id" + "[0]" * depth + " > 0"
        yield "id" + ".x" * depth + " > 0"
        yield "/*" * depth + "*/" * depth + " id > 0"


def _deep_types() -> Iterator[str]:
    for depth in (3, 9, 30):
        for opened, closed in (
            ('{"type":"array","containsNull":true,"elementType":', "}"),
            ('{"type":"map","keyType":"long","valueContainsNull":true,"valueType":', "}"),
            ('{"type":"struct","fields":[{"name":"x","nullable":true,"metadata":{},"type":', "}]}"),
        ):
            yield opened * depth + '"long"' + closed * depth


DURATIONS = [
    "interval 999999999999999 years", "interval 999999999999 weeks", "interval 999999999999 hours",
    f"interval {'9' * 40} days", "interval -999999999999 weeks", "interval 106751991168 days",
    "interval 1 day " * 50, "999999999999 weeks " * 20, "interval", "", "interval 1.5 days",
    "interval \u0663 days", "interval " + " " * 500 + "x", "9" * 500, "interval 1 " + "y" * 500,
]  # fmt: skip
NUMBERS: list[Any] = [2**31, 2**53, 2**63 - 1, -(2**63), 2**63, 2**64, 10**30, 10**400, 1e300, -1, "1", None, True]
TIMES = [2**63 - 1, -(2**63), 253_402_300_800_000, -62_135_596_800_001, 2**53, -(2**53), 10**17, -(10**17), 2**64]
DAYS = [2**31 - 1, -(2**31), 2_932_897, -719_163, -719_529, 10**8]
MICROS = [2**63 - 1, -(2**63), 253_402_300_800_000_000, -62_135_596_800_000_001, 10**18, -(10**18), -(2**63) + 1]
DATES = ["+10000-01-01", "9999-12-31", "0000-01-01", "-0001-01-01", "+999999-12-31", "-290308-12-21", "99999-01-01"]
TEXTS = [STEERING, "\ud800", "\0", "x" * 10_000, "a\nb", "", "\U000e0041"]
_SOME: list[Any] = [None, 1, [], {}, [[]], "x", True]

# --- places ------------------------------------------------------------------------------------------------------

Put = "Callable[[Made, Any], None]"
_PLACES: dict[str, tuple[Callable[[Made, Any], None], Callable[[], Any]]] = {}


def _place(name: str, values: Callable[[], Any]) -> Callable[[Callable[[Made, Any], None]], None]:
    def kept(put: Callable[[Made, Any], None]) -> None:
        _PLACES[name] = put, values

    return kept


_JSON_KEYS = ("delta.invariants", "delta.typeChanges", "delta.columnMapping.nested.ids", "comment", "__COLLATIONS",
              "__CHAR_VARCHAR_TYPE_STRING", "delta.identity.start", "delta.identity.highWaterMark", "mine",
              "delta.columnMapping.id", "delta.columnMapping.physicalName")  # fmt: skip
_SQL_KEYS = ("delta.generationExpression", "CURRENT_DEFAULT")
_BOX = '{"expression":{"expression":%s}}'


def _of_column(key: str) -> Callable[[Made, Any], None]:
    def put(made: Made, value: Any) -> None:
        made.fields[1]["metadata"][key] = value

    return put


for _key in _JSON_KEYS:
    _place(f"column {_key}", lambda: [*_deep(), *TEXTS, *NUMBERS, *_SOME])(_of_column(_key))
for _key in _SQL_KEYS:
    _place(f"column {_key}", lambda: [*_deep_sql(), *TEXTS, *_SOME])(_of_column(_key))


@_place("column metadata", lambda: [*_deep(), "1", "null", '"x"'])
def _(made: Made, value: Any) -> None:
    text = json.dumps(struct(*made.fields))
    made.schema = text.replace('"metadata": {}', f'"metadata": {{"deep": {value}}}', 1)


@_place("column invariant in SQL", lambda: [*_deep_sql(), *TEXTS])
def _(made: Made, value: Any) -> None:
    made.fields[1]["metadata"]["delta.invariants"] = _BOX % json.dumps(value)


@_place("column invariant in JSON", _deep)
def _(made: Made, value: Any) -> None:
    made.fields[1]["metadata"]["delta.invariants"] = _BOX % value


@_place("type", lambda: [*_deep_types(), *_deep(), '"decimal(99999999999999999999,2)"', '"char(99999999999)"'])
def _(made: Made, value: Any) -> None:
    text = json.dumps(struct(*made.fields))
    made.schema = text.replace('"type": "string"', f'"type": {value}', 1)


@_place("schema", lambda: [*_deep(), *_deep_types(), "null", "1", '"string"', "", "9" * 50])
def _(made: Made, value: Any) -> None:
    made.schema = value


@_place("column name", lambda: [*TEXTS, "a" * 10_000])
def _(made: Made, value: Any) -> None:
    made.fields[1]["name"] = value


def _of_property(key: str) -> Callable[[Made, Any], None]:
    def put(made: Made, value: Any) -> None:
        made.configuration[key] = value

    return put


for _key in ("deletedFileRetentionDuration", "logRetentionDuration", "checkpointRetentionDuration",
             "setTransactionRetentionDuration", "dropFeatureTruncateHistory.retentionDuration"):  # fmt: skip
    _place(f"property delta.{_key}", lambda: [*DURATIONS, *TEXTS])(_of_property(f"delta.{_key}"))
for _key in ("delta.checkpointInterval", "delta.dataSkippingNumIndexedCols", "delta.targetFileSize",
             "delta.inCommitTimestampEnablementVersion", "delta.columnMapping.maxColumnId",
             "delta.inCommitTimestampEnablementTimestamp", "delta.randomPrefixLength",
             "delta.requireCheckpointProtectionBeforeVersion", "refdelta.logCompactionInterval"):  # fmt: skip
    _place(f"property {_key}", lambda: [*(str(n) for n in NUMBERS), "9" * 50, "999999999999999t", *TEXTS])(
        _of_property(_key)
    )
for _key in ("delta.constraints.c", "delta.constraints." + "c" * 500):
    _place(f"property {_key[:30]}", lambda: [*_deep_sql(), *TEXTS])(_of_property(_key))
for _key in ("delta.dataSkippingStatsColumns", "delta.isolationLevel", "delta.universalFormat.enabledFormats",
             "delta.coordinatedCommits.commitCoordinatorConf-preview", "delta.coordinatedCommits.tableConf-preview",
             "delta.redirectReaderWriter-preview", "delta.autoOptimize", "mine", STEERING):  # fmt: skip
    _place(f"property {_key[:40]!r}", lambda: [*_deep(), *TEXTS, "`" * 99, "a," * 99, "a." * 99])(_of_property(_key))


@_place("domain clustering", lambda: [*_deep(), *TEXTS, *map(json.dumps, _SOME), '{"clusteringColumns":[[1]]}'])
def _(made: Made, value: Any) -> None:
    made.clustering = value


@_place("domain clustering columns", _deep)
def _(made: Made, value: Any) -> None:
    made.clustering = f'{{"clusteringColumns":[{value}],"domainName":"delta.clustering"}}'


@_place("domain rowTracking", lambda: [*_deep(), *TEXTS, *map(json.dumps, _SOME)])
def _(made: Made, value: Any) -> None:
    made.tracking = value


@_place("row id mark", lambda: [*_deep(), *map(json.dumps, NUMBERS[:7]), "9" * 44])
def _(made: Made, value: Any) -> None:
    made.tracking = f'{{"rowIdHighWaterMark":{value}}}'


@_place("domain mine", lambda: [*_deep(), *TEXTS])
def _(made: Made, value: Any) -> None:
    made.other = value


@_place("domain name", lambda: [*TEXTS, *_deep_values()])
def _(made: Made, value: Any) -> None:
    made.domain = value


@_place("stats", lambda: [*_deep_values(), *_deep(), *TEXTS, *_SOME])
def _(made: Made, value: Any) -> None:
    made.stats = value


@_place("stats of a column", lambda: [*_deep(), *map(json.dumps, [*NUMBERS[:9], *DATES, *TEXTS, *_SOME])])
def _(made: Made, value: Any) -> None:
    bounds = ",".join(f'"{name}":{value}' for name in ("id", "d", "at", "wall", "s"))
    made.stats = f'{{"numRecords":3,"minValues":{{{bounds}}},"maxValues":{{{bounds}}},"nullCount":{{{bounds}}}}}'


@_place("tags", lambda: [*_deep_values(), {STEERING: "x"}, {"a": None}, {"a": "[[[["}, {"x" * 999: ""}])
def _(made: Made, value: Any) -> None:
    made.add["tags"] = value


for _name, _values in (("d", DATES), ("at", DATES), ("wall", DATES), ("s", [*TEXTS, *_deep()])):

    def _partitioned(made: Made, value: Any, name: str = _name) -> None:
        made.partition_columns, made.values = [name], {name: value}

    _place(f"partition value of {_name}", lambda values=_values: values)(_partitioned)


@_place("days", lambda: DAYS)
def _(made: Made, value: Any) -> None:
    made.days[1] = value


@_place("micros", lambda: MICROS)
def _(made: Made, value: Any) -> None:
    made.micros[1] = value


@_place("modificationTime", lambda: TIMES)
def _(made: Made, value: Any) -> None:
    made.add["modificationTime"] = value


@_place("createdTime", lambda: [*TIMES, *_SOME, *_deep_values()])
def _(made: Made, value: Any) -> None:
    made.metadata["createdTime"] = value


@_place("commit time", lambda: [*TIMES, *_SOME])
def _(made: Made, value: Any) -> None:
    made.info["timestamp"] = value


@_place("in-commit time", lambda: [*TIMES, *_SOME])
def _(made: Made, value: Any) -> None:
    made.configuration["delta.enableInCommitTimestamps"] = "true"
    made.info["inCommitTimestamp"] = value


def _informations() -> list[Any]:
    return [*_deep(), *_deep_values(), *TEXTS, *_SOME, *NUMBERS[:9], [STEERING], {STEERING: STEERING}]


for _name in ("operation", "operationParameters", "operationMetrics", "readPredicates", "userName", "txnId",
              "engineInfo", "userMetadata", "rowPlaces", "readVersion", "isolationLevel", "tags", "job"):  # fmt: skip

    def _informed(made: Made, value: Any, name: str = _name) -> None:
        made.info[name] = value

    _place(f"commitInfo {_name}", _informations)(_informed)


@_place("predicate of a statement", lambda: [*_deep_sql(), *_deep(), *TEXTS])
def _(made: Made, value: Any) -> None:
    made.info |= {"operation": "DELETE", "operationParameters": {"predicate": value}, "readPredicates": [value]}


@_place("feature", lambda: [*TEXTS, "[[[["])
def _(made: Made, value: Any) -> None:
    made.protocol["protocol"]["writerFeatures"].append(value)


@_place("app", lambda: [*TEXTS, *_deep_values()])
def _(made: Made, value: Any) -> None:
    made.txn = value


@_place("description", lambda: [*_deep_values(), *TEXTS, *_SOME])
def _(made: Made, value: Any) -> None:
    made.metadata |= {"description": value, "name": value}


@_place(
    "format",
    lambda: [
        *_deep_values(),
        {"provider": STEERING, "options": {}},
        {"provider": "parquet", "options": {STEERING: "x"}},
    ],
)
def _(made: Made, value: Any) -> None:
    made.metadata["format"] = value


@_place("hint", lambda: [*_deep(), *map(json.dumps, NUMBERS)])
def _(made: Made, value: Any) -> None:
    made.files["_delta_log/_last_checkpoint"] = value.encode("utf-8", "replace")


@_place("hint tags", _deep)
def _(made: Made, value: Any) -> None:
    made.files["_delta_log/_last_checkpoint"] = f'{{"version":0,"size":1,"tags":{value},"x":{value}}}'.encode()


@_place("hint schema", _deep)
def _(made: Made, value: Any) -> None:
    made.files["_delta_log/_last_checkpoint"] = f'{{"version":0,"size":1,"checkpointSchema":{value}}}'.encode()


@_place("checksum", _deep)
def _(made: Made, value: Any) -> None:
    made.files["_delta_log/00000000000000000001.crc"] = value.encode()


_CRC = '{{"tableSizeBytes":1,"numFiles":1,"numMetadata":1,"numProtocol":1,"metadata":{0},"protocol":{1},{2}}}'


@_place("checksum's other field", lambda: [*_deep(), *map(json.dumps, NUMBERS)])
def _(made: Made, value: Any) -> None:
    first = [json.loads(line) for line in made.objects()["_delta_log/00000000000000000000.json"].split(b"\n")]
    (metadata,) = (json.dumps(one["metaData"]) for one in first if "metaData" in one)
    rest = f'"other":{value},"allFiles":{value}'
    text = _CRC.format(metadata, json.dumps(made.protocol["protocol"]), rest)
    made.files["_delta_log/00000000000000000001.crc"] = text.encode("utf-8", "replace")


@_place("checkpointMetadata", lambda: [*_deep(), *map(json.dumps, NUMBERS[:7])])
def _(made: Made, value: Any) -> None:
    body = made.objects()["_delta_log/00000000000000000000.json"].split(b"\n")
    lines = [line for line in body if b'"commitInfo"' not in line]
    lines.append(f'{{"checkpointMetadata":{{"version":0,"tags":{value}}}}}'.encode("utf-8", "replace"))
    key = "_delta_log/00000000000000000000.checkpoint.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json"
    made.files[key] = b"\n".join(lines)
    made.protocol["protocol"]["readerFeatures"].append("v2Checkpoint")
    made.protocol["protocol"]["writerFeatures"].append("v2Checkpoint")


@_place("unknown action", _deep)
def _(made: Made, value: Any) -> None:
    objects = made.objects()
    key = "_delta_log/00000000000000000001.json"
    made.files[key] = objects[key] + f'\n{{"unheardOf":{value}}}'.encode()


@_place("field of add", _deep)
def _(made: Made, value: Any) -> None:
    objects = made.objects()
    key = "_delta_log/00000000000000000000.json"
    made.files[key] = objects[key].replace(b'{"add": {', f'{{"add": {{"deep": {value}, '.encode(), 1)


@cache
def cases() -> tuple[Case, ...]:
    """Every place with every value for it."""
    return tuple((name, value) for name, (_, values) in _PLACES.items() for value in values())


# --- what is done ------------------------------------------------------------------------------------------------


def _rows() -> pa.Table:
    inner = pa.struct([("x", pa.int32()), ("days", pa.list_(pa.date32()))])
    return pa.table({
        "id": pa.array([9], pa.int64()), "s": pa.array(["z"]), "d": pa.array([0], pa.int32()).view(pa.date32()),
        "at": pa.array([0], pa.timestamp("us", "UTC")), "wall": pa.array([0], pa.timestamp("us")),
        "inner": pa.array([{"x": 1, "days": []}], inner),
    })  # fmt: skip


def _opened() -> DeltaTable:
    return DeltaTable(URI)


def _why() -> Any:
    from refdelta import explain_conflict

    return str(explain_conflict(_opened(), 0, 1))


def _by_deltalake() -> Any:
    from refdelta.compat.deltalake import DeltaTable as Other

    other = Other(URI)
    return repr(other), repr(other.schema()), other.schema().to_json(), other.history(), repr(other.metadata())


READS: dict[str, Callable[[], Any]] = {
    "repr": lambda: repr(_opened()),
    "html": lambda: _opened()._repr_html_(),
    "schema": lambda: (repr(_opened().schema()), _opened().schema().to_json(), _opened().schema().to_arrow()),
    "metadata": lambda: (repr(_opened().metadata()), repr(_opened().protocol())),
    "detail": lambda: _opened().detail(),
    "history": lambda: (_opened().history()._repr_html_(), repr(_opened().history())),
    "read_history": lambda: DeltaTable.read_history(URI)._repr_html_(),
    "timeline": lambda: (repr(_opened().timeline()), _opened().timeline()._repr_html_()),
    "timeline's rows": lambda: _opened().timeline().to_table(),
    "diff": lambda: (repr(_opened().diff(0, 1)), pa.table(_opened().diff(0, 1))),
    "files": lambda: (_opened().files(), _opened().file_uris(), _opened().get_add_actions(flatten=True)),
    "partitions": lambda: repr(_opened().partitions()),
    "domains": lambda: repr(_opened().domain_metadata()),
    "arrow": lambda: _opened().to_pyarrow_table(),
    "filtered": lambda: _opened().to_pyarrow_table(filters="id > 1 AND d < DATE '2020-01-01' AND s <> 'q'"),
    "filtered by time": lambda: _opened().to_pyarrow_table(filters="at > TIMESTAMP '2020-01-01' OR wall IS NULL"),
    "as text": lambda: _opened().to_pyarrow_table(filters="concat(CAST(d AS STRING), CAST(at AS STRING)) = 'x'"),
    "fields of times": lambda: _opened().to_pyarrow_table(filters="year(d) = 1 OR date_format(at, 'y') = 'x'"),
    "count": lambda: _opened().count(),
    "explain": lambda: str(_opened().scan(predicate="id > 1").explain()),
    "feed": lambda: _opened().load_cdf(0, 1).read_all(),
    "at a time": lambda: DeltaTable(URI, version="2030-01-01"),
    "before": lambda: DeltaTable(URI, version="0001-01-01"),
    "after": lambda: DeltaTable(URI, version="9999-12-31T23:59:59.999999-23:59"),
    "verify": lambda: str(verify(URI)),
    "why": _why,
    "dataset": lambda: _opened().to_pyarrow_dataset().to_table(),
    "dry vacuum": lambda: repr(_opened().vacuum()),
    "deltalake": _by_deltalake,
}  # fmt: skip


def _merge() -> Any:
    merge = _opened().merge(_rows(), "target.id = source.id", source_alias="source", target_alias="target")
    return merge.when_matched_update_all().when_not_matched_insert_all().execute()


WRITES: dict[str, Callable[[], Any]] = {
    "append": lambda: write_deltalake(URI, _rows(), mode="append"),
    "overwrite": lambda: write_deltalake(URI, _rows(), mode="overwrite", predicate="id = 9"),
    "replace": lambda: write_deltalake(URI, _rows(), mode="overwrite", schema_mode="overwrite"),
    "delete": lambda: _opened().delete("id = 2"),
    "delete by time": lambda: _opened().delete("d > DATE '2020-01-01' OR at < TIMESTAMP '1960-01-01'"),
    "update": lambda: _opened().update({"s": "concat(s, CAST(at AS STRING), CAST(d AS STRING))"}),
    "update of a time": lambda: _opened().update({"d": "date_add(d, 1)", "at": "at + INTERVAL 1 DAY"}),
    "merge": _merge,
    "compact": lambda: _opened().optimize.compact().version,
    "z-order": lambda: _opened().optimize.z_order(["d", "at", "id"]),
    "checkpoint": lambda: (_opened().create_checkpoint(), _opened().to_pyarrow_table()),
    "cleanup": lambda: _opened().cleanup_metadata(),
    "compact logs": lambda: _opened().compact_logs(0, 1),
    "restore": lambda: _opened().restore(0),
    "vacuum": lambda: _opened().vacuum(dry_run=False),
    "properties": lambda: _opened().alter.set_table_properties({"delta.appendOnly": "true"}),
    "unset": lambda: _opened().alter.unset_table_properties(["delta.appendOnly"]),
    "constraint": lambda: _opened().alter.add_constraint({"d": "d > DATE '9999-01-01' OR at > TIMESTAMP '9999-01-01'"}),
    "add column": lambda: _opened().alter.add_columns([field_of("more")]),
    "rename": lambda: _opened().alter.rename_column("s", "t"),
    "drop": lambda: _opened().alter.drop_columns("s"),
    "wider": lambda: _opened().alter.change_type("inner.x", "long"),
    "not null": lambda: _opened().alter.set_nullable("d", False),
    "default": lambda: _opened().alter.set_default("s", "'x'"),
    "identity": lambda: _opened().alter.sync_identity("id"),
    "cluster": lambda: _opened().alter.cluster_by(["d"]),
    "mapping": lambda: _opened().alter.set_table_properties({"delta.columnMapping.mode": "name"}),
    "times of commits": lambda: _opened().alter.set_table_properties({"delta.enableInCommitTimestamps": "true"}),
    "drop feature": lambda: _opened().alter.drop_feature("checkConstraints"),
    "truncate": lambda: _opened().alter.drop_feature("deletionVectors", truncate_history=True),
    "domain": lambda: _opened().alter.set_domain_metadata("mine", "{}"),
    "clone": lambda: _opened().shallow_clone("memory://extremes-clone"),
    "manifest": lambda: _opened().generate(),
}  # fmt: skip


def field_of(name: str) -> Any:
    """A new column, in Arrow."""
    return pa.field(name, pa.int64())


_COMMANDS = """
read U|read U --format csv|read U --format json|read U --json|read U --explain|read U --where d>'2020-01-01'
read U --version 0001-01-01|read U --version 9999-12-31|read U --version 99999999999999999999
history U|history U --json|history U --wide|detail U|detail U --json|files U|files U --json|log U|log U --json
timeline U|timeline U --json|diff U 0 1|diff U 0 1 --json|changes U|changes U --json|changes U --from 0001-01-01
verify U|verify U --json|vacuum U|vacuum U --retention-hours 1e300 --json|vacuum U --retention-hours nan
vacuum U --retention-hours inf|vacuum U --retention-hours -1|optimize U --dry-run|delete U --where id=1 --dry-run
why U 0 1|why U 0 1 --json|update U --set s=CAST(at~AS~STRING) --dry-run
"""
COMMANDS = [line for row in _COMMANDS.split("\n") for line in row.split("|") if line]


def commanded(words: list[str]) -> int:
    """Run a command; its output and errors steer no terminal, and it ends in no error but one of ours."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(words)
    out.flush()
    text = out.buffer.getvalue().decode()  # type: ignore[attr-defined]
    assert "REFDELTA_DEBUG" not in err.getvalue(), err.getvalue()[:600]
    assert "Traceback" not in err.getvalue() + text[-3_000:], err.getvalue()[:600]
    for said in (err.getvalue(), "" if {"--json", "--format"} & set(words) else text):
        odd = {one for one in said if not one.isprintable() and one not in "\n\t"}
        assert not odd, f"it steers a terminal: {odd}"
    return status


def steps() -> dict[str, Callable[[], Any]]:
    """All that is done to a table, by name."""
    shell = {
        f"$ {line}": lambda line=line: commanded([URI if w == "U" else w.replace("~", " ") for w in line.split()])
        for line in COMMANDS
    }
    return READS | shell | WRITES


def objects(case: Case) -> dict[str, bytes]:
    """The files of the table of a case."""
    name, value = case
    made = Made()
    _PLACES[name][0](made, made.raw(value))
    return made.objects()


def put(case: Case) -> None:
    """Make the table of a case, in place of the one before."""
    store = MemoryStore(NAME)
    store.delete([info.key for info in store.list()])
    for key, data in objects(case).items():
        store.put(key, data)


def outcome(step: Callable[[], Any]) -> bool:
    """Take a step, which may end in a DeltaError."""
    try:
        step()
    except DeltaError as error:
        shown(str(error))
        return False
    return True


def outcomes(case: Case, names: list[str] | None = None) -> dict[str, bool]:
    """Take a table through the steps; whatever is no DeltaError goes through."""
    done = {}
    known = steps()
    for name in names or known:
        put(case)
        done[name] = outcome(known[name])
    return done


def extremes(data: bytes) -> Any:
    """A case and some steps, drawn by the input."""
    random = Random(data)
    case = random.choice(cases())
    found = outcomes(case, random.sample(list(steps()), 6))
    return case[0], tuple(sorted(found.items()))


TARGETS = [Target("extremes", extremes, "bytes", 2, lambda: [b"0", b"1"])]


# --- the whole search --------------------------------------------------------------------------------------------


def findings(work: Sequence[tuple[Case, str]]) -> Iterator[tuple[Case, str, str]]:
    """What steps end in that is neither an answer nor a DeltaError: case, step, and the error with its place.

    Args:
        work: cases with one step each. They run in children with limits of memory and time; after one that ended,
            another goes on.
    """
    while work:
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            with os.fdopen(writer, "w", encoding="utf-8", errors="backslashreplace") as said:
                _report(work, said)
            os._exit(0)
        os.close(writer)
        done = 0
        with os.fdopen(reader, encoding="utf-8", errors="replace") as said:
            for (case, name), line in zip(work, said, strict=False):
                done += 1
                if line.strip():
                    yield case, name, line.strip()
        _, status = os.waitpid(child, 0)
        if done < len(work):
            yield *work[done], f"the process ended: {status}"
        work = work[done + 1 :]


def _report(work: Sequence[tuple[Case, str]], said: IO[str]) -> None:
    """Take each step, and write a line for it: empty, or the error with the place of ours where it was raised."""
    # A process of many tests before has reserved more than that, and its stack could not grow.
    reserved = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (reserved + MEMORY,) * 2)
    warnings.simplefilter("ignore")
    known = steps()
    for case, name in work:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            put(case)
            outcome(known[name])
        except BaseException as error:
            ours = [
                f"{frame.filename.rsplit('/refdelta', 1)[1]}:{frame.lineno}"
                for frame in traceback.extract_tb(error.__traceback__)
                if "/refdelta" in frame.filename and "/tests/" not in frame.filename
            ]
            text = " ".join(f"{type(error).__name__}: {error}".split())
            said.write(f"{text[:200]} {ours[-1] if ours else ''}")
        said.write("\n")
        said.flush()


def drawn(some: Sequence[Case], count: int, seed: str = "1") -> list[tuple[Case, str]]:
    """Each case with as many steps, drawn by the seed."""
    random = Random(seed)
    return [(case, name) for case in some for name in random.sample(list(steps()), count)]


def search(words: list[str]) -> None:
    """Search, and print what was found."""
    start, step, count = map(int, words or ("0", "1", "8"))
    work = drawn(cases()[start::step], count)
    kinds: Counter[str] = Counter()
    places: Counter[str] = Counter()
    for (place, value), name, text in findings(work):
        places[place] += 1
        kinds[text] += 1
        print(f"{place} = {str(value)[:40]!r}: {name}: {text}", flush=True)
    for text, number in kinds.most_common():
        print(f"{number:6,}  {text}")
    print(f"{len(work):,} steps: {sum(kinds.values()):,} findings, {len(kinds)} kinds, at {len(places)} places")


if __name__ == "__main__":
    search(sys.argv[1:])
