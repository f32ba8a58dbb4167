"""The page on erasing a person's data: after its statements no byte of the folder holds the value, and each of its
switches keeps the value out of the log.
"""

import gzip
import json
import os
import re
import sqlite3
import textwrap
import time
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import refdelta
from refdelta import DeltaTable, errors, explain_conflict, write_deltalake
from refdelta.catalog import SqlCatalog

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "erasing-data.md"
VALUE = "ada@example.org"
_ONCE = quote(VALUE, safe="")
# As it is, as in names of folders, and as in the paths of the log, which are encoded once more.
FORMS = [form.encode() for form in (VALUE, _ONCE, quote(_ONCE, safe=""))]
VECTORS = {"delta.enableDeletionVectors": "true"}
EVERYTHING = {
    **VECTORS,
    "delta.enableChangeDataFeed": "true",
    "delta.checkpointPolicy": "v2",
    "delta.checkpoint.writeStatsAsStruct": "true",
    "refdelta.logCompactionInterval": "3",
}
TRACKED = {**EVERYTHING, "delta.columnMapping.mode": "name", "delta.enableRowTracking": "true"}
UNSEEN = {"refdelta.recordPredicates": "false"}
NO_STATISTICS = {"delta.dataSkippingStatsColumns": "id,k"}


def holds(data):
    return any(form in data for form in FORMS)


def contents(path):
    """The bytes of a file, its name, and what is compressed in it."""
    data = path.read_bytes()
    yield data
    if data[:2] == b"\x1f\x8b":
        yield gzip.decompress(data)
    if data[:4] == b"PAR1":
        yield repr(pq.ParquetFile(path).read().to_pylist()).encode()


def held(folder):
    """The files and folders with the value in their name or content, relative to the folder."""
    found = [(path.relative_to(folder).as_posix(), path) for path in sorted(Path(folder).rglob("*"))]
    return [
        name for name, path in found if holds(name.encode()) or (path.is_file() and any(map(holds, contents(path))))
    ]


def in_log(names):
    return [name for name in names if "_delta_log/" in name]


def made_old(folder):
    old = time.time() - 45 * 86_400
    for path in Path(folder).rglob("*"):
        if path.is_file():
            os.utime(path, (old, old))


def people(ids, name, k=2):
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [name] * len(ids), "k": pa.array([k] * len(ids))})


def everybody():
    return pa.concat_tables([people([1], "bo"), people([2], "zoe"), people([3], VALUE), people([4], "abe")])


def used(table):
    """Run every kind of statement over the value."""
    table.update({"id": "30"}, predicate=f"name = '{VALUE}'")
    merge = table.merge(
        people([30, 7], VALUE), f"t.id = s.id AND t.name = '{VALUE}'", source_alias="s", target_alias="t"
    )
    merge = merge.when_matched_update({"id": "s.id + 1"}, predicate=f"t.name = '{VALUE}'")
    merge = merge.when_not_matched_insert({"id": "s.id", "name": "s.name", "k": "s.k"})
    merge.when_not_matched_by_source_update({"k": "3"}, predicate=f"t.name = '{VALUE}'").execute()
    table.create_checkpoint()
    table.optimize.compact()
    table.optimize.z_order(["id"])
    write_deltalake(table, people([99], VALUE), mode="overwrite", predicate=f"name = '{VALUE}' AND id > 30")
    with table.begin() as txn:
        txn.append(txn.read(predicate=f"name = '{VALUE}' AND id = 99"))
        txn.commit()
    for number in range(3):
        write_deltalake(table, people([number], VALUE), mode="append")
    table.update_incremental()
    table.compact_logs()
    table.create_checkpoint()
    refdelta.settle()


STEPS = ("unseen", "delete", "purge", "vacuum", "checkpoint", "cleanup")


def erased(table, folder, *, again=None, without=None):
    """Run the steps of the page, but for one; ``again`` opens the table anew after 45 days."""
    steps = [step for step in STEPS if step != without]
    if "unseen" in steps:
        table.alter.set_table_properties({**UNSEEN, "delta.deletedFileRetentionDuration": "0 days"})
    if "delete" in steps:
        table.delete(f"name = '{VALUE}'")
    if "purge" in steps:
        table.reorg_purge()
    if "vacuum" in steps:
        table.vacuum(retention_hours=0, enforce_retention_duration=False, full=True, dry_run=False)
    refdelta.settle()
    if "checkpoint" in steps:
        table.create_checkpoint()
    if "cleanup" in steps:
        made_old(folder)
        table = table if again is None else again()
        table.cleanup_metadata()
    refdelta.settle()
    return table


# --- the page ---


