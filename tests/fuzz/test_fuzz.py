"""A short run of every fuzz target of our own readers, with its corpus.

``make search NAME=fuzz`` is the long one, and also has the targets that go on to another library.
"""

from __future__ import annotations

import pytest

import tiers
from fuzz.faults import TARGETS
from fuzz.mutate import mutate
from fuzz.run import fuzz, report, shares
from fuzz.targets import CORPUS, Target, judge, targets
from refdelta.errors import InvalidLogError
from tiers import budget

SEED = str(tiers.seed(7))
INPUTS = budget(4_000, fewest=800)


@pytest.mark.tier("test")
def test_no_input_has_another_end_than_an_answer_or_an_error_of_ours(tmp_path):
    counts = shares([name for name, target in targets().items() if not target.outside], INPUTS)
    tallies = fuzz(counts, SEED, 1, tmp_path)
    print(report(tallies))
    assert [path.name for tally in tallies.values() for path in tally.findings] == []
    assert {name: tally.inputs for name, tally in tallies.items()} == counts
    # An empty set of outcomes, or one alone, would say that a target does not reach what it is for.
    assert sum(tally.outcomes for tally in tallies.values()) > 100


@pytest.mark.tier("test")
def test_behind_a_finding_the_run_goes_on(tmp_path):
    tallies = fuzz({"_wrong_answer": 60, "timestamps": 50}, SEED, 1, tmp_path, most=2)
    assert len(tallies["_wrong_answer"].findings) == 2
    assert tallies["timestamps"].inputs == 50


def test_the_corpus_is_small_and_belongs_to_targets():
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 300_000
    assert {path.parent.name for path in files} <= targets().keys()


# --- the fuzzer itself -------------------------------------------------------------------------------------------


@pytest.mark.sample(check=3)
@pytest.mark.parametrize("name", [name for name, target in TARGETS.items() if not target.outside])
def test_a_fault_is_found(name, tmp_path):
    tally = fuzz({name: 200}, SEED, 1, tmp_path, most=1)[name]
    (path,) = tally.findings
    assert b"!" in path.read_bytes()
    assert path.with_name(path.name + ".why").read_text()


@pytest.mark.tier("test")
@pytest.mark.parametrize(
    ("name", "end"),
    [("_wrong_answer_outside", "another end: AssertionError"), ("_crash_outside", "the process ended by SIGABRT")],
)
def test_a_fault_of_another_library_is_told_in_words(name, end, tmp_path, capsys):
    tally = fuzz({name: 60}, SEED, 1, tmp_path, most=2)[name]
    assert tally.ends == {end: 2}
    assert tally.findings == []
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().out == f"FOUND by {name}: {end}\n" * 2
    assert f"{name}: 2 times {end}" in report({name: tally})


def test_targets_with_files_of_another_library_are_outside():
    assert {name for name, target in targets().items() if target.kind == "parquet" and not target.outside} == set()
    assert {"footers-compared", "page-headers-compared", "pages"} < {n for n, t in targets().items() if t.outside}


def test_an_error_of_ours_is_an_answer():
    def run(data):
        raise InvalidLogError("not so", file="f")

    target = Target("x", run, "text", 1)
    assert judge(target, b"")[0] == "InvalidLogError"


def test_changes_depend_on_the_seed_alone():
    from random import Random

    data = b'{"add": {"path": "f", "size": 1}}\n{"txn": {"appId": "a"}}'
    for kind in ("json", "text", "parquet", "bytes"):
        some = [[mutate(Random(seed), data, kind, [data]) for seed in range(50)] for _ in range(2)]
        assert some[0] == some[1]
        assert len(set(some[0])) > 40
