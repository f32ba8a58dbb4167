"""Row tracking through the public interface: rows keep their ids whatever rewrites their files.

Tests of table.row_tracking.
"""

from __future__ import annotations

import io
import itertools
import json

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta import CommitProperties, DeltaTable, errors, write_deltalake
from refdelta.api import alter
from refdelta.api.table_transaction import TableTransaction
from refdelta.core.log.paths import commit_key
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.table.row_tracking import ID_COLUMN, VERSION_COLUMN
from refdelta_storage import MemoryStore
from tiers import examples

IDS = ["_metadata.row_id", "_metadata.row_commit_version"]
ENABLED = {"delta.enableRowTracking": "true"}
SCHEMA = pa.schema([("k", pa.int64()), ("p", pa.int64()), ("v", pa.string())])

Kept = dict[int, tuple[str, int, int]]
"""By the key of a row its value, id and commit version."""


def rows(*keys: int, v: str = "new") -> pa.Table:
    columns = {"k": list(keys), "p": [k % 2 for k in keys], "v": [f"{v} {k}" for k in keys]}
    return pa.table(columns, SCHEMA)


def kept(table: DeltaTable) -> Kept:
    found = table.to_pyarrow_table(columns=["k", "v", *IDS]).to_pylist()
    assert len({row["k"] for row in found}) == len({row[IDS[0]] for row in found}) == len(found)
    return {row["k"]: (row["v"], row[IDS[0]], row[IDS[1]]) for row in found}


def made(name: str, *, vectors: bool = True, partitioned: bool = False, **more: str) -> DeltaTable:
    configuration = {**ENABLED, "delta.enableDeletionVectors": str(vectors).lower(), **more}
    DeltaTable.create(
        MemoryStore(name).uri, SCHEMA, configuration=configuration, partition_by=["p"] if partitioned else None
    )
    return DeltaTable(MemoryStore(name).uri)


MATCHED = "s.k = t.k"
STATEMENTS = {
    "append": lambda table, keys: write_deltalake(
        table, rows(*(k + 1000 * table.version() for k in keys)), mode="append"
    ),
    "update": lambda table, keys: table.update({"v": "concat('u ', v)"}, predicate=f"k IN ({keys[0]}, {keys[-1]})"),
    "update all": lambda table, _: table.update({"v": "'all'"}),
    "move": lambda table, keys: table.update({"p": "1 - p"}, predicate=f"k <= {keys[0]}"),
    "delete": lambda table, keys: table.delete(f"k = {keys[0]}"),
    "replace": lambda table, keys: write_deltalake(
        table, rows(keys[0], v="again"), mode="overwrite", predicate=f"k = {keys[0]}"
    ),
    "merge": lambda table, keys: (
        table.merge(rows(*keys, v="merged"), MATCHED)
        .when_matched_delete(predicate="t.k = 3")
        .when_matched_update({"v": "s.v"}, predicate="t.k % 3 < 2")
        .when_not_matched_insert_all()
        .execute()
    ),
    "rest": lambda table, keys: (
        table.merge(rows(*keys), MATCHED)
        .when_not_matched_by_source_delete(predicate="t.k % 5 = 4")
        .when_not_matched_by_source_update({"v": "'rest'"}, predicate="t.k % 5 = 3")
        .execute()
    ),
    "compact": lambda table, _: table.optimize.compact(),
    "z_order": lambda table, _: table.optimize.z_order(["v"]),
    "purge": lambda table, _: table.reorg_purge(),
}
ANEW = {"append", "replace"}
_NUMBERS = itertools.count()
"""Statements whose rows are new ones, even under a key that there was."""


