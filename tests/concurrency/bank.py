"""What each process does to a table of accounts. A module of its own, for spawned processes to import.

These rules must hold in every version, at either level:

- All balances add up to :data:`TOTAL`: a transfer gives to one account what it takes from another.
- The accounts of one owner never add up to less than zero; only the bank may owe. A payment reads all of them in the
  transaction that takes the money from one of them, so that of two payments which each would be covered only one may
  go on from the same snapshot (write skew).
- A row keeps its id.
- A version changes what its transaction was to change, and nothing else.

At WriteSerializable a blind append may be passed over, and then a version is no prefix of the serial order. The blind
appends here open an account with money of the bank. A transaction that does not see that money spends none of it, and
what the others do adds up in any order; so the rules hold at that level as well. The levels differ in what an audit may
have seen: it reads the accounts of some owners and appends what they add up to. At Serializable these are the sums in
the version before its own; at WriteSerializable the money of accounts opened since its snapshot may be missing.
"""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from unittest import mock

import pyarrow as pa

from refdelta import DeltaTable, errors
from refdelta.operations.maintenance import vacuum as vacuum_module

if TYPE_CHECKING:
    from refdelta.api.transaction import WriteTransaction

T = TypeVar("T")

OWNERS, EACH, FIRST_BALANCE = 8, 3, 40
ACCOUNTS = range(OWNERS * EACH)  # the account n belongs to the owner n % OWNERS; those that are opened later come after
BANK, AUDITS = 1000, 1001  # owners, too
TOTAL = len(ACCOUNTS) * FIRST_BALANCE
FILES = 4
SCHEMA = pa.schema([("account", pa.int64()), ("owner", pa.int64()), ("balance", pa.int64()), ("note", pa.string())])
QUICKLY = {"fsync": "false"}

Effect = Mapping[int, int]
"""By account, how much more is in it than before."""


# --- the race ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shared:
    """What the processes of one race share.

    Attributes:
        meeting: where they wait for each other before they begin.
        over: set when the transfers are done.
        quiet: set when nobody writes any more.
        followed: the last version that was followed.
        lock: held while one of the arrays is looked at.
        begun: by process, when what it does now has begun, in seconds since 1970; infinite where it does nothing.
        oldest: likewise, when the oldest of all that was being done at that moment had begun.
    """

    meeting: Any
    over: Any
    quiet: Any
    followed: Any
    lock: Any
    begun: Any
    oldest: Any


_shared: Any = None
_process: int = -1


def join(shared: Shared, processes: Any) -> None:
    """Called first in each process."""
    global _shared, _process  # noqa: PLW0603
    _shared = shared
    with processes.get_lock():
        _process = processes.value
        processes.value += 1


def race(uri: str, work: Sequence[Callable[[str], Any]], meanwhile: Sequence[Callable[[str], Any]], last: Any) -> list:
    """Processes that begin at once. Those of ``meanwhile`` go on until those of ``work`` are done, and ``last`` until
    all others are.

    Returns what each of them returns, in this order.
    """
    context = multiprocessing.get_context("spawn")
    count = len(work) + len(meanwhile) + 1
    shared = Shared(
        meeting=context.Barrier(count, timeout=120),
        over=context.Event(),
        quiet=context.Event(),
        followed=context.Value("q", 0),
        lock=context.Lock(),
        begun=context.Array("d", [math.inf] * count, lock=False),
        oldest=context.Array("d", [math.inf] * count, lock=False),
    )
    with ProcessPoolExecutor(count, context, initializer=join, initargs=(shared, context.Value("i", 0))) as pool:
        following = pool.submit(_met, last, uri)
        futures = [pool.submit(_met, function, uri) for function in work]
        aside = [pool.submit(_met, function, uri) for function in meanwhile]
        try:
            done = [future.result() for future in futures]
        finally:
            shared.over.set()
            try:
                done_aside = [future.result() for future in aside]
            finally:
                shared.quiet.set()
        return [*done, *done_aside, following.result()]


def _met(function: Callable[[str], T], uri: str) -> T:
    _shared.meeting.wait()
    return function(uri)


