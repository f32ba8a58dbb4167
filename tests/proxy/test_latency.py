"""Latencies: their text, the time of each kind of request, and the rate of a prefix."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from refdelta import errors
from refdelta.proxy import Proxy, Request
from refdelta.proxy.latency import Latency, RateLimit
from servers.origin import CONTENT, Origin, put


def asked(method="GET", key="t/x.parquet"):
    return Request(method, key, "data", "", False, 0)


def test_a_text_of_all_parts():
    told = Latency.parse("put=60, get=25,list=40,delete=0.5,jitter=0.2,rate=3500")
    assert told == Latency(60, 25, 40, 0.5, 0.2, 3500)
    assert Latency.parse("put=0") == Latency()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("put=60,gett=25", "--latency put=60,gett=25: part 'gett' does not exist; did you mean 'get'"),
        ("", "--latency : part '' does not exist"),
        ("60", "part '60' does not exist"),
        ("put", "put is ''; it is a number from 0 to 60,000 (milliseconds)"),
        ("put=fast", "put is 'fast'"),
        ("get=-1", "get is '-1'"),
        ("get=nan", "get is 'nan'"),
        ("list=1e9", "list is '1e9'"),
        ("put=1,put=2", "put occurs twice"),
        ("jitter=20", "jitter is '20'; it is a number from 0 to 1 (a fraction)"),
        ("rate=0", "rate is '0'; it is a number from 1 to 1,000,000 (requests a second)"),
    ],
)
def test_clear_errors(text, words):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        Latency.parse(text)
    assert words in str(caught.value)


def test_each_kind_of_request_has_its_time():
    delay = Latency(put=60, get=25, list=40, delete=10).delay(0)
    times = {"PUT": 60, "POST": 60, "PART": 60, "FINISH": 60, "GET": 25, "HEAD": 25, "LIST": 40, "DELETE": 10}
    assert {method: 1_000 * delay(asked(method)) for method in times} == times
    assert delay(asked("DELETE-MANY")) == 0.01


def test_the_jitter_comes_again_by_its_seed_and_stays_in_its_bounds():
    far = Latency(get=100, jitter=0.2)

    def drawn(seed):
        delay = far.delay(seed)
        return [delay(asked()) for _ in range(200)]

    assert drawn(3) == drawn(3) != drawn(4)
    assert 0.08 <= min(drawn(3)) < 0.09 < 0.11 < max(drawn(3)) <= 0.12


def test_the_rate_is_that_of_each_prefix():
    now = [0.0]
    limit = RateLimit(3, clock=lambda: now[0])
    assert [limit(asked(key=f"t/{n}")) for n in range(5)] == [None] * 3 + ["busy-before"] * 2
    assert limit(asked("LIST", "t/_delta_log/")) is None, "another folder"
    now[0] = 1 / 3
    assert [limit(asked(key="t/x")) for _ in range(2)] == [None, "busy-before"]
    now[0] = 100.0
    assert [limit(asked(key="t/x")) for _ in range(4)] == [None] * 3 + ["busy-before"]


def test_the_proxy_takes_its_time_and_refuses_beyond_the_rate(monkeypatch):
    slept = []
    monkeypatch.setattr("refdelta.proxy.proxy.time", SimpleNamespace(sleep=slept.append))
    far = Latency(put=60, rate=2)
    with Origin() as origin, Proxy(origin, RateLimit(far.rate, clock=lambda: 0.0), delay=far.delay(0)) as proxy:
        answers = [put(proxy, f"/tables/t/{number}") for number in range(3)]
        origin.shutdown()
    assert slept == [0.06] * 3
    assert answers[:2] == [(200, CONTENT)] * 2
    assert answers[2][0] == 503
    assert b"<Code>SlowDown</Code>" in answers[2][1]
    assert [(seen.status, seen.reply, seen.fault) for seen in proxy.seen] == [
        (200, len(CONTENT), None),
        (200, len(CONTENT), None),
        (0, 0, "busy-before"),
    ]
    assert len(origin.got) == 2
