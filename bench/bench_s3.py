"""Commits to a table on S3: versitygw on this machine, behind a proxy that makes each request late, as a network would.

An append is two requests one after the other, for the entry must not name a file that is not there yet: the data file
is put, then the entry where there is none. A commit that brings no file is one. So 1/latency bounds the commits without
a file, 1/(2 latency) the appends of one writer. refdelta's puts a version's checksum beside what follows it
(spec_notes/requests.md, "Commits"). Of more writers, one may put its data file while another one commits: then
1/latency is the bound, as one version is put after the other.

The proxy is a Python process's threads and shares two cores with the writers and the server: without a delay the
figures are those of the machine and not of S3.
"""

from __future__ import annotations

from functools import partial

import deltalake
import pytest
from bench_log import RARELY, SCHEMA, commit_refdelta
from contest import Engine, Goal, ahead
from racing import (
    Floor,
    Race,
    judge_own,
    judge_rows,
    own,
)

import refdelta
from refdelta.racing.crew import Crew
from refdelta.racing.engines.of_deltalake import DeltalakeEngine
from refdelta.racing.mixes import APPENDS
from refdelta.racing.mixes import SCHEMA as ROWS
from servers.install import ServerUnavailableError
from servers.proxies import ServerProxy
from servers.running import S3Server

DELAYS = (0, 60)
WRITERS = (1, 2, 4, 8)
_DATA = b"x" * 1_000
BOUND = Goal("0.9 of the throughput of the round trips that nobody can leave out", 1 / 0.9, rival="floor")
MANY = (
    Goal("10 commits/s", 1 / 10),
    Goal("p99 under 1.5 s", 1_500, figure="p99 ms"),
    Goal("8 requests a commit", 8, figure="requests a commit"),
)
"""What is wanted of eight writers at 60 ms."""


@pytest.fixture(scope="module")
def server():
    try:
        server = S3Server().start()
    except ServerUnavailableError as error:
        pytest.skip(str(error))
    yield server
    server.stop()


@pytest.fixture(scope="module", params=DELAYS)
def proxy(request, server):
    with ServerProxy(server, delay=lambda _: request.param / 1000) as proxy:
        proxy.milliseconds = request.param
        yield proxy


@pytest.fixture(scope="module")
def crew(size):
    with Crew(size(smoke=2, default=8)) as crew:
        yield crew


def requests(proxy, run, commits):
    """The same run, which tells how many requests a commit took, too."""

    def counted(*given):
        proxy.reset()
        told = run(*given)
        return {**(told or {}), "requests a commit": len(proxy.seen) / commits}

    return counted


@pytest.mark.parametrize("writers", WRITERS)
def bench_s3_appends(contest, size, crew, proxy, server, writers):
    if writers not in size(smoke=(1, 2), default=(1, 8), full=WRITERS):
        pytest.skip("as many writers as a longer run has")
    commits = size(smoke=4, default=20, full=20 * writers)
    options = server.options(proxy.endpoint)
    # The condition of a put is what it needs to commit at all.
    theirs = {**server.of_deltalake(proxy.endpoint), "conditional_put": "etag"}
    direct = server.options()

    def made(folder: str) -> None:
        refdelta.DeltaTable.create(folder, ROWS, configuration=RARELY, storage_options=direct)

    def read(folder: str):
        return refdelta.DeltaTable(folder, storage_options=direct).to_pyarrow_table()

    def engine(name, settings, hands, made, judge) -> Engine:
        race = Race(crew, hands, APPENDS, writers, commits, fresh=lambda: proxy.place().uri, made=made, judge=judge)
        return Engine(name, requests(proxy, race.run, commits), race.before, race.after, settings)

    mix = APPENDS
    engines = [
        engine(
            "refdelta",
            "handle kept, a checkpoint each 100 versions",
            partial(own, mix=mix, row_level=None, options=options),
            made,
            partial(judge_own, mix=mix, options=direct),
        ),
        engine(
            "deltalake",
            f"{deltalake.__version__}, handle kept, conditional puts, a checkpoint each 100 versions",
            lambda folder: partial(DeltalakeEngine().open, folder, mix, theirs),
            made,
            partial(judge_rows, read, mix=mix),
        ),
        engine(
            "floor",
            "two puts, the second conditional, by refdelta's client",
            lambda folder: partial(Floor, folder, options, _DATA),
            lambda _: None,
            lambda *_: [],
        ),
    ]
    contest.run(
        engines,
        rounds=2 if proxy.milliseconds else 3,
        warm=size(smoke=0, default=1),  # in it each process looks once what the store can do
        units=commits,
        unit="commit",
        goals=[ahead("deltalake"), *({1: [BOUND], 8: MANY}.get(writers, ()) if proxy.milliseconds else ())],
        latency_ms=proxy.milliseconds,
        writers=writers,
    )


def bench_s3_log_only(contest, size, proxy, server):
    """One writer commits prepared files, which nobody looks at: the bound is one round trip a commit."""
    commits = size(smoke=2, default=40, full=100)
    place = proxy.place()
    refdelta.DeltaTable.create(place.uri, SCHEMA, configuration=RARELY, storage_options=server.options())
    table = refdelta.DeltaTable(place.uri, storage_options=place.options)
    floor = Floor(proxy.place().uri, place.options, None)

    def commit_floor():
        for number in range(commits):
            floor.commit(number)

    engines = [
        Engine(
            "refdelta",
            requests(proxy, partial(commit_refdelta, table, commits), commits),
            settings="handle kept, a checkpoint each 100 versions",
        ),
        Engine("floor", requests(proxy, commit_floor, commits), settings="one conditional put, by refdelta's client"),
    ]
    contest.run(
        engines,
        rounds=3,
        warm=size(smoke=0, default=1),
        units=commits,
        unit="commit",
        goals=[BOUND] if proxy.milliseconds else [],
        latency_ms=proxy.milliseconds,
    )
