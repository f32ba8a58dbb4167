"""pyiceberg: two upserts of one key that is not there both insert it.

Needs pyiceberg with its SQL catalog, and pyarrow: ``python pyiceberg_upsert.py``.
"""

import tempfile

import pyarrow as pa
import pyiceberg
from pyiceberg.catalog.sql import SqlCatalog

schema = pa.schema([("k", pa.int64()), ("a", pa.int64())])
folder = tempfile.mkdtemp()
catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
catalog.create_namespace("n")
catalog.create_table("n.t", schema).append(pa.table({"k": [0, 1], "a": [0, 1]}, schema=schema))

first, second = catalog.load_table("n.t"), catalog.load_table("n.t")
first.upsert(pa.table({"k": [7], "a": [1]}, schema=schema), join_cols=["k"])
try:
    second.upsert(pa.table({"k": [7], "a": [2]}, schema=schema), join_cols=["k"])
    ended = "committed"
except Exception as error:  # noqa: BLE001
    ended = f"refused: {type(error).__name__}"
rows = catalog.load_table("n.t").scan().to_arrow().to_pylist()
print("pyiceberg", pyiceberg.__version__)
print("the second upsert:", ended)
print("rows of k = 7: expected 1, found", sum(row["k"] == 7 for row in rows))
