"""Datasets open no file when they are made, and afterwards no file that the log rules out.

Tests of engine.scan.guarantees.
"""

from __future__ import annotations

import datetime as dt
import decimal
import pickle
import uuid
from collections import Counter
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.engine.scan import guarantees
from tiers import examples

TIME = dt.datetime(2020, 1, 1, 12, 0, 0, 123_456)
COLUMNS = {
    "whole": lambda n: pa.array([n, n + 1, n + 9], pa.int32()),
    "text": lambda n: pa.array([f"k{n:04}", f"k{n:04}" + "x" * 50, f"k{n:04}y"]),
    "day": lambda n: pa.array([dt.date(2020, 1, 1) + dt.timedelta(n + d) for d in (0, 1, 9)]),
    "moment": lambda n: pa.array([TIME + dt.timedelta(hours=n + d) for d in (0, 1, 9)], pa.timestamp("us", "UTC")),
    "local": lambda n: pa.array([TIME + dt.timedelta(hours=n + d) for d in (0, 1, 9)], pa.timestamp("us")),
    "money": lambda n: pa.array([decimal.Decimal(n + d).scaleb(-2) for d in (0, 1, 9)], pa.decimal128(9, 2)),
    "gaps": lambda n: pa.array([n, None, n + 9], pa.int64()),
}
"""By a column's name, its values in the file of a number; files of 0, 10, 20, ... share none."""


def files_of(table: DeltaTable) -> list[Path]:
    return [Path(uri.removeprefix("file://")) for uri in table.file_uris()]


def hidden(table: DeltaTable, but: int) -> None:
    """Hide all files but the one that was written as this one."""
    stays = table.get_add_actions(flatten=True).sort_by("min.whole")["path"].to_pylist()[but]
    for file in files_of(table):
        if file.name != Path(stays).name:
            file.rename(file.with_suffix(".hidden"))


@pytest.fixture
def table(tmp_path):
    """A table of ten files, which differ in each column."""
    for n in range(0, 100, 10):
        rows = {name: column(n) for name, column in COLUMNS.items()}
        write_deltalake(tmp_path, pa.table({**rows, "none": pa.nulls(3, pa.int64())}), mode="append")
    return DeltaTable(tmp_path)


@pytest.mark.breaks_tables
@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("name", COLUMNS)
def test_a_file_that_its_statistics_rule_out_is_not_opened(table, name, large):
    hidden(table, 3)
    dataset = table.to_pyarrow_dataset(as_large_types=large)
    first, _, last = COLUMNS[name](30)
    field = pc.field(name)
    for condition in (field == first, (field >= first) & (field <= last), field.isin([first, last])):
        assert dataset.to_table(filter=condition)["whole"].to_pylist()[0] == 30
        (fragment,) = dataset.get_fragments(filter=condition)
        assert fragment.to_table(filter=condition).num_rows == dataset.count_rows(filter=condition) > 0
    assert dataset.to_table(filter=pc.field("none").is_valid()).num_rows == 0
    assert dataset.to_table(filter=(field == first) & pc.field("whole").is_valid()).num_rows == 1
    if name != "gaps":
        assert dataset.to_table(filter=field.is_null()).num_rows == 0


@pytest.mark.breaks_tables
def test_other_engines_open_no_file_that_is_ruled_out(table):
    hidden(table, 7)
    dataset = table.to_pyarrow_dataset()
    assert duckdb.sql("SELECT whole FROM dataset WHERE whole > 70 AND whole < 79").fetchall() == [(71,)]
    assert pl.scan_pyarrow_dataset(dataset).filter(pl.col("whole") == 79).collect()["gaps"].to_list() == [79]
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy.to_table(filter=pc.field("whole") == 70).num_rows == 1
    (fragment,) = dataset.get_fragments(filter=pc.field("whole") == 70)
    assert pickle.loads(pickle.dumps(fragment)).to_table().num_rows == 3
    with pytest.raises(errors.DataFileNotFoundError):
        dataset.to_table()


