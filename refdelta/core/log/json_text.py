"""JSON that stands in strings of the log: schemas, domains, invariants. A table's maker wrote it, and may mean harm."""

from __future__ import annotations

import json
from typing import Any, Final

DEEPEST: Final = 100
"""Levels of lists and objects in each other: deeper than any table, shallow enough for every stack."""

SCHEMA: Final = 400
"""The same for a whole schema, each of whose 100 levels of types is an object, a list and another object."""


def read_json(text: Any, deepest: int = DEEPEST, **options: Any) -> Any:
    """The value of a JSON string, which nests at most ``deepest`` levels deep.

    Such a value can be walked, compared, shown and written recursively.

    Args:
        text: the string, or its bytes.
        deepest: how many lists and objects may be in each other.
        options: of ``json.loads``.

    Raises:
        ValueError: it is no string, no JSON, or nests more deeply.
    """
    if not isinstance(text, str | bytes):
        raise ValueError(f"it is not a string but {type(text).__name__}")  # noqa: TRY004 - one error for bad content
    try:
        found = json.loads(text, **options)
    except RecursionError:
        raise ValueError("it nests too deeply") from None
    check_depth(found, deepest)
    return found


def check_depth(value: Any, deepest: int = DEEPEST) -> None:
    """Raise ``ValueError`` if lists and mappings nest more than ``deepest`` levels deep. Does not recurse itself."""
    level = [value] if isinstance(value, list | dict) else []
    for _ in range(deepest):
        level = [one for part in level for one in _parts(part) if isinstance(one, list | dict)]
        if not level:
            return
    raise ValueError(f"it nests more than {deepest} levels deep")


def _parts(value: list[Any] | dict[str, Any]) -> Any:
    return value.values() if isinstance(value, dict) else value
