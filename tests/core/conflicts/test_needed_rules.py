"""The rules about the table itself are needed: for each a history that goes wrong where it is missing.

``tests/model/test_exhaustive.py`` shows it of the rules about rows, by the judge. These histories are about what the
judge's rows do not tell: who made the table, which features it has, values and counters that two may not both take.

Some of them several rules refuse, as who creates a table writes its protocol and its metadata too. Then each alone is
enough, the first one says what happened, and what becomes of the history shows only when all of them are missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

import model.test_exhaustive as exhaustive
from refdelta import DeltaTable, errors, write_deltalake
from refdelta.core.commit import member
from refdelta.core.conflicts import rules
from refdelta.core.log.actions import Add, CommitInfo, DomainMetadata, Metadata, Protocol
from refdelta.core.log.codec import decode_commit, encode_commit
from refdelta.core.log.paths import commit_key
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.operations.write import create
from refdelta.operations.write.target import new_table
from refdelta.table.types import LONG, StructField, StructType, schema_json
from refdelta.transaction.transaction import Transaction
from refdelta_storage import LocalStore
from rules_left_out import check_without

pytestmark = pytest.mark.sample(test=None)


def actions(path: Path, version: int, kind: type) -> list:
    found = decode_commit(LocalStore(path).get(commit_key(version)), str(version))
    return [action for action in found if isinstance(action, kind)]


def foreign(path: Path, version: int, *staged: object) -> None:
    """Another engine's loop."""
    info = CommitInfo(fields={"operation": "another engine's"})
    LocalStore(path).put(commit_key(version), encode_commit([info, *staged]))


# --- the histories: two writers that began together; the second one's loop is what is asked about ---------------


def two_create_one_table(path: Path) -> None:
    def rows():
        write_deltalake(path, pa.table({"a": [1]}))
        yield from pa.table({"b": ["x"]}).to_batches()

    write_deltalake(path, pa.RecordBatchReader.from_batches(pa.schema([("b", pa.string())]), rows()))


def mixes_two_tables(path: Path) -> bool:
    """Each was told that the table is its own. The first one's rows are there, without its column."""
    return sorted(map(str, DeltaTable(path).to_pyarrow_table()["b"].to_pylist())) == ["None", "x"]


def two_replace_one_table(path: Path) -> None:
    DeltaTable.create(path, pa.schema([("a", pa.int64())]))
    store = LocalStore(path)
    snapshot = load_snapshot(store)
    with Transaction(store, snapshot) as second:
        create.replace(second, snapshot, new_table(StructType((StructField("b", LONG),))))
        DeltaTable.create(path, pa.schema([("c", pa.int64())]), mode="overwrite")
        write_deltalake(path, pa.table({"c": [1]}), mode="append")
        second.commit()


def keeps_rows_that_were_replaced(path: Path) -> bool:
    """A table that was replaced by one without rows holds a row of the table before."""
    return DeltaTable(path).to_pyarrow_table().to_pylist() == [{"b": None}]


def an_append_over_an_upgrade(path: Path) -> None:
    write_deltalake(path, pa.table({"a": [1]}))
    with DeltaTable(path).begin() as second:
        second.append(pa.table({"a": [2]}))
        features = ["domainMetadata", "rowTracking"]
        foreign(path, 1, Protocol(min_reader_version=1, min_writer_version=7, writer_features=features))
        second.commit()


def breaks_the_new_feature(path: Path) -> bool:
    """Where rows are tracked each new file has row ids (PROTOCOL.md, "Row Tracking")."""
    (add,) = actions(path, 2, Add)
    return "rowTracking" in DeltaTable(path).protocol().writer_features and add.base_row_id is None


