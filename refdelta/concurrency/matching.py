"""Whether a file may hold rows that a set of predicates selects: by its partition values, else by its statistics.

Predicates are made ready once and asked of many files. A winner's files come from few partitions, so what the
predicates are for a partition is kept. Statistics are decoded and looked at only where that leaves the answer open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from refdelta.errors import DeltaError
from refdelta.protocol.actions import Add, Remove
from refdelta.protocol.disjoint import disjoint
from refdelta.protocol.file_match import FileMatcher
from refdelta.protocol.predicate import FALSE, TRUE, Predicate, possible

if TYPE_CHECKING:
    from refdelta.concurrency.read_set import ReadTable

_KEPT = 100_000
"""How many partitions are remembered."""

_Values = Mapping[str, str | None]

_Open = tuple[Mapping[str, Any], list[FileMatcher]]
"""The values of a partition, and the predicates that may be true for some of its rows."""


class Matcher:
    """Predicates over one table, as a question to files: may a row of yours satisfy one of us?

    Args:
        predicates: bound to the table's schema; none at all match nothing.
        table: the table. Without it, only constants say no.
    """

    def __init__(self, predicates: tuple[Predicate, ...], table: ReadTable | None) -> None:
        self.predicates = tuple(p for p in predicates if p != FALSE)
        self._always = TRUE in self.predicates or (bool(self.predicates) and table is None)
        self._matchers: list[FileMatcher] = []
        self._by_partition: dict[Any, _Open | None] = {}
        # The partitions without a row that satisfies a predicate.
        self._closed: set[Any] = set()
        self._names: list[str] = []
        if table is not None and not self._always:
            self._matchers = [FileMatcher(p, table.schema, table.partition_columns) for p in self.predicates]
        if self._matchers:
            self._names = self._matchers[0].partition_names

    def in_open_partitions(self, files: Sequence[Add]) -> Sequence[Add]:
        """Those of the files that may match as far as the partitions of files tell which were asked before. It is
        quick, and :meth:`may_match` decides.
        """
        if not self._matchers:
            return files if self.predicates else ()
        if not self._closed:
            return files
        closed, keys = self._closed, self._keys([file.partition_values for file in files])
        if closed.issuperset(keys):
            return ()
        return [file for file, partition in zip(files, keys, strict=True) if partition not in closed]

    def may_match(self, file: Add | Remove, with_statistics: Callable[[Add], Add] | None = None) -> bool:
        """Whether a row of the file may satisfy a predicate.

        Args:
            file: with partition values; a tombstone that has none matches.
            with_statistics: gives an add with its statistics, at some cost, where it was folded without them.
        """
        if not self._matchers or file.partition_values is None:
            return bool(self.predicates)
        found = self._open(file.partition_values)
        if found is None:
            return True
        known, matchers = found
        if not matchers:
            return False
        text = file.stats
        if text is None and with_statistics is not None and isinstance(file, Add):
            text = with_statistics(file).stats
        return any(matcher.may_match_stats(known, text) for matcher in matchers)

    def disjoint(self, other: Matcher) -> bool:
        """Whether no row satisfies a predicate of both."""
        return all(disjoint(one, two) for one in self.predicates for two in other.predicates)

    def _open(self, values: _Values) -> _Open | None:
        """What a partition leaves open; None where a predicate is true for all its rows."""
        (key,) = self._keys([values])
        if key not in self._by_partition:
            if len(self._by_partition) >= _KEPT:
                self._by_partition.clear()
                self._closed.clear()
            found = self._by_partition[key] = self._decide(values)
            if found is not None and not found[1]:
                self._closed.add(key)
        return self._by_partition[key]

    def _keys(self, partitions: Iterable[_Values]) -> list[Any]:
        """By what partitions are told from each other: the values of the table's partition columns."""
        if len(self._names) == 1:
            (name,) = self._names
            return [values.get(name) for values in partitions]
        return [tuple([values.get(name) for name in self._names]) for values in partitions]

    def _decide(self, values: _Values) -> _Open | None:
        known = self._matchers[0].partition_values(values)
        if known is None:
            return None
        found: list[FileMatcher] = []
        for matcher in self._matchers:
            try:
                outcomes = possible(matcher.predicate, known)
            except DeltaError:
                # The predicate fails for this partition; whether it does is for the rows to tell.
                return None
            if outcomes == {True}:
                return None
            if True in outcomes:
                found.append(matcher)
        return known, found
