"""``make generate NAME=claims``: the table in ``spec_notes/other_writers.md``, from :mod:`refdelta.core.log.claims`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from marked_block import rewritten

from refdelta.core.log.claims import TABLE, Claim

DOCUMENT = Path(__file__).parents[2] / "spec_notes" / "other_writers.md"


def document(text: str, rows: Sequence[Claim] = TABLE) -> str:
    """The document with the table as the code has it."""
    return rewritten(DOCUMENT, text, "claims", table(rows))


def table(rows: Sequence[Claim]) -> str:
    """The rows in Markdown."""
    head = "| field | writer | conclusion | measured |\n|---|---|---|---|\n"
    cells = ([row.field, row.writer, row.concluded, row.measured] for row in rows)
    return head + "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n" for row in cells)


def main() -> int:
    """Write the table."""
    DOCUMENT.write_text(document(DOCUMENT.read_text()))
    print(f"{DOCUMENT.name}: {len(TABLE)} claims")
    return 0


if __name__ == "__main__":
    sys.exit(main())
