"""Work behind a commit: it is bounded, done before the process ends, and nobody forks in the middle of it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

import forks
from refdelta.transaction import background
from waiting import until


def test_work_of_one_table_waits_for_no_other_and_is_bounded():
    go, done, begun = threading.Event(), [], []

    def slow():
        begun.append(1)
        go.wait(120)
        done.append("slow")

    for _ in range(background.CHECKSUM.side_by_side):
        background.run("a", background.CHECKSUM, slow)
    background.run("b", background.CHECKSUM, lambda: done.append("b"))
    background.settle("b")
    assert done == ["b"]
    one_more = threading.Thread(target=background.run, args=("a", background.CHECKSUM, slow))
    one_more.start()
    one_more.join(0.05)
    assert one_more.is_alive(), "it waits for one of the others"
    assert len(begun) == background.CHECKSUM.side_by_side
    go.set()
    one_more.join()
    background.settle()
    assert done == ["b", *["slow"] * (background.CHECKSUM.side_by_side + 1)]
    assert not background._tasks


def test_one_publication_of_a_table_runs_and_the_newest_waits():
    go, begun, done = threading.Event(), threading.Event(), []

    def slow():
        begun.set()
        go.wait(120)
        done.append(0)

    background.run("a", background.PUBLICATION, slow)
    assert begun.wait(120)
    for number in (1, 2, 3):
        background.run("a", background.PUBLICATION, lambda number=number: done.append(number))
    background.run("b", background.PUBLICATION, lambda: done.append("b"))
    background.settle("b")
    assert done == ["b"]
    go.set()
    background.settle("a")
    assert done == ["b", 0, 3]
    assert not background._lanes


def test_a_publication_that_fails_ends_none_of_the_others(caplog):
    def fails():
        raise SystemExit

    background.run("a", background.PUBLICATION, fails)
    background.settle("a")
    assert "a task of a failed" in caplog.text
    done = []
    background.run("a", background.PUBLICATION, lambda: done.append(1))
    background.settle("a")
    assert done == [1]


@pytest.mark.tier("test")
def test_no_fork_comes_in_between():
    forks.alone(_fork_beside_a_task)


def _fork_beside_a_task():
    done = []
    # Only the wait of the fork for this task ends it.
    background.run("a", background.CHECKSUM, lambda: done.append(until(background.is_awaited)))
    child = os.fork()
    if not child:
        status = 1
        try:
            background.run("a", background.CHECKSUM, lambda: done.append("child"))
            background.settle()
            status = 0 if done == [True, "child"] else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert done == [True]


def test_work_that_goes_on_while_the_process_ends_may_begin_threads():
    """So does a request to a store, which looks for the address of a host."""
    code = """
import threading
from concurrent.futures import ThreadPoolExecutor
from refdelta.transaction import background
def work():
    while not background.is_awaited():  # by the end of the process
        threading.Event().wait(0.01)
    print(ThreadPoolExecutor(1).submit(lambda: "done").result(), flush=True)
background.run("t", background.CHECKSUM, work)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.split(), done.stderr) == (["done"], "")


def test_a_process_that_ends_has_done_it_and_takes_more_while_it_ends():
    code = """
import atexit, threading
from refdelta.transaction import background
def work():
    while not background.is_awaited():  # by the end of the process
        threading.Event().wait(0.01)
    print("done", flush=True)
atexit.register(lambda: background.run("t", background.CHECKSUM, lambda: print("late")))
background.run("t", background.CHECKSUM, work)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.split(), done.stderr) == (["done", "late"], "")
