"""Column names of users: paths with dots, in which backticks quote a part with a dot."""

from __future__ import annotations

import re
from collections.abc import Sequence

from refdelta.errors import InvalidArgumentError
from refdelta.table.types import DataType, StructType

_PART = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`.]+?))\s*(\.|$)")
# A part that Spark writes without backticks.
_PLAIN = re.compile(r"(?!\d+$)[A-Za-z0-9_]+")


def split_path(name: str) -> tuple[str, ...]:
    """The parts of ``a.b`` or ```a.b`.c``.

    Raises:
        InvalidArgumentError: it is not a string, a part is empty, or a backtick is not closed.
    """
    parts: list[str] = []
    position = 0
    while True:
        found = _PART.match(name, position) if isinstance(name, str) else None
        if found is None:
            raise InvalidArgumentError(
                f"{name!r} is not a column name: parts are separated by dots, and backticks quote a part with a dot"
            )
        parts.append(found[2] if found[1] is None else found[1].replace("``", "`"))
        position = found.end()
        if found[3] != ".":
            return tuple(parts)


def dotted(path: Sequence[str]) -> str:
    """The name of a path, the inverse of :func:`split_path`; with backticks as Spark writes them."""
    return ".".join(part if _PLAIN.fullmatch(part) else f"`{part.replace('`', '``')}`" for part in path)


def named_path(name: str, schema: StructType) -> tuple[str, ...]:
    """The parts of a name, of which a column with dots in its name is one, if the name means nothing else.

    Args:
        name: ``a.b`` for the field b of a, or for a column of this name where there is no such field; backticks are of
            parts with a dot.
        schema: the schema in which the name is looked up. It need not have it.

    Raises:
        InvalidArgumentError: as :func:`split_path`; or the name means two columns.
    """
    if not isinstance(name, str) or name not in schema:
        return split_path(name)
    try:
        path = split_path(name)
    except InvalidArgumentError:
        return (name,)
    if len(path) > 1 and _found(schema, path) is not None:
        field = ".".join(f"`{part}`" for part in path)
        raise InvalidArgumentError(
            f"{name!r} is the name of a column and of a field: write {dotted((name,))} for the column, or {field} for "
            "the field"
        )
    return (name,)


def find_column(schema: StructType, name: str) -> tuple[tuple[str, ...], DataType] | None:
    """The path, spelled as in the schema, and the type of the column that a user names in any case; None if there is no
    such column.

    Raises:
        InvalidArgumentError: as :func:`named_path`.
    """
    return _found(schema, named_path(name, schema))


def _found(schema: StructType, names: Sequence[str]) -> tuple[tuple[str, ...], DataType] | None:
    path: list[str] = []
    here: DataType = schema
    for part in names:
        found = here.find(part) if isinstance(here, StructType) else None
        if found is None:
            return None
        path.append(found.name)
        here = found.type
    return tuple(path), here