def two_take_identity_values(path: Path) -> None:
    def metadata(highest: int | None) -> Metadata:
        identity = {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.allowExplicitInsert": False}
        mark = {} if highest is None else {"delta.identity.highWaterMark": highest}
        schema = StructType((StructField("id", LONG, metadata={**identity, **mark}),))
        return Metadata(id="table", schema_string=schema_json(schema), partition_columns=[])

    def take(txn: Transaction) -> None:
        """Three values behind the highest that was taken."""
        (column,) = txn.snapshot.schema
        first = column.metadata.get("delta.identity.highWaterMark", 0) + 1
        bounds = {"numRecords": 3, "minValues": {"id": first}, "maxValues": {"id": first + 2}}
        stats = msgspec.json.encode(bounds).decode()
        new = Add(
            path=f"{txn.txn_id}.parquet",
            partition_values={},
            size=1,
            modification_time=1,
            data_change=True,
            stats=stats,
        )
        txn.stage([metadata(first + 2), new])
        txn.describe("WRITE", {"mode": "Append"}, {})

    protocol = Protocol(min_reader_version=1, min_writer_version=7, writer_features=["identityColumns"])
    foreign(path, 0, protocol, metadata(None))
    together(path, take)


def gives_a_value_twice(path: Path) -> bool:
    bounds = [json.loads(add.stats) for version in (1, 2) for add in actions(path, version, Add)]
    return [b["minValues"]["id"] for b in bounds] == [1, 1]


def two_count_in_one_domain(path: Path) -> None:
    def count(txn: Transaction) -> None:
        before = json.loads(txn.snapshot.domains["shop.orders"].configuration)["count"]
        after = json.dumps({"count": before + 1})
        txn.stage([DomainMetadata(domain="shop.orders", configuration=after, removed=False)])
        txn.describe("COUNT", {}, {})

    features = Protocol(min_reader_version=1, min_writer_version=7, writer_features=["domainMetadata"])
    schema = Metadata(id="t", schema_string=schema_json(StructType((StructField("a", LONG),))), partition_columns=[])
    foreign(path, 0, features, schema, DomainMetadata(domain="shop.orders", configuration='{"count":0}', removed=False))
    together(path, count)


def loses_a_count(path: Path) -> bool:
    domain = load_snapshot(LocalStore(path)).domains["shop.orders"]
    return json.loads(domain.configuration) == {"count": 1}


def a_restore_beside_a_vacuum(path: Path) -> None:
    write_deltalake(path, pa.table({"a": [1]}))
    write_deltalake(path, pa.table({"a": [2]}), mode="overwrite")
    with DeltaTable(path).begin() as second:
        second.restore(0)
        DeltaTable(path).vacuum(dry_run=False, retention_hours=0, enforce_retention_duration=False)
        second.commit()


def names_files_that_are_gone(path: Path) -> bool:
    with pytest.raises(errors.DataFileNotFoundError):
        DeltaTable(path).to_pyarrow_table()
    return True


def together(path: Path, act: Callable[[Transaction], None]) -> None:
    """Two transactions that see version 0 do the same."""
    store = LocalStore(path)
    snapshot = load_snapshot(store)
    for _ in range(2):
        with Transaction(store, snapshot) as txn:
            act(txn)
            txn.commit()


@dataclass(frozen=True)
class History:
    """What happens, and what is wrong if it does.

    Attributes:
        play: raises if the second writer is refused.
        wrong: whether the table is as no order of the two could leave it, if both committed.
        version: of the winner over which the second is refused.
        also: other rules that refuse it.
    """

    play: Callable[[Path], None]
    wrong: Callable[[Path], bool]
    version: int
    also: frozenset[str] = frozenset()


HISTORIES = {
    "table-created": History(two_create_one_table, mixes_two_tables, 0, frozenset({"protocol", "metadata"})),
    "table-replaced": History(
        two_replace_one_table, keeps_rows_that_were_replaced, 1, frozenset({"metadata", "files-added"})
    ),
    "protocol": History(an_append_over_an_upgrade, breaks_the_new_feature, 1),
    "identity": History(two_take_identity_values, gives_a_value_twice, 1, frozenset({"metadata"})),
    "files-deleted": History(a_restore_beside_a_vacuum, names_files_that_are_gone, 2),
    "domain": History(two_count_in_one_domain, loses_a_count, 1),
}

ALL = pytest.mark.parametrize(("rule", "history"), HISTORIES.items(), ids=list(HISTORIES))


def leave_out(patch: pytest.MonkeyPatch, *missing: str) -> None:
    patch.setattr(member, "check", check_without(*missing))


@ALL
def test_the_first_of_the_rules_that_refuse_it_says_so(tmp_path, rule, history):
    with pytest.raises(errors.ConcurrentModificationError) as caught:
        history.play(tmp_path)
    first = next(row.id for row in rules.RULES if row.id in {rule, *history.also})
    assert (caught.value.conflict.rule, caught.value.conflict.version) == (first, history.version)


@ALL
def test_the_rule_alone_refuses_it(monkeypatch, tmp_path, rule, history):
    leave_out(monkeypatch, *history.also)
    with pytest.raises(errors.ConcurrentModificationError) as caught:
        history.play(tmp_path)
    assert (caught.value.conflict.rule, caught.value.conflict.version) == (rule, history.version)


@ALL
def test_without_it_the_table_is_wrong(monkeypatch, tmp_path, rule, history):
    leave_out(monkeypatch, rule, *history.also)
    history.play(tmp_path)
    assert history.wrong(tmp_path)


@pytest.mark.parametrize(
    ("rule", "other"), [(rule, other) for rule, history in HISTORIES.items() for other in sorted(history.also)]
)
def test_each_of_the_others_refuses_it_alone_too(monkeypatch, tmp_path, rule, other):
    history = HISTORIES[rule]
    leave_out(monkeypatch, rule, *(history.also - {other}))
    with pytest.raises(errors.ConcurrentModificationError) as caught:
        history.play(tmp_path)
    assert caught.value.conflict.rule == other


def test_each_rule_is_shown_to_be_needed():
    marks = exhaustive.test_without_a_rule_a_history_is_wrong.pytestmark
    (cases,) = (mark.args[1] for mark in marks if mark.name == "parametrize")
    assert HISTORIES.keys() | {missing for missing, _ in cases} == {rule.id for rule in rules.RULES}
