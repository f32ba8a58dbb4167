"""The pipeline: raw files to bronze, bronze to silver, silver to gold, by one engine.

Streams carry the rows to bronze and to silver; each runs until it has taken what is there, twice: for the first load,
and for the refreshes. While the refreshes go into silver's line items, two streams, OPTIMIZE and corrections change
that one table at the same time. What is beaten by another's commit is repeated, and counted. The rows that come of it
do not depend on who was first: corrections change rows that no refresh does, or a column that no refresh has.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline import gold
from pipeline.engines import Engine
from pipeline.raw import BLOCK, DELETES, DIMENSIONS, IN_USE, KEYS, STRIPE, RawFiles
from pipeline.watch import Watch
from refdelta.spark import typed_errors

STAGES = ("bronze, load", "silver, load", "bronze, refreshes", "silver, refreshes", "gold")
TABLES = (
    *(f"bronze/{name}" for name in (*DIMENSIONS, *KEYS, DELETES)),
    *(f"silver/{name}" for name in KEYS),
    *(f"gold/{name}" for name in gold.QUERIES),
)
STATEMENTS = (*(f"MERGE {name}" for name in KEYS), *(f"MERGE deletes of {name}" for name in KEYS), "OPTIMIZE", "UPDATE")
_LINES = "silver/lineitem"
_FIRST_CORRECTED = STRIPE // BLOCK // 2  # blocks from here on no refresh touches
_RECALLED = 100  # one supplier in so many has a line items' note changed by a recall


@dataclass
class Done:
    """What a run did.

    Attributes:
        seconds: by stage.
        statements: how many statements were committed, by what they are.
        conflicts: how many had to be repeated, by what they are and the class of the conflict.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    statements: Counter[str] = field(default_factory=Counter)
    conflicts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __str__(self) -> str:
        what = ", ".join(f"{count} {name}" for name, count in self.statements.items())
        return f"{what}, {self.conflicts.total()} repeated" if what else ""


class Stopped(Exception):
    """The run has ended while a job beside it was waiting or repeating a statement."""


