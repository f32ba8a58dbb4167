"""``make generate NAME=how-we-know``: the sizes in ``docs/how-we-know.md``, from the tests themselves."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import needed_rules
import spec_map
from marked_block import rewritten

from model.cases import ALL, BASIC, CYCLE, MORE, Case
from model.exhaustive import shapes
from model.explorer import FAULTS
from model.layouts import LAYOUTS
from model.test_exhaustive import DEFAULTS
from mutations.__main__ import COUNT
from refdelta.conformance import cases
from refdelta.conformance.judge import LEVELS
from refdelta.core.conflicts.rules import RULES
from serial.removals import REMOVALS
from serial.test_serial_programs import HISTORIES

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "how-we-know.md"
REGISTERS = ROOT / "spec_notes"
_REQUESTS = re.compile(r"^\| [a-z]+-\d+ \|", re.MULTILINE)


def sizes() -> Iterator[tuple[str, str]]:
    """Each machine with its size."""
    corpus = cases()
    kinds = Counter(case.kind for case in corpus)
    found = needed_rules.recorded()
    names = len({case.name for case in corpus})
    split = f"{kinds['statements']} of statements, {kinds['actions']} of actions"
    yield "corpus", f"{names} cases, {len(corpus)} at their levels: {split}"
    smallest = [case for case in corpus if case.group == "smallest"]
    ways = len({case.name for case in smallest})
    yield "smallest cases", f"{ways} ways to go wrong, {len(smallest)} cases at their levels"
    yield (
        "rules left out, corpus",
        f"{len(RULES)} rules; {len(found)} cases at their levels are wrong without the rule that refuses them",
    )
    pairs = sum(_histories(MORE if layout in DEFAULTS else ALL, 2) for layout in LAYOUTS) * len(LEVELS)
    triples = _histories(BASIC, 3) * len(LAYOUTS) * len(LEVELS)
    fours = _histories(CYCLE, 4) * len(DEFAULTS)
    yield (
        "exhaustive histories",
        f"{pairs:,} of two operations through the engine; {triples:,} of three and {fours:,} of four through the rules",
    )
    yield "commit loop", f"{len(FAULTS)} kinds of faults of a store, at each effect of each writer"
    removed = f"{len(REMOVALS)} rules, kinds of reads and resources, each with a program that goes wrong without it"
    yield "random programs", f"{removed}; {len(HISTORIES)} programs by hand, of histories that some engine accepted"
    rows = [line for line in _read("divergences.md").splitlines() if line.startswith("| `")]
    differences = sum(len(line.strip("|").split("|")) == 6 for line in rows)
    yield (
        "delta-spark",
        f"{kinds['actions']} cases of actions through its conflict checker; {differences} rows of differences",
    )
    clauses = [one for name in spec_map.REGISTERS for one in spec_map.clauses(name.read_text())]
    later = sum(one.later for one in clauses)
    yield "clauses", f"{len(clauses) - later} with code and a test, {later} announced for later"
    counted = len(_REQUESTS.findall(_read("requests.md")))
    yield "requests", f"{counted} operations of which the requests are counted"
    yield "mutations", f"{COUNT} places of a seed"


def _histories(operations: Sequence[Case], count: int) -> int:
    return sum(shapes(count).values()) * len(operations) ** count


def _read(name: str) -> str:
    return (REGISTERS / name).read_text()


def table() -> str:
    """The sizes in Markdown."""
    return "| machine | size |\n|---|---|\n" + "".join(f"| {name} | {size} |\n" for name, size in sizes())


def document(text: str) -> str:
    """The page with the sizes as the tests have them."""
    return rewritten(DOCUMENT, text, "sizes", table())


def main() -> int:
    """Write the sizes."""
    DOCUMENT.write_text(document(DOCUMENT.read_text()))
    print(f"{DOCUMENT.name}: {len(list(sizes()))} sizes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
