#!/usr/bin/env bash
# deltalake: an overwrite over an append keeps the appended rows, also in a table that is Serializable; and of two
# overwrites of an empty table the rows of both are left.
#
# A good guess: the append is first in the log, so after the overwrite its rows are gone, or the overwrite is refused;
# and of two overwrites the rows of the later one are left. Instead all commit, and rows of both are there.
# Seen with deltalake 1.6.6 on 2026-11-27, 2026-11-28 and 2026-11-29. More: docs/findings/deltalake-overwrite.md.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

install deltalake==1.6.6 pyarrow==26.0.1

expect <<'END'
deltalake 1.6.6
the log: ['2 Overwrite', '1 Append', '0 ErrorIfExists']
the overwrite: committed
rows: expected [13], or a refusal and [0, 1, 10]; found [10, 13]
the second overwrite of an empty table: committed
rows: expected [4], or a refusal and [3]; found [3, 4]
END

run <<'PYTHON'
import tempfile

import deltalake
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake


def overwritten(table: DeltaTable, k: int) -> str:
    """How an overwrite by one row ends."""
    try:
        write_deltalake(table, pa.table({"k": [k]}), mode="overwrite")
    except deltalake.exceptions.CommitFailedError as error:
        return f"refused: {error}"
    return "committed"


print("deltalake", deltalake.__version__)

path = tempfile.mkdtemp()
write_deltalake(path, pa.table({"k": [0, 1]}), configuration={"delta.isolationLevel": "Serializable"})

first, second = DeltaTable(path), DeltaTable(path)
write_deltalake(first, pa.table({"k": [10]}), mode="append")
ended = overwritten(second, 13)

print("the log:", [f"{one['version']} {one['operationParameters'].get('mode')}" for one in DeltaTable(path).history()])
print("the overwrite:", ended)
print(
    "rows: expected [13], or a refusal and [0, 1, 10]; found",
    sorted(DeltaTable(path).to_pyarrow_table()["k"].to_pylist()),
)

path = tempfile.mkdtemp()
DeltaTable.create(path, pa.schema([("k", pa.int64())]))
first, second = DeltaTable(path), DeltaTable(path)
write_deltalake(first, pa.table({"k": [3]}), mode="overwrite")
ended = overwritten(second, 4)

print("the second overwrite of an empty table:", ended)
print("rows: expected [4], or a refusal and [3]; found", sorted(DeltaTable(path).to_pyarrow_table()["k"].to_pylist()))
PYTHON
