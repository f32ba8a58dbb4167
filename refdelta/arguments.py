"""Types of arguments that are one of a few words, and checks of arguments before anything is written: readers of the
log expect values of these types.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any, Literal

from refdelta.errors import InvalidArgumentError, suggestion

WriteMode = Literal["error", "append", "overwrite", "ignore"]
"""The behaviour of a write if the table exists."""

CreateMode = Literal["error", "ignore", "overwrite"]
"""The behaviour of ``DeltaTable.create`` if the table exists."""

ConvertMode = Literal["error", "ignore"]
"""The behaviour of a conversion if the table exists."""

ReplaceMode = Literal["append", "overwrite"]
"""The behaviour of a commit of prepared files."""

SchemaMode = Literal["merge", "overwrite"]
"""The way in which a write changes the schema of the table."""

PartitionOverwrite = Literal["dynamic"]
"""The choice of partitions that an overwrite replaces."""

Isolation = Literal["WriteSerializable", "Serializable"]
"""An isolation level; at run time in any case of letters."""

_LONGS = range(-(2**63), 2**63)
_MOST_SECONDS = 10**9  # 31 years; threads and calendars refuse much longer times


def text(what: str, value: Any) -> str | None:
    """A string, or None.

    Raises:
        InvalidArgumentError: the value has another type.
    """
    if value is None or isinstance(value, str):
        _check_unicode(what, value or "")
        return value
    raise InvalidArgumentError(f"{what} must be a string, not {_shown(value)}")


def whole(what: str, value: Any) -> int | None:
    """An integer of 64 bits, or None; integers of NumPy are accepted.

    Raises:
        InvalidArgumentError: the value has another type.
    """
    if value is None:
        return None
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number not in _LONGS:
        raise InvalidArgumentError(f"{what} must be an integer of 64 bits, not {_shown(value)}")
    return number


def wholes(what: str, value: Any) -> list[int] | None:
    """A list of integers of 64 bits, or None.

    Raises:
        InvalidArgumentError: the value has another type.
    """
    if value is None:
        return None
    try:
        found = [whole(what, number) for number in value]
    except (TypeError, InvalidArgumentError):
        found = [None]
    numbers = [number for number in found if number is not None]
    if len(numbers) < len(found):
        raise InvalidArgumentError(f"{what} must be a list of integers, not {_shown(value)}")
    return numbers


def seconds(what: str, value: Any) -> float | None:
    """A number of seconds that is not negative, or None; more than 31 years are taken for 31 years.

    Raises:
        InvalidArgumentError: the value has another type.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise InvalidArgumentError(f"{what} must be a number of seconds, 0 or more, not {_shown(value)}")
    return float(min(value, _MOST_SECONDS))


def timezone(what: str, value: Any) -> str | None:
    """The name of a time zone, such as ``Europe/Berlin`` or ``UTC``, or None.

    Raises:
        InvalidArgumentError: there is no such zone; a similar name is suggested.
    """
    name = text(what, value)
    if name is None or name == "UTC":
        return name
    from zoneinfo import ZoneInfo, available_timezones

    try:
        return ZoneInfo(name).key
    except (ValueError, OSError, LookupError):
        hint = suggestion(name, available_timezones())
        raise InvalidArgumentError(
            f"{what} must be the name of a time zone, such as 'Europe/Berlin' or 'UTC', not {name!r}{hint}"
        ) from None


def names(what: str, value: Any) -> list[str] | None:
    """A list of names, from one name or several, or None.

    Raises:
        InvalidArgumentError: the value has another type.
    """
    if value is None:
        return None
    try:
        found = [value] if isinstance(value, str) else list(value)
    except TypeError:
        found = [None]
    if not all(isinstance(name, str) for name in found):
        raise InvalidArgumentError(f"{what} must be a list of names, not {_shown(value)}")
    for name in found:
        _check_unicode(what, name)
    return found


def flag(what: str, value: Any) -> bool:
    """True or False; booleans of NumPy are accepted, strings are not.

    Raises:
        InvalidArgumentError: the value has another type.
    """
    if isinstance(value, bool):
        return value
    if type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    raise InvalidArgumentError(f"{what} must be True or False, not {_shown(value)}")


def mapping(what: str, value: Any) -> Mapping[str, Any] | None:
    """A mapping with string keys, or None. Errors do not show its values, which may be secrets.

    Raises:
        InvalidArgumentError: the value has another type.
    """
    if value is None or (isinstance(value, Mapping) and all(isinstance(name, str) for name in value)):
        for name, one in (value or {}).items():
            _check_unicode(what, name)
            _check_unicode(f"{what}: {name}", one if isinstance(one, str) else "")
        return value
    if isinstance(value, Mapping):
        wrong = next(name for name in value if not isinstance(name, str))
        kind = type(wrong).__name__
        raise InvalidArgumentError(f"{what} has the key {wrong!r:.80}, which must be a string, not of type {kind}")
    raise InvalidArgumentError(f"{what} must be a mapping of names to values, not of type {type(value).__name__}")


def is_unicode(text: str) -> bool:
    """Whether a string can be stored: it may have halves of surrogate pairs, from file names that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_unicode(what: str, text: str) -> None:
    if not is_unicode(text):
        raise InvalidArgumentError(
            f"{what} contains half of a surrogate pair, which is not valid Unicode: {text!r:.80}"
        )


def _shown(value: Any) -> str:
    plain = isinstance(value, (str, int, float, bytes, list, tuple, dict))
    return f"{value!r:.80}" if plain else f"a {type(value).__name__}"


def missing_package(what: str, package: str, extra: str | None = None) -> InvalidArgumentError:
    """The error for a method whose optional package, which has an extra, of its name unless said, is not installed."""
    return InvalidArgumentError(
        f"{what} needs the package {package}, which is not installed: pip install 'refdelta[{extra or package}]'"
    )
