"""ALTER TABLE ADD and DROP CONSTRAINT: conditions that every row satisfies (PROTOCOL.md, "CHECK Constraints")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from refdelta import arguments
from refdelta.core.expressions.expression import Comparison, Condition, Literal, Not
from refdelta.core.table.properties import CONSTRAINT_PREFIX
from refdelta.core.table.types import BOOLEAN
from refdelta.engine.expressions.sql import parse_predicate
from refdelta.errors import ConstraintViolationError, InvalidArgumentError, unknown_name
from refdelta.operations.alter.change import change_table
from refdelta.operations.dml.rewrite import find_matches
from refdelta.operations.write.row_rules import constraints

if TYPE_CHECKING:
    from collections.abc import Mapping

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.transaction import Transaction

# What delta-spark calls its own rule for char(n) and varchar(n).
_TAKEN = "__CHAR_VARCHAR_STRING_LENGTH_CHECK__"


def add_constraint(txn: Transaction, snapshot: Snapshot, given: Mapping[str, Any]) -> None:
    """Stage a CHECK constraint, of which all rows that there are were held to satisfy it.

    The rows for which it is not true count as read: it conflicts with whoever adds such a row meanwhile.

    Args:
        txn: the transaction.
        snapshot: what it sees.
        given: its name, and the condition as SQL in Spark's dialect.

    Raises:
        InvalidArgumentError: none or several constraints, or a name that the table has already, in any case.
        PredicateError: a condition that cannot be parsed or bound.
        ConstraintViolationError: rows for which it is not true.
    """
    found = arguments.mapping("constraints", given) or {}
    if len(found) != 1:
        raise InvalidArgumentError(f"constraints holds the one constraint that is to be added, not {len(found)}")
    [one] = found.items()
    name, sql = arguments.text("the name of a constraint", one[0]), arguments.text("a constraint", one[1])
    if not name or not sql:
        raise InvalidArgumentError("a constraint has a name and a condition")
    twin = _find(snapshot, name)
    if twin is not None:
        raise InvalidArgumentError(f"the table has a constraint {twin[0]!r} already: {twin[1]}")
    if name == _TAKEN:
        raise InvalidArgumentError(f"{name!r} is not a name for a constraint of users")
    condition = parse_predicate(sql, snapshot.schema, now=txn.now)
    # Null is not true.
    broken = Not(Comparison("<=>", Condition(condition), Literal(True, BOOLEAN)))
    count = sum(match.matched for match in find_matches(txn, snapshot, broken))
    if count:
        raise ConstraintViolationError(
            f"the constraint {name!r} ({sql}) cannot be added: it does not hold for {count} rows of the table"
        )
    stored = {**(snapshot.metadata.configuration or {}), CONSTRAINT_PREFIX + name.lower(): sql}
    txn.describe("ADD CONSTRAINT", {"name": name, "expr": sql}, {})
    change_table(txn, snapshot, msgspec.structs.replace(snapshot.metadata, configuration=stored))


def drop_constraint(txn: Transaction, snapshot: Snapshot, name: str, *, raise_if_not_exists: bool) -> None:
    """Stage that a CHECK constraint goes.

    Raises:
        InvalidArgumentError: the table has none of this name, in any case, and ``raise_if_not_exists``.
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
