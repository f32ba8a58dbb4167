"""The examples in the docstrings of public names: each runs, and each public name has one.

An example is the indented block after ``Example::``. It runs with a small table as ``table``, with ``rows`` of the same
schema as a pyarrow table, with the path of an empty folder as ``uri``, and that of a folder as ``folder``. ``pa``,
``pq``, ``Path``, ``SqlCatalog`` and the public names of ``refdelta`` are in scope.
"""

from __future__ import annotations

import datetime as dt
import inspect
import re
import textwrap
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import refdelta
from catalog.serving import TOKEN, serving
from refdelta import (
    AddAction,
    CommitOptions,
    CommitProperties,
    CommitResult,
    DeltaTable,
    Identity,
    RemoveAction,
    convert_to_deltalake,
    explain_conflict,
    instrument,
    observe_commits,
    variants,
    verify,
    write_deltalake,
)
from refdelta.api.alter import TableAlterer
from refdelta.api.merge_builder import TableMerger
from refdelta.api.optimizer import TableOptimizer
from refdelta.api.reading import Reading
from refdelta.api.statements import Statements
from refdelta.api.table_scan import TableScan
from refdelta.api.transaction import WriteTransaction
from refdelta.catalog import Catalog, SqlCatalog, UnityCatalog, open_catalog
from refdelta.transaction import background, events

FUNCTIONS = (
    *(write_deltalake, convert_to_deltalake, verify, variants, explain_conflict, observe_commits, instrument),
    open_catalog,
)
CATALOGS = (SqlCatalog, UnityCatalog)
WITH_METHODS = (
    TableAlterer,
    TableOptimizer,
    TableMerger,
    TableScan,
    WriteTransaction,
    DeltaTable,
    *CATALOGS,
)
METHODS_ALONE = (Reading, Statements, Catalog)
"""The bases of ``DeltaTable`` and of catalogs, whose example is their own."""
VALUES = (AddAction, CommitOptions, CommitProperties, CommitResult, Identity, RemoveAction)
"""Classes of which the class alone has an example: they have attributes, and no methods but those of a mapping."""

WITHOUT = {
    "Catalog.name": "a property of one word",
    "Catalog.rename_table": "each catalog has its own",
    "Catalog.tables": "each catalog has its own",
    "SqlCatalog.name": "a property of one word",
    "UnityCatalog.name": "a property of one word",
    "UnityCatalog.load": "called for the tables of the catalog",
    "UnityCatalog.credentials": "called for the tables of the catalog",
    "TableScan.files": "a property of one word",
    "TableScan.schema": "a property of one word",
    "WriteTransaction.set_properties": "deprecated",
    "WriteTransaction.unset_properties": "deprecated",
    "WriteTransaction.version": "a property of one word",
    "Reading.table_uri": "a property of one word",
    "Reading.store": "a property of one word",
    "Reading.pinned": "a property of one word",
    "Reading.version": "one number; most other examples call it",
}


def _documented():
    """The docstrings of all public names that are to have an example, by name."""
    found = {function.__name__: function.__doc__ for function in FUNCTIONS}
    found |= {owner.__name__: owner.__doc__ for owner in (*WITH_METHODS, *VALUES)}
    for owner in (*WITH_METHODS, *METHODS_ALONE):
        for name, member in vars(owner).items():
            method = getattr(member, "__func__", member)
            if not name.startswith("_") and (inspect.isfunction(method) or isinstance(method, property)):
                found[f"{owner.__name__}.{name}"] = method.__doc__
    return found


def _examples(doc):
    """The indented blocks after each line ``Example::``."""
    lines = inspect.cleandoc(doc or "").splitlines()
    for number, line in enumerate(lines):
        if line.strip() == "Example::":
            block = []
            for following in lines[number + 1 :]:
                if following and not following.startswith("    "):
                    break
                block.append(following)
            yield textwrap.dedent("\n".join(block)).strip("\n")


def _staged(name, example):
    """The example of a statement of ``table.alter``, with its last call of it in a transaction."""
    before, call, after = example.rpartition(f"table.alter.{name}(")
    assert call, f"the example of TableAlterer.{name} has no call of it"
    line, _, after = after.partition("\n")
    return f"{before}with table.begin() as txn:\n    txn.{name}({line}\n    txn.commit()\n{after}"


DOCUMENTED = _documented()
# The statements of ALTER in a transaction: a reference to their text, which has the example.
IN_ALTER = {
    name: doc[0]
    for name, text in DOCUMENTED.items()
    if (doc := re.findall(r"\bAs\s+:meth:`refdelta\.api\.alter\.(TableAlterer\.\w+)`\.\s*$", text or ""))
}
EXAMPLES = [(name, example) for name, doc in DOCUMENTED.items() for example in _examples(doc)]
EXAMPLES += [
    (name, _staged(other.partition(".")[2], example))
    for name, other in IN_ALTER.items()
    for example in _examples(DOCUMENTED[other])
]


def _rows(ids):
    days = [dt.date(2026, 1, number) for number in ids]
    columns = {"id": ids, "name": [f"n{number}" for number in ids], "amount": [2.5 * n for n in ids], "day": days}
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64()), ("day", pa.date32())])
    return pa.table(columns, schema)


@pytest.fixture
def scope(tmp_path, monkeypatch):
    """The names that an example may use."""
    monkeypatch.setattr(events, "_observers", ())  # those that an example leaves behind end with it
    write_deltalake(tmp_path / "t", _rows([1, 2, 3]))
    (tmp_path / "empty").mkdir()
    names = {name: getattr(refdelta, name) for name in refdelta.__all__}
    table = DeltaTable(tmp_path / "t")
    return names | {
        "table": table,
        "rows": _rows([3, 4]),
        "uri": str(tmp_path / "empty"),
        "folder": str(tmp_path),
        "SqlCatalog": SqlCatalog,
        "UnityCatalog": UnityCatalog,
        "pa": pa,
        "pq": pq,
        "Path": Path,
    }


@pytest.fixture
def server(tmp_path):
    """A server for the examples of its client."""
    with serving(tmp_path) as served:
        yield {"url": served.url, "token": TOKEN}
        background.settle()


@pytest.mark.sample(check=30)
@pytest.mark.parametrize(("name", "example"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_an_example_runs(name, example, scope, request, capsys):
    if "UnityCatalog(url" in example:
        scope |= request.getfixturevalue("server")
    exec(compile(example, f"<the example of {name}>", "exec"), scope)


def test_every_public_name_has_an_example():
    lacking = {name for name, doc in DOCUMENTED.items() if not list(_examples(doc))}
    assert sorted(lacking) == sorted({*WITHOUT, *IN_ALTER})


def test_a_statement_in_a_transaction_refers_to_the_one_of_the_same_name():
    assert len(IN_ALTER) > 15
    assert all(name.partition(".")[2] == other.partition(".")[2] for name, other in IN_ALTER.items())


def test_an_example_has_at_most_six_lines():
    own = EXAMPLES[: -len(IN_ALTER)]
    assert not [name for name, example in own if sum(map(bool, map(str.strip, example.splitlines()))) > 6]


def test_an_example_is_found_and_runs():
    doc = "Text.\n\nExample::\n\n    first\n    for one in two:\n        three\n\nRaises:\n    Error: no.\n"
    assert list(_examples(doc)) == ["first\nfor one in two:\n    three"]
