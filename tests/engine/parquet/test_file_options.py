"""Options of Parquet files beyond those of the table's properties."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.engine.parquet import file_options
from refdelta.engine.parquet.file_options import ColumnOptions, FileOptions, files_written_with

# pyarrow 21, the lowest version, has no such arguments.
needs_blooms = pytest.mark.skipif(
    "bloom_filter_options" not in file_options._KNOWN and int(pa.__version__.split(".")[0]) < 26,
    reason="a pyarrow without Bloom filters",
)

ROWS = pa.table(
    {
        "id": pa.array(range(1000), pa.int64()),
        "flag": [True, False] * 500,
        "name": [str(n % 7) for n in range(1000)],
        "s": [{"a": n, "l": [n]} for n in range(1000)],
    }
)


def columns(table):
    (path,) = table.file_uris()
    metadata = pq.read_metadata(path)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return groups, {groups[0].column(n).path_in_schema: groups[0].column(n) for n in range(metadata.num_columns)}


@pytest.mark.tier("test")
@needs_blooms
def test_a_file_is_written_with_the_options_and_has_the_same_rows(tmp_path):
    options = FileOptions(
        codec="zstd",
        level=7,
        row_group_rows=300,
        page_rows=50,
        default=ColumnOptions(dictionary=False),
        columns={
            "id": ColumnOptions(encoding="DELTA_BINARY_PACKED", bloom={"ndv": 1000, "fpp": 0.01}),
            "name": ColumnOptions(dictionary=True, statistics=False),
            "s.l.list.element": ColumnOptions(bloom=True),
        },
    )
    with files_written_with(options):
        write_deltalake(tmp_path, ROWS)
    table = DeltaTable(tmp_path)
    groups, found = columns(table)
    assert [group.num_rows for group in groups] == [300, 300, 300, 100]
    assert {column.compression for column in found.values()} == {"ZSTD"}
    assert Path(table.file_uris()[0]).name.endswith(".zstd.parquet")
    assert "DELTA_BINARY_PACKED" in found["id"].encodings
    assert found["name"].has_dictionary_page
    assert not found["s.a"].has_dictionary_page
    assert found["id"].is_stats_set
    assert not found["name"].is_stats_set
    blooms = {path for path, column in found.items() if column.bloom_filter_offset is not None}
    assert blooms == {"id", "s.l.list.element"}
    # Statistics in the log do not depend on those of the file.
    assert table.get_add_actions(flatten=True).column("max.name").to_pylist() == ["6"]
    assert table.to_pyarrow_table().equals(ROWS)


def test_threads_of_a_compaction_have_the_options_of_their_caller(tmp_path):
    parts = pa.table({"id": range(40), "p": [n % 2 for n in range(40)]})
    for start in (0, 20):
        write_deltalake(tmp_path, parts.slice(start, 20), mode="append", partition_by=["p"])
    with files_written_with(FileOptions(codec="gzip")):
        DeltaTable(tmp_path).optimize.compact()
    paths = DeltaTable(tmp_path).file_uris()
    assert len(paths) == 2
    assert {pq.read_metadata(path).row_group(0).column(0).compression for path in paths} == {"GZIP"}


@pytest.mark.tier("test")
@needs_blooms
def test_a_boolean_has_no_bloom_filter_and_options_end_with_their_context(tmp_path):
    with files_written_with(FileOptions(default=ColumnOptions(bloom=True))):
        write_deltalake(tmp_path / "one", ROWS.select(["flag", "id"]))
    _, found = columns(DeltaTable(tmp_path / "one"))
    assert [found[name].bloom_filter_offset is None for name in ("flag", "id")] == [True, False]
    write_deltalake(tmp_path / "two", ROWS)
    _, found = columns(DeltaTable(tmp_path / "two"))
    assert found["id"].bloom_filter_offset is None
    assert found["id"].compression == "SNAPPY"


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        (FileOptions(page_rows=50), "max_rows_per_page"),
        (FileOptions(default=ColumnOptions(bloom=True)), "bloom_filter_options"),
    ],
)
def test_an_option_that_the_installed_pyarrow_lacks_is_refused_by_name(tmp_path, monkeypatch, options, argument):
    monkeypatch.setattr(file_options, "_KNOWN", file_options._KNOWN - {argument})
    with files_written_with(options), pytest.raises(errors.InvalidArgumentError, match=f"{argument}: upgrade it"):
        write_deltalake(tmp_path, ROWS)
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.tier("test")
@needs_blooms
def test_floats_have_no_bloom_filter(tmp_path):
    """Spark looks for the bits of the zero that is asked for, and does not find the other one."""
    rows = pa.table({"n": [1], "d": [0.0], "s": [{"f": -0.0}]}).cast(
        pa.schema([("n", pa.int64()), ("d", pa.float64()), ("s", pa.struct([("f", pa.float32())]))])
    )
    with files_written_with(FileOptions(default=ColumnOptions(bloom=True))):
        write_deltalake(tmp_path, rows)
    _, found = columns(DeltaTable(tmp_path))
    assert [path for path, column in found.items() if column.bloom_filter_offset is not None] == ["n"]