@contextlib.contextmanager
def busy() -> Iterator[None]:
    """Something that needs the files of the version at which it begins, until it ends."""
    with _shared.lock:
        now = time.time()
        _shared.oldest[_process] = min(now, *_shared.begun)
        _shared.begun[_process] = now
    try:
        yield
    finally:
        with _shared.lock:
            _shared.begun[_process] = _shared.oldest[_process] = math.inf


def horizon() -> float:
    """The time, in seconds since 1970, from which on a removed file may still be needed.

    A file is removed at the time at which that was staged, and is live for others until it is committed. So what counts
    is not only when a process began, but also what others were doing then.
    """
    with _shared.lock:
        return min(time.time(), *_shared.oldest)


def create(uri: str, level: str) -> None:
    """A table whose version 1 has the accounts, spread over some files."""
    configuration = {
        "delta.isolationLevel": level,
        "delta.enableDeletionVectors": "true",
        "delta.enableRowTracking": "true",
        "delta.enableChangeDataFeed": "true",
        "delta.checkpointInterval": "25",
    }
    table = DeltaTable.create(uri, SCHEMA, configuration=configuration, storage_options=QUICKLY)
    with table.begin() as txn:
        for first in range(FILES):
            txn.append(_rows((n, n % OWNERS, FIRST_BALANCE, None) for n in ACCOUNTS[first::FILES]))
        txn.commit()


