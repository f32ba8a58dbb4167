#!/usr/bin/env bash
# deltalake: a commit over a compaction of the same files doubles rows, or brings them back.
#
# A good guess: of two handles of one version that both compact the table, or of which one compacts and the other
# overwrites it, the later commit is refused, since both remove the same files. Instead both commit, without an error.
# Seen with deltalake 1.6.6 on 2026-11-27, 2026-11-28 and 2026-11-29. More: docs/findings/deltalake-compaction.md.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

install deltalake==1.6.6 pyarrow==26.0.1

expect <<'END'
deltalake 1.6.6
two compactions: expected [0, 1, 2, 3], found [0, 0, 1, 1, 2, 2, 3, 3]
an overwrite over a compaction: expected [13], found [0, 1, 2, 3, 13]
END

run <<'PYTHON'
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
PYTHON
