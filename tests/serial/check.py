"""What is wrong with the outcome of a program."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from serial.expressions import UserError
from serial.judge import SERIALIZABLE, explain
from serial.play import Outcome, play, shown_error
from serial.programs import Program, points


@dataclass(frozen=True)
class Finding:
    """Something wrong.

    Attributes:
        kind: ``order``, ``version``, ``unsound``, ``error`` or ``statement``.
        text: what it is.
    """

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def check(program: Program) -> list[Finding]:
    """Play a program, and hold what comes of it to the oracle."""
    return judged(play(program))


def judged(outcome: Outcome) -> list[Finding]:
    """Hold what came of a program to the oracle."""
    found = [Finding("unsound", text) for text in outcome.unsound]
    for one in outcome.running:
        if one.outcome == "error":
            found.append(Finding("error", f"T{one.number}: {shown_error(one.error)}"))
    level = outcome.program.level
    if outcome.end is not None:
        wrong = explain(outcome.history, outcome.start, outcome.end, level)
        if wrong is not None:
            found.append(Finding("order", wrong))
        elif level == SERIALIZABLE:
            found += _versions(outcome)
    return found


def _versions(outcome: Outcome) -> list[Finding]:
    """At Serializable each version is that of a prefix of the order; and what failed by itself has to fail there."""
    found = []
    worlds = {-1: outcome.start}
    world = outcome.start
    for one in sorted(outcome.history, key=lambda one: one.place):
        if one.version is None:
            continue
        world, _ = one.transaction.on(world)
        worlds[one.version] = world
        if outcome.rows[one.version] != world.outcome()["rows"]:
            text = f"version {one.version}: {sorted(outcome.rows[one.version].elements(), key=str)}"
            found.append(Finding("version", f"{text}, and not {sorted(world.rows, key=str)}"))
    for one in outcome.running:
        if one.outcome == "failed" and type(one.error).__name__ != "DataFileNotFoundError":
            seen = worlds[max(version for version in worlds if version <= one.began)]
            try:
                one.transaction.on(seen)
            except UserError:
                continue
            found.append(Finding("statement", f"T{one.number} failed: {type(one.error).__name__}: {one.error}"))
    return found


# --- smaller programs ------------------------------------------------------------------------------------------------


def serially(program: Program, numbers: list[int]) -> Program:
    """The program's transactions one after the other, in this order."""
    turns = tuple(number for number in numbers for _ in range(points(program.transactions[number])))
    return dataclasses.replace(program, schedule=turns)


def smaller(program: Program, kinds: set[str]) -> Program:
    """A program with fewer transactions, steps and properties that shows findings of the same kinds."""
    while (less := next((p for p in _smaller(program) if _shows(p, kinds)), None)) is not None:
        program = less
    return program


def _shows(program: Program, kinds: set[str]) -> bool:
    try:
        return {finding.kind for finding in check(program)} == kinds
    except Exception:
        return False


def _smaller(program: Program):
    for number, one in enumerate(program.transactions):
        rest = tuple(other for at, other in enumerate(program.transactions) if at != number)
        turns = tuple(turn - (turn > number) for turn in program.schedule if turn != number)
        lags = tuple(lag for at, lag in enumerate(program.lags) if at != number)
        if rest:
            yield dataclasses.replace(program, transactions=rest, schedule=turns, lags=lags)
        for at in range(len(one.steps)) if len(one.steps) > 1 else ():
            less = dataclasses.replace(one, steps=one.steps[:at] + one.steps[at + 1 :])
            seen, turns = 0, []
            for turn in program.schedule:
                seen += turn == number
                if turn != number or seen != at + 2:
                    turns.append(turn)
                elif turn == number:
                    seen += 1000
            yield dataclasses.replace(program, transactions=_put(program, number, less), schedule=tuple(turns))
        for change in ({"isolation": None}, {"application": None}):
            if any(getattr(one, name) != value for name, value in change.items()):
                yield dataclasses.replace(
                    program, transactions=_put(program, number, dataclasses.replace(one, **change))
                )
    for at in range(len(program.setup)):
        yield dataclasses.replace(program, setup=program.setup[:at] + program.setup[at + 1 :])
    for name in program.properties:
        if name != "delta.isolationLevel":
            left = {key: value for key, value in program.properties.items() if key != name}
            yield dataclasses.replace(program, properties=left)
    for change in (
        {"partitioned": False},
        {"clustering": ()},
        {"lags": (0,) * len(program.lags)},
        {"linked": False},
        {"forgetful": False},
        {"numbered": False},
    ):
        if any(getattr(program, name) != value for name, value in change.items()):
            yield dataclasses.replace(program, **change)
    earlier = _earlier_begins(program)
    if earlier != program.schedule:
        yield dataclasses.replace(program, schedule=earlier)


def _put(program: Program, number: int, one):
    return (*program.transactions[:number], one, *program.transactions[number + 1 :])


def _earlier_begins(program: Program) -> tuple[int, ...]:
    """The schedule with all that is between the begin and the commit of a transaction right after its begin."""
    points_left = {number: program.schedule.count(number) for number in set(program.schedule)}
    turns, begun = [], set()
    for turn in program.schedule:
        if turn not in begun:
            begun.add(turn)
            turns += [turn] * max(1, points_left[turn] - 1)
        else:
            points_left[turn] -= 1
            if points_left[turn] == 1:
                turns.append(turn)
    return tuple(turns) if sorted(turns) == sorted(program.schedule) else program.schedule
