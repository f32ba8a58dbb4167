"""The plan of a MERGE: its condition and clauses, bound to the schemas of both sides."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from refdelta.core.table.types import StructType
    from refdelta.operations.merge.clauses import BoundClause
    from refdelta.operations.merge.join import JoinCondition
    from refdelta.operations.write.row_rules import RowRules


@dataclass(frozen=True)
class MergePlan:
    """A bound MERGE.

    Attributes:
        on: its condition.
        target_alias: the alias of the table.
        source_alias: the alias of the source.
        source: the schema of the source.
        clauses: the clauses, in order.
        rules: the rules of the table's rows.
    """

    on: JoinCondition
    target_alias: str
    source_alias: str
    source: StructType
    clauses: tuple[BoundClause, ...]
    rules: RowRules

    @property
    def of_pairs(self) -> list[BoundClause]:
        """The WHEN MATCHED clauses."""
        return self._of("matched")

    @property
    def of_rest(self) -> list[BoundClause]:
        """The WHEN NOT MATCHED BY SOURCE clauses."""
        return self._of("not matched by source")

    @property
    def of_source(self) -> list[BoundClause]:
        """The WHEN NOT MATCHED clauses."""
        return self._of("not matched")

    def _of(self, when: str) -> list[BoundClause]:
        return [clause for clause in self.clauses if clause.clause.when == when]

    @property
    def may_repeat(self) -> bool:
        """True if several rows of the source may match one row of the table."""
        pairs = self.of_pairs
        only = pairs[0] if len(pairs) == 1 else None
        # To delete a row twice is to delete it. Any other action by two rows of the source has no defined result.
        only_deleted = only is not None and only.clause.kind == "delete" and only.condition is None
        return only_deleted or not (pairs or self.of_rest)

    @property
    def numbered(self) -> frozenset[str]:
        """The columns to which the table gives values in inserted rows."""
        found = (self.rules.left_out(_assigned(clause)) for clause in self.clauses if clause.clause.kind == "insert")
        return frozenset().union(*found)

    def check_given(self) -> None:
        """Raise ``ConstraintViolationError`` if a clause sets an identity column that it must not set."""
        for clause in self.clauses:
            self.rules.check_given(_assigned(clause), update=clause.clause.kind != "insert")

    def marks(self, count: int) -> dict[str, int]:
        """The last numbers of the identity columns after ``count`` inserted rows, by physical name."""
        return self.rules.marks(self.numbered, count)

    def of_task(self, number: int) -> MergePlan:
        """The plan for one of several tasks, which insert rows independently of each other."""
        return replace(self, rules=self.rules.of_task(number))

    def columns_to_find(self, alias: str) -> set[str]:
        """The columns of a side that the first pass needs to find the rows that change."""
        conditions = (clause.condition_columns for clause in (*self.of_pairs, *self.of_rest))
        return {path[1] for path in self.on.columns.union(*conditions) if path[0] == alias}

    def columns_to_change(self, alias: str) -> set[str]:
        """The columns of a side that the second pass needs to find the rows that change, and their new values."""
        values = (clause.value_columns for clause in (*self.of_pairs, *self.of_rest))
        return self.columns_to_find(alias) | {path[1] for path in frozenset().union(*values) if path[0] == alias}


def _assigned(clause: BoundClause) -> set[str]:
    """The columns that a clause sets, as a whole or in part."""
    return {assignment.path[0] for assignment in clause.assignments}
