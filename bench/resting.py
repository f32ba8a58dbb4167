"""The disk before a run: ext4 takes up to a hundred times as long to make a file where many have gone within the last
minutes, at most six of them, and the tables of the run before may have.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

QUICK, LONGEST = 100e-6, 400.0  # seconds of a creation, and of a rest


def rest(folder: Path) -> None:
    """Wait until a file is made in a folder as soon as usual, or until it is clear that this disk takes its time."""
    until, told = time.monotonic() + LONGEST, False
    while creation(folder) > QUICK and time.monotonic() < until:
        if not told:
            print("the disk is slow after many files were removed: waiting, six minutes at most", file=sys.stderr)
        told = True
        time.sleep(10)


def creation(folder: Path) -> float:
    """The median seconds that it takes to make a file in a new folder there. The files stay: removed ones slow down."""
    place, seconds = Path(tempfile.mkdtemp(dir=folder)), []
    for number in range(15):
        start = time.perf_counter()
        (place / str(number)).touch()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
