"""The cost model: commits per second of one table, by writers, latency and conflicts; checked by a simulation.

    python bench/cost_model.py [--store s3 | --put 60 --get 25 --list 40] [--commits 600] [--seed 1]

prints the formula's figures (``predict``; its derivation stands in bench/cost-model.md) beside those of ``simulate``: a
simulation of discrete events in which the writers are the engine's own commit loops. Those open nothing and know no
clock, so a store that is a list of commits with latencies answers them. Latencies are assumed, and vary at random.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import heapq
import itertools
import math
import random
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from refdelta.core.commit import effects
from refdelta.core.commit.loop import commit_loop
from refdelta.core.commit.transaction import CommitOutcome, PreparedCommit
from refdelta.core.conflicts.reads import ReadSet, ReadTable, RowPredicate
from refdelta.core.log.actions import Add, Remove
from refdelta.errors import ConcurrentModificationError
from refdelta.expressions.sql import parse_predicate
from refdelta.pruning.row_predicate import row_predicate
from refdelta.table.types import LONG, StructField, StructType
from refdelta.transaction.driver import RetryPolicy

POLICY = RetryPolicy()
SCHEMA = StructType((StructField("slot", LONG), StructField("value", LONG)))


def where(sql: str) -> RowPredicate:
    return row_predicate(parse_predicate(sql, SCHEMA), SCHEMA, ("slot",))


TABLE = ReadTable(parse=where)


@dataclass(frozen=True)
class Place:
    """A store, by the seconds that its requests take, there and back.

    Attributes:
        think: of a writer, from the reply to one commit up to the next transaction: the checksum file, on a disk.
        work: from the beginning of a transaction, or its listing, up to the put: the data file.
        nearby: whether the store is of this machine. There each transaction looks at the log first, and pauses are
            shorter.
    """

    name: str
    put: float
    get: float
    list: float
    think: float
    work: float
    nearby: bool = False

    @classmethod
    def remote(cls, name: str, put: float, get: float, list: float) -> Place:  # noqa: A002
        return cls(name, put, get, list, think=0.0, work=put)


PLACES = {
    "local": Place("local disk", 0.000_3, 0.000_05, 0.000_1, think=0.000_3, work=0.001_5, nearby=True),
    "s3": Place.remote("S3", put=0.060, get=0.025, list=0.040),
    "s3-express": Place.remote("S3 Express", put=0.008, get=0.005, list=0.010),
    "azure": Place.remote("Azure", put=0.025, get=0.012, list=0.020),
}


@dataclass(frozen=True)
class Figures:
    """Of one table: commits per second, puts for each, and the share of transactions that end with a conflict."""

    rate: float
    puts: float
    aborts: float


# --- the formula ---


def predict(place: Place, writers: int, conflict: float = 0.0) -> Figures:
    """Where so many writers together have as many transactions under way as there are: by bisection over the rate.

    Args:
        place: the store.
        writers: how many write at once, each one transaction after the other.
        conflict: the probability that a transaction conflicts with one winner.
    """

    def others(rate: float) -> tuple[float, float, float]:
        return _transaction(place, rate * (writers - 1) / writers, conflict, writers)

    def fits(rate: float) -> bool:
        seconds, _, commits = others(rate)
        return rate * seconds < writers * commits

    rate = settled(1 / _window(place), fits)
    _, puts, commits = others(rate)
    return Figures(rate, puts / commits, 1 - commits)


def settled(most: float, fits: Callable[[float], bool]) -> float:
    """The greatest rate, below ``most``, at which fewer transactions are under way than there are writers: by
    bisection.
    """
    low, high = 0.0, most
    for _ in range(60):
        rate = (low + high) / 2
        low, high = (rate, high) if fits(rate) else (low, rate)
    return low


def _window(place: Place) -> float:
    """The least time from one version to the next.

    On a disk: from where a listing takes place to where the put after it does; the newest commit is read in between.
    Over a network: from a put that has lost to the next put of the same writer, which has read the winner meanwhile.
    """
    return place.list / 2 + place.get + place.put / 2 if place.nearby else place.put


class _Quiet:
    """Versions come at this rate, and none within ``gap`` of the one before it."""

    def __init__(self, rate: float, gap: float):
        self.rate, self.gap = rate, min(gap, 0.999_999 / rate if rate else gap)
        self.hazard = rate / (1 - rate * self.gap)

    def for_(self, seconds: float) -> float:
        """The probability that none comes for so long, from a moment that has nothing to do with them."""
        if seconds <= self.gap:
            return 1 - self.rate * seconds
        return (1 - self.rate * self.gap) * self.behind_one(seconds)

    def behind_one(self, seconds: float) -> float:
        """The same from a moment at which one has come."""
        return math.exp(-self.hazard * max(0.0, seconds - self.gap))

    def second(self, seconds: float) -> float:
        """The probability that at least two come for so long, from a moment at which one has come."""
        over = self.hazard * max(0.0, seconds - 2 * self.gap)
        return 1 - math.exp(-over) * (1 + over)


def _transaction(place: Place, rate: float, conflict: float, writers: int) -> tuple[float, float, float]:
    """What a transaction takes while others commit at this rate: seconds, puts, and the probability that it commits."""
    quiet = _Quiet(rate, _window(place))
    exposed = place.list / 2 + place.work + place.put / 2
    first = quiet.for_(exposed)
    # Writers get into step: one that lost to the last version of this writer mostly commits before its next one.
    alone = 1 - 1 / writers if writers > 1 and not place.nearby else 1.0
    first *= alone
    looks = _attempts(place, quiet, conflict, writers, first, exposed, place.list)
    if place.nearby or conflict:
        return looks
    # An append whose writer has just committed, and lost to nobody, goes on from that commit without a listing.
    since = place.put / 2 + place.think + place.work + place.put / 2
    again = quiet.behind_one(since) * alone
    knows = _attempts(place, quiet, conflict, writers, again, since, 0.0)
    share = first / (1 - again + first)
    return tuple(share * one + (1 - share) * other for one, other in zip(knows, looks, strict=True))


def _attempts(
    place: Place, quiet: _Quiet, conflict: float, writers: int, first: float, exposed: float, listing: float
) -> tuple[float, float, float]:
    """The same, where the first put wins with this probability, after so many seconds behind what was known and, of
    these or before, a listing.
    """
    seconds, puts, commits, alive = place.think + listing + place.work, 0.0, 0.0, 1.0
    wins, older = first, float(writers)
    for losses in range(1, _LAST):
        wins = max(wins, 1e-12)
        again, seen, window = _after_loss(place, quiet, losses, older, exposed)
        passed = quiet.rate * (exposed + seen)
        older = max(0.0, older - passed)
        goes_on = (1 - wins) * (1 - conflict) ** (passed / (1 - wins + 1e-12))
        # The last loss stands for all further ones.
        times = alive / (1 - goes_on) if losses == _LAST - 1 else alive
        seconds += times * (place.put + (1 - wins) * again)
        puts += times
        commits += times * wins
        alive *= goes_on
        exposed, wins = window, quiet.for_(window)
    return seconds, puts, commits


_LAST = 16


def _after_loss(place: Place, quiet: _Quiet, losses: int, older: float, exposed: float) -> tuple[float, float, float]:
    """Seconds after a put that has lost: from its reply to the next put; from where it took place to the last look at
    the log; and from there to where the next put takes place.

    With so many writers, a winner began as many versions ago. ``older`` is how many of these have not passed yet for
    this transaction.
    """
    put, get = place.put, place.get
    pause = _pause(place, losses, older)
    if place.nearby or pause:
        # The winner is read after the put, or was beside it. After the pause it asks for the next one, lists, and reads
        # what else there is.
        again = (2 * get if place.nearby else get) + pause
        return again + place.list + get, put / 2 + again + place.list / 2, place.list / 2 + get + put / 2
    if losses == 1:
        # It reads the winner, and beside it the next one; if that is there, it lists, and reads what else there is.
        more = quiet.second(exposed + put / 2 + get / 2)
        again, seen, window = get, put / 2 + get / 2, get / 2 + put / 2
        return (
            again + more * (place.list + get),
            seen + more * (get / 2 + place.list / 2),
            window + more * (place.list / 2 + get / 2),
        )
    # The winner was read beside the put, unless it came between the two.
    missed = min(1.0, quiet.rate * max(0.0, put - get) / 2)
    return missed * get, 0.0, put + missed * get


def _pause(place: Place, losses: int, older: float) -> float:
    pause = effects.Pause(losses, "lost", round(older))
    return POLICY.delay(pause, lambda low, high: (low + high) / 2, nearby=place.nearby, put_seconds=place.put)


def row(place: Place) -> str:
    """A store in the table of bench/README.md."""
    alone = place.think + (place.list if place.nearby else 0.0) + place.work + place.put
    window = _window(place)
    times = ", ".join(f"{1000 * seconds:g}" for seconds in (place.put, place.get, place.list))
    most = f"{1 / window:,.0f}" if window < 0.01 else f"{1 / window:.3g}"
    return f"| {place.name} | {times} | {1 / alone:.3g} a second | {alone / window:.1f} writers | {most} |"


# --- the simulation ---


@dataclass
class Log:
    """The store: the commits, and which file stands in each slot, by version."""

    slots: int
    commits: list[bytes] = field(default_factory=lambda: [b'{"commitInfo":{"txnId":"first"}}\n'])
    files: list[tuple[int, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.files.append(tuple(range(-self.slots, 0)))

    @property
    def newest(self) -> int:
        return len(self.commits) - 1

    def put(self, version: int, data: bytes) -> bool:
        if version <= self.newest:
            return False
        assert version == self.newest + 1, "a put counts only behind the newest version"
        self.commits.append(data)
        return True


@dataclass
class Counts:
    """What the writers tell, from ``since`` on."""

    since: float = math.inf
    commits: int = 0
    aborts: int = 0
    puts: int = 0


def simulate(place: Place, writers: int, conflict: float = 0.0, *, commits: int = 2_000, seed: int = 1) -> Figures:
    """Let the engine's commit loops run against a store with latencies.

    With ``conflict`` each transaction replaces one of ``1 / conflict`` files, so that it conflicts with as many of the
    winners; without, it adds one. One that conflicts begins again at the newest version.
    """
    chance = random.Random(seed)
    log, counts = Log(round(1 / conflict) if conflict else 0), Counts()
    now, order = 0.0, itertools.count()
    waiting: list[tuple[float, int, Generator[float, float, None]]] = []
    for number in range(writers):
        process = _writer(place, log, counts, number, chance)
        next(process)
        start = chance.uniform(0, place.think + place.work + place.put)
        heapq.heappush(waiting, (start, next(order), process))
    while counts.commits < commits:
        now, _, process = heapq.heappop(waiting)
        # A tenth of the versions are for the writers to get out of step.
        if counts.since == math.inf and log.newest >= commits // 10:
            counts.since = now
        heapq.heappush(waiting, (now + process.send(now), next(order), process))
    ended = counts.commits + counts.aborts
    return Figures(counts.commits / (now - counts.since), counts.puts / counts.commits, counts.aborts / ended)


Steps = Generator[float, float, Any]
"""A process: it yields how long to wait, and is sent the time."""


def _writer(place: Place, log: Log, counts: Counts, number: int, chance: random.Random) -> Steps:
    """One transaction after the other."""
    now = yield 0.0
    known: int | None = None
    for transaction in itertools.count(1):
        now = yield _varied(place.think, chance)
        slot = chance.randrange(log.slots) if log.slots else None
        if known is None or place.nearby or slot is not None:
            listing = _varied(place.list, chance)
            now = yield listing / 2
            read = log.newest
            now = yield listing / 2
        else:
            read = known
        now = yield _varied(place.work, chance)
        new = number * 10_000_000 + transaction
        shell = _Shell(place, log, chance, slot, new, now)
        try:
            yield from shell.carry_out(commit_loop(_prepared(log, read, slot, new, f"{number}-{transaction}")))
            committed = True
            known = read + 1 if shell.puts == 1 else None
        except ConcurrentModificationError:
            committed = False
        if counts.since < math.inf:
            counts.commits += committed
            counts.aborts += not committed
            counts.puts += shell.puts


def _varied(seconds: float, chance: random.Random) -> float:
    """Latencies vary by a third, with a tail, around the same mean."""
    return seconds * chance.lognormvariate(-0.045, 0.3)


@dataclass
class _Shell:
    """What carries out the effects of a commit, as ``refdelta/transaction/driver.py`` does; requests act half way."""

    place: Place
    log: Log
    chance: random.Random
    slot: int | None
    new: int
    started: float
    puts: int = 0
    # The last version that was put, and the seconds of that put.
    last: int = -1
    put_seconds: float = 0.0
    # A version that was read, or was missing, a moment ago: there is no later one yet.
    seen: int | None = None

    def carry_out(self, loop: Generator[effects.Effect, effects.Reply, CommitOutcome]) -> Steps:
        effect = next(loop)
        with contextlib.suppress(StopIteration):
            while True:
                effect = loop.send((yield from self._reply(effect)))

    def _reply(self, effect: effects.Effect) -> Steps:
        place, log = self.place, self.log
        match effect:
            case effects.VersionExists():
                return effects.Yes()  # it was seen a moment ago
            case effects.TryCommit(version, data):
                return (yield from self._try(version, data))
            case effects.ReadCommits(first, last):
                # Beside the first winner, the version after it is read.
                ahead = first == self.last and not place.nearby
                found, newest = yield from self._request(place.get, lambda: (log.commits[first : last + 1], log.newest))
                self.seen = first if ahead and newest == first else None
                return effects.Commits((*found, *(None,) * (last + 1 - first - len(found))))
            case effects.NewestVersion(after) if after == self.seen:
                return effects.Newest(after)
            case effects.NewestVersion(after):
                # The next one is asked for; a listing follows only where it is there.
                newest = yield from self._request(place.get, lambda: log.newest)
                if newest > after:
                    newest = yield from self._request(place.list, lambda: log.newest)
                return effects.Newest(newest)
            case effects.Pause():
                uniform, nearby = self.chance.uniform, place.nearby
                delay = POLICY.delay(effect, uniform, nearby=nearby, put_seconds=self.put_seconds)
                if delay:
                    self.seen = None
                now = yield delay
                return effects.Elapsed(now - self.started)
        raise AssertionError(effect)

    def _try(self, version: int, data: bytes) -> Steps:
        """A put; over a network, after the first one, with a read of the version at the same time."""
        beside = self.puts > 0 and not self.place.nearby
        self.puts, self.last, self.seen = self.puts + 1, version, None
        putting = self.put_seconds = _varied(self.place.put, self.chance)
        reading = _varied(self.place.get, self.chance) if beside else 0.0
        found: list[bytes] = []
        if beside and reading < putting:
            yield reading / 2
            found = self.log.commits[version : version + 1]
            yield (putting - reading) / 2
        else:
            yield putting / 2
        created = self._put(version, data)
        if beside and reading >= putting:
            yield (reading - putting) / 2
            found = self.log.commits[version : version + 1]
            yield reading / 2
        else:
            yield putting / 2
        if created:
            return effects.Committed()
        self.seen = version if found else None
        return effects.Exists(tuple(found))

    def _request(self, seconds: float, carry_out: Callable[[], Any]) -> Steps:
        half = _varied(seconds, self.chance) / 2
        yield half
        reply = carry_out()
        yield half
        return reply

    def _put(self, version: int, data: bytes) -> bool:
        if not self.log.put(version, data):
            return False
        self.log.files.append(_replaced(self.log.files[-1], self.slot, self.new))
        return True


def _replaced(files: tuple[int, ...], slot: int | None, new: int) -> tuple[int, ...]:
    return files if slot is None else (*files[:slot], new, *files[slot + 1 :])


def _prepared(log: Log, read: int, slot: int | None, new: int, txn_id: str) -> PreparedCommit:
    if slot is None:
        return PreparedCommit(
            read_version=read,
            read_set=ReadSet(version=read),
            actions=[_file(f"{new}")],
            commit_info={"operation": "WRITE", "isBlindAppend": True, "readVersion": read},
            txn_id=txn_id,
        )
    old = _file(f"{log.files[read][slot]}", slot)
    remove = Remove(path=old.path, deletion_timestamp=1, data_change=True, partition_values=old.partition_values)
    return PreparedCommit(
        read_version=read,
        read_set=ReadSet(version=read).with_predicate(_slot_is(slot)).with_files([old]),
        actions=[remove, _file(f"{new}", slot)],
        commit_info={"operation": "UPDATE", "readVersion": read},
        txn_id=txn_id,
        table=TABLE,
    )


def _file(path: str, slot: int | None = None) -> Add:
    values = {} if slot is None else {"slot": str(slot)}
    return Add(path=path, partition_values=values, size=1, modification_time=1, data_change=True)


@functools.cache
def _slot_is(slot: int) -> RowPredicate:
    return where(f"slot = {slot}")


# --- the program ---

WRITERS = (1, 2, 4, 8, 16, 32, 64)
CONFLICTS = (0.0, 0.01, 0.1)


def add_latencies(parser: argparse.ArgumentParser) -> None:
    """The options of a store of one's own."""
    parser.add_argument("--put", type=float, help="milliseconds; with --get and --list: a store of one's own")
    parser.add_argument("--get", type=float)
    parser.add_argument("--list", type=float)


