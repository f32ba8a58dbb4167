#!/usr/bin/env bash
# deltalake: to_pyarrow_table reads tables with column mapping by the names of the columns, without an error.
#
# A good guess: a table whose protocol asks for column mapping is read by its physical names, or refused, as deltalake
# refuses deletion vectors. Instead, at reader version 2, to_pyarrow_table (so to_pandas, to_pyarrow_dataset) takes the
# columns of the files that have the logical names: values of a column that was dropped before another of its name was
# added, values of two renamed columns the wrong way round, nulls. A query of the same handle (QueryBuilder) is right.
# Seen with deltalake 1.6.6 on 2026-11-29.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

install deltalake==1.6.6 pyarrow==26.0.1

expect <<'END'
v was dropped, and a new v added (all nulls)
  to_pyarrow_table: [{'id': 1, 'v': 'dropped'}]
  QueryBuilder:     [{'id': 1, 'v': None}]
a and b changed their names (a is 20, b is 10)
  to_pyarrow_table: [{'id': 1, 'a': 10, 'b': 20}]
  QueryBuilder:     [{'id': 1, 'a': 20, 'b': 10}]
created with column mapping (n is 5)
  to_pyarrow_table: [{'id': None, 'n': None}]
  QueryBuilder:     [{'id': 1, 'n': 5}]
END

run <<'PYTHON'
import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder


def table(rows, **columns):
    """A table of one file. A column is given as its name, with its type, physical name and id."""
    folder = Path(tempfile.mkdtemp())
    ids = {physical: number for _, physical, number in columns.values()}
    fields = []
    for name, (kind, physical, number) in columns.items():
        mapping = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
        fields.append({"name": name, "type": kind, "nullable": True, "metadata": mapping})
    data = pa.table(rows)
    numbers = {field.name: {"PARQUET:field_id": str(ids.get(field.name, 2))} for field in data.schema}
    data = data.cast(pa.schema([field.with_metadata(numbers[field.name]) for field in data.schema]))
    pq.write_table(data, folder / "0.parquet")
    properties = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"}
    metadata = {"id": "9f3ccf3c-7ab5-4d6b-8d4a-b3a0f8f54ac2", "format": {"provider": "parquet", "options": {}}}
    metadata |= {"schemaString": json.dumps({"type": "struct", "fields": fields}), "partitionColumns": []}
    add = {"path": "0.parquet", "partitionValues": {}, "size": (folder / "0.parquet").stat().st_size}
    actions = [
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
        {"metaData": {**metadata, "configuration": properties, "createdTime": 0}},
        {"add": {**add, "modificationTime": 0, "dataChange": True}},
    ]
    (folder / "_delta_log").mkdir()
    (folder / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    return DeltaTable(folder)


for title, handle in (
    (
        "v was dropped, and a new v added (all nulls)",
        table({"id": [1], "v": ["dropped"]}, id=("long", "id", 1), v=("string", "col-3", 3)),
    ),
    (
        "a and b changed their names (a is 20, b is 10)",
        table({"id": [1], "a": [10], "b": [20]}, id=("long", "id", 1), a=("long", "b", 3), b=("long", "a", 2)),
    ),
    (
        "created with column mapping (n is 5)",
        table({"col-1": [1], "col-2": [5]}, id=("long", "col-1", 1), n=("long", "col-2", 2)),
    ),
):
    query = QueryBuilder().register("t", handle).execute("SELECT * FROM t")
    print(title)
    print("  to_pyarrow_table:", handle.to_pyarrow_table().to_pylist())
    print("  QueryBuilder:    ", pa.table(query.read_all()).to_pylist())
PYTHON
