"""The third part of the main job: four processes update and delete different rows of the same files, while one more
puts these files together (OPTIMIZE) over and over.

The table has deletion vectors, so conflicts are decided by rows, and there is none. The number of conflicts by files is
found by running the same schedule, with each begin and each commit in the order of the log, on a table without deletion
vectors.
"""

from __future__ import annotations

import multiprocessing
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.api.table import DeltaTable
from refdelta.api.transaction import WriteTransaction
from refdelta.api.writer import write_deltalake
from refdelta.demo import run as demo
from refdelta.demo.changes import FINISHED, READY, Stage, StatementConflict, same_rows
from refdelta.demo.run import DemoCheck, TableLocation
from refdelta.errors import ConcurrentModificationError
from refdelta.status_line import StatusLine
from refdelta.transaction.options import CommitProperties

UPDATE, DELETE, OPTIMIZE = "UPDATE", "DELETE", "OPTIMIZE"
_ROWS = {UPDATE: "num_updated_rows", DELETE: "num_deleted_rows", OPTIMIZE: ""}
AIRLINES = {
    1: (UPDATE, ("AA", "DL", "UA")),
    2: (UPDATE, ("9E", "B6", "MQ")),
    3: (DELETE, ("EV", "WN")),
    4: (DELETE, ("US", "YV")),
}
"""The statement of each process, and the airlines whose flights it changes: no row belongs to two. Statistics cannot
separate them, since their airlines overlap in the alphabet, and each file has flights of all of them.
"""
_MONTHS = range(1, 13)
_LATE, _MADE_UP, _SHORT = 30, 10, 50
_WAIT_SECONDS = 0.02
REPLAYED_PART = 20
"""The schedule is replayed over one flight in 20: without deletion vectors each statement writes whole files."""


@dataclass(frozen=True)
class RowStatement:
    """One statement.

    Attributes:
        what: ``UPDATE``, ``DELETE`` or ``OPTIMIZE``.
        who: the number of its process; 0 for the one that runs OPTIMIZE.
        month: the month whose rows are changed; 0 for OPTIMIZE.
    """

    what: str
    who: int = 0
    month: int = 0

    @property
    def predicate(self) -> str:
        """The rows that it changes, in SQL."""
        airlines = ", ".join(f"'{name}'" for name in AIRLINES[self.who][1])
        which = f"arr_delay > {_LATE}" if self.what == UPDATE else f"air_time < {_SHORT}"
        return f"month = {self.month} and carrier in ({airlines}) and {which}"

    def stage(self, txn: WriteTransaction) -> None:
        """Run it within a transaction."""
        if self.what == OPTIMIZE:
            txn.compact()
        elif self.what == UPDATE:
            txn.update({"arr_delay": f"arr_delay - {_MADE_UP}"}, predicate=self.predicate)
        else:
            txn.delete(self.predicate)

    def applied(self, rows: pa.Table) -> pa.Table:
        """These rows after the statement, by pyarrow alone."""
        if self.what == OPTIMIZE:
            return rows
        delay = rows["arr_delay"]
        which = pc.greater(delay, _LATE) if self.what == UPDATE else pc.less(rows["air_time"], _SHORT)
        mine = pc.is_in(rows["carrier"], pa.array(AIRLINES[self.who][1]))
        chosen = pc.fill_null(pc.and_(pc.and_(pc.equal(rows["month"], self.month), mine), which), False)
        if self.what == DELETE:
            return rows.filter(pc.invert(chosen))
        place = rows.schema.get_field_index("arr_delay")
        less = pc.subtract(delay, pa.scalar(_MADE_UP, delay.type))
        return rows.set_column(place, rows.schema.field(place), pc.if_else(chosen, less, delay))


@dataclass(frozen=True)
class Step:
    """One commit.

    Attributes:
        statement: its statement.
        version: the version that it created.
        read_version: the version that it read.
        rows: the number of changed rows.
        rebased_over: the versions of winners that it passed.
    """

    statement: RowStatement
    version: int
    read_version: int
    rows: int
    rebased_over: tuple[int, ...]


