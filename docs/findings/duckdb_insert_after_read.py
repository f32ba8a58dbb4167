"""DuckDB: an INSERT SELECT after a read in the same transaction misses a commit between them.

Needs duckdb and duckdb-extension-delta of one version only: ``python duckdb_insert_after_read.py``.
"""

import json
import tempfile
from pathlib import Path

import duckdb
import duckdb_extension_delta

path = Path(tempfile.mkdtemp())
(path / "_delta_log").mkdir()
schema = {"type": "struct", "fields": [{"name": "k", "type": "long", "nullable": True, "metadata": {}}]}
table = {"id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": json.dumps(schema)}
properties = {"delta.isolationLevel": "Serializable"}
actions = [
    {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
    {"metaData": {**table, "partitionColumns": [], "configuration": properties, "createdTime": 0}},
]
(path / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))


def connected():
    connection = duckdb.connect()
    [folder] = duckdb_extension_delta.__path__
    connection.execute(f"LOAD '{folder}/extensions/v{duckdb.__version__}/delta.duckdb_extension'")
    connection.execute(f"ATTACH '{path}' AS t (TYPE delta)")
    return connection


def rows(connection):
    return sorted(k for (k,) in connection.execute("SELECT k FROM t").fetchall())


first, second = connected(), connected()
[version] = first.execute("SELECT extension_version FROM duckdb_extensions() WHERE extension_name = 'delta'").fetchone()
print("duckdb", duckdb.__version__, "delta", version)
first.execute("INSERT INTO t VALUES (0)")

second.execute("BEGIN")
print("the second transaction reads", rows(second))
first.execute("INSERT INTO t VALUES (1)")
print("it reads again, after a commit of the row 1:", rows(second))
second.execute("INSERT INTO t SELECT k + 10 FROM t")
try:
    second.execute("COMMIT")
    ended = "committed"
except duckdb.Error as error:
    ended = f"refused: {error}"

print("its INSERT SELECT:", ended, "as version", len([*(path / "_delta_log").glob("*.json")]) - 1)
print("rows: expected [0, 1, 10, 11], or a refusal and [0, 1]; found", rows(connected()))
