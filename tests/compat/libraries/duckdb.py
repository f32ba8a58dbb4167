"""DuckDB: results of queries as the rows of write_deltalake, and queries over the dataset and the stream of a table."""

import json
import sys

import duckdb
from deltalake import DeltaTable, write_deltalake

lake, options = sys.argv[1], json.loads(sys.argv[2])
uri, place = f"{lake}/towns", {"storage_options": options}
rows = duckdb.sql("select i as id, i % 3 as part, 'town ' || i as town from range(100) r(i)")
write_deltalake(uri, rows.to_arrow_table(), partition_by=["part"], **place)
one = duckdb.sql("select 100::bigint id, 1::bigint part, 'Ulm' town")
write_deltalake(uri, one.to_arrow_reader(), mode="append", **place)
table = DeltaTable(uri, **place)
table.delete("id < 10")

dataset = table.to_pyarrow_dataset()
assert duckdb.sql("select count(*), min(id), max(id) from dataset").fetchall() == [(91, 10, 100)]
assert duckdb.sql("select town from dataset where part = 1 and id > 97").fetchall() == [("Ulm",)]
stream = duckdb.from_arrow(table.to_pyarrow_table())
assert stream.aggregate("sum(id)").fetchall() == [(sum(range(10, 101)),)]