@pytest.mark.tier("test")
@examples(30)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(STATEMENTS)), st.lists(st.integers(0, 12), min_size=1, unique=True)),
        max_size=6,
    ),
    st.booleans(),
    st.booleans(),
)
def test_rows_keep_their_ids_through_all_statements(statements, vectors, partitioned):
    table = made(f"kept-{next(_NUMBERS)}", vectors=vectors, partitioned=partitioned)
    for some in (range(6), range(6, 9), range(9, 10)):
        write_deltalake(table, rows(*some), mode="append")
    table.update_incremental()
    before, highest = kept(table), 9
    for name, keys in statements:
        STATEMENTS[name](table, keys)
        table.update_incremental()
        after = kept(table)
        for key, (value, row_id, since) in after.items():
            known = before.get(key)
            if known is None or (name in ANEW and row_id not in {i for _, i, _ in before.values()}):
                assert row_id > highest
                assert since == table.version()
                continue
            assert row_id == known[1]
            changed = value != known[0] or name in {"update all", "move"}
            if not changed:
                assert since == known[2] or name.startswith(("update", "merge", "rest", "move"))
            else:
                assert since == table.version() or value == known[0]
        highest = max([highest, *(row_id for _, row_id, _ in after.values())])
        before = after


def test_versions_of_rows_that_are_only_copied_stay():
    table = made("copied", vectors=False)
    write_deltalake(table, rows(1, 2, 3), mode="append")
    table.update({"v": "'u'"}, predicate="k = 2")
    assert kept(table) == {1: ("new 1", 0, 1), 2: ("u", 1, 2), 3: ("new 3", 2, 1)}
    table.delete("k = 3")
    table.optimize.z_order(["v"])
    assert kept(table) == {1: ("new 1", 0, 1), 2: ("u", 1, 2)}
    assert all(info["tags"] == {"delta.rowTracking.preserved": "true"} for info in table.history())


def test_a_restored_row_has_the_id_and_version_that_it_had():
    table = made("restored")
    write_deltalake(table, rows(1, 2), mode="append")
    then = kept(table)
    table.update({"v": "'u'"}, predicate="k = 2")
    table.delete("k = 1")
    table.optimize.compact()
    table.restore(1)
    assert kept(table) == then
    write_deltalake(table, rows(3), mode="append")
    table.update_incremental()
    assert kept(table)[3][1] > 2


def test_the_columns_stay_out_of_sight():
    table = made("hidden", **{"delta.dataSkippingNumIndexedCols": "9"})
    write_deltalake(table, rows(1), mode="append")
    table.optimize.compact(min_file_size=0)
    write_deltalake(table, rows(2), mode="append")
    table.optimize.compact()
    assert table.to_pyarrow_table().schema.names == table.schema().to_arrow().names == SCHEMA.names
    snapshot = load_snapshot(table.store)
    configuration = snapshot.metadata.configuration
    (file,) = table.file_uris()
    names = pq.read_schema(pa.BufferReader(table.store.get(file.rsplit("/", 1)[1]))).names
    assert names == [*SCHEMA.names, configuration[ID_COLUMN], configuration[VERSION_COLUMN]]
    (stats,) = snapshot.files.column("stats").to_pylist()
    assert json.loads(stats)["nullCount"].keys() == set(SCHEMA.names)
    for wrong in ("row_id\n", configuration[ID_COLUMN]):
        with pytest.raises(errors.ColumnNotFoundError):
            table.to_pyarrow_table(columns=[wrong])


def test_asking_for_row_ids():
    table = made("asked")
    write_deltalake(table, rows(1, 2, 3), mode="append")
    table.update_incremental()
    scan = table.scan(columns=["_metadata.row_id", "k"], predicate="k > 1")
    assert scan.schema.names == ["_metadata.row_id", "k"]
    assert scan.to_table().to_pydict() == {"_metadata.row_id": [1, 2], "k": [2, 3]}
    assert table.to_pandas(columns=["_metadata.row_commit_version"])["_metadata.row_commit_version"].tolist() == [1] * 3
    with table.begin() as txn:
        assert txn.read(["_metadata.row_id"], "k = 3").to_pydict() == {"_metadata.row_id": [2]}
    plain = MemoryStore("asked-plain")
    write_deltalake(plain.uri, rows(1))
    with pytest.raises(errors.InvalidArgumentError, match="does not track rows"):
        DeltaTable(plain.uri).to_pyarrow_table(columns=["_metadata.row_id"])


