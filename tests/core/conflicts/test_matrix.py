"""The matrices are what the rules do, and keep what the documentation promises, cell by cell.

Tests of core.conflicts.examples.
"""

from __future__ import annotations

import itertools

import pytest

from refdelta.core.conflicts.examples import UPDATING, TableKind, conflict
from refdelta.core.conflicts.isolation import IsolationLevel
from refdelta.core.conflicts.matrix import DOCUMENTED, GROUPS, OPERATIONS, explain, matrix
from refdelta.core.conflicts.rules import RULES
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


def cells(*, row_level: bool, vectors: bool):
    """What the rules say of each documented cell: at both levels, and then the same with ZORDER BY."""
    return {
        (cell.one.split(",")[0], cell.other.split(",")[0]): (*cell.verdicts.values(), *cell.with_zorder.values())
        for cell in matrix(row_level=row_level, vectors=vectors)
    }


def test_every_cell_of_the_matrix_with_row_level_concurrency():
    assert cells(row_level=True, vectors=True) == {
        ("INSERT", "INSERT"): ("never", "never"),
        ("UPDATE", "INSERT"): ("never", "can"),
        ("UPDATE", "UPDATE"): ("can", "can"),
        ("OPTIMIZE", "INSERT"): ("never", "never", "never", "never"),
        ("OPTIMIZE", "UPDATE"): ("never", "never", "can", "can"),
        ("OPTIMIZE", "OPTIMIZE"): ("never", "never", "can", "can"),
    }


def test_every_cell_of_the_matrix_without_it():
    with_vectors, without = (cells(row_level=False, vectors=vectors) for vectors in (True, False))
    alike = {
        ("INSERT", "INSERT"): ("never", "never"),
        ("UPDATE", "INSERT"): ("never", "can"),
        ("UPDATE", "UPDATE"): ("can", "can"),
        ("OPTIMIZE", "INSERT"): ("never", "never", "never", "never"),
    }
    for other in ("UPDATE", "OPTIMIZE"):
        assert with_vectors.pop(("OPTIMIZE", other)) == ("never", "never", "can", "can")
        assert without.pop(("OPTIMIZE", other)) == ("can", "can", "can", "can")
    assert with_vectors == without == alike


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("ours", UPDATING)
@pytest.mark.parametrize("winner", UPDATING)
def test_two_changes_of_one_file_conflict_over_the_same_row_only_where_rows_decide(ours, winner, level):
    at = IsolationLevel.parse(level)
    meets = [
        [conflict(ours, winner, at, layout, meeting) is not None for meeting in ("row", "file", "table")]
        for layout in (TableKind(True, True), TableKind(True, False), TableKind(False, False))
    ]
    assert meets == [[True, False, False], [True, True, False], [True, True, False]]
    words = explain(ours, winner, level, row_level=True).sentence, explain(ours, winner, level).sentence
    assert ["meet in a row" in sentence for sentence in words] == [True, False]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("change", UPDATING)
def test_an_insert_is_in_the_way_of_a_change_at_serializable_and_by_its_rows(change, level):
    at = IsolationLevel.parse(level)
    found = [conflict(change, "INSERT", at, TableKind(True, True), meeting) for meeting in ("row", "file", "table")]
    assert [one is not None for one in found] == [level == "Serializable", False, False]


@pytest.mark.tier("test")
def test_a_purge_of_vectors_is_like_a_compaction():
    for other in OPERATIONS:
        for level, (row_level, vectors) in itertools.product(LEVELS, [(True, True), (False, True), (False, False)]):
            options = {"isolation": level, "row_level": row_level, "vectors": vectors}
            for one in ("OPTIMIZE", "REORG"):
                assert explain(one, other, **options).documented == explain("OPTIMIZE", other, **options).documented
            for pair, same in ((("REORG", other), ("OPTIMIZE", other)), ((other, "REORG"), (other, "OPTIMIZE"))):
                assert explain(*pair, **options).verdict == explain(*same, **options).verdict


def test_who_reads_goes_after_a_compaction_with_or_without_vectors():
    for row_level, vectors in ((True, True), (False, True), (False, False)):
        found = explain("INSERT FROM QUERY", "OPTIMIZE", row_level=row_level, vectors=vectors)
        assert (found.verdict, "goes after them" in found.sentence) == ("never", True)


def test_never_without_row_level_concurrency_is_kept():
    for cell in matrix(row_level=False):
        for level in LEVELS:
            if {"never", f"{level}: never"} & {*cell.documented.split(". ")}:
                assert cell.verdicts[level] == "never"


def test_rows_decide_with_deletion_vectors_only():
    with pytest.raises(InvalidArgumentError, match="deletion vectors"):
        matrix(row_level=True, vectors=False)


@pytest.mark.parametrize("operation", ["SELECT", "", "UPSERT"])
def test_what_is_not_known_is_refused(operation):
    with pytest.raises(InvalidArgumentError, match="does not exist; operations: INSERT, "):
        explain(operation, "INSERT")
    with pytest.raises(InvalidArgumentError, match="isolation level"):
        explain("INSERT", "INSERT", "chaos")
