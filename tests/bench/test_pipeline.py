"""`make bench WHAT=pipeline`: its raw files, who judges it, what it tells, and a run of all of it at a small scale."""

import argparse
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import duckdb
import pytest
from pipeline import judge, program, raw, stages
from pipeline.engines import Refdelta
from pipeline.report import History, Ran, Report

import refdelta
from waiting import until

ROOT = Path(__file__).parents[2]
REFRESHES = 2
SMALL = ("--scale", "0.002", "--refreshes", "1", "--memory", "1g")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return raw.generate(tmp_path_factory.mktemp("raw"), 0.005, REFRESHES)


@pytest.fixture(scope="module")
def silver(files, tmp_path_factory):
    """Silver as it should be, of tables that refdelta wrote."""
    tables = Refdelta(str(tmp_path_factory.mktemp("tables")))
    with duckdb.connect() as db:
        for name, keys in raw.KEYS.items():
            rows = db.sql(judge.silver_query(files, name, keys, REFRESHES))
            refdelta.write_deltalake(tables.uri(f"silver/{name}"), rows)
    return tables


def ask(query, *names):
    return duckdb.sql(query.format(*([str(file) for file in one] for one in names))).fetchall()


@pytest.mark.tier("nightly")
def test_refreshes_bring_new_orders_change_others_and_delete_a_third_kind(files):
    base, changes, deletes = (files.loads["orders"], files.refreshes["orders"], files.refreshes["deletes"])
    kinds = ask(
        "SELECT c.o_orderkey IN (SELECT o_orderkey FROM read_parquet({0})), count(*) "
        "FROM read_parquet({1}) c GROUP BY 1 ORDER BY 1",
        base,
        changes,
    )
    assert [known for known, _ in kinds] == [False, True]
    gone = ask("SELECT o_orderkey FROM read_parquet({0})", deletes)
    assert gone
    assert not ask(
        "SELECT o_orderkey FROM read_parquet({0}) INTERSECT SELECT o_orderkey FROM read_parquet({1})", changes, deletes
    )
    assert set(gone) < set(ask("SELECT o_orderkey FROM read_parquet({0})", base))


@pytest.mark.tier("nightly")
def test_every_new_line_item_has_its_order(files):
    orders, lines = ([*files.loads[name], *files.refreshes[name]] for name in ("orders", "lineitem"))
    assert not ask(
        "SELECT l_orderkey FROM read_parquet({0}) EXCEPT SELECT o_orderkey FROM read_parquet({1})", lines, orders
    )


@pytest.mark.tier("nightly")
def test_changes_come_again_and_late(files):
    arrived = [file.stem for file in files.refreshes["lineitem"]]
    assert arrived == ["refresh-1", "refresh-2", "refresh-1-again", "refresh-2-again"]
    times = [file.stat().st_mtime for file in files.refreshes["lineitem"]]
    assert times == sorted(set(times))


@pytest.mark.tier("nightly")
def test_corrections_of_prices_change_rows_that_no_refresh_does(files):
    touched = f"read_parquet({[str(file) for file in (*files.refreshes['lineitem'], *files.loads['lineitem'])]})"
    for values, condition in stages.corrections(REFRESHES):
        changed = ask(f"SELECT count(*) FROM {touched} WHERE {condition}")[0][0]
        met = ask(f"SELECT count(*) FROM {touched} WHERE {condition} AND sequence > 0")[0][0]
        assert changed
        assert bool(met) == (values.keys() == {"note"})  # which is no column of the refreshes


@pytest.mark.tier("nightly")
def test_right_rows_are_right(files, silver):
    found = list(judge.with_duckdb(silver, files, REFRESHES))
    assert [(one.table, one.alike) for one in found] == [("silver/orders", True), ("silver/lineitem", True)]
    assert all(one.rows for one in found)


@pytest.mark.sample(test=1)
@pytest.mark.tier("test")
@pytest.mark.parametrize(
    ("change", "missing", "surplus"),
    [
        (lambda table: table.delete("o_orderkey = 39"), 1, 0),
        (lambda table: refdelta.write_deltalake(table, table.scan(predicate="o_orderkey = 39"), mode="append"), 0, 1),
        (lambda table: table.update({"o_comment": "'x'"}, predicate="o_orderkey = 39"), 1, 1),
    ],
    ids=["lost", "twice", "changed"],
)
def test_wrong_rows_are_found(change, missing, surplus, files, silver):
    table = silver.table("silver/orders")
    before = table.version()
    try:
        change(table)
        orders = next(iter(judge.with_duckdb(silver, files, REFRESHES)))
        assert (orders.missing, orders.surplus, orders.alike) == (missing, surplus, False)
        assert orders.examples
    finally:
        table.restore(before)


