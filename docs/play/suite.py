"""The cases of the conformance suite as the page to play with shows them: the corpus, and the judge's answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from refdelta.conformance import Case, cases
from refdelta.conformance.expected import Expectation


def described(case: Case) -> dict[str, Any]:
    """A case: its table, transactions and steps, the outcomes that are right, and the order that explains that all
    commit with what they saw, or the cycle that excludes every order.
    """
    found = Expectation(case).explain(case.commits)
    table = case.table
    return {
        "id": case.id,
        "name": case.name,
        "level": case.level,
        "group": case.group,
        "about": case.about,
        "clause": case.clause,
        "kind": case.kind,
        "files": table.get("rows", table.get("files", [])),
        "table": {key: value for key, value in table.items() if key not in ("rows", "files")},
        "transactions": [
            {"name": one.name, "does": [each.sql("t") for each in one.statements] or list(one.does), "reads": one.reads}
            for one in case.transactions.values()
        ],
        "steps": case.steps,
        "spark": case.delta_spark,
        "verdicts": case.expected["verdicts"],
        "outcomes": case.expected["outcomes"],
        "order": found.order,
        "cycle": [edge._asdict() for edge in found.cycle],
    }


def write(folder: Path) -> int:
    """Write all cases as a script, beside those of the outcomes.

    Args:
        folder: of the scripts.

    Returns:
        The number of cases.
    """
    found = [described(case) for case in cases()]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cases.js").write_text(f"refdeltaCases({json.dumps(found, separators=(',', ':'))});\n")
    return len(found)
