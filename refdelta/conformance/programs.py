"""Random cases of statements, and smaller ones that fail in the same way."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from refdelta.conformance.cases import FORMAT, LEVELS, Case, CaseTransaction
from refdelta.conformance.engines import Engine
from refdelta.conformance.expected import Expectation
from refdelta.conformance.runner import run_case
from refdelta.conformance.statements import Statement, as_json

_KEYS = 6
_VALUES = 3
NAMES: Final = ("T", "U", "V")
"""The names of the transactions."""


def draw(seeds: Iterable[int]) -> list[Case]:
    """One random case for each seed: two or three transactions of a statement each, on one to three files.

    Args:
        seeds: a seed always gives the same case.

    Example:
        >>> from refdelta.conformance.programs import draw
        >>> [case.id for case in draw([7])] == [case.id for case in draw([7])]
        True
    """
    return [_draw(seed) for seed in seeds]


def _draw(seed: int) -> Case:
    dice = random.Random(seed)  # noqa: S311 - no secret
    keys = iter(range(_KEYS))
    counts = [dice.randint(1, 2) for _ in range(dice.randint(1, 3))]
    files = [[[next(keys), dice.randrange(_VALUES)] for _ in range(count)] for count in counts]
    names = NAMES[: dice.choice((2, 2, 3))]
    steps = schedule(dice, names)
    return Case(
        name=f"random-{seed}",
        group="random",
        level=dice.choice(LEVELS),
        table={"rows": files, **({"partition_by": ["a"]} if dice.random() < 0.25 else {})},
        transactions={name: CaseTransaction(name, statements=(_statement(dice, seed),)) for name in names},
        steps=tuple(steps),
    )


def schedule(dice: random.Random, names: Sequence[str]) -> list[tuple[str, str]]:
    """The steps of transactions in a random order, each beginning before it commits.

    Args:
        dice: the source of the order.
        names: the names of the transactions.
    """
    steps = [(verb, name) for name in names for verb in ("begin", "commit")]
    dice.shuffle(steps)
    for name in names:
        places = sorted(place for place, (_, other) in enumerate(steps) if other == name)
        steps[places[0]], steps[places[1]] = ("begin", name), ("commit", name)
    return steps


def _statement(dice: random.Random, seed: int) -> Statement:
    match dice.choice(("insert", "delete", "delete", "update", "update", "upsert", "overwrite", "optimize", "copy")):
        case "insert":
            return Statement("insert", ((10 + dice.randrange(5), dice.randrange(_VALUES)),))
        case "delete":
            return Statement("delete", where=_predicate(dice))
        case "update":
            value = dice.choice(("a + 1", str(dice.randrange(_VALUES))))
            return Statement("update", columns=(("a", value),), where=_predicate(dice))
        case "upsert":
            keys = dice.sample(range(_KEYS + 2), dice.randint(1, 2))
            return Statement("upsert", tuple((key, dice.randrange(_VALUES)) for key in sorted(keys)))
        case "overwrite":
            return Statement("overwrite", ((20 + seed % 5, dice.randrange(_VALUES)),))
        case "copy":
            return Statement("copy", columns=(("k", "k + 30"),), where=_predicate(dice))
    return Statement("optimize")


def _predicate(dice: random.Random) -> str:
    key, value = dice.randrange(_KEYS), dice.randrange(_VALUES)
    return dice.choice((f"k = {key}", f"a = {value}", f"k < {key}", f"a <> {value}", f"k = {key} OR a = {value}"))


def smaller(engine: Engine, case: Case) -> Case:
    """A smaller case that ends with the same status: fewer transactions, statements, files, rows, parts of predicates.

    Args:
        engine: the engine.
        case: a case of statements.
    """
    with tempfile.TemporaryDirectory(prefix="refdelta-conformance-") as scratch:
        folders = (Path(scratch) / str(number) for number in range(1_000_000))
        status = run_case(engine, case, next(folders)).status
        while less := next(
            (one for one in _smaller(case) if run_case(engine, one, next(folders)).status == status), None
        ):
            case = less
    return case


def _smaller(case: Case) -> Iterator[Case]:
    for name in case.transactions if len(case.transactions) > 1 else ():
        left = {other: one for other, one in case.transactions.items() if other != name}
        yield replace(case, transactions=left, steps=tuple(step for step in case.steps if step[1] != name), expected={})
    for name, one in case.transactions.items():
        for statements in _fewer(one.statements):
            yield replace(
                case,
                transactions={**case.transactions, name: CaseTransaction(name, statements=statements)},
                expected={},
            )
    files = case.table["rows"]
    for number, rows in enumerate(files):
        yield _with(case, rows=[*files[:number], *files[number + 1 :]])
        for place in range(len(rows)) if len(rows) > 1 else ():
            fewer = [*rows[:place], *rows[place + 1 :]]
            yield _with(case, rows=[*files[:number], fewer, *files[number + 1 :]])
    if "partition_by" in case.table:
        table = {key: value for key, value in case.table.items() if key != "partition_by"}
        yield replace(case, table=table, expected={})


def _fewer(statements: tuple[Statement, ...]) -> Iterator[tuple[Statement, ...]]:
    """The statements of a transaction with one of them left out, or with a row or a part of a predicate less."""
    for place, statement in enumerate(statements):
        before, after = statements[:place], statements[place + 1 :]
        if len(statements) > 1:
            yield (*before, *after)
        rows = statement.rows
        for row in range(len(rows)) if len(rows) > 1 else ():
            yield (*before, replace(statement, rows=(*rows[:row], *rows[row + 1 :])), *after)
        parts = statement.where.split(" OR ")
        for part in parts if len(parts) > 1 else ():
            yield (*before, replace(statement, where=part), *after)


def _with(case: Case, **changes: Any) -> Case:
    return replace(case, table={**case.table, **changes}, expected={})


def written(cases: Sequence[Case]) -> str:
    """Cases of statements as a file of cases."""
    document = {"format": FORMAT, "about": "Random cases.", "cases": [_as_json(case) for case in cases]}
    return msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n"


def _as_json(case: Case) -> dict[str, Any]:
    return {
        "id": case.name,
        "table": case.table,
        "levels": [case.level],
        "transactions": {
            name: {"statements": [as_json(statement) for statement in one.statements]}
            for name, one in case.transactions.items()
        },
        "schedule": [" ".join(step) for step in case.steps],
        "expected": {case.level: Expectation(case).as_json()},
    }
