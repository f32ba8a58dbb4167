"""``spec_notes/other_writers.md`` has the table of claims as the code has it."""

from __future__ import annotations

import pytest

from by_path import generator
from refdelta.core.log.claims import TABLE, Claim

claims_table = generator("claims_table")


@pytest.mark.tier("test")
def test_the_document_is_up_to_date():
    text = claims_table.DOCUMENT.read_text()
    assert claims_table.document(text) == text, "run make generate NAME=claims"


def test_a_claim_has_a_conclusion_and_stands_once():
    assert all(row.field and row.writer and row.concluded.endswith(".") for row in TABLE)
    assert len({(row.field, row.writer) for row in TABLE}) == len(TABLE)


def test_a_row_is_escaped_and_a_document_has_one_place_for_it():
    rows = [Claim("a|b", "c", "d.", "e.")]
    text = "x\n<!-- generated: claims -->\nold\n<!-- end -->\ny\n"
    assert "| a\\|b | c | d. | e. |" in claims_table.document(text, rows).splitlines()
    with pytest.raises(ValueError, match="0 places"):
        claims_table.document("x", rows)
