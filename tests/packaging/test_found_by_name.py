"""The tests of each module are found by its name: in the name of a test file, or in the docstring of one.

A docstring names modules in a sentence of its own that begins with "Tests of", by their dotted paths without the
leading ``refdelta.``, so that ``git grep`` finds them.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path, PurePosixPath

import pytest

import refdelta
import refdelta_storage

TESTS = Path(__file__).parents[1]
PACKAGES = [Path(package.__file__).parent for package in (refdelta, refdelta_storage)]

_DOCSTRING = re.compile(r'r?"""(.*?)"""', re.DOTALL)
_NAMED = re.compile(r"^Tests of (.*?)\.(?=\s|\Z)", re.DOTALL | re.MULTILINE)


def modules_of(package):
    """The dotted paths of a package's modules, without "refdelta."; packages and ``__main__`` have no tests apart."""
    paths = (path.relative_to(package.parent).with_suffix("") for path in package.rglob("*.py"))
    return {".".join(path.parts).removeprefix("refdelta.") for path in paths if not path.name.startswith("__")}


def named_in(text):
    """The modules that the docstring of a test file names."""
    docstring = _DOCSTRING.match(text)
    sentences = _NAMED.findall(docstring[1]) if docstring else []
    return {name for sentence in sentences for name in re.split(r"[,\s]+", sentence)}


def bears_name(file, module, shared):
    """Whether a test file has the module's name. If several modules have that name, its folder decides."""
    folder, _, name = module.rpartition(".")
    same_name = file.stem == f"test_{name}" or file.stem.startswith(f"test_{name}_")
    return same_name and (not shared or folder.rpartition(".")[2] in file.parts)


def not_found(modules, tests):
    """The modules that no test file is found for, and the files that name modules which do not exist.

    ``tests`` has the text of each test file by its path below the folder of the tests.
    """
    named = {file: named_in(text) for file, text in tests.items()}
    counts = Counter(module.rpartition(".")[2] for module in modules)
    missing = {
        module
        for module in modules - set().union(*named.values())
        if not any(bears_name(file, module, counts[module.rpartition(".")[2]] > 1) for file in tests)
    }
    wrong = {str(file): names - modules for file, names in named.items() if names - modules}
    return missing, wrong


def test_each_module_has_tests_that_are_found_by_its_name():
    modules = set().union(*map(modules_of, PACKAGES)) - {"_version"}
    assert len(modules) > 300
    tests = {PurePosixPath(file.relative_to(TESTS).as_posix()): file.read_text() for file in TESTS.rglob("test_*.py")}
    missing, wrong = not_found(modules, tests)
    assert missing == set()
    assert wrong == {}


@pytest.mark.parametrize(
    ("file", "text", "missing"),
    [
        ("api/test_plan.py", "", {"cli.reading", "scan.reading"}),
        ("api/test_plan_of_keys.py", "", {"cli.reading", "scan.reading"}),
        ("api/test_plans.py", "", {"cli.reading", "merge.plan", "scan.reading"}),
        ("api/test_reading.py", "", {"cli.reading", "merge.plan", "scan.reading"}),
        ("cli/test_reading.py", "", {"merge.plan", "scan.reading"}),
        ("api/test_it.py", '"""It.\n\nTests of merge.plan,\nscan.reading.\n"""\n', {"cli.reading"}),
        ("api/test_it.py", '"""Tests of merge.plan."""\n', {"cli.reading", "scan.reading"}),
        ("api/test_it.py", '"""It.\n"""\n"""Tests of merge.plan."""', {"cli.reading", "merge.plan", "scan.reading"}),
    ],
)
def test_a_module_is_found_by_a_name_or_a_docstring(file, text, missing):
    modules = {"merge.plan", "scan.reading", "cli.reading"}
    assert not_found(modules, {PurePosixPath(file): text}) == (missing, {})


def test_a_docstring_that_names_no_module_is_found():
    tests = {PurePosixPath("test_plan.py"): '"""Plans.\n\nTests of merge.plan, merge.plans.\n"""\n'}
    assert not_found({"merge.plan"}, tests) == (set(), {"test_plan.py": {"merge.plans"}})