@dataclass(frozen=True)
class RowsOutcome:
    """The commits to one table.

    Attributes:
        level: its isolation level.
        table: its path or URI.
        base: its version before.
        steps: the commits, in the order of the log.
        conflicts: the conflicts after which a statement was repeated.
        seconds: the time from the start to the last commit.
    """

    level: str
    table: str
    base: int
    steps: tuple[Step, ...]
    conflicts: tuple[StatementConflict, ...]
    seconds: float

    def counted(self, what: str) -> int:
        """The number of commits of this kind."""
        return Counter(step.statement.what for step in self.steps)[what]

    @property
    def moved(self) -> int:
        """The number of commits that passed winners."""
        return sum(bool(step.rebased_over) for step in self.steps)


@dataclass(frozen=True)
class FileLevelReplay:
    """The same schedule with conflicts decided by files.

    Attributes:
        conflicts: the number of steps that conflicted, by kind. Each was repeated at once and then committed.
        check: the comparison of its rows with a serial run.
    """

    conflicts: Mapping[str, int]
    check: DemoCheck

    @property
    def total(self) -> int:
        """All conflicts."""
        return sum(self.conflicts.values())


def change_rows(tables: Mapping[str, TableLocation]) -> list[RowsOutcome]:
    """Have four processes change rows of one table after the other, and one more run OPTIMIZE meanwhile.

    Args:
        tables: places by isolation level. The tables have deletion vectors, and flights of all months.

    Raises:
        DemoFailedError: a process raised or died; the message names the reason.
    """
    context = multiprocessing.get_context("spawn")
    events: multiprocessing.Queue[Any] = context.Queue()
    stages = [Stage(place, context.Event(), context.Event()) for place in tables.values()]
    processes = [
        *(context.Process(target=_changer, args=(who, stages, events), daemon=True) for who in AIRLINES),
        context.Process(target=_optimizer, args=(stages, events), daemon=True),
    ]
    with demo.running(processes), StatusLine() as line:
        line.show("starting the processes that change rows", force=True)
        for _ in processes:
            demo.next_event(events, processes)
        return [_collect(events, stage, processes, level, line) for stage, level in zip(stages, tables, strict=True)]


def _collect(events: Any, stage: Stage, processes: Sequence[Any], level: str, line: StatusLine) -> RowsOutcome:
    """Start the work on one table, and collect the events until all processes have finished it."""
    base = stage.place.open().version()
    steps: list[Step] = []
    conflicts: list[StatementConflict] = []
    finished, began = 0, time.monotonic()
    stage.begin.set()
    while finished < len(processes):
        event = demo.next_event(events, processes)
        if isinstance(event, Step):
            steps.append(event)
        elif isinstance(event, StatementConflict):
            conflicts.append(event)
        else:
            finished += 1
            if finished == len(AIRLINES):
                stage.complete.set()
        line.show(f"{level}: {len(steps)} updates, deletes and OPTIMIZE, {len(conflicts)} conflicts", force=True)
    seconds = time.monotonic() - began
    in_order = tuple(sorted(steps, key=lambda step: step.version))
    return RowsOutcome(level, stage.place.uri, base, in_order, tuple(conflicts), seconds)


# --- in the processes -------------------------------------------------------------------------------------------


def _changer(who: int, stages: Sequence[Stage], events: Any) -> None:
    what, _ = AIRLINES[who]

    def work() -> Iterator[Any]:
        yield READY
        for stage in stages:
            stage.begin.wait()
            table = stage.place.open()
            for month in _MONTHS:
                yield from _committed(table, RowStatement(what, who, month))
            yield FINISHED

    demo.report(f"process {who}", events, work())


