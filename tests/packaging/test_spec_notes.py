"""The register of clauses names what is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "spec_notes" / "clauses.md").read_text().splitlines()
    if re.match(r"\| [a-z]+-\d+ \|", line)
]


def test_every_clause_has_an_id_of_its_own_a_level_and_a_section():
    assert len(ROWS) > 30
    assert len({row[0] for row in ROWS}) == len(ROWS)
    assert {row[1] for row in ROWS} <= {"MUST", "SHOULD", "MAY", "may-not"}
    assert all(len(row) == 6 and row[2] and row[3] for row in ROWS)


def test_every_must_has_code_and_a_test_that_exist():
    named = [name.strip("`") for row in ROWS for name in row[4:]]
    assert [name for name in named if not (ROOT / name).is_file()] == []
