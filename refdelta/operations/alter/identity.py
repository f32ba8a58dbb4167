"""ALTER TABLE ALTER COLUMN SYNC IDENTITY: numbers go on behind those that writers gave themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from refdelta import arguments
from refdelta.core.table.types import parse_schema, physical_name
from refdelta.engine.scan.scan import plan_scan
from refdelta.errors import InvalidArgumentError
from refdelta.operations.alter.change import change_table, in_json
from refdelta.operations.write.identity import Numbering, with_marks

if TYPE_CHECKING:
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.transaction import Transaction


def sync_identity(txn: Transaction, snapshot: Snapshot, column: str) -> None:
    """Stage that an identity column goes on behind the furthest of the numbers that its rows have. It never goes back.

    Args:
        txn: the transaction; it reads the whole table.
        snapshot: what it sees.
        column: the column's name.

    Raises:
        ColumnNotFoundError: there is no such column.
        InvalidArgumentError: it is no identity column.
    """
    field = snapshot.schema.field(arguments.text("column", column) or "")
    numbering = Numbering.of(field)
    if numbering is None:
        raise InvalidArgumentError(f"column {field.name!r} is no identity column")
    txn.read_whole_table()
    furthest = pc.max if numbering.step > 0 else pc.min
    with plan_scan(snapshot, [field.name]).to_reader() as reader:
        found = [furthest(batch.column(0)).as_py() for batch in reader]
    given = [number for number in found if number is not None]
    if not given:
        return
    mark = numbering.at_or_behind(max(given) if numbering.step > 0 else min(given))
    metadata = with_marks(snapshot.metadata, {} if mark is None else {physical_name(field): mark})
    changed = parse_schema(metadata.schema_string).field(field.name)
    shown = {"name": field.name, "type": str(field.type), "nullable": field.nullable, "metadata": changed.metadata}
    txn.describe("CHANGE COLUMN", {"column": in_json(shown)}, {})
    change_table(txn, snapshot, metadata)
