"""Lazy readers give the rows of ``to_pyarrow_table``, and never a deleted one.

Tests of api.datasets, api.polars_conditions, api.table_scan, arrow.scanner.
"""

from __future__ import annotations

import datetime as dt
import pickle
import shutil
import sys
import uuid
from pathlib import Path

import duckdb
import fsspec
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet
import pytest

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.api.polars_conditions import condition_of
from refdelta.arrow import variant
from refdelta.engine.parquet.files import open_parquet
from refdelta.engine.parquet.metadata import FooterForm
from refdelta.engine.scan.foreign import same_content
from refdelta.expressions.sql import parse_predicate
from refdelta.table.types import DATE, LONG, STRING, TIMESTAMP, StructField, StructType
from refdelta.transaction import background
from refdelta_storage.memory import MemoryStore

VECTORS = {"delta.enableDeletionVectors": "true"}
MAPPED = {"delta.columnMapping.mode": "name"}


@pytest.fixture(scope="module", params=[{}, VECTORS, {**VECTORS, **MAPPED}], ids=["plain", "vectors", "mapped"])
def written(request, tmp_path_factory):
    """The folder of a table that no test changes."""
    path = tmp_path_factory.mktemp("written") / "table"
    for start in (0, 100, 200):
        ids = list(range(start, start + 100))
        rows = pa.table({"id": ids, "name": [f"n{i}" for i in ids], "p": [str(start)] * 100, "x": [float("nan")] * 100})
        write_deltalake(path, rows, mode="append", partition_by=["p"], configuration=request.param)
    DeltaTable(path).delete("id % 10 = 3")
    background.settle()
    return path


@pytest.fixture
def table(written, tmp_path):
    """A copy of the table."""
    return DeltaTable(shutil.copytree(written, tmp_path / "table"))


CONDITIONS = [
    (pl.col("id") < 15, "id < 15"),
    (pl.lit(250) <= pl.col("id"), "id >= 250"),
    ((pl.col("p") == "100") & (pl.col("x") > 1.0), "p = '100' AND x > 1.0"),
    ((pl.col("name") == "n7") | (pl.col("id") > 295), "name = 'n7' OR id > 295"),
    (~(pl.col("id") < 250), "NOT id < 250"),
    (pl.col("id").is_in([3, 4]), "id IN (3, 4)"),
]


@pytest.mark.parametrize(("expression", "sql"), CONDITIONS, ids=[sql for _, sql in CONDITIONS])
def test_polars_reads_the_same_rows(table, expression, sql):
    found = table.to_polars().filter(expression).select("id", "p").collect().sort("id")
    assert found.rows() == sorted(zip(*table.to_pyarrow_table(["id", "p"], sql).to_pydict().values(), strict=True))


def test_polars_columns_limits_and_filters(table):
    frame = table.to_polars(columns=["p", "id"], filters="id >= 200")
    assert frame.collect_schema().names() == ["p", "id"]
    assert frame.select(pl.len()).collect().item() == 90
    assert frame.head(7).collect().height == 7
    assert frame.select("p").collect()["p"].to_list() == ["200"] * 90
    assert table.to_polars().filter(pl.col("p") < "150").select("p").collect().height == 180
    assert frame.collect().sort("id").equals(pl.DataFrame(table.to_pyarrow_table(["p", "id"], "id >= 200")).sort("id"))


@pytest.mark.breaks_tables
def test_a_condition_of_polars_leaves_files_out(table):
    lost = table.scan(predicate="id < 100").files["path"].to_pylist()
    folder = Path(table.table_uri.removeprefix("file://"))
    for path in lost:
        (folder / path).unlink()
    assert table.to_polars().filter(pl.col("id") >= 250).select(pl.len()).collect().item() == 45


def test_duckdb_reads_the_same_rows(table):
    with duckdb.connect() as connection:
        relation = table.to_duckdb(connection, "rows")
        for _ in range(2):  # a relation can be read again
            found = connection.sql("SELECT id, p FROM rows WHERE id >= 95 AND p <> '200' ORDER BY id").fetchall()
            wanted = table.to_pyarrow_table(["id", "p"], "id >= 95 AND p <> '200'").to_pydict()
            assert found == sorted(zip(*wanted.values(), strict=True))
        assert relation.count("*").fetchall() == [(270,)]


