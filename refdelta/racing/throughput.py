"""A measured race: writers that commit to one table at once, in any store, and a check that no commit was lost.

:func:`race` creates a table in a new folder, lets processes write to it, and removes the folder. It takes any engine
that is a :class:`BenchEngine`; a package announces one by an entry point of the group ``refdelta.bench_engines``.
:mod:`refdelta.racing.mixes` has the tasks. A store is any that fsspec knows, and other packages announce theirs to it.
"""

from __future__ import annotations

import functools
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint, entry_points, version
from typing import Any, Protocol

import numpy as np

from refdelta import __version__, arguments
from refdelta.api.table import DeltaTable
from refdelta.api.writer import write_deltalake
from refdelta.engine.log.location import scratch_folder
from refdelta.errors import (
    CommitFailedError,
    CommitOutcomeUnknownError,
    InvalidArgumentError,
    suggestion,
    unknown_name,
)
from refdelta.proxy import Proxy
from refdelta.proxy.endpoint import Endpoint
from refdelta.proxy.latency import Latency, RateLimit
from refdelta.racing.costs import Costs
from refdelta.racing.crew import Crew, Job, RaceFailedError, Shift
from refdelta.racing.engines import ENGINES, is_tuned
from refdelta.racing.mixes import APPENDS, MIXES, SCHEMA, Mix, Statement, check_rows, first_pieces, statement
from refdelta.transaction import background
from refdelta.transaction.options import CommitProperties
from refdelta.wording import counted

NOTE = "refdelta-bench "
_COMPACTION = -1
GROUP = "refdelta.bench_engines"
"""The entry points of packages with a :class:`BenchEngine`."""
_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 1.0
_MOST_LOST = 100
"""The most times in a row that a task may lose while no writer begins another task. A writer that wins begins one."""
_LEAST_GROWN = 100
MOST_TABLES = 1_000
"""The greatest number of tables of a race."""


# --- results of writers --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Acknowledged:
    """The result of a commit: its version, if the engine reports it, and the number of puts to the log; its place in
    the version, where that has several transactions; and the number of its table, where a race has several.
    """

    version: int | None
    attempts: int = 1
    member: int | None = None
    table: int = 0


class Hands(Protocol):
    """An engine's handle on the table of a race. Where it has a method ``close``, that is called at the end.

    Attributes:
        aborts: the exceptions of a commit that lost to another writer: the task is repeated.
        unknown: the exceptions of a commit with an unknown outcome: it is not repeated.
    """

    aborts: tuple[type[Exception], ...]
    unknown: tuple[type[Exception], ...]

    def commit(self, task: int) -> Acknowledged | None:
        """Do a task and commit it; None for a task that only reads."""

    def compact(self) -> Acknowledged | None:
        """Compact all files and commit; None if there was nothing to do."""


class BenchEngine(Protocol):
    """An engine that takes part in races: any object with these methods that can be pickled."""

    @property
    def name(self) -> str:
        """The name in the results."""

    @property
    def versions(self) -> Mapping[str, str]:
        """By name, the versions of its packages."""

    def prepare(self, folder: str, mix: Mix, storage_options: Mapping[str, str]) -> None:
        """Create the table of a race, with the rows of :func:`~refdelta.racing.mixes.first_pieces`, in a new folder."""

    def open(self, folder: str, mix: Mix, storage_options: Mapping[str, str]) -> Hands:
        """Open the table, once in each writer. :func:`refdelta.racing.mixes.statement` has the statement of a task."""

    def check(
        self, folder: str, mix: Mix, tallies: Sequence[Tally], storage_options: Mapping[str, str]
    ) -> Sequence[str]:
        """The errors in the table after a race; :func:`refdelta.racing.mixes.check_rows` finds those of its rows."""


@dataclass(frozen=True)
class RaceCommit:
    """An acknowledged commit: ``began`` and ``ended`` in seconds of ``time.monotonic``, all tries included."""

    task: int
    version: int | None
    attempts: int
    began: float
    ended: float
    member: int | None = None
    table: int = 0


