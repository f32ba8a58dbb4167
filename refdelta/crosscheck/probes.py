"""Filters that a table's own statistics and partition values suggest: such as let an engine skip files."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from refdelta.api.table import DeltaTable

_AT_MOST: Final = 4


def probes(table: DeltaTable) -> list[str]:
    """A few filters, each on one column, in SQL.

    Args:
        table: the table.

    Returns:
        For up to four columns, those first by which the table is partitioned, ``column = value`` with a value that one
        of the files has; and ``column IS NULL`` for the first.
    """
    adds = table.get_add_actions(flatten=True)
    partitioned = list(table.metadata().partition_columns)
    names = [*partitioned, *(name for name in table.schema().names if name not in partitioned)]
    found = []
    for name in names:
        known = f"partition.{name}" if name in partitioned else f"min.{name}"
        if known not in adds.column_names:
            continue
        values = adds.column(known).drop_null()
        text = _literal(values[len(values) // 2].as_py()) if len(values) else None
        if text is not None:
            quoted = "`" + name.replace("`", "``") + "`"
            found.append(f"{quoted} = {text}")
            if len(found) == 1:
                found.append(f"{quoted} IS NULL")
        if len(found) > _AT_MOST:
            break
    return found


def _literal(value: Any) -> str | None:
    """A value as SQL, or None where text cannot say it plainly."""
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case decimal.Decimal():
            return f"{value:f}BD"
        case str() if value.isprintable():
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case dt.date() if not isinstance(value, dt.datetime):
            return f"DATE'{value.isoformat()}'"
        case _:
            return None
