"""Each table that a test leaves in its folder is verified, and the test fails where the table is not sound.

The tests of ``tests/api`` have it always, log only (in the tier ``check`` a third of them); ``make search NAME=verify``
has it read the data, too. Tests that leave a
table that they have broken, or written as another engine would have, are marked ``breaks_tables``. Any other tests have
it by ``pytest -p verifier.every_table``.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest

import tiers
from refdelta.errors import DeltaError
from refdelta.verifier.run import verify

SAMPLE = None if os.environ.get("REFDELTA_VERIFY") == "full" else 0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    result = yield
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if isinstance(folder, Path) and _chosen(item.nodeid) and item.get_closest_marker("breaks_tables") is None:
        found = [text for log in sorted(folder.rglob("_delta_log")) for text in _findings(log.parent)]
        if found:
            pytest.fail("a table that this test leaves is not sound:\n" + "\n".join(found), pytrace=False)
    return result


def _chosen(name):
    """The same tests in each run."""
    return tiers.chosen() != tiers.CHECK or zlib.crc32(name.encode()) % 3 == 0


def _findings(table):
    try:
        report = verify(table, sample=SAMPLE)
    except (DeltaError, OSError) as error:
        return [f"{table.name} cannot be verified: {error}"]
    return [f"{table.name}: {finding}" for finding in report.findings]
