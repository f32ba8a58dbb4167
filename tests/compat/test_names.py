"""The compat module has the names of deltalake: those that libraries take, and those of all modules and classes.

Tests of compat.deltalake.raw_table, compat.deltalake._internal.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import tomllib
from pathlib import Path

import pyarrow as pa
import pytest

from by_path import loaded

deltalake = pytest.importorskip("deltalake")
compat = importlib.import_module("refdelta.compat.deltalake")
names = loaded(Path(__file__).with_name("names.py"))
LISTED = {
    (package, version): found
    for package, versions in tomllib.loads(names.LIST.read_text()).items()
    for version, found in versions.items()
}
MODULES = [one.name.removeprefix("deltalake.") for one in pkgutil.walk_packages(deltalake.__path__, "deltalake.")]
LEFT_OUT = {
    "_util": set(),
    "_internal": {
        # what only deltalake's own Python code calls, or gets
        *("PyMergeBuilder", "PyQueryBuilder", "RawDeltaTableMetaData", "ObjectInputFile", "ObjectOutputStream"),
        *("create_deltalake", "write_to_deltalake", "convert_to_deltalake", "create_table_with_add_actions"),
        *("get_num_idx_cols_and_stats_columns", "shutdown_tracing", "batch_distinct", "CommitProperties"),
    },
}
"""By module, the names that only deltalake itself uses."""


@pytest.fixture
def tables(tmp_path):
    rows = pa.table({"a": [1, 2], "p": ["x y", "z"]})
    deltalake.write_deltalake(str(tmp_path), rows, partition_by=["p"])
    return deltalake.DeltaTable(str(tmp_path)), compat.DeltaTable(str(tmp_path))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # asking for table_config
@pytest.mark.sample(check=100, test=200)
@pytest.mark.parametrize("release", LISTED, ids=" ".join)
def test_the_names_that_a_release_takes_are_there(release, tables):
    theirs, ours = tables
    gone = set(names.lacking(deltalake, LISTED[release], theirs))  # of deltalake before 1.6
    assert [*names.lacking(compat, set(LISTED[release]) - gone, ours)] == []


@pytest.mark.parametrize("module", MODULES)
def test_each_module_has_the_names_that_it_defines(module):
    theirs, ours = (importlib.import_module(f"{home}.{module}") for home in ("deltalake", compat.__name__))
    defined = {
        name
        for name, value in vars(theirs).items()
        if (name.isupper() and not name.startswith("_") and name != "TYPE_CHECKING")
        or (not name.startswith("_") and getattr(value, "__module__", "") == theirs.__name__)
    }
    wanted = {name for name in defined - LEFT_OUT.get(module, set()) if not inspect.ismodule(vars(theirs)[name])}
    assert sorted(wanted - set(dir(ours))) == []


@pytest.mark.parametrize("path", ["table.DeltaTable", "table.Metadata", "schema.Schema", "schema.Field"])
def test_classes_have_the_same_attributes(path):
    module, _, name = path.partition(".")
    theirs, ours = (getattr(importlib.import_module(f"{h}.{module}"), name) for h in ("deltalake", compat.__name__))
    assert sorted({one for one in vars(theirs) if not one.startswith("_")} - set(dir(ours))) == []


def test_the_limits_of_readers_are_those_of_deltalake():
    for name in vars(deltalake.table):
        if name.isupper() and not name.startswith("_") and name != "TYPE_CHECKING":
            assert getattr(compat.table, name) == getattr(deltalake.table, name), name


def test_the_inner_table_reads_as_that_of_deltalake(tables):
    theirs, ours = (table._table for table in tables)
    for method in ("table_uri", "version", "get_latest_version", "protocol_versions", "get_active_partitions"):
        assert getattr(ours, method)() == getattr(theirs, method)(), method
    assert sorted(ours.files()) == sorted(theirs.files())
    assert sorted(ours.file_uris()) == sorted(theirs.file_uris())
    assert ours.get_add_file_sizes() == theirs.get_add_file_sizes()
    assert ours.schema.to_json() == theirs.schema.to_json()
    assert ours.metadata().id == theirs.metadata().id
    version, commits = ours.history(1)
    assert (version, json.loads(commits[0])["operation"]) == (0, "WRITE")
    schema = pa.schema(ours.schema)
    assert sorted(path for path, _ in ours.dataset_partitions(schema)) == sorted(
        path for path, _ in theirs.dataset_partitions(schema)
    )


def test_names_are_found_in_every_form_of_import():
    source = """
from __future__ import annotations
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from deltalake import DeltaTable
def read(table: DeltaTable | None, other: "DeltaTable"):
    import deltalake as dl
    from deltalake.table import TableMerger as Merger
    table._table.table_uri()
    other.history(1)
    opened = dl.DeltaTable("x")
    opened.optimize.compact()
    importlib.import_module("deltalake.exceptions").DeltaError
    return dl.writer.WriterProperties
"""
    assert names.names_in(source) >= {
        "deltalake.DeltaTable()._table.table_uri",
        "deltalake.DeltaTable().history",
        "deltalake.DeltaTable().optimize.compact",
        "deltalake.table.TableMerger",
        "deltalake.exceptions.DeltaError",
        "deltalake.writer.WriterProperties",
    }
