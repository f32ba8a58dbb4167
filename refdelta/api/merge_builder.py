"""The clauses of a MERGE, put together call by call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar

from refdelta.errors import InvalidArgumentError
from refdelta.operations.merge.clauses import Clause, Kind, When

Result = TypeVar("Result")


class TableMerger(Generic[Result]):
    """A MERGE in the making; made by :meth:`refdelta.DeltaTable.merge` and by a transaction's ``merge``.

    Clauses are tried in the order of the calls, and the first one whose predicate is true takes the row. Of several
    clauses of one kind only the last may be without a predicate. Expressions name columns with the aliases of the table
    and of the source, or without where that leaves no doubt.
    """

    def __init__(self, run: Callable[[tuple[Clause, ...]], Result]):
        self._run = run
        self._clauses: list[Clause] = []
        self._done = False

    def when_matched_update(self, updates: Mapping[str, str], predicate: str | None = None) -> Self:
        """Set columns of a row that a row of the source matches.

        Args:
            updates: SQL expressions by column, over both rows.
            predicate: for which of these rows; None for all.
        """
        return self._add("matched", "update", predicate, updates)

    def when_matched_update_all(self, predicate: str | None = None, except_cols: Sequence[str] | None = None) -> Self:
        """Set all columns of a row that a row of the source matches to the source's of the same names.

        Args:
            predicate: for which of these rows; None for all.
            except_cols: columns to leave as they are.
        """
        return self._add("matched", "update", predicate, None, except_cols)

    def when_matched_delete(self, predicate: str | None = None) -> Self:
        """Delete a row that a row of the source matches."""
        return self._add("matched", "delete", predicate)

    def when_not_matched_insert(self, updates: Mapping[str, str], predicate: str | None = None) -> Self:
        """Insert a row for a row of the source that matches none; columns that are not named are null.

        Args:
            updates: SQL expressions by column, over the source's row.
            predicate: for which of these rows; None for all.
        """
        return self._add("not matched", "insert", predicate, updates)

    def when_not_matched_insert_all(
        self, predicate: str | None = None, except_cols: Sequence[str] | None = None
    ) -> Self:
        """Insert a row of the source that matches none, its columns by name.

        Args:
            predicate: for which of these rows; None for all.
            except_cols: columns to leave null.
        """
        return self._add("not matched", "insert", predicate, None, except_cols)

    def when_not_matched_by_source_update(self, updates: Mapping[str, str], predicate: str | None = None) -> Self:
        """Set columns of a row of the table that no row of the source matches.

        Args:
            updates: SQL expressions by column, over the table's row.
            predicate: for which of these rows; None for all.
        """
        return self._add("not matched by source", "update", predicate, updates)

    def when_not_matched_by_source_delete(self, predicate: str | None = None) -> Self:
        """Delete a row of the table that no row of the source matches."""
        return self._add("not matched by source", "delete", predicate)

    def add(self, clauses: Iterable[Clause]) -> Self:
        """Add clauses that another MERGE has put together."""
        self._clauses.extend(clauses)
        return self

    def execute(self) -> Result:
        """Run it.

        Returns:
            What was committed, by :meth:`refdelta.DeltaTable.merge`; None within a transaction, which commits later.

        Raises:
            InvalidArgumentError: clauses that SQL does not allow, or a second call.
            PredicateError: SQL that cannot be parsed or bound.
            ConstraintViolationError: a row of the table that several rows of the source match; its key is shown.
            ConcurrentModificationError: another writer's commit conflicts; nothing of this one is visible.
        """
        if self._done:
            raise InvalidArgumentError("this MERGE ran already; its source has been read")
        self._done = True
        return self._run(tuple(self._clauses))

    def _add(
        self,
        when: When,
        kind: Kind,
        predicate: str | None,
        values: Mapping[str, str] | None = None,
        except_cols: Sequence[str] | None = None,
    ) -> Self:
        if isinstance(except_cols, str):
            raise InvalidArgumentError(f"except_cols is a list of names, not {except_cols!r}")
        if values is not None and not isinstance(values, Mapping):
            raise InvalidArgumentError(f"updates is a mapping of columns to SQL, not {values!r}")
        given: Any = None if values is None else dict(values)
        self._clauses.append(Clause(when, kind, predicate, given, tuple(except_cols or ())))
        return self
