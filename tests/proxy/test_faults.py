"""Each fault is what it says: how often the server acts, and what the client gets.

Tests of proxy.exchange, proxy.faults, proxy.messages.
"""

from __future__ import annotations

import http.client

import pytest

from refdelta.proxy import Proxy
from refdelta.proxy.faults import KINDS, REPLIES, FaultRule, FaultRules, RandomFaults
from refdelta.proxy.requests import Request
from servers.origin import CONTENT, Origin, put


@pytest.fixture(scope="module")
def origin():
    with Origin() as server:
        yield server
        server.shutdown()


@pytest.mark.sample(check=5)
@pytest.mark.parametrize("kind", KINDS)
def test_faults(origin, kind):
    origin.got.clear()
    path = f"/tables/t/{kind}"
    with Proxy(origin, FaultRules([FaultRule(kind)])) as proxy:
        told = put(proxy, path, timeout=0.5 if kind.startswith("hang") else 10.0)
        proxy.settle()
        acted = origin.got.count((path, 1000))
        assert put(proxy, path) == (200, CONTENT)  # only one met it
    what, _, when = kind.partition("-")
    assert acted == {"late": 1, "twice": 2, "slow": 1}.get(what, int(when == "after"))
    match what:
        case "twice" | "slow":
            assert told == (200, CONTENT)
        case "drop" | "late":
            assert issubclass(told, ConnectionError)
        case "hang":
            assert told is TimeoutError
        case "cut":
            assert told is http.client.IncompleteRead if when == "after" else issubclass(told, ConnectionError)
            assert ((path, 500) in origin.got) == (when == "before")
        case _:
            status, code = REPLIES["s3"][what]
            assert told[0] == status
            assert code.encode() in told[1]
    assert [seen.fault for seen in proxy.seen] == [kind, None]


def test_rules_choose_their_requests():
    commit = Request("PUT", "t/_delta_log/00000000000000000001.json", "commit", "", True, 10)
    data = Request("PUT", "t/x.parquet", "data", "", False, 10)
    plan = FaultRules(
        [
            FaultRule("drop-after", "PUT", "commit", under="t/", skip=1, times=2),
            FaultRule("late", kind="data", under="u/"),
        ]
    )
    assert [plan(seen) for seen in (commit, data, commit, commit, commit)] == [
        None,
        None,
        "drop-after",
        "drop-after",
        None,
    ]
    plan.add(FaultRule("cut-before", "GET"))
    assert plan(Request("GET", "t/x.parquet", "data", "", False, 0)) is None, "it has no body to cut"


def test_random_faults_come_again_by_their_seed():
    requests = [Request("GET", f"t/{number % 7}.parquet", "data", "", False, 0) for number in range(2000)]

    def throws(seed):
        plan = RandomFaults(seed, 0.1)
        return [plan(seen) for seen in requests], plan

    first, plan = throws(5)
    assert first == throws(5)[0] != throws(6)[0]
    assert plan.total == sum(fault is not None for fault in first) > 200
    assert set(first) == {None, *KINDS} - {kind for kind in KINDS if kind.startswith("409") or kind == "cut-before"}
    few = RandomFaults(5, 0.1, most=7)
    assert sum(few(seen) is not None for seen in requests) == few.total == 7
