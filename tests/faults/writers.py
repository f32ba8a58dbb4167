"""Writers and readers that go on whatever happens to them, and note down what they were told."""

from __future__ import annotations

import random
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from faults.steps import State, Step, create, take
from refdelta import DeltaTable, errors
from servers.running import Place

_TRIES = 20
"""How often a step that may be taken twice is tried, until it succeeds."""


@dataclass(frozen=True)
class Read:
    """What a reader saw: the rows of a version, or an error; ``least`` is a version that it knew to be there when it
    asked for the newest.
    """

    version: int | None
    rows: tuple[tuple[int, int, int], ...] = ()
    error: tuple[str, str] | None = None
    traceback: str = ""
    least: int = 0


@dataclass(frozen=True)
class Told:
    """What the caller of a step was told.

    Attributes:
        step: the step.
        outcome: ``committed``, ``nothing`` (there was nothing to commit), ``failed``, ``unknown``.
        version: the version that was committed.
        error: the name of the error's class, and its message.
        traceback: of an error that is none of the engine's.
        seconds: how long it took.
        seen: what the same handle showed afterwards, where it was asked.
    """

    step: Step
    outcome: str
    version: int | None = None
    error: tuple[str, str] | None = None
    traceback: str = ""
    seconds: float = 0.0
    seen: Read | None = None


def impatient(place: Place, *, seconds: int = 1, retries: int = 2, probed: bool = False) -> Place:
    """The same with clients that give up soon: what a run takes is their waiting. They trust the server, unless they
    are to probe whether it has conditional puts, as by default they do with one that is not Amazon's.
    """
    patience = {"timeout": f"{seconds}s", "connect_timeout": "2s", "max_retries": retries}
    return Place(place.uri, {**place.options, **patience, **({} if probed else {"put_if_absent": "true"})})


def write(place: Place, steps: Sequence[Step], seed: int) -> list[Told]:
    """Take the steps, one after the other, with one handle for several of them or a new one for each."""
    dice = random.Random(seed)
    told: list[Told] = []
    table: DeltaTable | None = None
    for step in steps:
        if dice.random() < 0.4:
            table = None
        for _ in range(_TRIES if step.kind == "once" else 1):
            table, one = _try(place, step, table)
            if table is not None and dice.random() < 0.3:
                one = replace(one, seen=_look(table, one.version or 0))
            told.append(one)
            if one.error is None:
                break
    return told


def _try(place: Place, step: Step, table: DeltaTable | None) -> tuple[DeltaTable | None, Told]:
    started = time.monotonic()
    version = error = None
    trace = ""
    try:
        if table is None and step.kind != "create":
            table = DeltaTable(place.uri, storage_options=place.options)
        if table is not None and step.kind == "restore":
            step = replace(step, target=max(table.version() - 2, 0))
        version = create(step, place.uri, place.options) if table is None else take(step, table)
        outcome = "nothing" if version is None else "committed"
    except errors.CommitOutcomeUnknownError as failure:
        outcome, error = "unknown", _shown(failure)
    except errors.DeltaError as failure:
        outcome, error = "failed", _shown(failure)
    except Exception as failure:
        outcome, error, trace = "failed", _shown(failure), traceback.format_exc()
    return table, Told(step, outcome, version, error, trace, time.monotonic() - started)


def read(place: Place, seed: int, enough: Callable[[], bool]) -> list[Read]:
    """Read the newest version or an older one, again and again until it is enough."""
    dice = random.Random(seed)
    seen: list[Read] = []
    newest = 0
    while not enough():
        version = dice.randint(0, newest) if dice.random() < 0.3 else None
        try:
            table = DeltaTable(place.uri, version, storage_options=place.options)
        except Exception as failure:
            seen.append(_failed(failure))
            continue
        seen.append(_look(table, newest if version is None else version))
        newest = max(newest, table.version())
    return seen


def _look(table: DeltaTable, least: int) -> Read:
    try:
        return Read(table.version(), rows_of(table), least=least)
    except Exception as failure:
        return _failed(failure)


def _failed(failure: Exception) -> Read:
    trace = "" if isinstance(failure, errors.DeltaError) else traceback.format_exc()
    return Read(None, error=_shown(failure), traceback=trace)


def rows_of(table: DeltaTable) -> tuple[tuple[int, int, int], ...]:
    """All rows, in their order: those that are there twice come twice."""
    return in_order(table.to_pyarrow_table())


def in_order(data: pa.Table) -> tuple[tuple[int, int, int], ...]:
    """Rows of the table, in their order."""
    columns = data.to_pydict()
    return tuple(sorted(zip(columns["owner"], columns["id"], columns["value"], strict=True)))


def rows(state: State) -> tuple[tuple[int, int, int], ...]:
    """The rows of a state, as :func:`rows_of` has them."""
    return tuple(sorted((*key, value) for key, value in state.items()))


def _shown(error: Exception) -> tuple[str, str]:
    return type(error).__name__, str(error)
