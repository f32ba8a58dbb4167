"""What rows are written from: each kind of data works, or is refused with the call that makes rows of it."""

from __future__ import annotations

import datetime as dt
import itertools
import uuid
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest

import refdelta.compat.deltalake as compat
from refdelta import DeltaTable, errors, write_deltalake

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", None, "c"]})
ONE, TWO = uuid.UUID("0b8f9c6e-0000-4a1b-8c2d-00ff10203040"), uuid.UUID(int=0)
_tables = itertools.count()


def fresh() -> str:
    return f"memory://sources-{next(_tables)}"


def lazy() -> pl.LazyFrame:
    return pl.from_arrow(ROWS).lazy().filter(pl.col("id") > 0)


TAKEN = {
    "a table": lambda: ROWS,
    "a reader": ROWS.to_reader,
    "a batch": lambda: ROWS.to_batches()[0],
    "a list of batches": lambda: ROWS.to_batches(max_chunksize=1),
    "a generator of batches": lambda: (batch for batch in ROWS.to_batches(max_chunksize=1)),
    "a generator of tables": lambda: (ROWS.slice(place, 1) for place in range(3)),
    "an array of structs": lambda: ROWS.to_struct_array().combine_chunks(),
    "a dataset": lambda: pa.dataset.dataset(ROWS),
    "a scanner": lambda: pa.dataset.dataset(ROWS).scanner(filter=pa.compute.field("id") > 0),
    "a fragment": lambda: next(iter(pa.dataset.dataset(ROWS).get_fragments())),
    "a generator of scanners": lambda: (pa.dataset.dataset(ROWS.slice(place, 1)).scanner() for place in range(3)),
    "a frame of pandas": ROWS.to_pandas,
    "a frame of pandas with types of Arrow": lambda: ROWS.to_pandas(types_mapper=pd.ArrowDtype),
    "a list of frames": lambda: [ROWS.slice(place, 1).to_pandas(types_mapper=pd.ArrowDtype) for place in range(3)],
    "a frame of Polars": lambda: pl.from_arrow(ROWS),
    "a LazyFrame": lazy,
    "a list of LazyFrames": lambda: [lazy().filter(pl.col("id") == one) for one in (1, 2, 3)],
    "a relation of DuckDB": lambda: duckdb.sql("FROM (VALUES (1::BIGINT, 'a'), (2, NULL), (3, 'c')) rows(id, name)"),
}


def test_a_scanner_is_read_without_the_deadlock_of_its_own_reader():
    """``Scanner.to_reader`` holds the interpreter's lock while Arrow's threads may need it to read files."""

    class OtherScanner:
        projected_schema = ROWS.schema

        def to_batches(self):
            return iter(ROWS.to_batches())

        def to_reader(self):
            raise AssertionError("the scan was started with the interpreter's lock")

    class OtherDataset:
        def scanner(self):
            return OtherScanner()

    uri = fresh()
    for data in (OtherScanner(), OtherDataset(), [OtherScanner()]):
        write_deltalake(uri, data, mode="append")
    assert sorted(DeltaTable(uri).to_pyarrow_table()["id"].to_pylist()) == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def appended(uri, data):
    write_deltalake(uri, data, mode="append")


def overwritten(uri, data):
    write_deltalake(uri, data, mode="overwrite")


def in_a_transaction(uri, data):
    with DeltaTable(uri).begin() as txn:
        txn.append(data)
        txn.commit()


def merged(uri, data):
    DeltaTable(uri).merge(data, "s.id = t.id").when_not_matched_insert_all().execute()


def by_compat(uri, data):
    compat.write_deltalake(uri, data, mode="append")


WRITES = [appended, overwritten, in_a_transaction, merged, by_compat]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("kind", TAKEN)
def test_each_kind_of_data_is_written_by_each_call(kind, write):
    if write is by_compat and kind == "a list of LazyFrames":
        pytest.skip("deltalake takes lists of batches alone")
    uri = fresh()
    DeltaTable.create(uri, ROWS.schema)
    write(uri, TAKEN[kind]())
    assert sorted(DeltaTable(uri).to_pyarrow_table().to_pylist(), key=lambda row: row["id"]) == ROWS.to_pylist()


