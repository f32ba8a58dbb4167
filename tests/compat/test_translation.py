"""deltalake's SQL, arguments and values in the compat module, compared with deltalake's own results.

Tests of compat.deltalake._util, compat.deltalake.arrow, compat.deltalake.builders, compat.deltalake.history,
compat.deltalake.parquet_options, compat.deltalake.query, compat.deltalake.schema, compat.deltalake.sql,
compat.deltalake.table, compat.deltalake.writer.properties.
"""

from __future__ import annotations

import importlib
import warnings
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refdelta import errors
from refdelta.compat.deltalake.arrow import HAS_VIEWS

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
    views = library is deltalake or HAS_VIEWS
    assert pa.table(queried.read_all()).schema.types == [pa.int64(), pa.string_view() if views else pa.string()]
    changes = pa.schema(table.load_cdf().schema)
    assert changes.field("_commit_version").type == pa.uint64()
    assert changes.field("_commit_timestamp").type == pa.timestamp("ms")


@BOTH
def test_a_time_before_the_table_is_its_first_version(table):
    table.load_as_version("2001-01-01T00:00:00+00:00")
    assert table.version() == 0


def test_arguments_without_effect_warn_once(tmp_path, monkeypatch):
    monkeypatch.setattr(commit, "_SAID", set())
    properties = compat.WriterProperties(statistics_truncate_length=10)
    with pytest.warns(UserWarning, match="statistics_truncate_length has no effect"):
        compat.write_deltalake(str(tmp_path), ROWS, writer_properties=properties)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compat.write_deltalake(str(tmp_path), ROWS, mode="append", writer_properties=properties)
    table = compat.DeltaTable(str(tmp_path))
    with pytest.warns(UserWarning, match="streamed_exec has no effect"):
        table.merge(ROWS, "source.id = target.id", streamed_exec=False).when_matched_delete().execute()


def test_nanoseconds_cannot_be_switched_on():
    with pytest.raises(errors.DeltaError, match="nanoseconds"):
        compat.enable_nanosecond_timestamps()


def parquet(table):
    (path,) = table.file_uris()
    return pq.read_metadata(path)


