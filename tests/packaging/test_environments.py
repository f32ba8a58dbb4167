"""The environments of ``.ci/run`` and ``make floors``: which versions they have, and which tests they run."""

import datetime as dt
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from by_path import loaded

ROOT = Path(__file__).parents[2]
environments = loaded(ROOT / ".ci" / "environments.py")


def test_the_floors_are_all_versions_that_are_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    floors = set(environments.floors())
    for wanted in project["dependencies"]:
        name, lowest = re.fullmatch(r"([\w-]+)>=([\d.]+)", wanted).groups()
        assert f"{name}=={lowest}" in floors
    assert "click==8.2" in floors


def test_some_days_have_all_files_of_tests_but_those_of_spark():
    files = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))
    turns = [environments.turn(files, 4, ["floors", "3.13"], dt.date(2026, 12, day)) for day in range(1, 9)]
    assert [name for name, _ in turns[:2]] in (["floors", "3.13"], ["3.13", "floors"])
    for environment in ("floors", "3.13"):
        parts = [part for name, part in turns if name == environment]
        seen = [name for part in parts for name in part]
        assert len(seen) == len(set(seen))
        assert {name.split("/")[1] for name in set(files) - set(seen)} == {"spark", "oracle", "cli"}
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_the_ci_runs_them():
    assert "make environments" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize(("chosen", "servers"), [("-k appends", False), ("-k 's3 or log'", True), ("", True)])
def test_benchmarks_install_the_servers_that_they_use(chosen, servers):
    done = subprocess.run(
        ["make", "-n", "-o", "setup", "bench", f"BENCH={chosen}"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ("servers/install.py" in done.stdout) is servers