@dataclass
class Tally:
    """The results of one writer; ``unknown`` are the tasks with an unknown outcome, ``first`` the first message of
    each class of error, ``reads`` the number of tasks that only read, ``cpu`` the processor seconds of its process.
    """

    commits: list[RaceCommit] = field(default_factory=list)
    aborts: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    unknown: list[int] = field(default_factory=list)
    reads: int = 0
    cpu: float = 0.0


@dataclass(frozen=True)
class Race:
    """The result of a race.

    Attributes:
        mix: the kind of writers.
        writers: the number of writers, without the one that compacts.
        commits: the number of their acknowledged commits.
        compactions: the number of commits of the one that compacts.
        seconds: the time from the start of the first statement to the last acknowledgement.
        aborts: the number of statements that lost to another writer, by the class of the error. Each was repeated.
        attempts: the number of puts to the log, at least one a commit.
        latency: milliseconds from the first try of a task until it was acknowledged: ``p50``, ``p90``, ``p99``.
        problems: the errors in the table; empty if no commit is lost and none is duplicated.
        engine: the name of the engine.
        first_errors: by the class of the error, the message of one of the first.
        warm_up: the number of commits before the clock started, to a table of their own.
        seed: the seed of pauses and mixes.
        reads: the number of tasks that only read; they are in no other figure.
        cpu_ms: processor milliseconds of the writers' processes, for each commit, reads and lost work included; None
            where the work is done by other processes, or in the process of the proxy, too.
        growth: the median latency of the last tenth of the commits over that of the first; None under 100 commits.
        costs: the requests of a commit, their bytes and their price; None without a ``latency``.
        tables: the number of tables.
    """

    mix: str
    writers: int
    commits: int
    compactions: int
    seconds: float
    aborts: Mapping[str, int]
    attempts: int
    latency: Mapping[str, float]
    problems: tuple[str, ...] = ()
    engine: str = "refdelta"
    first_errors: Mapping[str, str] = field(default_factory=dict)
    warm_up: int = 0
    seed: int = 0
    reads: int = 0
    cpu_ms: float | None = None
    growth: float | None = None
    costs: Costs | None = None
    tables: int = 1

    @property
    def commits_per_second(self) -> float:
        """All writers together."""
        return self.commits / self.seconds if self.seconds else 0.0

    @property
    def abort_rate(self) -> float:
        """The part of all statements that were aborted."""
        aborted = sum(self.aborts.values())
        return aborted / (aborted + self.commits + self.compactions) if aborted else 0.0


# --- the race ------------------------------------------------------------------------------------------------------


