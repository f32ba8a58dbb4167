"""Cases under faults: honest errors are sound, untold commits and lost rows are wrong.

Tests of conformance.faults.
"""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from refdelta import errors
from refdelta.conformance import cases, engines
from refdelta.conformance.engines.refdelta_engine import Rows
from refdelta.conformance.faults import Faults
from refdelta.conformance.runner import NEEDLESS, REFUSED, SOUND, WRONG, run_case

CASES = {case.id: case for case in cases()}
INSERTS = CASES["insert-insert@Serializable"]


class Calm:
    """Faults that meet no request, on local folders."""

    options = None

    def __init__(self):
        self.settled = 0

    def during(self, case):
        return nullcontext()

    def settle(self):
        self.settled += 1


class Troubled(Rows):
    """refdelta, whose commits of some transactions end otherwise than they went.

    Args:
        ends: by transaction, the exception that its commit raises, and whether it commits before.
    """

    def __init__(self, **ends):
        self.ends = ends

    def open_in_store(self, case, uri, storage_options):
        session = super().open_in_store(case, uri, storage_options)
        commit = session.commit

        def ended(name):
            error, commits = self.ends.get(name, (None, True))
            failure = commit(name) if commits else None
            if error is not None:
                raise error
            return failure

        session.commit = ended
        return session


UNKNOWN, BROKEN = (
    errors.CommitOutcomeUnknownError("who knows", version=1, txn_id="x"),
    errors.StoreError("the store is gone"),
)


@pytest.mark.parametrize(
    ("ends", "status", "words"),
    [
        ({}, SOUND, ""),
        ({"T": (UNKNOWN, True)}, SOUND, "T ended with an unknown outcome: CommitOutcomeUnknownError: "),
        ({"T": (UNKNOWN, False)}, SOUND, "T ended with an unknown outcome: CommitOutcomeUnknownError: "),
        ({"T": (UNKNOWN, True), "W": (UNKNOWN, False)}, SOUND, "W ended with an unknown outcome"),
        ({"T": (BROKEN, False)}, SOUND, "T ended with StoreError: the store is gone"),
        ({"T": (BROKEN, True)}, WRONG, "T committed, and ended with an error that does not say so: StoreError"),
        ({"T": (None, False)}, WRONG, "where a serial order leaves"),
        ({"T": (None, False), "W": (UNKNOWN, True)}, WRONG, "perhaps W, too; left:"),
    ],
)
def test_honest_errors_are_sound_and_others_are_wrong(tmp_path, ends, status, words):
    calm = Calm()
    result = run_case(Troubled(**ends), INSERTS, tmp_path / "t", calm)
    assert (result.status, words in result.why) == (status, True), result
    told = [*result.committed, *result.unknown, *result.failed]
    assert sorted(told) == ["T", "W"]
    assert calm.settled == len(result.unknown) + len(result.failed)
    assert result.as_json()["unknown"].keys() == {name for name, (error, _) in ends.items() if error is UNKNOWN}


def test_a_transaction_that_cannot_begin_does_not_commit(tmp_path):
    class Blind(Rows):
        def open_in_store(self, case, uri, storage_options):
            session = super().open_in_store(case, uri, storage_options)
            begin = session.begin

            def begun(name):
                if name == "W":
                    raise BROKEN
                begin(name)

            session.begin = begun
            return session

    result = run_case(Blind(), CASES["lost-update@Serializable"], tmp_path / "t", Calm())
    assert (result.status, result.committed, [*result.failed]) == (SOUND, ("T",), ["W"])


def test_a_refused_commit_is_needless_also_under_faults(tmp_path):
    class Timid(Rows):
        def open_in_store(self, case, uri, storage_options):
            session = super().open_in_store(case, uri, storage_options)
            commit = session.commit
            session.commit = lambda name: engines_failure if name == "T" else commit(name)
            return session

    engines_failure = engines.Failure("ConcurrentAppend", "somebody was faster")
    assert run_case(Timid(), INSERTS, tmp_path / "t", Calm()).status == NEEDLESS


def test_without_faults_an_error_is_an_error_as_before(tmp_path):
    class Failing(Rows):
        def open(self, case, folder):
            return Troubled(T=(UNKNOWN, True)).open_in_store(case, str(folder), None)

    assert run_case(Failing(), INSERTS, tmp_path / "t").status == "error"


def test_cases_of_actions_and_engines_without_stores_are_refused(tmp_path):
    actions = next(case for case in CASES.values() if case.kind == "actions")
    assert run_case(Rows(), actions, tmp_path / "t", Calm()).status == REFUSED

    class Local:
        name, kinds = "local", ("statements",)
        version = open = close = None

    assert run_case(Local(), INSERTS, tmp_path / "t", Calm()).why == "the adapter has no tables in stores"


def test_rates_out_of_range():
    with pytest.raises(errors.InvalidArgumentError, match=r"between 0 and 1, not 1\.5"):
        Faults("s3://b/t", {"endpoint_url": "http://127.0.0.1:1"}, rate=1.5, seed=0)