def test_a_dataset_reads_the_same_rows_or_refuses(table):
    vectors = sum(vector is not None for vector in table.scan().files["deletionVector"].to_pylist())
    if not vectors and table.metadata().configuration.get("delta.columnMapping.mode") is None:
        found = table.to_pyarrow_dataset().to_table(filter=pc.field("id") > 150).sort_by("id")
        wanted = table.to_pyarrow_table(filters="id > 150").sort_by("id")
        assert found.drop_columns("x").equals(wanted.drop_columns("x"))  # NaN equals nothing
        assert table.to_pyarrow_dataset("p = '100'").count_rows() == 90
    else:
        with pytest.raises(errors.InvalidArgumentError, match="to_polars"):
            table.to_pyarrow_dataset()


def test_a_scan_is_shown_in_one_short_line(table):
    shown = repr(table.scan(predicate="id >= 250"))
    assert shown.endswith("1 of 3 files>")
    assert len(shown) < 300


def expected_readers(table):
    mapped = "delta.columnMapping.mode" in table.metadata().configuration
    vectors = "delta.enableDeletionVectors" in table.metadata().configuration
    without = ", without the rows of deletion vectors" * vectors
    own = {"polars": f"scan_parquet of Polars{without}", "duckdb": f"read_parquet of DuckDB{without}"}
    return own, mapped or vectors


def test_a_scan_names_the_readers(table):
    told = table.scan().explain(readers=True)
    own, refused = expected_readers(table)
    assert {engine: told.readers[engine] for engine in own} == own
    assert told.readers["pyarrow"].startswith("refused: " if refused else "a pyarrow dataset")
    assert f"  duckdb: {own['duckdb']}" in str(told).splitlines()
    assert "readers" not in table.scan().explain().as_dict()
    assert "filter on rows" in table.scan(predicate="id > 150").explain(readers=True).readers["polars"]


def test_each_library_reads_the_files_itself(table, monkeypatch):
    def fail(*_):
        raise AssertionError("refdelta read the rows")

    monkeypatch.setattr("refdelta.engine.scan.scan.Scan.to_batches", fail)
    assert table.to_polars().filter(pl.col("id") < 50).select("id").collect().height == 45
    with duckdb.connect() as connection:
        assert table.to_duckdb(connection).filter("id < 50").count("*").fetchall() == [(45,)]


@pytest.mark.tier("test")
@pytest.mark.sample(check=1)
@pytest.mark.parametrize("deleted", [3, 60_000])
def test_deleted_rows_of_many_row_groups(tmp_path, deleted):
    rows = pa.table({"id": range(100_000)})
    write_deltalake(tmp_path, rows, configuration=VECTORS, target_file_size=100_000)
    DeltaTable(tmp_path).delete(f"id % 100000 >= 20000 AND id < {20_000 + deleted}")
    table = DeltaTable(tmp_path)
    wanted = [n for n in range(100_000) if not 20_000 <= n < 20_000 + deleted]
    assert table.to_polars().collect()["id"].sort().to_list() == wanted
    with duckdb.connect() as connection:
        assert table.to_duckdb(connection).order("id").to_arrow_table()["id"].to_pylist() == wanted


def test_other_stores(tmp_path):
    uri = "memory://lazy-readers"
    for start in (0, 100):
        rows = pa.table({"id": range(start, start + 100), "p": ["x"] * 50 + [None] * 50})
        write_deltalake(uri, rows, mode="append", partition_by=["p"])
    table = DeltaTable(uri)
    assert table.scan().explain(readers=True).readers["duckdb"].startswith("a pyarrow dataset: ")
    assert table.to_polars().filter(pl.col("id").is_in([7, 150])).collect()["id"].sort().to_list() == [7, 150]
    assert table.to_pyarrow_dataset().to_table(filter=pc.field("p").is_null()).num_rows == 100
    with duckdb.connect() as connection:
        assert table.to_duckdb(connection).filter("id >= 190 AND p IS NULL").count("*").fetchall() == [(10,)]


# --- files that Python code reads --------------------------------------------------------------------------------


