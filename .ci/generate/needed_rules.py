"""``make generate NAME=needed-rules``: the table in ``docs/conformance.md`` of the cases that need each rule of
conflict.

A case needs a rule if the rule refuses a transaction of it, and the case is wrong on refdelta without the rule. Where
other rules refuse the same transaction then, they are left out with it. ``tests/conformance/needed_rules.json`` keeps
what was found, by case; ``--page`` writes the table from it and runs nothing.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from unittest import mock

from marked_block import rewritten

from refdelta.conformance import cases, engines
from refdelta.conformance.cases import Case
from refdelta.conformance.runner import WRONG, Result, run_case
from refdelta.core.commit import member
from refdelta.core.conflicts.rules import RULES
from rules_left_out import check_without

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "conformance.md"
FOUND = ROOT / "tests" / "conformance" / "needed_rules.json"
SHOWN = 3

Needed = dict[str, list[str]]
"""The rules that a case needs, each with the rules that are left out with it."""


def needed(case: Case) -> Needed:
    """The rules that a case needs."""
    found: Needed = {}
    for name, failure in without(case).failures.items():
        missing = [failure.rule or ""]
        while (result := without(case, *missing)).status != WRONG:
            again = result.failures.get(name)
            if again is None or again.rule is None or again.rule in missing:
                break
            missing.append(again.rule)
        else:
            first, *others = missing
            if first not in found or len(others) < len(found[first]):
                found[first] = others
    return found


def without(case: Case, *rules: str) -> Result:
    """A case on refdelta without these rules."""
    with tempfile.TemporaryDirectory() as scratch, mock.patch.object(member, "check", check_without(*rules)):
        return run_case(engines.find("refdelta"), case, Path(scratch) / "table")


def recorded() -> dict[str, Needed]:
    """The rules that each case needs, by case, as they were found."""
    return json.loads(FOUND.read_text())


def by_rule(found: Mapping[str, Needed]) -> dict[str, dict[str, list[str]]]:
    """The cases of each rule, with the rules that are left out with it; those that need it alone, and have fewer
    transactions, come first.
    """
    every: dict[str, dict[str, list[str]]] = {rule.id: {} for rule in RULES}
    transactions = {case.id: len(case.transactions) for case in cases()}
    for case, rules in sorted(found.items(), key=lambda pair: (transactions.get(pair[0], 0), pair[0])):
        for first, others in rules.items():
            # With all others left out, each of them refuses it alone.
            for rule in (first, *others):
                every[rule].setdefault(case, [one for one in (first, *others) if one != rule])
    return {rule: dict(sorted(some.items(), key=lambda pair: len(pair[1]))) for rule, some in every.items()}


def table(found: Mapping[str, Needed]) -> str:
    """The rules in Markdown."""
    lines = ["| rule | wrong without it | wrong without it and others | some of them |", "|---|---|---|---|"]
    for rule, some in by_rule(found).items():
        alone = sum(not others for others in some.values())
        lines.append(f"| `{rule}` | {alone} | {len(some) - alone} | {', '.join(_shown(some))} |")
    return "\n".join(lines) + "\n"


def _shown(some: Mapping[str, Sequence[str]]) -> list[str]:
    first = {case.partition("@")[0]: (case, others) for case, others in reversed(some.items())}
    return [
        f"`{case}`{' (with ' + ', '.join(f'`{one}`' for one in others) + ')' if others else ''}"
        for case, others in [*reversed(first.values())][:SHOWN]
    ]


def document(text: str) -> str:
    """The page with the table as it was found."""
    return rewritten(DOCUMENT, text, "rules", table(recorded()))


def main() -> int:
    """Write the table."""
    if "--page" not in sys.argv:
        every = cases()
        with ProcessPoolExecutor(2) as pool:
            found = {case.id: rules for case, rules in zip(every, pool.map(needed, every), strict=True) if rules}
        lines = ",\n".join(f" {json.dumps(case)}: {json.dumps(rules)}" for case, rules in sorted(found.items()))
        FOUND.write_text(f"{{\n{lines}\n}}\n")
    DOCUMENT.write_text(document(DOCUMENT.read_text()))
    print(f"{DOCUMENT.name}: {len(RULES)} rules")
    return 0


if __name__ == "__main__":
    sys.exit(main())
