"""The corpus: its files are valid, its outcomes are those of the judge, and it has each way to go wrong.

Tests of conformance.cases, conformance.expected, conformance.statements.
"""

from __future__ import annotations

import json

import jsonschema
import pytest

from by_path import generator
from refdelta import errors
from refdelta.conformance.cases import ALL_COMMIT, CORPUS, SCHEMA, TABLES, cases
from refdelta.conformance.expected import EITHER, MUST_COMMIT, MUST_CONFLICT, Expectation, spans
from refdelta.conformance.judge import SERIALIZABLE, WRITE_SERIALIZABLE
from refdelta.conformance.statements import as_json, copied, effect, parse_statement

smallest_cases = generator("smallest_cases")
corpus = generator("corpus")
CASES = {case.id: case for case in cases()}
FILES = [path for path in sorted(CORPUS.glob("*.json")) if path.name != SCHEMA]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_file_satisfies_the_schema_and_is_as_make_corpus_writes_it(path):
    jsonschema.validate(json.loads(path.read_text()), json.loads((CORPUS / SCHEMA).read_text()))
    assert path.read_text() == corpus.document(path), "run make generate NAME=corpus"
    assert path.name == TABLES or all(case.expected for case in cases(path))


@pytest.mark.tier("test")
def test_the_smallest_cases_are_those_that_are_found_by_trying_all():
    assert [*map(json.dumps, smallest_cases.document()["cases"])] == [
        json.dumps({key: value for key, value in case.items() if key != "expected"})
        for case in json.loads(corpus.SMALLEST.read_text())["cases"]
    ]


@pytest.mark.tier("test")
def test_the_page_has_the_numbers_of_cases():
    text = corpus.PAGE.read_text()
    assert text == corpus.page(text), "run make generate NAME=corpus"


def test_there_is_a_case_for_each_verdict_at_each_level():
    for level in (SERIALIZABLE, WRITE_SERIALIZABLE):
        found = {
            verdict for case in CASES.values() if case.level == level for verdict in case.expected["verdicts"].values()
        }
        assert found == {MUST_COMMIT, MUST_CONFLICT, EITHER}
    assert {case.kind for case in CASES.values()} == {"statements", "actions"}
    assert len({case.name for case in CASES.values()}) >= 240


def test_delta_sparks_recorded_answers_have_a_serial_order_but_for_three():
    unexplained = set()
    for case in CASES.values():
        if case.delta_spark is None:
            continue
        failed = {} if case.delta_spark == ALL_COMMIT else dict(pair.split() for pair in case.delta_spark.split(", "))
        committed = [name for name in case.commits if name not in failed]
        if committed not in [outcome["committed"] for outcome in case.expected["outcomes"]]:
            unexplained.add(case.id)
    # A blind append that was passed over closes a cycle, and a VACUUM is not compared (spec_notes/divergences.md).
    assert unexplained == {
        "restore-over-a-vacuum@WriteSerializable",
        "skipped-append-then-a-reader-that-writes-elsewhere@WriteSerializable",
        "longer-cycle-through-a-late-writer@WriteSerializable",
    }


def outcomes(case: str) -> dict[tuple[str, ...], list]:
    found: dict[tuple[str, ...], list] = {}
    for outcome in Expectation(CASES[case]).outcomes:
        found.setdefault(outcome.committed, []).append((outcome.orders, outcome.rows))
    return found


def test_a_lost_update_has_no_order_and_both_additions_count():
    expected = Expectation(CASES["lost-update@Serializable"])
    assert expected.verdicts == {"T": MUST_CONFLICT, "W": MUST_COMMIT}
    assert [(edge.before, edge.after) for edge in expected.explain(["W", "T"]).cycle] in (
        [("T", "W"), ("W", "T")],
        [("W", "T"), ("T", "W")],
    )
    assert outcomes("lost-update@Serializable")["W", "T"] == [((("W", "T"),), [[0, 2]])]


def test_a_delete_may_pass_an_append_at_write_serializable_only():
    name = "delete-over-a-matching-insert"
    assert outcomes(f"{name}@Serializable")["W", "T"] == [((("W", "T"),), [[1, 1]])]
    assert ((("T", "W"),), [[1, 1], [10, 0]]) in outcomes(f"{name}@WriteSerializable")["W", "T"]
    assert Expectation(CASES[f"{name}@Serializable"]).verdicts["T"] == MUST_CONFLICT
    assert CASES[f"{name}@WriteSerializable"].cannot_conflict


def test_rows_are_followed_through_a_compaction():
    rows = outcomes("compaction-over-a-vector-on-its-file@WriteSerializable")["W", "T"]
    assert rows == [((("T", "W"), ("W", "T")), {"f0": "3-9", "f1": "0-9"})] or rows == [
        ((("W", "T"), ("T", "W")), {"f0": "3-9", "f1": "0-9"})
    ]


def test_what_changes_no_row_has_only_read_and_stands_at_its_version():
    name = "delete-that-matches-nothing-over-an-update-into-its-predicate@Serializable"
    assert outcomes(name)["W", "T"] == [((("T", "W"),), [[0, 9], [1, 1]])]


def test_spans():
    assert spans([7, 0, 1, 2]) == "0-2,7"
    assert spans([3, 3]) == "3,3"


@pytest.mark.parametrize(
    ("given", "sql"),
    [
        ({"insert": [[1, None]]}, "INSERT INTO t VALUES (1, CAST(NULL AS BIGINT))"),
        ({"copy": {"k": "k + 20"}, "where": "a = 0"}, "INSERT INTO t SELECT k + 20 AS k, a AS a FROM t WHERE a = 0"),
        ({"delete": "a = 0"}, "DELETE FROM t WHERE a = 0"),
        ({"update": {"a": "a + 1"}, "where": "k = 0"}, "UPDATE t SET a = a + 1 WHERE k = 0"),
        ({"overwrite": [[1, 2]]}, "INSERT OVERWRITE t VALUES (1, 2)"),
        ({"optimize": True}, "OPTIMIZE t"),
    ],
)
def test_a_statement_is_read_and_written(given, sql):
    statement = parse_statement(given)
    assert statement.sql("t") == sql
    assert as_json(statement) == given


def test_a_merge_updates_what_matches_and_inserts_the_rest():
    start = effect([parse_statement({"insert": [[0, 0], [1, 1]]})], "S", frozenset()).added
    change = effect([parse_statement({"upsert": [[1, 5], [7, 7]]})], "T", start)
    assert {row.values for row in change.removed} == {(1, 1)}
    assert {row.values for row in change.added} == {(1, 5), (7, 7)}
    assert "WHEN NOT MATCHED THEN INSERT" in parse_statement({"upsert": [[1, 5]]}).sql("t")


def test_a_copy_is_computed_from_the_rows_that_were_read():
    assert copied(parse_statement({"copy": {"k": "k + 20"}}), [(1, None)]) == [(21, None)]


@pytest.mark.parametrize(
    "given",
    [{}, [], {"drop": True}, {"delete": "a ="}, {"insert": [[1]]}, {"insert": [[1, "x"]]}, {"update": {"b": "1"}},
     {"optimize": False}, {"delete": "a = 0", "where": "true"}, {"delete": 1}],
)  # fmt: skip
def test_what_is_no_statement_is_refused(given):
    with pytest.raises(errors.InvalidArgumentError, match=r"is not a statement|neither an integer"):
        parse_statement(given)
