"""The environments of ``.ci/run`` and ``make floors``: which versions they have, and which tests they run."""

import re
import subprocess
import tomllib
from pathlib import Path
from unittest import mock

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


def test_a_part_has_files_of_every_folder_but_those_of_spark():
    files = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))
    found = environments.part(files, 4)
    assert len(files) // 6 < len(found) < len(files) // 4
    assert not [name for name in found if name.startswith(("tests/spark/", "tests/oracle/"))]


def test_the_newest_versions_are_not_held_back_by_the_pins_of_spark(monkeypatch):
    called = []
    monkeypatch.setattr(
        environments.subprocess, "run", lambda command, **_: called.append(command) or mock.Mock(returncode=0)
    )
    assert environments.main(["newest"]) == 0
    (install,) = [list(map(str, command)) for command in called if "install" in command and command[-1] != "uv"]
    assert "--exclude-newer" in install
    assert not [one for one in install if "spark" in one or "constraints" in one]
    assert environments.main(["--today", "newest"]) == 0
    assert "--exclude-newer" not in list(map(str, called[-2]))


def test_the_ci_runs_them():
    assert "make environments" in (ROOT / ".ci" / "run").read_text()
    scheduled = (ROOT / ".github" / "workflows" / "newest.yml").read_text()
    assert f"tool: [{', '.join(environments.RECIPES)}]" in scheduled
    assert "--today recipes" in scheduled


@pytest.mark.parametrize(("names", "tools"), [([], ["airflow", "dagster", "prefect", "dbt"]), (["dbt"], ["dbt"])])
def test_each_scheduler_is_installed_apart_and_its_recipe_is_run(monkeypatch, names, tools):
    called = []
    monkeypatch.setattr(
        environments.subprocess,
        "run",
        lambda command, **_: called.append(list(map(str, command))) or mock.Mock(returncode=0),
    )
    assert environments.main(["--install", "recipes", *names]) == 0
    assert not [one for one in called if "pytest" in one]
    environments.main(["recipes", *names])
    installs = [one for one in called if "--exclude-newer" in one]
    assert all(
        one[0].startswith(str(environments.recipes_folder(tool))) for tool, one in zip(tools * 2, installs, strict=True)
    )
    assert called[-1][-1] == " or ".join([*tools, "cron"])


@pytest.mark.parametrize(("chosen", "servers"), [("-k appends", False), ("-k 's3 or log'", True), ("", True)])
def test_benchmarks_install_the_servers_that_they_use(chosen, servers):
    done = subprocess.run(
        ["make", "-n", "-o", "setup", "bench", f"BENCH={chosen}"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ("servers/install.py" in done.stdout) is servers