@pytest.fixture
def stored():
    """A table in memory, of three files: 100 rows from 0, 100 and 200, each in a partition of that name."""
    uri = f"memory://{uuid.uuid4()}"
    for start in (0, 100, 200):
        rows = pa.table({"id": range(start, start + 100), "p": [str(start)] * 100})
        write_deltalake(uri, rows, mode="append", partition_by=["p"])
    background.settle()
    return DeltaTable(uri)


@pytest.fixture
def opened(monkeypatch):
    """The keys of the files that were opened in memory."""
    keys, open_input = [], MemoryStore.open_input

    def opens(self, key, size=None):
        keys.append(key)
        return open_input(self, key, size)

    monkeypatch.setattr(MemoryStore, "open_input", opens)
    return keys


def through_fsspec(table):
    files = fsspec.filesystem("memory", skip_instance_cache=True)
    for info in table.store.list():
        files.pipe(f"/copy/{info.key}", table.store.get(info.key))
    return table.to_pyarrow_dataset(filesystem=fsspec.filesystem("dir", path="/copy", fs=files))


DATASETS = {
    "own": lambda table: table.to_pyarrow_dataset(),
    "filtered": lambda table: table.to_pyarrow_dataset().filter(pc.field("id") >= 0),
    "with another schema": lambda table: table.to_pyarrow_dataset().replace_schema(pa.schema([("id", pa.int64())])),
    "filtered, with another schema": lambda table: (
        table.to_pyarrow_dataset().filter(pc.field("id") >= 0).replace_schema(pa.schema([("id", pa.int64())]))
    ),
    "pickled": lambda table: pickle.loads(pickle.dumps(table.to_pyarrow_dataset())),
    "through fsspec": through_fsspec,
}


@pytest.mark.parametrize("made", DATASETS)
def test_a_reader_of_a_dataset_starts_its_scan_with_the_first_batch(stored, opened, made, monkeypatch):
    """And so without the interpreter's lock, which Arrow's threads need to open files by Python code: pyarrow's own
    ``to_reader`` opens files while it holds the lock, and can wait for these threads without an end.
    """
    dataset = DATASETS[made](stored)
    asked = opened
    if made == "through fsspec":
        asked, open_file = [], pyarrow.fs.FSSpecHandler.open_input_file
        monkeypatch.setattr(
            pyarrow.fs.FSSpecHandler, "open_input_file", lambda *of: asked.append(of[1]) or open_file(*of)
        )
    asked.clear()
    # DuckDB asks the class for its scanners.
    for scanner in (dataset.scanner(["id"]), type(dataset).scanner(dataset, columns=["id"], filter=pc.field("id") > 9)):
        for reader in (scanner.to_reader(), pa.RecordBatchReader.from_stream(scanner)):
            assert reader.schema.names == ["id"]
            assert not asked
    assert scanner.to_reader().read_all()["id"].to_pylist() == list(range(10, 300))
    assert len(asked) == 3


def test_a_scanner_of_a_dataset_has_the_methods_of_pyarrow(stored):
    dataset = stored.to_pyarrow_dataset()
    scanner = dataset.scanner(columns=["id"], filter=pc.field("id") >= 150)
    assert scanner.projected_schema == pa.schema([("id", pa.int64())])
    assert scanner.dataset_schema == dataset.schema
    ids = list(range(150, 300))
    assert pa.table(scanner)["id"].to_pylist() == scanner.to_table()["id"].to_pylist() == ids
    assert [n for batch in scanner.to_batches() for n in batch["id"].to_pylist()] == ids
    assert scanner.count_rows() == dataset.filter(pc.field("id") >= 150).count_rows() == 150
    assert scanner.head(2)["id"].to_pylist() == scanner.take([0, 1])["id"].to_pylist() == [150, 151]


def test_pyarrow_writes_the_rows_of_a_dataset_and_of_its_scanner(stored, tmp_path):
    dataset = stored.to_pyarrow_dataset()
    for name, rows in (("whole", dataset), ("part", dataset.scanner(filter=pc.field("id") < 120))):
        pyarrow.dataset.write_dataset(rows, tmp_path / name, format="parquet")
    assert pyarrow.dataset.dataset(tmp_path / "whole").to_table().sort_by("id") == stored.to_pyarrow_table().sort_by(
        "id"
    )
    assert pyarrow.dataset.dataset(tmp_path / "part").to_table()["id"].to_pylist() == list(range(120))


