#!/usr/bin/env bash
# chDB (ClickHouse): count() over a Delta table counts rows that a deletion vector deletes.
#
# A good guess: since deltaLakeLocal leaves deleted rows out of a SELECT, count() counts the rows that it would give.
# Instead a bare count(), count(*) or sum(1), which needs no column, counts all rows of the files; count(id), and
# count() with a condition, count those that are left.
# Seen with chdb 4.4.0 on 2026-11-28 (a table that delta-spark 4.4.0 had written) and 2026-11-29 (this one).
set -euo pipefail
. "$(dirname "$0")/lib.sh"

install chdb==4.4.0 chdb-core==26.9.0 pyarrow==26.0.1

expect <<'END'
rows of SELECT id: 0 1 2 5 6 8 9 10 12 13 14 15 16 17 19 20 21 22 23 24 25 26 27 28
count(): 30
count(*): 30
sum(1): 30
count(id): 24
count() WHERE id >= 0: 24
END

run <<'PYTHON'
import json
import tempfile
from pathlib import Path

import chdb
import pyarrow as pa
import pyarrow.parquet as pq

folder = Path(tempfile.mkdtemp())
pq.write_table(pa.table({"id": pa.array(range(30), pa.int64())}), folder / "0.parquet")
# The rows 3, 4, 7, 11, 18 and 29 as an inline vector: a portable 64-bit Roaring bitmap in Z85.
text = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
vector = {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": 44, "cardinality": 6}
schema = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
metadata = {"id": "c2b6a3de-3f8e-4f0b-9a57-1f2a5f0b8c11", "format": {"provider": "parquet", "options": {}}}
metadata |= {"schemaString": json.dumps(schema), "partitionColumns": [], "createdTime": 0}
features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
add = {"path": "0.parquet", "partitionValues": {}, "size": (folder / "0.parquet").stat().st_size}
add |= {"modificationTime": 0, "dataChange": True, "stats": json.dumps({"numRecords": 30})}
commits = [
    [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"metaData": {**metadata, "configuration": {"delta.enableDeletionVectors": "true"}}},
        {"add": add},
    ],
    [
        {"remove": {"path": "0.parquet", "dataChange": True, "deletionTimestamp": 1}},
        {"add": {**add, "deletionVector": vector}},
    ],
]
(folder / "_delta_log").mkdir()
for version, actions in enumerate(commits):
    (folder / "_delta_log" / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)))


def query(columns, more=""):
    return chdb.query(f"SELECT {columns} FROM deltaLakeLocal('{folder}') {more}", "TSV").data().split()


print("rows of SELECT id:", *query("id", "ORDER BY id"))
for what in ("count()", "count(*)", "sum(1)", "count(id)"):
    print(f"{what}:", *query(what))
print("count() WHERE id >= 0:", *query("count()", "WHERE id >= 0"))
PYTHON
