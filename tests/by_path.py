"""Modules by their paths: those of the folders .ci, docs and tests/packaging are in no package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

GENERATORS = Path(__file__).parents[1] / ".ci" / "generate"


def loaded(file: Path) -> ModuleType:
    """A module that stands in no package."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def generator(name: str) -> ModuleType:
    """One of the modules that generate documents. They import each other, as they stand in one folder."""
    if str(GENERATORS) not in sys.path:
        sys.path.append(str(GENERATORS))
    return loaded(GENERATORS / f"{name}.py")
