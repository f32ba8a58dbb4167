"""Row ids and commit versions of new files, given as the commit is encoded: behind every winner they are given anew."""

from __future__ import annotations

import contextlib
import itertools
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.core.log.actions import Add, AnyAction, CommitInfo, DomainMetadata, Metadata, Protocol, Remove
from refdelta.core.log.assigned import DOMAIN, RowIds, mark_of
from refdelta.core.log.codec import decode_commit, encode_commit
from refdelta.core.log.lean import decode_lean, file_lines, of_lines
from refdelta.engine.log.file_committer import read_commit
from refdelta.table.row_tracking import named_columns
from refdelta_storage import MemoryStore
from tiers import examples

SUPPORTED = {"delta.feature.rowTracking": "supported", "delta.enableDeletionVectors": "true"}


def rows(*numbers: int) -> pa.Table:
    return pa.table({"k": pa.array(numbers, pa.int64())})


def new_table(name: str, **more: str) -> MemoryStore:
    store = MemoryStore(name)
    DeltaTable.create(store.uri, rows().schema, configuration={**SUPPORTED, **more})
    return store


def committed(store: MemoryStore, version: int) -> list[AnyAction]:
    return decode_commit(read_commit(store, version), str(version))


def adds(store: MemoryStore, version: int) -> list[Add]:
    return [action for action in committed(store, version) if isinstance(action, Add)]


def marks(store: MemoryStore, version: int) -> list[int]:
    return [mark_of(a) for a in committed(store, version) if isinstance(a, DomainMetadata) and a.domain == DOMAIN]


def check_history(store: MemoryStore) -> None:
    """What PROTOCOL.md asks of every version: no id twice, marks that cover all ids, entries that keep their ids."""
    mark, given_out, known = -1, set[int](), dict[str, tuple[int | None, int | None]]()
    for version in range(DeltaTable(store.uri).version() + 1):
        at_start = mark
        mark = max([mark, *marks(store, version)])
        for action in committed(store, version):
            if isinstance(action, Remove):
                assert (action.base_row_id, action.default_row_commit_version) == known[action.path]
            if isinstance(action, Add):
                ids = action.base_row_id, action.default_row_commit_version
                assert None not in ids
                if action.path in known:
                    assert ids == known[action.path]
                    continue
                known[action.path] = ids
                own = set(range(action.base_row_id, action.base_row_id + json.loads(action.stats)["numRecords"]))
                assert own.isdisjoint(given_out)
                assert action.base_row_id > at_start
                assert max(own) <= mark
                assert action.default_row_commit_version == version
                given_out |= own
    assert mark == max(given_out, default=-1)


_NUMBERS = itertools.count()

STATEMENTS = {
    "append": lambda txn: (txn.append(rows(7, 8)), txn.append(rows(9))),
    "delete": lambda txn: txn.delete("k = 1"),
    "update": lambda txn: txn.update({"k": "k + 100"}, predicate="k = 2"),
    "merge": lambda txn: (
        txn.merge(rows(3, 50), "s.k = t.k").when_matched_delete().when_not_matched_insert_all().execute()
    ),
    "compact": lambda txn: txn.compact(),
    "z_order": lambda txn: txn.z_order(["k"]),
    "overwrite": lambda txn: txn.overwrite(rows(4)),
    "restore": lambda txn: txn.restore(1),
}


@pytest.mark.tier("test")
@examples(25)
@given(st.lists(st.sampled_from(sorted(STATEMENTS)), min_size=1, max_size=4), st.booleans(), st.data())
def test_ids_are_unique_and_kept_however_transactions_overlap(names, vectors, data):
    store = new_table(f"ids-{next(_NUMBERS)}", **{"delta.enableDeletionVectors": str(vectors).lower()})
    table = DeltaTable(store.uri)
    for some in ((1, 2, 3), (4,), (5, 6)):
        write_deltalake(table, rows(*some), mode="append")
    table.delete("k = 6")
    for _ in range(2):
        order = data.draw(st.permutations(range(len(names))))
        begun = []
        for name in names:
            begun.append(DeltaTable(store.uri).begin())
            STATEMENTS[name](begun[-1])
        for number in order:
            with contextlib.suppress(errors.ConcurrentModificationError):
                begun[number].commit()
        check_history(store)


