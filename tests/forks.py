"""A process of its own for what a test does with forks.

A fork of a process copies the locks of all its libraries as they are, and their threads not at all. One that has run
thousands of tests, and engines with runtimes of their own, gives a child that can wait for ever, for instance when it
collects garbage that one of them has left.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

_CALL = "import pickle, sys; function, arguments = pickle.load(sys.stdin.buffer); function(*arguments)"


def alone(function: Callable[..., None], *arguments: Any) -> None:
    """Call a function of a module of the tests in a new Python. What it raises there fails the test here.

    The test is skipped where there are no forks.
    """
    if not hasattr(os, "fork"):
        pytest.skip("there is no fork")
    done = subprocess.run(
        [sys.executable, "-c", _CALL],
        input=pickle.dumps((function, arguments)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert not done.returncode, done.stdout.decode()
