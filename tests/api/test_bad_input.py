"""Bad input: one clear error that names the place, nothing written, nothing left half-written.

Tests of engine.log.location, errors.
"""

from __future__ import annotations

import json
import urllib.parse
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from refdelta import CommitProperties, DeltaTable, errors, write_deltalake
from refdelta.core.log.actions import DomainMetadata, Txn
from refdelta.core.log.codec import encode_commit
from refdelta.engine.work.executor import ThreadExecutor
from written_tables import commit_file

SMALL = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", None, "c"]})


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table"
    for _ in range(3):
        write_deltalake(path, SMALL, mode="append")
    return path


def everything(path):
    return {p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def edit(path, version, change):
    actions = [json.loads(line) for line in commit_file(path, version).read_text().splitlines()]
    for action in actions:
        change(action)
    commit_file(path, version).write_text("".join(json.dumps(a) + "\n" for a in actions))


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (lambda text: text[:-20], 2),
        (lambda text: text.replace('{"add"', '{"add', 1), 2),
        (lambda text: "not json\n" + text, 1),
        (lambda text: text.replace('"size":', '"size":"x', 1), 2),
        (lambda text: text + '{"add":{"path":5}}\n', 3),
        (lambda text: text + "[]\n", 3),
    ],
)
@pytest.mark.breaks_tables
def test_a_corrupt_commit_names_file_and_line(table, damage, line):
    file = commit_file(table, 1)
    file.write_text(damage(file.read_text()))
    before = everything(table)
    for attempt in (lambda: DeltaTable(table), lambda: write_deltalake(table, SMALL, mode="append")):
        with pytest.raises(errors.InvalidLogError) as caught:
            attempt()
        assert caught.value.file.endswith(f"{1:020d}.json")
        assert caught.value.line == line
        assert f"line {line}" in str(caught.value)
    assert everything(table) == before


@pytest.mark.breaks_tables
def test_invalid_utf8_in_a_commit(table):
    commit_file(table, 1).write_bytes(
        commit_file(table, 1).read_bytes() + b'{"txn":{"appId":"\xff\xfe","version":1}}\n'
    )
    with pytest.raises(errors.InvalidLogError, match=f"{1:020d}.json"):
        DeltaTable(table)


@pytest.mark.breaks_tables
def test_an_empty_commit_file(table):
    commit_file(table, 1).write_bytes(b"")
    with pytest.raises(errors.InvalidLogError, match=f"{1:020d}.json"):
        DeltaTable(table)


@pytest.mark.breaks_tables
def test_a_missing_commit_names_the_version(table):
    commit_file(table, 1).unlink()
    before = everything(table)
    with pytest.raises(errors.InvalidLogError, match="1"):
        DeltaTable(table)
    with pytest.raises(errors.InvalidLogError):
        write_deltalake(table, SMALL, mode="append")
    assert everything(table) == before


@pytest.mark.parametrize("size", [0, 4, 100, -1])
@pytest.mark.breaks_tables
def test_a_damaged_checkpoint_is_passed_over_while_the_commits_are_there(table, size):
    DeltaTable(table).create_checkpoint()
    file = table / "_delta_log" / f"{2:020d}.checkpoint.parquet"
    data = file.read_bytes()
    file.write_bytes(data[:size])
    assert DeltaTable(table).count() == 9
    commit_file(table, 0).unlink()
    with pytest.raises(errors.InvalidLogError, match="checkpoint"):
        DeltaTable(table)


@pytest.mark.parametrize("hint", [b"", b"{", b'{"version":"x"}', b'{"version":7,"size":3}', b"\xff"])
@pytest.mark.breaks_tables
def test_a_damaged_hint_is_passed_over(table, hint):
    DeltaTable(table).create_checkpoint()
    (table / "_delta_log" / "_last_checkpoint").write_bytes(hint)
    assert DeltaTable(table).count() == 9


