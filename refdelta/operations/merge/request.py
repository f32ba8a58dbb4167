"""``MergeRequest``: the arguments of a MERGE."""

from __future__ import annotations

from dataclasses import dataclass

from refdelta import arguments
from refdelta.operations.merge.clauses import MergeClause


@dataclass(frozen=True)
class MergeRequest:
    """A request for MERGE; see :meth:`refdelta.DeltaTable.merge` for the attributes.

    Attributes:
        predicate: the ON condition, SQL in Spark's dialect.
        source_alias: the name of the source in all expressions.
        target_alias: the name of the table in all expressions.
        merge_schema: whether columns that only the source has are added to the table.
        timezone: the zone of the source's times without one.
        clauses: the clauses, in order.
    """

    predicate: str
    source_alias: str
    target_alias: str
    merge_schema: bool
    timezone: str | None = None
    clauses: tuple[MergeClause, ...] = ()

    @staticmethod
    def of(
        predicate: str,
        source_alias: str | None,
        target_alias: str | None,
        merge_schema: bool,
        timezone: str | None = None,
    ) -> MergeRequest:
        """The request of a call, still without clauses.

        Raises:
            InvalidArgumentError: an argument has a wrong type.
        """
        return MergeRequest(
            predicate,
            arguments.text("source_alias", source_alias) or "s",
            arguments.text("target_alias", target_alias) or "t",
            arguments.flag("merge_schema", merge_schema),
            arguments.timezone("timezone", timezone),
        )
