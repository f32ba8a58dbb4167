"""The place of a column's statistics in those of a file, and their use (PROTOCOL.md, "Per-file Statistics")."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

import msgspec

from refdelta.core.log.claims import (
    DOUBLE_DIGITS,
    decimal_high,
    decimal_low,
    text_high,
    time_high,
    time_low,
)
from refdelta.table.char_varchar import char_length, padded_upper
from refdelta.table.evolution import TYPE_CHANGES
from refdelta.table.types import (
    BINARY,
    DOUBLE,
    FRACTIONAL,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    VOID,
    DataType,
    DecimalType,
    StructField,
    StructType,
    is_nested,
    is_written,
    physical_name,
)


class StatsSource(msgspec.Struct, frozen=True):
    """The statistics of one column.

    Attributes:
        physical: the path under which they stand.
        type: the column's.
        bounded: whether its minimum and maximum bound its values.
        nested: whether a parent of the column may be null: not every writer counts a field's nulls there.
        char: the length of a ``char(n)`` column, whose values are compared as if they were padded; else None.
    """

    physical: tuple[str, ...]
    type: DataType
    bounded: bool
    nested: bool
    char: int | None

    @property
    def claimed(self) -> bool:
        """Whether a bound of another writer has a margin: see :mod:`refdelta.core.log.claims`."""
        wide = isinstance(self.type, DecimalType) and self.type.precision > DOUBLE_DIGITS
        return self.bounded and (wide or self.type in FRACTIONAL or self.type in (STRING, TIMESTAMP, TIMESTAMP_NTZ))

    def upper(self, high: Any, *, exact: bool) -> Any:
        """The upper bound that follows from a maximum; ``exact`` as in :func:`lower`."""
        if high is None:
            return None
        if isinstance(self.type, DecimalType) and not exact:
            return _moved(decimal_high, high, self.type)
        if self.type in (TIMESTAMP, TIMESTAMP_NTZ):
            return time_high(high, exact=exact)
        if self.type != STRING:
            return high
        text = text_high(high, exact=exact)
        return text if self.char is None or text is None else padded_upper(text, self.char)

    def lower(self, low: Any, *, exact: bool) -> Any:
        """The lower bound that follows from a minimum.

        Args:
            low: an internal value, or None.
            exact: whether the statistics have the mark :data:`~refdelta.core.log.claims.EXACT_BOUNDS`.
        """
        if low is None or exact:
            return low
        if isinstance(self.type, DecimalType):
            return _moved(decimal_low, low, self.type)
        if self.type in (TIMESTAMP, TIMESTAMP_NTZ):
            return time_low(low, exact=False)
        return None if low != low else low  # noqa: PLR0124 - NaN

    @classmethod
    def of(cls, schema: StructType, path: tuple[str, ...]) -> StatsSource:
        """That of a column, by its logical path as the schema spells it."""
        fields: list[StructField] = []
        here: DataType = schema
        for name in path:
            item = here.field(name) if isinstance(here, StructType) else None
            if item is None:
                break
            fields.append(item)
            here = item.type
        # A float's shortest text is not that of the double that equals it, so old bounds of a widened column are off.
        changed = here == DOUBLE and fields[-1].metadata.get(TYPE_CHANGES)
        bounded = is_written(str(here)) and not (is_nested(here) or here in (BINARY, VARIANT, VOID) or changed)
        nested = any(field.nullable for field in fields[:-1])
        return cls(tuple(map(physical_name, fields)), here, bounded, nested, char_length(schema, path))


_EXACT = Context(prec=80)


def _moved(function: Callable[[int, int, int], int | None], bound: Decimal, kind: DecimalType) -> Decimal | None:
    found = function(int(bound.scaleb(kind.scale, _EXACT)), kind.precision, kind.scale)
    return None if found is None else Decimal(found).scaleb(-kind.scale, _EXACT)
