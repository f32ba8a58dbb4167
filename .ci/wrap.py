"""Wrap the prose of Markdown at 100 columns: ``python .ci/wrap.py docs/*.md``; ``--check`` names the files that differ.

Tables, blocks of code, headings, comments and generated blocks stay as they are.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from pathlib import Path

COLUMNS = 100
_KEPT = re.compile(r"\s*(\||#|<|>|\$|\[[^\]]+\]: )|-{3}|={3}")
_ITEM = re.compile(r"(\s*)([-*]|\d+\.) +(.*)")
_WHOLE = re.compile(r"`[^`]*`|\]\([^)]*\)")
"""Parts that are not broken: code, and the target of a link."""


def wrapped(text: str) -> str:
    """The text of a page, wrapped."""
    found: list[str] = []
    paragraph: list[str] = []
    first = rest = ""
    until = None

    def end() -> None:
        if paragraph:
            whole = _WHOLE.sub(lambda part: part[0].replace(" ", "\0"), " ".join(paragraph))
            lines = textwrap.wrap(
                whole,
                COLUMNS,
                initial_indent=first,
                subsequent_indent=rest,
                break_long_words=False,
                break_on_hyphens=False,
            )
            found.extend(line.replace("\0", " ") for line in lines)
            paragraph.clear()

    for line in text.split("\n"):
        if until is not None:
            found.append(line)
            until = None if line.strip().startswith(until) else until
            continue
        if (kind := re.match(r"\s*(```|~~~|<!-- (?:generated|wire|map|figures))", line)) is not None:
            until = kind[1] if kind[1] in ("```", "~~~") else "<!-- "
        if until is not None or not line.strip() or _KEPT.match(line) or (line.startswith("    ") and not paragraph):
            end()
            found.append(line)
        elif (item := _ITEM.match(line)) is not None:
            end()
            first, rest = f"{item[1]}{item[2]} ", " " * (len(item[1]) + len(item[2]) + 1)
            paragraph.append(item[3])
        else:
            if not paragraph:
                first = rest = line[: len(line) - len(line.lstrip())]
            paragraph.append(line.strip())
    end()
    return "\n".join(found)


def main() -> int:
    """Wrap the files of the command line."""
    parser = argparse.ArgumentParser(description="Wrap the prose of Markdown at 100 columns.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if a file differs")
    parser.add_argument("pages", nargs="+", type=Path)
    given = parser.parse_args()
    differ = [page for page in given.pages if wrapped(page.read_text()) != page.read_text()]
    for page in differ:
        print(page)
        if not given.check:
            page.write_text(wrapped(page.read_text()))
    return 1 if differ and given.check else 0


if __name__ == "__main__":
    sys.exit(main())
