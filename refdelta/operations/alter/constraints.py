"""ALTER TABLE ADD and DROP CONSTRAINT (PROTOCOL.md, "CHECK Constraints")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from refdelta import arguments
from refdelta.errors import ConstraintViolationError, InvalidArgumentError, unknown_name
from refdelta.expressions.expression import Comparison, Condition, Literal, Not
from refdelta.expressions.sql import parse_predicate
from refdelta.operations.shared.change import change_table
from refdelta.operations.shared.rewrite import find_matches
from refdelta.operations.shared.row_rules import constraints
from refdelta.table.properties import CONSTRAINT_PREFIX
from refdelta.table.types import BOOLEAN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.transaction import Transaction

# delta-spark's name of its own constraint for char(n) and varchar(n).
_TAKEN = "__CHAR_VARCHAR_STRING_LENGTH_CHECK__"


def add_constraint(txn: Transaction, snapshot: Snapshot, given: Mapping[str, Any]) -> None:
    """Stage CHECK constraints, after a check of the existing rows.

    The rows for which one is not true count as read: the commit conflicts with writers that add such a row meanwhile.

    Args:
        txn: the transaction.
        snapshot: the snapshot that it reads.
        given: by name, the condition as SQL in Spark's dialect.

    Raises:
        InvalidArgumentError: there is no constraint, or the table or ``given`` has another one of the name, in any
            case.
        PredicateError: a condition cannot be parsed or bound.
        ConstraintViolationError: a condition is not true for rows of the table.
    """
    found = arguments.mapping("constraints", given) or {}
    if not found:
        raise InvalidArgumentError("constraints must have an entry for each constraint, its name and condition")
    added: dict[str, str] = {}
    conditions = []
    for key, value in found.items():
        name, sql = arguments.text("the name of a constraint", key), arguments.text("a constraint", value)
        if not name or not sql:
            raise InvalidArgumentError("a constraint needs a name and a condition; one of them is empty")
        twin = _find(snapshot, name)
        if twin is not None:
            raise InvalidArgumentError(f"the table has a constraint {twin[0]!r} already: {twin[1]}")
        if name.lower() in added:
            raise InvalidArgumentError(f"constraints has {name!r} twice, in another case")
        if name == _TAKEN:
            raise InvalidArgumentError(f"{name!r} is reserved by delta-spark; give the constraint another name")
        added[name.lower()] = sql
        conditions.append((name, sql, parse_predicate(sql, snapshot.schema, now=txn.now)))
    for name, sql, condition in conditions:
        # Null is not true.
        broken = Not(Comparison("<=>", Condition(condition), Literal(True, BOOLEAN)))
        count = sum(match.matched for match in find_matches(txn, snapshot, broken))
        if count:
            raise ConstraintViolationError(
                f"the constraint {name!r} ({sql}) cannot be added: it is false or null for {count} rows of the table"
            )
    listed = [{"name": name, "expr": sql} for name, sql in found.items()]
    # Spark adds one at a time, and deltalake lists several.
    parameters = listed[0] if len(listed) == 1 else {"constraints": msgspec.json.encode(listed).decode()}
    txn.describe("ADD CONSTRAINT", parameters, {})
    configuration = snapshot.metadata.configuration or {}
    stored = {**configuration, **{CONSTRAINT_PREFIX + name: sql for name, sql in added.items()}}
    change_table(txn, snapshot, msgspec.structs.replace(snapshot.metadata, configuration=stored))


def drop_constraint(txn: Transaction, snapshot: Snapshot, name: str, *, raise_if_not_exists: bool) -> None:
    """Stage the removal of a CHECK constraint.

    Args:
        txn: the transaction.
        snapshot: the snapshot that it reads.
        name: its name, in any case.
        raise_if_not_exists: whether a missing constraint is an error.

    Raises:
        InvalidArgumentError: the table has no such constraint.
    """
    wanted = arguments.text("name", name) or ""
    known = _find(snapshot, wanted)
    if known is None:
        if raise_if_not_exists:
            names = constraints(snapshot.metadata.configuration)
            raise InvalidArgumentError(unknown_name("constraint", wanted, names, where="the table"))
        return
    configuration = snapshot.metadata.configuration or {}
    key = CONSTRAINT_PREFIX + known[0]
    stored = {name: value for name, value in configuration.items() if name.lower() != key.lower()}
    txn.describe("DROP CONSTRAINT", {"name": wanted, "expr": known[1], "existed": "true"}, {})
    change_table(txn, snapshot, msgspec.structs.replace(snapshot.metadata, configuration=stored))


def _find(snapshot: Snapshot, name: str) -> tuple[str, str] | None:
    """The constraint of this name in any case: its name and its condition."""
    found = constraints(snapshot.metadata.configuration).items()
    return next(((key, sql) for key, sql in found if key.lower() == name.lower()), None)
