"""The change data feed as it is written and read: each version says exactly what its statement did.

A model in plain Python says what a statement does to a list of rows; the feed has to say the same, and what every
version holds has to follow from the feed alone.

Tests of engine.scan.change_scan, operations.inspection.feed_range.
"""

from __future__ import annotations

import datetime as dt
import itertools
import os
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.engine.scan import change_scan
from tiers import examples
from written_tables import actions

FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {**FEED, "delta.enableDeletionVectors": "true"}
SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("v", pa.int64())])
PLUS, MINUS = ("insert", "update_postimage"), ("delete", "update_preimage")
SETTINGS = [
    ({}, None),
    ({"delta.enableDeletionVectors": "true"}, None),
    ({}, ["p"]),
    ({"delta.enableDeletionVectors": "true", "delta.columnMapping.mode": "name"}, ["p"]),
    ({"delta.columnMapping.mode": "id"}, None),
    ({"delta.enableRowTracking": "true"}, None),
    ({"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}, ["p"]),
]
numbers = itertools.count()


def data(rows):
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def rows_of(table, names=SCHEMA.names):
    return Counter(tuple(row[name] for name in names) for row in table.to_pylist())


def feed(table, *args, **named):
    """What changed, as a multiset of rows each with its kind."""
    return rows_of(table.load_cdf(*args, **named).read_all(), [*SCHEMA.names, "_change_type"])


def kinds(rows, kind):
    return Counter((*row, kind) for row in rows)


def cdc_files(path, version):
    return [action["path"] for action in actions(path, version, "cdc")]


small = st.integers(0, 5)
rows_strategy = st.lists(st.tuples(small, st.sampled_from(["a", "b", None]), st.one_of(st.none(), small)), max_size=6)
statements = st.one_of(
    st.tuples(st.just("append"), rows_strategy),
    st.tuples(st.just("delete"), small),
    st.tuples(st.just("delete partition"), st.sampled_from(["a", "b"])),
    st.tuples(st.just("update"), small),
    st.tuples(st.just("move"), small),
    st.tuples(st.just("merge"), st.dictionaries(small, small, max_size=4), small),
    st.tuples(st.just("insert only"), st.dictionaries(small, small, max_size=4)),
    st.tuples(st.just("replace"), small, rows_strategy),
    st.tuples(st.just("overwrite"), rows_strategy),
    st.tuples(st.just("compact")),
    st.tuples(st.just("restore"), small),
)


def run(table, statement, rows, history):
    """Do it, and say what the model says: what the table holds then, and what changed."""
    what, *given_ = statement
    if what == "append":
        write_deltalake(table, data(given_[0]), mode="append")
        return rows + given_[0], kinds(given_[0], "insert")
    if what == "overwrite":
        write_deltalake(table, data(given_[0]), mode="overwrite")
        return given_[0], kinds(rows, "delete") + kinds(given_[0], "insert")
    if what == "replace":
        bound, new = given_[0], [row for row in given_[1] if row[0] >= given_[0]]
        write_deltalake(table, data(new), mode="overwrite", predicate=f"id >= {bound}")
        gone = [row for row in rows if row[0] >= bound]
        return [row for row in rows if row[0] < bound] + new, kinds(gone, "delete") + kinds(new, "insert")
    if what == "compact":
        table.optimize.compact()
        return rows, Counter()
    if what == "restore":
        version = min(given_[0], table.version())
        table.restore(version)
        return history[version], None
    if what == "merge":
        source, bound = given_
        table.merge(
            pa.table({"id": pa.array(list(source), pa.int64()), "w": pa.array(list(source.values()), pa.int64())}),
            "s.id = t.id",
        ).when_matched_delete("t.v >= 3").when_matched_update(
            {"v": "s.w", "p": "'b'"}, predicate=f"s.w < {bound}"
        ).when_not_matched_insert({"id": "s.id", "v": "s.w"}).execute()
        left, changed = [], Counter()
        for row in rows:
            if row[0] in source and row[2] is not None and row[2] >= 3:
                changed += kinds([row], "delete")
            elif row[0] in source and source[row[0]] < bound:
                new = (row[0], "b", source[row[0]])
                changed += kinds([row], "update_preimage") + kinds([new], "update_postimage")
                left.append(new)
            else:
                left.append(row)
        added = [(key, None, value) for key, value in source.items() if key not in {row[0] for row in rows}]
        return left + added, changed + kinds(added, "insert")
    if what == "insert only":
        source = pa.table({"id": pa.array(list(given_[0]), pa.int64())})
        table.merge(source, "s.id = t.id").when_not_matched_insert({"id": "s.id"}).execute()
        added = [(key, None, None) for key in given_[0] if key not in {row[0] for row in rows}]
        return rows + added, kinds(added, "insert")
    column, sql = (1, f"p = '{given_[0]}'") if what == "delete partition" else (0, f"id = {given_[0]}")
    hit = [row for row in rows if row[column] == given_[0]]
    left = [row for row in rows if row[column] != given_[0]]
    if what.startswith("delete"):
        table.delete(sql)
        return left, kinds(hit, "delete")
    new = [(row[0], "b", row[2]) if what == "move" else (row[0], row[1], 9) for row in hit]
    table.update({"p": "'b'"} if what == "move" else {"v": "9"}, predicate=sql)
    return left + new, kinds(hit, "update_preimage") + kinds(new, "update_postimage")


@pytest.mark.tier("test")
@examples(40)
@given(first=rows_strategy, script=st.lists(statements, min_size=1, max_size=6), setting=st.sampled_from(SETTINGS))
def test_the_feed_is_what_statements_did(first, script, setting):
    uri = f"memory://feed{next(numbers)}"
    properties, partitions = setting
    write_deltalake(uri, data(first), configuration={**FEED, **properties}, partition_by=partitions)
    table = DeltaTable(uri)
    rows, history = list(first), {0: list(first)}
    assert feed(table) == kinds(rows, "insert")
    for statement in script:
        before = table.version()
        after, changed = run(table, statement, rows, history)
        table.update_incremental()
        for version in range(before + 1, table.version() + 1):
            history[version] = after
        told = feed(table, before + 1) if table.version() > before else Counter()
        if changed is not None:
            assert told == changed
        state = Counter(rows)
        for (*row, kind), count in told.items():
            state[tuple(row)] += count if kind in PLUS else -count
        assert {row: count for row, count in state.items() if count} == Counter(after)
        rows = after
    whole = table.load_cdf().read_all()
    assert whole.column("_commit_version").to_pylist() == sorted(whole.column("_commit_version").to_pylist())


@pytest.mark.tier("test")
def test_change_files_are_written_only_where_they_are_needed(tmp_path):
    for name, properties, needing in (("plain", FEED, {1, 3, 4, 5}), ("vectors", VECTORS, {1, 4})):
        path = tmp_path / name
        rows = [(i, "ab"[i % 2], i) for i in range(20)]
        write_deltalake(path, data(rows), configuration=properties, partition_by=["p"])
        table = DeltaTable(path)
        table.update({"v": "0"}, predicate="id < 4")  # 1
        table.delete("p = 'b'")  # 2: whole files
        table.delete("id = 2")  # 3: hidden, where there are vectors
        source = pa.table({"id": pa.array([4, 6, 99], pa.int64())})
        merge = table.merge(source, "s.id = t.id")
        merge = (
            merge.when_matched_delete("t.id = 4")
            .when_matched_update({"v": "-1"})
            .when_not_matched_insert({"id": "s.id"})
        )
        metrics = merge.execute()  # 4
        assert metrics.version == 4
        table.merge(source, "s.id = t.id and t.p = 'a'").when_matched_delete().execute()  # 5
        table.merge(source, "s.id = t.id").when_not_matched_insert({"id": "s.id"}).execute()  # 6
        table.optimize.compact()
        write_deltalake(path, data([(7, "a", 7)]), mode="overwrite", partition_overwrite="dynamic")
        table.update_incremental()
        found = {version for version in range(table.version() + 1) if cdc_files(path, version)}
        assert found == needing
        for version in sorted(found):
            for file in cdc_files(path, version):
                assert file.startswith("_change_data/p=")
                assert "/cdc-" in file
        noted = {entry["version"]: entry["operationMetrics"] for entry in table.history()}
        assert noted[1]["numAddedChangeFiles"] == str(len(cdc_files(path, 1))) != "0"
        assert noted[4]["numTargetChangeFilesAdded"] == str(len(cdc_files(path, 4))) != "0"


@pytest.mark.parametrize("properties", [FEED, VECTORS])
def test_an_append_and_a_statement_in_one_transaction(tmp_path, properties):
    write_deltalake(tmp_path, data([(i, "a", i) for i in range(6)]), configuration=properties)
    table = DeltaTable(tmp_path)
    with table.begin() as txn:
        txn.append(data([(10, "b", 1)]))
        txn.update({"v": "v + 1"}, predicate="id = 2")
        txn.append(data([(11, "b", 1)]))
        txn.commit()
    assert feed(DeltaTable(tmp_path), 1) == (
        kinds([(10, "b", 1), (11, "b", 1)], "insert")
        + kinds([(2, "a", 2)], "update_preimage")
        + kinds([(2, "a", 3)], "update_postimage")
    )


def test_the_feed_of_a_rebased_commit_is_its_own_effect(tmp_path):
    write_deltalake(tmp_path, data([(i, "a", i) for i in range(100)]), configuration=VECTORS)
    write_deltalake(tmp_path, data([(i, "b", i) for i in range(100, 110)]), mode="append")
    table = DeltaTable(tmp_path)
    deletes, updates, all_of_b, compacts = (table.begin() for _ in range(4))
    deletes.delete("id in (3, 105)")
    updates.update({"v": "-1"}, predicate="id in (4, 106)")
    all_of_b.delete("id = 109")
    table.delete("id = 5")  # 2
    compacts.compact()
    assert deletes.commit().rebased_over == (2,)  # 3
    write_deltalake(tmp_path, data([(200, "c", 0)]), mode="append")  # 4
    assert compacts.commit().version == 5
    assert updates.commit().version == 6
    assert all_of_b.commit().version == 7
    table = DeltaTable(tmp_path)
    assert feed(table, 2, 2) == kinds([(5, "a", 5)], "delete")
    assert feed(table, 3, 3) == kinds([(3, "a", 3), (105, "b", 105)], "delete")
    assert feed(table, 5, 5) == Counter()
    assert feed(table, 6, 6) == (
        kinds([(4, "a", 4), (106, "b", 106)], "update_preimage")
        + kinds([(4, "a", -1), (106, "b", -1)], "update_postimage")
    )
    assert feed(table, 7, 7) == kinds([(109, "b", 109)], "delete")


def test_what_is_not_committed_leaves_no_change_files(tmp_path):
    write_deltalake(tmp_path, data([(i, "a", i) for i in range(6)]), configuration=FEED)
    table = DeltaTable(tmp_path)

    def left():
        return sorted(p.name for p in tmp_path.rglob("*.parquet") if "_delta_log" not in p.parts)

    before = left()
    txn = table.begin()
    txn.update({"v": "1"}, predicate="id = 1")
    assert len(left()) == len(before) + 2
    txn.abort()
    assert left() == before
    loser = table.begin()
    loser.update({"v": "1"}, predicate="id = 1")
    table.delete("id = 1")
    before = left()
    with pytest.raises(errors.ConcurrentModificationError):
        loser.commit()
    assert len(left()) == len(before) - 2
    with pytest.raises(errors.ExpressionError):
        table.update({"v": "1 div (id - 2)"})
    assert len(left()) == len(before) - 2


def test_deleted_rows_are_found_by_the_vectors_of_both_sides(tmp_path):
    write_deltalake(tmp_path, data([(i, "a", i) for i in range(10)]), configuration=VECTORS)
    table = DeltaTable(tmp_path)
    for number in (1, 2, 3):
        table.delete(f"id = {number}")
    table.restore(1)
    assert len(actions(tmp_path, 4, "add")) == len(actions(tmp_path, 4, "remove")) == 1
    assert feed(table, 4) == kinds([(2, "a", 2), (3, "a", 3)], "insert")
    table.delete("id > 1")  # whole: with the rows that were hidden before
    assert feed(table, 5) == kinds([(i, "a", i) for i in range(2, 10)], "delete")


def test_ranges_by_time_and_what_is_no_range(tmp_path):
    write_deltalake(tmp_path, data([(0, "a", 0)]), configuration=FEED)
    for number in (1, 2, 3):
        write_deltalake(tmp_path, data([(number, "a", number)]), mode="append")
    for version in range(4):
        stamp = 1_800_000_000 + 10 * version
        os.utime(tmp_path / "_delta_log" / f"{version:020d}.json", (stamp, stamp))
    table = DeltaTable(tmp_path)

    def at(seconds):
        return dt.datetime.fromtimestamp(1_800_000_000 + seconds, dt.UTC)

    def ids(**named):
        return [row["id"] for row in table.load_cdf(**named).read_all().to_pylist()]

    assert ids(starting_timestamp=at(10), ending_timestamp=at(20)) == [1, 2]
    assert ids(starting_timestamp=at(-99), ending_timestamp=at(29).isoformat()) == [0, 1, 2]
    assert ids(starting_timestamp=at(25), ending_timestamp=at(99)) == [3]
    assert ids(starting_timestamp=at(11), ending_timestamp=at(12)) == []
    assert ids(starting_version=2, ending_version=99) == [2, 3]
    assert ids(predicate="_commit_version = 2 or id = 0", columns=["id"]) == [0, 2]
    times = table.load_cdf(columns=["_commit_timestamp"]).read_all().column(0)
    assert times.type == pa.timestamp("us", "UTC")
    assert times.to_pylist() == [at(10 * version) for version in range(4)]
    for named, error, said in (
        ({"starting_version": 4}, errors.VersionNotFoundError, "after version 3"),
        ({"starting_timestamp": at(31)}, errors.VersionNotFoundError, "after version 3"),
        ({"starting_version": 2, "ending_version": 1}, errors.InvalidArgumentError, "before they begin"),
        ({"starting_version": -1}, errors.InvalidArgumentError, "-1"),
        ({"starting_version": 1, "starting_timestamp": at(0)}, errors.InvalidArgumentError, "exclude each other"),
        ({"ending_timestamp": "soon"}, errors.InvalidArgumentError, "ending_timestamp"),
        ({"ending_timestamp": at(-1)}, errors.VersionNotFoundError, "before the first"),
        ({"columns": ["_commit"]}, errors.ColumnNotFoundError, "_commit"),
    ):
        with pytest.raises(error, match=said):
            table.load_cdf(**named)
    assert ids(starting_version=4, allow_out_of_range=True) == []
    pinned = DeltaTable(tmp_path, version=1)
    assert pinned.load_cdf().read_all().num_rows == 2


@pytest.mark.breaks_tables
def test_versions_that_record_nothing_are_refused(tmp_path):
    write_deltalake(tmp_path, data([(0, "a", 0)]))
    table = DeltaTable(tmp_path)
    table.alter.set_table_properties(FEED)
    table.delete()
    table.alter.unset_table_properties(["delta.enableChangeDataFeed"])
    assert feed(table, 1, 2) == kinds([(0, "a", 0)], "delete")
    for first, last, version in ((0, None, 0), (1, 3, 3), (3, 3, 3)):
        with pytest.raises(errors.InvalidArgumentError, match=f"version {version} was not recorded"):
            table.load_cdf(first, last)
    (tmp_path / "_delta_log" / f"{0:020d}.json").unlink()
    with pytest.raises(errors.VersionNotFoundError, match="version 0 is not in the log"):
        table.load_cdf()


def test_columns_with_the_names_of_the_feed_are_refused(tmp_path):
    reserved = pa.table({"id": [1], "_Commit_Version": [2]})
    with pytest.raises(errors.InvalidArgumentError, match="_commit_version"):
        write_deltalake(tmp_path, reserved, configuration=FEED)
    write_deltalake(tmp_path, reserved)
    with pytest.raises(errors.InvalidArgumentError, match="_commit_version"):
        DeltaTable(tmp_path).alter.set_table_properties(FEED)
    write_deltalake(tmp_path / "b", reserved.select(["id"]), configuration=FEED)
    with pytest.raises(errors.InvalidArgumentError, match="_commit_version"):
        write_deltalake(tmp_path / "b", reserved, mode="append", schema_mode="merge")


def test_a_file_that_vacuum_took_is_one_clear_error(tmp_path):
    write_deltalake(tmp_path, data([(i, "a", i) for i in range(4)]), configuration=FEED)
    table = DeltaTable(tmp_path)
    table.update({"v": "7"}, predicate="id = 1")
    assert feed(table, 1) != Counter()
    gone = table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert any(name.startswith("_change_data/") for name in gone)
    with pytest.raises(errors.DataFileNotFoundError, match="_change_data"):
        table.load_cdf(1).read_all()


def test_ids_of_rows_are_not_in_the_feed(tmp_path):
    properties = {**VECTORS, "delta.enableRowTracking": "true"}
    write_deltalake(tmp_path, data([(i, "a", i) for i in range(4)]), configuration=properties)
    table = DeltaTable(tmp_path)
    before = {row["id"]: row["_metadata.row_id"] for row in with_ids(table)}
    table.update({"v": "7"}, predicate="id = 1")
    assert {row["id"]: row["_metadata.row_id"] for row in with_ids(table)} == before
    (file,) = cdc_files(tmp_path, 1)
    assert pq.read_schema(tmp_path / file).names == [*SCHEMA.names, "_change_type"]
    with pytest.raises(errors.ColumnNotFoundError, match="row_id"):
        table.load_cdf(columns=["id", "_metadata.row_id"])


def with_ids(table):
    return table.to_pyarrow_table(columns=["id", "_metadata.row_id"]).to_pylist()


@pytest.mark.tier("test")
def test_many_changes_are_listed_in_portions(tmp_path, monkeypatch):
    """What one version changed, and the rows of one file, may stand in several portions; nobody sees them."""
    settings = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}
    for number in range(4):
        rows = pa.table({"id": range(10 * number, 10 * number + 10), "p": [0, 1] * 5})
        write_deltalake(tmp_path / "t", rows, mode="append", partition_by="p", configuration=settings)
    table = DeltaTable(tmp_path / "t")
    table.delete("id % 3 = 0")
    table.update({"id": "id + 100"}, predicate="id % 5 = 0")
    whole = table.load_cdf().read_all()
    assert whole.num_rows > 50
    for most in (1, 2, 3):
        monkeypatch.setattr(change_scan, "_AT_ONCE", most)
        assert table.load_cdf().read_all().equals(whole)
