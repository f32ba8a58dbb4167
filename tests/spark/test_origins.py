"""Which writes rest on the table that they write to: by the plans of their rows, beside delta-spark's own appends."""

from __future__ import annotations

import functools
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.catalog import SqlCatalog
from refdelta.spark import SparkExecutor, origins, read, register, write

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.spark

ROWS = pa.table({"id": [1, 2, 3], "kind": ["a", "b", "c"]})


@dataclass
class World:
    """A session, a table, another one, and a folder with the same rows in other formats.

    Attributes:
        rows: reads the table: by `refdelta.spark.read`, or by delta-spark.
    """

    spark: Any
    folder: Path
    rows: Callable[[], Any]

    @property
    def uri(self) -> str:
        return str(self.folder / "t")

    @property
    def other(self) -> str:
        return str(self.folder / "other")

    def file(self, name: str) -> str:
        return str(self.folder / name)


@pytest.fixture(scope="module")
def session(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    register(spark)
    spark.sparkContext.setCheckpointDir(str(tmp_path_factory.mktemp("checkpoints")))
    return spark


@pytest.fixture(scope="module")
def formats(session: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("formats")
    rows = session.createDataFrame(ROWS)
    for name in ("parquet", "csv", "json", "orc"):
        rows.write.format(name).save(str(folder / name))
    return folder


@pytest.fixture
def world(session: Any, formats: Path, tmp_path: Path) -> World:
    (tmp_path / "files").symlink_to(formats)
    write_deltalake(tmp_path / "t", ROWS)
    write_deltalake(tmp_path / "other", ROWS)
    return World(session, tmp_path, lambda: read(session, tmp_path / "t"))


def viewed(frame: Any, sql: str) -> Any:
    frame.createOrReplaceTempView("viewed")
    return frame.sparkSession.sql(sql)


PLAIN: dict[str, Callable[[World], Any]] = {
    "rows of the driver": lambda w: w.spark.createDataFrame([(1, "a")], "id long, kind string"),
    "no row": lambda w: w.spark.createDataFrame([], "id long, kind string"),
    "pandas": lambda w: w.spark.createDataFrame(ROWS.to_pandas()),
    "an RDD of rows of the driver": lambda w: w.spark.createDataFrame(
        w.spark.sparkContext.parallelize([(1, "a")]).map(lambda row: row), "id long, kind string"
    ),
    "a text file as an RDD": lambda w: w.spark.createDataFrame(
        w.spark.sparkContext.textFile(w.file("files/json")).map(lambda line: (1, line)), "id long, kind string"
    ),
    "a range": lambda w: w.spark.range(3).selectExpr("id", "'a' AS kind"),
    "values": lambda w: w.spark.sql("SELECT * FROM VALUES (1L, 'a') v (id, kind) WHERE id IN (SELECT 1)"),
    "csv": lambda w: w.spark.read.schema("id long, kind string").csv(w.file("files/csv")),
    "json": lambda w: w.spark.read.json(w.file("files/json")),
    "orc": lambda w: w.spark.read.orc(w.file("files/orc")),
    "parquet": lambda w: w.spark.read.parquet(w.file("files/parquet")),
    "another table": lambda w: read(w.spark, w.other),
    "another table by the source": lambda w: w.spark.read.format("refdelta").load(w.other),
    "another table by delta-spark": lambda w: w.spark.read.format("delta").load(w.other),
    "a function over numbers": lambda w: w.spark.range(3).mapInArrow(
        lambda batches: (pa.record_batch({"id": b.column(0), "kind": ["a"] * b.num_rows}) for b in batches),
        "id long, kind string",
    ),
    "a join, kept": lambda w: (
        read(w.spark, w.other).join(w.spark.range(3), "id").union(PLAIN["parquet"](w)).cache().where("id > 0")
    ),
    "a stated version": lambda w: read(w.spark, w.uri, version=0),
    "a stated version by the source": lambda w: w.spark.read.format("refdelta").option("versionAsOf", 0).load(w.uri),
}

# By these, delta-spark knows it, too.
MADE: dict[str, Callable[[World], Any]] = {
    "as it is": lambda w: w.rows(),
    "computed": lambda w: w.rows().where("id > 1").selectExpr("id + 1 AS id", "upper(kind) AS kind"),
    "joined": lambda w: w.spark.range(9).join(w.rows().select("id"), "id", "anti").selectExpr("id", "'a' AS kind"),
    "united": lambda w: PLAIN["a range"](w).union(w.rows()),
    "counted": lambda w: w.rows().groupBy("kind").count().selectExpr("count AS id", "kind"),
    "a scalar subquery": lambda w: viewed(
        w.rows(), "SELECT (SELECT max(id) FROM viewed) + id AS id, 'a' AS kind FROM range(3)"
    ),
    "a subquery in a subquery": lambda w: viewed(
        w.rows(),
        "WITH q AS (SELECT id FROM viewed) SELECT id, 'a' AS kind FROM range(9) r WHERE NOT EXISTS "
        "(SELECT 1 FROM range(5) s WHERE s.id = r.id AND s.id > (SELECT min(id) FROM q))",
    ),
    "a function": lambda w: w.rows().mapInArrow(lambda batches: batches, "id long, kind string"),
    "a view of a view": lambda w: viewed(viewed(w.rows(), "SELECT * FROM viewed WHERE id > 1"), "SELECT * FROM viewed"),
    "within a plan of many nodes": lambda w: united([PLAIN["values"](w)] * 9 + [w.rows()]),
}  # fmt: skip

# Here delta-spark's append is blind, or there is no such thing.
HIDDEN: dict[str, Callable[[World], Any]] = {
    "cached": lambda w: w.rows().cache(),
    "a local checkpoint": lambda w: w.rows().localCheckpoint(),
    "a local checkpoint to come": lambda w: w.rows().localCheckpoint(eager=False),
    "a checkpoint": lambda w: w.rows().checkpoint(),
    "a checkpoint to come": lambda w: w.rows().checkpoint(eager=False),
    "a checkpoint of a join": lambda w: MADE["joined"](w).localCheckpoint().where("id > 0"),
    "rows by an RDD": lambda w: w.spark.createDataFrame(w.rows().rdd, "id long, kind string"),
    "rows by an RDD of a join": lambda w: w.spark.createDataFrame(
        PLAIN["an RDD of rows of the driver"](w).join(w.rows().select("id").hint("broadcast"), "id").rdd,
        "id long, kind string",
    ),
    "the source": lambda w: w.spark.read.format("refdelta").load(w.uri),
    "a view over the source": lambda w: using(w, w.uri),
    "the files": lambda w: w.spark.read.parquet(str(next(Path(w.uri).glob("*.parquet")))),
    "delta-spark": lambda w: w.spark.read.format("delta").load(w.uri),
    "delta-spark at a version": lambda w: w.spark.read.format("delta").option("versionAsOf", 0).load(w.uri),
}  # fmt: skip


def united(frames: list[Any]) -> Any:
    return functools.reduce(lambda one, other: one.union(other), frames)


def using(w: World, uri: str) -> Any:
    w.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW used USING refdelta OPTIONS (path '{uri}')")
    return w.spark.sql("SELECT id, kind FROM used")


def is_blind(uri: str) -> bool:
    log = max(Path(uri, "_delta_log").glob("*.json"))
    commit = next(json.loads(line)["commitInfo"] for line in log.read_text().splitlines() if "commitInfo" in line)
    return bool(commit["isBlindAppend"])


@pytest.mark.parametrize("name", PLAIN)
def test_an_append_of_rows_from_elsewhere_is_blind(world: World, name: str) -> None:
    w = world
    read(w.spark, w.uri)  # the session may know the table
    frame = PLAIN[name](w)
    write(frame, w.uri, mode="append")
    assert is_blind(w.uri)
    if "stated" not in name:
        frame.write.format("delta").mode("append").save(w.uri)
        assert is_blind(w.uri)


@pytest.mark.parametrize("name", [*MADE, *HIDDEN])
def test_an_append_of_rows_of_the_table_conflicts_with_what_changes_since(world: World, name: str) -> None:
    w = world
    make = {**MADE, **HIDDEN}[name]
    if name in MADE:
        theirs = World(w.spark, w.folder, lambda: w.spark.read.format("delta").load(w.uri))
        make(theirs).write.format("delta").mode("append").save(w.uri)
        assert not is_blind(w.uri)
    frame = make(w)
    DeltaTable(w.uri).delete("id = 1")
    if name.startswith("delta-spark"):  # it reads when the rows are computed
        write(frame, w.uri, mode="append")
    else:
        if name == "the files":  # nothing says of which version they are
            read(w.spark, w.uri)
            DeltaTable(w.uri).delete("id = 2")
        with pytest.raises(errors.ConcurrentModificationError):
            write(frame, w.uri, mode="append")
        read(w.spark, w.uri)
        write(make(w), w.uri, mode="append")
    assert not is_blind(w.uri)


def test_the_caller_may_know_better(world: World) -> None:
    w = world
    hidden = w.spark.range(3).selectExpr("id", "'a' AS kind").localCheckpoint()
    write(hidden, w.uri, mode="append")
    assert not is_blind(w.uri)
    write(hidden, w.uri, mode="append", reads_target=False)
    assert is_blind(w.uri)
    write(read(w.spark, w.uri), w.uri, mode="append", reads_target=False)
    assert is_blind(w.uri)
    write(w.spark.range(3).selectExpr("id", "'a' AS kind"), w.uri, mode="append", reads_target=True)
    assert not is_blind(w.uri)
    newest = DeltaTable(w.uri).version()
    write(hidden, w.uri, mode="append", reads_target=newest)
    DeltaTable(w.uri).delete("id = 1")
    with pytest.raises(errors.ConcurrentModificationError):
        write(hidden, w.uri, mode="append", reads_target=newest)


def test_rows_of_an_unknown_source_are_as_old_as_the_first_read_since_the_last_write(world: World) -> None:
    w = world
    old = read(w.spark, w.uri).localCheckpoint()
    DeltaTable(w.uri).delete("id = 1")
    read(w.spark, w.uri)
    with pytest.raises(errors.ConcurrentModificationError):
        write(old, w.uri, mode="append")
    read(w.spark, w.uri)
    with pytest.raises(errors.ConcurrentModificationError):  # the rows are no younger for that
        write(old, w.uri, mode="append")
    for _ in range(3):  # a program that reads, keeps and writes in turns never conflicts with itself
        write(read(w.spark, w.uri).selectExpr("id + 10 AS id", "kind").localCheckpoint(), w.uri, mode="append")
        assert not is_blind(w.uri)


SPELLINGS: dict[str, Callable[[str], str]] = {
    "slash": lambda path: f"{path}/",
    "dots": lambda path: f"{path}/../t",
    "three slashes": lambda path: f"file://{path}",
    "one slash": lambda path: f"file:{path}",
    "relative": os.path.relpath,
    "symbolic link": lambda path: str(link(path)),
    "below a symbolic link": lambda path: str(link(str(Path(path).parent)) / "t"),
}


def link(path: str) -> Path:
    found = Path(path).parent / "linked"
    found.symlink_to(path)
    return found


@pytest.mark.parametrize("name", SPELLINGS)
def test_the_table_is_known_by_every_spelling_of_its_folder(world: World, name: str) -> None:
    w = world
    other = SPELLINGS[name](w.uri)
    for frame, uri in (
        (read(w.spark, other), w.uri),
        (read(w.spark, w.uri), other),
        (using(w, other), w.uri),
        (w.spark.read.format("refdelta").load(w.uri), other),
    ):
        DeltaTable(w.uri).update({"kind": "'x'"}, predicate="id = 1")
        with pytest.raises(errors.ConcurrentModificationError):
            write(frame, uri, mode="append")


def test_a_folder_with_spaces_and_signs_is_known(world: World) -> None:
    w = world
    for name in ("a b", "a%20b", "ä+#?"):
        uri = w.file(name)
        write_deltalake(uri, ROWS)
        for make in (read, lambda spark, uri: using(w, uri), lambda spark, uri: spark.read.format("delta").load(uri)):
            write(make(w.spark, uri), uri, mode="append")
            assert not is_blind(uri)


def test_a_table_of_a_catalog_is_known_by_its_name_and_its_path(world: World) -> None:
    w = world
    catalog = SqlCatalog(f"sqlite:///{w.folder}/catalog.db", warehouse=w.folder / "warehouse")
    table = catalog.create_table("sales.orders", ROWS.schema)
    write_deltalake(table, ROWS, mode="append")
    source = w.spark.read.format("refdelta").options(catalog=catalog.name, table="sales.orders").load()
    for frame in (read(w.spark, catalog.table("sales.orders")), source):
        catalog.table("sales.orders").update({"kind": "'x'"}, predicate="id = 1")
        with pytest.raises(errors.ConcurrentModificationError):
            write(frame, catalog.table("sales.orders"), mode="append")


def test_a_copy_of_the_table_is_no_reason_for_an_error(world: World) -> None:
    w = world
    shutil.copytree(w.uri, w.file("copy"))
    write_deltalake(w.uri, ROWS, mode="append")
    write(read(w.spark, w.uri), w.file("copy"), mode="append")
    assert DeltaTable(w.file("copy")).count() == 9
    assert not is_blind(w.file("copy"))


def test_the_settings_of_the_session_hide_nothing(world: World) -> None:
    w = world
    for setting, value in (("spark.sql.maxPlanStringLength", "10"), ("spark.sql.debug.maxToStringFields", "1")):
        w.spark.conf.set(setting, value)
        try:
            write(MADE["within a plan of many nodes"](w), w.uri, mode="append")
        finally:
            w.spark.conf.unset(setting)
        assert not is_blind(w.uri)


@pytest.mark.parametrize("static", [False, True])
def test_a_batch_of_a_stream_is_known_by_the_plan_of_the_stream(world: World, static: bool) -> None:
    w = world
    stream = w.spark.readStream.schema("id long, kind string").json(w.file("files/json"))
    if static:
        from pyspark.sql import functions as f

        stream = stream.join(f.broadcast(read(w.spark, w.uri).select("id")), "id")
    query = (
        stream.writeStream.foreachBatch(lambda batch, number: write(batch, w.uri, mode="append") and None)
        .option("checkpointLocation", w.file("stream"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert is_blind(w.uri) is not static


def test_a_merge_of_rows_of_the_table_says_so(world: World) -> None:
    w = world

    def merge(source: Any) -> None:
        merged = DeltaTable(w.uri).merge(source, "t.id = s.id", "s", "t", executor=SparkExecutor(w.spark))
        merged.when_not_matched_insert_all().execute()

    stale = read(w.spark, w.uri)
    DeltaTable(w.uri).delete("id = 1")
    with pytest.raises(errors.InvalidArgumentError, match="the data are of version 0"):
        merge(stale)


RULES = {
    "marks": ("_marked", lambda self, alias: None),
    "unknown sources": ("_unknown", lambda self, before=None: None),
    "RDDs": ("_of_rdd", lambda self, rdd: None),
    "tables": ("_of_table", lambda self, table, **more: None),
    "relations": ("_of_relation", lambda self, relation: None),
}


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_needed(world: World, monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    w = world
    monkeypatch.setattr(origins._Target, *RULES[rule])
    table = DeltaTable(w.uri)
    from refdelta.engine.log.snapshot import load_snapshot

    snapshot = load_snapshot(table.store)
    found = [name for name, make in {**MADE, **HIDDEN}.items() if origins.version_of(make(w), snapshot) is None]
    assert found, rule
