"""DataFusion: its results as the rows of write_deltalake, queries over the dataset of a table, and QueryBuilder."""

import json
import sys

import datafusion
from deltalake import DeltaTable, QueryBuilder, write_deltalake

lake, options = sys.argv[1], json.loads(sys.argv[2])
uri, place = f"{lake}/towns", {"storage_options": options}
context = datafusion.SessionContext()
rows = context.sql("select value as id, value % 3 as part from range(100)")
write_deltalake(uri, rows, partition_by=["part"], **place)
table = DeltaTable(uri, **place)
table.delete("id < 10")

context.register_dataset("towns", table.to_pyarrow_dataset())
assert context.sql("select count(*) n, min(id) least from towns").to_pydict() == {"n": [90], "least": [10]}
query = context.sql("select id from towns where part = 1 and id > 95")
assert query.to_pydict() == {"id": [97]}
plan = query.execution_plan().display_indent()
assert "filter_expr=((part == 1) and (id > 95)), projection=[id]" in plan, plan

refusal = ""
try:
    context.register_table("provided", table)
except Exception as error:
    refusal = str(error)
assert "use context.register_dataset(name, table.to_pyarrow_dataset())" in refusal, refusal
context.from_arrow(table.to_pyarrow_table(), "copied")
assert context.sql("select sum(id) n from copied").to_pydict() == {"n": [sum(range(10, 100))]}
found = QueryBuilder().register("t", table).execute("select max(id) n from t").read_all()
assert found["n"].to_pylist() == [99]
