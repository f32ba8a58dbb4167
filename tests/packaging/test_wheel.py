"""What users install: everything is in it, nothing else is, and it works where nothing else is installed."""

import email
import json
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import refdelta

ROOT = Path(__file__).parents[2]
CORE = ROOT / "refdelta" / "core"
PAGE_BLOCKS = ROOT / "tests" / "packaging" / "page_blocks.py"
pytestmark = pytest.mark.xdist_group("packaging")

ROUND_TRIP = """
import pyarrow as pa
import refdelta
from refdelta import DeltaTable, write_deltalake

assert "site-packages" in refdelta.__file__, refdelta.__file__
write_deltalake("table", pa.table({"id": [1, 2, 3], "name": ["a", "b", None]}))
write_deltalake("table", pa.table({"id": [4], "name": ["d"]}), mode="append")
table = DeltaTable("table")
assert table.version() == 1
assert sorted(table.to_pyarrow_table(filters="id > 2").column("id").to_pylist()) == [3, 4]
print("works")
"""

TYPED = """
import refdelta
from refdelta_storage import Store

table = refdelta.DeltaTable("table")
store: Store = table.store
reveal_type(table.version())
table.no_such_method()
"""


OF_THE_PROJECT = {"pyproject.toml", "README.md", "LICENSE"}
"""The files beside the modules of the core that make it a distribution."""

ALONE = """
import json, sys
from importlib.metadata import distributions
import refdelta.core.commit
print(json.dumps([
    sorted(found.metadata["Name"] for found in distributions()),
    sorted(name for name in sys.modules if name.startswith("refdelta") and not name.startswith("refdelta.core")),
    hasattr(sys.modules["refdelta"], "DeltaTable"),
]))
"""


def contents(wheel):
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def metadata(wheel):
    archive = zipfile.ZipFile(wheel)
    return email.message_from_bytes(
        archive.read(next(name for name in archive.namelist() if name.endswith("/METADATA")))
    )


def sources():
    for top, folder in (("refdelta", ROOT / "refdelta"), ("refdelta_storage", ROOT / "storage" / "refdelta_storage")):
        for path in folder.rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                yield f"{top}/{path.relative_to(folder).as_posix()}"


@pytest.mark.tier("test")
def test_the_wheels_hold_both_packages_with_their_types_and_nothing_else(built, built_core):
    names, core = contents(built.wheel), contents(built_core.wheel)
    assert names | core == set(sources()) - {f"refdelta/core/{name}" for name in OF_THE_PROJECT}
    assert {"refdelta/py.typed", "refdelta_storage/py.typed"} <= names
    assert "refdelta/core/py.typed" in core


@pytest.mark.tier("test")
def test_no_file_is_in_two_wheels(built, built_core):
    names, core = contents(built.wheel), contents(built_core.wheel)
    assert {name for name in names | core if name.startswith("refdelta/core/")} == core
    assert not names & core


@pytest.mark.tier("test")
def test_the_wheels_carry_the_licence(built, built_core):
    for one in (built, built_core):
        archive = zipfile.ZipFile(one.wheel)
        licence = next(name for name in archive.namelist() if name.endswith("licenses/LICENSE"))
        assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()


@pytest.mark.tier("test")
def test_the_wheels_have_one_version_and_refdelta_needs_the_core_of_its_own(built, built_core):
    whole, core = metadata(built.wheel), metadata(built_core.wheel)
    assert whole["Version"] == core["Version"] == refdelta.__version__
    assert f"refdelta-core=={refdelta.__version__}" in whole.get_all("Requires-Dist")
    assert {re.match(r"[\w-]+", one)[0] for one in core.get_all("Requires-Dist")} == {"msgspec", "numpy", "pyroaring"}
    for one in (whole, core):
        assert one["Author"]
        assert len(one.get_all("Project-URL")) == 5


