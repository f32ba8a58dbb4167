"""Numbers in sentences for people: counts with their noun, sizes, versions."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, noun: str) -> str:
    """``1 file``, ``2,000 files``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def size(count: int | None) -> str:
    """A number of bytes in powers of ten, ``8.3 MB``; nothing for None."""
    if count is None:
        return ""
    number = float(min(max(count, -(2**1000)), 2**1000))  # a log may say any number
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(number) < 1000 or unit == "TB":
            break
        number /= 1000
    return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"


def listed(versions: Sequence[int]) -> str:
    """``5, 6``, or ``5 to 12`` where there are more than three."""
    return ", ".join(map(str, versions)) if len(versions) <= 3 else f"{versions[0]} to {versions[-1]}"
