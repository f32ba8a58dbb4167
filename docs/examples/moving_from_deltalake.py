"""A day of work with deltalake, which runs unchanged on refdelta.

    python docs/examples/moving_from_deltalake.py
    python docs/examples/moving_from_deltalake.py refdelta.compat.deltalake

The argument is the module to import as ``deltalake``. Both lines print the same.
"""

from __future__ import annotations

import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc


def show(title: str, rows: Any, by: list[str]) -> None:
    """Print rows, sorted."""
    print(title)
    frame = pl.DataFrame(pa.table(rows)).sort(by)
    for row in frame.iter_rows(named=True):
        print("   ", row)


def main(deltalake: Any, folder: Path) -> None:
    """Run the example with a module in a folder that is empty."""
    uri = str(folder / "sales")

    # Partitioned writes, from pandas and from Polars.
    monday = pd.DataFrame({"id": [1, 2, 3], "city": ["Oslo", "Bergen", "Oslo"], "amount": [10.0, 20.5, 7.25]})
    deltalake.write_deltalake(uri, monday, partition_by=["city"], configuration={"delta.enableChangeDataFeed": "true"})
    tuesday = pl.DataFrame({"id": [4, 5], "city": ["Bergen", "Voss"], "amount": [1.0, 99.0]})
    deltalake.write_deltalake(uri, tuesday, mode="append")

    # A column more.
    wednesday = pl.DataFrame({"id": [6], "city": ["Oslo"], "amount": [3.0], "note": ["gift"]})
    deltalake.write_deltalake(uri, wednesday, mode="append", schema_mode="merge")
    table = deltalake.DeltaTable(uri)
    print(sorted(field.name for field in table.schema().fields), table.version(), table.count())

    # An upsert, an update and a delete. Double quotes name columns, and 7 / 2 is 3.
    corrections = pl.DataFrame(
        {"id": [2, 7], "city": ["Bergen", "Oslo"], "amount": [21.0, 5.0], "note": ["late", None]}
    )
    upsert = (
        table.merge(corrections, "s.id = t.id AND s.city = t.city", source_alias="s", target_alias="t")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )
    print({name: upsert[name] for name in ("num_target_rows_updated", "num_target_rows_inserted")})
    print(table.update({"amount": "amount + 7 / 2"}, predicate="\"city\" = 'Voss'")["num_updated_rows"])
    print(table.delete("\"note\" = 'gift'")["num_deleted_rows"])
    show("rows", table.to_pyarrow_table(columns=["id", "city", "amount", "note"]), ["id"])

    # Time travel.
    show("version 0", deltalake.DeltaTable(uri, version=0).to_pyarrow_table(columns=["id", "amount"]), ["id"])
    show("Oslo", table.to_pyarrow_table(filters=[("city", "=", "Oslo")], columns=["id"]), ["id"])

    # The change feed.
    changes = pa.table(table.load_cdf(starting_version=3))
    changes = changes.select(["id", "amount", "_change_type", "_commit_version"])
    show("changes", changes, ["_commit_version", "id", "_change_type"])

    # Lazy reads: Polars, DuckDB and pandas read only what they need of the dataset.
    dataset = table.to_pyarrow_dataset()
    oslo = pl.scan_pyarrow_dataset(dataset).filter(pl.col("city") == "Oslo").select("id", "amount")
    show("Polars", oslo.collect().to_arrow(), ["id"])
    with duckdb.connect() as connection:
        connection.register("sales", dataset)
        found = connection.sql("SELECT city, count(*) AS orders FROM sales WHERE amount > 4 GROUP BY city")
        show("DuckDB", found.to_arrow_table(), ["city"])
    cheap = dataset.to_batches(columns=["id", "amount"], filter=pc.field("amount") < 10)
    print("pandas", sorted(pd.concat(batch.to_pandas() for batch in cheap)["id"]))
    print("pandas", table.to_pandas(columns=["amount"], filters=[("city", "=", "Voss")])["amount"].tolist())

    # Maintenance.
    optimized = table.optimize.compact()
    print(optimized["numFilesRemoved"] > optimized["numFilesAdded"], table.count())
    removed = table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    print(len(removed) > 0, table.count(), sorted(partition["city"] for partition in table.partitions()))
    print([commit["operation"] for commit in table.history() if commit["operation"] in ("WRITE", "MERGE", "DELETE")])
    query = deltalake.QueryBuilder().register("sales", table)
    show("sums", query.execute("SELECT city, sum(amount) AS total FROM sales GROUP BY city").read_all(), ["city"])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as empty:
        main(import_module(sys.argv[1] if len(sys.argv) > 1 else "deltalake"), Path(empty))