REFUSED = {
    "a list of rows": (ROWS.to_pylist, r"from_pylist"),
    "a generator of rows": (lambda: iter(ROWS.to_pylist()), r"from_pylist"),
    "a list of tuples": (lambda: [(1, "a")], r"pyarrow.table\(\)"),
    "columns": (ROWS.to_pydict, r"pyarrow.table\(data\)"),
    "a structured array": (lambda: np.array([(1, 2.0)], dtype=[("id", "i8"), ("x", "f8")]), r"data.dtype.names"),
    "an array of numbers": (lambda: np.zeros((2, 2)), r"pyarrow.table\(\)"),
    "a series of pandas": (lambda: pd.Series([1], name="id"), r"to_frame"),
    "a series of Polars": (lambda: pl.Series("id", [1]), r"to_frame"),
    "a column": (lambda: pa.array([1]), r'pyarrow.table\(\{"name": data\}\)'),
    "a path": (lambda: Path("rows.parquet"), r"pyarrow.dataset.dataset\(path\)"),
    "the text of a path": (lambda: "rows.parquet", r"pyarrow.dataset.dataset\(path\)"),
    "a connection": (lambda: duckdb.connect().execute("SELECT 1 AS id"), r"connection.sql"),
    "nothing": (lambda: None, r"data must be"),
    "no batch": (lambda: iter(()), r"schema is not known"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_other_data_is_refused_with_the_call_that_makes_rows(kind):
    data, hint = REFUSED[kind]
    uri = fresh()
    with pytest.raises(errors.InvalidArgumentError, match=hint):
        write_deltalake(uri, data())
    assert not DeltaTable.is_deltatable(uri)
    DeltaTable.create(uri, ROWS.schema)
    with pytest.raises(errors.InvalidArgumentError, match=hint):
        merged(uri, data())


def test_a_lazy_frame_without_rows_has_its_columns():
    uri = fresh()
    write_deltalake(uri, lazy().filter(pl.col("id") > 10))
    assert DeltaTable(uri).to_pyarrow_table().equals(ROWS.slice(0, 0))


@pytest.mark.skipif(not hasattr(pl.LazyFrame, "collect_batches"), reason="this Polars collects a LazyFrame as a whole")
def test_a_lazy_frame_is_written_in_batches(monkeypatch):
    monkeypatch.setattr(pl.LazyFrame, "collect", lambda *_args, **_options: pytest.fail("it was collected"))
    uri = fresh()
    write_deltalake(uri, lazy())
    assert DeltaTable(uri).count() == 3


def test_an_error_of_a_lazy_frame_ends_the_write():
    uri = fresh()
    wrong = lazy().with_columns(pl.col("name").fill_null("x").str.to_integer())
    with pytest.raises(pl.exceptions.PolarsError):
        write_deltalake(uri, wrong)
    assert not DeltaTable.is_deltatable(uri)


def uuids(*values: uuid.UUID | None) -> pa.Array:
    stored = pa.array([value and value.bytes for value in values], pa.binary(16))
    return pa.ExtensionArray.from_storage(pa.uuid(), stored)


UUIDS = {
    "Arrow": lambda: pa.table({"u": uuids(ONE, None, TWO)}),
    "a slice of Arrow": lambda: pa.table({"u": uuids(TWO, ONE, None, TWO, None)}).slice(1, 3),
    "a dictionary of Arrow": lambda: pa.table(
        {"u": pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.int8()), uuids(TWO, ONE))}
    ),
    "pandas": lambda: pd.DataFrame({"u": [ONE, None, TWO]}),
    "Polars": lambda: pl.DataFrame({"u": [ONE, None, TWO]}),
    "a LazyFrame": lambda: pl.DataFrame({"u": [ONE, None, TWO]}).lazy(),
    "DuckDB": lambda: duckdb.sql(f"FROM (VALUES ('{ONE}'::UUID), (NULL), ('{TWO}'::UUID)) rows(u)"),
}


@pytest.mark.parametrize("library", UUIDS)
@pytest.mark.parametrize("into", ["a new table", "an append", "a merge"])
def test_uuids_are_strings_in_their_canonical_form(library, into):
    uri = fresh()
    if into != "a new table":
        DeltaTable.create(uri, pa.schema({"u": pa.string()}))
    if into == "a merge":
        DeltaTable(uri).merge(UUIDS[library](), "s.u = t.u").when_not_matched_insert_all().execute()
    else:
        write_deltalake(uri, UUIDS[library](), mode="append")
    found = DeltaTable(uri).to_pyarrow_table()["u"]
    assert found.type == pa.string()
    assert found.to_pylist() == [str(ONE), None, str(TWO)]


def test_uuids_stay_bytes_where_the_table_has_a_binary():
    uri = fresh()
    DeltaTable.create(uri, pa.schema({"u": pa.binary()}))
    write_deltalake(uri, pa.table({"u": uuids(ONE, None)}), mode="append")
    assert DeltaTable(uri).to_pyarrow_table()["u"].to_pylist() == [ONE.bytes, None]


def test_a_schema_with_uuids_makes_strings():
    uri = fresh()
    table = DeltaTable.create(uri, pa.schema({"u": pa.uuid(), "l": pa.list_(pa.uuid())}))
    assert [str(field.type) for field in table.schema().to_arrow()] == ["string", "list<element: string>"]


@pytest.mark.parametrize("value", [dt.time(1), dt.timedelta(1)])
def test_a_type_that_delta_lacks_is_refused_by_name_in_a_lazy_frame_too(value):
    with pytest.raises(errors.UnsupportedTypeError, match="column t"):
        write_deltalake(fresh(), pl.LazyFrame({"t": [value]}))


def test_uuids_beside_other_objects_are_refused():
    with pytest.raises((errors.InvalidArgumentError, errors.UnsupportedTypeError)):
        write_deltalake(fresh(), pd.DataFrame({"u": [ONE, "x"]}))
    with pytest.raises(errors.UnsupportedTypeError, match="cast it"):
        write_deltalake(fresh(), pl.DataFrame({"u": [ONE, object()]}))