@pytest.mark.breaks_tables
def test_a_partition_and_a_new_column_rule_out_files(tmp_path):
    for n in range(5):
        write_deltalake(tmp_path, pa.table({"whole": [n], "p": [n]}), mode="append", partition_by=["p"])
    rows = pa.table({"whole": [9], "p": [9], "new": ["x"]})
    write_deltalake(tmp_path, rows, mode="append", schema_mode="merge")
    table = DeltaTable(tmp_path)
    dataset = table.to_pyarrow_dataset()
    assert dataset.to_table(filter=pc.field("new").is_null()).num_rows == 5
    assert dataset.to_table(filter=pc.field("new") == "x")["p"].to_pylist() == [9]
    hidden(table, 2)
    assert dataset.to_table(filter=pc.field("p") == 2).to_pylist() == [{"whole": 2, "p": 2, "new": None}]
    few = table.to_pyarrow_dataset(schema=pa.schema([("p", pa.int64()), ("whole", pa.float64())]))
    assert few.to_table(filter=pc.field("p") == 2).to_pylist() == [{"p": 2, "whole": 2.0}]


@pytest.mark.breaks_tables
def test_a_file_that_pyarrow_would_read_wrongly_is_refused_when_it_is_opened(tmp_path):
    for n in range(3):
        write_deltalake(tmp_path, pa.table({"id": [n], "whole": [n]}), mode="append")
    table = DeltaTable(tmp_path)
    for file in files_of(table):
        rows = pq.read_table(file)
        if rows["whole"][0].as_py() == 1:
            pq.write_table(rows.rename_columns(["ID", "whole"]), file)
    dataset = table.to_pyarrow_dataset()
    assert dataset.to_table(filter=pc.field("whole").isin([0, 2]))["id"].to_pylist() == [0, 2]
    fragments = dataset.get_fragments(filter=pc.field("whole") == 1)
    for read in (dataset.to_table, dataset.count_rows, lambda: [one.to_table() for one in fragments]):
        with pytest.raises(errors.InvalidArgumentError, match=r"is stored as 'ID' .*; use to_polars\(\)"):
            read()


def test_a_column_that_was_dropped_does_not_return_under_its_name(tmp_path):
    write_deltalake(tmp_path, pa.table({"id": [1], "old": [7]}))
    table = DeltaTable(tmp_path)
    table.alter.set_table_properties({"delta.columnMapping.mode": "name"})
    assert table.to_pyarrow_dataset().to_table().to_pylist() == [{"id": 1, "old": 7}]
    table.alter.drop_columns(["old"])
    table.alter.add_columns(pa.field("old", pa.int64()))
    with pytest.raises(errors.InvalidArgumentError, match="column mapping"):
        table.to_pyarrow_dataset()


def test_a_long_list_of_files_has_bounds_of_few_columns(table, monkeypatch):
    monkeypatch.setattr(guarantees, "MOST_BOUNDS", 25)
    conditions = [str(one.partition_expression) for one in table.to_pyarrow_dataset().get_fragments()]
    assert all("whole" in one and "text" in one and "day" not in one for one in conditions)


KINDS = {
    "n": (pa.int32(), st.integers(-4, 4)),
    "s": (pa.string(), st.sampled_from(["", "a", "ab", "b" * 40, "b" * 40 + "c", "\U0010ffff" * 33])),
    "t": (pa.timestamp("us"), st.integers(-2_000, 2_000).map(lambda us: TIME + dt.timedelta(microseconds=us))),
}


@st.composite
def conditions(draw, depth=2):
    """A condition whose value for a null is a matter of three-valued logic."""
    if depth and draw(st.booleans()):
        one, other = draw(conditions(depth - 1)), draw(conditions(depth - 1))
        return draw(st.sampled_from([one & other, one | other, ~one]))
    name = draw(st.sampled_from(sorted(KINDS)))
    kind, values = KINDS[name]
    field, value = pc.field(name), pa.scalar(draw(values), kind)
    compared = [field == value, field != value, field < value, field <= value, field > value, field >= value]
    return draw(st.sampled_from([*compared, field.is_null(), field.is_valid(), (field < value).is_null()]))


ROWS = st.lists(st.fixed_dictionaries({name: st.none() | values for name, (_, values) in KINDS.items()}), max_size=3)


@examples(60)
@given(files=st.lists(ROWS, min_size=1, max_size=3), condition=conditions())
def test_statistics_rule_out_no_row_that_meets_a_condition(files, condition):
    path = f"memory://{uuid.uuid4()}"
    schema = pa.schema({name: kind for name, (kind, _) in KINDS.items()})
    write_deltalake(path, schema.empty_table())
    for rows in files:
        write_deltalake(path, pa.Table.from_pylist(rows, schema), mode="append")
    wanted = pa.Table.from_pylist([row for rows in files for row in rows], schema).filter(condition)
    found = DeltaTable(path).to_pyarrow_dataset().to_table(filter=condition)
    assert Counter(map(repr, found.to_pylist())) == Counter(map(repr, wanted.to_pylist()))
