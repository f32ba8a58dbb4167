"""A plugin of pytest that verifies each table that a test leaves in its folder.

``pytest -p verify.every_table tests/api``, with ``tests`` on the path.

Tests that break tables on purpose leave findings, so these are listed at the end and fail nothing.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from refdelta.errors import DeltaError
from refdelta.verifier.run import verify

FOUND: list[tuple[str, str]] = []
TABLES: Counter[str] = Counter()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if isinstance(folder, Path):
        for log in sorted(folder.rglob("_delta_log")):
            _look(item.nodeid, log.parent)
    return (yield)


def _look(test, table):
    TABLES["tables"] += 1
    try:
        report = verify(table, sample=None)
    except (DeltaError, OSError) as error:
        FOUND.append((test, f"not verified: {error}"))
        return
    FOUND.extend((test, str(finding)) for finding in report.findings)


def pytest_terminal_summary(terminalreporter):
    terminalreporter.section("tables that were verified")
    terminalreporter.line(f"{TABLES['tables']} tables, {len(FOUND)} findings")
    for test, text in FOUND:
        terminalreporter.line(f"{test}: {text}")
