"""Types and casts of values that are text: of CSV and JSON files.

One table for both, which docs/guide/command-line.md shows: :data:`PATTERNS` says what a text is taken for where no
table says the type, and :func:`typed` casts texts to a type. Of a value in quotes of JSON, only a date or a time is
recognised.
"""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.schema import arrow_type
from refdelta.errors import ExpressionError
from refdelta.expressions.exact_cast import fitted_column, fitted_value
from refdelta.table.partition_values import parse_timestamp
from refdelta.table.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    FRACTIONAL,
    INTEGRAL,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    DataType,
    DecimalType,
)

DECIDING = 10_000
"""The number of values of a column, in the order of the files, that decide whether it is a string."""

WIDE = DecimalType(38, 0)
"""The type of whole numbers beyond 64 bits."""

_NUMBER = r"-?((0|[1-9]\d*)(\.\d*)?|\.\d+)([eE][+-]?\d+)?"
_CLOCK = r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?"
_ZONE = r" ?(Z|[+-]\d{1,2}(:?\d{2}){0,2}|[A-Za-z][A-Za-z0-9/_+:-]+)"

PATTERNS: dict[DataType, str] = {
    LONG: r"^(0|-?[1-9]\d{0,17})$",
    DOUBLE: rf"^({_NUMBER}|NaN|nan|[+-]?(inf|Infinity))$",
    BOOLEAN: r"^(?i:true|false)$",
    DATE: r"^\d{4}-\d{2}-\d{2}$",
    TIMESTAMP_NTZ: rf"^{_CLOCK}$",
    TIMESTAMP: rf"^{_CLOCK}{_ZONE}$",
}
"""The types that are recognised, with the texts that have them (RE2). All other text is a string; so are numbers with
zeros before them, which an integer would lose.
"""

_TIMES: tuple[DataType, ...] = (DATE, TIMESTAMP_NTZ, TIMESTAMP)
_FAMILIES: tuple[frozenset[DataType], ...] = (
    frozenset({LONG, WIDE, DOUBLE}),
    frozenset({BOOLEAN}),
    frozenset(_TIMES),
    frozenset({STRING}),
)
_WHOLE = r"^-?\d+$"
_ZONED = r"^\s*[+-]?\d{4,6}-\d{1,2}-\d{1,2}[ T]+[\d:.]+\s*[^\d:. ]"


class Guess(msgspec.Struct):
    """The type of a column, of which no table says it, by all its values.

    Attributes:
        early: the types of the first :data:`DECIDING` values: if these have no type in common, it is a string.
        all: the types of all values. A type widens: to decimals, to doubles, to times. Values that do not fit then are
            refused by :func:`typed`.
        seen: the number of values that were seen, up to :data:`DECIDING`.
    """

    early: set[DataType] = msgspec.field(default_factory=set)
    all: set[DataType] = msgspec.field(default_factory=set)
    seen: int = 0

    def add(self, texts: pa.Array, *, quoted: bool = False) -> None:
        """Take more values into account.

        Args:
            texts: the values as strings.
            quoted: whether they are strings of JSON.
        """
        if STRING in self.early:
            return
        texts = texts.drop_null()
        if self.seen < DECIDING:
            head = texts.slice(0, DECIDING - self.seen)
            self.early |= _types(head, quoted=quoted)
            self.seen += len(head)
            texts = texts.slice(len(head))
        self.all |= self.early | (_types(texts, quoted=quoted) if len(texts) else set())

    def type(self, zone: str | None) -> DataType:
        """The type; void if all values are null.

        Args:
            zone: the zone of times without one; None if there is none.
        """
        families = [family for family in _FAMILIES if self.early & family]
        if not families:
            return VOID
        if len(families) > 1 or STRING in self.early:
            return STRING
        found = self.all & families[0]
        if TIMESTAMP in found or (TIMESTAMP_NTZ in found and zone is not None):
            return TIMESTAMP
        for kind in (TIMESTAMP_NTZ, DATE, DOUBLE, WIDE, LONG):
            if kind in found:
                return kind
        return BOOLEAN


def _types(texts: pa.Array, *, quoted: bool) -> set[DataType]:
    found: set[DataType] = set()
    left = pc.utf8_trim_whitespace(texts)
    for kind, pattern in PATTERNS.items():
        if quoted and kind not in _TIMES:
            continue
        mask = pc.match_substring_regex(left, pattern)
        if not pc.any(mask, min_count=0).as_py():
            continue
        matched, left = left.filter(mask), left.filter(pc.invert(mask))
        if kind == DOUBLE:
            whole = pc.match_substring_regex(matched, _WHOLE)
            if pc.any(whole).as_py():  # of 19 digits or more
                found |= {LONG if -(2**63) <= int(one) < 2**63 else WIDE for one in matched.filter(whole).to_pylist()}
            if pc.all(whole).as_py():
                continue
        if kind == TIMESTAMP and not all(map(_is_instant, _zones(matched))):
            found.add(STRING)
        found.add(kind)
        if not len(left):
            return found
    return found | {STRING} if len(left) else found