def race(
    uri: str,
    *,
    mix: Mix | str = APPENDS,
    writers: int = 4,
    commits: int | None = None,
    seconds: float | None = None,
    row_level: bool | None = None,
    threads: bool = False,
    storage_options: Mapping[str, str] | None = None,
    watch: Callable[[int], object] = lambda _: None,
    warm_up: int = 2,
    seed: int = 0,
    engine: BenchEngine | None = None,
    latency: Latency | None = None,
    tables: int = 1,
) -> Race:
    """Let writers commit to a table in a fresh folder, check what they leave, and remove the folder.

    Args:
        uri: an existing folder, or a URI under which objects can be made.
        mix: the kind of writers: the name of a fixed one, or a :class:`refdelta.racing.mixes.Mix`.
        writers: the number of writers.
        commits: the number of commits of all writers, at most :func:`refdelta.racing.mixes.Mix.most_tasks`.
        seconds: the time, instead of ``commits``; also ends when no task is left.
        row_level: whether conflicts are decided by rows, as in :class:`refdelta.CommitProperties`; refdelta alone.
        threads: whether the writers are threads of this process, and not processes.
        storage_options: the options of the store.
        watch: is called from time to time with the number of commits that were begun.
        warm_up: the number of commits that each writer makes to a table of its own race before the clock starts:
            imports, connections and caches are then not part of the figures.
        seed: of the pauses after aborts, and of the jitter of a latency.
        engine: another engine; None for refdelta.
        latency: the time that requests of the writers take longer, by a proxy before the store, which counts them, too;
            None for no proxy. The store is one of S3, Azure or GCS whose endpoint is in ``storage_options``.
        tables: the number of tables, of which each has its share of the commits: every writer writes to all, in turn.

    Raises:
        InvalidArgumentError: invalid arguments.
        RaceFailedError: a writer failed; with the reason.
        StoreError: the store cannot be reached.
    """
    mix = _checked(mix, writers, commits, seconds, uri, threads)
    if arguments.whole("warm_up", warm_up) is None or warm_up < 0:
        raise InvalidArgumentError(f"warm_up is 0 or more, not {warm_up}")
    if arguments.whole("tables", tables) is None or not 1 <= tables <= MOST_TABLES:
        raise InvalidArgumentError(f"tables is between 1 and {MOST_TABLES}, not {tables}")
    by, options = engine or OwnEngine(row_level), dict(storage_options or {})
    if tables > 1:
        by = SeveralTables(by, tables)
    with (
        _distant(uri, options, latency, seed) as (proxy, by_proxy),
        Crew(writers + mix.compacts, threads=threads) as crew,
    ):
        for measured in (False, True):
            if not measured and not warm_up:
                continue
            with scratch_folder(uri, storage_options, "refdelta-bench") as folder:
                by.prepare(folder, mix, options)
                crew.ready(jobs(functools.partial(by.open, folder, mix, by_proxy), mix, writers, seed=seed))
                if not measured:
                    crew.go(tasks=min(warm_up * writers, mix.most_tasks))
                    continue
                if proxy is not None:
                    proxy.reset()
                used = time.process_time()
                tallies = crew.go(tasks=commits or mix.most_tasks, seconds=seconds, watch=watch)
                used = time.process_time() - used
                requests = [] if proxy is None else proxy.seen
                problems = by.check(folder, mix, tallies, options)
    if threads:  # each of them sees the processor time of all
        tallies = [replace(tally, cpu=used / len(tallies)) for tally in tallies]
    told = summed(mix, writers, tallies, problems=problems)
    if proxy is not None:
        costs = Costs.of(requests, told.commits) if told.commits else None
        told = replace(told, costs=costs, cpu_ms=None if threads else told.cpu_ms)
    return replace(told, engine=by.name, warm_up=warm_up * writers, seed=seed, tables=tables)


@contextmanager
def _distant(
    uri: str, options: dict[str, str], latency: Latency | None, seed: int
) -> Iterator[tuple[Proxy | None, dict[str, str]]]:
    """A proxy with this latency before the store of a place, and the options by way of it."""
    if latency is None:
        yield None, options
        return
    store = Endpoint.of(uri, options, "--latency")
    plan = None if latency.rate is None else RateLimit(latency.rate)
    with Proxy(store, plan, delay=latency.delay(seed)) as proxy:
        yield proxy, store.through(proxy.endpoint)


def find_engine(name: str, **options: str) -> BenchEngine:
    """The engine of this name: one of :data:`refdelta.racing.engines.ENGINES`, an entry point of the group
    ``refdelta.bench_engines``, or ``module:object``.

    Args:
        name: the name.
        options: the arguments of its class, such as the ``database`` of a catalog.

    Raises:
        InvalidArgumentError: there is none, or it cannot be imported, or lacks a method.
    """
    announced = entry_points(group=GROUP)
    found = next((one for one in announced if one.name == name), None)
    path = ENGINES.get(name, name)
    if found is None and ":" not in path:
        known = [*ENGINES, *sorted(announced.names)]
        raise InvalidArgumentError(f"{unknown_name('engine', name, known)}; or say module:object")
    point = found or EntryPoint(name, path, GROUP)
    try:
        made = point.load()
        engine: BenchEngine = made(**options) if isinstance(made, type) else made
    except InvalidArgumentError:
        raise
    except Exception as error:
        raise InvalidArgumentError(f"the engine {name} cannot be loaded: {type(error).__name__}: {error}") from error
    lacking = [part for part in ("name", "versions", "prepare", "open", "check") if not hasattr(engine, part)]
    if lacking:
        raise InvalidArgumentError(f"the engine {name} lacks {', '.join(lacking)}: see refdelta.racing.BenchEngine")
    return engine