def report(files, *, surplus=0):
    done = stages.Done(seconds=dict.fromkeys(stages.STAGES, 1.5), statements=Counter({"UPDATE": 3}))
    done.conflicts["UPDATE", "ConcurrentAppendException"] = 2
    ran = Ran(done, dict.fromkeys(stages.TABLES, History(rows=10, commits=4, rebased=1)))
    compared = [judge.Compared("silver/orders", "DuckDB", 10, 0, surplus, ("only here: (1,)",) if surplus else ())]
    return Report(0.005, REFRESHES, files, "on the local disk", {"refdelta": ran, "delta-spark": ran}, compared)


@pytest.mark.tier("test")
@pytest.mark.parametrize(("surplus", "status"), [(0, 0), (1, 1)])
def test_wrong_rows_make_the_exit_status_1(surplus, status, files, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(program, "run", lambda folder, arguments: report(files, surplus=surplus))
    assert program.work(tmp_path, argparse.Namespace(json=tmp_path / "report.json")) == status
    shown = capsys.readouterr().out
    assert "2 ConcurrentAppendException" in shown
    assert ("NOT DuckDB: 0 missing, 1 too many" in shown) == bool(surplus)
    assert ("only here: (1,)" in shown) == bool(surplus)
    assert json.loads((tmp_path / "report.json").read_text())["compared"][0]["surplus"] == surplus


@pytest.mark.parametrize("given", [["--refreshes", "0"], ["--scale", "0"], ["--scale", "x"]])
def test_arguments_that_make_no_sense_are_refused(given, capsys):
    with pytest.raises(SystemExit) as ended:
        program.main(given)
    assert ended.value.code == 2
    assert capsys.readouterr().err


def command(*arguments):
    path = os.pathsep.join([str(ROOT / "bench"), os.environ.get("PYTHONPATH", "")])
    return {
        "args": [sys.executable, "-m", "pipeline", *arguments],
        "env": {**os.environ, "PYTHONPATH": path},
        "text": True,
    }


@pytest.mark.tier("nightly")
@pytest.mark.spark(apart=True)
@pytest.mark.timeout(1200)  # two Sparks, one after the other, beside what else runs
def test_a_small_run_has_the_same_rows_as_delta_spark(tmp_path):
    told = tmp_path / "report.json"
    arguments = [*SMALL, "--scratch", str(tmp_path / "scratch"), "--json", str(told)]
    for _ in range(3):
        done = subprocess.run(**command(*arguments), capture_output=True, check=False)
        # Spark 4.2 now and then stops its context by itself, under delta-spark's statements: that alone is tried again.
        if 'return value of "org.apache.spark.SparkContext.dagScheduler()" is null' not in done.stderr:
            break
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""  # the progress is for terminals
    found = json.loads(told.read_text())
    assert [one["table"] for one in found["compared"]] == ["silver/orders", "silver/lineitem", *stages.TABLES]
    assert all(one["alike"] for one in found["compared"])
    ours, theirs = found["engines"]["refdelta"], found["engines"]["delta-spark"]
    assert ours["statements"] == theirs["statements"]
    assert [table["rows"] for table in ours["tables"].values()] == [
        table["rows"] for table in theirs["tables"].values()
    ]
    assert all(table["rows"] for table in ours["tables"].values())


@pytest.mark.tier("nightly")
@pytest.mark.spark(apart=True)
@pytest.mark.usefixtures("s3_server")  # skips where there is none; the program starts its own
def test_a_small_run_on_s3_gives_the_right_rows(tmp_path):
    arguments = [*SMALL, "--s3", "--alone", "--scratch", str(tmp_path)]
    done = subprocess.run(**command(*arguments), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "in s3://" in done.stdout
    assert done.stdout.count("DuckDB") == len(raw.KEYS)
    assert not list(tmp_path.iterdir())


@pytest.mark.tier("nightly")
@pytest.mark.spark(apart=True)
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_an_end_by_the_user_leaves_nothing(sign, tmp_path):
    arguments = [*SMALL, "--alone", "--scratch", str(tmp_path)]
    with subprocess.Popen(**command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        # The second one is interrupted while streams run.
        there = "pipeline-*/tpch" if sign == signal.SIGINT else "pipeline-*/of-refdelta/checkpoints"
        until(lambda: list(tmp_path.glob(there)) or process.poll() is not None, seconds=300)
        assert process.poll() is None, process.communicate()
        process.send_signal(sign)
        shown, told = process.communicate(timeout=120)
    assert (process.returncode, shown, told) == (130, "", "stopped\n")
    assert not list(tmp_path.iterdir())
