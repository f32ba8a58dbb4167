"""The runner: the statuses, by engines that go wrong in known ways, and by those of the package.

Tests of conformance.runner, conformance.programs, conformance.engines.refdelta_engine,
conformance.engines.deltalake_engine, conformance.engines.pyiceberg_engine.
"""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from refdelta import errors
from refdelta.conformance import cases, engines, run
from refdelta.conformance.cases import Case, Failure
from refdelta.conformance.engines import NotSupportedError
from refdelta.conformance.judge import Row
from refdelta.conformance.programs import draw, smaller, written
from refdelta.conformance.runner import ERROR, NEEDLESS, REFUSED, SOUND, WRONG, counts, junit
from refdelta.conformance.statements import effect

CASES = {case.id: case for case in cases()}
SOME = (
    "lost-update",
    "write-skew",
    "delete-over-a-matching-insert",
    "compaction-over-a-delete",
    "insert-insert",
    "copies-of-each-other",
    "transaction-of-two-statements",
    "delete-delete-of-other-partitions",
)


class Careless:
    """An engine in memory that checks nothing, or refuses every commit after another one, or fails."""

    kinds = ("statements",)

    def __init__(self, name: str = "careless") -> None:
        self.name = name

    def version(self) -> str:
        return "1"

    def open(self, case: Case, folder: Path) -> Careless.Session:
        if self.name == "modest":
            raise NotSupportedError("anything")
        return Careless.Session(case, self.name)

    def close(self) -> None:
        pass

    class Session:
        def __init__(self, case: Case, how: str) -> None:
            self.case, self.how, self.versions, self.seen = case, how, 0, {}
            self.state = frozenset(
                Row((n, i), tuple(r)) for n, f in enumerate(case.table["rows"]) for i, r in enumerate(f)
            )

        def begin(self, name: str) -> None:
            self.seen[name] = self.state, self.versions

        def commit(self, name: str) -> Failure | None:
            seen, version = self.seen[name]
            if self.how == "failing":
                raise ZeroDivisionError("by nothing")
            if self.how == "timid" and version != self.versions:
                return Failure("ConcurrentAppend", "somebody was faster")
            change = effect(self.case.transactions[name].statements, name, seen)
            self.state = (self.state - change.removed) | change.added
            self.versions += 1
            return None

        def left(self):
            return [row.values for row in self.state]

        def close(self) -> None:
            pass


def statuses(engine, *names: str) -> dict[str, str]:
    chosen = [case for case in CASES.values() if case.name in names]
    return {result.case.id: result.status for result in run(engine, chosen)}


def test_an_engine_that_checks_nothing_is_wrong_where_no_order_explains_it():
    found = statuses(Careless(), "lost-update", "write-skew", "delete-over-a-matching-insert", "insert-insert")
    assert found == {
        "lost-update@Serializable": WRONG,
        "lost-update@WriteSerializable": WRONG,
        "write-skew@Serializable": WRONG,
        "write-skew@WriteSerializable": WRONG,
        "delete-over-a-matching-insert@Serializable": WRONG,
        "delete-over-a-matching-insert@WriteSerializable": SOUND,
        "insert-insert@Serializable": SOUND,
        "insert-insert@WriteSerializable": SOUND,
    }
    (result,) = run(Careless(), [CASES["lost-update@Serializable"]])
    assert result.why.startswith("W, T committed, and no order explains it: ")
    assert result.why.endswith("left: [[0, 1], [0, 1]]")


def test_the_smallest_cases_are_wrong_on_an_engine_that_checks_nothing():
    chosen = [case for case in CASES.values() if case.group == "smallest"]
    assert len(chosen) >= 70
    assert {result.status for result in run(Careless(), chosen)} == {WRONG}


def test_an_engine_that_refuses_every_second_commit_is_sound_but_for_needless_ones():
    found = statuses(Careless("timid"), "lost-update", "insert-insert")
    assert set(found.values()) == {SOUND, NEEDLESS}
    assert found["lost-update@Serializable"] == SOUND
    (result,) = run(Careless("timid"), [CASES["insert-insert@Serializable"]])
    assert result.why == "T was refused with ConcurrentAppend, but it must commit"


