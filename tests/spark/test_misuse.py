"""Mistakes of new users of refdelta on Spark: each raises one error that names the mistake."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from refdelta import CommitProperties, DeltaTable, errors, write_deltalake
from refdelta.spark import SparkExecutor, SparkUnavailableError, read, register, typed_errors, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.spark

WRONG, COLUMN, SCHEMA, TYPE, PREDICATE, VERSION, STORE, NO_TABLE, EXISTS = (
    errors.InvalidArgumentError, errors.ColumnNotFoundError, errors.SchemaMismatchError, errors.UnsupportedTypeError,
    errors.PredicateError, errors.VersionNotFoundError, errors.StoreError, errors.TableNotFoundError,
    errors.TableAlreadyExistsError,
)  # fmt: skip


@pytest.fixture(scope="module")
def user(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """The setting of a new user: a session, a DataFrame of three rows, a table with them, and two other folders."""
    from pyspark.sql import functions

    register(spark)
    folder = tmp_path_factory.mktemp("misuse")
    uri = str(folder / "t")
    write_deltalake(uri, pa.table({"id": [1, 2, 3], "s": ["a", "b", None]}))
    (folder / "plain").mkdir()
    (folder / "plain" / "x.parquet").write_bytes(b"no Parquet")
    (folder / "file").write_text("x")
    yield SimpleNamespace(
        spark=spark, uri=uri, folder=folder, f=functions, new=str(folder / "new"), table=DeltaTable(uri),
        df=spark.createDataFrame([(1, "a"), (2, "b"), (3, None)], "id long, s string"),
        source=lambda **options: spark.read.format("refdelta").options(**options),
        sink=lambda mode="append", **options: user_frame(spark).write.format("refdelta").mode(mode).options(**options),
    )  # fmt: skip
    assert DeltaTable(uri).version() == 0, "none of it may have written"
    assert not (folder / "new").exists() or not any((folder / "new").iterdir()), "or left anything behind"


def user_frame(spark: Any) -> Any:
    return spark.createDataFrame([(4, "d")], "id long, s string")


def readings() -> Iterator[tuple[Callable[[Any], Any], type[Exception], str]]:
    yield lambda u: read(None, u.uri), WRONG, "SparkSession, not NoneType"
    yield lambda u: read(u.uri, u.spark), WRONG, "SparkSession, not str"
    yield lambda u: read(u.spark, 5), WRONG, "a path or a URI, not 5"
    yield lambda u: read(u.spark, ""), WRONG, "path or a URI"
    yield lambda u: read(u.spark, u.folder / "nowhere"), NO_TABLE, "nowhere"
    yield lambda u: read(u.spark, u.folder / "plain"), NO_TABLE, "_delta_log has no commit"
    yield lambda u: read(u.spark, u.folder / "file"), STORE, "not a folder"
    yield lambda u: read(u.spark, "foo://x/t"), WRONG, "no store for foo"
    yield lambda u: read(u.spark, u.uri, version=-1), VERSION, "no version -1"
    yield lambda u: read(u.spark, u.uri, version=99), VERSION, "its newest is 0"
    yield lambda u: read(u.spark, u.uri, version=1.5), WRONG, "not 1.5"
    yield lambda u: read(u.spark, u.uri, version="yesterday"), WRONG, "ISO 8601"
    yield lambda u: read(u.spark, u.uri, version=True), WRONG, "not True"
    yield lambda u: read(u.spark, u.uri, columns="id"), WRONG, "list of names"
    yield lambda u: read(u.spark, u.uri, columns=[u.f.col("id")]), WRONG, "columns must be a list of names"
    yield lambda u: read(u.spark, u.uri, columns=["id", "ID"]), WRONG, "twice"
    yield lambda u: read(u.spark, u.uri, columns=["nope"]), COLUMN, "columns: id, s"
    yield lambda u: read(u.spark, u.uri, filter=u.f.col("id") > 1), WRONG, "SQL text, not Column"
    yield lambda u: read(u.spark, u.uri, filter=""), PREDICATE, "cannot be parsed"
    yield lambda u: read(u.spark, u.uri, filter="id >"), PREDICATE, "line 1, column 4"
    yield lambda u: read(u.spark, u.uri, filter="nope = 1"), COLUMN, "nope"
    yield lambda u: read(u.spark, u.uri, filter="my_udf(id)"), PREDICATE, "not supported"
    yield lambda u: read(u.spark, u.uri, filter="id in (select 1)"), PREDICATE, "subquery"
    yield lambda u: read(u.spark, u.uri, storage_options="key=secret"), WRONG, "mapping of names"
    yield lambda u: read(u.spark, u.uri, storage_options={"nope": "1"}), WRONG, "unknown option 'nope'"


def writings() -> Iterator[tuple[Callable[[Any], Any], type[Exception], str]]:
    yield lambda u: write(u.uri, u.df), WRONG, "DataFrame, not a str"
    yield lambda u: write(pa.table({"id": [1]}), u.new), WRONG, "DataFrame, not a Table"
    yield lambda u: write(u.df.rdd, u.new), WRONG, "DataFrame, not a RDD"
    yield lambda u: write(u.df.groupBy("id"), u.new), WRONG, "DataFrame, not a GroupedData"
    yield lambda u: write(u.spark.readStream.format("rate").load(), u.new), WRONG, "writeStream"
    yield lambda u: write(u.df, "memory://t"), WRONG, "memory of one process"
    yield lambda u: write(u.df, u.folder / "file"), STORE, "not a folder"
    yield lambda u: write(u.df, u.uri), EXISTS, 'mode="append"'
    yield lambda u: write(u.df, u.uri, mode="upsert"), WRONG, "'error', 'ignore', 'append', 'overwrite'"
    yield lambda u: write(u.df, u.new, partition_by="nope"), COLUMN, "cannot partition"
    yield lambda u: write(u.df, u.new, partition_by=["id", "s"]), WRONG, "every column"
    yield lambda u: write(u.df, u.new, partition_by=u.f.col("s")), WRONG, "partition_by must be a list of names"
    yield lambda u: write(u.df, u.uri, mode="append", partition_by="s"), WRONG, "partitioned by"
    yield lambda u: write(u.df, u.uri, mode="append", predicate="id = 1"), WRONG, 'mode="overwrite"'
    yield (
        lambda u: write(u.df, u.uri, mode="overwrite", predicate=u.f.col("id") == 1),
        WRONG,
        "predicate must be a string",
    )
    yield (
        lambda u: write(u.df, u.uri, mode="overwrite", predicate="id = 1"),
        errors.ConstraintViolationError,
        "outside of the predicate",
    )
    yield lambda u: write(u.df.selectExpr("'x' id"), u.uri, mode="append"), SCHEMA, "id is long in the table"
    yield lambda u: write(u.df.selectExpr("*", "1 n"), u.uri, mode="append"), SCHEMA, 'schema_mode="merge"'
    yield lambda u: write(u.df.selectExpr("id", "id Id"), u.new), SCHEMA, "same name"
    yield lambda u: write(u.df.selectExpr("named_struct('a', 1, 'A', 2) v"), u.new), SCHEMA, "'v.a' and 'v.A'"
    yield lambda u: write(u.df.select(), u.new), SCHEMA, "at least one column"
    yield lambda u: write(u.df.selectExpr("id `a b;c`"), u.new), WRONG, "rename the column"
    yield lambda u: write(u.df.toDF("", "s"), u.new), WRONG, "empty name"
    for kind, named in (
        ("interval 1 year", "the type interval year of column v"),
        ("interval 1 day", "the type interval day of column v"),
        ("make_interval(1, 2)", "the type interval of column v"),
        ("time'12:13:14'", "the type time(6) of column v"),
        ("array()", "arrays or maps of void"),
        ("null", "all void"),
    ):
        yield lambda u, kind=kind: write(u.spark.sql(f"select {kind} as v"), u.new), TYPE, named
    yield lambda u: write(u.df, u.new, app_id="job", app_version="1"), WRONG, "app_version must be an integer"
    yield lambda u: write(u.df, u.uri, mode="append", app_id="job"), WRONG, "go together"
    yield (
        lambda u: write(u.df, u.new, configuration={"delta.nope": "1"}),
        WRONG,
        "table property 'delta.nope' does not exist",
    )
    yield lambda u: write(u.df, u.new, cluster_by="id", partition_by="s"), WRONG, "cannot have partition columns"
    yield lambda u: write(u.df, u.new, target_file_size="1MB"), WRONG, "target_file_size must be an integer"
    yield lambda u: write(u.df, u.new, commit_properties={"user_metadata": "x"}), WRONG, "CommitProperties"
    yield lambda u: write(u.df, u.new, commit_properties=CommitProperties(user_metadata=5)), WRONG, "must be a string"  # type: ignore[arg-type]
    yield (
        lambda u: write(u.df, u.uri, mode="append", isolation="Snapshot"),
        WRONG,
        "isolation levels: WriteSerializable",
    )
    yield lambda u: write(u.df, u.uri, mode="append", reads_target=99), VERSION, "no version 99"
    yield lambda u: write(u.df, u.uri, mode="append", reads_target="newest"), WRONG, "reads_target"


def sourcings() -> Iterator[tuple[Callable[[Any], Any], type[Exception], str]]:
    yield lambda u: u.source().load(), WRONG, "needs a path"
    yield lambda u: u.source().load([u.uri, u.uri]), WRONG, "one only"
    yield lambda u: u.source().load(str(u.folder / "nowhere")), NO_TABLE, "nowhere"
    yield lambda u: u.source(versionAsOf="x").load(u.uri), WRONG, "versionAsOf is a whole number"
    yield lambda u: u.source(versionAsOf=9).load(u.uri), VERSION, "no version 9"
    yield lambda u: u.source(versionAsOf=0, timestampAsOf="2020-01-01").load(u.uri), WRONG, "both name a version"
    yield lambda u: u.source(timestampAsOf="2020-01-01").load(u.uri), VERSION, "before the first version"
    yield lambda u: u.source(nope=1).load(u.uri).count(), WRONG, "option 'nope' does not exist"
    yield lambda u: u.source(filter="nope = 1").load(u.uri).count(), COLUMN, "nope"
    yield lambda u: u.source(storageOptions="key=secret").load(u.uri), WRONG, "JSON object"
    yield lambda u: u.source().schema("id long, nope int").load(u.uri).count(), COLUMN, "nope"
    yield lambda u: u.source().schema("id string").load(u.uri).count(), WRONG, "bigint, not string"
    yield lambda u: u.source().schema(u.df.select().schema).load(u.uri).count(), WRONG, "has no column"
    yield lambda u: u.sink("errorifexists").save(u.uri), WRONG, "refdelta.spark.write has all"
    yield lambda u: u.sink("ignore").save(u.uri), WRONG, "append and overwrite"
    yield lambda u: u.sink().partitionBy("s").save(u.new), WRONG, "option('partitionBy', 'a,b')"
    yield lambda u: u.sink(partitionBy="nope").save(u.new), COLUMN, "cannot partition"
    yield lambda u: u.sink(targetFileSize="1MB").save(u.uri), WRONG, "targetFileSize is a whole number"
    yield lambda u: u.sink(readsTarget="newest").save(u.uri), WRONG, "readsTarget"
    yield lambda u: u.sink(versionAsOf=0).save(u.uri), WRONG, "option 'versionasof' does not exist"
    yield lambda u: u.sink(replaceWhere="id = 1").save(u.uri), WRONG, 'mode="overwrite"'
    yield lambda u: u.sink().save(), WRONG, "needs a path"
    yield lambda u: u.spark.sql(f"select * from refdelta.`{u.uri}`"), WRONG, "CREATE TEMPORARY VIEW"
    yield lambda u: u.spark.sql(f"insert into refdelta.`{u.uri}` select 1, 'a'"), WRONG, "CREATE TEMPORARY VIEW"
    yield lambda u: u.spark.newSession().read.format("refdelta").load(u.uri), WRONG, r"refdelta.spark.register(spark)"


def merged(user: Any, source: Any, condition: str = "t.id = s.id") -> Any:
    """MERGE by a shuffle."""
    by = SparkExecutor(user.spark, broadcast_bytes=0)
    return user.table.merge(source, condition, "s", "t", executor=by).when_matched_delete().execute()


def changes() -> Iterator[tuple[Callable[[Any], Any], type[Exception], str]]:
    yield lambda u: SparkExecutor(None), WRONG, "SparkSession, not NoneType"
    yield lambda u: SparkExecutor(u.spark, group_bytes=0), WRONG, "must be positive"
    yield lambda u: SparkExecutor(u.spark, group_bytes="1MB"), WRONG, "group_bytes must be an integer"
    yield lambda u: SparkExecutor(u.spark, broadcast_bytes="1MB"), WRONG, "broadcast_bytes must be an integer"
    yield lambda u: merged(u, u.spark.readStream.format("rate").load(), "t.id = s.value"), WRONG, "foreachBatch"
    yield lambda u: merged(u, u.spark.sql("select 1L id, interval 1 day i")), TYPE, "interval day of column i"
    yield lambda u: merged(u, u.spark.sql("select 1L id, 2 a, 3 A")), SCHEMA, "same name"
    yield lambda u: merged(u, u.df, "t.id < s.id"), WRONG, "no equality"
    yield lambda u: merged(u, u.spark.sql("select 'x' id, 's' s")), PREDICATE, "cannot be compared"
    yield lambda u: u.table.delete("id = 1", executor=u.spark), WRONG, "SparkExecutor(spark), not a SparkSession"
    yield lambda u: u.table.delete("id = 1", executor=SparkExecutor), WRONG, "not the class SparkExecutor"
    yield lambda u: u.table.delete(u.f.col("id") == 1, executor=SparkExecutor(u.spark)), PREDICATE, "not a Column"
    yield lambda u: u.table.delete("nope = 1", executor=SparkExecutor(u.spark)), COLUMN, "nope"
    yield (
        lambda u: u.table.update({"s": u.f.lit("x")}, executor=SparkExecutor(u.spark)),
        WRONG,
        "must be a string of SQL",
    )
    yield lambda u: u.table.update({"s": "cast(1 / (id - 1) as date)"}, executor=SparkExecutor(u.spark)), PREDICATE, ""
    yield (
        lambda u: u.table.merge(u.df, "id = id", executor=SparkExecutor(u.spark)).when_matched_delete().execute(),
        PREDICATE,
        "ambiguous",
    )
    yield (
        lambda u: (
            u.table.merge(u.df.union(u.df), "t.id = s.id", "s", "t", executor=SparkExecutor(u.spark))
            .when_matched_delete("s.s = 'a'")
            .when_matched_update_all()
            .execute()
        ),
        errors.ConstraintViolationError,
        "match one row",
    )


@pytest.mark.sample(test=6)
@pytest.mark.parametrize(("call", "error", "said"), [*readings(), *writings(), *sourcings(), *changes()])
def test_it_is_told_in_one_error(user: Any, call: Callable[[Any], Any], error: type[Exception], said: str) -> None:
    with pytest.raises(errors.DeltaError) as caught, typed_errors():
        call(user)
    assert type(caught.value) is error
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_errors_of_the_rows_themselves_stay_spark_s(user: Any) -> None:
    from pyspark.errors import ArithmeticException, PythonException, SparkRuntimeException

    uri = user.folder / "failed"
    with pytest.raises(ArithmeticException, match="DIVIDE_BY_ZERO"), typed_errors():
        write(user.spark.range(3).selectExpr("1 / (id - 1) as x"), uri)
    with pytest.raises(PythonException, match="invalid literal"), typed_errors():
        write(user.df.select(user.f.udf(lambda text: str(int(text)))("s").alias("s")), uri)
    with pytest.raises(NO_TABLE):
        DeltaTable(uri)
    assert list(uri.rglob("*.parquet")) == []
    with pytest.raises(SparkRuntimeException, match="of the source"):
        merged(user, user.spark.sql("SELECT id, raise_error('of the source') s FROM range(3)"))


def test_an_error_of_a_task_comes_first_in_the_text_of_spark_too(user: Any) -> None:
    """Without typed_errors() Spark raises its own exception: after its line comes our sentence, and no traceback."""
    from pyspark.errors import PythonException

    uri = str(user.folder / "checked")
    write_deltalake(uri, pa.table({"id": [1]}))
    DeltaTable(uri).alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(PythonException) as caught:
        user.spark.range(2).write.format("refdelta").mode("append").save(uri)
    first, second, *_ = str(caught.value).splitlines()
    assert first == "An exception was thrown from the Python worker:"
    assert "ConstraintViolationError: the CHECK constraint 'positive' (id > 0) does not hold" in second
    assert 'File "' not in str(caught.value).split("JVM stacktrace")[0]
    with pytest.raises(PythonException, match='File "'):  # of the user's own functions they stay
        user.df.select(user.f.udf(lambda text: str(int(text)))("s")).collect()


def test_a_session_without_a_limit_of_arrow_s_batches_reads(user: Any) -> None:
    """Zero is documented as no limit; PySpark itself then makes no DataFrame of Arrow's tables."""
    uri = str(user.folder / "unlimited")
    properties = {"delta.enableDeletionVectors": "true"}
    write_deltalake(uri, pa.table({"id": [1, 2, 3], "p": ["a", "b", None]}), partition_by="p", configuration=properties)
    write_deltalake(uri, pa.table({"id": [4, 5], "p": ["a", "a"]}), mode="append")
    DeltaTable(uri).delete("id = 4")
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = user.spark.conf.get(name)
    user.spark.conf.set(name, "0")
    try:
        assert sorted(read(user.spark, uri).collect()) == [(1, "a"), (2, "b"), (3, None), (5, "a")]
        described = read(user.spark, uri, metadata=True).select("id", "_metadata.row_index")
        assert sorted(described.collect()) == [(1, 0), (2, 0), (3, 0), (5, 1)]
        with pytest.raises(WRONG, match="maxRecordsPerBatch=0 Spark reads no source"), typed_errors():
            user.source().load(uri).collect()
    finally:
        user.spark.conf.set(name, before)


