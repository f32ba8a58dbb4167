"""Tables with much of one thing: columns, partition columns, keys, statistics, names, values, files or versions."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

import handmade
from growth.victims import Costs
from refdelta import DeltaTable, verify, write_deltalake
from refdelta.errors import DeltaError

EACH = 16
"""Characters for which a table has one thing more, so that sizes are those of texts."""

ROWS = pa.table({"a": pa.array([1, 2, 3], pa.int64())})
VECTORS = {"delta.enableDeletionVectors": "true"}
PROPERTIES = {**VECTORS, "delta.dataSkippingNumIndexedCols": "-1"}
FEATURES = ["deletionVectors", "domainMetadata", "appendOnly", "invariants"]
PROTOCOL = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": FEATURES,
    }
}


def _written(folder: Path, rows: pa.Table, **properties: str) -> None:
    """A table of two files, as this engine writes it."""
    write_deltalake(folder, rows, configuration=PROPERTIES | properties)
    write_deltalake(folder, rows, mode="append")


def _columns(folder: Path, many: int, kind: pa.DataType | None = None, **properties: str) -> None:
    more = ROWS["a"] if kind is None else ROWS["a"].cast(kind)
    _written(folder, pa.table({"a": ROWS["a"], **{f"c{n}": more for n in range(many)}}), **properties)


def _fields(folder: Path, many: int) -> None:
    part = pa.StructArray.from_arrays([ROWS["a"].chunk(0)] * many, [f"c{n}" for n in range(many)])
    _written(folder, pa.table({"a": ROWS["a"], "s": part}))


def _stored(
    folder: Path,
    *others: dict[str, Any],
    files: int = 2,
    columns: tuple[str, ...] = (),
    configuration: dict[str, str] | None = None,
    first: dict[str, Any] | None = None,
    **fields: Any,
) -> None:
    """A table by hand. Its files have the same content; the first one may have other fields in the log."""
    (folder / "_delta_log").mkdir(parents=True)
    schema = handmade.struct(handmade.field("a", "long"), *(handmade.field(name, "string") for name in columns))
    told = handmade.metadata(schema, columns, (configuration or {}) | VECTORS)
    content = handmade.parquet(ROWS)
    stats = json.dumps({"numRecords": 3, "minValues": {"a": 1}, "maxValues": {"a": 3}, "nullCount": {"a": 0}})
    adds = []
    for n in range(files):
        (folder / f"{n}.parquet").write_bytes(content)
        own = {"stats": stats} | fields | ((first or {}) if n == 0 else {})
        adds.append(handmade.add(f"{n}.parquet", size=len(content), **own))
    handmade.write_commit(folder, 0, PROTOCOL, told, *others, *adds)


def _keys(many: int) -> dict[str, str]:
    return {f"k{n}": "v" for n in range(many)}


def _wide_statistics(many: int) -> str:
    bounds = {"a": 1} | dict.fromkeys((f"c{n}" for n in range(many)), 1)
    return json.dumps({"numRecords": 3, "minValues": bounds, "maxValues": bounds, "nullCount": bounds})


def _versions(folder: Path, many: int) -> None:
    _stored(folder)
    for version in range(1, many):
        handmade.write_commit(folder, version, {"commitInfo": {"timestamp": version, "operation": "WRITE"}})


def _partition_columns(folder: Path, many: int) -> None:
    names = tuple(f"p{n}" for n in range(many))
    _stored(folder, files=20, columns=names, partitionValues=dict.fromkeys(names, "v"))


def _named(folder: Path, size: int) -> None:
    _written(folder, pa.table({"a": ROWS["a"], "n" * size: ROWS["a"]}))


def _long_value(folder: Path, size: int) -> None:
    _stored(folder, columns=("p",), files=20, partitionValues={"p": "v" * size})


TABLES: dict[str, Callable[[Path, int], None]] = {
    "columns": _columns,
    "columns of strings": partial(_columns, kind=pa.string()),
    "mapped columns": lambda folder, many: _columns(folder, many, **{"delta.columnMapping.mode": "id"}),
    "fields of a struct": _fields,
    "partition columns": _partition_columns,
    "partition values of no column, in one file": lambda folder, many: _stored(
        folder, files=many, first={"partitionValues": _keys(many)}
    ),
    "partition values of no column": lambda folder, many: _stored(folder, partitionValues=_keys(many)),
    "tags": lambda folder, many: _stored(folder, tags=_keys(many)),
    "statistics of no column": lambda folder, many: _stored(folder, stats=_wide_statistics(many)),
    "statistics, in text": lambda folder, many: _stored(
        folder, stats=json.dumps({"numRecords": 3, "pad": "x" * EACH * many})
    ),
    "configuration": lambda folder, many: _stored(folder, configuration=_keys(many)),
    "domains": lambda folder, many: _stored(
        folder,
        *({"domainMetadata": {"domain": f"d{n}", "configuration": "{}", "removed": False}} for n in range(many)),
    ),
    "applications": lambda folder, many: _stored(
        folder, *({"txn": {"appId": f"a{n}", "version": 1}} for n in range(many))
    ),
    "files": lambda folder, many: _stored(folder, files=many),
    "versions": _versions,
    "a long name": lambda folder, many: _named(folder, EACH * many),
    "a long partition value": lambda folder, many: _long_value(folder, EACH * many),
}


def _merge(table: DeltaTable) -> None:
    source = table.to_pyarrow_table().slice(0, 2)
    statement = table.merge(source, "t.a = s.a", source_alias="s", target_alias="t")
    statement.when_matched_update_all().when_not_matched_insert_all().execute()


def _checkpoint(table: DeltaTable) -> None:
    table.create_checkpoint()
    DeltaTable(table.table_uri).count("a = 2")


def _add_columns(table: DeltaTable) -> None:
    table.alter.add_columns([pa.field(f"new{n}", pa.int64()) for n in range(len(table.schema().fields))])


def _drop_columns(table: DeltaTable) -> None:
    table.alter.set_table_properties({"delta.columnMapping.mode": "name"})
    table.alter.drop_columns([field.name for field in table.schema().fields][1:])


def _clauses(table: DeltaTable) -> None:
    """As many clauses as the table has columns."""
    statement = table.merge(ROWS, "t.a = s.a", source_alias="s", target_alias="t")
    for n in range(min(64, len(table.schema().fields))):
        statement = statement.when_matched_update({"a": f"s.a + {n}"}, predicate=f"s.a = {n}")
    statement.execute()


VERBS: dict[str, Callable[[DeltaTable], Any]] = {
    "open": lambda table: (table.count(), table.files(), table.detail(), table.history()),
    "read": lambda table: table.to_pyarrow_table(),
    "filter": lambda table: table.to_pyarrow_table(filters="a = 2"),
    "filter by each column": lambda table: table.count(
        " AND ".join(f"`{field.name}` IS NOT NULL" for field in table.schema().fields[:1000])
    ),
    "add actions": lambda table: table.get_add_actions(flatten=True),
    "append": lambda table: write_deltalake(table.table_uri, ROWS, mode="append"),
    "merge schema": lambda table: write_deltalake(
        table.table_uri, ROWS.append_column("z", ROWS["a"]), mode="append", schema_mode="merge"
    ),
    "overwrite": lambda table: write_deltalake(table.table_uri, ROWS, mode="overwrite", schema_mode="overwrite"),
    "delete": lambda table: table.delete("a = 2"),
    "update": lambda table: table.update(
        {field.name: f"`{field.name}`" for field in table.schema().fields if field.name != "s"}, predicate="a = 2"
    ),
    "merge": _merge,
    "clauses": _clauses,
    "checkpoint": _checkpoint,
    "optimize": lambda table: table.optimize.compact(),
    "z-order": lambda table: table.optimize.z_order(["a"]),
    "vacuum": lambda table: table.vacuum(),
    "restore": lambda table: table.restore(0),
    "add columns": _add_columns,
    "drop columns": _drop_columns,
    "verify": lambda table: verify(table.table_uri),
}


def shapes(folder: Path) -> Iterator[tuple[str, Callable[[int], Costs]]]:
    """Every statement on every table."""
    for what, make in TABLES.items():
        for verb, act in VERBS.items():
            yield f"{what}: {verb}", partial(_costs, folder / what, make, act)


def _costs(folder: Path, make: Callable[[Path, int], None], act: Callable[[DeltaTable], Any], size: int) -> Costs:
    """The processor time of a statement on a copy of a table, which is made once. A ``DeltaError`` is an answer."""
    many = size // EACH
    made, copy = folder / str(many), folder / "copy"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not made.exists():
            try:
                make(made, many)
            except DeltaError:
                return {}
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(made, copy)
        start = time.process_time()
        with contextlib.suppress(DeltaError):
            act(DeltaTable(copy))
        return {"it": time.process_time() - start}
