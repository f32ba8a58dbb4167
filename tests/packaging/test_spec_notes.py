"""The register of clauses names what is there.

Tests of verifier.clauses.
"""

import re
from pathlib import Path

from refdelta.verifier.clauses import CLAUSES

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "spec_notes" / "clauses.md").read_text().splitlines()
    if re.match(r"\| [a-z]+-\d+ \|", line)
]


def test_every_clause_has_an_id_of_its_own_a_level_and_a_section():
    assert len(ROWS) > 150
    assert len({row[0] for row in ROWS}) == len(ROWS)
    assert {row[1] for row in ROWS} <= {"MUST", "SHOULD", "MAY", "may-not"}
    assert all(len(row) == 7 and row[2] and row[3] for row in ROWS)


def test_the_verifier_has_the_words_of_the_register():
    rows = {row[0]: tuple(row[1:4]) for row in ROWS if row[4]}
    assert {name: tuple(clause) for name, clause in CLAUSES.items()} == rows
    assert {row[4] for row in ROWS} == {"yes", ""}


def test_what_is_said_of_spark_has_code_and_a_test_that_exist():
    lines = (ROOT / "spec_notes" / "spark.md").read_text().splitlines()
    rows = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    rows = [row for row in rows if row[0] not in ("Spark", "--")]
    assert len(rows) > 20
    assert all(len(row) == 4 for row in rows)
    assert [code for *_, code, _ in rows if not (ROOT / code).is_file()] == []
    for *_, cell in rows:
        tests = re.findall(r"(tests/[\w/]+\.py)::(\w+)", cell)
        assert tests, cell
        assert [name for file, name in tests if f"def {name}(" not in (ROOT / file).read_text()] == []
