"""deltalake's SQL, arguments and values in the compat module, compared with deltalake's own results."""

from __future__ import annotations

import importlib
import warnings

import pyarrow as pa
import pytest

from refdelta import errors

deltalake = pytest.importorskip("deltalake")
compat = importlib.import_module("refdelta.compat.deltalake")
commit = importlib.import_module("refdelta.compat.deltalake.commit")
BOTH = pytest.mark.parametrize("library", [deltalake, compat], ids=["deltalake", "compat"])
ROWS = pa.table({"id": [1, 2, 7], "name": ["a", "b", "c\\d"], "Amount": [1.0, 2.0, 3.0]})


@pytest.fixture
def table(tmp_path, library):
    library.write_deltalake(str(tmp_path), ROWS)
    return library.DeltaTable(str(tmp_path))


def ids(table):
    return sorted(table.to_pyarrow_table(columns=["id"]).column("id").to_pylist())


@BOTH
@pytest.mark.parametrize(
    ("predicate", "left"),
    [
        ("\"name\" != 'a'", [1]),
        ("`name` = 'a'", [2, 7]),
        ("name = 'c\\d'", [1, 2]),
        ("id / 2 = 3", [1, 2]),
        ("(id + 1) / 2 = 1", [7]),
        ('"Amount" / 2 = 1.5', [1, 2]),
    ],
)
def test_a_predicate_has_the_meaning_that_deltalake_gives_it(table, predicate, left):
    table.delete(predicate)
    assert ids(table) == left


@BOTH
def test_updates_name_columns_in_quotes_and_divide_whole_numbers(table):
    table.update({'"name"': "'\\n'", "id": "id / 2"}, predicate='"id" = 7')
    found = table.to_pyarrow_table().sort_by("id").to_pylist()
    assert [(row["id"], row["name"]) for row in found] == [(1, "a"), (2, "b"), (3, "\\n")]


@BOTH
def test_nanoseconds_are_cut_to_microseconds(tmp_path, library):
    times = pa.array([1_001, 2_999], pa.timestamp("ns", "UTC"))
    library.write_deltalake(str(tmp_path), pa.table({"at": times}))
    read = library.DeltaTable(str(tmp_path)).to_pyarrow_table().column("at")
    assert sorted(read.cast(pa.int64()).to_pylist()) == [1, 2]


@BOTH
def test_streams_have_the_types_that_deltalake_gives_them(tmp_path, library):
    library.write_deltalake(str(tmp_path), ROWS, configuration={"delta.enableChangeDataFeed": "true"})
    table = library.DeltaTable(str(tmp_path))
    queried = library.QueryBuilder().register("t", table).execute("SELECT id, name FROM t ORDER BY id")
    assert pa.table(queried.read_all()).schema.types == [pa.int64(), pa.string_view()]
    changes = pa.schema(table.load_cdf().schema)
    assert changes.field("_commit_version").type == pa.uint64()
    assert changes.field("_commit_timestamp").type == pa.timestamp("ms")


@BOTH
def test_a_time_before_the_table_is_its_first_version(table):
    table.load_as_version("2001-01-01T00:00:00+00:00")
    assert table.version() == 0


def test_arguments_without_effect_warn_once(tmp_path, monkeypatch):
    monkeypatch.setattr(commit, "_SAID", set())
    properties = compat.WriterProperties(compression="ZSTD")
    with pytest.warns(UserWarning, match="writer_properties has no effect"):
        compat.write_deltalake(str(tmp_path), ROWS, writer_properties=properties)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compat.write_deltalake(str(tmp_path), ROWS, mode="append", writer_properties=properties)
    table = compat.DeltaTable(str(tmp_path))
    hooks = compat.PostCommitHookProperties(create_checkpoint=False)
    with pytest.warns(UserWarning, match="post_commithook_properties has no effect"):
        table.delete("id = 1", post_commithook_properties=hooks)
    with pytest.warns(UserWarning, match="error_on_type_mismatch has no effect"):
        table.update({"id": "id + 1"}, error_on_type_mismatch=False)


def test_methods_that_are_missing_say_so(tmp_path):
    compat.write_deltalake(str(tmp_path), ROWS)
    table = compat.DeltaTable(str(tmp_path))
    with pytest.raises(errors.UnsupportedFeatureError, match="refdelta verify"):
        table.repair()
    with pytest.raises(errors.UnsupportedFeatureError, match="manifest"):
        table.generate()
    with pytest.raises(errors.DeltaError, match="nanoseconds"):
        compat.enable_nanosecond_timestamps()
