"""The matrices are what the rules do, and keep what the documentation promises of whole files."""

from __future__ import annotations

import pytest

from refdelta.concurrency.conflict import RULES
from refdelta.concurrency.matrix import DOCUMENTED, GROUPS, OPERATIONS, explain, matrix
from refdelta.errors import InvalidArgumentError

LEVELS = ("WriteSerializable", "Serializable")


@pytest.mark.parametrize(
    ("ours", "winner", "weak", "strict"),
    [
        ("INSERT", "INSERT", "never", "never"),
        ("INSERT", "UPDATE", "never", "never"),
        ("INSERT", "OPTIMIZE", "never", "never"),
        ("INSERT", "OVERWRITE", "never", "never"),
        ("UPDATE", "INSERT", "never", "can"),
        ("DELETE", "INSERT", "never", "can"),
        ("MERGE", "INSERT", "never", "can"),
        ("UPDATE", "DELETE", "can", "can"),
        ("MERGE", "MERGE", "can", "can"),
        ("DELETE", "OPTIMIZE", "can", "can"),
        ("OPTIMIZE", "INSERT", "never", "never"),
        ("OPTIMIZE", "UPDATE", "can", "can"),
        ("OPTIMIZE", "OPTIMIZE", "can", "can"),
        ("INSERT FROM QUERY", "INSERT", "never", "can"),
        ("INSERT FROM QUERY", "INSERT FROM QUERY", "can", "can"),
        ("OVERWRITE", "INSERT", "never", "always"),
        ("OVERWRITE", "DELETE", "always", "always"),
        ("INSERT", "SET PROPERTIES", "always", "always"),
        ("OPTIMIZE", "ADD COLUMNS", "always", "always"),
        ("SET PROPERTIES", "INSERT", "never", "never"),
        ("SET PROPERTIES", "SET PROPERTIES", "always", "always"),
        ("INSERT", "UPGRADE PROTOCOL", "always", "always"),
        ("REPLACE TABLE", "INSERT", "always", "always"),
        ("REPLACE TABLE", "REPLACE TABLE", "always", "always"),
    ],
)
def test_the_verdict_on_each_pair(ours, winner, weak, strict):
    assert tuple(explain(ours, winner, level).verdict for level in LEVELS) == (weak, strict)


def test_an_explanation_names_rules_that_exist_and_quotes_the_documentation():
    found = explain("update", "DELETE", "serializable")
    assert found.rules == ("files-added",)
    assert found.documented == "can, at either level"
    assert "should have read" in found.sentence
    assert explain("DELETE", "OPTIMIZE", row_level=True).documented == "only when ZORDER BY is used"
    assert explain("insert_from_query", "INSERT").documented is None
    assert "before the INSERT" in explain("DELETE", "INSERT").sentence
    ids = {rule.id for rule in RULES}
    for ours in OPERATIONS:
        for winner in OPERATIONS:
            for level in LEVELS:
                found = explain(ours, winner, level)
                assert set(found.rules) <= ids
                assert bool(found.rules) == (found.verdict != "never")


@pytest.mark.parametrize("row_level", [True, False])
def test_both_matrices_have_six_cells_in_the_documentations_order(row_level):
    cells = matrix(row_level=row_level)
    assert [(cell.one, cell.other) for cell in cells] == list(DOCUMENTED[row_level])
    assert {cell.one for cell in cells} == set(GROUPS)


def test_never_without_row_level_concurrency_is_kept():
    # With deletion vectors more is promised, which is not kept by whole files.
    for cell in matrix(row_level=False):
        for level in LEVELS:
            if {"never", f"{level}: never"} & {*cell.documented.split(". ")}:
                assert cell.verdicts[level] == "never"


@pytest.mark.parametrize("operation", ["SELECT", "", "UPSERT"])
def test_what_is_not_known_is_refused(operation):
    with pytest.raises(InvalidArgumentError, match="is none of"):
        explain(operation, "INSERT")
    with pytest.raises(InvalidArgumentError, match="isolation level"):
        explain("INSERT", "INSERT", "chaos")
