"""Adapters, one an engine, and how the runner finds them.

An adapter is an object with the attributes of :class:`Engine`. Those of this package are known by name; others
are found by the entry point ``refdelta.conformance.engines``::

    [project.entry-points."refdelta.conformance.engines"]
    mine = "my_package.adapter:MyEngine"
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Final, Protocol, runtime_checkable

from refdelta.conformance.cases import Case, Failure
from refdelta.conformance.statements import Statement
from refdelta.errors import DeltaError, InvalidArgumentError, unknown_name

GROUP: Final = "refdelta.conformance.engines"
_HERE = "refdelta.conformance.engines"
OWN: Final[Mapping[str, str]] = {
    "refdelta": f"{_HERE}.refdelta_engine:Rows",
    "refdelta-files": f"{_HERE}.refdelta_engine:Files",
    "delta-spark": f"{_HERE}.delta_spark:DeltaSpark",
    "delta-kernel": f"{_HERE}.delta_kernel:DeltaKernel",
    "deltalake": f"{_HERE}.deltalake_engine:DeltaRs",
    "polars": f"{_HERE}.polars_engine:Polars",
    "duckdb": f"{_HERE}.duckdb_engine:DuckDB",
    "duckdb-late": f"{_HERE}.duckdb_engine:Late",
    "pyiceberg": f"{_HERE}.pyiceberg_engine:PyIceberg",
}
"""The adapters of this package."""
KINDS: Final = ("statements", "actions")
"""The kinds of cases."""
WITHOUT_S3A: Final = "it reaches S3 by Hadoop's S3A, which is not among delta-spark's JARs (hadoop-aws)"
"""Why an engine in Java has its tables on this machine."""


Left = list[tuple[int | None, int | None]] | Mapping[str, frozenset[int]]
"""The rest of a table: of a case of statements its rows (k, a); of a case of actions the live files, each with the
rows that its deletion vector deletes.
"""


class EngineUnavailableError(DeltaError):
    """An engine cannot run here; the message says in one line what is missing."""


class NotSupportedError(DeltaError):
    """The engine, or its adapter, cannot do what a case asks for; the message says what."""


class Session(Protocol):
    """One case on one table of an engine."""

    def begin(self, name: str) -> None:
        """Begin a transaction, which sees the newest version of this moment."""

    def commit(self, name: str) -> Failure | None:
        """Commit it. Returns the failure if the engine refused it for a conflict, else None."""

    def left(self) -> Left:
        """The table at the end, as the engine reads it."""

    def close(self) -> None:
        """Let go of the table."""


@runtime_checkable
class Engine(Protocol):
    """An engine. An adapter is a class without arguments whose objects are engines.

    Attributes:
        name: its name on the command line.
        kinds: the kinds of cases that it runs: ``statements``, ``actions``.

    An engine that is no :class:`StoreEngine` may have one attribute more: ``why_local``, the reason in a few words.
    """

    name: str
    kinds: tuple[str, ...]

    def version(self) -> str:
        """The version of the engine.

        Raises:
            EngineUnavailableError: it is not installed.
        """

    def open(self, case: Case, folder: Path) -> Session:
        """Make the table of a case.

        Args:
            case: the case.
            folder: where; it does not exist yet.

        Raises:
            NotSupportedError: the engine cannot have such a table.
        """

    def close(self) -> None:
        """End the engine."""


@runtime_checkable
class StoreEngine(Engine, Protocol):
    """An engine whose tables may be in a store, so that its requests can meet faults.

    Attributes:
        unknown: the exceptions of a commit with an unknown outcome.
    """

    unknown: tuple[type[Exception], ...]

    def open_in_store(self, case: Case, uri: str, storage_options: Mapping[str, Any]) -> Session:
        """Make the table of a case.

        Args:
            case: the case.
            uri: where; it does not exist yet.
            storage_options: options of the store, as the caller of the command gave them.

        Raises:
            NotSupportedError: the engine cannot have such a table.
        """


def names() -> list[str]:
    """The names of all engines: those of this package, and those of installed ones."""
    return [*OWN, *sorted({point.name for point in entry_points(group=GROUP)} - OWN.keys())]


def find(name: str) -> Engine:
    """The engine of that name.

    Raises:
        InvalidArgumentError: there is none, or its entry point does not give an engine.
        EngineUnavailableError: it is not installed, or cannot start.
    """
    points = [point for point in entry_points(group=GROUP) if point.name == name]
    if name in OWN:
        if points:
            raise InvalidArgumentError(
                f"the entry point {name} = {points[0].value!r} of {GROUP} has the name of an engine of refdelta: "
                "give it another one"
            )
        found: Engine = resolve_name(OWN[name])()
    elif points:
        found = _loaded(points[0])
    else:
        raise InvalidArgumentError(unknown_name("engine", name, names()))
    found.version()
    return found


def _loaded(point: EntryPoint) -> Engine:
    where = f"the entry point {point.name} = {point.value!r} of {GROUP}"
    try:
        adapter = point.load()
    except (ImportError, AttributeError) as error:
        raise InvalidArgumentError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
    found = adapter()
    missing = [name for name in ("name", "kinds", "version", "open", "close") if not hasattr(found, name)]
    if missing or not isinstance(found, Engine):
        raise InvalidArgumentError(f"{where} is not an engine: its objects have no {', '.join(missing)}")
    if not {*found.kinds} <= {*KINDS}:
        raise InvalidArgumentError(f"{where}: kinds={found.kinds!r} must be a tuple of {' and '.join(KINDS)}")
    return found


def with_stores(engine: Engine) -> StoreEngine:
    """An engine, as one whose tables may be in a store.

    Raises:
        NotSupportedError: its adapter has no such tables; the message says why.
    """
    if isinstance(engine, StoreEngine):
        return engine
    why = getattr(engine, "why_local", "its adapter does not make them")
    raise NotSupportedError(f"{engine.name} has no tables in stores here: {why}")


def only_s3(uri: str) -> None:
    """Raise ``NotSupportedError`` for a table in another store than S3."""
    if not uri.startswith(("s3://", "s3a://")):
        raise NotSupportedError("of stores the adapter knows S3 only")


def one_statement(case: Case, name: str) -> Statement:
    """The only statement of a transaction, for engines whose transactions are statements.

    Raises:
        NotSupportedError: it has several.
    """
    statements = case.transactions[name].statements
    if len(statements) != 1:
        raise NotSupportedError("a transaction of several statements")
    return statements[0]