def _rows(rows: Iterable[Sequence[Any]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


# --- those who change rows -----------------------------------------------------------------------------------------


def change(transactions: int, seed: int, uri: str) -> tuple[dict[int, Effect], Counter[str]]:
    """Commit so many transactions. One that conflicts is repeated, from a new snapshot.

    Returns what each version was to do, and how many of each kind were committed, or refused by which error.
    """
    dice, table = random.Random(seed), DeltaTable(uri, storage_options=QUICKLY)
    done: dict[int, Effect] = {}
    counts: Counter[str] = Counter()
    while len(done) < transactions:
        kind = dice.choice([pay, pay, pay, move, open_account, open_account, audit])
        try:
            with busy(), table.begin() as txn:
                effect = kind(txn, dice, 10**6 * seed + len(done))
                version = txn.commit().version
        except errors.ConcurrentModificationError as error:
            counts[f"{kind.__name__}: {type(error).__name__}"] += 1
            continue
        if effect:
            assert version is not None
            done[version] = effect
            counts[kind.__name__] += 1
    return done, counts


def _an_owner(dice: random.Random) -> int:
    """One of them is meant as often as all others, so that transactions meet."""
    return dice.choice([0, dice.randrange(OWNERS)])


def pay(txn: WriteTransaction, dice: random.Random, number: int) -> Effect:
    """Pay another owner from any one account, up to what all accounts of the owner hold together."""
    owner = _an_owner(dice)
    to = dice.choice([account for account in ACCOUNTS if account % OWNERS != owner])
    own = txn.read(predicate=f"owner = {owner}").to_pylist()
    (there,) = txn.read(predicate=f"account = {to}").to_pylist()
    wealth = sum(row["balance"] for row in own)
    if wealth <= 0:
        return {}
    # Often all of it: then no other payment may be made of it.
    amount = wealth if dice.random() < 0.4 else dice.randint(1, wealth)
    return _transfer(txn, number, dice.choice(own), there, amount)


def move(txn: WriteTransaction, dice: random.Random, number: int) -> Effect:
    """Move money between two accounts of one owner, of which it reads no other."""
    owner, places = dice.randrange(OWNERS), dice.sample(range(EACH), 2)
    ((one,), (other,)) = (txn.read(predicate=f"account = {owner + OWNERS * place}").to_pylist() for place in places)
    return _transfer(txn, number, one, other, dice.randint(1, FIRST_BALANCE))


def _transfer(
    txn: WriteTransaction, number: int, source: Mapping[str, Any], to: Mapping[str, Any], amount: int
) -> Effect:
    """In turns by UPDATE, as differences, and by MERGE, as the balances that follow from those that were read. So both
    are committed, though an UPDATE conflicts more often.
    """
    effect = {source["account"]: -amount, to["account"]: amount}
    if number % 2 == 0:
        cases = " ".join(f"WHEN account = {account} THEN {more}" for account, more in effect.items())
        accounts = ", ".join(map(str, effect))
        txn.update({"balance": f"balance + CASE {cases} END"}, predicate=f"account IN ({accounts})")
    else:
        balances = [row["balance"] + effect[row["account"]] for row in (source, to)]
        after = pa.table({"account": list(effect), "balance": balances})
        txn.merge(after, "t.account = s.account").when_matched_update({"balance": "s.balance"}).execute()
    return effect


def open_account(txn: WriteTransaction, dice: random.Random, number: int) -> Effect:
    """Append an account with money, and what the bank owes for it, without a look at the table."""
    account, amount = 10**9 + 2 * number, dice.randint(1, FIRST_BALANCE)
    txn.append(_rows([(account, _an_owner(dice), amount, None), (account + 1, BANK, -amount, None)]))
    return {account: amount, account + 1: -amount}


def audit(txn: WriteTransaction, dice: random.Random, number: int) -> Effect:
    """Append what the accounts of some owners add up to, one owner after the other."""
    account, seen = 10**12 + number, {}
    for owner in sorted({0, *dice.sample(range(OWNERS), 3)}):
        seen[owner] = sum(row["balance"] for row in txn.read(["balance"], f"owner = {owner}").to_pylist())
    txn.append(_rows([(account, AUDITS, 0, json.dumps(list(seen.items())))]))
    return {account: 0}


# --- those who change none -----------------------------------------------------------------------------------------


def keep_in_shape(seed: int, uri: str) -> Counter[str]:
    """OPTIMIZE in all its forms, checkpoints and RESTORE, each once at least, until the transfers are done.

    Returns how many of each kind were committed, or refused by which error.
    """
    return _in_turns([compact, sort, purge, checkpoint, restore], seed, uri)


def clean_up(seed: int, uri: str) -> Counter[str]:
    """VACUUM, until the transfers are done. Returns how many files it removed."""
    return _in_turns([vacuum], seed, uri)


def _in_turns(kinds: Sequence[Callable[[DeltaTable, random.Random], int]], seed: int, uri: str) -> Counter[str]:
    """Each kind once at least, in random order, until the transfers are done.

    Returns how many of each kind were committed, or refused by which error, and how many files VACUUM removed.
    """
    dice, table = random.Random(seed), DeltaTable(uri, storage_options=QUICKLY)
    counts: Counter[str] = Counter()
    todo: list[Any] = []
    while not _shared.over.is_set() or todo or not counts:
        todo = todo or dice.sample(kinds, len(kinds))
        kind = todo.pop()
        for _ in range(4):
            try:
                counts[kind.__name__] += kind(table, dice)
                break
            except (errors.ConcurrentModificationError, errors.DataFileNotFoundError) as error:
                if kind is not restore and (kind is not sort or isinstance(error, errors.DataFileNotFoundError)):
                    raise  # the others conflict with no change of rows, and need no file of an older version
                counts[f"{kind.__name__}: {type(error).__name__}"] += 1
    return counts


def compact(table: DeltaTable, _: random.Random) -> int:
    with busy():
        return table.optimize.compact().version is not None


def sort(table: DeltaTable, dice: random.Random) -> int:
    with busy():
        return table.optimize.z_order(dice.sample(["account", "owner", "balance"], 2)).version is not None


def purge(table: DeltaTable, _: random.Random) -> int:
    with busy():
        return table.reorg_purge().version is not None


def checkpoint(table: DeltaTable, _: random.Random) -> int:
    table.update_incremental()
    table.create_checkpoint()
    return 1


def restore(table: DeltaTable, dice: random.Random) -> int:
    """To one of the last versions; VACUUM may have removed its files."""
    with busy():
        table.update_incremental()
        return table.restore(max(1, table.version() - dice.randint(1, 4))).version is not None


def vacuum(table: DeltaTable, _: random.Random) -> int:
    """Remove all files that no process needs any more; the one that follows the log needs those of older versions."""
    followed, since, now = _shared.followed.value, horizon(), time.time()
    # The time by which files are old stands still from here on. Clocks of files may be late by milliseconds.
    table.update_incremental()
    with mock.patch.object(vacuum_module, "now_ms", return_value=round(now * 1000)):
        found = table.vacuum(
            (now - since + 0.1) / 3600,
            dry_run=False,
            enforce_retention_duration=False,
            keep_versions=range(followed, table.version() + 1),
        )
    return len(found)


# --- those who read ------------------------------------------------------------------------------------------------


def watch(uri: str) -> int:
    """Read the newest version again and again, twice each time, until the transfers are done. Returns how often."""
    table, times = DeltaTable(uri, storage_options=QUICKLY), 0
    while not _shared.over.wait(0.05):
        with busy():
            table.update_incremental()
            first = table.to_record_batch_reader()
            second = sorted(table.to_pyarrow_table().to_pylist(), key=_account)
            found = sorted(first.read_all().to_pylist(), key=_account)
        assert found == second, table.version()
        check({row["account"]: row for row in found}, f"version {table.version()}")
        times += 1
    return times


def _account(row: Mapping[str, Any]) -> int:
    return int(row["account"])


def owned(rows: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """What the accounts of each owner add up to."""
    found: dict[int, int] = defaultdict(int)
    for row in rows:
        found[row["owner"]] += row["balance"]
    return found


def check(rows: Mapping[int, Mapping[str, Any]], where: str) -> None:
    """The rules for the rows of one version, by account."""
    totals = owned(rows.values())
    assert sum(totals.values()) == TOTAL, where
    short = {owner: total for owner, total in totals.items() if total < 0 and owner != BANK}
    assert not short, (where, short)
    assert rows.keys() >= set(ACCOUNTS), where


@dataclass
class Replay:
    """The table, made from nothing but its change feed.

    Attributes:
        level: of the table.
        rows: by account.
        ids: by account, the id of its row.
        effects: what each version did that changed rows, but for RESTORE.
        operations: how many versions are of which operation.
        late: how many audits had not seen all.
    """

    level: str
    rows: dict[int, dict[str, Any]]
    ids: dict[int, int]
    effects: dict[int, Effect]
    operations: Counter[str]
    late: int = 0

    def go_on(self, uri: str, version: int) -> None:
        """Replay a version, and compare with the rows that are there."""
        table = DeltaTable(uri, version=version, storage_options=QUICKLY)
        operation = table.history(1)[0]["operation"]
        self.operations[operation] += 1
        changes = table.load_cdf(version, version).read_all().to_pylist()
        before = owned(self.rows.values())
        effect: dict[int, int] = defaultdict(int)
        for sign, kinds in ((-1, {"delete", "update_preimage"}), (1, {"insert", "update_postimage"})):
            for change in changes:
                if change["_change_type"] not in kinds:
                    continue
                row = {name: change[name] for name in SCHEMA.names}
                effect[row["account"]] += sign * row["balance"]
                if sign < 0:
                    assert self.rows.pop(row["account"]) == row, (version, row)
                else:
                    assert self.rows.setdefault(row["account"], row) is row, (version, row)
        found = {}
        for row in table.to_pyarrow_table(columns=[*SCHEMA.names, "_metadata.row_id"]).to_pylist():
            row_id = row.pop("_metadata.row_id")
            assert self.ids.setdefault(row["account"], row_id) == row_id, (version, row)
            assert found.setdefault(row["account"], row) is row, (version, row)
        assert found == self.rows, version
        if version:
            check(found, f"version {version}")
        if operation != "RESTORE" and changes:
            self.effects[version] = dict(effect)
            for account in effect:
                if self.rows[account]["owner"] == AUDITS:
                    self._check_audit(json.loads(self.rows[account]["note"]), before, version)

    def _check_audit(self, seen: Iterable[tuple[int, int]], before: Mapping[int, int], version: int) -> None:
        missing = {owner: before[owner] - total for owner, total in seen if total != before[owner]}
        assert not missing or (self.level == "WriteSerializable" and min(missing.values()) > 0), (version, missing)
        self.late += bool(missing)


def follow(level: str, uri: str) -> Replay:
    """Replay all versions, one by one, until nobody writes any more."""
    table, version, replay = DeltaTable(uri, storage_options=QUICKLY), -1, Replay(level, {}, {}, {}, Counter())
    while True:
        quiet = _shared.quiet.wait(0.01)
        table.update_incremental()
        for version in range(version + 1, table.version() + 1):  # noqa: B020
            replay.go_on(uri, version)
            _shared.followed.value = version
        if quiet:
            return replay
