#!/usr/bin/env bash
# Daft: 0.0 = -0.0 is false, and -0.0 < 0.0 is true.
#
# A good guess: floating-point numbers are compared as in IEEE 754 and SQL, where the two zeros are equal. Instead a
# filter by 0.0 does not find -0.0, in memory and in a Parquet file alike, and the other way round; and -0.0 counts as
# less than 0.0. -0.0 comes up by itself, as in round(-0.2) or 0.0 * -1.
# Seen with daft 0.7.26 on 2026-11-28 and 2026-11-29.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

install daft==0.7.26 pyarrow==25.0.1

expect <<'END'
id 1: 0.0, id 2: -0.0, id 3: 0.0 * -1, id 4: 1.0
in memory: x = 0 finds [1], x < 0 finds [2, 3], x = -0.0 finds [2, 3]
in Parquet: x = 0 finds [1], x < 0 finds [2, 3], x = -0.0 finds [2, 3]
pyarrow, in Parquet: x = 0 finds [1, 2, 3], x < 0 finds []
END

run <<'PYTHON'
import daft
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

rows = pa.table({"id": [1, 2, 3, 4], "x": [0.0, -0.0, 0.0 * -1, 1.0]})
pq.write_table(rows, "x.parquet")
print("id 1: 0.0, id 2: -0.0, id 3: 0.0 * -1, id 4: 1.0")
x = daft.col("x")
for title, frame in (("in memory", daft.from_arrow(rows)), ("in Parquet", daft.read_parquet("x.parquet"))):
    equal, less, negative = (frame.where(f).to_pydict()["id"] for f in (x == 0.0, x < 0.0, x == -0.0))
    print(f"{title}: x = 0 finds {equal}, x < 0 finds {less}, x = -0.0 finds {negative}")
x = pc.field("x")
equal, less = (pq.read_table("x.parquet", filters=f)["id"].to_pylist() for f in (x == 0.0, x < 0.0))
print(f"pyarrow, in Parquet: x = 0 finds {equal}, x < 0 finds {less}")
PYTHON