class Pipeline:
    """One run over one engine.

    Args:
        engine: whose tables.
        spark: a session for it.
        raw: the raw files.
        scratch: a folder for this run alone, on the disk of the raw files.
        refreshes: how many refresh sets there are.
        watch: what shows how far it is.
    """

    def __init__(self, engine: Engine, spark: Any, raw: RawFiles, scratch: Path, refreshes: int, watch: Watch):
        self.engine, self.spark, self.raw, self.scratch, self.watch = engine, spark, raw, scratch, watch
        self.refreshes = refreshes
        self.done = Done()
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def run(self) -> Done:
        """Run all stages."""
        self.watch.tell = lambda: str(self.done)
        self.engine.prepare(self.spark)
        work = (self._load_bronze, self._load_silver, self._refresh_bronze, self._refresh_silver, self._gold)
        try:
            for name, stage in zip(STAGES, work, strict=True):
                with self.watch.stage(self.engine.name, name):
                    stage()
                self.done.seconds[name] = self.watch.seconds[name]
        finally:
            self._stopped.set()
            for query in self.spark.streams.active:
                query.stop()
        return self.done

    # --- the stages ---

    def _load_bronze(self) -> None:
        for name in DIMENSIONS:
            self.engine.write(self.spark.read.parquet(str(self.raw.loads[name][0])), f"bronze/{name}")
        self._arrive({name: self.raw.loads[name] for name in KEYS}, files_per_batch=len(self.raw.loads["orders"]))

    def _load_silver(self) -> None:
        for name in KEYS:
            schema = self.spark.read.parquet(str(self.raw.loads[name][0])).schema.add("note", "string")
            self.engine.create(self.spark, f"silver/{name}", schema)
        self._finish([self._upserts(name, files_per_batch=1000) for name in KEYS])

    def _refresh_bronze(self) -> None:
        self._arrive(self.raw.refreshes, files_per_batch=2)

    def _refresh_silver(self) -> None:
        rounds = Rounds(self._stopped)
        with ThreadPoolExecutor(2) as beside:
            jobs = [beside.submit(job, rounds) for job in (self._correct, self._optimize)]
            try:
                queries = [
                    self._upserts("lineitem", files_per_batch=2, begun=rounds.begin),
                    self._upserts("orders", files_per_batch=2),
                    self._deletes(),
                ]
                self._finish(queries)
                rounds.begin(self.refreshes)  # whatever the streams made of the files
                for job in jobs:
                    job.result()
            except BaseException:
                self._stopped.set()
                raise

    def _gold(self) -> None:
        for layer, names in (("silver", gold.SILVER), ("bronze", gold.BRONZE)):
            for name in names:
                self.engine.read(self.spark, f"{layer}/{name}").createOrReplaceTempView(name)
        for name, query in gold.QUERIES.items():
            self.engine.write(self.spark.sql(query), f"gold/{name}")

    # --- streams ---

    def _arrive(self, files: dict[str, list[Path]], files_per_batch: int) -> None:
        """Let raw files arrive, and append them to bronze."""
        queries = []
        for name, listed in files.items():
            folder = self.scratch / "arrived" / name
            folder.mkdir(parents=True, exist_ok=True)
            for file in listed:
                os.link(file, folder / file.name)
            reader = self.spark.readStream.schema(self.spark.read.parquet(str(listed[0])).schema)
            stream = reader.option("maxFilesPerTrigger", files_per_batch).parquet(str(folder))
            stream = stream.selectExpr("*", "_metadata.file_name AS source_file")
            table = f"bronze/{name}"
            queries.append(
                self._start(self.engine.sink(stream, table, self._checkpoint(table)), self.engine.uri(table))
            )
        self._finish(queries)

    def _upserts(self, name: str, files_per_batch: int, begun: Callable[[int], None] | None = None) -> Any:
        """A stream of events from bronze into silver, the newest of each row."""
        table, keys = f"silver/{name}", KEYS[name]

        def merge(batch: Any, _: int) -> None:
            if begun is not None:
                begun(1)
            self._until_committed(f"MERGE {name}", lambda: self.engine.upsert(table, newest(batch, keys), keys))

        return self._from_bronze(name, table, files_per_batch, merge)

    def _deletes(self) -> Any:
        """A stream of the keys of deleted orders into both tables of silver."""

        def remove(batch: Any, _: int) -> None:
            for name, keys in KEYS.items():
                table, fits = f"silver/{name}", f"t.{keys[0]} = s.o_orderkey"
                self._until_committed(
                    f"MERGE deletes of {name}", lambda t=table, on=fits: self.engine.remove(t, batch, on)
                )

        return self._from_bronze(DELETES, "silver/deletes", 2, remove)

    def _from_bronze(self, name: str, target: str, files_per_batch: int, each: Callable[[Any, int], None]) -> Any:
        stream = self.engine.stream(self.spark, f"bronze/{name}", files_per_batch)
        writer = stream.writeStream.foreachBatch(each).option("checkpointLocation", self._checkpoint(target))
        return self._start(writer)

    def _checkpoint(self, table: str) -> str:
        return str(self.scratch / "checkpoints" / table)

    def _start(self, writer: Any, *where: str) -> Any:
        self._in_pool()
        return writer.trigger(availableNow=True).start(*where)

    def _finish(self, queries: Sequence[Any]) -> None:
        """Wait until streams have taken all that is there."""
        with typed_errors():
            for query in queries:
                try:
                    query.awaitTermination()
                except Exception as error:
                    # Spark's exceptions ask Java for their text, which is gone by the time that somebody reads it.
                    error.add_note(str(error))
                    raise

    # --- jobs beside the streams ---

    def _correct(self, rounds: Rounds) -> None:
        self._in_pool()
        for number, (values, condition) in enumerate(corrections(self.refreshes), start=1):
            rounds.wait(min(number, self.refreshes))
            self._until_committed("UPDATE", lambda values=values, rows=condition: self._update(values, rows))

    def _update(self, values: dict[str, str], condition: str) -> None:
        self.engine.update(self.spark, _LINES, values, condition)

    def _optimize(self, rounds: Rounds) -> None:
        self._in_pool()
        for number in range(1, self.refreshes + 1):
            rounds.wait(number)
            self._until_committed("OPTIMIZE", lambda: self.engine.optimize(self.spark, _LINES))

    def _in_pool(self) -> None:
        """Give the jobs of this thread, and of streams that it starts, a share of the cores of their own."""
        self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", f"{threading.get_ident()}")

    def _until_committed(self, what: str, statement: Callable[[], None]) -> None:
        """Run a statement until no other writer is quicker."""
        while True:
            if self._stopped.is_set():
                raise Stopped
            try:
                statement()
            except self.engine.conflicts as error:
                with self._lock:
                    self.done.conflicts[what, type(error).__name__] += 1
                continue
            with self._lock:
                self.done.statements[what] += 1
            return


def corrections(refreshes: int) -> list[tuple[dict[str, str], str]]:
    """The statements of the corrections job in their order: what they set, and for which of silver's line items."""
    blocks = [(_FIRST_CORRECTED + number) * BLOCK for number in range(1, refreshes + 1)]
    prices: list[tuple[dict[str, str], str]] = [
        (
            {"l_discount": "CAST(0.05 AS DECIMAL(15, 2))", "note": f"'price, {number}'"},
            f"l_orderkey % {STRIPE} >= {block} AND l_orderkey % {STRIPE} < {block + BLOCK}",
        )
        for number, block in enumerate(blocks, start=1)
    ]
    # Some of these rows refreshes change, too: statements that meet there do conflict.
    recall = {"note": "'recalled'"}, f"l_suppkey % {_RECALLED} = 7 AND l_orderkey % {BLOCK} < {IN_USE}"
    return [prices[0], recall, *prices[1:]]


class Rounds:
    """How many batches a stream has begun, for jobs that keep step with it.

    Args:
        stopped: what ends all waiting.
    """

    def __init__(self, stopped: threading.Event):
        self._stopped = stopped
        self._changed = threading.Condition()
        self._begun = 0

    def begin(self, count: int) -> None:
        """So many more have begun."""
        with self._changed:
            self._begun += count
            self._changed.notify_all()

    def wait(self, number: int) -> None:
        """Wait until this one has begun."""
        with self._changed:
            while self._begun < number:
                if self._stopped.is_set():
                    raise Stopped
                self._changed.wait(0.1)


def newest(events: Any, keys: Sequence[str]) -> Any:
    """Of all events with the same keys the newest, without the file that it came in."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    order = Window.partitionBy(*keys).orderBy(f.desc("sequence"))
    numbered = events.withColumn("place", f.row_number().over(order))
    return numbered.where("place = 1").drop("place", "source_file")