def test_duckdb_pushes_columns_and_conditions_into_a_dataset(stored, opened):
    with duckdb.connect() as connection:
        relation = stored.to_duckdb(connection)
        dataset = stored.to_pyarrow_dataset()  # noqa: F841 - DuckDB finds it by its name
        opened.clear()
        assert relation.filter("p = '100' AND id < 105").project("id").order("id").fetchall() == [
            (100 + n,) for n in range(5)
        ]
        assert len(opened) == 1
        assert connection.sql("SELECT max(id) FROM dataset WHERE p = '0'").fetchall() == [(99,)]
        assert len(opened) == 2


def test_the_arguments_of_a_dataset(tmp_path):
    for start in (0, 100):
        rows = pa.table({"id": range(start, start + 100), "s": ["a", "b"] * 50, "p": [str(start)] * 100})
        write_deltalake(tmp_path, rows, mode="append", partition_by=["p"])
    table = DeltaTable(tmp_path)
    assert table.to_pyarrow_dataset(file_pruning_predicate="id < 5").count_rows() == 100  # files, not rows
    assert table.to_pyarrow_dataset([("p", "=", "100")]).count_rows() == 100
    large = table.to_pyarrow_dataset(as_large_types=True)
    assert large.to_table().schema.field("s").type == large.schema.field("s").type == pa.large_string()
    few = table.to_pyarrow_dataset(schema=pa.schema([("id", pa.int64())]))
    assert few.to_table().column_names == ["id"]
    options = pyarrow.dataset.ParquetReadOptions(dictionary_columns=["s"])
    read = table.to_pyarrow_dataset(parquet_read_options=options).to_table()
    assert read.schema.field("s").type == pa.dictionary(pa.int32(), pa.string())
    root = pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem())
    for place in (root, tmp_path.as_uri(), fsspec.filesystem("dir", path=str(tmp_path), fs=fsspec.filesystem("file"))):
        assert table.to_pyarrow_dataset(filesystem=place).to_table().num_rows == 200
    for wrong in ({"partitions": "id < 5"}, {"partitions": "p = '0'", "file_pruning_predicate": "id < 5"}):
        with pytest.raises(errors.InvalidArgumentError, match="partitions"):
            table.to_pyarrow_dataset(**wrong)


CONDITIONS_IN_SQL = [
    (pl.col("id").is_in([1, None, 3]), "`id` IN (1, 3)"),
    (pl.col("id").is_in([1, None], nulls_equal=True), None),
    (pl.col("id").is_between(1, 5, closed="left"), "(`id` >= 1 AND `id` < 5)"),
    (pl.col("day") > dt.date(2020, 2, 29), "`day` > DATE '2020-02-29'"),
    (pl.col("at") >= dt.datetime(2020, 1, 1, 1, tzinfo=dt.UTC), "`at` >= TIMESTAMP '2020-01-01 01:00:00+00:00'"),
    (pl.col("name") == "it's a \\'", "`name` = 'it\\'s a \\\\\\''"),
    (pl.col("name") == "line\n", None),
    (pl.col("at").is_null() & (pl.col("id").sqrt() > 1), "(`at` IS NULL)"),
    (pl.col("at").is_null() | (pl.col("id").sqrt() > 1), None),
    (~(pl.col("id") == 1), None),
    (pl.col("id") > 1.5, None),
    (pl.col("other") == 1, None),
]


@pytest.mark.parametrize(("expression", "sql"), CONDITIONS_IN_SQL)
def test_what_is_understood_of_an_expression(expression, sql):
    fields = {"id": LONG, "day": DATE, "at": TIMESTAMP, "name": STRING}
    schema = StructType(tuple(StructField(name, kind) for name, kind in fields.items()))
    assert condition_of(expression, schema, list(fields)) == sql
    if sql is not None and "name" in sql:
        assert parse_predicate(sql, schema).right.value == "it's a \\'"


