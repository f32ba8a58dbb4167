"""Tables of a catalog on Spark: read, written, changed, and streamed by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import refdelta.spark
from refdelta import DeltaTable, errors, write_deltalake
from refdelta.catalog import SqlCatalog
from refdelta.spark import SparkExecutor, typed_errors

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    return SqlCatalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path / "warehouse")


@pytest.fixture(params=["staged", "inline"])
def table(catalog: SqlCatalog, request: pytest.FixtureRequest) -> DeltaTable:
    table = catalog.create_table("sales.orders", pa.schema({"id": pa.int64(), "k": pa.int64()}), commits=request.param)
    write_deltalake(table, pa.table({"id": range(100), "k": [n % 3 for n in range(100)]}), mode="append")
    return table


def ids(frame: Any) -> list[int]:
    return sorted(row.id for row in frame.collect())


@pytest.mark.sample(test=1)
def test_reads_writes_and_statements(session: Any, catalog: SqlCatalog, table: DeltaTable, tmp_path: Path) -> None:
    options = {"catalog": catalog.name, "table": "sales.orders"}

    def source(**more: Any) -> Any:
        return session.read.format("refdelta").options(**options, **more).load()

    refdelta.spark.write(session.range(100, 105).selectExpr("id", "id % 3 AS k"), table, mode="append")
    more = session.range(105, 110).selectExpr("id", "0L AS k")
    more.write.format("refdelta").options(**options).mode("append").save()
    assert ids(refdelta.spark.read(session, catalog.table("sales.orders"))) == [*range(110)]
    assert ids(source(filter="id >= 103")) == [*range(103, 110)]
    assert ids(source(versionAsOf=1)) == [*range(100)]
    assert ids(refdelta.spark.read(session, catalog.table("sales.orders"), version=2)) == [*range(105)]

    changed = catalog.table("sales.orders")
    changed.delete("k = 1", executor=SparkExecutor(session))
    left = [n for n in range(105) if n % 3 != 1] + [*range(105, 110)]
    assert ids(source()) == left

    stream = session.readStream.format("refdelta").options(**options, skipChangeCommits="true").load()
    into = catalog.create_table("sales.copy", pa.schema({"id": pa.int64(), "k": pa.int64()}))
    query = stream.writeStream.format("refdelta").options(
        catalog=catalog.name, table="sales.copy", checkpointLocation=str(tmp_path / "checkpoint")
    )
    query.trigger(availableNow=True).start().awaitTermination()
    into.update_incremental()
    assert sorted(into.to_pyarrow_table().column("id").to_pylist()) == left
    assert catalog.table("sales.copy").version() >= 1


@pytest.mark.tier("nightly")
def test_mistakes_are_one_error(session: Any, catalog: SqlCatalog, table: DeltaTable) -> None:
    wrong = [
        ({"catalog": catalog.name}, "options catalog"),
        ({"table": "sales.orders"}, "options catalog"),
        ({"catalog": catalog.name, "table": "sales.orders", "path": "x"}, "no path"),
        ({"catalog": catalog.name, "table": "sales.order"}, "did you mean 'sales.orders'"),
    ]
    for options, said in wrong:
        with pytest.raises(errors.DeltaError, match=said), typed_errors():
            session.read.format("refdelta").options(**options).load().collect()
    with pytest.raises(errors.InvalidArgumentError, match="storage_options"):
        refdelta.spark.read(session, table, storage_options={"fsync": "false"})
