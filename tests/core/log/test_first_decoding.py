"""No two threads are the first ones that decode to a struct: msgspec ends the process then.

Tests of core.log.codec, catalog.delta_api.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import refdelta

PACKAGE = Path(refdelta.__file__).parent

CONVERTED = {
    *("core/log/codec.py", "core/log/lean.py", "core/log/segment.py", "core/rows/relocation.py"),
    *("engine/log/checkpoint.py", "operations/stream/offsets.py", "cli/inspect.py"),
}
"""Modules that convert, to structs that have a decoder since they were imported. The command line has one thread."""

FIRST = """
import sys, threading

import msgspec

from refdelta.catalog.delta_api import decoder_of

sys.setswitchinterval(1e-6)


def decode(kind, barrier):
    barrier.wait()
    assert decoder_of(kind).decode(b'{"one": {"a": 1}}').one.a == 1


for _ in range(300):
    inner = msgspec.defstruct("Inner", [("a", int), ("b", str, "")])
    optional = dict[str, inner] | None
    outer = msgspec.defstruct("Outer", [("one", inner), ("more", list[inner], []), ("by", optional, None)])
    barrier = threading.Barrier(8)
    threads = [threading.Thread(target=decode, args=(outer, barrier)) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
"""


def test_decoders_are_made_once_and_not_at_the_first_use():
    for path in PACKAGE.rglob("*.py"):
        name, text = path.relative_to(PACKAGE).as_posix(), path.read_text()
        own = [found for found in re.findall(r"msgspec\.json\.decode\((.*)", text) if "type=" in found]
        assert all("type=list[str]" in found or "type=dict[str, Any]" in found for found in own), name
        assert name in CONVERTED or "msgspec.convert(" not in text, name


@pytest.mark.tier("test")
def test_eight_threads_begin_with_the_same_body():
    """By ``msgspec.json.decode(type=)`` it ends with a segmentation fault, each time."""
    done = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
