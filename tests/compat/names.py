"""The names of deltalake that libraries take: modules, names in them, and attributes of tables.

    python tests/compat/names.py [PACKAGE ...]

It downloads the oldest release that works with deltalake 1.6 and the newest one of each package in
:data:`PACKAGES`, reads the Python files of the wheels without running them, and writes ``library_names.toml``, over
which ``test_names.py`` goes. ``make search NAME=names`` runs it.
"""

from __future__ import annotations

import ast
import importlib
import io
import subprocess
import sys
import tempfile
import textwrap
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

LIST = Path(__file__).with_name("library_names.toml")
ROOT = "deltalake"
PACKAGES: dict[str, str | None] = {
    "acryl-datahub": None,
    "awswrangler": "3.12.0",
    "daft": "0.5.0",
    "dagster-delta": "0.4.0",
    "dagster-delta-polars": None,
    "dagster-deltalake": "0.27.0",
    "dagster-deltalake-pandas": "0.27.0",
    "dagster-deltalake-polars": "0.27.0",
    "dagster-polars": "0.27.1",
    "dask-deltatable": "0.3.3",
    "dataframely": "1.14.0",
    "dbt-duckdb": "1.9.3",
    "delta-audit": None,
    "delta-lake-utils": None,
    "deltalake-tools": None,
    "deltalake2db": "1.1.0",
    "dlt": "1.11.0",
    "duckrun": None,
    "feast": "0.49.0",
    "gamma-lake": None,
    "ibis-framework": "10.5.0",
    "kedro-datasets": "7.0.0",
    "lakeops": "1.0.0",
    "levi": "0.3.0",
    "nosql-delta-bridge": None,
    "odbc2deltalake": None,
    "opensensor-enviroplus": None,
    "phlo-delta": None,
    "polars": "1.30.0",
    "ray": "2.49.0",
    "semantic-link-labs": None,
    "tablefaker": None,
    "turboframe": None,
    "unstructured-ingest": None,
    "xdlake": None,
}
"""By package, the oldest release whose names are collected beside those of the newest one; None for no other one."""

Names = dict[str, str]
"""By a name in a file, what it is of deltalake: ``deltalake.DeltaTable``, or ``deltalake.DeltaTable()`` for a table."""


def names_in(source: str) -> set[str]:
    """The names of deltalake in a Python file, such as ``deltalake.table.TableMerger`` and, for the attribute of a
    table, ``deltalake.DeltaTable()._table.version``.
    """
    found = _Collector(ast.parse(source))
    return found.names


class _Collector(ast.NodeVisitor):
    """Goes through a file twice: it takes what names stand for first, since a function may stand before its imports."""

    def __init__(self, tree: ast.AST) -> None:
        self.names: set[str] = set()
        self._known: Names = {ROOT: ROOT} if _mentions(tree) else {}
        for _ in range(2):
            for node in ast.walk(tree):
                self._take(node)
        for node in ast.walk(tree):
            self._use(node)

    def _take(self, node: ast.AST) -> None:
        match node:
            case ast.Import(names=aliases):
                for one in aliases:
                    if _ours(one.name):
                        self.names.add(one.name)
                        self._known[one.asname or ROOT] = one.name if one.asname else ROOT
            case ast.ImportFrom(module=str(module), names=aliases, level=0) if _ours(module):
                for one in aliases:
                    self.names.add(module if one.name == "*" else f"{module}.{one.name}")
                    self._known[one.asname or one.name] = f"{module}.{one.name}"
            case ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.NamedExpr(ast.Name(id=name), value):
                self._bind(name, self._meant(value))
            case ast.AnnAssign(target=ast.Name(id=name), annotation=kind):
                self._bind(name, self._of_type(kind))
            case ast.arg(arg=name, annotation=kind) if kind is not None:
                self._bind(name, self._of_type(kind))

    def _bind(self, name: str, meant: str | None) -> None:
        if meant is not None:
            self._known[name] = meant

    def _meant(self, node: ast.AST) -> str | None:
        """What an expression is of deltalake."""
        match node:
            case ast.Name(id=name):
                return self._known.get(name)
            case ast.Attribute(value=inner, attr=attr):
                found = self._meant(inner)
                return None if found is None else f"{found}.{attr}"
            case ast.Call(args=[ast.Constant(value=str(text)), *_]) if _ours(text):  # import_module("deltalake")
                return text
            case ast.Call(func=function):
                found = self._meant(function)
                return None if found is None or not _is_table(found) else f"{ROOT}.DeltaTable()"
        return None

    def _of_type(self, kind: ast.AST) -> str | None:
        """A table for an annotation that names its class, in whatever union or string."""
        if isinstance(kind, ast.Constant) and isinstance(kind.value, str):
            try:
                kind = ast.parse(kind.value, mode="eval").body
            except SyntaxError:
                return None
        named = (self._meant(part) for part in ast.walk(kind) if isinstance(part, (ast.Name, ast.Attribute)))
        return f"{ROOT}.DeltaTable()" if any(one is not None and _is_table(one) for one in named) else None

    def _use(self, node: ast.AST) -> None:
        if isinstance(node, ast.Attribute):
            found = self._meant(node)
            if found is not None:
                self.names.add(found)
            elif node.attr in _members() and self._known:
                # Of an object that is not known to be a table.
                of_table = isinstance(node.value, ast.Attribute) and node.value.attr == "_table"
                self.names.add(f"{ROOT}.DeltaTable().{'_table.' * of_table}{node.attr}")


