"""The second half of the main job: while writers append, one process updates late flights and another deletes
cancelled ones, on a table of either isolation level.

Both change rows that are being appended, so some of their commits are moved over appends, some conflict and are
repeated. The result is compared with that of the same statements run one after the other by pyarrow alone.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather

from refdelta.api.table import DeltaTable
from refdelta.core.conflicts.isolation import IsolationLevel
from refdelta.demo import run as demo
from refdelta.demo.run import APPENDS_A_MONTH, Append, DemoCheck, TableLocation
from refdelta.errors import ConcurrentModificationError
from refdelta.status_line import StatusLine
from refdelta.transaction.options import CommitProperties

SERIALIZABLE = IsolationLevel.SERIALIZABLE.value
UPDATER, DELETER = "updater", "deleter"
READY, FINISHED = False, True
_MONTHS = range(1, 13)
_WAIT_SECONDS = 0.02
_LATE, _ALLOWANCE = 60, 15
"""In minutes: the delay of a flight that left more than an hour late is reduced by a quarter of an hour at each update,
so that the rows show how often they were updated.
"""


@dataclass(frozen=True)
class StatementConflict:
    """A conflict of a statement: the version of the winner, the rule, the name of the exception."""

    winner: int
    rule: str
    error: str


@dataclass(frozen=True)
class ChangeCommit:
    """One statement of the updater or the deleter that was committed.

    Attributes:
        who: ``updater`` or ``deleter``.
        month: the month whose flights it changed.
        version: the version that it created.
        read_version: the version that it read.
        rows: the number of changed rows.
        rebased_over: the versions of winners that it passed.
        conflicts: the conflicts after which it was repeated.
    """

    who: str
    month: int
    version: int
    read_version: int
    rows: int
    rebased_over: tuple[int, ...]
    conflicts: tuple[StatementConflict, ...]


@dataclass(frozen=True)
class ChangesOutcome:
    """The commits to one table.

    Attributes:
        level: its isolation level.
        table: its path or URI.
        appends: the appends, in the order of their versions.
        changes: the updates and deletes, likewise.
        seconds: the time from the start to the last commit.
    """

    level: str
    table: str
    appends: tuple[Append, ...]
    changes: tuple[ChangeCommit, ...]
    seconds: float

    @property
    def versions(self) -> list[int]:
        """The versions of all commits, in the order of the log."""
        return sorted([*(append.version for append in self.appends), *(change.version for change in self.changes)])

    @property
    def passed_over(self) -> dict[int, tuple[int, ...]]:
        """The versions of the appends that each change passed, by the version of the change."""
        appended = {append.version for append in self.appends}
        found = {
            change.version: tuple(version for version in change.rebased_over if version in appended)
            for change in self.changes
        }
        return {version: over for version, over in found.items() if over}

    @property
    def serial_order(self) -> tuple[int, ...]:
        """The versions in an order in which they could have run one at a time.

        At Serializable it is the log's. At WriteSerializable a change that passed over appends, which it did not see,
        comes before the first of them.
        """
        if self.level == SERIALIZABLE:
            moved: Mapping[int, tuple[int, ...]] = {}
        else:
            moved = self.passed_over
        return tuple(sorted(self.versions, key=lambda version: (min((*moved.get(version, ()), version)), -version)))


def places(main: TableLocation) -> dict[str, TableLocation]:
    """The locations of the tables, by level, next to the table of the first half.

    Raises:
        InvalidArgumentError: a location is not empty.
    """
    return {
        level: demo.fresh_place(f"{main}-{level.lower()}", main.options)
        for level in (one.value for one in IsolationLevel)
    }


def change_concurrently(tables: Mapping[str, TableLocation], source: pa.Table, writers: int) -> list[ChangesOutcome]:
    """Have ``writers`` processes append the months while two more change them, on one table after the other.

    Args:
        tables: places by isolation level.
        source: the flights.
        writers: how many processes append.

    Raises:
        DemoFailedError: a process raised or died; the message names the reason.
    """
    for level, place in tables.items():
        properties = {"delta.isolationLevel": level, "delta.enableDeletionVectors": "true"}
        place.create(source.schema, name=f"flights, {level}", configuration=properties)
    context = multiprocessing.get_context("spawn")
    events: multiprocessing.Queue[Any] = context.Queue()
    stages = [Stage(place, context.Event(), context.Event()) for place in tables.values()]
    months = _shares(writers)
    # In the order in which the writers get to them.
    order = [share[place] for place in range(len(months[0])) for share in months if place < len(share)]
    with tempfile.TemporaryDirectory(prefix="refdelta-demo-") as spool:
        feather = str(Path(spool) / "flights.feather")
        pa.feather.write_feather(source, feather, compression="uncompressed")
        processes = [
            *(
                context.Process(target=_appender, args=(number, feather, share, stages, events), daemon=True)
                for number, share in enumerate(months, start=1)
            ),
            *(
                context.Process(target=_changer, args=(who, order, stages, events), daemon=True)
                for who in (UPDATER, DELETER)
            ),
        ]
        with demo.running(processes), StatusLine() as line:
            line.show("starting writers, updater and deleter", force=True)
            for _ in processes:
                demo.next_event(events, processes)
            return [
                _collect(events, stage, processes, level, line) for stage, level in zip(stages, tables, strict=True)
            ]


@dataclass(frozen=True)
class Stage:
    """One table for its processes: its location, the event to begin, and the event after the last append or change."""

    place: TableLocation
    begin: Any
    complete: Any


def _shares(writers: int) -> list[list[int]]:
    return [list(_MONTHS)[number::writers] for number in range(writers)]


def _collect(events: Any, stage: Stage, processes: Sequence[Any], level: str, line: StatusLine) -> ChangesOutcome:
    """Start the work on one table, and collect the events until all processes have finished it."""
    appends: list[Append] = []
    changes: list[ChangeCommit] = []
    finished, began = 0, time.monotonic()
    stage.begin.set()
    while finished < len(processes):
        event = demo.next_event(events, processes)
        if isinstance(event, Append):
            appends.append(event)
            if len(appends) == len(_MONTHS) * APPENDS_A_MONTH:
                stage.complete.set()
        elif isinstance(event, ChangeCommit):
            changes.append(event)
        else:
            finished += 1
        line.show(f"{level}: {len(appends)} appends, {len(changes)} updates and deletes", force=True)
    seconds = time.monotonic() - began
    in_order = tuple(sorted(changes, key=lambda change: change.version))
    return ChangesOutcome(
        level, stage.place.uri, tuple(sorted(appends, key=lambda append: append.version)), in_order, seconds
    )


# --- in the processes -------------------------------------------------------------------------------------------


def _appender(number: int, feather: str, months: Sequence[int], stages: Sequence[Stage], events: Any) -> None:
    def work() -> Iterator[Any]:
        source = pa.feather.read_table(feather, memory_map=True)
        yield READY
        for stage in stages:
            stage.begin.wait()
            yield from demo.append_months(number, stage.place.open(), source, months)
            yield FINISHED

    demo.report(f"writer {number}", events, work())


def _changer(who: str, months: Sequence[int], stages: Sequence[Stage], events: Any) -> None:
    def work() -> Iterator[Any]:
        yield READY
        for stage in stages:
            stage.begin.wait()
            table = stage.place.open()
            for month in months:
                change = _change_month(who, table, month, stage.complete)
                if change is not None:
                    yield change
            yield FINISHED

    demo.report(f"the {who}", events, work())


def _change_month(who: str, table: DeltaTable, month: int, appended: Any) -> ChangeCommit | None:
    """Run the statement of ``who`` on a month when there are rows to change, until it is committed."""
    conflicts: list[StatementConflict] = []
    while True:
        complete = appended.is_set()
        noted = CommitProperties(user_metadata=f"month {month}, {who}")
        try:
            with table.begin(commit_properties=noted) as txn:
                seen = txn.version
                if who == UPDATER:
                    updates = {"dep_delay": f"dep_delay - {_ALLOWANCE}"}
                    txn.update(updates, predicate=f"month = {month} and dep_delay > {_LATE}")
                else:
                    txn.delete(f"month = {month} and dep_time is null")
                result = txn.commit()
        except ConcurrentModificationError as error:
            lost = error.conflict
            conflicts.append(StatementConflict(lost.version, lost.rule, type(error).__name__))
            continue
        if result.version is not None:
            rows = result.metrics["num_updated_rows" if who == UPDATER else "num_deleted_rows"]
            return ChangeCommit(who, month, result.version, seen, rows, result.rebased_over, tuple(conflicts))
        if complete:
            return None
        time.sleep(_WAIT_SECONDS)


# --- the expected result ----------------------------------------------------------------------------------------


def expected(source: pa.Table, outcome: ChangesOutcome, versions: Sequence[int] | None = None) -> pa.Table:
    """The rows after the statements of ``versions`` (default: the whole serial order), run one after the other by
    pyarrow alone.
    """
    writers = max(append.writer for append in outcome.appends)
    brought: dict[int, tuple[int, pa.Table]] = {}
    for number, months in enumerate(_shares(writers), start=1):
        own = [append.version for append in outcome.appends if append.writer == number]
        for version, (_, piece) in zip(own, demo.pieces(source, months), strict=True):
            brought[version] = piece["month"][0].as_py(), piece
    changed = {change.version: change for change in outcome.changes}
    held = {month: source.slice(0, 0) for month in _MONTHS}
    for version in outcome.serial_order if versions is None else versions:
        if version in brought:
            month, piece = brought[version]
            held[month] = pa.concat_tables([held[month], piece])
        else:
            change = changed[version]
            held[change.month] = _changed(held[change.month], change.who)
    return pa.concat_tables(held.values())


def _changed(rows: pa.Table, who: str) -> pa.Table:
    if who == DELETER:
        return rows.filter(pc.is_valid(rows["dep_time"]))
    delay = rows["dep_delay"]
    late = pc.fill_null(pc.greater(delay, _LATE), False)
    place = rows.schema.get_field_index("dep_delay")
    less = pc.subtract(delay, pa.scalar(_ALLOWANCE, delay.type))
    return rows.set_column(place, rows.schema.field(place), pc.if_else(late, less, delay))


def verify(place: TableLocation, source: pa.Table, outcome: ChangesOutcome) -> list[DemoCheck]:
    """Compare the table at ``place`` with a serial run, and the conflicts with the guarantees of its level."""
    level = outcome.level
    versions = outcome.versions
    appended = {append.version for append in outcome.appends}
    lost = [conflict.winner for change in outcome.changes for conflict in change.conflicts]
    checks = [
        demo.check(f"{level}: every commit has a version of its own", versions, list(range(1, len(versions) + 1))),
        same_rows(f"{level}: the same rows as after a serial run", place.open(), expected(source, outcome)),
    ]
    if level == SERIALIZABLE:
        half = outcome.changes[len(outcome.changes) // 2].version if outcome.changes else 0
        prefix = expected(source, outcome, range(1, half + 1))
        what = f"{level}: version {half} is what a serial run was half-way"
        checks.append(same_rows(what, place.open(half), prefix))
    else:
        met = sorted(appended & set(lost))
        checks.append(demo.check(f"{level}: no update or delete was repeated for an append", met, []))
    return checks


def same_rows(what: str, table: DeltaTable, wanted: pa.Table) -> DemoCheck:
    """Compare the rows of a table with these, in any order."""
    rows = table.to_pyarrow_table().select(wanted.column_names)
    if rows.num_rows != wanted.num_rows:
        return DemoCheck(what, f"{rows.num_rows:,} rows instead of {wanted.num_rows:,}")
    order = [(name, "ascending") for name in wanted.column_names]
    same = rows.cast(wanted.schema).sort_by(order).equals(wanted.sort_by(order))
    return DemoCheck(what) if same else DemoCheck(what, "as many rows, but others")
