#!/usr/bin/env bash
# delta-spark and deltalake: of two engines that write to one table in turns, neither ever writes a checkpoint.
#
# A good guess: with delta.checkpointInterval=2 every second version has a checkpoint, whoever writes it. Instead
# delta-spark writes one after a version that is a multiple of the interval, and deltalake one version earlier; so if
# delta-spark happens to write the odd versions and deltalake the even ones, none is ever due. The other way round
# there is one at each version.
# Seen with delta-spark 4.4.0 on Spark 4.2.0 and deltalake 1.6.6 on 2026-11-28 and 2026-11-29.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

install_spark deltalake==1.6.6 pyarrow==26.0.1

expect <<'END'
odd versions by delta-spark, even ones by deltalake: checkpoints of 9 versions []
odd versions by deltalake, even ones by delta-spark: checkpoints of 9 versions [1, 2, 3, 4, 5, 6, 7, 8]
END

run <<'PYTHON'
import tempfile
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake
from session import spark

ENGINES = {
    "delta-spark": lambda path, k: spark.sql(f"INSERT INTO delta.`{path}` VALUES ({k})"),
    "deltalake": lambda path, k: write_deltalake(path, pa.table({"k": [k]}), mode="append"),
}
for odd, even in (("delta-spark", "deltalake"), ("deltalake", "delta-spark")):
    path = tempfile.mkdtemp()
    write_deltalake(path, pa.table({"k": [0]}), configuration={"delta.checkpointInterval": "2"})
    for version in range(1, 9):
        ENGINES[odd if version % 2 else even](path, version)
    found = sorted(int(file.name.partition(".")[0]) for file in Path(path, "_delta_log").glob("*.checkpoint.parquet"))
    print(f"odd versions by {odd}, even ones by {even}: checkpoints of 9 versions {found}")
spark.stop()
PYTHON
