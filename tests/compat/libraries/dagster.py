"""Dagster: the I/O managers of dagster-deltalake-pandas and -polars, with partitions, and the table resource."""

import json
import sys

import pandas as pd
import polars as pl
from dagster import AssetExecutionContext, Definitions, StaticPartitionsDefinition, asset, materialize
from dagster_deltalake import DeltaTableResource, LocalConfig, S3Config
from dagster_deltalake_pandas import DeltaLakePandasIOManager
from dagster_deltalake_polars import DeltaLakePolarsIOManager
from deltalake import DeltaTable

lands = StaticPartitionsDefinition(["BW", "NW"])
lake, options = sys.argv[1], json.loads(sys.argv[2])
config = LocalConfig()
if options:
    named = {name.lower().removeprefix("aws_"): value for name, value in options.items()}
    named["endpoint"] = named.pop("endpoint_url")  # a name that it does not know is passed over without a word
    config = S3Config(**named)
where = {"root_uri": lake, "storage_options": config}
seen = {}


@asset(key_prefix=["pandas"], io_manager_key="pandas")
def towns() -> pd.DataFrame:
    return pd.DataFrame({"id": [1, 2], "town": ["Ulm", "Bonn"]})


@asset(key_prefix=["pandas"], io_manager_key="pandas")
def counted(towns: pd.DataFrame) -> pd.DataFrame:
    seen["pandas"] = sorted(towns["id"])
    return towns.assign(n=len(towns))


@asset(key_prefix=["polars"], io_manager_key="polars", partitions_def=lands, metadata={"partition_expr": "land"})
def parted(context: AssetExecutionContext) -> pl.DataFrame:
    return pl.DataFrame({"id": [1, 2], "land": [context.partition_key] * 2})


@asset(key_prefix=["polars"], io_manager_key="polars", partitions_def=lands, metadata={"partition_expr": "land"})
def doubled(parted: pl.DataFrame) -> pl.DataFrame:
    seen.setdefault("polars", []).extend(parted["land"].unique())
    return parted.with_columns(pl.col("id") * 2)


@asset
def size(table: DeltaTableResource) -> int:
    return table.load().to_pyarrow_table().num_rows


resources = {
    "pandas": DeltaLakePandasIOManager(**where),
    "polars": DeltaLakePolarsIOManager(**where),
    "table": DeltaTableResource(url=f"{lake}/pandas/counted", storage_options=config),
}
Definitions(assets=[towns, counted, parted, doubled, size], resources=resources)
for _ in range(2):  # the second time overwrites
    assert materialize([towns, counted], resources=resources).success
    for land in ("BW", "NW"):
        assert materialize([parted, doubled], resources=resources, partition_key=land).success
assert seen == {"pandas": [1, 2], "polars": ["BW", "NW", "BW", "NW"]}
assert DeltaTable(f"{lake}/pandas/counted", storage_options=options).to_pandas()["n"].tolist() == [2, 2]
found = (
    DeltaTable(f"{lake}/polars/doubled", storage_options=options)
    .to_pyarrow_table()
    .sort_by([("land", "ascending"), ("id", "ascending")])
)
assert found.to_pydict() == {"id": [2, 4, 2, 4], "land": ["BW", "BW", "NW", "NW"]}
assert materialize([size], resources=resources).output_for_node("size") == 2
