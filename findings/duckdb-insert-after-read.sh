#!/usr/bin/env bash
# DuckDB: an INSERT SELECT after a read in the same transaction misses a commit between them.
#
# A good guess: in a table that is Serializable such a transaction inserts what it selects from the rows before its own
# version, or its commit is refused. Instead it commits, with the rows of the version that it read first.
# Seen with duckdb 1.5.5 on 2026-11-27, 2026-11-28 and 2026-11-29. duckdb 2.0.1 was not tried: its extension delta could
# not be fetched. More: docs/findings/duckdb-insert-after-read.md.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

install duckdb==1.5.5 duckdb-extension-delta==1.5.5

expect <<'END'
duckdb 1.5.5 delta 45c4087
the second transaction reads [0]
it reads again, after a commit of the row 1: [0]
its INSERT SELECT: committed as version 3
rows: expected [0, 1, 10, 11], or a refusal and [0, 1]; found [0, 1, 10]
END

run <<'PYTHON'
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
PYTHON
