"""Rows of one table of a catalog that a transaction writes to another one, in every form in which they are read later,
are reads of the transaction: two transactions that each copy what the other one writes are no serial order.

Tests of engine.scan.origin.
"""

import itertools

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import refdelta
from refdelta import errors, write_deltalake
from refdelta.catalog import SqlCatalog

A, B = "x.a", "x.b"
SCHEMA = pa.schema({"id": pa.int64()})
NAMES = (f"view_{number}" for number in itertools.count())


@pytest.fixture
def catalog(tmp_path):
    with SqlCatalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path / "warehouse") as made:
        for name in (A, B):
            write_deltalake(made.create_table(name, SCHEMA), pa.table({"id": [1]}), mode="append")
        yield made
        refdelta.settle()


@pytest.fixture
def connection():
    with duckdb.connect() as made:
        yield made


def dataset(table):
    return table.to_pyarrow_dataset()


def named_in_sql(table, connection):
    name = next(NAMES)
    table.to_duckdb(connection, name)
    return connection.sql(f"SELECT id FROM {name} WHERE id > 0")


def selected(table, connection):
    relation = table.to_duckdb(connection)  # noqa: F841 - DuckDB finds the variable
    return connection.sql("SELECT id FROM relation ORDER BY id")


def generated(table):
    yield from table.scan().to_batches()


def looked_up(table):
    """Rows that follow from a look into the table."""
    yield pa.record_batch({"id": [table.count()]}, SCHEMA)


LAZY = {
    "a table": lambda table, _: table,
    "a scan": lambda table, _: table.scan(predicate="id > 0"),
    "a reader": lambda table, _: table.to_record_batch_reader(),
    "a reader of a scan": lambda table, _: table.scan().to_reader(),
    "a cast reader": lambda table, _: table.scan().to_reader().cast(SCHEMA),
    "an imported stream": lambda table, _: pa.RecordBatchReader.from_stream(table.scan()),
    "batches": lambda table, _: table.scan().to_batches(),
    "a generator": lambda table, _: generated(table),
    "a generator that counts": lambda table, _: looked_up(table),
    "a list": lambda table, _: [pa.table({"id": [5]}), table],
    "an iterable of readers": lambda table, _: iter([table.scan().to_reader()]),
    "an iterable of frames": lambda table, _: (one for one in [pl.LazyFrame({"id": [1]}), table.to_polars()]),
    "a dataset": lambda table, _: dataset(table),
    "a filtered dataset": lambda table, _: dataset(table).filter(pc.field("id") > 0),
    "a dataset of another schema": lambda table, _: dataset(table).replace_schema(SCHEMA),
    "a scanner": lambda table, _: dataset(table).scanner(columns=["id"]),
    "a scanner of a filtered dataset": lambda table, _: dataset(table).filter(pc.field("id") > 0).scanner(),
    "a reader of a scanner": lambda table, _: dataset(table).scanner(columns=["id"]).to_reader(),
    "batches of a scanner": lambda table, _: dataset(table).scanner().to_batches(),
    "batches of a dataset": lambda table, _: dataset(table).to_batches(),
    "a fragment": lambda table, _: next(iter(dataset(table).get_fragments())),
    "a list of datasets": lambda table, _: [dataset(table)],
    "a lazy frame": lambda table, _: table.to_polars(),
    "a filtered frame": lambda table, _: table.to_polars().filter(pl.col("id") > 0),
    "a joined frame": lambda table, _: pl.LazyFrame({"id": [1]}).join(table.to_polars(), on="id"),
    "frames together": lambda table, _: pl.concat([pl.LazyFrame({"id": [1]}), table.to_polars()]),
    "a frame through a function": lambda table, _: table.to_polars().map_batches(lambda frame: frame),
    "a frame over a dataset": lambda table, _: pl.scan_pyarrow_dataset(dataset(table)),
    "a relation": lambda table, connection: table.to_duckdb(connection),
    "a filtered relation": lambda table, connection: table.to_duckdb(connection).filter("id > 0"),
    "a relation by its name": named_in_sql,
    "a relation in a variable": selected,
}


def skewed(catalog, rows):
    """Two transactions that each write the rows of the table to which the other one appends."""
    one, other = catalog.transaction(), catalog.transaction()
    one[B].append(rows(A))
    other[A].append(rows(B))
    one.commit()
    with pytest.raises(errors.ConcurrentAppendException) as caught:
        other.commit()
    assert caught.value.conflict.table == B
    assert catalog.table(A).count() == 1


