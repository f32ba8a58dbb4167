"""The environments of ``.ci/run`` and ``make floors``: which versions they have, and which tests they run."""

import re
import subprocess
import tomllib
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import pytest

from by_path import loaded

ROOT = Path(__file__).parents[2]
environments = loaded(ROOT / ".ci" / "environments.py")


def test_the_floors_are_all_versions_that_are_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    floors = set(environments.floors())
    for wanted in project["tool"]["hatch"]["metadata"]["hooks"]["custom"]["dependencies"]:
        name, lowest = re.fullmatch(r"([\w-]+)>=([\d.]+)(?:,<[\d.]+)?", wanted).groups()
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


def test_libraries_are_installed_without_deltalake_and_fail_by_their_scripts(monkeypatch, capsys):
    called, overrides = [], []

    def run(command, **_options):
        command = list(map(str, command))
        called.append(command)
        if "--override" in command:
            overrides.append(Path(command[command.index("--override") + 1]).read_text())
        failed = command[-3:] == ["dlt", "s3://tables/1/dlt", "{}"]
        return mock.Mock(returncode=int(failed), stdout="noise\npolars 2: 6 commits\n", stderr="refused\n")

    server = mock.Mock(place=lambda name: mock.Mock(uri=f"s3://tables/1/{name}"), of_deltalake=dict)
    monkeypatch.setattr(environments, "s3_server", lambda: nullcontext(server))
    monkeypatch.setattr(environments.subprocess, "run", run)
    assert environments.main(["libraries", "polars"]) == 0
    assert capsys.readouterr().out == "polars 2: 6 commits\npolars 2: 6 commits on S3\n"
    assert overrides == ["deltalake; sys_platform == 'none'\n"]
    assert [command[-3:] for command in called if "refdelta.compat" in command] == [
        ["-m", "refdelta.compat", "install"]
    ]
    assert environments.main(["--today", "libraries", "dlt"]) == 1
    assert capsys.readouterr().out == "polars 2: 6 commits\nrefused\n on S3\n"
    monkeypatch.setattr(environments, "s3_server", nullcontext)
    assert environments.main(["--today", "libraries", "dlt"]) == 0
    assert capsys.readouterr().out == "polars 2: 6 commits\n"
    installs = [command for command in called if "--override" in command]
    assert ["--exclude-newer" in command for command in installs] == [True, False, False]


@pytest.mark.parametrize(
    ("page", "extras", "others"),
    [
        ("No line.", set(), set()),
        ("`pip install refdelta`", set(), set()),
        (
            "Say `pip install '.[cli]'`, or `pip install\n'refdelta[s3,adls]' pandas`.",
            {"cli", "s3", "adls"},
            {"pandas"},
        ),
        ('```\npip install --target package "$(ls dist/refdelta-*.whl)[s3]"\n```\n', {"s3"}, set()),
        ('```\npip install dist/refdelta_core-*.whl "$(ls dist/refdelta-*.whl)[s3]"\n```\n', {"s3"}, set()),
        ("```\npip install '.[cli]' # a remark\n```\n", {"cli"}, set()),
    ],
)
def test_a_page_installs_what_its_lines_say(page, extras, others):
    assert environments.installed_by(page) == (extras, others)


def test_every_page_with_blocks_is_run_with_what_it_installs():
    found = {
        page.relative_to(ROOT).as_posix(): installed
        for installed, pages in environments.pages().items()
        for page in pages
    }
    assert found["docs/guide/watching-commits.md"] == ({"opentelemetry"}, {"opentelemetry-sdk"})
    assert found["docs/guide/changing-rows.md"] == (set(), set())
    with_blocks = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs/guide").glob("*.md"))
        if "```python" in path.read_text() or "```console" in path.read_text()
    }
    assert set(found) == with_blocks
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert all(named <= set(extras) for named, _ in found.values())


def test_the_ci_runs_them():
    assert "make environments" in (ROOT / ".ci" / "run").read_text()
    scheduled = (ROOT / ".github" / "workflows" / "newest.yml").read_text()
    assert f"tool: [{', '.join(environments.RECIPES)}]" in scheduled
    assert "--today recipes" in scheduled
    recipe = (ROOT / "Makefile").read_text().partition("\nenvironments:")[2].partition("\n\n")[0]
    runs = [re.sub(r"^--part \d ", "", line.partition("environments.py ")[2]) for line in recipe.splitlines()[1:]]
    assert runs == [
        "newest",
        "floors",
        "--install recipes dagster dbt",
        "documents",
    ]


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
        str(environments.recipes_folder(tool)) in one[one.index("--python") + 1]
        for tool, one in zip(tools * 2, installs, strict=True)
    )
    assert called[-1][-1] == " or ".join([*tools, "cron"])


@pytest.mark.parametrize(("chosen", "servers"), [("-k appends", False), ("-k 's3 or log'", True), ("", True)])
def test_benchmarks_install_the_servers_that_they_use(chosen, servers):
    done = subprocess.run(
        ["make", "-n", "-o", "setup", "bench", f"BENCH={chosen}"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ("servers/install.py" in done.stdout) is servers