def test_what_an_engine_cannot_do_and_what_fails_are_results_of_their_own():
    assert set(statuses(Careless("modest"), "lost-update").values()) == {REFUSED}
    (failed,) = run(Careless("failing"), [CASES["lost-update@Serializable"]])
    assert (failed.status, failed.why) == (ERROR, "ZeroDivisionError: by nothing")
    (other,) = run(Careless(), [next(case for case in CASES.values() if case.kind == "actions")])
    assert (other.status, other.why) == (REFUSED, "the adapter runs no cases of actions")


def test_the_results_for_programs():
    chosen = [CASES["lost-update@Serializable"], CASES["insert-insert@Serializable"]]
    results = [*run(Careless(), chosen), *run(Careless("modest"), chosen), *run(Careless("failing"), chosen)]
    assert counts(results) == {SOUND: 1, NEEDLESS: 0, WRONG: 1, REFUSED: 2, ERROR: 2}
    suite = ET.fromstring(junit(results))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors"), suite.get("skipped")) == (
        "6",
        "1",
        "2",
        "2",
    )
    assert suite[0].get("name") == "lost-update@Serializable"
    assert suite[0][0].tag == "failure"
    assert results[0].as_json()["rows"] == [[0, 1], [0, 1]]
    assert results[1].as_json()["order"] == ["W", "T"]


@pytest.mark.sample(check=20)
@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.id)
def test_refdelta_is_sound(case):
    (result,) = run(engines.find("refdelta"), [case])
    assert result.status in (SOUND, NEEDLESS), result.why
    if case.cannot_conflict:
        assert result.status == SOUND, result.why


@pytest.mark.sample(check=6)
@pytest.mark.parametrize("case", [c for c in CASES.values() if c.kind == "statements"], ids=lambda case: case.id)
def test_refdelta_without_deletion_vectors_is_sound(case):
    (result,) = run(engines.find("refdelta-files"), [case])
    assert result.status in (SOUND, NEEDLESS), result.why
    if case.cannot_conflict:
        assert result.status == SOUND, result.why


def test_other_engines_run_the_cases_that_they_can():
    for name, refused in (
        ("deltalake", {"copies-of-each-other", "transaction-of-two-statements"}),
        ("pyiceberg", None),
    ):
        with_engine = engines.find(name)
        assert with_engine.version()
        chosen = [case for case in CASES.values() if case.name in SOME and case.level == "Serializable"]
        found = run(with_engine, chosen)
        assert not [result for result in found if result.status == ERROR], found
        assert refused is None or {result.case.name for result in found if result.status == REFUSED} == refused


def test_deltalake_doubles_rows_by_two_compactions():
    # docs/findings/deltalake-compaction.md; where this fails, the finding is mended, and its page is to say so.
    (result,) = run(engines.find("deltalake"), [CASES["compaction-compaction@Serializable"]])
    assert (result.status, len(result.rows)) == (WRONG, 8)


def test_engines_are_found_by_name_or_said_to_be_unknown():
    assert engines.names()[: len(engines.OWN)] == list(engines.OWN)
    with pytest.raises(errors.InvalidArgumentError, match="engine 'refdelts' does not exist; did you mean 'refdelta'"):
        engines.find("refdelts")


# --- random cases -----------------------------------------------------------------------------------------------------


def test_random_cases_are_sound_on_refdelta():
    results = run(engines.find("refdelta"), draw(range(6)))
    assert {result.status for result in results} <= {SOUND, NEEDLESS}, results


def test_a_wrong_random_case_is_made_smaller_and_written_as_a_case(tmp_path):
    wrong = next(result.case for result in run(Careless(), draw(range(200))) if result.status == WRONG)
    less = smaller(Careless(), wrong)
    assert len(less.transactions) == 2
    assert sum(map(len, less.table["rows"])) <= sum(map(len, wrong.table["rows"]))
    path = tmp_path / "wrong.json"
    path.write_text(written([less]))
    (again,) = cases(path)
    (result,) = run(Careless(), [again])
    assert result.status == WRONG
    assert again.expected
    assert msgspec.json.decode(path.read_bytes())["format"] == 1