@pytest.mark.tier("test")
def test_appends_that_overlap_take_ids_behind_each_other():
    store = new_table("overlap")
    transactions = [DeltaTable(store.uri).begin() for _ in range(40)]
    for number, transaction in enumerate(transactions):
        transaction.append(rows(number, number))
        transaction.commit()
    check_history(store)
    # The last one met all the others at once, as commits that have nothing but files.
    assert [add.base_row_id for add in adds(store, 40)] == [78]


def test_marks_of_row_ids_stand_among_what_is_seen_quickly():
    mark = DomainMetadata(domain=DOMAIN, configuration='{"rowIdHighWaterMark":4}', removed=False)
    file = Add(path="f", partition_values={}, size=1, modification_time=1, data_change=True, base_row_id=3)
    data = encode_commit([CommitInfo({"txnId": "t"}), file, mark])
    found = of_lines(file_lines(data))
    assert found is not None
    assert (found.others, found.adds[0].base_row_id) == ([mark], 3)
    both = data.replace(b'}\n{"domainMetadata"', b',"domainMetadata"')
    assert of_lines(file_lines(both)) is None
    other = encode_commit([file, DomainMetadata(domain="d", configuration="{}", removed=False)])
    assert file_lines(other) == []
    assert decode_lean(other, "f").others[0].domain == "d"


@pytest.mark.parametrize("configuration", ["{}", "[", '{"rowIdHighWaterMark":"9"}', "7"])
def test_a_mark_that_says_nothing_stops_those_who_need_it(configuration):
    store = new_table(f"broken-{configuration}")
    transaction = DeltaTable(store.uri).begin()
    transaction.append(rows(1))
    mark = DomainMetadata(domain=DOMAIN, configuration=configuration, removed=False)
    store.put_if_absent("_delta_log/00000000000000000001.json", encode_commit([CommitInfo({}), mark]))
    with pytest.raises(errors.InvalidLogError, match="rowIdHighWaterMark"):
        transaction.commit()
    assert DeltaTable(store.uri).version() == 1


def test_a_file_without_a_count_of_rows_gets_no_ids():
    store = new_table("uncounted")
    table = DeltaTable(store.uri)
    file = Add(path="f", partition_values={}, size=1, modification_time=1, data_change=True)
    with pytest.raises(errors.InvalidArgumentError, match="numRecords"):
        RowIds().assigned([file], 1)
    from refdelta.operations.write.prepared_files import AddAction

    action = AddAction("f.parquet", 1, {}, 1)
    with pytest.raises(errors.InvalidArgumentError, match="numRecords"):
        table.create_write_transaction([action], "append", rows().schema)
    assert table.version() == 0


def test_nothing_is_assigned_while_row_tracking_is_suspended():
    store = new_table("suspended", **{"delta.rowTrackingSuspended": "true"})
    write_deltalake(store.uri, rows(1), mode="append")
    assert [(add.base_row_id, add.default_row_commit_version) for add in adds(store, 1)] == [(None, None)]
    assert marks(store, 1) == []
    DeltaTable(store.uri).alter.unset_table_properties(["delta.rowTrackingSuspended"])
    write_deltalake(store.uri, rows(1, 2), mode="append")
    assert [(add.base_row_id, add.default_row_commit_version) for add in adds(store, 3)] == [(0, 3)]


def test_the_names_of_the_two_columns_stay_and_are_no_others():
    metadata = Metadata(id="m", schema_string='{"name":"c"}', partition_columns=[], configuration=dict(SUPPORTED))
    assert named_columns(metadata) is metadata
    enabled = Metadata(
        id="m", schema_string='{"name":"c"}', partition_columns=[], configuration={"delta.enableRowTracking": "true"}
    )
    named = named_columns(enabled)
    assert len({*named.configuration.values()}) == 3
    assert named_columns(enabled, named.configuration) == named
    with pytest.raises(errors.InvalidArgumentError, match="keep their ids"):
        named_columns(enabled, {"delta.rowTracking.materializedRowIdColumnName": "c"})
    with pytest.raises(errors.InvalidArgumentError, match="Suspended"):
        named_columns(
            Metadata(
                id="m",
                schema_string="{}",
                partition_columns=[],
                configuration={**enabled.configuration, "delta.rowTrackingSuspended": "true"},
            )
        )


def test_a_table_without_the_feature_has_no_ids():
    store = MemoryStore("plain")
    write_deltalake(store.uri, rows(1))
    assert adds(store, 0)[0].base_row_id is None
    assert isinstance(committed(store, 0)[1], Protocol)
