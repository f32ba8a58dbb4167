"""The patterns of LIKE."""

from __future__ import annotations

import functools
import re

from refdelta.errors import PredicateError


def like_tokens(pattern: str, escape: str) -> list[str]:
    """The pattern as characters. ``%`` and ``_`` are wildcards; as literals they are two characters, with a backslash.

    Raises:
        PredicateError: the escape is followed by another character, or ends the pattern.
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
    """A regular expression for RE2 that fully matches the same strings as the pattern."""
    return _regex(like_tokens(pattern, escape))


def like_matches(text: str, pattern: str, escape: str) -> bool:
    """Whether a string matches the pattern, in time at most proportional to the product of their lengths.

    Only the pieces between wildcards are regular expressions of Python, so that nothing backtracks.
    """
    first, *more = _pieces(pattern, escape)
    found = first[1].match(text)
    if found is None or not more:
        return found is not None and found.end() == len(text)
    place = found.end()
    # The first match of a piece between two wildcards leaves most to the following pieces.
    for _, piece in more[:-1]:
        found = piece.search(text, place)
        if found is None:
            return False
        place = found.end()
    length, last = more[-1]
    return len(text) - length >= place and last.match(text, len(text) - length) is not None


@functools.lru_cache(maxsize=64)
def _pieces(pattern: str, escape: str) -> list[tuple[int, re.Pattern[str]]]:
    """The pieces between the ``%`` of a pattern: the number of characters that each matches, and its expression."""
    pieces: list[list[str]] = [[]]
    for token in like_tokens(pattern, escape):
        if token == "%":  # noqa: S105 - no password
            pieces.append([])
        else:
            pieces[-1].append(token)
    return [(len(piece), re.compile(_regex(piece))) for piece in pieces]


def _regex(tokens: list[str]) -> str:
    wild = {"%": ".*", "_": "."}
    return "(?s:" + "".join(wild.get(token) or _escaped(token[-1]) for token in tokens) + ")"


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
