"""``make generate NAME=corpus``: the right outcomes of each case of the corpus, by the judge, and one layout of its
files.

``smallest.json`` is written whole, by :mod:`smallest_cases`; ``docs/conformance.md`` gets the numbers of cases.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import smallest_cases
from marked_block import rewritten

from refdelta.conformance.cases import CORPUS, SCHEMA, TABLES, cases
from refdelta.conformance.expected import Expectation

SMALLEST = CORPUS / "smallest.json"
PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
_ORDER = ("id", "about", "clause", "table", "levels", "transactions", "schedule", "cannot_conflict", "delta_spark")


def document(path: Path) -> str:
    """A file of the corpus as it should be."""
    given = json.loads(path.read_text())
    if path.name == TABLES:
        return json.dumps(given, indent=1, ensure_ascii=False) + "\n"
    expected: dict[str, dict[str, Any]] = {}
    for case in cases(path):
        expected.setdefault(case.name, {})[case.level] = Expectation(case).as_json()
    return laid_out(given, expected)


def laid_out(given: dict[str, Any], expected: dict[str, dict[str, Any]]) -> str:
    """A file of cases: a key of a case a line, and an outcome a line."""
    head = [f" {_text(key)}: {_text(value)}," for key, value in given.items() if key != "cases"]
    bodies = [_case(one, expected[one["id"]]) for one in given["cases"]]
    return "\n".join(["{", *head, ' "cases": [', ",\n".join(bodies), " ]", "}"]) + "\n"


def _case(given: dict[str, Any], expected: dict[str, Any]) -> str:
    keys = [f"   {_text(key)}: {_text(given[key])}" for key in _ORDER if key in given]
    levels = []
    for level, one in expected.items():
        outcomes = ",\n".join(f"     {_text(outcome)}" for outcome in one["outcomes"])
        levels.append(f'    {_text(level)}: {{"verdicts": {_text(one["verdicts"])}, "outcomes": [\n{outcomes}\n    ]}}')
    keys.append('   "expected": {\n' + ",\n".join(levels) + "\n   }")
    return "  {\n" + ",\n".join(keys) + "\n  }"


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def page(text: str) -> str:
    """The page with the numbers of cases."""
    found = cases()
    lines = ["| file | cases | at their levels | of statements | of actions | of three transactions or more |"]
    lines.append("|---|---|---|---|---|---|")
    for group in (*dict.fromkeys(case.group for case in found), "all"):
        own = [case for case in found if group in (case.group, "all")]
        kinds = Counter(case.kind for case in own)
        more = sum(len(case.transactions) > 2 for case in own)
        names = len({case.name for case in own})
        lines.append(f"| {group} | {names} | {len(own)} | {kinds['statements']} | {kinds['actions']} | {more} |")
    return rewritten(PAGE, text, "counts", "\n".join(lines) + "\n")


def main() -> int:
    """Write the files."""
    SMALLEST.write_text(json.dumps(smallest_cases.document()))
    for path in sorted(CORPUS.glob("*.json")):
        if path.name != SCHEMA:
            path.write_text(document(path))
    PAGE.write_text(page(PAGE.read_text()))
    print(f"{len(cases())} cases at their levels")
    return 0


if __name__ == "__main__":
    sys.exit(main())