def _checked(mix: Mix | str, writers: int, commits: int | None, seconds: float | None, uri: str, threads: bool) -> Mix:
    if not isinstance(mix, Mix) and mix not in MIXES:
        raise InvalidArgumentError(f"mix is one of {', '.join(MIXES)}, not {mix!r}{suggestion(mix, MIXES)}")
    chosen = mix if isinstance(mix, Mix) else MIXES[mix]
    if writers < 1:
        raise InvalidArgumentError(f"a race needs a writer, not {writers}")
    if (commits is None) == (seconds is None):
        raise InvalidArgumentError("a race ends after so many commits or after so many seconds: say one of the two")
    if commits is not None and not 1 <= commits <= chosen.most_tasks:
        raise InvalidArgumentError(f"commits is between 1 and {chosen.most_tasks:,}, not {commits}")
    if seconds is not None and not seconds > 0:
        raise InvalidArgumentError(f"seconds is more than 0, not {seconds}")
    if uri.lower().startswith("memory:") and not threads:
        raise InvalidArgumentError("memory:// is of one process: its writers are threads")
    return chosen


def prepare(
    folder: str,
    mix: Mix,
    storage_options: Mapping[str, str] | None = None,
    *,
    vectors: bool = True,
    compacts: bool = False,
) -> None:
    """Make the table of a race, with deletion vectors unless said, and without auto compaction."""
    configuration = {"delta.enableDeletionVectors": str(vectors).lower()}
    if compacts:
        configuration["delta.autoOptimize.autoCompact"] = "true"
    fill(DeltaTable.create(folder, SCHEMA, configuration=configuration, storage_options=storage_options), mix)


def fill(table: DeltaTable, mix: Mix) -> None:
    """Write the first rows of a race."""
    for piece in first_pieces(mix):
        write_deltalake(table, piece, mode="append")


def do_merge(table: Any, wanted: Statement, **how: Any) -> Any:
    """Merge the rows of a statement by the methods that refdelta's and deltalake's tables have.

    Args:
        table: the table, or a transaction.
        wanted: the statement.
        how: further arguments of ``merge``.
    """
    merger = table.merge(wanted.rows, "t.id = s.id", source_alias="s", target_alias="t", **how)
    return merger.when_matched_update({"n": "t.n + 1"}).when_not_matched_insert_all().execute()


class Own:
    """The :class:`Hands` of refdelta, with one handle for all commits.

    Args:
        table: the table; or its folder, with ``storage_options``.
        mix: the kind of writers.
        row_level: as for :func:`race`.
        storage_options: the options of the store.
        group: the value of :attr:`refdelta.CommitProperties.group`.
    """

    aborts: tuple[type[Exception], ...] = (CommitFailedError,)
    unknown: tuple[type[Exception], ...] = (CommitOutcomeUnknownError,)

    def __init__(
        self,
        table: DeltaTable | str,
        mix: Mix,
        row_level: bool | None = None,
        storage_options: Mapping[str, str] | None = None,
        group: str | None = None,
    ) -> None:
        self._table = DeltaTable(table, storage_options=storage_options) if isinstance(table, str) else table
        self._mix, self._row_level, self._group = mix, row_level, group

    def commit(self, task: int) -> Acknowledged | None:
        """See :meth:`Hands.commit`."""
        wanted, how = statement(self._mix, task), self._how(task)
        result = self._do(wanted, how)
        if wanted.what == "read":
            return None
        if result.version is None:
            raise RaceFailedError(f"no row is left for {wanted.predicate}")
        return Acknowledged(result.version, result.attempts, result.member)

    def _do(self, wanted: Statement, how: CommitProperties) -> Any:
        table = self._table
        match wanted.what:
            case "append":
                return write_deltalake(table, wanted.rows, mode="append", commit_properties=how)
            case "delete":
                return table.delete(wanted.predicate, commit_properties=how)
            case "update":
                return table.update({"n": wanted.value}, predicate=wanted.predicate, commit_properties=how)
            case "merge":
                return do_merge(table, wanted, commit_properties=how)
            case "read":
                table.update_incremental()
                return table.to_pyarrow_table(filters=wanted.predicate)

    def compact(self) -> Acknowledged | None:
        """See :meth:`Hands.compact`."""
        with self._table.begin(commit_properties=self._how(_COMPACTION)) as txn:
            txn.compact()
            result = txn.commit()
        return None if result.version is None else Acknowledged(result.version, result.attempts, result.member)

    def _how(self, task: int) -> CommitProperties:
        return CommitProperties(user_metadata=f"{NOTE}{task}", row_level=self._row_level, group=self._group)


