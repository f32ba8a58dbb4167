"""ALTER TABLE ALTER COLUMN SET and DROP DEFAULT: what a column has where a writer gives no value (PROTOCOL.md, "Default
Columns"). The rows that are there stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from refdelta import arguments
from refdelta.core.pruning.generated_partitions import GENERATION
from refdelta.errors import InvalidArgumentError
from refdelta.operations.alter.change import change_schema, in_json
from refdelta.operations.write.declared import check_default, with_mark
from refdelta.operations.write.identity import START
from refdelta.operations.write.row_rules import DEFAULT

if TYPE_CHECKING:
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.transaction import Transaction


def set_default(txn: Transaction, snapshot: Snapshot, column: str, sql: str | None) -> None:
    """Stage that a column has another default, or none where ``sql`` is None.

    Raises:
        ColumnNotFoundError: there is no such column; a field of a struct is none.
        InvalidArgumentError: a constant that the column cannot hold, or a column whose values are made otherwise.
    """
    field = snapshot.schema.field(arguments.text("column", column) or "")
    if sql is None and DEFAULT not in field.metadata:
        return
    for mark, kind in ((GENERATION, "generated"), (START, "an identity column")):
        if mark in field.metadata:
            raise InvalidArgumentError(f"column {field.name!r} is {kind}, and has no default")
    schema = with_mark(snapshot.schema, field.name, DEFAULT, arguments.text("default", sql))
    changed = schema.field(field.name)
    if sql is not None:
        check_default(changed)
    shown = {"name": field.name, "type": str(field.type), "nullable": field.nullable, "metadata": changed.metadata}
    txn.describe("CHANGE COLUMN", {"column": in_json(shown)}, {})
    change_schema(txn, snapshot, schema, () if sql is None else ("allowColumnDefaults",))
