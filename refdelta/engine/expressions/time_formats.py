"""``date_format`` over columns: the twin of :mod:`refdelta.core.expressions.time_format`, which is the definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.core.expressions.partition_values import DAY
from refdelta.core.expressions.time_format import MONTHS, SHORT, WEEKDAYS, PatternPart, parts_of
from refdelta.engine.arrow.arrays import floor_divide, modulo
from refdelta.engine.expressions import calendars


def date_format(micros: Any, pattern: str) -> pa.Array:
    """Times, in microseconds since 1970 (UTC), as texts."""
    texts = [_part(part, micros) for part in parts_of(pattern)]
    return pc.binary_join_element_wise(*texts, "", null_handling="emit_null")


def _part(part: PatternPart, micros: Any) -> Any:
    if not part.letter:
        return pc.if_else(micros.is_valid(), part.text, pa.scalar(None, pa.string()))
    return _FIELDS[part.letter](micros, part.count)


def _padded(numbers: Any, count: int) -> Any:
    return pc.utf8_lpad(numbers.cast(pa.string()), count, "0")


def _civil(place: int) -> Callable[[Any], Any]:
    return lambda micros: calendars.civil(floor_divide(micros, DAY))[place]


def _clock(size: int, many: int) -> Callable[[Any], Any]:
    return lambda micros: modulo(floor_divide(micros, size), many)


_hour, _month = _clock(3_600_000_000, 24), _civil(1)


def _year(micros: Any, count: int) -> Any:
    year = _civil(0)(micros)
    size = pc.abs(year)
    if count == 2:
        return _padded(modulo(size, 100), 2)
    beyond = pc.and_(pc.greater_equal(year, 10**count), count > SHORT)
    sign = pc.if_else(pc.less(year, 0), "-", pc.if_else(beyond, "+", ""))
    return pc.binary_join_element_wise(sign, _padded(size, count), "")


def _named(names: tuple[str, ...], places: Any, count: int) -> Any:
    shown = [name[:SHORT] if count <= SHORT else name for name in names]
    return pa.array(shown, pa.string()).take(places)


def _quarter(micros: Any, count: int) -> Any:
    found = pc.divide(pc.add(_month(micros), 2), 3)
    return pc.binary_join_element_wise("Q", found.cast(pa.string()), "") if count == SHORT else _padded(found, count)


def _month_text(micros: Any, count: int) -> Any:
    month = _month(micros)
    return _padded(month, count) if count < SHORT else _named(MONTHS, pc.subtract(month, 1), count)


def _nonzero(numbers: Any, other: int) -> Any:
    return pc.if_else(pc.equal(numbers, 0), other, numbers)


def _of(function: Callable[[Any], Any]) -> Callable[[Any, int], Any]:
    return lambda micros, count: _padded(function(micros), count)


_FIELDS: dict[str, Callable[[Any, int], Any]] = {
    "y": _year,
    "M": _month_text,
    "L": _month_text,
    "Q": _quarter,
    "q": _quarter,
    "E": lambda micros, count: _named(WEEKDAYS, calendars.weekday(floor_divide(micros, DAY)), count),
    "d": _of(_civil(2)),
    "D": _of(lambda micros: calendars.dayofyear(floor_divide(micros, DAY))),
    "H": _of(_hour),
    "k": _of(lambda micros: _nonzero(_hour(micros), 24)),
    "K": _of(lambda micros: modulo(_hour(micros), 12)),
    "h": _of(lambda micros: _nonzero(modulo(_hour(micros), 12), 12)),
    "m": _of(_clock(60_000_000, 60)),
    "s": _of(_clock(1_000_000, 60)),
    "a": lambda micros, _: pc.if_else(pc.less(_hour(micros), 12), "AM", "PM"),
    "S": lambda micros, count: pc.utf8_slice_codeunits(
        pc.utf8_rpad(_padded(modulo(micros, 1_000_000), 6), 9, "0"), 0, count
    ),
}
