"""deltalake: an overwrite over an append keeps the appended rows, also in a table that is Serializable; and of two
overwrites of an empty table the rows of both are left.

Needs deltalake and pyarrow only: ``python deltalake_overwrite.py``.
"""

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
