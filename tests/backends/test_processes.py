"""Ten processes that write to one table on S3 or Azure: what was acknowledged is there once, and nothing else is."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import tiers
from backends import workers
from backends.tables import VECTORS, files, held, objects, opened, paths, write
from row_judge import Judge, insert, rows
from tiers import budget

PROCESSES = 10
SEED = tiers.seed(20261121)
FULL = os.environ.get("REFDELTA_RACES") == "full"  # as `make search NAME=races` has it
APPENDS = {"s3_server": 50 if FULL else 10, "azure_server": 25 if FULL else 4}
STATEMENTS = {"s3_server": 20 if FULL else 4, "azure_server": 8 if FULL else 2}
SERIALIZABLE = {"delta.isolationLevel": "Serializable"}


@pytest.fixture(scope="module")
def pool():
    """Ten processes, all of them started: forks of one that has everything loaded, and no thread yet."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["backends.workers", "s3fs", "adlfs"])
    meeting = context.Barrier(PROCESSES, timeout=300)
    with pytest.MonkeyPatch.context() as patch:
        # Without this the server of forks would not find the tests, and each fork would load everything by itself.
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
        with ProcessPoolExecutor(PROCESSES, context, initializer=workers.meet, initargs=(meeting,)) as made:
            for ready in [made.submit(workers.begin_together) for _ in range(PROCESSES)]:
                ready.result()
            yield made


def told(pool, work, place, *arguments):
    """What each process says of its work."""
    futures = [pool.submit(work, place, process, *arguments) for process in range(PROCESSES)]
    return [future.result() for future in futures]


@pytest.mark.sample(test=1)
@pytest.mark.parametrize(("server", "appends"), APPENDS.items())
def test_appends_of_ten_processes_are_all_there_once(request, pool, server, appends):
    place = request.getfixturevalue(server).place()
    write(place, workers.ROWS.empty_table(), configuration={"delta.checkpointInterval": "10"})
    appends = appends if FULL else budget(appends, fewest=4)
    versions = [one for ones in told(pool, workers.append, place, appends) for one in ones]
    total = PROCESSES * appends
    # Each was told of a version of its own, and its version is the one that has its note.
    assert sorted(version for version, _ in versions) == list(range(1, total + 1))
    table = opened(place)
    assert {entry["version"]: entry.get("userMetadata") for entry in table.history()} == {**dict(versions), 0: None}
    assert table.version() == total
    print(f"{server}: {total} appends of {PROCESSES} processes")
    found = table.to_pyarrow_table()
    pairs = sorted(zip(found["process"].to_pylist(), found["number"].to_pylist(), strict=True))
    assert pairs == [(process, number) for process in range(PROCESSES) for number in range(appends)]
    # No writer left a file that the log does not name.
    assert files(place) == {*paths(place)} | {*paths(place, 0)}
    checkpoints = {key for key in objects(place, "_delta_log/") if key.endswith(".checkpoint.parquet")}
    assert checkpoints == {f"_delta_log/{version:020d}.checkpoint.parquet" for version in range(10, total + 1, 10)}


@pytest.mark.tier("nightly")
@pytest.mark.parametrize(("server", "statements"), STATEMENTS.items())
def test_statements_of_ten_processes_give_what_sqlite_has_after_the_same_in_the_order_of_the_log(
    request, pool, server, statements
):
    place = request.getfixturevalue(server).place()
    judge, rest = Judge(), range(20, 200)
    judge.run(insert(*rest))
    write(place, pa.concat_tables([rows(range(20), 0), rows(rest, 0)]), configuration=VECTORS | SERIALIZABLE)
    statements = statements if FULL else budget(statements, fewest=2)
    answers = told(pool, workers.change, place, SEED, statements)
    done = sorted((one for ones, _ in answers for one in ones), key=lambda one: one[0])
    assert [version for version, _, _ in done] == list(range(1, len(done) + 1))
    assert len(done) > PROCESSES
    assert opened(place).version() == len(done)
    noted = [entry.get("userMetadata") for entry in opened(place).history(len(done))]
    assert len({*noted}) == len(done)
    # At Serializable each version is what the statements up to it leave, one after the other.
    for version, name, arguments in done:
        judge.run(workers.statement(name, arguments))
        if version % 5 == 0 or version == len(done):
            assert held(place, version) == judge.rows(), version
    assert held(place) == judge.rows()
    lost = sum(conflicts for _, conflicts in answers)
    print(f"{server}: seed {SEED}, {len(done)} commits of {PROCESSES} processes, {lost} conflicts repeated")


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("server", ["s3_server", "azure_server"])
def test_a_handle_survives_a_fork(request, server):
    place, children = request.getfixturevalue(server).place(), 3
    write(place, workers.ROWS.empty_table())
    tests = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, workers.__file__, place.uri, json.dumps(place.options), str(children)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = opened(place).to_pyarrow_table()
    pairs = sorted(zip(found["process"].to_pylist(), found["number"].to_pylist(), strict=True))
    assert pairs == [*((child, number) for child in range(children) for number in range(3)), (children, 0)]
    assert opened(place).version() == len(pairs)