@pytest.mark.parametrize("package", ["polars", "duckdb", "pandas"])
def test_a_missing_package_is_named_with_its_extra(table, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(errors.InvalidArgumentError, match=rf"pip install 'refdelta\[{package}\]'"):
        getattr(table, f"to_{package}")()


def test_a_change_feed_without_rows_has_a_schema(tmp_path):
    write_deltalake(tmp_path, pa.table({"id": [1]}), configuration={"delta.enableChangeDataFeed": "true"})
    feed = DeltaTable(tmp_path).load_cdf(predicate="id = 2")
    assert pl.from_arrow(feed).columns == ["id", "_change_type", "_commit_version", "_commit_timestamp"]


@pytest.mark.breaks_tables
def test_the_footers_of_one_form_are_opened_once(tmp_path, monkeypatch):
    for start in range(0, 60, 10):
        write_deltalake(tmp_path, pa.table({"id": range(start, start + 10)}), mode="append")
    table = DeltaTable(tmp_path)
    odd = tmp_path / table.scan().files["path"].to_pylist()[4]
    pyarrow.parquet.write_table(pyarrow.parquet.read_table(odd).rename_columns(["ID"]), odd)
    opened = []

    def opens(store, key, *arguments, **options):
        opened.append(key)
        return open_parquet(store, key, *arguments, **options)

    monkeypatch.setattr("refdelta.engine.scan.foreign.open_parquet", opens)
    assert table.to_polars().collect()["id"].sort().to_list() == list(range(60))
    assert len(opened) == 2
    assert odd.name in opened
    with pytest.raises(errors.InvalidArgumentError, match=rf"{odd.name} is stored as 'ID'"):
        table.to_pyarrow_dataset().to_table()
    odd.unlink()
    with pytest.raises(Exception, match=rf"{odd.name}.*does not exist"):
        table.to_polars().collect()


# --- counts that lie ---------------------------------------------------------------------------------------------


def forged_rows(path, rows):
    """Write another number of rows into the footer of a file, in as many bytes."""
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little")
    footer = content[-8 - length : -8]
    own = pyarrow.parquet.read_metadata(path).num_rows
    field = FooterForm.of(footer, pyarrow.parquet.read_metadata(path)).head
    assert footer.startswith(field + bytes([2 * own]))
    path.write_bytes(content[: -8 - length] + field + bytes([2 * rows]) + footer[len(field) + 1 :] + content[-8:])


@pytest.mark.tier("test")
@pytest.mark.breaks_tables
@pytest.mark.parametrize("lie", ["numRecords", "footer"])
def test_counts_that_lie_show_no_deleted_row(tmp_path, lie):
    for start in (0, 50, 100):
        rows = pa.table({"id": range(start, start + 50)})
        write_deltalake(tmp_path, rows, mode="append", configuration=VECTORS)
    DeltaTable(tmp_path).delete("id % 10 = 3")
    if lie == "numRecords":
        log = tmp_path / "_delta_log" / "00000000000000000003.json"
        log.write_text(log.read_text().replace(r"\"numRecords\":50", r"\"numRecords\":7"))
        (tmp_path / "_delta_log" / "00000000000000000003.crc").unlink()
    else:
        for path in DeltaTable(tmp_path).scan().files["path"].to_pylist()[:2]:
            forged_rows(tmp_path / path, 41)
    table = DeltaTable(tmp_path)
    assert all((table.scan().explain(readers=True).readers[name]).find("deletion") > 0 for name in ("polars", "duckdb"))
    with duckdb.connect() as connection:
        frame, relation = table.to_polars(), table.to_duckdb(connection)
        reads = [frame.collect, frame.filter(pl.col("id") > 40).collect, relation.pl]
        for read in reads:
            try:
                found = read()["id"].to_list()
            except (pl.exceptions.PolarsError, duckdb.Error):
                assert lie == "footer"
                continue
            assert found
            assert not [n for n in found if n % 10 == 3]
            assert lie == "footer" or {n for n in range(41, 150) if n % 10 != 3} <= set(found)


# --- vectors in some files ---------------------------------------------------------------------------------------


def test_a_dataset_over_the_files_without_vectors(tmp_path):
    for p in "ab":
        rows = pa.table({"id": range(100), "p": [p] * 100})
        write_deltalake(tmp_path, rows, mode="append", partition_by=["p"], configuration=VECTORS)
    DeltaTable(tmp_path).delete("p = 'b' AND id < 10")
    table = DeltaTable(tmp_path)
    with pytest.raises(errors.InvalidArgumentError, match="deletion vectors, which a dataset cannot apply"):
        table.to_pyarrow_dataset()
    for arguments in ({"partitions": "p = 'a'"}, {"file_pruning_predicate": "p = 'a' AND id < 10"}):
        dataset = table.to_pyarrow_dataset(**arguments)
        assert dataset.count_rows() == dataset.to_table().num_rows == 100


def test_pyarrow_counts_rows_of_row_groups_that_a_fragment_does_not_have(tmp_path):
    """Why files are refused of which a vector deletes whole row groups: where this fails, they could be fragments."""
    pyarrow.parquet.write_table(pa.table({"id": range(100)}), tmp_path / "f.parquet", row_group_size=10)
    form, place = pyarrow.dataset.ParquetFileFormat(), pyarrow.fs.LocalFileSystem()
    fragment = form.make_fragment(str(tmp_path / "f.parquet"), place, row_groups=[3, 4])
    dataset = pyarrow.dataset.FileSystemDataset([fragment], pa.schema([("id", pa.int64())]), form, place)
    assert dataset.to_table().num_rows == 20
    assert dataset.count_rows() == 100


# --- layouts of other writers ------------------------------------------------------------------------------------

LAYOUTS = {
    "large": (pa.large_string(), pa.large_binary(), pa.large_list(pa.large_string())),
    "views": (pa.string_view(), pa.binary_view(), pa.large_list(pa.string_view())),
}


@pytest.mark.breaks_tables
@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_in_another_layout_of_arrow(tmp_path, layout):
    """As deltalake stores what Polars gives it."""
    text, binary, listed = LAYOUTS[layout]
    values = {"id": [1, 2, 3], "text": ["a", None, "c"], "bytes": [b"\xff", None, b""], "list": [["x"], None, []]}
    write_deltalake(tmp_path, pa.table(values), configuration=VECTORS)
    (stored,) = DeltaTable(tmp_path).scan().files["path"].to_pylist()
    own = pa.schema([("id", pa.int64()), ("text", text), ("bytes", binary), ("list", listed)])
    pyarrow.parquet.write_table(pa.table(values, own), tmp_path / stored, row_group_size=2)
    table = DeltaTable(tmp_path)
    told = table.scan().explain(readers=True).readers
    assert [told["polars"], told["duckdb"]] == ["scan_parquet of Polars", "read_parquet of DuckDB"]
    wanted = table.to_pyarrow_table()
    found = [table.to_polars().collect().to_arrow().cast(wanted.schema)]
    assert table.to_polars().filter(pl.col("text") == "c").collect()["id"].to_list() == [3]
    with duckdb.connect() as connection:
        found.append(table.to_duckdb(connection).to_arrow_table().cast(wanted.schema))
    if layout == "large":
        dataset = table.to_pyarrow_dataset()
        found.append(dataset.to_table())
        assert dataset.to_table(filter=pc.field("text") == "c")["id"].to_pylist() == [3]
    else:
        with pytest.raises(errors.InvalidArgumentError, match=r"'text' of .* is stored in a type that pyarrow cannot"):
            table.to_pyarrow_dataset().to_table()
    assert [rows.sort_by("id").to_pydict() for rows in found] == [values] * len(found)
    table.delete("id = 2")
    assert DeltaTable(tmp_path).to_polars().collect()["id"].to_list() == [1, 3]


def test_types_with_the_same_content():
    text = [pa.string(), pa.large_string(), pa.string_view()]
    for one in text:
        for other in text:
            assert same_content(pa.large_list(one), pa.list_(other))
            assert same_content(pa.map_(one, pa.list_view(other)), pa.map_(other, pa.list_(one)))
            assert same_content(pa.struct([("a", one)]), pa.struct([("a", other)]))
            assert not same_content(pa.struct([("a", one)]), pa.struct([("A", other)]))
        assert not same_content(one, pa.binary())
    assert not same_content(pa.int32(), pa.int64())
    # Parts of a variant may be stored apart, which the name of its type does not show.
    shredded = variant.VariantType(pa.struct([*variant.STORED, pa.field("typed_value", pa.int64())]))
    assert not same_content(shredded, variant.VARIANT)
    assert not same_content(pa.list_(shredded), pa.list_(variant.VARIANT))
