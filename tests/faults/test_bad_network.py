"""A network that drops, cuts, delays, repeats and replaces what writers send and hear, before and after the server has
acted: nothing is lost, nothing doubled, and what each caller was told is what happened.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

import tiers
from faults.campaign import ENDING
from faults.lanes import Aim, aims, fly, fly_all
from faults.runs import SHAPES, run
from refdelta.core.commit import effects
from refdelta.engine.log.file_committer import FileCommitter
from tiers import budget, some

SEED = tiers.seed(20261121)
_SERVERS = {"s3": "s3_server", "azure": "azure_server", "gcs": "gcs_server"}


@pytest.fixture
def server(request, monkeypatch):
    name, _, client = request.param.partition(" by ")
    server = request.getfixturevalue(_SERVERS[name])
    if client:
        options = server.options
        monkeypatch.setattr(server, "options", lambda endpoint=None: {**options(endpoint), "client": client})
    return server


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("server", [*_SERVERS, "s3 by obstore", "azure by obstore"], indirect=True)
def test_one_fault_at_a_time(server):
    # Azure meets one half of them, the others the other; `make search NAME=faults` has all.
    met = some([*aims()][server.scheme != "abfs" :: 2], check=0, test=40)
    result = fly_all(server, met)
    assert result.wrong == []
    assert result.faults.total() >= len(met)


@pytest.mark.sample(test=2)
@pytest.mark.parametrize(
    ("server", "name"),
    [
        ("s3", "vectors"),
        ("s3", "exactly once"),
        ("azure", "commits"),
        ("azure", "creation"),
        ("gcs", "vectors"),
        ("gcs", "creation"),
        ("s3 by obstore", "vectors"),
        ("azure by obstore", "commits"),
    ],
    indirect=["server"],
)
def test_writers_and_a_reader(server, name):
    shape = next(shape for shape in SHAPES if shape.name == name)
    faults, committed = 0, 0
    # On a slow machine writers give up early, and a run shows little: then there is another one.
    for seed in range(SEED, SEED + 5):
        result = run(server, seed, replace(shape, writers=3, steps=budget(4, fewest=2)))
        assert result.wrong == []
        faults, committed = faults + result.faults.total(), committed + result.outcomes["committed"]
        if faults > 10 and committed > 2:
            break
    assert faults > 10
    assert committed > 2


@pytest.mark.tier("nightly")
def test_the_server_is_killed_under_load(s3_server):
    result = run(s3_server, SEED, replace(ENDING, steps=6, kills=0.4))
    assert result.wrong == []
    assert result.ended > 1
    assert result.outcomes["committed"] > 2


def test_an_engine_that_does_not_know_its_own_commit_is_found_out(s3_server, monkeypatch):
    monkeypatch.setattr("refdelta.core.commit.loop.Loop._is_ours", lambda *_: False)
    result = fly(s3_server, [Aim("append", "PUT", "commit", "drop-after")]).result
    assert "append/0/1/-1: told committed 3" in result.wrong[0]
    assert "in versions [2, 3]" in result.wrong[0]


def test_an_engine_that_takes_no_answer_for_yes_is_found_out(s3_server, monkeypatch):
    put = FileCommitter.commit

    def hopeful(shell, version, data):
        reply = put(shell, version, data)
        return effects.Committed() if isinstance(reply, effects.Unknown) else reply

    monkeypatch.setattr(FileCommitter, "commit", hopeful)
    result = fly(s3_server, [Aim("append", "PUT", "commit", "500-before")]).result
    assert "append/0/1/-1: told committed 2" in result.wrong[0]
    assert "in versions []" in result.wrong[0]