def own_place(parser: argparse.ArgumentParser, given: argparse.Namespace) -> Place | None:
    """The store that these options describe; None where they describe none."""
    own = (given.put, given.get, given.list)
    if any(own) and not all(time and time > 0 for time in own):
        parser.error("--put, --get and --list belong together, and are more than 0")
    return Place.remote("own", *(time / 1000 for time in own)) if all(own) else None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python bench/cost_model.py", description="Commits per second of one table.")
    parser.add_argument("--store", choices=[*PLACES], action="append", help="all unless said")
    add_latencies(parser)
    parser.add_argument("--commits", type=int, default=600, help="how many are simulated for each line")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    own = own_place(parser, given)
    if given.commits < 10:
        parser.error("--commits: at least 10")
    places = [PLACES[name] for name in given.store or PLACES] if own is None else [own]
    print("commits per second of one table: by the formula, and of the engine's commit loops on a simulated store")
    print(f"{'':<12}{'a winner':>10}{'':>9}{'commits per second':^24}{'puts a commit':^18}{'conflicts':^16}")
    print(
        f"{'':<12}{'conflicts':>10}{'writers':>9}{'formula':>12}{'simulated':>12}" + f"{'formula':>9}{'sim.':>7}  " * 2
    )
    for place, conflict in itertools.product(places, CONFLICTS):
        for writers in WRITERS:
            told = predict(place, writers, conflict)
            found = simulate(place, writers, conflict, commits=given.commits, seed=given.seed)
            print(
                f"{place.name:<12}{conflict:>10.0%}{writers:>9}{told.rate:>12.1f}{found.rate:>12.1f}"
                f"{told.puts:>9.1f}{found.puts:>7.1f}  {told.aborts:>9.0%}{found.aborts:>7.0%}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