@pytest.mark.parametrize("form", LAZY)
def test_rows_that_are_read_later_are_reads(catalog, connection, form):
    skewed(catalog, lambda name: LAZY[form](catalog.table(name), connection))


@pytest.mark.parametrize("form", LAZY)
def test_so_are_those_of_a_snapshot_of_the_catalog(catalog, connection, form):
    skewed(catalog, lambda name: LAZY[form](catalog.snapshot()[name], connection))


@pytest.mark.parametrize(
    "form", ["a table", "a reader", "a filtered dataset", "a joined frame", "a relation by its name"]
)
def test_a_version_that_was_named_is_no_read(catalog, connection, form):
    one, other = catalog.transaction(), catalog.transaction()
    one[B].append(LAZY[form](catalog.table(A, 1), connection))
    other[A].append(LAZY[form](catalog.table(B, 1), connection))
    one.commit()
    other.commit()
    assert [catalog.table(name).count() for name in (A, B)] == [2, 2]


@pytest.mark.parametrize("form", ["a table", "a reader", "a scanner", "a filtered frame", "a relation by its name"])
def test_rows_of_another_version_than_the_transaction_reads_are_refused(catalog, connection, form):
    before = catalog.snapshot()[A]
    write_deltalake(catalog.table(A), pa.table({"id": [2]}), mode="append")
    tx = catalog.transaction()
    with pytest.raises(errors.InvalidArgumentError, match=r"version 1 of this table, but .* version 2"):
        tx[B].append(LAZY[form](before, connection))
    write_deltalake(catalog.table(A), pa.table({"id": [3]}), mode="append")
    with pytest.raises(errors.InvalidArgumentError, match=r"version 3 of this table, but .* version 2"):
        tx[B].append(LAZY[form](catalog.snapshot()[A], connection))
    tx.abort()


@pytest.mark.parametrize(
    "form", ["a table", "a reader of a scan", "a frame through a function", "a relation in a variable"]
)
def test_the_source_of_a_merge_is_a_read(catalog, connection, form):
    one, other = catalog.transaction(), catalog.transaction()
    for tx, target, source in ((one, B, A), (other, A, B)):
        rows = LAZY[form](catalog.snapshot()[source], connection)
        tx[target].merge(rows, "s.id + 1 = t.id").when_not_matched_insert_all().execute()
    one.commit()
    with pytest.raises(errors.ConcurrentAppendException):
        other.commit()


STATEMENTS = {
    "INSERT": "INSERT INTO {target} SELECT id FROM source",
    "INSERT of ordered rows": "INSERT INTO {target} SELECT id FROM source ORDER BY id LIMIT 1",
    "MERGE": "MERGE INTO {target} t USING source s ON s.id + 1 = t.id WHEN NOT MATCHED THEN INSERT *",
    "MERGE of a query": (
        "MERGE INTO {target} t USING (SELECT id FROM source WHERE id > 0) s ON s.id + 1 = t.id "
        "WHEN NOT MATCHED THEN INSERT *"
    ),
}


@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.parametrize("form", ["a table", "a reader of a scan", "a dataset", "a filtered frame"])
def test_rows_that_are_given_to_a_block_are_reads(catalog, connection, statement, form):
    texts = {name: f"BEGIN ATOMIC {STATEMENTS[statement].format(target=name)}; END" for name in (A, B)}
    rows = {name: LAZY[form](catalog.snapshot()[name], connection) for name in (A, B)}
    refdelta.sql(texts[B], catalog=catalog, source=rows[A])
    # The second block has begun by its rows: they are of the version before the first one.
    with pytest.raises((errors.InvalidArgumentError, errors.ConcurrentModificationError)):
        refdelta.sql(texts[A], catalog=catalog, source=rows[B])


def test_a_handle_of_another_catalog_object_is_the_same_table(catalog, tmp_path):
    with SqlCatalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path / "warehouse") as second:
        skewed(catalog, lambda name: second.table(name).scan().to_reader())


def test_rows_of_tables_without_a_part_conflict_with_nothing(catalog, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    write_deltalake(elsewhere, pa.table({"id": [7]}))
    table = refdelta.DeltaTable(elsewhere)
    tx = catalog.transaction()
    tx[A].append(table.to_polars())
    write_deltalake(elsewhere, pa.table({"id": [8]}), mode="append")
    assert tx.commit()[A].version == 2
    assert catalog.table(A).history(1)[0]["isBlindAppend"] is True
    assert isinstance(table.to_pyarrow_dataset(), ds.FileSystemDataset)
