"""`refdelta.spark.write`: workers write, the driver commits, and the table is what the local engine would have made."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.spark import job, leftovers, read, write, writing
from spark.files import committed, data_files, rows_of

pytestmark = pytest.mark.spark


def numbers(spark: Any, *rows: tuple[int, str | None]) -> Any:
    return spark.createDataFrame(list(rows), "id long, kind string").repartition(2)


def test_each_mode_does_what_the_local_engine_does(spark: Any, tmp_path: Path) -> None:
    data = {"id": [1, 2, 3], "kind": ["a", "b", None]}
    steps: list[tuple[dict[str, Any], dict[str, list[Any]]]] = [
        ({"partition_by": "kind"}, data),
        ({"mode": "append"}, {"id": [4, 5], "kind": ["b", "c"]}),
        ({"mode": "ignore"}, {"id": [6], "kind": ["c"]}),
        ({"mode": "overwrite", "predicate": "kind = 'b'"}, {"id": [7], "kind": ["b"]}),
        ({"mode": "overwrite", "partition_overwrite": "dynamic"}, {"id": [8], "kind": [None]}),
        ({"mode": "append", "schema_mode": "merge"}, {"id": [9], "kind": ["a"], "more": [Decimal("1.50")]}),
        ({"mode": "overwrite"}, {"id": [10, 11], "kind": ["z", None]}),
        ({"mode": "overwrite", "schema_mode": "overwrite", "partition_by": []}, {"only": [True, None]}),
    ]
    here, there = tmp_path / "local", tmp_path / "spark"
    for options, columns in steps:
        table = pa.table(columns)
        mine = write_deltalake(here, table, **options)
        theirs = write(spark.createDataFrame(table), there, **options)
        assert theirs.version == mine.version
        assert rows_of(there) == rows_of(here)
        assert DeltaTable(there).schema() == DeltaTable(here).schema()
        last = [DeltaTable(uri).history(1)[0] for uri in (here, there)]
        assert last[0]["operationParameters"] == last[1]["operationParameters"]
        assert theirs.get("num_added_rows") == mine.get("num_added_rows")
    with pytest.raises(errors.TableAlreadyExistsError):
        write(numbers(spark, (1, "a")), there)


def test_values_of_all_types_arrive(spark: Any, tmp_path: Path) -> None:
    moment = dt.datetime(2021, 3, 28, 2, 30, tzinfo=dt.UTC)
    row = {
        "flag": True, "tiny": 1, "real": 1.5, "text": "ä\n", "raw": b"\x00\xff", "day": dt.date(1500, 1, 1),
        "at": moment, "wall": moment.replace(tzinfo=None), "money": Decimal("-1.10"), "list": [1, None],
        "map": {"k": {"a": 1, "b": None}}, "nested": {"a": None, "b": "x"},
    }  # fmt: skip
    schema = (
        "flag boolean, tiny tinyint, real float, text string, raw binary, day date, at timestamp, wall timestamp_ntz, "
        "money decimal(10,2), list array<int>, map map<string,struct<a:int,b:string>>, nested struct<a:int,b:string>"
    )
    frame = spark.createDataFrame([tuple(row.values()), tuple(None for _ in row)], schema)
    write(frame, tmp_path / "t")
    found = DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist()
    found = [{**item, "map": dict(item["map"]) if item["map"] is not None else None} for item in found]
    assert sorted(found, key=repr) == sorted([row, dict.fromkeys(row)], key=repr)


def test_what_may_be_null_in_the_dataframe_does_not_make_the_table_strict(spark: Any, tmp_path: Path) -> None:
    write(spark.range(3), tmp_path / "t")
    write(spark.sql("select cast(null as bigint) as id"), tmp_path / "t", mode="append")
    assert DeltaTable(tmp_path / "t").count() == 4


def test_rows_that_do_not_fit_are_refused_before_a_job_runs(spark: Any, tmp_path: Path) -> None:
    write(numbers(spark, (1, "a")), tmp_path / "t")
    with pytest.raises(errors.SchemaMismatchError, match="other"):
        write(spark.sql("select 1L as id, raise_error('ran') as other"), tmp_path / "t", mode="append")
    with pytest.raises(errors.UnsupportedTypeError):
        write(spark.sql("select interval 1 day as a"), tmp_path / "u")
    with pytest.raises(errors.InvalidArgumentError, match="memory"):
        write(numbers(spark, (1, "a")), "memory://here")
    with pytest.raises(errors.InvalidArgumentError, match="DataFrame"):
        write([1], tmp_path / "u")
    with pytest.raises(errors.InvalidArgumentError, match="foreachBatch"):
        write(spark.readStream.format("rate").load(), tmp_path / "u")


def test_an_error_of_a_worker_is_typed_and_nothing_stays(spark: Any, tmp_path: Path) -> None:
    uri = tmp_path / "t"
    write(numbers(spark, (1, "a"), (2, "b")), uri, partition_by="kind")
    before = data_files(uri)
    with pytest.raises(errors.ConstraintViolationError, match="outside of the predicate"):
        write(numbers(spark, (3, "b"), (4, "a")), uri, mode="overwrite", predicate="kind = 'b'")
    assert data_files(uri) == before
    half = spark.range(0, 2000, 1, 2).selectExpr("if(id = 1999, raise_error('broken'), id) as id", "'a' as kind")
    with pytest.raises(Exception, match="broken"):
        write(half, uri, mode="append")
    assert data_files(uri) == before
    assert DeltaTable(uri).version() == 0


def test_a_conflict_is_raised_as_what_it_is_and_nothing_stays(spark: Any, tmp_path: Path) -> None:
    uri = tmp_path / "t"
    write_deltalake(uri, pa.table({"id": [1, 2], "kind": ["a", "b"]}))
    frame = read(spark, uri)
    write_deltalake(uri, pa.table({"id": [3], "kind": ["c"]}), mode="append")
    before = data_files(uri)
    # The rows are those of version 0: to replace the table by them would lose what was committed since.
    with pytest.raises(errors.ConcurrentAppendException) as caught:
        write(frame.where("id > 1"), uri, mode="overwrite", isolation="Serializable")
    assert caught.value.conflict is not None
    assert data_files(uri) == before
    write(read(spark, uri).where("id > 1"), uri, mode="overwrite")
    assert rows_of(uri) == [(2, "b"), (3, "c")]


def test_a_write_that_reads_the_table_is_no_blind_append(spark: Any, tmp_path: Path) -> None:
    uri = tmp_path / "t"
    write(numbers(spark, (1, "a")), uri)
    write(numbers(spark, (2, "a")), uri, mode="append")
    frame = read(spark, uri)
    frame.createOrReplaceTempView("read_for_write")
    write(spark.sql("select id + 10 as id, kind from read_for_write where id in (select id from read_for_write)"),
          uri, mode="append")  # fmt: skip
    write(numbers(spark, (3, "a")), uri, mode="append", reads_target=2)
    blind = [commit.get("isBlindAppend") for commit in DeltaTable(uri).history()]
    assert blind == [False, False, True, True]
    stale = read(spark, uri)
    DeltaTable(uri).delete("id = 1")
    with pytest.raises(errors.ConcurrentModificationError):
        write(stale, uri, mode="append")
    # A version that was named stays what it is.
    write(read(spark, uri, version=0), uri, mode="overwrite")
    assert rows_of(uri) == [(1, "a")]


def test_a_version_of_an_application_is_written_once(spark: Any, tmp_path: Path) -> None:
    uri = tmp_path / "t"
    frame = numbers(spark, (1, "a"))
    assert write(frame, uri, mode="append", app_id="job", app_version=1).version == 0
    poisoned = spark.sql("select raise_error('ran') as kind, 1L as id")
    assert write(poisoned, uri, mode="append", app_id="job", app_version=1).version is None
    assert rows_of(uri) == [(1, "a")]


def test_files_of_one_job_share_a_token_and_leftovers_are_found_by_it(spark: Any, tmp_path: Path) -> None:
    uri = tmp_path / "t"
    write(numbers(spark, (1, "a"), (2, "b"), (3, "b")), uri, partition_by="kind")
    names = data_files(uri)
    tokens = {name[11:47] for name in names}
    assert len(names) >= 2
    assert len(tokens) == 1
    write(numbers(spark, (4, "c")), uri, mode="append")
    leftovers.remove_leftovers(DeltaTable(uri).store, tokens.pop())
    assert len(data_files(uri)) == 1
    assert not names & data_files(uri)


def test_an_attempt_that_ran_again_leaves_nothing_referenced(spark: Any, tmp_path: Path) -> None:
    uri, flag = tmp_path / "t", tmp_path / "flag"
    frame, mark = numbers(spark, (1, "a"), (2, "b")), str(flag)

    class Twice(job.FrameRows):
        """Runs its job twice, as Spark does with tasks whose result was lost, and takes the second."""

        def write(self, writer: Any) -> Any:
            super().write(writer)
            Path(mark).touch()
            return super().write(writer)

    request = writing.WriteRequest(mode="append")
    write_deltalake(uri, pa.table({"id": [0], "kind": ["x"]}))
    before = data_files(uri)
    with DeltaTable(uri).begin() as txn:
        writing.write_and_commit(txn, Twice(frame), request)
    assert flag.exists()
    assert rows_of(uri) == [(0, "x"), (1, "a"), (2, "b")]
    assert len(data_files(uri) - before) == 2 * len(committed(uri) - before)


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_what_a_write_replaces_is_found_and_rewritten_by_the_workers(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vectors: str
) -> None:
    from refdelta.spark import SparkExecutor

    uri, real = str(tmp_path / "t"), SparkExecutor.map
    calls: list[int] = []

    def noted(self: Any, function: Any, tasks: Any, **options: Any) -> Any:
        tasks = list(tasks)
        calls.append(len(tasks))
        return real(self, function, tasks, **options)

    monkeypatch.setattr(SparkExecutor, "map", noted)
    write(numbers(spark, (1, "a"), (2, "b")), uri, configuration={"delta.enableDeletionVectors": vectors})
    write(numbers(spark, (3, "a"), (4, "b")), uri, mode="append")
    write(numbers(spark, (4, "c")), uri, mode="overwrite", predicate="id = 4 or kind = 'a' and id > 1")
    assert sum(calls) > 0
    rows = DeltaTable(uri).to_pyarrow_table().sort_by("id")
    assert rows.to_pydict() == {"id": [1, 2, 4], "kind": ["a", "b", "c"]}


def test_variants_go_there_and_back(spark, fresh_path):
    path = fresh_path()
    frame = spark.sql(
        "SELECT id, parse_json(j) v FROM VALUES (1L, '{\"a\": [1, null]}'), (2L, '\"text\"'), (3L, NULL) t(id, j)"
    )
    write(frame, path)
    read_here = DeltaTable(str(path)).to_pyarrow_table().sort_by("id").column("v").to_pylist()
    assert read_here == [{"a": [1, None]}, "text", None]
    back = read(spark, str(path)).selectExpr("id", "to_json(v) j").orderBy("id").collect()
    assert [row.j for row in back] == ['{"a":[1,null]}', '"text"', None]
    theirs = spark.read.format("delta").load(str(path)).selectExpr("id", "to_json(v) j").orderBy("id").collect()
    assert theirs == back
