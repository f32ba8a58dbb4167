"""Other libraries' names on refdelta, for programs that were written for them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

_NAME, _HOME = "deltalake", "refdelta.compat.deltalake"


def install() -> None:
    """Let ``import deltalake`` import :mod:`refdelta.compat.deltalake` in this process from now on.

    Libraries that use deltalake, such as Polars, pandas and Dagster, then use refdelta. Nothing is written to the disk,
    and calling it again changes nothing. ``python -m refdelta.compat install`` does it for a whole environment.

    Raises:
        ImportError: deltalake itself is imported already, so that a part of the program would go on with it.

    Example::

        refdelta.compat.install()
        import deltalake

        deltalake.DeltaTable  # refdelta's
    """
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    imported = sys.modules.get(_NAME)
    if imported is not None and imported.__name__ != _HOME:
        raise ImportError(
            "deltalake is imported already: call refdelta.compat.install() before anything that imports it, or say "
            "python -m refdelta.compat install for the whole environment"
        )
    sys.meta_path.insert(0, _Finder())


def uninstall() -> None:
    """Undo :func:`install` for later imports; what was imported as deltalake stays refdelta's.

    Example::

        refdelta.compat.uninstall()
    """
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
    for name in [name for name in sys.modules if name == _NAME or name.startswith(f"{_NAME}.")]:
        if sys.modules[name].__name__.startswith(_HOME):
            del sys.modules[name]


class _Finder(MetaPathFinder):
    """Finds the modules of deltalake, and its distribution, of which libraries ask for the version."""

    def find_spec(self, fullname: str, *_: Any) -> ModuleSpec | None:
        if fullname != _NAME and not fullname.startswith(f"{_NAME}."):
            return None
        home = _HOME + fullname.removeprefix(_NAME)
        found = importlib.util.find_spec(home)
        if found is None:
            return None
        return ModuleSpec(fullname, _Alias(home), is_package=found.submodule_search_locations is not None)

    def find_distributions(self, context: Any = None) -> Iterable[Distribution]:
        name = getattr(context, "name", None)
        return [_Distribution()] if name is not None and name.lower() == _NAME else []


class _Alias(Loader):
    """Loads a module under a second name: both are the same object."""

    def __init__(self, home: str) -> None:
        self._home = home

    def create_module(self, _spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._home)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import has set that of the second name


class _Distribution(Distribution):
    """The metadata of deltalake: its name and the version whose interface this is."""

    def read_text(self, filename: str) -> str | None:
        if filename != "METADATA":
            return None
        version = importlib.import_module(_HOME).__version__
        return f"Metadata-Version: 2.1\nName: {_NAME}\nVersion: {version}\n"

    def locate_file(self, path: Any) -> Any:
        raise FileNotFoundError(path)