WITHOUT = """
    import importlib.util
    found = importlib.util.find_spec
    importlib.util.find_spec = lambda name, *more: None if name.startswith("pyspark") else found(name, *more)
    import refdelta.spark
    for call in (
        lambda: refdelta.spark.read(None, "t"),
        lambda: refdelta.spark.register(None),
        lambda: refdelta.spark.SparkExecutor(None),
    ):
        try:
            call()
        except refdelta.spark.SparkUnavailableError as error:
            print(error)
"""


def printed(program: str, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_without_pyspark_every_call_says_what_to_install() -> None:
    assert printed(WITHOUT) == ["this needs the Python package pyspark: pip install 'refdelta[spark]'"] * 3


def test_a_session_that_has_ended_is_told(user: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user.spark.sparkContext, "_jsc", None)  # all that PySpark's own stop() leaves of it
    for call in (
        lambda: read(user.spark, user.uri),
        lambda: write(user.df, user.uri, mode="append"),
        lambda: register(user.spark),
        lambda: SparkExecutor(user.spark),
    ):
        with pytest.raises(SparkUnavailableError, match="session has ended"):
            call()


def test_a_collation_is_left_behind(user: Any) -> None:
    uri = user.folder / "collated"
    write(user.spark.sql("SELECT 'A' COLLATE utf8_lcase AS s"), uri)
    found = read(user.spark, uri)
    assert found.schema.simpleString() == "struct<s:string>"
    assert (found.where("s = 'a'").count(), found.where("s = 'A'").count()) == (0, 1)


ODD = """
    SELECT id, if(id = 0, null, named_struct('a', if(id = 1, null, id), 'b', array(null, 1.5D))) s,
      map('k', CAST(null AS int)) m, X'00ff' b, CAST('nan' AS double) nan,
      CAST('-0.0' AS double) zero, CAST(0.1 AS decimal(38, 38)) d, null v,
      DATE'0001-01-01' first, TIMESTAMP'9999-12-31 23:59:59.999999' last, TIMESTAMP'2024-03-10 02:30:00' gap,
      TIMESTAMP_NTZ'2024-03-10 02:30:00' plain, TIMESTAMP'2024-11-03 01:30:00' twice
    FROM range(3)
"""
SHOWN = (
    "id", "CAST(s AS string)", "CAST(m AS string)", "hex(b)", "CAST(nan AS string)", "CAST(zero AS string)", "d", "v",
    "CAST(first AS string)", *(f"CAST({name} AS string)" for name in ("last", "gap", "plain", "twice")),
    *(f"unix_micros({name})" for name in ("last", "gap", "twice")),
)  # fmt: skip


def shown(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.selectExpr(*SHOWN).collect())


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata"])
def test_odd_values_and_other_time_zones_give_the_right_rows(user: Any, zone: str) -> None:
    uris = [str(user.folder / f"{zone.replace('/', '-')}-{number}") for number in range(2)]
    before = user.spark.conf.get("spark.sql.session.timeZone")
    user.spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        odd = user.spark.sql(ODD)
        expected = shown(odd)
        write(odd, uris[0], partition_by="twice")
        odd.write.format("refdelta").mode("append").option("partitionBy", "twice").save(uris[1])
        for uri in uris:
            assert shown(read(user.spark, uri)) == shown(user.source().load(uri)) == expected
        there = read(user.spark, uris[0]).where("twice = TIMESTAMP'2024-11-03 01:30:00'")
        assert there.count() == 3
    finally:
        user.spark.conf.set("spark.sql.session.timeZone", before)


SETTINGS = {
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.parquet.enableVectorizedReader": "false",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}


@pytest.mark.tier("nightly")
def test_whatever_the_session_has_set_the_rows_are_right(user: Any) -> None:
    uri = str(user.folder / "set")
    before = {name: user.spark.conf.get(name) for name in SETTINGS}
    for name, value in SETTINGS.items():
        user.spark.conf.set(name, value)
    try:
        odd = user.spark.sql(ODD)
        expected = shown(odd)
        write(odd, uri, configuration={"delta.enableDeletionVectors": "true"})
        table = DeltaTable(uri)
        table.delete("id = 1", executor=SparkExecutor(user.spark))
        assert shown(read(user.spark, uri)) == shown(user.source().load(uri)) == [expected[0], expected[2]]
        for size in (2**20, 0):
            by = SparkExecutor(user.spark, broadcast_bytes=size)
            (
                table.merge(odd.where("id > 0"), "t.id = s.id", "s", "t", executor=by)
                .when_matched_update_all()
                .when_not_matched_insert_all()
                .execute()
            )
            assert shown(read(user.spark, uri)) == expected
    finally:
        for name, value in before.items():
            user.spark.conf.set(name, value)


def test_functions_of_the_user_s_own_and_letters_of_either_case_give_the_right_rows(user: Any) -> None:
    uri = str(user.folder / "own")
    loud = user.f.udf(lambda text: None if text is None else text.upper(), "string")
    write(user.df.withColumn("s", loud("s")), uri)
    assert sorted(row.s or "" for row in read(user.spark, uri).where(loud("s") != "B").collect()) == ["A"]
    user.spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        write(user.spark.sql("SELECT 4L ID, 'D' S"), uri, mode="append")
        assert read(user.spark, uri, columns=["ID"], filter="ID > 3").collect() == [(4,)]
        with pytest.raises(SCHEMA):
            write(user.spark.sql("SELECT 1 a, 2 A"), user.new)
    finally:
        user.spark.conf.set("spark.sql.caseSensitive", "false")
    assert read(user.spark, uri).columns == ["id", "s"]


def test_each_thread_makes_the_format_known_to_itself(user: SimpleNamespace, tmp_path: Path, spark: Any) -> None:
    """Spark looks it up in the session that is active in the thread; an interrupt of Python takes another one."""
    write_deltalake(tmp_path, pa.table({"id": [1]}))
    said: list[str] = []

    def append(register_first: bool) -> None:
        try:
            if register_first:
                register(spark)
            with typed_errors():
                spark.range(1).write.format("refdelta").mode("append").save(str(tmp_path))
        except errors.DeltaError as error:
            said.append(str(error))

    for first in (False, True):
        thread = threading.Thread(target=append, args=(first,))
        thread.start()
        thread.join()
    assert DeltaTable(tmp_path).count() == 2
    assert [one for one in said if "refdelta.spark.register(spark)" not in one] == []
    assert len(said) == 1
