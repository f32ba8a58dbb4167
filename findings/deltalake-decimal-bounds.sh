#!/usr/bin/env bash
# deltalake: the bounds of decimals in the log are rounded to doubles, and rows are lost under a filter.
#
# A good guess: minValues and maxValues are bounds of the values in the file, so that a reader may skip the file if they
# exclude what it looks for. Instead deltalake writes the nearest double (and for decimals without a scale the largest
# int64), which may be above the smallest value or below the largest. An amount of 18 digits is then not found by
# equality: not by its own query engine, nor by a dataset of pyarrow, nor by a lazy scan of Polars. No error; an
# unfiltered read has the row.
# Seen with deltalake 1.6.6, pyarrow 26.0.1 and polars 2.1.0 on 2026-11-28 and 2026-11-29.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

install deltalake==1.6.6 pyarrow==26.0.1 polars==2.1.0

expect <<'END'
decimal(18, 2), bounds 1234567890123456.8 to 1234567890123456.8
  all rows: [Decimal('1234567890123456.78')]
  equal to it: QueryBuilder 0 rows, pyarrow 0 rows, polars 0 rows
decimal(20, 0), bounds 9223372036854775807 to 9223372036854775807
  all rows: [Decimal('98765432109876543210')]
  equal to it: QueryBuilder 0 rows, pyarrow 0 rows, polars 0 rows
END

run <<'PYTHON'
import json
import tempfile
from decimal import Decimal
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder, write_deltalake

for precision, scale, text in ((18, 2, "1234567890123456.78"), (20, 0, "98765432109876543210")):
    kind, value, path = pa.decimal128(precision, scale), Decimal(text), tempfile.mkdtemp()
    write_deltalake(path, pa.table({"x": pa.array([value], kind)}))
    lines = (Path(path) / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    [add] = [action["add"] for action in map(json.loads, lines) if "add" in action]
    bounds = json.loads(add["stats"])
    handle = DeltaTable(path)
    sql = f"SELECT count(*) AS n FROM t WHERE x = CAST('{text}' AS DECIMAL({precision}, {scale}))"
    [query] = pa.table(QueryBuilder().register("t", handle).execute(sql).read_all()).to_pylist()
    dataset = handle.to_pyarrow_dataset().to_table(filter=pc.field("x") == pa.scalar(value, kind))
    scan = pl.scan_delta(path).filter(pl.col("x") == value).collect()
    print(f"decimal({precision}, {scale}), bounds {bounds['minValues']['x']} to {bounds['maxValues']['x']}")
    print("  all rows:", handle.to_pyarrow_table()["x"].to_pylist())
    print(f"  equal to it: QueryBuilder {query['n']} rows, pyarrow {dataset.num_rows} rows, polars {scan.height} rows")
PYTHON