def _optimizer(stages: Sequence[Stage], events: Any) -> None:
    def work() -> Iterator[Any]:
        yield READY
        for stage in stages:
            stage.begin.wait()
            table = stage.place.open()
            complete = False
            while not complete:
                complete = stage.complete.is_set()  # then once more, so that it runs at least once
                done = list(_committed(table, RowStatement(OPTIMIZE)))
                yield from done
                if not done:
                    time.sleep(_WAIT_SECONDS)
            yield FINISHED

    demo.report("the one that runs OPTIMIZE", events, work())


def _committed(table: DeltaTable, statement: RowStatement) -> Iterator[Step | StatementConflict]:
    """Run a statement until it is committed: each conflict, and the commit; nothing where there was nothing to do."""
    note = f"month {statement.month}, process {statement.who}" if statement.who else None
    while True:
        try:
            with table.begin(commit_properties=CommitProperties(user_metadata=note)) as txn:
                seen = txn.version
                statement.stage(txn)
                result = txn.commit()
        except ConcurrentModificationError as error:
            yield StatementConflict(error.conflict.version, error.conflict.rule, type(error).__name__)
            continue
        if result.version is not None:
            rows = result.metrics.get(_ROWS[statement.what], 0)
            yield Step(statement, result.version, seen, rows, result.rebased_over)
        return


# --- the same with files -----------------------------------------------------------------------------------------


def replay(source: pa.Table, outcome: RowsOutcome) -> FileLevelReplay:
    """Run the schedule of ``outcome`` on a table without deletion vectors, in memory.

    Each step begins at the version at which it began, and commits in the order of the log. One that conflicts is
    counted, and repeated at once, so that the following steps find the same table.
    """
    some = source.take(pa.array(range(0, source.num_rows, REPLAYED_PART)))
    table = DeltaTable.create(
        f"memory://refdelta-demo-{uuid.uuid4()}", some.schema, configuration={"delta.isolationLevel": outcome.level}
    )
    for _, piece in demo.pieces(some, _MONTHS):
        write_deltalake(table, piece, mode="append")
    began: dict[int, WriteTransaction] = {}
    conflicts: Counter[str] = Counter()

    def begin(seen: int) -> None:
        for step in outcome.steps:
            if step.read_version == seen:
                began[step.version] = table.begin()
                step.statement.stage(began[step.version])

    begin(outcome.base)
    with StatusLine() as line:
        for number, step in enumerate(outcome.steps, start=1):
            try:
                began.pop(step.version).commit()
            except ConcurrentModificationError:
                conflicts[step.statement.what] += 1
                with table.begin() as again:
                    step.statement.stage(again)
                    again.commit()
            begin(step.version)
            line.show(f"{outcome.level}: {number} of {len(outcome.steps)} replayed with files")
    what = f"{outcome.level}: with files the same rows as after a serial run"
    return FileLevelReplay(conflicts, same_rows(what, table, expected(some, outcome)))


# --- the expected result ----------------------------------------------------------------------------------------


def expected(rows: pa.Table, outcome: RowsOutcome) -> pa.Table:
    """The rows after the steps, one after the other."""
    for step in outcome.steps:
        rows = step.statement.applied(rows)
    return rows


def verify(place: TableLocation, before: pa.Table, outcome: RowsOutcome) -> list[DemoCheck]:
    """Compare the table at ``place`` with a serial run of its commits on ``before``, its rows before them."""
    level, steps = outcome.level, outcome.steps
    versions = [step.version for step in steps]
    contiguous = list(range(outcome.base + 1, outcome.base + 1 + len(steps)))
    wanted = {(who, month) for who in AIRLINES for month in _MONTHS}
    done = {(step.statement.who, step.statement.month) for step in steps if step.statement.who}
    return [
        demo.check(f"{level}: every commit has a version of its own", versions, contiguous),
        demo.check(f"{level}: each statement was committed", sorted(done), sorted(wanted)),
        demo.check(f"{level}: different rows, so no conflict", list(outcome.conflicts), []),
        same_rows(f"{level}: the same rows as after a serial run", place.open(), expected(before, outcome)),
    ]