def _mentions(tree: ast.AST) -> bool:
    return any(isinstance(node, ast.Constant) and node.value == ROOT for node in ast.walk(tree))


def _ours(name: str) -> bool:
    return name == ROOT or name.startswith(f"{ROOT}.")


def _is_table(name: str) -> bool:
    return name.startswith(f"{ROOT}.") and name.rpartition(".")[2] in ("DeltaTable", "create", "forPath")


def _members() -> frozenset[str]:
    """The attributes of deltalake's tables that are no common words of Python."""
    common = {*dir(dict), *dir(list), *dir(str), *dir(object), "schema", "scan", "create", "merge", "delete", "version"}
    table = importlib.import_module(ROOT).DeltaTable
    inner = importlib.import_module(f"{ROOT}._internal").RawDeltaTable
    return frozenset({*dir(table), *dir(inner), "_table", "_storage_options"} - common)


def names_of(wheel: bytes) -> set[str]:
    """The names of deltalake that the Python files of a wheel take."""
    found: set[str] = set()
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        for name in archive.namelist():
            if name.endswith(".py") and "test" not in name and ROOT.encode() in (data := archive.read(name)):
                try:
                    found |= names_in(data.decode())
                except (SyntaxError, UnicodeDecodeError) as error:
                    print(f"{name}: {error}", file=sys.stderr)
    return found


def downloaded(package: str, version: str | None) -> tuple[str, bytes]:
    """A release of a package, the newest one if None: its version and its wheel."""
    asked = package if version is None else f"{package}=={version}"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", folder]
        subprocess.run([*command, asked], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        return wheel.name.split("-")[1], wheel.read_bytes()


def resolve(root: Any, name: str, table: Any) -> Any:
    """The object of a name in a module that has deltalake's names.

    Args:
        root: deltalake, or a module with its names.
        name: as :func:`names_in` has it.
        table: a table of this library, for ``deltalake.DeltaTable()``.

    Raises:
        AttributeError: there is none.
    """
    found, path = root, root.__name__
    for part in name.split(".")[1:]:
        if part.endswith("()"):
            found = table
            continue
        path = f"{path}.{part}"
        if not hasattr(found, part) and hasattr(found, "__path__"):
            try:
                found = importlib.import_module(path)
            except ModuleNotFoundError:
                raise AttributeError(f"{path} does not exist") from None
        else:
            found = getattr(found, part)
    return found


def lacking(root: Any, names: Iterable[str], table: Any) -> Iterator[str]:
    """The names that a module does not have."""
    for name in names:
        try:
            resolve(root, name, table)
        except AttributeError:
            yield name


def main(packages: list[str]) -> None:
    """Collect the names of some packages, or of all."""
    listed = tomllib.loads(LIST.read_text()) if LIST.exists() else {}
    for package in packages or PACKAGES:
        listed[package] = {}
        for asked in {PACKAGES.get(package), None}:
            version, wheel = downloaded(package, asked)
            listed[package][version] = sorted(names_of(wheel))
            print(f"{package} {version}: {len(listed[package][version])} names")
    lines = [
        "# The names of deltalake that releases of libraries take; written by names.py.\n",
    ]
    for package, versions in sorted(listed.items()):
        lines.append(f"\n[{package}]\n")
        for version, names in versions.items():
            text = textwrap.fill(
                ", ".join(f'"{name}"' for name in names), 116, initial_indent="  ", subsequent_indent="  "
            )
            lines.append(f'"{version}" = [\n{text}\n]\n')
    LIST.write_text("".join(lines))


if __name__ == "__main__":
    main(sys.argv[1:])
