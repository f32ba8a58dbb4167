"""``refdelta.compat.install``: ``import deltalake`` is refdelta's, for libraries that know deltalake only.

Tests of compat.deltalake._internal, compat.deltalake.warnings, compat.deltalake.writer._utils,
compat.deltalake.writer.convert_to.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import refdelta.compat.__main__ as command

NAMES = """
from deltalake.table import FilterLiteralType, FilterConjunctionType, FilterDNFType, FilterType, PartitionFilterType
from deltalake.writer._utils import try_get_deltatable, try_get_table_and_table_uri
from deltalake.writer.convert_to import convert_to_deltalake
from deltalake.writer.writer import write_deltalake
from deltalake.warnings import ExperimentalWarning
from deltalake.exceptions import TableNotFoundError
from deltalake._internal import CommitFailedError, TableFeatures, Schema
"""


def run(program: str, *, tmp_path: Path) -> str:
    """What a program prints in a process of its own, after ``install()``."""
    whole = f"import refdelta.compat\nrefdelta.compat.install()\n{program}"
    done = subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.tier("test")
def test_the_names_that_libraries_import_are_there(tmp_path: Path) -> None:
    program = f"{NAMES}\nimport deltalake; print(deltalake.DeltaTable.__module__, write_deltalake.__module__)"
    home = "refdelta.compat.deltalake"
    assert run(program, tmp_path=tmp_path) == f"{home}.table {home}.writer.writer"


@pytest.mark.tier("test")
def test_a_module_is_the_same_by_both_names(tmp_path: Path) -> None:
    program = """
import sys, deltalake.table, refdelta.compat.deltalake as own
print(deltalake is own, deltalake.table is own.table, own.__spec__.name, own.__name__)
refdelta.compat.install()
print(sum(type(finder).__name__ == "_Finder" for finder in sys.meta_path))
"""
    assert run(program, tmp_path=tmp_path).splitlines() == [
        "True True refdelta.compat.deltalake refdelta.compat.deltalake",
        "1",
    ]


@pytest.mark.tier("test")
def test_the_distribution_has_the_version_of_the_interface(tmp_path: Path) -> None:
    program = "import importlib.metadata as m, deltalake; print(m.version('deltalake') == deltalake.__version__)"
    assert run(program, tmp_path=tmp_path) == "True"


@pytest.mark.tier("test")
def test_polars_writes_and_reads_by_it(tmp_path: Path) -> None:
    program = """
import polars as pl
pl.DataFrame({"a": [1, 2]}).write_delta("t")
merged = pl.DataFrame({"a": [2, 3]}).write_delta(
    "t", mode="merge", delta_merge_options={"predicate": "t.a = s.a", "source_alias": "s", "target_alias": "t"}
)
merged.when_not_matched_insert_all().execute()
import refdelta
print(sorted(pl.read_delta("t")["a"]), pl.scan_delta("t").filter(pl.col("a") > 1).collect().height)
print(refdelta.DeltaTable("t").history(1)[0]["engineInfo"].startswith("refdelta"), type(merged).__module__)
"""
    assert run(program, tmp_path=tmp_path).splitlines() == [
        "[1, 2, 3] 2",
        "True refdelta.compat.deltalake.builders",
    ]


@pytest.mark.tier("test")
def test_uninstall_gives_the_name_back(tmp_path: Path) -> None:
    program = "import deltalake\nrefdelta.compat.uninstall()\nimport deltalake\nprint(deltalake.__file__)"
    assert "refdelta" not in Path(run(program, tmp_path=tmp_path)).parent.name


def test_a_deltalake_that_is_imported_already_is_an_error(tmp_path: Path) -> None:
    program = """
refdelta.compat.uninstall()
import deltalake
try:
    refdelta.compat.install()
except ImportError as error:
    print(error)
"""
    assert run(program, tmp_path=tmp_path).startswith("deltalake is imported already: call refdelta.compat.install()")


@pytest.mark.tier("test")
def test_a_module_that_deltalake_does_not_have_is_not_found(tmp_path: Path) -> None:
    program = "try:\n    import deltalake.nothing\nexcept ModuleNotFoundError as error:\n    print(error.name)"
    assert run(program, tmp_path=tmp_path) == "deltalake.nothing"


@pytest.mark.tier("test")
def test_a_whole_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    assert command.main(["status"]) == 0
    assert command.main(["install"]) == 0
    line = (tmp_path / "refdelta-compat.pth").read_text()
    program = f"import os\n{line}\nimport deltalake\nprint(deltalake.__name__)"
    for value, name in (("1", "refdelta.compat.deltalake"), ("0", "deltalake")):
        done = subprocess.run(
            [sys.executable, "-c", f"import os\nos.environ['REFDELTA_COMPAT'] = {value!r}\n{program}"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == name
    assert command.main(["status"]) == 0
    assert command.main(["uninstall"]) == 0
    assert not (tmp_path / "refdelta-compat.pth").exists()
    assert command.main([]) == 2
    shown = capsys.readouterr()
    assert shown.out.splitlines()[0] == "not installed"
    assert "python -m refdelta.compat install" in shown.err
