"""The builder of a MERGE: a method for each kind of clause, and ``execute``."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from refdelta.api.awaiting import awaitable
from refdelta.errors import InvalidArgumentError
from refdelta.operations.merge.plan import Kind, MergeClause, When
from refdelta.transaction.ownership import caller

if TYPE_CHECKING:
    from refdelta.operations.merge.plan import MergeRequest

Result = TypeVar("Result")


class TableMerger(Generic[Result]):
    """The builder of a MERGE; made by :meth:`refdelta.DeltaTable.merge` and by a transaction's ``merge``.

    Clauses are tried in the order of the calls; the first one whose predicate is true applies to the row. Of several
    clauses of one kind only the last may lack a predicate. Expressions name columns with the alias of the table or of
    the source; the alias may be left out if only one of the two has such a column.

    Nothing happens before :meth:`execute`. A builder that is dropped without it gives a ``UserWarning``.

    Example::

        (
            table.merge(rows, "s.id = t.id")
            .when_matched_update({"amount": "s.amount"})
            .when_not_matched_insert_all()
            .execute()
        )
    """

    def __init__(self, request: MergeRequest, run: Callable[[MergeRequest], Result]):
        self._request = request
        self._run = run
        self._clauses: list[MergeClause] = []
        self._done = False
        self._began = caller()

    def __repr__(self) -> str:
        clauses = ", ".join(f"when {one.when} {one.kind}" for one in self._clauses) or "no clauses yet"
        state = "it ran" if self._done else "execute() runs it"
        return f"<MERGE on {self._request.predicate!r}: {clauses}; {state}>"

    def __del__(self) -> None:
        # Without a field if the constructor raised, and without modules at the end of the interpreter.
        if getattr(self, "_done", True) or sys.is_finalizing():
            return
        file, line = self._began or ("", 0)
        warnings.warn_explicit(
            "a MERGE was dropped without execute(): it changed nothing", UserWarning, file or "<unknown>", line
        )

    def when_matched_update(self, updates: Mapping[str, str], predicate: str | None = None) -> Self:
        """Update the rows of the table that match a row of the source (WHEN MATCHED THEN UPDATE).

        Args:
            updates: by column, an SQL expression over both rows.
            predicate: a further condition on both rows; None for all matched rows.

        Example::

            merge = table.merge(rows, "s.id = t.id")
            merge.when_matched_update({"amount": "t.amount + s.amount"}).execute()
        """
        return self._add("matched", "update", predicate, updates)

    def when_matched_update_all(self, predicate: str | None = None, except_cols: Sequence[str] | None = None) -> Self:
        """Set all columns of the matched rows to the source's columns of the same names (WHEN MATCHED THEN UPDATE *).

        Args:
            predicate: a further condition on both rows; None for all matched rows.
            except_cols: columns that are not set.

        Example::

            merge = table.merge(rows, "s.id = t.id")
            merge.when_matched_update_all(predicate="s.day > t.day", except_cols=["name"]).execute()
        """
        return self._add("matched", "update", predicate, None, except_cols)

    def when_matched_delete(self, predicate: str | None = None) -> Self:
        """Delete the rows of the table that match a row of the source (WHEN MATCHED THEN DELETE).

        Args:
            predicate: a further condition on both rows; None for all matched rows.

        Example::

            table.merge(rows, "s.id = t.id").when_matched_delete("s.amount = 0").execute()
        """
        return self._add("matched", "delete", predicate)

    def when_not_matched_insert(self, updates: Mapping[str, str], predicate: str | None = None) -> Self:
        """Insert a row for each row of the source that matches no row of the table (WHEN NOT MATCHED THEN INSERT).

        Args:
            updates: by column, an SQL expression over the source's row; other columns are null, or have their default.
            predicate: a further condition on the source's row; None for all of them.

        Example::

            merge = table.merge(rows, "s.id = t.id")
            merge.when_not_matched_insert({"id": "s.id", "name": "upper(s.name)"}).execute()
        """
        return self._add("not matched", "insert", predicate, updates)

    def when_not_matched_insert_all(
        self, predicate: str | None = None, except_cols: Sequence[str] | None = None
    ) -> Self:
        """Insert the rows of the source that match no row of the table, with columns of the same names (WHEN NOT
        MATCHED THEN INSERT *).

        Args:
            predicate: a further condition on the source's row; None for all of them.
            except_cols: columns that are not set.

        Example::

            table.merge(rows, "s.id = t.id").when_not_matched_insert_all("s.amount > 0").execute()
        """
        return self._add("not matched", "insert", predicate, None, except_cols)

    def when_not_matched_by_source_update(self, updates: Mapping[str, str], predicate: str | None = None) -> Self:
        """Update the rows of the table that no row of the source matches (WHEN NOT MATCHED BY SOURCE THEN UPDATE).

        Args:
            updates: by column, an SQL expression over the table's row.
            predicate: a further condition on the table's row; None for all of them.

        Example::

            merge = table.merge(rows, "s.id = t.id")
            merge.when_not_matched_by_source_update({"amount": "0"}, predicate="t.id < 3").execute()
        """
        return self._add("not matched by source", "update", predicate, updates)

    def when_not_matched_by_source_delete(self, predicate: str | None = None) -> Self:
        """Delete the rows of the table that no row of the source matches (WHEN NOT MATCHED BY SOURCE THEN DELETE).

        Args:
            predicate: a further condition on the table's row; None for all of them.

        Example::

            table.merge(rows, "s.id = t.id").when_not_matched_by_source_delete("t.amount = 0").execute()
        """
        return self._add("not matched by source", "delete", predicate)

    def execute(self) -> Result:
        """Run the MERGE.

        Returns:
            The result of the commit, for :meth:`refdelta.DeltaTable.merge`; None within a transaction, which commits
            later.

        Raises:
            InvalidArgumentError: SQL does not allow these clauses, or ``execute`` was called before.
            PredicateError: SQL cannot be parsed or bound.
            ConstraintViolationError: several rows of the source match one row of the table; the message shows its key.
            ConcurrentModificationError: another writer's commit conflicts; nothing of this one is visible.

        Example::

            result = table.merge(rows, "s.id = t.id").when_matched_update_all().execute()
            result["num_target_rows_updated"]
        """
        if self._done:
            raise InvalidArgumentError("this MERGE ran already; call merge() again to run another one")
        self._done = True
        return self._run(replace(self._request, clauses=tuple(self._clauses)))

    execute_async = awaitable(execute)

    def _add(
        self,
        when: When,
        kind: Kind,
        predicate: str | None,
        values: Mapping[str, str] | None = None,
        except_cols: Sequence[str] | None = None,
    ) -> Self:
        if isinstance(except_cols, str):
            self._done = True
            raise InvalidArgumentError(f"except_cols must be a list of column names, not the string {except_cols!r}")
        unchecked: Any = values
        if unchecked is not None and not isinstance(unchecked, Mapping):
            self._done = True
            raise InvalidArgumentError(f"updates must be a mapping of column names to SQL, not {unchecked!r}")
        given = None if unchecked is None else dict(unchecked)
        self._clauses.append(MergeClause(when, kind, predicate, given, tuple(except_cols or ())))
        return self
