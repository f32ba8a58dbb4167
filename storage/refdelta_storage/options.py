"""Storage options: the names that a store knows, and the values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from refdelta_storage.errors import InvalidOptionError


def checked(options: dict[str, Any], where: str, known: Mapping[str, Callable[[str, Any], Any]]) -> dict[str, Any]:
    """The options, checked and converted by the functions in ``known``. Raises ``InvalidOptionError``."""
    for name in options:
        if name not in known:
            raise unknown_option(name, known, where)
    return {name: known[name](name, value) for name, value in options.items()}


def truth(name: str, value: Any) -> bool:
    """An option that is true or false, however it is written."""
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("true", "1", "yes", "on"):
        return True
    if text in ("false", "0", "no", "off"):
        return False
    raise InvalidOptionError(f"option {name!r} is true or false, not {value!r}")


def unknown_option(name: str, known: Iterable[str], where: str) -> InvalidOptionError:
    """The error for an option that a store does not know, with the most similar name, if one is, and all known ones."""
    from difflib import get_close_matches  # its import costs more than most messages need

    names = list(known)
    near = get_close_matches(name.lower(), names, 1, 0.7) if len(name) <= 64 else []
    meant = f"did you mean {near[0]!r}? " if near else ""
    return InvalidOptionError(f"unknown option {name!r} for {where}; {meant}options: {', '.join(names) or '(none)'}")
