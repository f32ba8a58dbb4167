"""The patterns of LIKE."""

from __future__ import annotations

from refdelta.errors import PredicateError


def like_tokens(pattern: str, escape: str) -> list[str]:
    """The pattern as characters, with ``%`` and ``_`` as they are where they are wild and escaped as two characters
    where not.

    Raises:
        PredicateError: the escape stands before another character, or at the end.
    """
    tokens: list[str] = []
    rest = iter(pattern)
    for char in rest:
        if char != escape:
            tokens.append(char)
            continue
        escaped = next(rest, None)
        if escaped is None or escaped not in ("%", "_", escape):
            raise PredicateError(f"LIKE {pattern!r}: {escape!r} escapes only %, _ and itself")
        tokens.append("\\" + escaped)
    return tokens


def like_regex(pattern: str, escape: str) -> str:
    """A regular expression, for Python and for RE2, that fully matches what the pattern does."""
    wild = {"%": ".*", "_": "."}
    return "(?s:" + "".join(wild.get(t) or _escaped(t[-1]) for t in like_tokens(pattern, escape)) + ")"


def _escaped(char: str) -> str:
    return f"\\x{ord(char):02x}" if char.isascii() and not char.isalnum() else char


def like_prefix(pattern: str, escape: str) -> tuple[str, bool]:
    """The characters before the first wild one, and whether none is wild."""
    prefix = ""
    for token in like_tokens(pattern, escape):
        if token in ("%", "_"):
            return prefix, False
        prefix += token[-1]
    return prefix, True
