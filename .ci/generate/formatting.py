"""The format of Markdown, for pages that a generator writes: `make lint` finds nothing to change in them.

python .ci/generate/formatting.py PAGE ...      formats these files
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import mdformat

OPTIONS = tomllib.loads((Path(__file__).parents[2] / ".mdformat.toml").read_text())


def formatted(text: str) -> str:
    """A page as ``mdformat`` leaves it."""
    return mdformat.text(text, options=OPTIONS, extensions={"frontmatter", "gfm", "tables"})


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:]):
        page.write_text(formatted(page.read_text()))
