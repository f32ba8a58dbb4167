"""delta-rs' own tests of its Python package, on ``refdelta.compat.deltalake``.

    python tests/compat/delta_rs.py FOLDER [--deltalake] [arguments of pytest]

``FOLDER`` is ``python`` of a checkout of delta-rs, tag ``python-v1.6.6``, or of deltalake's source distribution. Its
tests import ``deltalake``; here that name is the compat module. At the end, failures are counted by their reasons,
which are in ``delta_rs_reasons.toml``. With ``--deltalake`` the tests run on deltalake itself.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from refdelta import compat

REASONS = Path(__file__).with_name("delta_rs_reasons.toml")


def reason_of(test: str) -> str | None:
    """The reason for which a test fails, by the longest beginning of its name that is listed."""
    listed = tomllib.loads(REASONS.read_text())["reason"]
    found = [(len(name), each["text"]) for each in listed for name in each["tests"] if test.startswith(name)]
    return max(found)[1] if found else None


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Count the failures by their reasons, and name those without one."""
    failed = [report for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, [])]
    names = [report.nodeid.removeprefix("tests/") for report in failed]
    counts = Counter(reason_of(name) for name in names)
    terminalreporter.section("failures by reason")
    for reason, count in counts.most_common():
        terminalreporter.write_line(f"{count:4} {reason or 'no reason is listed'}")
    for name in names:
        if reason_of(name) is None:
            terminalreporter.write_line(f"     {name}")


if __name__ != "__main__":  # pytest imports this module as a plugin, before the tests' conftest.py
    compat.install()
else:
    import pytest

    folder = Path(sys.argv[1]).resolve()
    sys.path.insert(0, str(Path(__file__).parent))
    os.chdir(folder)
    given = sys.argv[2:]
    plugin = [] if "--deltalake" in given else ["-p", "delta_rs"]
    options = ["-q", "-c", os.devnull, f"--rootdir={folder}", *plugin, "-p", "no:cacheprovider"]
    sys.exit(pytest.main([*options, *([one for one in given if one != "--deltalake"] or ["tests"])]))