@pytest.mark.tier("test")
@BOTH
def test_properties_of_writers_hold_for_every_statement(tmp_path, library):
    properties = library.WriterProperties(
        compression="ZSTD",
        compression_level=3,
        max_row_group_size=2,
        default_column_properties=library.ColumnProperties(dictionary_enabled=False),
        column_properties={
            "id": library.ColumnProperties(
                encoding="DELTA_BINARY_PACKED", bloom_filter_properties=library.BloomFilterProperties(True, 0.01, 10)
            )
        },
    )
    statements = [
        lambda table: library.write_deltalake(table, ROWS, mode="overwrite", writer_properties=properties),
        lambda table: table.update({"id": "id + 1"}, predicate="id = 1", writer_properties=properties),
        lambda table: table.delete("id = 2", writer_properties=properties),
        lambda table: (
            table.merge(ROWS.slice(2), "s.id = t.id", "s", "t", writer_properties=properties)
            .when_matched_update({"name": "'x'"})
            .execute()
        ),
    ]
    for number, run in enumerate(statements):
        place = str(tmp_path / str(number))
        library.write_deltalake(place, ROWS)
        run(library.DeltaTable(place))
        metadata = parquet(library.DeltaTable(place))
        column = metadata.row_group(0).column(0)
        assert (column.compression, column.path_in_schema) == ("ZSTD", "id")
        assert "DELTA_BINARY_PACKED" in column.encodings
        assert column.bloom_filter_offset is not None
        assert not metadata.row_group(0).column(1).has_dictionary_page
        assert metadata.num_row_groups == -(-metadata.num_rows // 2)


@pytest.mark.parametrize(
    ("codec", "level"), [("GZIP", 10), ("GZIP", 0), ("BROTLI", 0), ("SNAPPY", None), ("LZ4", None)]
)
def test_levels_of_codecs_are_brought_into_the_range_of_pyarrow(tmp_path, codec, level):
    properties = compat.WriterProperties(compression=codec, compression_level=level)
    compat.write_deltalake(str(tmp_path), ROWS, writer_properties=properties)
    table = compat.DeltaTable(str(tmp_path))
    assert parquet(table).row_group(0).column(0).compression == codec
    assert table.to_pyarrow_table().equals(ROWS)


@BOTH
def test_a_statement_can_leave_out_the_checkpoint(tmp_path, library):
    hooks = library.PostCommitHookProperties(create_checkpoint=False)
    library.write_deltalake(str(tmp_path), ROWS, configuration={"delta.checkpointInterval": "1"})
    before = len(list(tmp_path.glob("_delta_log/*.checkpoint.parquet")))
    library.write_deltalake(str(tmp_path), ROWS, mode="append", post_commithook_properties=hooks)
    assert len(list(tmp_path.glob("_delta_log/*.checkpoint.parquet"))) == before
    library.write_deltalake(str(tmp_path), ROWS, mode="append")
    assert len(list(tmp_path.glob("_delta_log/*.checkpoint.parquet"))) == before + 1


@BOTH
def test_missing_files_are_listed_and_removed(tmp_path, library):
    for _ in range(2):
        library.write_deltalake(str(tmp_path), ROWS, mode="append")
    table = library.DeltaTable(str(tmp_path))
    gone = Path(table.file_uris()[0])
    gone.unlink()
    assert table.repair(dry_run=True) == {"dry_run": True, "files_removed": [gone.name]}
    assert table.repair() == {"dry_run": False, "files_removed": [gone.name]}
    assert table.history(1)[0]["operation"] == "FSCK"
    assert ids(library.DeltaTable(str(tmp_path))) == [1, 2, 7]


@BOTH
def test_lists_of_files_for_other_engines(tmp_path, library):
    library.write_deltalake(str(tmp_path), ROWS)
    table = library.DeltaTable(str(tmp_path))
    table.generate()
    assert (tmp_path / "_symlink_format_manifest" / "manifest").read_text().split() == table.file_uris()


@pytest.mark.tier("test")
@BOTH
@pytest.mark.parametrize("every", [False, True])
def test_values_that_do_not_fit_become_null_if_asked_for(tmp_path, library, every):
    library.write_deltalake(str(tmp_path), pa.table({"id": [1], "n": pa.array([10], pa.int32())}))
    source = pa.table({"id": [1, 2, 3], "n": ["abc", "7", "3000000000"]})
    table = library.DeltaTable(str(tmp_path))
    merge = table.merge(source, "s.id = t.id", "s", "t", error_on_type_mismatch=False)
    if every:
        merge = merge.when_matched_update_all().when_not_matched_insert_all()
    else:
        merge = merge.when_matched_update({"n": "s.n"}).when_not_matched_insert({"id": "s.id", "n": "s.n"})
    merge.execute()
    assert table.to_pyarrow_table().sort_by("id").to_pydict() == {"id": [1, 2, 3], "n": [None, 7, None]}
    table.update({"n": "'x'"}, predicate="id = 2", error_on_type_mismatch=False)
    assert table.to_pyarrow_table().column("n").null_count == 3


@BOTH
@pytest.mark.parametrize(
    ("predicate", "found"), [("s > 3", ["10", "7"]), ("s IN (7, 3)", ["3", "7"]), ("s BETWEEN 2 AND 9.5", ["3", "7"])]
)
def test_strings_are_compared_with_numbers_as_numbers(tmp_path, library, predicate, found):
    library.write_deltalake(str(tmp_path), pa.table({"s": ["3", "10", "7"]}))
    rows = pa.table(library.DeltaTable(str(tmp_path)).scan(predicate=predicate))
    assert sorted(rows.column("s").to_pylist()) == found


@BOTH
def test_values_of_lists_of_conditions_are_texts_for_partitions_of_strings(tmp_path, library):
    library.write_deltalake(str(tmp_path), pa.table({"p": ["3", "10", "true"], "n": [1, 2, 3]}), partition_by=["p"])
    table = library.DeltaTable(str(tmp_path))

    def partitions(conditions):
        return sorted(each["p"] for each in table.partitions(file_pruning_predicate=conditions))

    assert partitions([("p", "=", 3)]) == ["3"]
    assert partitions([("p", "in", [3, 10])]) == ["10", "3"]
    assert partitions([[("p", "=", True)], [("p", "=", "3")]]) == ["3", "true"]
    with pytest.raises(ValueError, match="not a mix"):
        partitions([[("p", "=", 3)], ("p", "=", 3)])
    with pytest.raises(ValueError, match="empty conjunction"):
        partitions([[("p", "=", 3)], []])


@BOTH
def test_properties_that_are_not_deltas_are_kept_only_if_asked_for(tmp_path, library):
    schema = library.Schema([library.Field("id", "long")])
    with pytest.raises(library.exceptions.DeltaError, match="Error parsing property 'mine':'1'"):
        library.DeltaTable.create(str(tmp_path), schema, configuration={"mine": "1"})
    made = library.DeltaTable.create(str(tmp_path), schema, configuration={"mine": "1"}, raise_if_key_not_exists=False)
    made.alter.set_table_properties({"yours": "2"}, raise_if_not_exists=False)
    assert library.DeltaTable(str(tmp_path)).metadata().configuration == {"mine": "1", "yours": "2"}


@BOTH
def test_a_change_feed_needs_writer_version_four(tmp_path, library):
    feed = {"delta.enableChangeDataFeed": "true"}
    library.write_deltalake(str(tmp_path / "new"), ROWS, configuration=feed)
    library.write_deltalake(str(tmp_path / "old"), ROWS)
    library.DeltaTable(str(tmp_path / "old")).alter.set_table_properties(feed)
    for name in ("new", "old"):
        assert library.DeltaTable(str(tmp_path / name)).protocol()[:3] == (1, 4, None)


def names(library, place):
    """For each commit: operation, names of parameters, names of metrics, and values of the first as their types."""
    return [
        (commit["operation"], commit["operationParameters"], commit.get("operationMetrics", {}))
        for commit in library.DeltaTable(place).history()
    ]


@pytest.mark.tier("test")
def test_the_history_has_the_forms_of_deltalake(tmp_path):
    for library in (deltalake, compat):
        place = str(tmp_path / library.__name__)
        library.write_deltalake(place, ROWS)
        table = library.DeltaTable(place)
        table.alter.add_columns(library.Field("n", "long"))
        table.alter.add_constraint({"positive": "id > 0"})
        table.update({"name": "'y'"}, predicate="id = 2")
        table.merge(ROWS, "s.id = t.id", "s", "t").when_matched_update({"name": "s.name"}).execute()
        table.delete("id = 1")
        table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    theirs, ours = (names(library, str(tmp_path / library.__name__)) for library in (deltalake, compat))
    assert [one[0] for one in ours] == [one[0] for one in theirs]
    for (operation, wanted, metrics), (_, found, have) in zip(theirs, ours, strict=True):
        assert all(isinstance(value, str) for value in found.values())
        if operation not in ("WRITE", "MERGE"):
            assert found == wanted
        missing = {name for name in metrics if not name.startswith("num_target_files_s")} - have.keys()
        assert missing <= {"num_partitions", "num_retries", "execution_time_ms", "scan_time_ms", "rewrite_time_ms"}
        assert all(type(have[name]) is type(value) for name, value in metrics.items() if name in have)


def test_commits_of_other_engines_are_shown_as_they_are_written(tmp_path):
    deltalake.write_deltalake(str(tmp_path), ROWS)
    (theirs,), (ours,) = (library.DeltaTable(str(tmp_path)).history() for library in (deltalake, compat))
    assert {**ours, "timestamp": 0} == {**theirs, "timestamp": 0}


@BOTH
def test_notes_of_a_commit_that_json_cannot_hold(tmp_path, library):
    for notes, message in (
        ({1: "x"}, "keys must be strings"),
        ({"x": float("nan")}, "JSON"),
        ({"userName": 1}, "userName"),
    ):
        properties = library.CommitProperties(custom_metadata=notes)
        with pytest.raises(ValueError, match=message):
            library.write_deltalake(str(tmp_path), ROWS, commit_properties=properties)


@BOTH
def test_arguments_that_deltalake_refuses(table, library):
    table = library.DeltaTable(table.table_uri)
    error = library.exceptions.DeltaError
    for refused in (
        lambda: table.alter.set_table_name(""),
        lambda: table.alter.set_table_name("x" * 256),
        lambda: table.alter.set_table_description("x" * 4001),
        lambda: table.alter.drop_column_not_null("id"),
        lambda: library.QueryBuilder({"datafusion.execution.bogus_option": "1"}),
    ):
        with pytest.raises(error):
            refused()
    with pytest.raises(ValueError, match="should be positive"):
        table.vacuum(retention_hours=-1)
    with pytest.raises(ValueError, match="target_file_size must be between 1 and"):
        table.optimize.compact(target_size=2**63)
    with pytest.raises(TypeError):
        table.create_write_transaction([{"path": "x"}], "append", table.schema())
    with pytest.raises(TypeError, match="values for 'full'"), pytest.warns(DeprecationWarning, match="position"):
        table.vacuum(None, True, True, None, None, True, full=True)


def by_position(library, uri):
    """Statements with arguments by position that should be named."""
    table = library.DeltaTable(uri)
    notes = library.CommitProperties(custom_metadata={"by": "position"})
    nothing = (None,) * 5
    return {
        "create": lambda: library.DeltaTable.create(f"{uri}/new", table.schema(), "error", *nothing, notes),
        "delete": lambda: table.delete("id = 1", None, None, notes),
        "add_columns": lambda: table.alter.add_columns(library.Field("more", "long"), notes),
        "add_constraint": lambda: table.alter.add_constraint({"some": "id > 0"}, None, notes),
        "compact": lambda: table.optimize.compact(*nothing, None, None, None, notes),
    }


@BOTH
@pytest.mark.parametrize("statement", ["create", "delete", "add_columns", "add_constraint", "compact"])
def test_commit_properties_by_position_hold_and_warn_at_the_line_of_the_call(table, library, statement):
    uri = table.table_uri
    library.write_deltalake(uri, ROWS, mode="append")
    with pytest.warns(DeprecationWarning, match=rf"{statement}\(\)") as warned:
        by_position(library, uri)[statement]()
    assert [Path(one.filename).name for one in warned] == [Path(__file__).name]
    changed = library.DeltaTable(f"{uri}/new" if statement == "create" else uri)
    assert changed.history(1)[0]["by"] == "position"


@BOTH
@pytest.mark.filterwarnings("ignore:.*position:DeprecationWarning")
def test_arguments_by_position_and_by_name(tmp_path, library):
    schema = library.Schema.from_arrow(ROWS.schema)

    def create(name, *commit, **named):
        path = str(tmp_path / name)
        return library.DeltaTable.create(path, schema, "error", None, None, None, {"x": "y"}, None, *commit, **named)

    notes, steps = library.CommitProperties(), library.PostCommitHookProperties()
    table = create("lenient", notes, steps, False)
    assert table.metadata().configuration == {"x": "y"}
    table.delete("id = 1", None, None, commit_properties=notes)
    assert table.vacuum(None, True, True, None, None, True, [0]) == []
    for refused, text in (
        (lambda: create("both", notes, commit_properties=notes), "values for 'commit_properties'"),
        (lambda: create("more", None, None, False, None), "positional|by position"),
        (lambda: table.delete("id = 1", None, steps, post_commithook_properties=steps), "values for 'post_commit"),
        (lambda: table.delete("id = 1", None, None, None, None), "takes at most 2"),
        (
            lambda: table.vacuum(None, True, True, None, None, True, [0], keep_versions=[0]),
            "values for 'keep_versions'",
        ),
        (lambda: table.vacuum(None, True, True, None, None, True, [0], None), "positional|by position"),
    ):
        with pytest.raises(TypeError, match=text):
            refused()


@BOTH
def test_partition_values_as_text(library):
    text_of = importlib.import_module(f"{library.__name__}._util").encode_partition_value
    east = timezone(timedelta(hours=2))
    for value, text in (
        ("", ""),
        ("é", "é"),
        (True, "true"),
        (-3, "-3"),
        (0.1, "0.1"),
        (date(2020, 1, 2), "2020-01-02"),
        (datetime(2020, 1, 2, 3), "2020-01-02 03:00:00"),
        (datetime(2020, 1, 2, 3, 4, 5, 6, tzinfo=east), "2020-01-02 03:04:05.000006+02:00"),
        (b"a\x00\xff", "a\x00\xff"),
        (b"\\u0041", "A"),
        (np.float64(1.5), "1.5"),
        (np.str_("a"), "a"),
    ):
        assert text_of(value) == text
    for other in (None, time(1), Decimal(1), [1]):
        with pytest.raises(ValueError, match="partition value"):
            text_of(other)


@pytest.mark.parametrize("library", [compat], ids=["compat"])
def test_datafusion_is_told_what_it_takes_in_place_of_a_table(table):
    from datafusion import SessionContext

    context = SessionContext()
    with pytest.raises(
        errors.InvalidArgumentError, match=r"use context.register_dataset\(name, table.to_pyarrow_dataset"
    ):
        table.__datafusion_table_provider__()  # which register_table calls, since DataFusion 51
    context.register_dataset("t", table.to_pyarrow_dataset())
    assert context.sql("select count(*) n from t").to_pydict() == {"n": [table.count()]}
    context.from_arrow(table.to_pyarrow_table(), "copy")
    assert context.sql("select count(*) n from copy").to_pydict() == {"n": [table.count()]}


@BOTH
def test_a_compaction_by_hand(tmp_path, library):
    for start in (0, 1):
        library.write_deltalake(str(tmp_path), ROWS.slice(start, 1), mode="append")
    table = library.DeltaTable(str(tmp_path))
    pq.write_table(ROWS.slice(0, 2), tmp_path / "both.parquet")
    actions = importlib.import_module(f"{library.__name__}.transaction")
    size = (tmp_path / "both.parquet").stat().st_size
    new = actions.AddAction("both.parquet", size, {}, 0, False, '{"numRecords": 2}')
    old = [actions.RemoveAction(Path(path).name, False, 1) for path in table.file_uris()]
    table.create_write_transaction([new, *old], "append", table.schema())
    after = library.DeltaTable(str(tmp_path))
    assert [Path(path).name for path in after.file_uris()] == ["both.parquet"]
    assert ids(after) == [1, 2]


@pytest.mark.tier("test")
@BOTH
def test_a_predicate_of_an_overwrite_that_creates_the_table(tmp_path, library):
    day = pa.table({"day": ["20240731"], "n": [1]})
    for _ in range(2):
        library.write_deltalake(str(tmp_path), day, mode="overwrite", partition_by="day", predicate="day = 20240731")
    assert library.DeltaTable(str(tmp_path)).to_pyarrow_table().to_pylist() == day.to_pylist()


@BOTH
def test_types_of_another_class_and_unknown_codecs_are_refused(library):
    with pytest.raises((TypeError, ValueError)):
        library.schema.ArrayType.from_json('"long"')
    assert library.schema.PrimitiveType.from_json('"long"') == library.schema.PrimitiveType("long")
    with pytest.raises(ValueError, match="no-such-codec"):
        library.WriterProperties(compression="no-such-codec")
