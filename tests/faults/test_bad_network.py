"""A network that drops, cuts, delays, repeats and replaces what writers send and hear, before and after the server has
acted: nothing is lost, nothing doubled, and what each caller was told is what happened.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from faults.campaign import ENDING
from faults.lanes import aims, fly_all
from faults.runs import SHAPES, run

SEED = 20261121
_SERVERS = {"s3": "s3_server", "azure": "azure_server"}


@pytest.fixture(params=[*_SERVERS])
def server(request):
    return request.getfixturevalue(_SERVERS[request.param])


def test_one_fault_at_a_time(server):
    # Each of the two servers meets one half of them; `make faults` has all.
    result = fly_all(server, [*aims()][server.scheme == "s3" :: 2])
    assert result.wrong == []
    assert result.faults.total() > 75


@pytest.mark.parametrize(
    "shape",
    [shape for shape in SHAPES if shape.name in ("vectors", "commits", "creation")],
    ids=lambda shape: shape.name,
)
def test_writers_and_a_reader(server, shape):
    result = run(server, SEED, replace(shape, writers=3, steps=4))
    assert result.wrong == []
    assert result.faults.total() > 10
    assert result.outcomes["committed"] > 5


def test_the_server_is_killed_under_load(s3_server):
    result = run(s3_server, SEED, replace(ENDING, steps=6, kills=0.4))
    assert result.wrong == []
    assert result.ended > 1
    assert result.outcomes["committed"] > 5