def test_both_project_files_say_the_same():
    told = [tomllib.loads((folder / "pyproject.toml").read_text()) for folder in (ROOT, CORE)]
    whole, core = (one["project"] for one in told)
    hook = told[0]["tool"]["hatch"]["metadata"]["hooks"]["custom"]
    assert set(core["dependencies"]) <= set(hook["dependencies"])
    same = ("requires-python", "license", "authors")
    assert [core[name] for name in same] == [whole[name] for name in same]
    assert (CORE / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.tier("test")
def test_the_source_distribution_holds_what_it_takes_to_work_on_it(built):
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    expected = {"Makefile", "constraints.txt", "README.md", "LICENSE", "pyproject.toml", ".ci/run", "tests/conftest.py"}
    expected |= {"noxfile.py", ".pre-commit-config.yaml", ".mdformat.toml"}
    assert expected <= names
    assert not [name for name in names if name.startswith((".venv", ".cache", "demo-table"))]
    assert {"refdelta/core/pyproject.toml", "refdelta/core/README.md"} <= names


@pytest.mark.tier("nightly")
def test_the_core_works_alone_in_an_empty_environment(core_alone):
    done = core_alone.run("-W", "error", "-c", ALONE)
    assert done.stderr == ""
    installed, ours, whole = json.loads(done.stdout)
    assert installed == ["msgspec", "numpy", "pyroaring", "refdelta-core"]
    assert ours == ["refdelta"]
    assert not whole


@pytest.mark.tier("nightly")
def test_an_engine_runs_on_the_core_alone(core_alone):
    done = core_alone.run("-W", "error", ROOT / "docs" / "examples" / "foreign_engine.py", "shop.sqlite")
    assert (done.returncode, done.stderr) == (0, "")
    versions = re.findall(r"^version (\d+)$", done.stdout, re.MULTILINE)
    assert len(versions) > 20
    assert list(map(int, versions)) == list(range(len(versions)))


@pytest.mark.tier("nightly")
def test_the_readme_of_the_core_runs_on_the_core_alone(core_alone):
    done = core_alone.run("-P", PAGE_BLOCKS, CORE / "README.md")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.tier("nightly")
def test_an_editable_install_of_the_tree_is_the_tree(editable):
    code = "import refdelta.core.errors, refdelta_storage as storage; print(refdelta.core.__file__, storage.__file__)"
    done = editable.run("-W", "error", "-c", code)
    assert done.stderr == ""
    assert done.stdout.split() == [
        str(CORE / "__init__.py"),
        str(ROOT / "storage" / "refdelta_storage" / "__init__.py"),
    ]
    done = editable.run(
        "-c", "from importlib.metadata import version; print(version('refdelta'), version('refdelta-core'))"
    )
    assert done.stdout.split() == [refdelta.__version__] * 2


@pytest.mark.tier("nightly")
def test_it_works_in_an_empty_environment_from_another_folder(elsewhere):
    done = elsewhere.run("-W", "error", "-c", ROUND_TRIP)
    assert (done.returncode, done.stdout, done.stderr) == (0, "works\n", "")


@pytest.mark.tier("nightly")
def test_a_tree_is_installed_by_its_path_alone(from_the_tree):
    done = from_the_tree.run("-W", "error", "-c", ROUND_TRIP)
    assert (done.returncode, done.stdout, done.stderr) == (0, "works\n", "")


@pytest.mark.tier("nightly")
def test_without_the_cli_extra_the_command_says_what_to_install(elsewhere):
    for command in (["-m", "refdelta", "history", "table"], [elsewhere.python.with_name("refdelta"), "--help"]):
        done = elsewhere.run(*command)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == (
            "refdelta: the command line needs click and rich; install with: pip install 'refdelta[cli]'\n"
        )


@pytest.mark.tier("nightly")
def test_it_is_typed_for_its_users(elsewhere):
    (elsewhere.folder / "user.py").write_text(TYPED)
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(elsewhere.python), "user.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=elsewhere.folder)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert len(errors) == 1, done.stdout
    assert '"DeltaTable" has no attribute "no_such_method"' in errors[0]
    assert 'Revealed type is "builtins.int"' in done.stdout or 'Revealed type is "int"' in done.stdout
