#!/usr/bin/env bash
# DuckDB: a filter on a column of a Parquet file by another writer loses its NaN rows.
#
# A good guess: NaN is greater than all numbers in DuckDB, and Parquet asks writers to leave NaN out of the bounds of a
# column, so DuckDB does not conclude from bounds that there is no NaN. Instead x > 5 and x = 'nan', but also x <> 1 and
# even isnan(x), find nothing where the file has the row. In a table of DuckDB, and in its own Parquet file, all of them
# find it.
# Seen with duckdb 2.0.1 and pyarrow 26.0.1 on 2026-11-29; with duckdb 1.5.5 all but isnan(x).
set -euo pipefail
. "$(dirname "$0")/lib.sh"

install duckdb==2.0.1 pyarrow==26.0.1

expect <<'END'
rows of pyarrow's file: [(1, 1.0), (2, nan)]
x > 5: a table [(2,)], DuckDB's file [(2,)], pyarrow's file []
x = 'nan': a table [(2,)], DuckDB's file [(2,)], pyarrow's file []
x <> 1: a table [(2,)], DuckDB's file [(2,)], pyarrow's file []
isnan(x): a table [(2,)], DuckDB's file [(2,)], pyarrow's file []
END

run <<'PYTHON'
import tempfile
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

folder = Path(tempfile.mkdtemp())
pq.write_table(pa.table({"id": [1, 2], "x": [1.0, float("nan")]}), folder / "pyarrow.parquet")
connection = duckdb.connect()
connection.execute(f"CREATE TABLE t AS SELECT * FROM '{folder}/pyarrow.parquet'")
connection.execute(f"COPY t TO '{folder}/duckdb.parquet'")
print("rows of pyarrow's file:", connection.execute(f"SELECT * FROM '{folder}/pyarrow.parquet'").fetchall())
for condition in ("x > 5", "x = 'nan'", "x <> 1", "isnan(x)"):
    table, own, other = (
        connection.execute(f"SELECT id FROM {place} WHERE {condition}").fetchall()
        for place in ("t", f"'{folder}/duckdb.parquet'", f"'{folder}/pyarrow.parquet'")
    )
    print(f"{condition}: a table {table}, DuckDB's file {own}, pyarrow's file {other}")
PYTHON
