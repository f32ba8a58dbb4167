#!/usr/bin/env bash
# DuckDB: delta_scan gives NULL for the partition columns of a table with column mapping.
#
# A good guess: since delta_scan reads mapped columns of files right, it reads those of partitions right, too. Instead
# they are NULL, without an error, and a filter by one finds no row. In the log their values stand under the physical
# name, as PROTOCOL.md says.
# Seen with duckdb 1.5.5 and its extension delta at 45c4087 on 2026-11-28 (a table that delta-spark 4.4.0 had written)
# and 2026-11-29 (this one). duckdb 2.0.1 was not tried: its extension delta could not be fetched.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

install duckdb==1.5.5 duckdb-extension-delta==1.5.5 pyarrow==26.0.1

expect <<'END'
no column mapping: rows [(1, 'x'), (2, 'x'), (3, 'y')], where p = 'x' [(1,), (2,)]
column mapping by name: rows [(1, None), (2, None), (3, None)], where p = 'x' []
END

run <<'PYTHON'
import json
import tempfile
from pathlib import Path

import duckdb
import duckdb_extension_delta
import pyarrow as pa
import pyarrow.parquet as pq


def table(mapped):
    """The folder of a table of two partitions."""
    folder = Path(tempfile.mkdtemp())
    names = {"id": "col-1", "p": "col-2"} if mapped else {"id": "id", "p": "p"}
    fields = []
    for number, (name, kind) in enumerate((("id", "long"), ("p", "string")), 1):
        mapping = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": names[name]}
        fields.append({"name": name, "type": kind, "nullable": True, "metadata": mapping if mapped else {}})
    properties = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"} if mapped else {}
    metadata = {"id": "5e2ab2b8-6b0f-44f7-a5f8-5a6d0ac0b6c1", "format": {"provider": "parquet", "options": {}}}
    metadata |= {"schemaString": json.dumps({"type": "struct", "fields": fields}), "partitionColumns": ["p"]}
    actions = [
        {"protocol": {"minReaderVersion": 2 if mapped else 1, "minWriterVersion": 5 if mapped else 2}},
        {"metaData": {**metadata, "configuration": properties, "createdTime": 0}},
    ]
    for value, ids in (("x", [1, 2]), ("y", [3])):
        file = folder / f"{value}.parquet"
        field = pa.field(names["id"], pa.int64(), metadata={"PARQUET:field_id": "1"})
        pq.write_table(pa.table([ids], schema=pa.schema([field])), file)
        add = {"path": file.name, "partitionValues": {names["p"]: value}, "size": file.stat().st_size}
        actions.append({"add": {**add, "modificationTime": 0, "dataChange": True}})
    (folder / "_delta_log").mkdir()
    (folder / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    return folder


connection = duckdb.connect()
[extension] = duckdb_extension_delta.__path__
connection.execute(f"LOAD '{extension}/extensions/v{duckdb.__version__}/delta.duckdb_extension'")
for title, mapped in (("no column mapping", False), ("column mapping by name", True)):
    scan = f"delta_scan('{table(mapped)}')"
    rows = connection.execute(f"SELECT id, p FROM {scan} ORDER BY id").fetchall()
    found = connection.execute(f"SELECT id FROM {scan} WHERE p = 'x' ORDER BY id").fetchall()
    print(f"{title}: rows {rows}, where p = 'x' {found}")
PYTHON
