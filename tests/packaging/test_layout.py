"""The layout of the packages: few modules in a folder, no circle of imports, one meaning for each name of a class."""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

import refdelta
import refdelta_storage

ROOTS = [Path(package.__file__).parent for package in (refdelta, refdelta_storage)]
MOST_IN_A_FOLDER, MOST_AT_THE_ROOT = 24, 9
SAME_MEANING = {"Exists", "Unknown"}
"""Outcomes of a put, both of a store and of a committer, which knows no store."""

OTHER_NAMES = ("refdelta/compat",)
"""Folders whose classes have the names of another library, often refdelta's own: their users import one of the two."""


@pytest.fixture(scope="module")
def imports():
    """The modules that each module imports, for the sake of types, too."""
    graph = grimp.build_graph("refdelta", "refdelta_storage", cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def test_no_import_runs_in_a_circle(imports):
    TopologicalSorter(imports).prepare()  # raises CycleError, with the circle


@pytest.mark.parametrize("root", ROOTS, ids=lambda root: root.name)
def test_a_folder_has_few_modules(root):
    for folder in [root, *(path for path in root.rglob("*") if path.is_dir())]:
        modules = [path.name for path in folder.glob("*.py") if path.name != "__init__.py"]
        assert len(modules) <= MOST_IN_A_FOLDER, (folder, modules)
    assert len(list((ROOTS[0]).glob("*.py"))) <= MOST_AT_THE_ROOT


@pytest.mark.tier("test")
def test_the_name_of_a_class_has_one_meaning():
    homes = defaultdict(list)
    for root in ROOTS:
        for path in root.rglob("*.py"):
            if str(path.relative_to(root.parent)).startswith(OTHER_NAMES):
                continue
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes[node.name].append(str(path.relative_to(root.parent)))
    assert {name: found for name, found in homes.items() if len(found) > 1 and name not in SAME_MEANING} == {}


def test_every_package_has_a_place_among_the_layers():
    contracts = tomllib.loads((ROOTS[0].parent / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    placed = set(contracts[0]["layers"])
    children = {
        f"refdelta.{path.stem}"
        for path in ROOTS[0].iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert children - placed == {"refdelta.__init__", "refdelta.__main__", "refdelta._version"}
