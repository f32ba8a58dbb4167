"""Daft: write_deltalake with its modes and partitions, and read_deltalake with a version and a filter."""

import json
import sys

import daft
from daft.io import IOConfig, S3Config
from deltalake import DeltaTable

lake, options = sys.argv[1], json.loads(sys.argv[2])
uri, parted, config = f"{lake}/towns", f"{lake}/parted", None
if options:
    login = {"key_id": options["AWS_ACCESS_KEY_ID"], "access_key": options["AWS_SECRET_ACCESS_KEY"]}
    server = {"endpoint_url": options["AWS_ENDPOINT_URL"], "region_name": options["AWS_REGION"], "use_ssl": False}
    config = IOConfig(s3=S3Config(**login, **server))
place = {"io_config": config}
towns = daft.from_pydict({"id": [1, 2, 3], "town": ["Ulm", "Bonn", "Kiel"]})
towns.write_deltalake(uri, **place)
towns.where(daft.col("id") > 2).with_column("id", daft.col("id") + 1).write_deltalake(uri, mode="append", **place)
assert sorted(daft.read_deltalake(uri, **place).to_pydict()["id"]) == [1, 2, 3, 4]
assert sorted(daft.read_deltalake(uri, version=0, **place).to_pydict()["id"]) == [1, 2, 3]
assert daft.read_deltalake(uri, **place).where(daft.col("id") == 4).to_pydict()["town"] == ["Kiel"]
towns.write_deltalake(uri, mode="overwrite", **place, custom_metadata={"why": "a test"})
assert daft.read_deltalake(uri, **place).count_rows() == 3
assert DeltaTable(uri, storage_options=options).history(1)[0]["why"] == "a test"

towns.write_deltalake(parted, partition_cols=["town"], **place)
assert daft.read_deltalake(parted, **place).where(daft.col("town") == "Ulm").to_pydict()["id"] == [1]
where = DeltaTable(uri, storage_options=options).table_uri
assert sorted(daft.read_deltalake(where, **place).to_pydict()["town"]) == [
    "Bonn",
    "Kiel",
    "Ulm",
]
