"""A predicate of this engine as the conflict rules need it: bound to a table, ready to be asked of many files.

A winner's files come from few partitions, so what the predicate is for a partition is kept. Statistics are decoded and
looked at only where that leaves the answer open.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from refdelta.core.conflicts.reads import EVERY_ROW, RowPredicate
from refdelta.core.log.actions import Add, Remove
from refdelta.errors import DeltaError
from refdelta.expressions.expression import Predicate, column_refs, to_sql
from refdelta.expressions.predicate import TRUE, possible
from refdelta.pruning.disjoint import disjoint
from refdelta.pruning.file_match import FileMatcher
from refdelta.table.types import ArrayType, MapType, StructType

_KEPT = 100_000
"""The number of partitions in the cache."""

_CLOSED, _OPEN, _ALL = range(3)
# No row of a partition satisfies the predicate, some may, all do.


def row_predicate(predicate: Predicate, schema: StructType, partition_columns: Sequence[str]) -> RowPredicate:
    """A predicate for the conflict rules.

    Args:
        predicate: bound to the schema.
        schema: the table's.
        partition_columns: by logical name.
    """
    return EVERY_ROW if predicate == TRUE else TablePredicate(predicate, schema, partition_columns)


class TablePredicate:
    """See :class:`~refdelta.core.conflicts.reads.RowPredicate`.

    Args:
        predicate: bound to the schema.
        schema: the table's.
        partition_columns: by logical name.
    """

    def __init__(self, predicate: Predicate, schema: StructType, partition_columns: Sequence[str]) -> None:
        self.predicate = predicate
        self._matcher = FileMatcher(predicate, schema, partition_columns)
        self._names = self._matcher.partition_names
        self._by_partition: dict[Any, tuple[int, Mapping[str, Any], Predicate]] = {}
        self._closed: set[Any] = set()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TablePredicate) and self.predicate == other.predicate

    def __hash__(self) -> int:
        return hash(self.predicate)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text})"

    @functools.cached_property
    def text(self) -> str:
        """As SQL."""
        return to_sql(self.predicate)

    @functools.cached_property
    def undecidable(self) -> str | None:
        """The reason why it is not evaluated on single rows; None if it is.

        Predicates on structs, arrays and maps are decided by files, as documented. Non-deterministic ones are refused
        when they are parsed.
        """
        names = sorted(
            {
                ".".join(column.path)
                for column in column_refs(self.predicate)
                if len(column.path) > 1 or isinstance(column.type, (StructType, ArrayType, MapType))
            }
        )
        return f"the predicate is on a struct, an array or a map ({', '.join(names)})" if names else None

    def candidates(self, files: Sequence[Add]) -> Sequence[Add]:
        """The files without those in partitions that are known not to match."""
        if not self._closed:
            return files
        closed, keys = self._closed, self._keys(files)
        if closed.issuperset(keys):
            return ()
        return [file for file, partition in zip(files, keys, strict=True) if partition not in closed]

    def may_match(self, file: Add | Remove, with_statistics: Callable[[Add], Add] | None = None) -> bool:
        """Decide by the values of the file's partition, then by its statistics."""
        if file.partition_values is None:
            return True
        said, known, residual = self._partition(file)
        if said != _OPEN:
            return said == _ALL
        text = file.stats
        if text is None and with_statistics is not None and isinstance(file, Add):
            text = with_statistics(file).stats
        return self._matcher.may_match_stats(residual, known, text)

    def is_disjoint(self, other: RowPredicate) -> bool:
        """Whether no row satisfies both, decided from the two predicates alone."""
        return disjoint(self.predicate, other.predicate if isinstance(other, TablePredicate) else TRUE)

    def _partition(self, file: Add | Remove) -> tuple[int, Mapping[str, Any], Predicate]:
        """The verdict for rows in the file's partition, its partition values, and the residual of the predicate."""
        (key,) = self._keys([file])
        if key not in self._by_partition:
            if len(self._by_partition) >= _KEPT:
                self._by_partition.clear()
                self._closed.clear()
            found = self._by_partition[key] = self._decide(file.partition_values or {})
            if found[0] == _CLOSED:
                self._closed.add(key)
        return self._by_partition[key]

    def _keys(self, files: Sequence[Any]) -> list[Any]:
        """The partitions of files, as values of the partition columns."""
        if len(self._names) == 1:
            (name,) = self._names
            return [file.partition_values.get(name) for file in files]
        return [tuple([file.partition_values.get(name) for name in self._names]) for file in files]

    def _decide(self, values: Mapping[str, str | None]) -> tuple[int, Mapping[str, Any], Predicate]:
        known = self._matcher.partition_values(values)
        if known is None:
            return _ALL, {}, TRUE
        try:
            outcomes = possible(self._matcher.predicate, known)
        except DeltaError:
            # The predicate may fail in this partition, which only its rows decide.
            return _ALL, known, TRUE
        if outcomes == {True}:
            return _ALL, known, TRUE
        return (_OPEN if True in outcomes else _CLOSED), known, self._matcher.residual(known)