@pytest.mark.breaks_tables
def test_a_data_file_that_is_gone_or_is_not_parquet(table):
    files = DeltaTable(table).file_uris()
    with Path(files[0]).open("wb") as file:
        file.write(b"this is not parquet at all")
    with pytest.raises(errors.DataFileError, match=r"part-.*parquet"):
        DeltaTable(table).to_pyarrow_table()
    with Path(files[0]).open("wb"):
        pass
    with pytest.raises(errors.DataFileError):
        DeltaTable(table).to_pyarrow_table()
    Path(files[0]).unlink()
    with pytest.raises(errors.DataFileNotFoundError, match=r"part-.*parquet") as caught:
        DeltaTable(table).to_pyarrow_table()
    assert isinstance(caught.value, FileNotFoundError)


@pytest.mark.parametrize(
    "hostile",
    [
        "../../elsewhere/f",
        "%2e%2e/%2e%2e/elsewhere/f",
        "/elsewhere/f",
        "file:///elsewhere/f",
        "s3://elsewhere/x.parquet",
        "a/../../x.parquet",
        "a%00b",
    ],
)
@pytest.mark.breaks_tables
def test_a_path_that_leaves_the_table_is_refused(table, hostile):
    def change(action):
        if "add" in action:
            action["add"]["path"] = hostile

    edit(table, 1, change)
    with pytest.raises(errors.UnsafePathError) as caught:
        DeltaTable(table).to_pyarrow_table()
    assert "passwd" in str(caught.value) or "x.parquet" in str(caught.value) or "a" in str(caught.value)


def test_an_absolute_path_inside_of_the_table_is_followed(table):
    def change(action):
        if "add" in action:
            action["add"]["path"] = "file://" + urllib.parse.quote(str(table / action["add"]["path"]))

    edit(table, 1, change)
    assert DeltaTable(table).to_pyarrow_table().num_rows == 9


@pytest.mark.breaks_tables
def test_unknown_features_are_refused_by_name(table):
    def upgrade(reader, writer):
        features = {"minReaderVersion": 3 if reader else 1, "minWriterVersion": 7, "writerFeatures": writer}
        if reader:
            features["readerFeatures"] = reader

        def change(action):
            if "protocol" in action:
                action["protocol"] = features

        return change

    edit(table, 0, upgrade(["fancyReads"], ["fancyReads"]))
    with pytest.raises(errors.UnsupportedFeatureError, match="fancyReads"):
        DeltaTable(table)
    edit(table, 0, upgrade(None, ["fancyWrites"]))
    assert DeltaTable(table).count() == 9
    before = everything(table)
    with pytest.raises(errors.UnsupportedFeatureError, match="fancyWrites") as caught:
        write_deltalake(table, SMALL, mode="append")
    assert caught.value.features == ("fancyWrites",)
    assert everything(table) == before