@dataclass(frozen=True)
class OwnEngine:
    """The :class:`BenchEngine` of refdelta.

    Args:
        row_level: as for :func:`race`.
        settings: ``defaults``, or ``tuned``: the table compacts its small files by itself.
    """

    row_level: bool | None = None
    name: str = "refdelta"
    settings: str = "defaults"

    def __post_init__(self) -> None:
        is_tuned(self.settings)

    @property
    def versions(self) -> Mapping[str, str]:
        """See :class:`BenchEngine`."""
        return {"refdelta": __version__, **{name: version(name) for name in ("pyarrow", "numpy", "fsspec")}}

    def prepare(self, folder: str, mix: Mix, storage_options: Mapping[str, str]) -> None:
        """See :meth:`BenchEngine.prepare`."""
        prepare(folder, mix, storage_options, compacts=is_tuned(self.settings))

    def open(self, folder: str, mix: Mix, storage_options: Mapping[str, str]) -> Hands:
        """See :meth:`BenchEngine.open`."""
        return Own(folder, mix, self.row_level, storage_options)

    def check(
        self, folder: str, mix: Mix, tallies: Sequence[Tally], storage_options: Mapping[str, str]
    ) -> Sequence[str]:
        """See :meth:`BenchEngine.check`."""
        return check(DeltaTable(folder, storage_options=storage_options), mix, tallies)


class SeveralHands:
    """The :class:`Hands` of several tables: a task is of the table whose number is the rest of its own.

    Args:
        hands: those of each table.
    """

    def __init__(self, hands: Sequence[Hands]) -> None:
        self.aborts, self.unknown = hands[0].aborts, hands[0].unknown
        self._hands, self._compactions = hands, itertools.count()

    def commit(self, task: int) -> Acknowledged | None:
        """See :meth:`Hands.commit`."""
        number = task % len(self._hands)
        told = self._hands[number].commit(task)
        return None if told is None else replace(told, table=number)

    def compact(self) -> Acknowledged | None:
        """See :meth:`Hands.compact`: the tables take turns."""
        number = next(self._compactions) % len(self._hands)
        told = self._hands[number].compact()
        return None if told is None else replace(told, table=number)

    def close(self) -> None:
        """See :class:`Hands`."""
        for hands in self._hands:
            _close(hands)