@pytest.mark.tier("test")
@pytest.mark.sample(check=1)
@pytest.mark.parametrize(("mode", "partitioned"), [("none", True), ("name", False), ("id", False)])
def test_rows_are_found_by_their_ids(mode, partitioned):
    more = {} if mode == "none" else {"delta.columnMapping.mode": mode}
    table = made(f"found-{mode}-{partitioned}", partitioned=partitioned, **more)
    write_deltalake(table, rows(*range(6)), mode="append")
    write_deltalake(table, rows(*range(6, 9)), mode="append")
    table.update({"v": "'new'"}, predicate="k IN (1, 4, 7)")
    table.delete("k = 2")
    table.update_incremental()
    for compacted in (False, True):
        known = kept(table)
        for key, (value, row_id, since) in known.items():
            ways = [
                f"_metadata.row_id = {row_id}",
                f"`_metadata.row_id` <= {row_id} and _metadata.ROW_ID > {row_id - 1}",
                [("_metadata.row_id", "=", row_id)],
                pc.field("_metadata.row_id") == row_id,
            ]
            asked = ways[key % len(ways)]
            assert table.to_pyarrow_table(["k", "v"], asked).to_pylist() == [{"k": key, "v": value}]
            assert table.scan(predicate=asked).count() == 1
            same = f"_metadata.row_commit_version = {since} and _metadata.row_id <> {row_id} and p = {key % 2}"
            found = table.to_pyarrow_table(["_metadata.row_id"], same)["_metadata.row_id"].to_pylist()
            others = [i for k, (_, i, at) in known.items() if at == since and i != row_id and k % 2 == key % 2]
            assert sorted(found) == sorted(others)
        if not compacted:
            table.optimize.compact()
    assert table.to_pyarrow_table(filters="_metadata.row_id IS NULL").num_rows == 0
    assert "_metadata.row_id" in table.scan(predicate="_metadata.row_id = 1").explain().predicate


def test_row_groups_are_not_left_out_for_the_ids_that_they_hold():
    """Of some rows a file holds the ids, the others have the default."""
    table = made("found-in-groups")
    write_deltalake(table, rows(*range(4)), mode="append")
    key = commit_key(1)
    lines = [json.loads(line) for line in table.store.get(key).splitlines()]
    (add,) = [line["add"] for line in lines if "add" in line]
    hidden = table.metadata().configuration[ID_COLUMN]
    out = io.BytesIO()
    data = pq.read_table(io.BytesIO(table.store.get(add["path"])))
    pq.write_table(data.append_column(hidden, pa.array([None, 100, 101, None], pa.int64())), out, row_group_size=2)
    table.store.put(add["path"], out.getvalue())
    add["size"] = len(out.getvalue())
    table.store.put(key, "".join(json.dumps(line) + "\n" for line in lines).encode())
    table = DeltaTable(table.store.uri)
    assert [row_id for _, row_id, _ in kept(table).values()] == [0, 100, 101, 3]
    for k, row_id in enumerate([0, 100, 101, 3]):
        assert table.to_pyarrow_table(["k"], f"_metadata.row_id = {row_id}")["k"].to_pylist() == [k]


def test_where_no_row_is_found_by_its_id():
    table = made("not-found", **{"delta.enableChangeDataFeed": "true"})
    write_deltalake(table, rows(1), mode="append")
    message = "there is no _metadata.row_id here"
    for way in (
        lambda: table.delete("_metadata.row_id = 0"),
        lambda: table.update({"v": "'x'"}, predicate="_metadata.row_id = 0"),
        lambda: table.update({"k": "_metadata.row_id"}),
        lambda: table.load_cdf(0, predicate="_metadata.row_id = 0"),
        lambda: table.alter.add_constraint({"c": "_metadata.row_id >= 0"}),
        lambda: table.begin().read(predicate="_metadata.row_id = 0"),
        lambda: table.begin().read(predicate=[("_metadata.row_id", "=", 0)]),
    ):
        with pytest.raises(errors.PredicateError, match=message):
            way()
    plain = MemoryStore("not-found-plain")
    write_deltalake(plain.uri, rows(1))
    with pytest.raises(errors.PredicateError, match=message):
        DeltaTable(plain.uri).to_pyarrow_table(filters="_metadata.row_id = 0")
    # A column that is called so is the table's own.
    own = MemoryStore("not-found-own")
    data = pa.table({"_metadata": [{"row_id": 5}, {"row_id": 0}]})
    write_deltalake(own.uri, data, configuration=ENABLED)
    assert DeltaTable(own.uri).to_pyarrow_table(filters="_metadata.row_id = 5").num_rows == 1


