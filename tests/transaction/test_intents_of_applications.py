"""Writes of applications by intents: each batch is in the table once, whichever version it shares.

Tests of transaction.intents.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import refdelta
from refdelta import CommitProperties, DeltaTable, write_deltalake
from refdelta.core.commit.intents import WINDOW
from refdelta.errors import CommitOutcomeUnknownError, ConcurrentTransactionException
from refdelta.transaction import intents, leader
from refdelta.verifier.run import verify
from refdelta_storage import Committed, LocalStore, Unknown
from tiers import budget
from transaction.test_intents import ALWAYS, all_at_once, ids, lay, members, table

pytestmark = pytest.mark.usefixtures("patient")

COPYING = Path(__file__).with_name("copying_writer.py")


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def write(uri: str, app: str, number: int, *ids: int, how: CommitProperties = ALWAYS) -> int | None:
    """Append rows as a batch of an application. Returns the version; None if the table has the batch already."""
    options = {"app_id": app, "app_version": number, "commit_properties": how}
    return write_deltalake(uri, rows(*ids), mode="append", **options).version


def lay_batch(uri: str, app: str, number: int, *ids: int) -> str:
    """Put a batch as an intent whose writer is then killed. Returns the id of the transaction."""
    return lay(uri, lambda txn: txn.append(rows(*ids)), app_id=app, app_version=number)


def recorded(uri: str) -> list[tuple[int, str, int]]:
    """The ``txn`` actions of the log: version of the table, application, and its version."""
    found = []
    for version in range(1, DeltaTable(uri).version() + 1):
        lines = map(json.loads, Path(uri, f"_delta_log/{version:020d}.json").read_text().splitlines())
        found += [(version, line["txn"]["appId"], line["txn"]["version"]) for line in lines if "txn" in line]
    return found


@pytest.mark.tier("test")
def test_batches_of_several_applications_share_versions_and_each_is_recorded(tmp_path):
    uri, count = table(tmp_path, []), 4

    def stream(app):
        for number in range(count):
            assert write(uri, f"app{app}", number, 100 * app + number) is not None

    assert all_at_once(*(lambda app=app: stream(app) for app in range(5))) == [None] * 5
    assert max(members(uri)) > 1
    noted = recorded(uri)
    assert sorted((app, number) for _, app, number in noted) == [
        (f"app{app}", number) for app in range(5) for number in range(count)
    ]
    assert all(len({app for _, app, _ in some}) == len(some) for some in by_version(noted))
    for app in range(5):
        assert DeltaTable(uri).transaction_version(f"app{app}") == count - 1
    before = DeltaTable(uri).version()
    assert [write(uri, f"app{app}", number, 0) for app in range(5) for number in range(count)] == [None] * 5 * count
    assert (DeltaTable(uri).version(), len(ids(uri))) == (before, 5 * count)


def by_version(noted) -> list[list[tuple[int, str, int]]]:
    return [list(some) for _, some in itertools.groupby(noted, lambda one: one[0])]


def test_a_batch_that_is_run_again_is_skipped_for_its_own_application_only(tmp_path):
    uri = table(tmp_path, [])
    lay_batch(uri, "b", 7, 20)
    assert write(uri, "a", 7, 10) == 1
    assert recorded(uri) == [(1, "a", 7), (1, "b", 7)] or recorded(uri) == [(1, "b", 7), (1, "a", 7)]
    assert write(uri, "b", 7, 20) is None
    assert write(uri, "a", 7, 10) is None
    assert write(uri, "a", 8, 11) == 2
    assert write(uri, "b", 8, 21) == 3
    assert ids(uri) == [10, 11, 20, 21]
    refdelta.settle()
    DeltaTable(uri).create_checkpoint()
    assert [DeltaTable(uri).transaction_version(app) for app in ("a", "b", "c")] == [8, 8, None]


def test_an_application_has_no_two_transactions_in_a_version(tmp_path):
    """The other one is refused: the version that its batch conflicts with may be that of the same batch."""
    uri = table(tmp_path, [])
    dead = [lay_batch(uri, "a", 1, 11), lay_batch(uri, "a", 2, 12)]
    assert write(uri, "b", 1, 20) == 1
    refdelta.settle()
    noted = recorded(uri)
    assert [sorted(app for _, app, _ in some) for some in by_version(noted)] == [["a", "b"]]
    write(uri, "b", 2, 21)
    fates = [DeltaTable(uri).outcome(one).kind for one in dead]
    assert sorted(fates) == ["member", "refused"]
    winner = fates.index("member") + 1
    assert ids(uri) == sorted([10 + winner, 20, 21])


def test_a_batch_that_lies_beside_the_log_is_run_again(tmp_path):
    uri = table(tmp_path, [])
    dead = lay_batch(uri, "a", 1, 11)
    again = {"app_id": "a", "app_version": 1, "attempts": 5, "commit_properties": ALWAYS}
    write_deltalake(uri, rows(11), mode="append", **again)
    write(uri, "b", 1, 20)
    assert DeltaTable(uri).outcome(dead).kind in ("member", "refused")
    assert ids(uri) == [11, 20]


@pytest.mark.parametrize("lost", ["the intent", "the version"])
def test_a_batch_whose_reply_is_lost_is_found(tmp_path, monkeypatch, lost):
    uri, puts = table(tmp_path, []), []
    lay_batch(uri, "b", 1, 20)
    put = LocalStore.put_if_absent

    def loses(self, key, data):
        outcome = put(self, key, data)
        if ("_intents" in key) == (lost == "the intent") and isinstance(outcome, Committed) and not puts:
            puts.append(key)
            return Unknown(OSError("no reply"))
        return outcome

    monkeypatch.setattr(LocalStore, "put_if_absent", loses)
    assert write(uri, "a", 1, 10) == 1
    assert len(puts) == 1
    assert write(uri, "a", 1, 10) is None
    assert ids(uri) == [10, 20]
    assert sorted(recorded(uri)) == [(1, "a", 1), (1, "b", 1)]


def test_a_batch_of_unknown_outcome_is_written_again_and_is_there_once(tmp_path, monkeypatch):
    """Its intent stays beside the log, and another writer commits it before the batch is run again, or after."""
    uri = table(tmp_path, [])
    monkeypatch.setattr(leader.Leader, "lead", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write(uri, "a", 1, 10)
    monkeypatch.undo()
    assert write(uri, "b", 1, 20) == 1
    assert write(uri, "a", 1, 10) is None
    assert ids(uri) == [10, 20]
    brief = CommitProperties(group="always", max_commit_seconds=0)
    monkeypatch.setattr(leader.Leader, "look", lambda *_: (_ for _ in ()).throw(refdelta.errors.StoreError("gone")))
    with pytest.raises(CommitOutcomeUnknownError):
        write(uri, "a", 2, 11, how=brief)
    monkeypatch.undo()
    write_deltalake(uri, rows(11), mode="append", app_id="a", app_version=2, attempts=5, commit_properties=ALWAYS)
    write(uri, "b", 2, 21)
    assert ids(uri) == [10, 11, 20, 21]


# --- appends that read their version long ago -----------------------------------------------------------------------

SINCE = WINDOW + 1


@pytest.fixture
def late(monkeypatch):
    """Makes transactions that have read their version more versions ago than an intent is good for."""
    monkeypatch.setattr(intents, "_RECENT_SECONDS", 0.0)

    def make(uri, change, **options):
        transaction = DeltaTable(uri).begin(commit_properties=ALWAYS, **options)
        change(transaction)
        table = DeltaTable(uri)
        for number in range(SINCE):
            write_deltalake(table, rows(100 + number), mode="append")
        return transaction

    return make


@pytest.mark.tier("test")
def test_an_append_that_read_an_old_version_shares_the_next_one(tmp_path, late):
    tracked = {"delta.enableRowTracking": "true", "delta.enableInCommitTimestamps": "true"}
    uri = table(tmp_path, [], **tracked)
    old = late(uri, lambda txn: txn.append(rows(1)), app_id="a", app_version=1)
    lay_batch(uri, "b", 1, 2)
    result = old.commit()
    assert (result.version, result.rebased_over) == (SINCE + 1, tuple(range(1, SINCE + 1)))
    assert members(uri)[0] == 2
    own = DeltaTable(uri).history(1)[0]["members"][result.member]
    assert (own["readVersion"], own["isBlindAppend"]) == (0, True)
    assert ids(uri) == [1, 2, *range(100, 100 + SINCE)]
    lines = [json.loads(one) for one in Path(uri, f"_delta_log/{SINCE + 1:020d}.json").read_text().splitlines()]
    assert sorted(line["add"]["baseRowId"] for line in lines if "add" in line) == [SINCE, SINCE + 1]
    refdelta.settle()
    assert verify(uri).findings == []


def test_one_that_conflicts_with_a_version_since_is_not_put_as_an_intent(tmp_path, late):
    uri = table(tmp_path, [])
    old = late(uri, lambda txn: txn.append(rows(1)), app_id="a", app_version=1)
    write(uri, "a", 1, 5, how=CommitProperties())
    lay_batch(uri, "b", 1, 2)
    with pytest.raises(ConcurrentTransactionException) as raised:
        old.commit()
    assert raised.value.conflict.version == SINCE + 1
    assert ids(uri) == [5, *range(100, 100 + SINCE)]


@pytest.mark.tier("test")
def test_a_change_that_read_an_old_version_goes_alone(tmp_path, late):
    uri = table(tmp_path, [1, 2], **{"delta.enableDeletionVectors": "true"})
    old = late(uri, lambda txn: txn.delete("id = 1"))
    lay_batch(uri, "b", 1, 3)
    assert old.commit().member is None
    assert members(uri)[0] == 1
    assert ids(uri) == [2, *range(100, 100 + SINCE)]


# --- followers that are killed ---------------------------------------------------------------------------------------


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("die", [*range(1, 30), *range(-29, 0)])
@pytest.mark.sample(check=1, test=4)
def test_followers_that_are_killed_copy_each_change_once(tmp_path, die):
    """Two processes copy a table each into one, by intents. Each is killed, begins again at its stored position, and
    may find the same batch in the table, or beside its log.
    """
    target, changes = table(tmp_path / "target", []), budget(8, fewest=3)
    sources = [table(tmp_path / f"source{number}", [1000 * number]) for number in (1, 2)]
    plans = [(die, -die, 0), (-die, die, 0)]
    for number, source in enumerate(sources, 1):
        for k in range(1, changes):
            write_deltalake(source, rows(1000 * number + k), mode="append")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def copied(number):
        for one in plans[number]:
            command = [sys.executable, str(COPYING), sources[number], target, f"app{number}", str(one)]
            ended = subprocess.run(command, env=environment, stderr=subprocess.PIPE, timeout=120, check=False)
            assert ended.returncode in (0, -9), ended.stderr.decode()
        assert ended.returncode == 0

    assert all_at_once(lambda: copied(0), lambda: copied(1)) == [None] * 2
    assert ids(target) == sorted(1000 * number + k for number in (1, 2) for k in range(changes))
    noted = recorded(target)
    assert len({(app, number) for _, app, number in noted}) == len(noted)