@dataclass(frozen=True)
class SeveralTables:
    """An engine with several tables, in folders of the race's folder.

    Args:
        engine: the engine.
        count: the number of tables.
    """

    engine: BenchEngine
    count: int

    @property
    def name(self) -> str:
        """See :class:`BenchEngine`."""
        return self.engine.name

    @property
    def versions(self) -> Mapping[str, str]:
        """See :class:`BenchEngine`."""
        return self.engine.versions

    def prepare(self, folder: str, mix: Mix, storage_options: Mapping[str, str]) -> None:
        """See :meth:`BenchEngine.prepare`."""
        for place in self._folders(folder):
            self.engine.prepare(place, mix, storage_options)

    def open(self, folder: str, mix: Mix, storage_options: Mapping[str, str]) -> Hands:
        """See :meth:`BenchEngine.open`."""
        return SeveralHands([self.engine.open(place, mix, storage_options) for place in self._folders(folder)])

    def check(
        self, folder: str, mix: Mix, tallies: Sequence[Tally], storage_options: Mapping[str, str]
    ) -> Sequence[str]:
        """See :meth:`BenchEngine.check`."""
        return [
            f"table {number}: {problem}"
            for number, place in enumerate(self._folders(folder))
            for problem in self.engine.check(place, mix, [self._of(one, number) for one in tallies], storage_options)
        ]

    def _folders(self, folder: str) -> list[str]:
        return [f"{folder.rstrip('/')}/{number}" for number in range(self.count)]

    def _of(self, tally: Tally, number: int) -> Tally:
        commits = [commit for commit in tally.commits if commit.table == number]
        unknown = [task for task in tally.unknown if task == _COMPACTION or task % self.count == number]
        return replace(tally, commits=commits, unknown=unknown)


def jobs(hands: Callable[[], Hands], mix: Mix, writers: int, *, seed: int = 0) -> list[Job]:
    """The jobs of a pool of writers on an existing table; each returns a :class:`Tally`.

    Args:
        hands: opens the table in each writer; for processes it must be picklable.
        mix: the kind of writers; with ``optimize`` the last member of the pool compacts.
        writers: the number of writers.
        seed: of the pauses after aborts.
    """
    found = [functools.partial(_opened, hands, _write, f"{seed}-{number}") for number in range(writers)]
    if mix.compacts:
        found.append(functools.partial(_opened, hands, _compact, f"{seed}-compaction"))
    return [*found]


_Work = Callable[["Hands", "random.Random", "Shift"], "Tally"]


def _opened(hands: Callable[[], Hands], work: _Work, seed: str) -> Callable[[Shift], Tally]:
    return functools.partial(work, hands(), random.Random(seed))  # noqa: S311 - no secret


def _write(hands: Hands, drawn: random.Random, shift: Shift) -> Tally:
    tally, used = Tally(), time.process_time()
    while (task := shift.next()) is not None:
        if not _insist(tally, task, hands, functools.partial(hands.commit, task), drawn, shift):
            tally.reads += 1
    background.settle()
    _close(hands)
    tally.cpu = time.process_time() - used
    return tally


def _close(hands: Hands) -> None:
    if (close := getattr(hands, "close", None)) is not None:
        close()


def _compact(hands: Hands, drawn: random.Random, shift: Shift) -> Tally:
    tally = Tally()
    while not shift.over:
        _insist(tally, _COMPACTION, hands, hands.compact, drawn, shift)
        time.sleep(_PAUSE_SECONDS)
    _close(hands)
    return tally


def _insist(
    tally: Tally,
    task: int,
    hands: Hands,
    commit: Callable[[], Acknowledged | None],
    drawn: random.Random,
    shift: Shift,
) -> bool:
    """Repeat a task until it is committed, or the time is up. False if there was nothing to commit.

    A writer that lost waits for a random time before the next attempt, about as long as an attempt takes and twice as
    long each time: writers that repeat at once lose to each other again.

    Raises:
        RaceFailedError: no attempt can succeed.
    """
    began = time.monotonic()
    begun, since = shift.begun, 0
    for lost in itertools.count():
        started = time.monotonic()
        try:
            told = commit()
        except hands.unknown as error:
            _lost(tally, error)
            tally.unknown.append(task)
            return True
        except hands.aborts as error:
            _lost(tally, error)
            if shift.late:
                return True
            if begun != shift.begun:
                begun, since = shift.begun, lost
            elif lost - since >= _MOST_LOST:
                last = f"{type(error).__name__}: {error}"
                raise RaceFailedError(f"no writer got on while task {task} lost {_MOST_LOST} times: {last}") from error
            attempt = time.monotonic() - started
            time.sleep(drawn.uniform(0, min(_LONGEST_PAUSE_SECONDS, attempt * 2 ** min(lost, 30))))
            continue
        if told is None:
            return False
        ended = time.monotonic()
        tally.commits.append(RaceCommit(task, told.version, told.attempts, began, ended, told.member, told.table))
        return True
    raise AssertionError  # pragma: no cover - the loop has no end of its own