@pytest.mark.parametrize("since", ["nothing", "support", "suspension"])
def test_enabling_gives_ids_to_the_rows_that_are_there(since):
    store = MemoryStore(f"enabled-{since}")
    write_deltalake(store.uri, rows(1, 2), configuration={"delta.enableDeletionVectors": "true"})
    table = DeltaTable(store.uri)
    table.delete("k = 1")
    if since != "nothing":
        table.alter.set_table_properties({"delta.feature.rowTracking": "supported"})
    if since == "suspension":
        table.alter.set_table_properties({"delta.rowTrackingSuspended": "true"})
    write_deltalake(table, rows(3), mode="append")
    table.update_incremental()
    before = table.to_pyarrow_table().sort_by("k")
    if since == "suspension":
        with pytest.raises(errors.InvalidArgumentError, match="Suspended"):
            table.alter.set_table_properties(ENABLED)
        table.alter.unset_table_properties(["delta.rowTrackingSuspended"])
    table.alter.set_table_properties(ENABLED)
    assert table.to_pyarrow_table().sort_by("k").equals(before)
    found = kept(table)
    assert found.keys() == {2, 3}
    snapshot = load_snapshot(store)
    assert snapshot.files.column("baseRowId").null_count == 0
    assert snapshot.files.column("defaultRowCommitVersion").null_count == 0
    table.optimize.compact()
    assert kept(table) == found
    names = dict(snapshot.metadata.configuration)
    table.alter.unset_table_properties(["delta.enableRowTracking"])
    table.update({"v": "'x'"}, predicate="k = 2")
    table.alter.set_table_properties(ENABLED)
    assert load_snapshot(store).metadata.configuration == names
    assert kept(table)[3] == found[3]
    assert kept(table)[2][1] > max(row_id for _, row_id, _ in found.values())


def test_files_that_come_back_from_before_have_the_ids_that_they_were_given():
    store = MemoryStore("before")
    write_deltalake(store.uri, rows(1, 2), configuration={"delta.enableDeletionVectors": "true"})
    write_deltalake(store.uri, rows(3), mode="append")
    table = DeltaTable(store.uri)
    table.alter.set_table_properties(ENABLED)

    def given():
        files = load_snapshot(store).files
        return dict(zip(*(files.column(n).to_pylist() for n in ("path", "baseRowId")), strict=True))

    before, version = given(), table.version()
    table.delete("k IN (1, 3)")
    table.restore(1)
    assert given() == before
    table.restore(version)
    assert {row_id for _, row_id, _ in kept(table).values()} == {0, 1, 2}


def test_files_that_do_not_say_how_many_rows_they_have_are_counted(tmp_path):
    path = tmp_path / "t"
    write_deltalake(path, rows(1, 2, 3))
    (log,) = (path / "_delta_log").glob("*0.json")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        line.get("add", {}).pop("stats", None)
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for crc in (path / "_delta_log").glob("*.crc"):
        crc.unlink()
    table = DeltaTable(path)
    table.alter.set_table_properties(ENABLED)
    write_deltalake(table, rows(4), mode="append")
    table.update_incremental()
    assert {row_id for _, row_id, _ in kept(table).values()} == {0, 1, 2, 3}