def _zones(texts: pa.Array) -> list[str]:
    """A time of each zone that some times name."""
    zones = pc.unique(pc.replace_substring_regex(texts, rf"^{_CLOCK}", ""))
    return [f"2000-01-01 00:00:00{zone}" for zone in zones.to_pylist()]


def _is_instant(text: str) -> bool:
    try:
        parse_timestamp(text)
    except ValueError:
        return False
    return True


class Typed(NamedTuple):
    """Values after a cast.

    Attributes:
        column: the values; any value where one does not fit.
        misfits: for each value whether it does not fit; None if all do.
    """

    column: pa.Array
    misfits: np.ndarray[tuple[int], np.dtype[np.bool_]] | None = None


def typed(texts: pa.Array, target: DataType, zone: str | None) -> Typed:
    """Texts as values of a type, exactly: of an integer, a decimal or a time no digit is lost. A number with a fraction
    or an exponent becomes the nearest float or double, as in other readers; a whole number must be one.

    Args:
        texts: strings.
        target: a type that is not nested.
        zone: the zone of times without one; None refuses them where the type is a timestamp.
    """
    if target == STRING:
        return Typed(texts)
    if target == BINARY:
        return Typed(texts.cast(pa.binary()))
    if target == VOID:
        return Typed(pa.nulls(len(texts)), _flags(texts.is_valid()))
    if target in FRACTIONAL:
        return _floats(texts, target)
    bare = None
    if target == TIMESTAMP and zone is None:
        bare = pc.invert(pc.match_substring_regex(texts, _ZONED))
    found = fitted_column(texts, target, zone=zone)
    misfits = found.misfits
    if misfits is not None and target in INTEGRAL:
        return _whole(texts, found.column, misfits, target)
    if bare is not None and pc.any(bare, min_count=0).as_py():
        misfits = bare if misfits is None else pc.or_(misfits, pc.fill_null(bare, False))
    return Typed(found.column, None if misfits is None else _flags(misfits))


def _flags(mask: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]] | None:
    flags = np.asarray(pc.fill_null(mask, False).to_numpy(zero_copy_only=False), np.bool_)
    return flags if flags.any() else None


def _whole(texts: pa.Array, column: pa.Array, misfits: pa.Array, target: DataType) -> Typed:
    """Integers that are written as ``5.0`` or ``5e3``."""
    rest = pc.if_else(misfits, texts, pa.scalar(None, texts.type)).dictionary_encode()
    values = [_integer(text, target) for text in rest.dictionary.to_pylist()]
    whole = pa.array(values, arrow_type(target)).take(rest.indices)
    return Typed(pc.coalesce(whole, column), _flags(pc.and_(misfits, whole.is_null())))


def _integer(text: str, target: DataType) -> int | None:
    try:
        number = fitted_value(text, STRING, WIDE)
        found: int = fitted_value(number, WIDE, target)
    except ExpressionError:
        return None
    return found


def _floats(texts: pa.Array, target: DataType) -> Typed:
    kind = arrow_type(target)
    texts = pc.utf8_trim_whitespace(texts)
    number = pc.match_substring_regex(texts, rf"^{_NUMBER}$")
    none = pa.scalar(None, texts.type)
    found = pc.if_else(number, texts, none).cast(kind)
    bad = pc.and_(number, pc.is_inf(found))
    most = 7 if target == FLOAT else 15
    long = pc.match_substring_regex(texts, rf"^-?\d{{{most + 1},}}$")
    if pc.any(long, min_count=0).as_py() or not pc.all(number, min_count=0).as_py():
        # Few values: long whole numbers, NaN, and what is no number.
        rest = pc.if_else(pc.or_(long, pc.invert(number)), texts, none)
        exact = fitted_column(rest, target)
        found = pc.if_else(rest.is_valid(), exact.column, found)
        if exact.misfits is not None:
            bad = pc.or_(bad, exact.misfits)
    return Typed(found, _flags(bad))


def reason(text: str, target: DataType, zone: str | None) -> str:
    """The reason why a text is no value of a type."""
    shown = repr(text if len(text) <= 60 else text[:60] + "...")
    if target == TIMESTAMP and zone is None and _is_instant(text):
        return f"{shown} has no time zone, and the column is a timestamp; --timezone says the zone of such times"
    if target == TIMESTAMP_NTZ and _is_instant(text):
        return f"{shown} does not fit into timestamp_ntz without loss: of its zone, or of digits of a second"
    if target == VOID:
        return f"{shown} is a value in a column of nulls"
    if target in FRACTIONAL or target in INTEGRAL or isinstance(target, DecimalType):
        try:
            Decimal(text.strip())
        except ArithmeticError:
            return f"{shown} is no {target}"
        return f"{shown} does not fit into {target} without loss"
    return f"{shown} is no {target}"
