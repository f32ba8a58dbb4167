"""`df.writeStream.format("refdelta")`: each batch of a stream is one commit, and is there exactly once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refdelta import DeltaTable
from refdelta.spark import register, typed_errors

pytestmark = pytest.mark.spark

SCHEMA = "id long, kind string"


@pytest.fixture(scope="module")
def session(spark: Any) -> Iterator[Any]:
    register(spark)
    # A batch of state for each of 200 partitions would take longer than all else.
    spark.conf.set("spark.sql.streaming.stateStore.maintenanceInterval", "600s")
    yield spark
    for query in spark.streams.active:
        query.stop()


class Stream:
    """A folder of Parquet files, one of them a batch, that streams into a table with one checkpoint."""

    def __init__(self, session: Any, folder: Path):
        self.session, self.source, self.uri, self.checkpoint = (
            session,
            folder / "in",
            folder / "t",
            folder / "checkpoint",
        )
        self.source.mkdir(parents=True)

    def add(self, *rows: tuple[int, str | None]) -> Stream:
        """One more batch."""
        ids, kinds = zip(*rows, strict=True) if rows else ((), ())
        table = pa.table({"id": pa.array(ids, pa.int64()), "kind": pa.array(kinds, pa.string())})
        pq.write_table(table, self.source / f"{len(list(self.source.iterdir())):03}.parquet")
        return self

    def frame(self) -> Any:
        return self.session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(self.source))

    def start(
        self,
        change: Callable[[Any], Any] = lambda frame: frame,
        mode: str = "append",
        form: str = "refdelta",
        checkpoint: Path | None = None,
        **options: Any,
    ) -> Any:
        """The query, on its way through what there is."""
        writer = change(self.frame()).writeStream.format(form).outputMode(mode).options(**options)
        writer = writer.option("checkpointLocation", str(checkpoint or self.checkpoint))
        return writer.trigger(availableNow=True).start(str(self.uri))

    def run(self, change: Callable[[Any], Any] = lambda frame: frame, **options: Any) -> Stream:
        """All that there is, to its end."""
        with typed_errors():
            self.start(change, **options).awaitTermination()
        return self

    @property
    def query(self) -> str:
        return str(json.loads((self.checkpoint / "metadata").read_text())["id"])

    @property
    def batches(self) -> list[int]:
        """Which Spark knows to be done."""
        done = (path.name for path in (self.checkpoint / "commits").iterdir() if not path.name.startswith("."))
        return sorted(map(int, done))

    def forget(self, batch: int) -> None:
        """Make Spark not know that a batch was done, as where it was killed behind the table's commit."""
        for name in (str(batch), f".{batch}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return rows_of(self.uri)


@pytest.fixture
def stream(session: Any, tmp_path: Path) -> Stream:
    return Stream(session, tmp_path)


def rows_of(uri: Path) -> list[tuple[Any, ...]]:
    table = DeltaTable(uri).to_pyarrow_table()
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=repr)


def data_files(uri: Path) -> set[str]:
    return {path.name for path in uri.rglob("*.parquet") if "_delta_log" not in path.parts}


def committed(uri: Path) -> set[str]:
    return {path.rsplit("/", 1)[-1] for path in DeltaTable(uri).file_uris()}


def test_each_batch_is_a_commit_that_records_query_and_batch(stream: Stream) -> None:
    stream.add((1, "a")).add((2, "b"), (3, None)).run(partitionBy="kind", userMetadata="noted")
    stream.add((4, "a")).run()
    table = DeltaTable(stream.uri)
    assert stream.rows == [(1, "a"), (2, "b"), (3, None), (4, "a")]
    assert table.metadata().partition_columns == ["kind"]
    assert table.transaction_version(stream.query) == 2
    history = table.history()
    assert [entry["operation"] for entry in history] == ["STREAMING UPDATE"] * 3
    assert [entry["operationParameters"]["epochId"] for entry in history] == ["2", "1", "0"]
    assert [entry.get("userMetadata") for entry in history] == [None, "noted", "noted"]
    assert data_files(stream.uri) == committed(stream.uri)