def test_enabling_conflicts_with_files_that_have_no_ids():
    store = MemoryStore("races")
    write_deltalake(store.uri, rows(1))
    transaction = DeltaTable(store.uri).begin()
    transaction.set_table_properties(ENABLED)
    write_deltalake(store.uri, rows(2), mode="append")
    with pytest.raises(errors.ConcurrentAppendException):
        transaction.commit()
    table = DeltaTable(store.uri)
    table.alter.set_table_properties({"delta.feature.rowTracking": "supported"})
    table.restore(1)
    table.alter.set_table_properties(ENABLED)
    table.alter.unset_table_properties(["delta.enableRowTracking"])
    # Now each file has ids, whoever adds it.
    transaction = table.begin()
    transaction.set_table_properties(ENABLED)
    write_deltalake(store.uri, rows(3), mode="append")
    transaction.commit()
    table.update_incremental()
    assert len(kept(table)) == 3


def test_a_table_of_many_files_gets_its_ids_in_several_commits(monkeypatch):
    monkeypatch.setattr(alter, "FILES_AT_ONCE", 2)
    store = MemoryStore("many")
    write_deltalake(store.uri, rows(0), configuration={"delta.enableDeletionVectors": "true"})
    for key in range(1, 6):
        write_deltalake(store.uri, rows(key), mode="append")
    table = DeltaTable(store.uri)
    stale = DeltaTable(store.uri).begin()
    stale.append(rows(9))
    turns = iter([rows(7), rows(8)])
    committing = TableTransaction.commit

    def meanwhile(txn):
        """Others append, and delete a row of a file that is to get ids."""
        if txn.description.operation != "WRITE" and (data := next(turns, None)) is not None:
            other = DeltaTable(store.uri).begin()
            other.append(data)
            committing(other._transaction)
            other = DeltaTable(store.uri).begin()
            other.delete(f"k = {data['k'][0].as_py() - 7}")
            committing(other._transaction)
        return committing(txn)

    monkeypatch.setattr(TableTransaction, "commit", meanwhile)
    table.alter.set_table_properties(ENABLED)
    assert kept(table).keys() == {2, 3, 4, 5, 7, 8}
    operations = [info["operation"] for info in table.history()]
    assert operations[0] == "SET TBLPROPERTIES"
    assert operations.count("ROW TRACKING BACKFILL") >= 2
    assert operations.count("UPGRADE PROTOCOL") == 1
    assert not any(info.get("isBlindAppend") for info in table.history() if "BACKFILL" in info["operation"])
    with pytest.raises(errors.ConcurrentModificationError):
        committing(stale._transaction)


def test_a_table_that_is_replaced_keeps_the_names():
    table = made("replaced")
    write_deltalake(table, rows(1, 2), mode="append")
    names = load_snapshot(table.store).metadata.configuration
    DeltaTable.create(table.table_uri, SCHEMA, mode="overwrite", configuration=ENABLED)
    table.update_incremental()
    assert {k: v for k, v in load_snapshot(table.store).metadata.configuration.items() if "materialized" in k} == {
        k: v for k, v in names.items() if "materialized" in k
    }
    write_deltalake(table, rows(5), mode="append")
    table.update_incremental()
    assert kept(table) == {5: ("new 5", 2, table.version())}


def test_a_commit_that_is_moved_behind_others_keeps_ids_and_gives_its_own_version():
    table = made("moved")
    write_deltalake(table, rows(1, 2, 3), mode="append")
    update = DeltaTable(table.store.uri).begin()
    update.update({"v": "'u'"}, predicate="k = 2")
    write_deltalake(table, rows(4, 5), mode="append")
    DeltaTable(table.store.uri).delete("k = 1")
    update.commit()
    table.update_incremental()
    assert kept(table) == {2: ("u", 1, 4), 3: ("new 3", 2, 1), 4: ("new 4", 3, 2), 5: ("new 5", 4, 2)}


def test_tags_are_the_engines():
    with pytest.raises(errors.InvalidArgumentError, match="tags"):
        write_deltalake(
            MemoryStore("tags").uri, rows(1), commit_properties=CommitProperties(custom_metadata={"tags": "mine"})
        )
