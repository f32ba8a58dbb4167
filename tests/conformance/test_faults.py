"""Cases under faults: honest errors are sound, untold commits and lost rows are wrong.

Tests of conformance.faults.
"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from pkgutil import resolve_name

import pytest

from refdelta import errors
from refdelta.conformance import cases, engines, run
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


def test_commits_of_actions_are_judged_by_the_same_rules(tmp_path):
    case = CASES["delete-delete-same-file@Serializable"]
    ends = {"T": (UNKNOWN, True)}, {"T": (BROKEN, False)}, {"W": (BROKEN, True)}
    results = [run_case(Troubled(**one), case, tmp_path / str(n), Calm()) for n, one in enumerate(ends)]
    assert [(one.status, one.committed) for one in results] == [(SOUND, ("W",)), (SOUND, ("W",)), (WRONG, ())]
    assert results[2].why.startswith("W committed, and ended with an error that does not say so: StoreError")


@pytest.mark.parametrize(
    ("reason", "why"), [({}, "its adapter does not make them"), ({"why_local": "it has no client"}, "it has no client")]
)
def test_engines_without_stores_are_refused_with_their_reason(tmp_path, reason, why):
    class Local:
        name, kinds = "local", ("statements",)
        version = open = close = None

    engine = Local()
    engine.__dict__.update(reason)
    result = run_case(engine, INSERTS, tmp_path / "t", Calm())
    assert (result.status, result.why) == (REFUSED, f"local has no tables in stores here: {why}")


@pytest.mark.parametrize("name", ["duckdb", "pyiceberg"])
def test_adapters_that_know_s3_only_refuse_other_stores(name):
    with pytest.raises(engines.NotSupportedError, match="of stores the adapter knows S3 only"):
        resolve_name(engines.OWN[name])().open_in_store(INSERTS, "abfss://c@a.dfs.core.windows.net/t", {})


@pytest.mark.tier("test")
@pytest.mark.parametrize("name", ["refdelta", "refdelta-files", "deltalake", "polars", "pyiceberg"])
def test_requests_of_an_engine_go_by_the_proxy(s3_server, monkeypatch, name):
    met = Counter()
    monkeypatch.setattr(Faults, "_fault", lambda self, request: met.update([self._plan is not None, request.method]))
    place = s3_server.place()
    options = s3_server.of_deltalake() if name in ("deltalake", "polars") else place.options
    with Faults(place.uri, options, rate=0, seed=0) as faults:
        (result,) = run(engines.find(name), [INSERTS], faults=faults)
    assert (result.status, result.committed, result.failed) == (SOUND, ("W", "T"), {})
    assert sum(met[method] for method in ("PUT", "PART", "FINISH")) > 4, met
    assert met[True] > 4, "while the transactions ran"


def test_rates_out_of_range():
    with pytest.raises(errors.InvalidArgumentError, match=r"between 0 and 1, not 1\.5"):
        Faults("s3://b/t", {"endpoint_url": "http://127.0.0.1:1"}, rate=1.5, seed=0)
