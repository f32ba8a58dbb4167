"""A MERGE whose expressions are bound: what both of its passes and whoever runs them go by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from refdelta.core.table.types import StructType
    from refdelta.operations.merge.clauses import BoundClause
    from refdelta.operations.merge.join import On
    from refdelta.operations.write.row_rules import RowRules


@dataclass(frozen=True)
class MergePlan:
    """A bound MERGE.

    Attributes:
        on: its condition.
        target_alias: the table's alias.
        source_alias: the source's.
        source: the source's schema.
        clauses: in their order.
        rules: what the rows that it makes must be.
    """

    on: On
    target_alias: str
    source_alias: str
    source: StructType
    clauses: tuple[BoundClause, ...]
    rules: RowRules

    @property
    def of_pairs(self) -> list[BoundClause]:
        """The clauses for rows that match."""
        return self._of("matched")

    @property
    def of_rest(self) -> list[BoundClause]:
        """Those for rows of the table that no row of the source matches."""
        return self._of("not matched by source")

    @property
    def of_source(self) -> list[BoundClause]:
        """Those for rows of the source that match none."""
        return self._of("not matched")

    def _of(self, when: str) -> list[BoundClause]:
        return [clause for clause in self.clauses if clause.clause.when == when]

    @property
    def may_repeat(self) -> bool:
        """Whether several rows of the source may match one of the table."""
        pairs = self.of_pairs
        only = pairs[0] if len(pairs) == 1 else None
        # Deleting a row twice deletes it; anything else that two rows of the source do to it has no defined outcome.
        only_deleted = only is not None and only.clause.kind == "delete" and only.condition is None
        return only_deleted or not (pairs or self.of_rest)

    @property
    def numbered(self) -> frozenset[str]:
        """The columns that the table gives values in rows that are inserted."""
        found = (self.rules.left_out(_assigned(clause)) for clause in self.clauses if clause.clause.kind == "insert")
        return frozenset().union(*found)

    def check_given(self) -> None:
        """Raise ``ConstraintViolationError`` where clauses set identity columns that are not for them to set."""
        for clause in self.clauses:
            self.rules.check_given(_assigned(clause), update=clause.clause.kind != "insert")

    def marks(self, count: int) -> dict[str, int]:
        """The numbers that identity columns are given last where so many rows are inserted, by physical name."""
        return self.rules.marks(self.numbered, count)

    def of_task(self, number: int) -> MergePlan:
        """That of one of several tasks that insert rows apart from each other."""
        return replace(self, rules=self.rules.of_task(number))

    def columns_to_find(self, alias: str) -> set[str]:
        """The columns of a side by which rows are found in which anything changes."""
        conditions = (clause.condition_columns for clause in (*self.of_pairs, *self.of_rest))
        return {path[1] for path in self.on.columns.union(*conditions) if path[0] == alias}

    def columns_to_change(self, alias: str) -> set[str]:
        """The columns of a side by which rows of the table that change are found again, and get their new values."""
        values = (clause.value_columns for clause in (*self.of_pairs, *self.of_rest))
        return self.columns_to_find(alias) | {path[1] for path in frozenset().union(*values) if path[0] == alias}


def _assigned(clause: BoundClause) -> set[str]:
    """The columns that a clause sets, or sets fields of."""
    return {assignment.path[0] for assignment in clause.assignments}
