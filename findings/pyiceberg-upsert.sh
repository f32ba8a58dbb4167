#!/usr/bin/env bash
# pyiceberg: two upserts of one key that is not there both insert it.
#
# A good guess: at the default isolation level, serializable, the second upsert of a stale handle is refused, or updates
# the row of the first. Instead both commit, and the key is there twice.
# Seen with pyiceberg 0.12.0 on 2026-11-27, 2026-11-28 and 2026-11-29. More: docs/findings/pyiceberg-upsert.md.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

install 'pyiceberg[sql-sqlite]==0.12.0' pyarrow==26.0.1

expect <<'END'
pyiceberg 0.12.0
the second upsert: committed
rows of k = 7: expected 1, found 2
END

run <<'PYTHON'
import tempfile

import pyarrow as pa
import pyiceberg
from pyiceberg.catalog.sql import SqlCatalog

schema = pa.schema([("k", pa.int64()), ("a", pa.int64())])
folder = tempfile.mkdtemp()
catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
catalog.create_namespace("n")
catalog.create_table("n.t", schema).append(pa.table({"k": [0, 1], "a": [0, 1]}, schema=schema))

first, second = catalog.load_table("n.t"), catalog.load_table("n.t")
first.upsert(pa.table({"k": [7], "a": [1]}, schema=schema), join_cols=["k"])
try:
    second.upsert(pa.table({"k": [7], "a": [2]}, schema=schema), join_cols=["k"])
    ended = "committed"
except Exception as error:  # noqa: BLE001
    ended = f"refused: {type(error).__name__}"
rows = catalog.load_table("n.t").scan().to_arrow().to_pylist()
print("pyiceberg", pyiceberg.__version__)
print("the second upsert:", ended)
print("rows of k = 7: expected 1, found", sum(row["k"] == 7 for row in rows))
PYTHON
