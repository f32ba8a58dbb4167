"""refdelta on Spark over tables in S3 and in Azure, where Spark's own reader has no way: and no secret is shown."""

from __future__ import annotations

import contextlib
import io
import json
import re
import traceback
from base64 import b64decode
from typing import TYPE_CHECKING, Any

import pytest

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.engine.log.location import open_location
from refdelta.spark import SparkExecutor, read, typed_errors, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from servers.running import Place

pytestmark = pytest.mark.spark

VECTORS = {"delta.enableDeletionVectors": "true"}
NOW = {"retention_hours": 0, "enforce_retention_duration": False, "dry_run": False}


@pytest.fixture(params=["s3", "azure"])
def place(request: pytest.FixtureRequest) -> Place:
    """A fresh place for a table, on each of the two servers."""
    return request.getfixturevalue(f"{request.param}_server").place()  # type: ignore[no-any-return]


def frame(session: Any, *ids: int, s: str = "x") -> Any:
    return session.createDataFrame([(i, i % 3, f"{s}{i}") for i in ids], "id long, k long, s string")


def table(place: Place, version: Any = None) -> DeltaTable:
    return DeltaTable(place.uri, version=version, storage_options=place.options)


def rows(found: Any) -> list[tuple[Any, ...]]:
    """The rows of a DataFrame or of a table, in order."""
    if isinstance(found, DeltaTable):
        return sorted(tuple(row.values()) for row in found.to_pyarrow_table().to_pylist())
    return sorted(tuple(row) for row in found.collect())


def secrets(place: Place) -> set[str]:
    """The secrets that must not be shown: keys, and strings that contain them."""
    text = place.options.get("connection_string")
    return {place.options["secret"]} if text is None else {re.search("AccountKey=([^;]*)", text)[1]}  # type: ignore[index]


def source(session: Any, place: Place, **options: Any) -> Any:
    return session.read.format("refdelta").options(storageOptions=json.dumps(place.options), **options).load(place.uri)


@pytest.mark.sample(test=1)
def test_tables_are_written_and_read(session: Any, place: Place) -> None:
    options = {"storage_options": place.options}
    made = write(frame(session, *range(30)), place.uri, partition_by="k", configuration=VECTORS, **options)
    assert (made.version, made["num_added_rows"]) == (0, 30)
    write(frame(session, 100, 101), place.uri, mode="append", **options)
    table(place).delete("id < 5")
    expected = [(i, i % 3, f"x{i}") for i in (*range(5, 30), 100, 101)]
    assert rows(read(session, place.uri, **options)) == rows(table(place)) == expected
    assert rows(read(session, place.uri, columns=["s"], filter="k = 1 and id > 25", **options)) == [("x100",), ("x28",)]
    assert read(session, place.uri, version=0, **options).count() == 30
    write(frame(session, 1, s="new"), place.uri, mode="overwrite", predicate="k = 1", **options)
    assert rows(table(place)) == sorted([(1, 1, "new1"), *(row for row in expected if row[1] != 1)])
    with pytest.raises(errors.TableAlreadyExistsError):
        write(frame(session, 1), place.uri, **options)


@pytest.mark.sample(test=1)
def test_statements_run_on_workers_as_they_run_here(session: Any, place: Place, tmp_path: Path) -> None:
    here = str(tmp_path / "t")
    data = frame(session, *range(40)).toArrow()
    for uri, options in ((here, None), (place.uri, place.options)):
        for start in (0, 20):
            part = data.slice(start, 20)
            write_deltalake(uri, part, mode="append", configuration=VECTORS, storage_options=options)
    statements: list[Callable[[DeltaTable, Any, Any], Any]] = [
        lambda one, by, _: one.delete("id % 10 = 3", executor=by),
        lambda one, by, _: one.update({"s": "upper(s)"}, predicate="id between 15 and 25", executor=by),
        lambda one, by, news: (
            one.merge(news, "t.id = s.id", source_alias="s", target_alias="t", executor=by)
            .when_matched_update({"s": "concat(t.s, s.s)"}, predicate="s.id <> 7")
            .when_matched_delete()
            .when_not_matched_insert_all()
            .execute()
        ),
        lambda one, by, _: one.optimize.compact(executor=by),
        lambda one, by, _: one.vacuum(executor=by, **NOW),
    ]
    news = frame(session, 5, 7, 39, 50, s="n")
    for statement in statements:
        statement(DeltaTable(here), None, news.toArrow())
        statement(table(place), SparkExecutor(session), news)
        assert rows(table(place)) == rows(DeltaTable(here))
    assert [one["operation"] for one in table(place).history()] == [
        one["operation"] for one in DeltaTable(here).history()
    ]
    kept = {item.key for item in open_location(place.uri, place.options).list() if item.key.endswith(".parquet")}
    assert len(kept) == len(table(place).file_uris())


@pytest.mark.sample(test=1)
def test_the_data_source_and_views(session: Any, place: Place) -> None:
    sink = frame(session, *range(6)).write.format("refdelta").option("storageOptions", json.dumps(place.options))
    sink.mode("append").option("partitionBy", "k").save(place.uri)
    sink.mode("append").save(place.uri)
    assert rows(source(session, place)) == rows(table(place))
    assert source(session, place, versionAsOf=0, filter="k = 2").count() == 2
    options = f"path '{place.uri}', storageOptions '{json.dumps(place.options)}'"
    session.sql(f"CREATE OR REPLACE TEMPORARY VIEW stored USING refdelta OPTIONS ({options})")
    assert session.sql("SELECT k, count(*) FROM stored GROUP BY k ORDER BY k").collect() == [(0, 4), (1, 4), (2, 4)]
    session.sql("INSERT INTO stored SELECT 9L, 0L, 'nine'")
    assert table(place).count() == 13


