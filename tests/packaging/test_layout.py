"""The layout of the packages: no circle of imports at any depth, one meaning for each name of a class."""

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
SAME_MEANING = {"Committed", "Exists", "Unknown"}
"""Outcomes of a put, both of a store and of a committer, which knows no store."""

OTHER_NAMES = ("refdelta/compat",)
"""Folders whose classes have the names of another library, often refdelta's own: their users import one of the two."""

APART = ("refdelta/conformance", "refdelta/racing")
"""Packages with a language of their own: what the literature calls a history or a transaction, and what runs in a race
of several engines. A name has one meaning in each of them.
"""


@pytest.fixture(scope="module")
def imports():
    """The modules that each module imports, for the sake of types, too."""
    graph = grimp.build_graph("refdelta", "refdelta_storage", cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


@pytest.mark.tier("test")
def test_no_import_runs_in_a_circle(imports):
    TopologicalSorter(imports).prepare()  # raises CycleError, with the circle


def test_no_folders_import_each_other_in_a_circle(imports):
    inner = {module.rpartition(".")[0] for module in imports}

    def folder(module):
        """Two names deep, but for a module that lies right in a folder with others: then that folder."""
        parts = module.split(".")
        return ".".join(parts[:3]) if len(parts) > 3 or module in inner else ".".join(parts[:2])

    arrows = defaultdict(set)
    for module, found in imports.items():
        for other in found:
            if folder(module) != folder(other) and not folder(module).startswith(folder(other) + "."):
                arrows[folder(module)].add(folder(other))
    TopologicalSorter(arrows).prepare()  # raises CycleError, with the circle


@pytest.mark.tier("test")
def test_the_name_of_a_class_has_one_meaning():
    homes = defaultdict(list)
    for root in ROOTS:
        for path in root.rglob("*.py"):
            name = str(path.relative_to(root.parent))
            if name.startswith(OTHER_NAMES):
                continue
            language = next((apart for apart in APART if name.startswith(apart)), "")
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes[language, node.name].append(name)
    several = {name: found for (_, name), found in homes.items() if len(found) > 1}
    assert {name: found for name, found in several.items() if name not in SAME_MEANING} == {}


def test_every_package_has_a_place_among_the_layers():
    contracts = tomllib.loads((ROOTS[0].parent / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    placed = set(contracts[0]["layers"])
    children = {
        f"refdelta.{path.stem}"
        for path in ROOTS[0].iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert children - placed == {"refdelta.__init__", "refdelta.__main__", "refdelta._version"}