@pytest.mark.tier("test")
def test_the_page_leaves_no_value_in_any_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, before = {}, None
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        if "recordPredicates" in block:
            before = held("people")
        exec(compile(textwrap.dedent(block), PAGE.name, "exec"), names)
        if "cleanup_metadata" in block:
            assert held("people") == []
    assert len(in_log(before)) >= 3
    assert any(name.startswith("_change_data/") for name in before)
    assert any(name.startswith("part-") for name in before)
    refdelta.settle()
    assert held("people") == []
    assert [name for name in held(".") if name.startswith("catalog.db")] == []


@pytest.mark.tier("test")
@pytest.mark.sample(check=1)
@pytest.mark.parametrize("properties", [{}, VECTORS, EVERYTHING, TRACKED], ids=["plain", "vectors", "all", "tracked"])
def test_no_byte_holds_the_value_afterwards(tmp_path, properties):
    write_deltalake(tmp_path, everybody(), configuration=properties)
    table = DeltaTable(tmp_path)
    used(table)
    places = held(tmp_path)
    assert len(in_log(places)) > 5
    table = erased(table, tmp_path)
    assert held(tmp_path) == []
    assert sorted(table.to_pyarrow_table()["name"].to_pylist()) == ["abe", "bo", "zoe"]


@pytest.mark.tier("test")
def test_only_names_of_empty_folders_hold_a_partition_value_afterwards(tmp_path):
    write_deltalake(tmp_path, everybody(), configuration=EVERYTHING, partition_by=["name"])
    table = DeltaTable(tmp_path)
    used(table)
    erased(table, tmp_path)
    left = [tmp_path / name for name in held(tmp_path)]
    assert left
    for folder in left:
        folder.rmdir()
    assert held(tmp_path) == []
    assert table.count() == 3


@pytest.mark.tier("test")
@pytest.mark.sample(check=1)
@pytest.mark.parametrize("step", [step for step in STEPS if step != "unseen"])
def test_each_step_is_needed(tmp_path, step):
    write_deltalake(tmp_path, everybody(), configuration=EVERYTHING)
    table = DeltaTable(tmp_path)
    used(table)
    erased(table, tmp_path, without=step)
    assert held(tmp_path)


def test_a_delete_records_the_value_unless_the_property_comes_first(tmp_path):
    for properties in ({}, UNSEEN):
        folder = tmp_path / str(len(properties))
        write_deltalake(folder, everybody(), configuration=properties)
        DeltaTable(folder).delete(f"name = '{VALUE}'")
        assert in_log(held(folder)) == ([] if properties else ["_delta_log/00000000000000000001.json"])


@pytest.mark.tier("test")
def test_a_dropped_column_stays_until_its_files_are_rewritten(tmp_path):
    write_deltalake(tmp_path, everybody(), configuration=TRACKED)
    table = DeltaTable(tmp_path)
    table.alter.drop_columns("name")
    erased(table, tmp_path, without="delete")
    assert held(tmp_path)
    table.optimize.z_order(["id"])
    erased(table, tmp_path, without="delete")
    assert held(tmp_path) == []


# --- a catalog ---


@pytest.mark.tier("test")
@pytest.mark.sample(check=1)
@pytest.mark.parametrize("commits", ["staged", "inline"])
def test_no_byte_of_a_catalog_and_its_tables_holds_the_value_afterwards(tmp_path, commits):
    def opened():
        return SqlCatalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "warehouse"))

    table = opened().create_table("t", everybody().schema, configuration=VECTORS, commits=commits)
    write_deltalake(table, everybody(), mode="append")
    used(table)
    places = held(tmp_path)
    assert any("_staged_commits" in name or name.startswith("catalog.db") for name in places)
    erased(table, tmp_path, again=lambda: opened().table("t"))
    assert [name for name in held(tmp_path) if not name.startswith("catalog.db")] == []
    database = sqlite3.connect(tmp_path / "catalog.db")
    database.execute("VACUUM")
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    assert held(tmp_path) == []
    assert opened().table("t").count() == 3


# --- the switches ---


@pytest.mark.sample(check=1)
@pytest.mark.parametrize("properties", [{}, EVERYTHING, TRACKED], ids=["plain", "all", "tracked"])
def test_with_both_switches_the_log_never_holds_the_value(tmp_path, properties):
    write_deltalake(tmp_path, everybody(), configuration={**properties, **UNSEEN, **NO_STATISTICS})
    used(DeltaTable(tmp_path))
    places = held(tmp_path)
    assert places
    assert in_log(places) == []


