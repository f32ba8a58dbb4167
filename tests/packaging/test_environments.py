"""The environments of noxfile.py: which versions they have, and which tests they run."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from unittest import mock

import pytest

from by_path import loaded

ROOT = Path(__file__).parents[2]
noxfile = loaded(ROOT / "noxfile.py")
nightly = loaded(ROOT / ".ci" / "nightly.py")


def test_the_lowest_versions_are_all_that_are_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found = set(noxfile.lowest())
    for wanted in project["tool"]["hatch"]["metadata"]["hooks"]["custom"]["dependencies"]:
        name, version = re.match(r"([\w-]+)>=([\d.]+)", wanted).groups()
        assert f"{name}=={version}" in found
    assert {"click==8.2", "psycopg==3.2.1"} <= found


def test_a_part_has_files_of_every_folder_but_those_of_spark():
    files = list((ROOT / "tests").rglob("test_*.py"))
    found = noxfile.part(4)
    assert len(files) // 6 < len(found) < len(files) // 4
    assert not [name for name in found if name.startswith(("tests/spark/", "tests/oracle/"))]


def session(*arguments, tmp="unused"):
    """A session with these arguments, which installs and runs nothing."""
    return mock.Mock(posargs=list(arguments), create_tmp=lambda: str(tmp))


@pytest.mark.parametrize(("arguments", "pinned"), [([], True), (["--today", "--part", "8"], False)])
def test_the_newest_versions_are_not_held_back_by_the_pins_of_spark(arguments, pinned):
    here = session(*arguments)
    noxfile.newest.func(here)
    installed = here.install.call_args.args
    assert ("--exclude-newer" in installed) is pinned
    assert not [one for one in installed if "spark" in one or "constraints" in one]


@pytest.mark.parametrize(
    ("arguments", "files"),
    [
        (["--part", "8", "-x"], noxfile.part(8)),
        (["tests/api/test_write.py::test_x"], ["tests/api/test_write.py::test_x"]),
        ([], noxfile.part(1)),
    ],
)
def test_an_environment_runs_a_part_of_the_tests_or_those_of_a_path(arguments, files):
    here = session(*arguments)
    noxfile.newest.func(here)
    run = here.run.call_args.args
    assert run[:5] == ("python", "-m", "pytest", "--tier", "check")
    assert [one for one in run if one.startswith("tests/")] == files
    assert ("-x" in run) is ("-x" in arguments)


def test_each_library_has_a_script():
    assert {file.stem for file in (ROOT / "tests/compat/libraries").glob("*.py")} == set(noxfile.LIBRARIES)


def test_libraries_are_installed_without_deltalake_and_with_refdelta_in_its_place(tmp_path):
    here = session(tmp=tmp_path)
    noxfile.libraries.func(here, "dlt")
    installed = here.install.call_args.args
    override = Path(installed[installed.index("--override") + 1])
    assert override.read_text() == "deltalake; sys_platform == 'none'\n"
    assert {*noxfile.LIBRARIES["dlt"]} <= {*installed}
    assert here.run_install.call_args.args == ("python", "-m", "refdelta.compat", "install")


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
    assert noxfile.installed_by(page) == (extras, others)


def test_every_page_with_blocks_is_run_with_what_it_installs():
    found = {
        page.relative_to(ROOT).as_posix(): installed for installed, pages in noxfile.pages().items() for page in pages
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


def test_the_page_of_recipes_has_each_scheduler_that_is_installed_for_it():
    page = (ROOT / "docs/guide/recipes.md").read_text()
    titles = {title.lower() for title in re.findall(r"^## (.*)$", page, re.MULTILINE)}
    assert titles == {"the jobs", *noxfile.RECIPES, "aws lambda"}


@pytest.mark.tier("test")
def test_the_sessions_that_are_named_elsewhere_are_there():
    listed = subprocess.run(
        [sys.executable, "-m", "nox", "-l"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    there = set(re.findall(r"^[-*] (\S+)", listed, re.MULTILINE))
    there |= {re.split(r"[(-]", name)[0] for name in there}
    named = set()
    for file in ("Makefile", ".ci/run", "CONTRIBUTING.md", "docs/guide/other-libraries.md"):
        found = re.findall(r"\bnox (?:--\S+ )*-s ([^`\n]+?)(?= -|`| \$|$)", (ROOT / file).read_text(), re.MULTILINE)
        named |= {name for names in found if "$" not in names for name in shlex.split(names)}
    assert {"newest", "floors", "documents"} <= named | nightly.ENVIRONMENTS.keys() <= there


@pytest.mark.parametrize(("chosen", "servers"), [("-k appends", False), ("-k 's3 or log'", True), ("", True)])
def test_benchmarks_install_the_servers_that_they_use(chosen, servers):
    done = subprocess.run(
        ["make", "-n", "-o", "setup", "bench", f"BENCH={chosen}"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ("servers/install.py" in done.stdout) is servers