def test_a_folder_that_is_no_table(tmp_path):
    with pytest.raises(errors.TableNotFoundError, match=tmp_path.name):
        DeltaTable(tmp_path)
    with pytest.raises(errors.TableNotFoundError):
        DeltaTable(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    assert not DeltaTable.is_deltatable(tmp_path / "nowhere")


def test_a_file_where_a_folder_should_be(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(errors.DeltaError):
        DeltaTable(tmp_path / "file")
    with pytest.raises(errors.DeltaError):
        write_deltalake(tmp_path / "file", SMALL)


def test_wrong_options_and_uris(tmp_path):
    with pytest.raises(errors.InvalidArgumentError, match="no_such_option"):
        DeltaTable(tmp_path, storage_options={"no_such_option": "1"})
    with pytest.raises(errors.InvalidArgumentError, match="nosuchscheme"):
        DeltaTable("nosuchscheme://x/y")
    with pytest.raises(errors.InvalidArgumentError):
        DeltaTable("")


@pytest.mark.breaks_tables
def test_a_log_without_metadata_or_protocol(table):
    text = commit_file(table, 0).read_text().splitlines()
    for missing in ("metaData", "protocol"):
        commit_file(table, 0).write_text("\n".join(line for line in text if f'"{missing}"' not in line[:20]) + "\n")
        with pytest.raises(errors.InvalidLogError, match=missing):
            DeltaTable(table)


@pytest.mark.breaks_tables
def test_a_schema_that_is_nonsense(table):
    def change(action):
        if "metaData" in action:
            action["metaData"]["schemaString"] = '{"type":"struct","fields":[{"name":"x"}]}'

    edit(table, 0, change)
    with pytest.raises(errors.DeltaError):
        DeltaTable(table).to_pyarrow_table()


@pytest.mark.parametrize(
    "options",
    [
        {"app_id": "job", "app_version": "1"},
        {"app_id": "job", "app_version": 1.5},
        {"app_id": "job", "app_version": True},
        {"app_id": "job", "app_version": 2**63},
        {"app_id": 5, "app_version": 1},
        {"partition_by": 5},
        {"partition_by": [5]},
        {"cluster_by": [b"id"]},
        {"mode": "overwrite", "predicate": 5},
        {"target_file_size": "1MB"},
        {"configuration": "delta.appendOnly=true"},
        {"configuration": [("delta.appendOnly", "true")]},
        {"storage_options": "key=secret"},
        {"storage_options": [1]},
        {"commit_properties": {"user_metadata": "x"}},
        {"commit_properties": CommitProperties(user_metadata=5)},
        {"commit_properties": CommitProperties(custom_metadata=["x"])},
        {"commit_properties": CommitProperties(custom_metadata={"x": object()})},
        {"commit_properties": CommitProperties(app_transactions=[SimpleNamespace(app_id="job", version="1")])},
    ],
)
def test_arguments_of_another_kind_are_refused_and_leave_nothing(table, tmp_path, options):
    before = everything(table)
    with pytest.raises(errors.InvalidArgumentError) as caught:
        write_deltalake(table, SMALL, **{"mode": "append", **options})
    assert "secret" not in str(caught.value)
    assert everything(table) == before
    with pytest.raises(errors.InvalidArgumentError):
        write_deltalake(tmp_path / "new", SMALL, **options)
    assert not everything(tmp_path / "new")


@pytest.mark.parametrize("option", ["name", "description"])
def test_a_new_table_is_named_by_text(tmp_path, option):
    with pytest.raises(errors.InvalidArgumentError, match=f"{option} must be a string, not 5"):
        write_deltalake(tmp_path / "new", SMALL, **{option: 5})
    assert not everything(tmp_path / "new")


def test_numbers_of_numpy_are_numbers(table):
    write_deltalake(table, SMALL, mode="append", app_id="job", app_version=np.int64(7))
    assert DeltaTable(table).transaction_version("job") == 7


@pytest.mark.parametrize("columns", ["id", 5, [5], [None], b"id"])
def test_columns_are_a_list_of_names(table, columns):
    with pytest.raises(errors.InvalidArgumentError, match="columns must be a list of names"):
        DeltaTable(table).to_pyarrow_table(columns)


@pytest.mark.parametrize(
    "action",
    [
        Txn(app_id="job", version="1"),  # type: ignore[arg-type]
        DomainMetadata(domain="d", configuration=5, removed=False),  # type: ignore[arg-type]
    ],
    ids=repr,
)
def test_what_no_reader_takes_is_never_encoded(action):
    with pytest.raises(errors.InvalidArgumentError, match="cannot be committed"):
        encode_commit([action])


@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.delete(5),
        lambda table: table.delete(["id = 1"]),
        lambda table: table.update(["name"]),
        lambda table: table.update({"name": "'x'"}, predicate=5),
        lambda table: table.merge(SMALL, 5).when_matched_delete().execute(),
        lambda table: table.merge(SMALL, None).when_matched_delete().execute(),
        lambda table: table.delete("id = 1", executor="spark"),
        lambda table: table.delete("id = 1", executor=ThreadExecutor),
        lambda table: table.vacuum(executor="spark"),
        lambda table: table.delete("id = 1", isolation=5),
        lambda table: table.optimize.compact(target_size="1MB"),
        lambda table: table.optimize.compact(max_temp_directory_size="1MB"),
        lambda table: table.optimize.z_order(5),
        lambda table: table.history("10"),
        lambda table: table.alter.set_table_properties("delta.appendOnly=true"),
    ],
)
def test_statements_refuse_arguments_of_another_kind(table, call):
    before = everything(table)
    with pytest.raises((errors.InvalidArgumentError, errors.PredicateError)):
        call(DeltaTable(table))
    assert everything(table) == before


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no folder here in which nothing can be created")
def test_a_place_in_which_nothing_can_be_created():
    with pytest.raises(errors.StoreError, match="/proc/refdelta"):
        write_deltalake("/proc/refdelta/table", SMALL)
