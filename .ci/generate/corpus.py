"""``make corpus``: the right outcomes of each case of the corpus, by the judge, and one layout of its files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from refdelta.conformance.cases import CORPUS, SCHEMA, TABLES, cases
from refdelta.conformance.expected import Expectation

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


def main() -> int:
    """Write the files."""
    for path in sorted(CORPUS.glob("*.json")):
        if path.name != SCHEMA:
            path.write_text(document(path))
    print(f"{len(cases())} cases at their levels")
    return 0


if __name__ == "__main__":
    sys.exit(main())
