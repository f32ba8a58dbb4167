"""``refdelta crosscheck`` without Spark: what is wrong with a call is said before Java starts.

Tests of cli.crosschecking, crosscheck.comparison, crosscheck.local_copy, crosscheck.scenarios.
"""

from __future__ import annotations

import fcntl
from pathlib import Path

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.crosscheck import oracle
from refdelta.crosscheck.comparison import compare_table
from refdelta.crosscheck.local_copy import copied
from refdelta.crosscheck.scenarios import LEVELS, read_scenarios

SCENARIOS = Path(__file__).resolve().parents[1] / "scenarios"
TABLE = '[tables.t]\nfiles = ["f0 a=0..9"]\n'
GOOD = '[[scenario]]\nid = "s"\ntable = "t"\nT = { does = ["remove f0"] }\nW = { does = ["add w"] }\n'


@pytest.fixture(autouse=True)
def without_java(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture
def scenario(tmp_path):
    """Write a file of scenarios and return its path."""

    def write(text):
        path = tmp_path / "mine.toml"
        path.write_text(text)
        return path

    return write


def test_without_java_it_says_how_to_get_it(fails, table, scenario):
    for arguments in ((table,), ("--scenario", scenario(TABLE + GOOD))):
        assert "needs Java 17 and there is no java here; for example: apt-get" in fails("crosscheck", *arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "either a TABLE or --scenario"),
        (("t", "--scenario", "x.toml"), "either a TABLE or --scenario"),
        (("--scenario", "x.toml", "--where", "a = 1"), "go with a TABLE"),
        (("--scenario", "x.toml", "--version", "1"), "go with a TABLE"),
        (("--scenario", "x.toml"), "x.toml: there is no such file"),
        (("t", "--only", "x"), "goes with --scenario"),
        (("no-such-table",), "no Delta table at"),
    ],
)
def test_calls_that_make_no_sense(fails, arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said in fails("crosscheck", *arguments)


def test_a_filter_that_is_none_is_told(fails, table):
    assert "nothing" in fails("crosscheck", table, "--where", "nothing = 1")


def test_more_is_not_copied_than_is_allowed(fails, cli, table, fresh_path, monkeypatch):
    monkeypatch.setattr(oracle, "availability", lambda: None)
    uri = f"memory://{fresh_path()}"
    rows = table.parent / "rows.parquet"
    assert cli("read", table, "--output", rows).status == 0
    assert cli("write", uri, rows).status == 0
    assert "exceed the limit of 1,000: raise the limit (--copy-limit), compare less" in fails(
        "crosscheck", uri, "--copy-limit", "1000"
    )
    assert "--copy-limit" in fails("crosscheck", uri, "--copy-limit", "much")


def test_a_copy_is_the_table_up_to_a_version(fresh_path):
    uri = f"memory://{fresh_path()}"
    for start in range(0, 40, 10):
        write_deltalake(
            uri,
            pa.table({"id": range(start, start + 10), "p": ["a/b c"] * 10}),
            mode="append",
            partition_by=["p"],
            configuration={"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "2"},
        )
    DeltaTable(uri).delete("id = 12")
    DeltaTable(uri).optimize.compact()
    at = DeltaTable(uri, version=4)
    said = []
    with copied(at, [4, 3, -1], progress=said.append) as folder:
        copy = DeltaTable(folder)
        assert copy.version() == 4
        assert sorted(copy.to_pyarrow_table()["id"].to_pylist()) == sorted(at.to_pyarrow_table()["id"].to_pylist())
        assert [one["timestamp"] for one in copy.history()] == [one["timestamp"] for one in at.history()]
        assert DeltaTable(folder, version=3).count() == 40
        copies = sum(path.is_file() for path in Path(folder).rglob("*"))
    assert not Path(folder).exists()
    assert said[0].startswith(f"copying {copies} files of {at.table_uri}, ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[scenario]\n", "not readable as TOML"),
        ("", "has no [[scenario]]"),
        ("[table]\n", ": table is neither [[scenario]] nor [tables.NAME]"),
        (GOOD, "scenario s: no table 't' here or in tables.toml"),
        (TABLE + GOOD.replace('id = "s"\n', ""), "(without id): it has no id"),
        (TABLE + GOOD + GOOD, "two scenarios have the id s@Serializable"),
        (TABLE + GOOD + 'levels = ["Snapshot"]\n', "'Snapshot' is not an isolation level"),
        (TABLE + GOOD + 'order = "begin T, commit T"\n', "does not consist of these steps: begin T, commit T, begin W"),
        (TABLE + GOOD + 'order = "commit T, begin T, begin W, commit W"\n', "T commits before it begins"),
        (
            TABLE + GOOD.replace("remove f0", "remove f9"),
            "the file 'f9' is not in the table, and no transaction adds it",
        ),
        (TABLE + GOOD.replace("remove f0", "drop f0"), "'drop f0' is not an action of a transaction"),
        (TABLE + GOOD.replace("add w", "add w b=1"), "'b=1' is not an attribute of a file"),
        (TABLE + GOOD.replace("add w", "add w a=1"), "scenario s: "),
        (TABLE + GOOD.replace("does", "dose"), "T is not a transaction"),
        (TABLE + GOOD.replace("T = {", 'T = { reads = ["z = 1"],'), "T reads: "),
        (TABLE.replace("files", "fils") + GOOD, "table 't' has the unknown key fils"),
    ],
)
def test_a_file_that_is_no_scenario_is_told_with_its_name(fails, scenario, text, said):
    path = scenario(text)
    error = fails("crosscheck", "--scenario", path)
    assert str(path) in error
    assert said in error