def executed(session: Any) -> list[Any]:
    """The plans of the last queries that Spark keeps."""
    listed = session._jsparkSession.sharedState().statusStore().executionsList()
    return [listed.apply(number) for number in range(listed.size())]


@pytest.mark.sample(test=1)
def test_no_plan_shows_a_secret(session: Any, place: Place) -> None:
    before = max((run.executionId() for run in executed(session)), default=-1)
    write(frame(session, 1, 2), place.uri, storage_options=place.options, configuration=VECTORS)
    table(place).delete("id = 1")
    sink = frame(session, 3).write.format("refdelta").option("storageOptions", json.dumps(place.options))
    sink.mode("append").save(place.uri)
    shown = []
    for found in (read(session, place.uri, storage_options=place.options), source(session, place)):
        assert found.count() == 2
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            found.explain(extended=True)
            found.explain(mode="formatted")
        shown += [printed.getvalue(), repr(found), found._jdf.queryExecution().toString()]
    descriptions = [run.physicalPlanDescription() for run in executed(session) if run.executionId() > before]
    assert descriptions
    shown += descriptions
    assert not any(secret in text for secret in secrets(place) for text in shown)


def told(call: Callable[[], Any]) -> tuple[errors.DeltaError, str]:
    """The error of a call as it is raised within ``typed_errors``, and all that there is to see of it without."""
    with pytest.raises(Exception) as raw:  # noqa: PT011 - Spark's own, of any class
        call()
    text = "".join(traceback.format_exception(raw.value))
    text += "".join(str(b64decode(mark)) for mark in re.findall(r"\[refdelta:([A-Za-z0-9+/=]+)\]", text))
    with pytest.raises(errors.DeltaError) as typed, typed_errors():
        raise raw.value
    return typed.value, text + repr(vars(typed.value)) + str(typed.value)


@pytest.mark.tier("nightly")
def test_errors_are_those_of_the_engine_and_show_no_secret(session: Any, place: Place) -> None:
    write(frame(session, 1, 2), place.uri, storage_options=place.options)
    whole = read(session, place.uri, storage_options=place.options)
    by_source = source(session, place)
    store = open_location(place.uri, place.options)
    store.delete([item.key for item in store.list() if item.key.endswith(".parquet")])
    (secret,) = secrets(place)
    wrong = secret[:-8] + "00000000" if "connection_string" not in place.options else "AAAA" + secret[4:]
    options = {name: value.replace(secret, wrong) for name, value in place.options.items()}
    denied = json.dumps({**options, "retry_timeout": "1"})
    gone, lost, nowhere = errors.DataFileNotFoundError, errors.StoreError, errors.TableNotFoundError
    sink = frame(session, 1).write.format("refdelta").mode("append")
    calls: list[tuple[type[Exception], Callable[[], Any]]] = [
        (gone, whole.collect),
        (gone, by_source.collect),
        (gone, lambda: table(place).delete("id = 1", executor=SparkExecutor(session))),
        (lost, lambda: read(session, place.uri, storage_options=json.loads(denied))),
        (lost, lambda: write(frame(session, 1), place.uri, mode="append", storage_options=json.loads(denied))),
        (lost, lambda: session.read.format("refdelta").option("storageOptions", denied).load(place.uri)),
        (lost, lambda: sink.option("storageOptions", denied).save(place.uri)),
        (nowhere, lambda: read(session, f"{place.uri}-none", storage_options=place.options)),
    ]
    for kind, call in calls:
        error, text = told(call)
        assert type(error) is kind
        assert not any(one in text for one in (secret, wrong))


def test_conflicts_are_settled_on_the_driver(session: Any, place: Place) -> None:
    write(frame(session, *range(10)).coalesce(1), place.uri, storage_options=place.options, configuration=VECTORS)
    by = SparkExecutor(session)
    first, second, third = (table(place).begin(executor=by) for _ in range(3))
    first.delete("id < 3")
    second.update({"s": "'y'"}, predicate="id > 7")
    third.delete("id = 1 or id = 9")
    assert first.commit().version == 1
    assert second.commit().rebased_over == (1,)
    with pytest.raises(errors.ConcurrentDeleteReadException) as caught:
        third.commit()
    assert caught.value.conflict.rows == 1
    assert rows(table(place)) == [(i, i % 3, f"x{i}" if i < 8 else "y") for i in range(3, 10)]


@pytest.mark.tier("nightly")
def test_a_stream_goes_from_table_to_table(session: Any, place: Place, tmp_path: Path) -> None:
    write(frame(session, *range(12)).repartition(3), place.uri, storage_options=place.options, configuration=VECTORS)
    table(place).delete("id = 5")
    target = type(place)(f"{place.uri}-copy", place.options)
    given = {"storageOptions": json.dumps(place.options)}

    def run() -> None:
        stream = session.readStream.format("refdelta").options(maxFilesPerTrigger=2, **given).load(place.uri)
        sink = stream.writeStream.format("refdelta").options(partitionBy="k", **given)
        query = sink.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start(target.uri)
        with typed_errors():
            query.awaitTermination()

    run()
    write(frame(session, 20), place.uri, mode="append", storage_options=place.options)
    run()
    assert rows(table(target)) == rows(table(place))
    assert [one["operation"] for one in table(target).history()] == ["STREAMING UPDATE"] * 3
    kept = (path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file())
    assert not any(secret in text for text in kept for secret in secrets(place))
