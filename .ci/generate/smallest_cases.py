"""The file ``smallest.json`` of the corpus: the smallest case for each way to go wrong, found by trying all of them.

An engine that checks nothing lets every transaction commit with the effect that it has on the version that it saw.
Every sequence of two and three of :data:`STATEMENTS`, in every interleaving, is played so on each of :data:`TABLES`; it
goes wrong if no serial order leaves the rows that are left. A way to go wrong is a sequence of verbs in the order of
the commits; of three verbs, it counts if no two of the transactions go wrong without the third. Of each way the first
history is taken: tables come in the order of their size. Histories that fall into two parts, one after the other, are
left out, since the first part only makes another table. OPTIMIZE is left out, since it changes no row: it goes wrong
by files, of which the cases of actions are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import permutations, product
from typing import Any

from refdelta.conformance.judge import LEVELS, SERIALIZABLE, WRITE_SERIALIZABLE, Effect, Row, State, apply
from refdelta.conformance.statements import Statement, as_json, effect

NAMES = "ABC"
STATEMENTS = (
    Statement("insert", ((2, 0),)),
    Statement("copy", columns=(("k", "k + 10"),), where="a = 0"),
    Statement("copy", columns=(("k", "k + 10"), ("a", "1")), where="a = 0"),
    Statement("delete", where="a = 0"),
    Statement("delete", where="k = 0"),
    Statement("update", columns=(("a", "a + 1"),), where="k = 0"),
    Statement("update", columns=(("a", "1"),), where="a = 0"),
    Statement("update", columns=(("a", "0"),), where="a = 1"),
    Statement("upsert", ((0, 1),)),
    Statement("upsert", ((2, 1),)),
    Statement("overwrite", ((3, 0),)),
)
"""Each verb, and of those that read some that meet and some that miss the rows of others."""
TABLES: tuple[list[list[list[int]]], ...] = ([], [[[0, 0]]], [[[0, 0], [1, 1]]], [[[0, 0]], [[1, 1]]])
"""The rows of the tables, file by file."""
ABOUT = (
    "The smallest case for each way to go wrong: a sequence of verbs, in the order of their commits, after which no "
    "serial order leaves the rows that an engine without checks leaves. Found by trying all (make corpus)."
)


@dataclass(frozen=True)
class Played:
    """A history in an engine that checks nothing.

    Attributes:
        table: the number of the table.
        statements: those of the transactions, in the order of their commits.
        began: for each transaction the number of commits before its beginning.
    """

    table: int
    statements: tuple[Statement, ...]
    began: tuple[int, ...]

    @property
    def way(self) -> tuple[str, ...]:
        """The verbs."""
        return tuple(one.verb for one in self.statements)

    def without(self, place: int) -> Played:
        """The same without one transaction."""
        left = [other for other in range(len(self.statements)) if other != place]
        began = tuple(self.began[other] - (self.began[other] > place) for other in left)
        return Played(self.table, tuple(self.statements[other] for other in left), began)

    @cached_property
    def levels(self) -> frozenset[str]:
        """The levels at which it goes wrong; empty as well if one of the transactions changes no row."""
        start = frozenset(
            Row((n, i), tuple(row)) for n, rows in enumerate(TABLES[self.table]) for i, row in enumerate(rows)
        )
        versions = [start]
        for place, statement in enumerate(self.statements):
            change = _effect(statement, NAMES[place], versions[self.began[place]])
            if not change.writes:
                return frozenset()
            versions.append(apply(versions[-1], change))
        left = _values(versions[-1])
        in_log = tuple(range(len(self.statements)))
        if self._serially(start, in_log) == left:
            return frozenset()
        moved = any(self._serially(start, order) == left for order in permutations(in_log))
        return frozenset({SERIALIZABLE} if moved else LEVELS)

    def _serially(self, start: State, order: tuple[int, ...]) -> list[tuple[Any, ...]]:
        state = start
        for place in order:
            state = apply(state, _effect(self.statements[place], NAMES[place], state))
        return _values(state)

    def steps(self) -> list[str]:
        """The schedule."""
        found = []
        for commits in range(len(self.statements)):
            found += [f"begin {NAMES[place]}" for place, began in enumerate(self.began) if began == commits]
            found.append(f"commit {NAMES[commits]}")
        return found

    def as_case(self, levels: frozenset[str]) -> dict[str, Any]:
        """The case without ``expected``."""
        return {
            "id": f"smallest-{'-'.join(self.way)}",
            "table": {"rows": TABLES[self.table]},
            "levels": [level for level in LEVELS if level in levels],
            "transactions": {NAMES[place]: {"statements": [as_json(one)]} for place, one in enumerate(self.statements)},
            "schedule": self.steps(),
        }


@lru_cache(maxsize=100_000)
def _effect(statement: Statement, name: str, state: State) -> Effect:
    return effect((statement,), name, state)


def _values(state: State) -> list[tuple[Any, ...]]:
    return sorted(row.values for row in state)


def histories(count: int) -> Iterator[Played]:
    """All histories of so many transactions, those on smaller tables first; without those that fall into two parts, of
    which the second one begins after the first one has ended.
    """
    places = range(1, count)
    every = product(*(range(place + 1) for place in range(count)))
    shapes = [one for one in every if all(any(began < cut for began in one[cut:]) for cut in places)]
    for table, statements, began in product(range(len(TABLES)), product(STATEMENTS, repeat=count), shapes):
        yield Played(table, statements, began)


def ways() -> list[tuple[Played, frozenset[str]]]:
    """The first history of each way to go wrong, and the levels at which it is one. Where it goes wrong at
    WriteSerializable, it does at Serializable, too.
    """
    found: dict[tuple[str, ...], tuple[Played, frozenset[str]]] = {}
    for count in (2, 3):
        for one in histories(count):
            known = found.get(one.way, (one, frozenset()))[1]
            if WRITE_SERIALIZABLE in known or not one.levels > known:
                continue
            fewer = frozenset().union(*(one.without(place).levels for place in range(count))) if count > 2 else set()
            if one.levels - fewer > known:
                found[one.way] = one, one.levels - fewer
    return list(found.values())


def document() -> dict[str, Any]:
    """The file without ``expected``."""
    return {"format": 1, "about": ABOUT, "cases": [one.as_case(levels) for one, levels in ways()]}