def test_a_scenario_that_is_not_there(fails, scenario):
    path = scenario(TABLE + GOOD)
    assert "scenario 'x' does not exist; scenarios: s, " in fails("crosscheck", "--scenario", path, "--only", "x")
    assert "Java" in fails("crosscheck", "--scenario", path, "--only", "s@Serializable")


def test_a_file_of_ones_own_runs_at_both_levels(scenario):
    cases = read_scenarios(scenario(TABLE + GOOD + 'then = { Serializable = "T ConcurrentAppend" }\n'))
    assert [(case.id, case.then) for case in cases] == [
        ("s@Serializable", "T ConcurrentAppend"),
        ("s@WriteSerializable", "all commit"),
    ]
    assert tuple(case.level for case in cases) == LEVELS


def test_one_file_of_the_projects_own_is_read_with_the_tables_beside_it():
    cases = read_scenarios(SCENARIOS / "rewrites.toml")
    assert {case.scenario for case in cases} < {case.scenario for case in read_scenarios(SCENARIOS)}
    assert oracle.availability() is not None, "and that without Java"


def test_one_process_at_a_time_fetches_the_jars(monkeypatch, tmp_path):
    monkeypatch.setenv("REFDELTA_CACHE", str(tmp_path / "cache"))
    lock = tmp_path / "cache" / "fetch.lock"
    with oracle._one_fetch(), lock.open("w") as another, pytest.raises(BlockingIOError):
        fcntl.flock(another, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with lock.open("w") as another:
        fcntl.flock(another, fcntl.LOCK_EX | fcntl.LOCK_NB)
        monkeypatch.setattr(oracle, "jars_cached", lambda: True)
        with oracle._one_fetch():  # waits for no lock, since there is nothing to fetch
            pass


def test_a_table_that_delta_spark_cannot_reach_is_refused_before_anything_is_compared():
    write_deltalake("memory://unreachable", pa.table({"id": [1]}))
    with pytest.raises(
        errors.InvalidArgumentError, match=r"delta-spark cannot open memory://unreachable: reachable\(\) makes a copy"
    ):
        next(iter(compare_table(None, DeltaTable("memory://unreachable"))))
