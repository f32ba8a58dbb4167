"""Positional arguments that deltalake deprecates, and the text of partition values."""

from __future__ import annotations

import warnings
from datetime import date, datetime
from typing import Any

from refdelta.errors import InvalidArgumentError

__all__ = ["deprecate_positional_commit_args", "encode_partition_value", "legacy_argument"]


def encode_partition_value(val: Any) -> str:
    """A value as PROTOCOL.md, "Partition Value Serialization", writes it. Raises ``ValueError`` for other types."""
    if isinstance(val, bool):
        return str(val).lower()
    if isinstance(val, (str, int, float)):
        return str(val)
    if isinstance(val, datetime):
        return val.isoformat(sep=" ")
    if isinstance(val, date):
        return val.isoformat()
    if isinstance(val, bytes):
        return val.decode("unicode_escape", "backslashreplace")
    raise InvalidArgumentError(f"Could not encode partition value for type: {val}")


def deprecate_positional_commit_args(
    method_name: str,
    args: tuple[Any, ...],
    commit_properties: Any = None,
    post_commithook_properties: Any = None,
    legacy_order: tuple[str, ...] = ("commit_properties", "post_commithook_properties"),
) -> tuple[Any, Any]:
    """The commit arguments of a statement, of which positional ones warn.

    Args:
        method_name: the statement, for messages.
        args: its positional arguments beyond the other ones.
        commit_properties: the argument that was given by name.
        post_commithook_properties: likewise.
        legacy_order: the names of ``args``.

    Raises:
        TypeError: too many positional arguments, or one that is given by name, too.
    """
    named = {"commit_properties": commit_properties, "post_commithook_properties": post_commithook_properties}
    if args:
        if len(args) > len(legacy_order):
            raise TypeError(
                f"{method_name}() takes at most {len(legacy_order)} positional commit argument(s), got {len(args)}"
            )
        message = (
            f"Passing commit arguments positionally to {method_name}() is deprecated; use keyword arguments instead."
        )
        warnings.warn(message, DeprecationWarning, stacklevel=3)
        for name, value in zip(legacy_order, args, strict=False):
            named[name] = legacy_argument(method_name, name, value, named[name], None)
    return named["commit_properties"], named["post_commithook_properties"]


def legacy_argument(method_name: str, name: str, positional: Any, named: Any, default: Any) -> Any:
    """An argument that was given by position. Raises ``TypeError`` if it was given by name, too."""
    if named != default:
        raise TypeError(f"{method_name}() got multiple values for {name!r}")
    return positional
