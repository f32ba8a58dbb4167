"""``refdelta.compat.deltalake`` has deltalake's names, and its signatures by parameter: name, kind and default.

Tests of compat.deltalake.exceptions.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

deltalake = pytest.importorskip("deltalake")
compat = importlib.import_module("refdelta.compat.deltalake")
HOME = "refdelta.compat.deltalake"

CLASSES = [
    "DeltaTable",
    "table.TableMerger",
    "table.TableAlterer",
    "table.TableOptimizer",
    "CommitProperties",
    "PostCommitHookProperties",
    "WriterProperties",
    "ColumnProperties",
    "BloomFilterProperties",
    "QueryBuilder",
]


def found(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


def parameters(function: Any) -> list[tuple[str, str, str]]:
    signature = inspect.signature(function)
    return [(p.name, p.kind.name, repr(p.default)) for p in signature.parameters.values()]


@pytest.mark.parametrize("name", sorted(deltalake.__all__))
def test_every_public_name_is_there(name: str):
    assert hasattr(compat, name)


@pytest.mark.parametrize("module", ["exceptions", "schema", "writer"])
def test_every_name_of_a_submodule_is_there(module: str):
    theirs, ours = (importlib.import_module(f"{home}.{module}") for home in ("deltalake", HOME))
    assert set(theirs.__all__) <= set(dir(ours))


@pytest.mark.parametrize("name", ["write_deltalake", "convert_to_deltalake", "enable_nanosecond_timestamps"])
def test_functions_have_the_same_parameters(name: str):
    assert parameters(getattr(compat, name)) == parameters(getattr(deltalake, name))


@pytest.mark.parametrize("path", CLASSES)
def test_methods_have_the_same_parameters(path: str):
    theirs, ours = found(deltalake, path), found(compat, path)
    names = {n for n, m in vars(theirs).items() if not n.startswith("_") and callable(getattr(theirs, n))}
    if "internal" not in theirs.__module__ and path != "table.TableMerger":
        names.add("__init__")
    differing = [n for n in sorted(names) if parameters(getattr(ours, n)) != parameters(getattr(theirs, n))]
    assert differing == []
