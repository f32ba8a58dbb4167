"""``refdelta crosscheck``: on tables that both engines see alike, and on such that differ in what it must find.

Tests of crosscheck.comparison, crosscheck.row_comparison.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import math
import shutil
from decimal import Decimal

import pyarrow as pa
import pytest

import spark_tables
from refdelta import DeltaTable, write_deltalake
from refdelta.catalog import SqlCatalog
from refdelta.cli import main
from refdelta.crosscheck import oracle
from refdelta.crosscheck.comparison import ComparisonResult, compare_table, probes
from refdelta.crosscheck.row_comparison import compare_rows

pytestmark = pytest.mark.spark

DATA = pa.table({"p": ["a:1", "b", None], "n": pa.array([1, 2, 3], pa.int32()), "x": [1.5, -0.0, math.nan]})
CASES = {
    "format": 1,
    "tables": {"parts": {"partition_by": ["p"], "files": ["f0 p=0 a=0..9", "f1 p=1 a=10..19"]}},
    "cases": [
        {
            "id": "both refuse",
            "levels": ["WriteSerializable"],
            "transactions": {
                "T": {"reads": ["p = 0"], "does": ["remove f0"]},
                "W": {"reads": ["p = 0"], "does": ["remove f0"]},
            },
            "delta_spark": "T ConcurrentDeleteRead",
        },
        {
            "id": "only delta-spark commits",
            "levels": ["Serializable"],
            "transactions": {"T": {"does": ["remove f0", "add t p=0 a=0..9"]}, "W": {"does": ["add w p=0 a=0..9"]}},
        },
    ],
}


def problems(spark, table, **arguments):
    return {check.what: check.problem for check in compare_table(spark, table, **arguments) if check.problem}


@pytest.fixture
def written(tmp_path):
    """Three versions, with a deletion vector, a null partition, a new column and nested values."""
    path = tmp_path / "odd [name] 100%41"
    write_deltalake(path, DATA, partition_by=["p"], configuration={"delta.enableDeletionVectors": "true"})
    day, amount = pa.array([dt.date(2026, 1, 1)]), pa.array([Decimal("1.50")])
    pairs = pa.array([[("k", 1.0), ("j", None)]], pa.map_(pa.string(), pa.float64()))
    nested = pa.array([{"a.b": [1.0, None, -0.0]}])
    more = {"p": ["a:1"], "n": pa.array([4], pa.int32()), "x": [0.0], "day": day, "amount": amount}
    more |= {"pairs": pairs, "nested": nested}
    write_deltalake(path, pa.table(more), mode="append", schema_mode="merge")
    DeltaTable(path).delete("n = 2")
    return path


def test_a_table_of_refdelta_is_alike(spark, written):
    checks = list(compare_table(spark, DeltaTable(written)))
    assert [check for check in checks if check.problem] == []
    found = {check.what: check.found for check in checks}
    assert found["schema"] == "7 columns"
    assert found["rows"] == "3 rows, each in both"
    assert [found[f"count at version {version}"] for version in (2, 1, 0)] == ["3 rows", "4 rows", "3 rows"]
    assert found["history"] == "3 commits"
    assert found["where `p` = 'a:1'"] == "2 rows; both read 2 of 3 files"
    assert found["where `p` IS NULL"].startswith("1 row; both read 1 of 3")


@pytest.mark.tier("nightly")
def test_a_table_of_delta_spark_is_alike_at_an_older_version_too(spark, tmp_path):
    path = tmp_path / "t"
    spark_tables.create(spark, path, DATA.schema, ["p"], {"delta.enableDeletionVectors": "true"})
    spark_tables.write(spark, path, DATA)
    for statement in ("DELETE FROM {t} WHERE n = 2", "UPDATE {t} SET x = 7 WHERE n = 1", "OPTIMIZE {t}"):
        spark_tables.sql(spark, path, statement)

    assert problems(spark, DeltaTable(path)) == {}
    pinned = {check.what: check for check in compare_table(spark, DeltaTable(path, version=1), versions=1)}
    assert "detail" not in pinned, "DESCRIBE DETAIL has no versions"
    assert [check.problem for check in pinned.values() if check.problem] == []
    assert pinned["rows"].found == "3 rows, each in both"


def test_each_difference_is_found(spark, tmp_path):
    """delta-spark is sent to another table than refdelta."""
    one, other = tmp_path / "one", tmp_path / "other"
    write_deltalake(one, DATA.slice(0, 1))
    shutil.copytree(one, other)
    write_deltalake(one, DATA.slice(1, 1), mode="append")
    write_deltalake(other, DATA.slice(0, 2), mode="append")

    found = problems(spark, DeltaTable(one), place=str(other), predicates=["n = 1"])
    assert found.keys() == {"rows", "count at version 1", "history", "detail", "files", "where n = 1"}
    assert found["rows"] == "0 only in refdelta, 1 only in delta-spark; only delta-spark: ('a:1', 1, '1.5')"
    assert found["history"].startswith("version 1: ")
    assert found["where n = 1"] == "1 row in refdelta, 2 in delta-spark"


def test_another_schema_is_found_and_rows_are_left_alone(spark, tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    write_deltalake(one, DATA)
    write_deltalake(other, DATA.set_column(1, "n", DATA["n"].cast(pa.int64())))
    found = problems(spark, DeltaTable(one), place=str(other), versions=0, predicates=[])
    assert "'integer'" in found["schema"]
    assert "'long'" in found["schema"]
    assert found["rows"] == "not compared: the schemas differ"


def test_what_one_of_them_cannot_read_is_a_problem_and_what_neither_can_is_none(spark, tmp_path):
    path, gone = tmp_path / "t", tmp_path / "gone"
    write_deltalake(path, DATA)
    found = problems(spark, DeltaTable(path), place=str(gone), predicates=[])
    assert all(problem.startswith("delta-spark: ") for what, problem in found.items() if what != "rows")
    write_deltalake(path, DATA, mode="append")
    DeltaTable(path).create_checkpoint()
    (path / "_delta_log" / f"{0:020d}.json").unlink()
    checks = {check.what: check for check in compare_table(spark, DeltaTable(path), predicates=[])}
    assert checks["count at version 0"].found == "readable in neither"
    for file in path.rglob("*.parquet"):
        if file.parent.name != "_delta_log":
            file.unlink()
    checks = {check.what: check for check in compare_table(spark, DeltaTable(path), versions=0, predicates=[])}
    assert checks["rows"] == ComparisonResult("rows", "readable in neither")


@pytest.mark.parametrize(
    ("ours", "theirs", "alike"),
    [
        ([1.0, math.nan, None], [None, math.nan, 1.0], True),
        ([0.0], [-0.0], False),
        ([1.0, 1.0, 2.0], [1.0, 2.0, 2.0], False),
        ([], [], True),
        ([None], [], False),
    ],
)
def test_rows_are_compared_exactly_and_as_often_as_they_are_there(spark, tmp_path, ours, theirs, alike):
    tables = [pa.table({"a,b": pa.array(values, pa.float64())}) for values in (ours, theirs)]
    found = compare_rows(spark, tables[0].to_reader(), spark_tables.frame(spark, tables[1]), tmp_path)
    assert found.alike is alike
    assert found.refdelta == len(ours)
    assert bool(found.examples) is not alike


def test_a_map_has_no_order_and_an_empty_struct_is_no_null(spark, tmp_path):
    kind = pa.schema([("m", pa.map_(pa.string(), pa.int64())), ("s", pa.struct([("v", pa.int64())]))])
    one = pa.table({"m": [[("a", 1), ("b", 2)]], "s": [{"v": None}]}, schema=kind)
    turned = pa.table({"m": [[("b", 2), ("a", 1)]], "s": [{"v": None}]}, schema=kind)
    null = pa.table({"m": [[("b", 2), ("a", 1)]], "s": [None]}, schema=kind)
    for other, alike in ((turned, True), (null, False)):
        assert compare_rows(spark, one.to_reader(), spark_tables.frame(spark, other), tmp_path).alike is alike


def test_filters_come_from_what_the_log_says_of_the_files(tmp_path):
    path = tmp_path / "t"
    data = {"s": ["it's"], "d": [dt.date(2026, 1, 2)], "m": [Decimal("1.50")], "q": ["a\\b"], "n": [5], "t": ["z"]}
    write_deltalake(path, pa.table(data), partition_by=["q"])
    assert probes(DeltaTable(path)) == [
        "`q` = 'a\\\\b'",
        "`q` IS NULL",
        "`s` = 'it\\'s'",
        "`d` = DATE'2026-01-02'",
        "`m` = 1.50BD",
    ]


# --- the command ---


@pytest.fixture
def cli(spark, monkeypatch, capsys):
    """``cli("t")`` gives the exit status and both outputs; the session of the run serves."""
    monkeypatch.setattr(oracle, "session", lambda **_: contextlib.nullcontext(spark))

    def call(*arguments):
        return main(["crosscheck", *map(str, arguments)]), *capsys.readouterr()

    return call


def test_the_command_shows_each_comparison(cli, written):
    status, out, err = cli(written, "--versions", "1", "--where", "n > 3")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].endswith(", version 2")
    assert "       ok  rows: 3 rows, each in both" in lines
    assert "       ok  where n > 3: 1 row; both read 1 of 3 files" in lines
    assert len(lines) == 1 + len(("schema", "rows", "count", "history", "detail", "files", "where"))


def test_the_command_ends_with_1_where_the_two_differ(cli, written, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(written, other)
    DeltaTable(other).delete("n = 1")
    status, out, err = cli(DeltaTable(written).table_uri, "--spark-path", other, "--versions", "0")
    assert (status, "DIFFERS" in out) == (1, True)
    assert err.startswith("refdelta: ")
    assert "comparisons differ: " in err


def test_scenarios_side_by_side_with_the_rule_that_decided(cli, tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(CASES))
    status, out, err = cli("--scenario", path, "--only", "both refuse")
    assert (status, err) == (0, "")
    assert out.startswith("both refuse@WriteSerializable: alike\n  refdelta     T ConcurrentDeleteRead\n")
    assert "T: rule read-file-removed: " in out
    assert "\n  delta-spark  T ConcurrentDeleteRead\n" in out

    status, out, err = cli("--scenario", path, "--json")
    assert status == 1
    assert err == "refdelta: 1 of 2 cases end differently: only delta-spark commits@Serializable\n"
    alike, different = json.loads(out)
    assert (alike["alike"], different["alike"]) == (True, False)
    assert different["refdelta"]["failures"]["T"]["rule"] == "files-added"
    assert different["delta_spark"] == {"outcome": "all commit", "failures": {}}


def test_a_table_on_s3_is_compared_by_a_copy(cli, s3_server):
    place = s3_server.place()
    options = {"storage_options": place.options}
    write_deltalake(
        place.uri, DATA, partition_by=["p"], configuration={"delta.enableDeletionVectors": "true"}, **options
    )
    DeltaTable(place.uri, **options).delete("n = 1")
    write_deltalake(place.uri, DATA, mode="append", **options)
    given = [f"--storage-option={name}={value}" for name, value in place.options.items()]
    status, out, err = cli(place.uri, *given)
    assert (status, err) == (0, "")
    lines = [line.strip() for line in out.splitlines()]
    assert lines[0] == f"{place.uri}, version 2"
    assert "ok  rows: 5 rows, each in both" in lines
    assert {"ok  count at version 1: 2 rows", "ok  history: 3 commits"} <= set(lines)


@pytest.mark.tier("nightly")
def test_a_table_of_a_catalog_is_alike_with_commits_that_are_not_published(quick_spark, tmp_path, monkeypatch, capsys):
    url = f"sqlite:///{tmp_path}/catalog.db"
    with SqlCatalog(url, warehouse=tmp_path / "warehouse") as catalog:
        for commits in ("staged", "inline"):
            table = catalog.create_table(f"shop.{commits}", DATA.schema, commits=commits)
            write_deltalake(table, DATA, mode="append")
            table.delete("n = 2")
    monkeypatch.setattr(oracle, "session", lambda: contextlib.nullcontext(quick_spark))
    for name in ("shop.staged", "shop.inline"):
        assert main(["crosscheck", name, "--catalog", url, "--json"]) == 0
        checks = json.loads(capsys.readouterr().out)["checks"]
        assert {"rows", "count at version 1", "history", "detail", "files"} <= {check["what"] for check in checks}
        assert not [check for check in checks if check["problem"]]
    assert main(["crosscheck", name, "--catalog", url, "--spark-path", str(tmp_path)]) == 1
    assert "which a catalog manages: without a path, a copy is compared" in capsys.readouterr().err
