"""Whether a file may hold rows that a set of predicates selects: by its partition values, else by its statistics.

Predicates are made ready once and asked of many files. A winner's files come from few partitions, so what the
predicates are for a partition is kept; statistics are looked at only where that leaves the answer open.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from refdelta.errors import DeltaError
from refdelta.protocol import partition_values
from refdelta.protocol.actions import Add, Remove
from refdelta.protocol.predicate import FALSE, TRUE, Predicate, possible
from refdelta.protocol.types import physical_name

if TYPE_CHECKING:
    from refdelta.concurrency.read_set import ReadTable

_KEPT = 100_000
"""How many partitions are remembered."""


class Matcher:
    """Predicates over one table, as a question to files: may a row of yours satisfy one of us?

    Args:
        predicates: bound to the table's schema; none at all match nothing.
        table: the table. Without it, only constants say no.
    """

    def __init__(self, predicates: tuple[Predicate, ...], table: ReadTable | None) -> None:
        self.predicates = tuple(p for p in predicates if p != FALSE)
        self._table = table
        self._always = TRUE in self.predicates or (bool(self.predicates) and table is None)
        self._by_partition: dict[frozenset[tuple[str, str | None]], tuple[Predicate, ...] | None] = {}
        names = {name.lower() for name in table.partition_columns} if table else set()
        self._columns = [c for c in table.schema if c.name.lower() in names] if table else []

    def may_match(self, file: Add | Remove) -> bool:
        """Whether a row of the file may satisfy a predicate; a tombstone without partition values matches."""
        if self._always or not self.predicates:
            return self._always
        if file.partition_values is None:
            return True
        return self._open(file.partition_values) != ()

    def disjoint(self, other: Matcher) -> bool:
        """Whether no row satisfies a predicate of both."""
        return not (self.predicates and other.predicates)

    def _open(self, values: Mapping[str, str | None]) -> tuple[Predicate, ...] | None:
        """The predicates that can be true in this partition; None where one is true for certain."""
        key = frozenset(values.items()) if self._columns else frozenset()
        if key not in self._by_partition:
            if len(self._by_partition) >= _KEPT:
                self._by_partition.clear()
            self._by_partition[key] = self._decide(values)
        return self._by_partition[key]

    def _decide(self, values: Mapping[str, str | None]) -> tuple[Predicate, ...] | None:
        found: list[Predicate] = []
        try:
            known = {c.name: partition_values.parse(values.get(physical_name(c)), c.type) for c in self._columns}
            for predicate in self.predicates:
                outcomes = possible(predicate, known)
                if outcomes == {True}:
                    return None
                if True in outcomes:
                    found.append(predicate)
        except DeltaError:
            # A value that the log should not hold, or one for which the predicate fails: nothing is ruled out.
            return None
        return tuple(found)
