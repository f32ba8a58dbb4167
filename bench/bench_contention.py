"""Writers that commit to one table of a local disk at once: commits per second, aborts, latencies.

The mixes are those of ``refdelta bench`` (:mod:`refdelta.racing.mixes`): appends of ten rows; deletes of single rows of
one file of 100,000; updates of the same ten rows; updates of single rows of eight files, while one more writer compacts
over and over. Writers are processes that keep a handle, all ready before the clock starts. An aborted statement is
done again after a wait at random, by any engine; the latency of a commit is from its first try until it was
acknowledged. Behind each race the rows are compared with what was acknowledged, for refdelta the log, too; an abort of
refdelta's where the matrix has none fails the benchmark.

The second floor is refdelta's own: one writer of the same mix, in the same round.
"""

from __future__ import annotations

import itertools
from functools import partial

import deltalake
import pytest
from contest import Engine, Goal, ahead
from racing import (
    Race,
    judge_own,
    judge_rows,
    own,
    warm,
)

import refdelta
from refdelta.racing.crew import Crew
from refdelta.racing.engines.of_delta_spark import DeltaSparkEngine
from refdelta.racing.engines.of_deltalake import DeltalakeEngine
from refdelta.racing.mixes import APPENDS, MIXES
from refdelta.racing.throughput import prepare

WRITERS = (1, 2, 4, 8)
ALONE = "refdelta, one writer"
UNSYNCED = {"fsync": "false"}


@pytest.fixture(scope="module")
def crew(size):
    """Eight processes and the one that compacts, which have imported what both engines need."""
    with Crew(size(smoke=3, default=9)) as crew:
        crew.ready([warm] * crew.size)
        crew.go(tasks=0)
        yield crew


@pytest.fixture(scope="module")
def threads():
    """The same as threads, for the engine whose transactions are all in one Java process."""
    with Crew(9, threads=True) as crew:
        yield crew


@pytest.mark.parametrize("writers", WRITERS)
@pytest.mark.parametrize("mix", ["appends", "rows", "same-rows", "optimize"])
def bench_contention(contest, size, folder, crew, request, mix, writers):
    if writers > size(smoke=2, default=8):
        pytest.skip("more writers than a smoke run has")
    mix = MIXES[mix]
    commits = size(smoke=4, default=64 if mix is APPENDS else 24, full=200)
    numbers = itertools.count()

    def fresh() -> str:
        return str(folder / f"t{next(numbers)}")

    def refdelta_engine(name: str, settings: str, row_level=None, options=UNSYNCED, writers=writers) -> Engine:
        calm = mix.never_aborts and row_level is None
        race = Race(
            crew,
            partial(own, mix=mix, row_level=row_level, options=options),
            mix,
            writers,
            commits,
            fresh=fresh,
            made=partial(prepare, mix=mix, storage_options=options),
            judge=partial(judge_own, mix=mix, options=options),
            calm=calm,
        )
        return Engine(name, race.run, race.before, race.after, settings)

    engines = [refdelta_engine("refdelta", "no fsync, handle kept")]
    if writers > 1:
        engines.append(refdelta_engine(ALONE, "no fsync", writers=1))
    if mix is APPENDS:
        engines.append(refdelta_engine("refdelta, fsync", "as by default", options={}))
    else:
        engines.append(refdelta_engine("refdelta, by files", "no fsync, row-level off", row_level=False))
    engines.append(_deltalake(crew, mix, writers, commits, fresh))
    if size(smoke=False, default=False, full=True) and (spark := request.getfixturevalue("spark")) is not None:
        engines.append(_on_spark(spark, request.getfixturevalue("threads"), mix, writers, commits, fresh))
    contest.run(
        engines,
        rounds=3,
        warm=0,
        units=commits,
        unit="commit",
        goals=[ahead("deltalake"), Goal("0.8 of the throughput of one writer", 1 / 0.8, rival=ALONE)],
        note="all engines repeat what was aborted, after a wait at random",
        mix=str(mix),
        writers=writers,
    )


def _deltalake(crew, mix, writers, commits, fresh) -> Engine:
    def read(folder: str):
        return refdelta.DeltaTable(folder).to_pyarrow_table()

    engine = DeltalakeEngine()
    race = Race(
        crew,
        lambda folder: partial(engine.open, folder, mix, {}),
        mix,
        writers,
        commits,
        fresh=fresh,
        made=lambda folder: engine.prepare(folder, mix, {}),
        judge=partial(judge_rows, read, mix=mix),
    )
    settings = f"{deltalake.__version__}, no fsync, handle kept, its own retries; it writes no deletion vectors"
    return Engine("deltalake", race.run, race.before, race.after, settings)


def _on_spark(spark, threads, mix, writers, commits, fresh) -> Engine:
    DeltaSparkEngine.session = spark
    engine = DeltaSparkEngine()
    all_commits, commits = commits, min(commits, 32)
    race = Race(
        threads,
        lambda folder: partial(engine.open, folder, mix, {}),
        mix,
        writers,
        commits,
        fresh=fresh,
        made=lambda folder: engine.prepare(folder, mix, {}),
        judge=partial(judge_rows, lambda folder: engine.rows(folder, {}), mix=mix),
    )
    settings, share = "threads of one Java process, SQL", commits / all_commits
    return Engine("delta-spark", race.run, race.before, race.after, settings, every=3, share=share)
