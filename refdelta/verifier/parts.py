"""Checkpoints in several parts: which file stands in which (PROTOCOL.md, "Multi-part checkpoint").

Spark spreads rows by a hash, Murmur3 of 32 bits, over as many parts as there are to be. The specification asks for that
hash of the path, or of path and deletion vector; all files with the same remainder of it stand in one part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from refdelta.core.log.actions import Add, Remove

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from refdelta.core.log.actions import AnyAction

SEED = 42  # Spark's; also the hash of null
_MASK = 0xFFFFFFFF


def spark_hash(text: str | None, seed: int = SEED) -> int:
    """Spark's ``hash`` of a text, as a signed number of 32 bits. What is left of four bytes goes in byte by byte."""
    if text is None:
        return _signed(seed & _MASK)
    data, found = text.encode(), seed & _MASK
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        found = _step(found, int.from_bytes(data[at : at + 4], "little"))
    for byte in data[whole:]:
        found = _step(found, (byte if byte < 128 else byte - 256) & _MASK)
    found ^= len(data)
    found = (found ^ (found >> 16)) * 0x85EBCA6B & _MASK
    found = (found ^ (found >> 13)) * 0xC2B2AE35 & _MASK
    return _signed(found ^ (found >> 16))


def _step(found: int, word: int) -> int:
    word = _turned(word * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    return (_turned(found ^ word, 13) * 5 + 0xE6546B64) & _MASK


def _turned(value: int, by: int) -> int:
    return (value << by | value >> (32 - by)) & _MASK


def _signed(value: int) -> int:
    return value - 2**32 if value >= 2**31 else value


def scattered(parts: Sequence[Iterable[AnyAction]]) -> str | None:
    """A file that stands in another part than those with which it belongs; None where there is none.

    Args:
        parts: the actions of each part.
    """
    if len(parts) == 1:
        return None
    by_path: dict[int, int] = {}
    by_both: dict[int, int] = {}
    strays: list[str | None] = [None, None]
    for number, actions in enumerate(parts):
        for action in actions:
            if not isinstance(action, (Add, Remove)):
                continue
            path = spark_hash(action.path)
            vector = action.deletion_vector.unique_id if action.deletion_vector is not None else None
            both = spark_hash(vector, path) if vector is not None else path
            for way, (seen, found) in enumerate(((by_path, path), (by_both, both))):
                if seen.setdefault(found % len(parts), number) != number:
                    strays[way] = strays[way] or action.path
        if all(strays):
            return strays[0]
    return None