def _lost(tally: Tally, error: Exception) -> None:
    tally.aborts[type(error).__name__] += 1
    tally.first.setdefault(type(error).__name__, str(error))


# --- afterwards ----------------------------------------------------------------------------------------------------


def summed(mix: Mix, writers: int, tallies: Sequence[Tally], *, problems: Sequence[str] = ()) -> Race:
    """The figures of a race."""
    every = [commit for tally in tallies for commit in tally.commits]
    own = [commit for commit in every if commit.task != _COMPACTION]
    aborts = sum((tally.aborts for tally in tallies), Counter[str]())
    waited = [1_000 * (commit.ended - commit.began) for commit in own]
    first = {name: text for tally in reversed(tallies) for name, text in tally.first.items()}
    began, ended = min((c.began for c in own), default=0.0), max((c.ended for c in own), default=0.0)
    return Race(
        mix=str(mix),
        writers=writers,
        commits=len(own),
        compactions=len(every) - len(own),
        seconds=ended - began,
        aborts=dict(sorted(aborts.items())),
        attempts=sum(commit.attempts for commit in every),
        latency={f"p{p}": float(np.percentile(waited, p)) if waited else 0.0 for p in (50, 90, 99)},
        problems=tuple(problems),
        first_errors=dict(sorted(first.items())),
        reads=sum(tally.reads for tally in tallies),
        cpu_ms=1_000 * sum(tally.cpu for tally in tallies) / len(own) if own else None,
        growth=_growth(own),
    )


def _growth(commits: Sequence[RaceCommit]) -> float | None:
    """See :attr:`Race.growth`."""
    if len(commits) < _LEAST_GROWN:
        return None
    waited = [commit.ended - commit.began for commit in sorted(commits, key=lambda commit: commit.ended)]
    tenth = len(waited) // 10
    return float(np.median(waited[-tenth:]) / np.median(waited[:tenth]))


def check(table: DeltaTable, mix: Mix, tallies: Sequence[Tally]) -> list[str]:
    """The errors in the table of a race between writers of refdelta: in its log, then in its rows."""
    found: dict[tuple[int, int | None], int] = {}
    for entry in table.history():
        members = entry.get("members")
        for place, member in enumerate(members or (entry,)):
            note = member.get("userMetadata") or ""
            if note.startswith(NOTE):
                found[entry["version"], place if members else None] = int(note.removeprefix(NOTE))
    every = [commit for tally in tallies for commit in tally.commits]
    unknown = {task for tally in tallies for task in tally.unknown}
    told = {(commit.version, commit.member) for commit in every}
    lost = sorted({commit.task for commit in every if found.get((commit.version or 0, commit.member)) != commit.task})
    twice = [task for task, count in Counter(found.values()).items() if count > 1 and task != _COMPACTION]
    unasked = sorted(place[0] for place, task in found.items() if place not in told and task not in unknown)
    problems = []
    if lost:
        problems.append(f"{counted(len(lost), 'commit')} acknowledged and not in the log, the first task {lost[0]}")
    if len(told) < len(every):
        problems.append("a version was acknowledged to two writers")
    if twice:
        problems.append(f"{counted(len(twice), 'task')} committed twice, the first {min(twice)}")
    if unasked:
        problems.append(f"{counted(len(unasked), 'version')} acknowledged to no writer, the first {unasked[0]}")
    return [
        *problems,
        *check_rows(table.to_pyarrow_table(), mix, [task for task in found.values() if task != _COMPACTION]),
    ]
