"""refdelta on a Spark cluster: executors, tasks and jobs are killed under its statements, drivers under its streams. By
hundreds: ``make search NAME=kills-cluster``.
"""

from __future__ import annotations

import os

import pytest

from cluster import sessions
from cluster.killed_merges import KilledMerges
from waiting import until

IN_CI = os.environ.get("CI", "").lower() in {"1", "true"}

pytestmark = [
    pytest.mark.tier("nightly"),
    pytest.mark.spark(apart=True),
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(1200),
]

# Spark gives a Python that it starts for a stream ten seconds, whatever else the machine does meanwhile.
TOO_SLOW = "Python worker failed to connect back"

# Of all rounds some in which much meets.
ROUNDS = (
    "vectors:source:slow",
    "vectors:merge:executor",
    "vectors:stream:fail",
    "vectors:update:cancel",
    "partitions:partitions:crash",
    "files:replace:interrupt",
    "files:append:doom",
)


@pytest.fixture(autouse=True)
def _can_start() -> None:
    if reason := sessions.missing():
        (pytest.fail if IN_CI else pytest.skip)(reason)


def test_statements_keep_every_row_once_while_tasks_executors_and_jobs_die(tmp_path):
    with sessions.Program("cluster.rounds", tmp_path, "20261126", *ROUNDS) as program:
        *told, done = [*program.lines()] or [None]
        assert program.process.wait() == 0, program.said()
    assert [one["round"] for one in told if "wrong" not in one] == [*ROUNDS], told
    assert [one for one in told if one["left"]] == []
    assert done == {"rounds": len(ROUNDS), "tables": 3}
    ended = {one["round"]: one["ended"].split(":")[0] for one in told}
    assert ended.pop("files:append:doom") != "committed"
    struck = {one["round"].split(":")[2] for one in told if one["struck"]}
    assert struck >= {"slow", "fail", "crash", "doom"}
    assert not sessions.processes(program.session)


def test_each_batch_of_a_stream_is_merged_once_however_often_its_driver_dies(tmp_path):
    merges = KilledMerges(tmp_path / "merges", 20261126)
    merges.come(3)
    while merges.kills < 2:
        merges.come(1)
        merges.kill()
        merges.disturb()
    merges.finish()


def test_a_source_of_a_merge_that_is_larger_than_the_drivers_memory_is_not_collected(tmp_path):
    memory = 512 << 20
    small, large = 10_000, 550_000
    with sessions.Program("cluster.large_source", tmp_path, "512m", str(small), str(large)) as program:
        told = [*program.lines()]
        assert program.process.wait() == 0, program.said()
    assert [one["source"] for one in told] == [small << 10, large << 10]
    assert told[1]["source"] > memory
    for one, rows in zip(told, (small, large), strict=True):
        assert one["metrics"]["num_source_rows"] == rows
    assert told[1]["python"] - told[0]["python"] < 64 << 20


def test_the_pipeline_has_the_right_rows_after_it_has_lost_an_executor(tmp_path):
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        with pipeline(folder) as program:
            commits = folder / "scratch" / "refdelta" / "silver" / "lineitem" / "_delta_log"
            # The streams are merged then.
            merged = commits / f"{1:020}.json"
            until(lambda one=program.process, file=merged: one.poll() is not None or file.exists(), seconds=900)
            alive = sessions.executors(program.session)
            sessions.kill(*alive[:1])
            shown, ended = program.process.stdout.read(), program.process.wait()
        if TOO_SLOW not in program.said():
            break
    assert ended == 0, program.said()
    assert len(alive) == 2
    assert shown.count("DuckDB") == 2  # silver/orders and silver/lineitem have the rows that it has


def pipeline(folder):
    path = os.pathsep.join([str(sessions.TESTS.parent / "bench"), os.environ.get("PYTHONPATH", "")])
    small = ("--scale", "0.002", "--refreshes", "1", "--memory", "1g")
    return sessions.Program("cluster.pipeline_on", folder, *small, environment={"PYTHONPATH": path})
