"""Work behind a commit: it is done in order and before the process ends, and nobody forks in the middle of it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from refdelta import behind


def test_work_of_one_table_is_done_in_order_and_that_of_others_beside_it():
    first, done = threading.Event(), []

    def slow():
        first.wait(30)
        done.append("a1")

    behind.later("a", slow)
    behind.later("b", lambda: done.append("b"))
    behind.settle("b")
    assert done == ["b"]
    threading.Timer(0.05, first.set).start()
    behind.later("a", lambda: done.append("a2"))  # waits for the first
    behind.settle()
    assert done == ["b", "a1", "a2"]
    assert not behind._under_way


def test_no_fork_comes_in_between():
    done = []
    behind.later("a", lambda: done.append(threading.Event().wait(0.1)))
    child = os.fork()
    if not child:
        status = 1
        try:
            behind.later("a", lambda: done.append("child"))
            behind.settle()
            status = 0 if done == [False, "child"] else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert done == [False]


def test_a_process_that_ends_has_done_it_and_takes_more_while_it_ends():
    code = """
import atexit, time
from refdelta import behind
atexit.register(lambda: behind.later("t", lambda: print("late")))
behind.later("t", lambda: (time.sleep(0.2), print("done", flush=True)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.split(), done.stderr) == (["done", "late"], "")
