"""deltalake: a commit over a compaction of the same files doubles rows or brings them back.

Needs deltalake and pyarrow only: ``python deltalake_compaction.py``.
"""

import tempfile

import deltalake
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake


def two_files() -> str:
    """A table of two files with the rows 0, 1 and 2, 3."""
    path = tempfile.mkdtemp()
    for start in (0, 2):
        write_deltalake(path, pa.table({"k": [start, start + 1]}), mode="append")
    return path


def rows(path: str) -> list[int]:
    return sorted(DeltaTable(path).to_pyarrow_table()["k"].to_pylist())


print("deltalake", deltalake.__version__)

path = two_files()
first, second = DeltaTable(path), DeltaTable(path)
first.optimize.compact()
second.optimize.compact()
print("two compactions: expected [0, 1, 2, 3], found", rows(path))

path = two_files()
first, second = DeltaTable(path), DeltaTable(path)
first.optimize.compact()
write_deltalake(second, pa.table({"k": [13]}), mode="overwrite")
print("an overwrite over a compaction: expected [13], found", rows(path))
