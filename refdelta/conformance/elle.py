"""Random cases whose histories fit Elle's ``rw-register`` workload, and these histories in its form (EDN).

A register is a row: its key is ``k``, its value ``a``. A transaction reads registers, then writes at most one of them.
Statements of cases return nothing, so a read is a ``copy``: it writes what it found to a key that nothing else uses,
where it is found at the end. https://github.com/jepsen-io/elle describes the form, and ``docs/conformance.md`` how to
check such a file.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from refdelta.conformance.cases import LEVELS, Case, CaseTransaction
from refdelta.conformance.programs import NAMES, schedule
from refdelta.conformance.runner import ERROR, REFUSED, Result
from refdelta.conformance.statements import Statement

REGISTERS: Final = 2
"""The number of registers of a case."""
_READS: Final = 100
"""Keys from here on hold what was read."""


@dataclass(frozen=True)
class Exported:
    """Histories in Elle's form.

    Attributes:
        text: an operation a line.
        cases: the number of cases in it.
        left_out: the number of cases that do not fit: of a case that was refused or ended with an error, or in which a
            register had two values, or none.
    """

    text: str
    cases: int
    left_out: int


def draw_registers(seeds: Iterable[int]) -> list[Case]:
    """One random case for each seed: two or three transactions that read and write two registers.

    Args:
        seeds: a seed always gives the same case.

    Example:
        >>> from refdelta.conformance.elle import draw_registers
        >>> [case.kind for case in draw_registers([0, 1])]
        ['statements', 'statements']
    """
    return [_draw(seed) for seed in seeds]


def _draw(seed: int) -> Case:
    dice = random.Random(seed)  # noqa: S311 - no secret
    names = NAMES[: dice.choice((2, 3, 3))]
    return Case(
        name=f"registers-{seed}",
        group="registers",
        level=dice.choice(LEVELS),
        table={"rows": [[[key, key + 1]] for key in range(REGISTERS)]},
        transactions={
            name: CaseTransaction(name, statements=tuple(_statements(dice, place))) for place, name in enumerate(names)
        },
        steps=tuple(schedule(dice, names)),
    )


def _statements(dice: random.Random, place: int) -> Iterator[Statement]:
    for key in sorted(dice.sample(range(REGISTERS), dice.randint(1, REGISTERS))):
        kept = _READS + REGISTERS * place + key
        yield Statement("copy", columns=(("k", str(kept)),), where=f"k = {key}")
    if dice.random() < 0.8:
        yield Statement("upsert", ((dice.randrange(REGISTERS), 10 * (place + 1)),))


def exported(results: Sequence[Result]) -> Exported:
    """The histories of cases of :func:`draw_registers`, as one history: each case has registers and processes of its
    own, and a first transaction that writes their first values.

    Args:
        results: the results of the runner.
    """
    lines: list[str] = []
    processes = left_out = 0
    for number, result in enumerate(results):
        operations = _operations(result, number * REGISTERS)
        if operations is None:
            left_out += 1
            continue
        for kind, process, value in operations:
            at = len(lines)
            lines.append(
                f"{{:index {at}, :time {at}, :type :{kind}, :process {processes + process}, :f :txn, :value {value}}}"
            )
        processes += len(result.case.transactions) + 1
    return Exported("".join(f"{line}\n" for line in lines), len(results) - left_out, left_out)


def _operations(result: Result, first: int) -> list[tuple[str, int, str]] | None:
    """Type, process and value of each operation of a case, whose registers begin with this number; None if the case
    does not fit.
    """
    case = result.case
    if result.status in (REFUSED, ERROR) or not isinstance(result.rows, list):
        return None
    found: dict[int, list[int]] = {}
    for key, value in result.rows:
        if key is None or value is None:
            return None
        found.setdefault(key, []).append(value)
    initial = " ".join(f"[:w {first + key} {value}]" for ((key, value),) in case.table["rows"])
    operations = [("invoke", 0, f"[{initial}]"), ("ok", 0, f"[{initial}]")]
    names = list(case.transactions)
    for verb, name in case.steps:
        committed = verb == "commit" and name in result.committed
        parts = []
        for statement in case.transactions[name].statements:
            if statement.verb == "upsert":
                ((key, written),) = statement.rows
                parts.append(f"[:w {first + (key or 0)} {written}]")
                continue
            kept = int(statement.expression("k"))
            if committed and len(found.get(kept, ())) != 1:
                return None
            read = str(found[kept][0]) if committed else "nil"
            parts.append(f"[:r {first + (kept - _READS) % REGISTERS} {read}]")
        kind = "invoke" if verb == "begin" else "ok" if committed else "fail"
        operations.append((kind, names.index(name) + 1, f"[{' '.join(parts)}]"))
    return operations
