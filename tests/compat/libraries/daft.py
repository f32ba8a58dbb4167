"""Daft: write_deltalake with its modes and partitions, and read_deltalake with a version and a filter."""

import daft
from deltalake import DeltaTable

towns = daft.from_pydict({"id": [1, 2, 3], "town": ["Ulm", "Bonn", "Kiel"]})
towns.write_deltalake("towns")
towns.where(daft.col("id") > 2).with_column("id", daft.col("id") + 1).write_deltalake("towns", mode="append")
assert sorted(daft.read_deltalake("towns").to_pydict()["id"]) == [1, 2, 3, 4]
assert sorted(daft.read_deltalake("towns", version=0).to_pydict()["id"]) == [1, 2, 3]
assert daft.read_deltalake("towns").where(daft.col("id") == 4).to_pydict()["town"] == ["Kiel"]
towns.write_deltalake("towns", mode="overwrite", custom_metadata={"why": "a test"})
assert daft.read_deltalake("towns").count_rows() == 3
assert DeltaTable("towns").history(1)[0]["why"] == "a test"

towns.write_deltalake("parted", partition_cols=["town"])
assert daft.read_deltalake("parted").where(daft.col("town") == "Ulm").to_pydict()["id"] == [1]
assert sorted(daft.read_deltalake(DeltaTable("towns").table_uri).to_pydict()["town"]) == ["Bonn", "Kiel", "Ulm"]
