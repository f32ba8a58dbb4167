"""Text from tables, made safe for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with escapes for control characters, which a hostile table may contain; line breaks and tabs stay."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    return character if character.isprintable() or character in "\n\t" else ascii(character)[1:-1]
