"""``refdelta crosscheck`` without Spark: what is wrong with a call is said before Java starts.

Tests of cli.crosschecking, crosscheck.comparison, crosscheck.local_copy, conformance.cases.
"""

from __future__ import annotations

import fcntl
from pathlib import Path

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.conformance.cases import CORPUS, LEVELS, cases
from refdelta.crosscheck import oracle
from refdelta.crosscheck.comparison import compare_table
from refdelta.crosscheck.local_copy import copied

HEAD = '{"format": 1, "tables": {"t": {"files": ["f0 a=0..9"]}}, "cases": ['
GOOD = '{"id": "s", "table": "t", "transactions": {"T": {"does": ["remove f0"]}, "W": {"does": ["add w"]}}}'


@pytest.fixture(autouse=True)
def without_java(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture
def scenario(tmp_path):
    """Write a file of scenarios and return its path."""

    def write(text):
        path = tmp_path / "mine.json"
        path.write_text(text)
        return path

    return write


def test_without_java_it_says_how_to_get_it(fails, table, scenario):
    for arguments in ((table,), ("--scenario", scenario(HEAD + GOOD + "]}"))):
        assert "needs Java 17 and there is no java here; for example: apt-get" in fails("crosscheck", *arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "either a TABLE or --scenario"),
        (("t", "--scenario", "x.json"), "either a TABLE or --scenario"),
        (("--scenario", "x.json", "--where", "a = 1"), "go with a TABLE"),
        (("--scenario", "x.json", "--version", "1"), "go with a TABLE"),
        (("--scenario", "x.json"), "x.json: there is no such file"),
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


@pytest.mark.tier("test")
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
        ("[", "not readable as JSON"),
        ("{}", 'must be an object with "format": 1'),
        ('{"format": 1}', "has no cases"),
        ('{"format": 1, "table": {}}', "table is not one of about, cases, format, tables"),
        (HEAD.replace('"t"', '"u"') + GOOD + "]}", "case s: no table 't' here or in tables.json"),
        (HEAD + GOOD.replace('"id": "s", ', "") + "]}", "(without id): it has no id"),
        (HEAD + GOOD + ", " + GOOD + "]}", "two cases have the id s@Serializable"),
        (HEAD + GOOD.replace('"id"', '"levels": ["Snapshot"], "id"') + "]}", "'Snapshot' is not an isolation level"),
        (HEAD + GOOD.replace('"id"', '"then": "x", "id"') + "]}", "it has the unknown key then"),
        (
            HEAD + GOOD.replace('"id"', '"schedule": ["begin T", "commit T"], "id"') + "]}",
            "does not consist of these steps: begin T, commit T, begin W",
        ),
        (
            HEAD + GOOD.replace('"id"', '"schedule": ["commit T", "begin T", "begin W", "commit W"], "id"') + "]}",
            "T commits before it begins",
        ),
        (
            HEAD + GOOD.replace("remove f0", "remove f9") + "]}",
            "the file 'f9' is not in the table, and no transaction adds it",
        ),
        (HEAD + GOOD.replace("remove f0", "drop f0") + "]}", "'drop f0' is not an action of a transaction"),
        (HEAD + GOOD.replace("add w", "add w b=1") + "]}", "'b=1' is not an attribute of a file"),
        (HEAD + GOOD.replace("add w", "add w a=1") + "]}", "case s: "),
        (HEAD + GOOD.replace("does", "dose") + "]}", "T is not a transaction"),
        (HEAD + GOOD.replace('"T": {', '"T": {"reads": ["z = 1"], ') + "]}", "T reads: "),
        (HEAD.replace("files", "fils") + GOOD + "]}", "its table has the unknown key fils"),
        (
            HEAD + GOOD.replace('"does": ["remove f0"]', '"statements": [{"delete": "a = 1"}]') + "]}",
            "T has no statements, but the table has rows; or the other way round",
        ),
        (HEAD + GOOD.replace('"does": ["remove f0"]', '"statements": [{"drop": 1}]') + "]}", "is not a statement"),
    ],
)
def test_a_file_that_has_no_cases_is_told_with_its_name(fails, scenario, text, said):
    path = scenario(text)
    error = fails("crosscheck", "--scenario", path)
    assert str(path) in error
    assert said in error


def test_a_case_that_is_not_there(fails, scenario):
    path = scenario(HEAD + GOOD + "]}")
    assert "case 'x' does not exist; cases: s, " in fails("crosscheck", "--scenario", path, "--only", "x")
    assert "Java" in fails("crosscheck", "--scenario", path, "--only", "s@Serializable")


def test_a_file_of_ones_own_runs_at_both_levels(scenario):
    recorded = GOOD.replace('"id"', '"delta_spark": {"Serializable": "T ConcurrentAppend"}, "id"')
    found = cases(scenario(HEAD + recorded + "]}"))
    assert [(case.id, case.delta_spark) for case in found] == [
        ("s@Serializable", "T ConcurrentAppend"),
        ("s@WriteSerializable", "all commit"),
    ]
    assert tuple(case.level for case in found) == LEVELS


def test_one_file_of_the_corpus_is_read_with_the_tables_beside_it():
    found = cases(CORPUS / "rewrites.json")
    assert {case.name for case in found} < {case.name for case in cases()}
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
