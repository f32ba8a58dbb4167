"""What users install: everything is in it, nothing else is, and it works where nothing else is installed."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
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


def sources():
    for top, folder in (("refdelta", ROOT / "refdelta"), ("refdelta_storage", ROOT / "storage" / "refdelta_storage")):
        for path in folder.rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                yield f"{top}/{path.relative_to(folder).as_posix()}"


@pytest.mark.tier("test")
def test_the_wheel_holds_both_packages_with_their_types_and_nothing_else(built):
    names = {name for name in zipfile.ZipFile(built.wheel).namelist() if ".dist-info/" not in name}
    assert names == set(sources())
    assert {"refdelta/py.typed", "refdelta_storage/py.typed"} <= names


@pytest.mark.tier("test")
def test_the_wheel_carries_the_licence(built):
    archive = zipfile.ZipFile(built.wheel)
    licence = next(name for name in archive.namelist() if name.endswith("licenses/LICENSE"))
    assert "Apache License" in archive.read(licence).decode()


@pytest.mark.tier("test")
def test_the_source_distribution_holds_what_it_takes_to_work_on_it(built):
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    expected = {"Makefile", "constraints.txt", "README.md", "LICENSE", "pyproject.toml", ".ci/run", "tests/conftest.py"}
    assert expected <= names
    assert not [name for name in names if name.startswith((".venv", ".cache", "demo-table"))]


@pytest.mark.tier("test")
def test_it_works_in_an_empty_environment_from_another_folder(elsewhere):
    done = elsewhere.run("-W", "error", "-c", ROUND_TRIP)
    assert (done.returncode, done.stdout, done.stderr) == (0, "works\n", "")


@pytest.mark.tier("test")
def test_without_the_cli_extra_the_command_says_what_to_install(elsewhere):
    for command in (["-m", "refdelta", "history", "table"], [elsewhere.python.with_name("refdelta"), "--help"]):
        done = elsewhere.run(*command)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == (
            "refdelta: the command line needs click and rich; install with: pip install 'refdelta[cli]'\n"
        )


@pytest.mark.tier("test")
def test_it_is_typed_for_its_users(elsewhere):
    (elsewhere.folder / "user.py").write_text(TYPED)
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(elsewhere.python), "user.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=elsewhere.folder)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert len(errors) == 1, done.stdout
    assert '"DeltaTable" has no attribute "no_such_method"' in errors[0]
    assert 'Revealed type is "builtins.int"' in done.stdout or 'Revealed type is "int"' in done.stdout