@pytest.mark.tier("test")
@pytest.mark.sample(check=1)
@pytest.mark.parametrize("switch", [UNSEEN, NO_STATISTICS], ids=["predicates", "statistics"])
def test_either_switch_alone_leaves_what_the_other_keeps_out(tmp_path, switch):
    write_deltalake(tmp_path, everybody(), configuration={**EVERYTHING, **switch})
    used(DeltaTable(tmp_path))
    commits = [tmp_path / name for name in in_log(held(tmp_path)) if re.search(r"/\d{20}\.json$", name)]
    assert commits
    for path in commits:
        for line in path.read_text().splitlines():
            assert holds(line.encode()) <= ("commitInfo" not in json.loads(line) if switch is UNSEEN else True)
            assert holds(line.encode()) <= ("commitInfo" in json.loads(line) if switch is NO_STATISTICS else True)


def test_statistics_of_files_that_are_there_stay_until_they_are_rewritten(tmp_path):
    write_deltalake(tmp_path, people([1, 2], VALUE), configuration={"delta.checkpoint.writeStatsAsStruct": "true"})
    table = DeltaTable(tmp_path)
    table.alter.set_table_properties({**NO_STATISTICS, "delta.deletedFileRetentionDuration": "0 days"})
    table.create_checkpoint()
    assert "_delta_log/00000000000000000001.checkpoint.parquet" in held(tmp_path)
    table.optimize.z_order(["id"])
    table.create_checkpoint()
    refdelta.settle()
    assert "_delta_log/00000000000000000002.checkpoint.parquet" not in held(tmp_path)
    made_old(tmp_path)
    table.cleanup_metadata()
    assert in_log(held(tmp_path)) == []


# --- commits without predicates ---


def replaced(path, properties):
    """A transaction that passes over an append, and then over a commit that read other rows than it changes."""
    write_deltalake(path, pa.table({"p": [0, 1, 9], "a": [5, 5, 5]}), partition_by=["p"], configuration=properties)
    ours = DeltaTable(path).begin()
    ours.delete("p = 0")
    write_deltalake(path, pa.table({"p": [0], "a": [6]}), mode="append")
    DeltaTable(path).update({"a": "7"}, predicate="p = 9")
    return ours


def test_other_writers_take_it_that_such_a_commit_read_every_row(tmp_path):
    assert replaced(tmp_path / "recorded", {}).commit().rebased_over == (1, 2)
    with pytest.raises(errors.ConcurrentAppendException) as caught:
        replaced(tmp_path / "unseen", UNSEEN).commit()
    assert (caught.value.conflict.rule, caught.value.conflict.version) == ("append-skipped", 2)


def test_the_commit_itself_is_checked_by_its_real_predicates(tmp_path):
    write_deltalake(tmp_path, pa.table({"p": [0, 1], "a": [5, 5]}), partition_by=["p"], configuration=UNSEEN)
    ours = DeltaTable(tmp_path).begin(isolation="Serializable")
    ours.delete("p = 0")
    write_deltalake(tmp_path, pa.table({"p": [1], "a": [6]}), mode="append")
    assert ours.commit().rebased_over == (1,)


def test_blind_appends_and_compactions_still_record_no_reads(tmp_path):
    for number in range(2):
        write_deltalake(tmp_path, people([number], "bo"), mode="append", configuration=UNSEEN)
    table = DeltaTable(tmp_path)
    table.optimize.compact()
    assert [one.get("readPredicates") for one in table.history()] == [None] * 3
    assert "predicate" not in table.history(1)[0]["operationParameters"]


def test_the_property_counts_from_the_commit_that_sets_it_to_the_one_that_unsets_it(tmp_path):
    write_deltalake(tmp_path, everybody())
    table = DeltaTable(tmp_path)
    with table.begin() as txn:
        txn.read(predicate=f"name = '{VALUE}'")
        txn.set_table_properties(UNSEEN)
        txn.commit()
    table.delete("id = 1")
    table.alter.unset_table_properties(["refdelta.recordPredicates"])
    table.delete("id = 2")
    recorded = [one["readPredicates"] for one in reversed(table.history()) if one["operation"] == "DELETE"]
    assert recorded[0] == ["TRUE"]
    assert recorded[1] != ["TRUE"]
    assert "_delta_log/00000000000000000001.json" not in held(tmp_path)


def test_the_timeline_and_an_explanation_work_without_predicates(tmp_path):
    write_deltalake(tmp_path, everybody(), configuration={**UNSEEN, **VECTORS})
    table = DeltaTable(tmp_path)
    table.update({"k": "4"}, predicate="id = 1")
    table.delete("id = 2")
    assert "DELETE where TRUE" in str(table.timeline())
    found = explain_conflict(table, 1, 2)
    assert any("refdelta.recordPredicates=false" in note for note in found.notes)
    table.alter.unset_table_properties(["refdelta.recordPredicates"])
    table.update({"k": "5"})
    table.delete()
    first = table.version() - 1
    assert not any("recordPredicates" in note for note in explain_conflict(table, first, first + 1).notes)
