"""The part of a page that a generator writes: between ``<!-- generated: NAME -->`` and ``<!-- end -->``."""

from __future__ import annotations

import re
from pathlib import Path

from formatting import formatted


def rewritten(page: Path, text: str, name: str, content: str) -> str:
    """The text of a page with another content of one part, formatted.

    Args:
        page: the page, for the error.
        text: its text.
        name: the name of the part, such as ``claims``.
        content: the lines of the part, each with its end.

    Raises:
        ValueError: the page does not have exactly one such part.
    """
    block = re.compile(rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    made, parts = block.subn(lambda found: found[1] + content + found[2], text)
    if parts != 1:
        raise ValueError(f"{page.name} has {parts} places for the {name}")
    return formatted(made)
