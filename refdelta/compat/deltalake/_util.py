"""Arguments of statements that older programs pass by position, and partition values as text."""

from __future__ import annotations

import warnings
from datetime import date, datetime
from functools import partial
from inspect import currentframe
from typing import TYPE_CHECKING, Any

from refdelta.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["by_position", "deprecate_positional_commit_args", "encode_partition_value", "warn_of_positions"]

_PACKAGE = __name__.rpartition(".")[0]


def by_position(statement: str, passed: Sequence[Any], /, **named: tuple[Any, Any]) -> list[Any]:
    """The values of arguments that are passed by name or, in the order of ``named``, by position.

    Args:
        statement: the name of the statement, for messages.
        passed: the values that were passed by position.
        named: by argument, the value that was passed by name, and the default.

    Returns:
        The value of each argument, in the order of ``named``.

    Raises:
        TypeError: more values than arguments, or an argument that was passed by name and by position.
    """
    if len(passed) > len(named):
        raise TypeError(
            f"{statement}() takes at most {len(named)} of these arguments by position ({', '.join(named)}), "
            f"and {len(passed)} were passed"
        )
    by_name = [value for value, _ in named.values()]
    for name, (value, default) in list(named.items())[: len(passed)]:
        if value is not default:
            raise TypeError(f"{statement}() got multiple values for {name!r}: one by position and one by name")
    return [*passed, *by_name[len(passed) :]]


def warn_of_positions(statement: str) -> None:
    """Warn, at the line that called the compat module, that a statement's arguments should be passed by name."""
    frame, level = currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    text = f"{statement}(): commit arguments by position are deprecated, pass them by name"
    warnings.warn(text, DeprecationWarning, stacklevel=level)


def deprecate_positional_commit_args(
    statement: str,
    passed: tuple[Any, ...],
    commit_properties: Any = None,
    post_commithook_properties: Any = None,
    legacy_order: tuple[str, ...] = ("commit_properties", "post_commithook_properties"),
) -> tuple[Any, Any]:
    """The properties of a commit and of the steps after it, for statements that take both.

    Args:
        statement: the name of the statement, for messages.
        passed: the values that were passed by position; if there are any, this warns.
        commit_properties: the value that was passed by name.
        post_commithook_properties: likewise.
        legacy_order: the names of the arguments in the order of their positions.

    Raises:
        TypeError: as :func:`by_position`.
    """
    if passed:
        warn_of_positions(statement)
    by_name = {"commit_properties": commit_properties, "post_commithook_properties": post_commithook_properties}
    values = by_position(statement, passed, **{name: (by_name[name], None) for name in legacy_order})
    found = by_name | dict(zip(legacy_order, values, strict=True))
    return found["commit_properties"], found["post_commithook_properties"]


def encode_partition_value(value: Any) -> str:
    """A value as PROTOCOL.md, "Partition Value Serialization", writes it. Raises ``ValueError`` for other types."""
    for kind in type(value).__mro__:
        if kind in _TEXT_OF:
            return _TEXT_OF[kind](value)
    raise InvalidArgumentError(f"a {type(value).__name__} cannot be written as a partition value: {value!r}")


_TEXT_OF: dict[type, Callable[[Any], str]] = {
    str: str.__str__,
    bool: lambda flag: "true" if flag else "false",
    int: str,
    float: str,
    date: date.isoformat,
    datetime: partial(datetime.isoformat, sep=" "),
    bytes: partial(bytes.decode, encoding="unicode_escape", errors="backslashreplace"),
}
"""By type, the text of a value. A value of a subclass has the text of the nearest class in the table."""
