"""Each call of the compat module makes as many commits as deltalake's, and a call that fails makes none.

Tests of compat.deltalake.properties, compat.deltalake.transaction, compat.deltalake.writer.writer.
"""

from __future__ import annotations

import importlib
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

deltalake = pytest.importorskip("deltalake")

ROWS = pa.table({"a": pa.array([1, 2, 3], pa.int64()), "p": ["x", "x", "y"]})
NEW = pa.table({"a": [99], "p": ["z"]})
WIDER = ROWS.append_column("n", pa.array([1, 2, 3]))


@dataclass(frozen=True)
class Library:
    """deltalake, or the compat module, with its submodules."""

    name: str

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.name), name)

    def module(self, name: str) -> Any:
        return importlib.import_module(f"{self.name}.{name}")

    def schema(self) -> Any:
        return self.Schema.from_arrow(ROWS.schema)

    def column(self, name: str, kind: str = "long", **options: Any) -> Any:
        return self.Field(name, self.module("schema").PrimitiveType(kind), **options)

    def file(self, path: str, name: str = "f.parquet", **values: str) -> Any:
        """A data file in the folder, as an action."""
        Path(path).mkdir(exist_ok=True)
        file = Path(path, name)
        pq.write_table(ROWS.drop_columns(list(values)), file)
        stats = json.dumps({"numRecords": ROWS.num_rows})
        return self.module("transaction").AddAction(name, file.stat().st_size, values, 1_700_000_000_000, True, stats)

    def table(self, path: str, **options: Any) -> Any:
        """A table of two versions and two files."""
        self.write_deltalake(path, ROWS, **options)
        self.write_deltalake(path, ROWS.slice(0, 1), mode="append")
        return self.DeltaTable(path)


THEIRS, OURS = Library("deltalake"), Library("refdelta.compat.deltalake")
Call = Callable[[Library, str], object]
CALLS: dict[str, Call] = {}


def statement(title: str, call: Callable[[Library, Any, str], object], **options: Any) -> None:
    """A call on a table of two versions."""
    CALLS[title] = lambda library, path: call(library, library.table(path, **options), path)


def writes() -> None:
    sources = {"rows": ROWS, "no rows": ROWS.slice(0, 0), "a new column": WIDER}
    arguments: list[dict[str, Any]] = [
        {},
        {"name": "N"},
        {"description": "D"},
        {"configuration": {"delta.appendOnly": "false"}},
        {"schema_mode": "merge"},
        {"schema_mode": "overwrite"},
        {"partition_by": ["p"]},
        {"schema_mode": "overwrite", "partition_by": ["p"]},
        {"predicate": "a = 1"},
    ]
    overwrites = (
        {"schema_mode": "overwrite"},
        {"schema_mode": "overwrite", "partition_by": ["p"]},
        {"predicate": "a = 1"},
    )

    def add(name: str, call: Call, there: bool) -> None:
        CALLS[f"{name}, {'on a table' if there else 'on nothing'}"] = lambda library, path: (
            there and library.table(path),
            call(library, path),
        )

    for mode, there, extra in itertools.product(("error", "append", "overwrite", "ignore"), (False, True), arguments):
        if extra in overwrites and mode != "overwrite":
            continue  # refused by name
        told = f"{mode} {extra}" if extra else mode
        for source, rows in sources.items():
            few = rows.slice(0, 1) if "predicate" in extra else rows
            add(
                f"write {source}, {told}",
                lambda library, path, few=few, mode=mode, extra=extra: library.write_deltalake(
                    path, few, mode=mode, **extra
                ),
                there,
            )
        if {"schema_mode", "predicate"} & {*extra}:
            continue
        add(
            f"create, {told}",
            lambda library, path, mode=mode, extra=extra: library.DeltaTable.create(
                path, library.schema(), mode, **extra
            ),
            there,
        )
        for files in (0, 1, 2):
            add(
                f"create with {files} files, {told}",
                lambda library, path, files=files, mode=mode, extra=extra: library.module(
                    "transaction"
                ).create_table_with_add_actions(
                    path,
                    library.schema(),
                    [
                        library.file(path, f"{n}.parquet", **dict.fromkeys(extra.get("partition_by", ()), "x"))
                        for n in range(files)
                    ],
                    mode=mode,
                    **{"partition_by": [], **extra},
                ),
                there,
            )


def files_of_others() -> None:
    for mode, files in itertools.product(("append", "overwrite"), range(3)):
        statement(
            f"create_write_transaction, {mode}, {files} files",
            lambda library, table, path, mode=mode, files=files: table.create_write_transaction(
                [library.file(path, f"{n}.parquet") for n in range(files)], mode, library.schema(), []
            ),
        )
    for mode, there in itertools.product(("error", "ignore"), (False, True)):
        CALLS[f"convert, {mode}, {'a table' if there else 'files'}"] = lambda library, path, mode=mode, there=there: (
            library.table(path) if there else library.file(path),
            library.convert_to_deltalake(path, mode, name="N", configuration={"delta.appendOnly": "false"}),
        )


def changes_of_rows() -> None:
    feed = {"configuration": {"delta.enableChangeDataFeed": "true"}}
    for predicate, options in itertools.product((None, "a = 1", "a = 99", "p = 'y'"), ({}, feed)):
        told = f"{predicate}{', with a feed' * bool(options)}"
        statement(f"delete {told}", lambda _, table, path, p=predicate: table.delete(p), **options)
        statement(f"update {told}", lambda _, table, path, p=predicate: table.update({"a": "a+1"}, p), **options)
    for name, rows in {"matching": ROWS.slice(1), "no": ROWS.slice(0, 0), "new": NEW, "wider": WIDER}.items():

        def merge(table: Any, rows: pa.Table = rows) -> Any:
            return table.merge(rows, "t.a = s.a", "s", "t", merge_schema=rows.num_columns > 2)

        statement(f"merge {name} rows: update", lambda _, t, path, m=merge: m(t).when_matched_update_all().execute())
        statement(
            f"merge {name} rows: insert", lambda _, t, path, m=merge: m(t).when_not_matched_insert_all().execute()
        )
        statement(f"merge {name} rows: delete", lambda _, t, path, m=merge: m(t).when_matched_delete().execute())
    for version in (0, 1):
        statement(f"restore {version}", lambda _, table, path, v=version: table.restore(v))
    statement("restore after delete", lambda _, table, path: (table.delete(), table.restore(1)))


def maintenance() -> None:
    parts = {"partition_by": ["p"]}
    statement("compact", lambda _, table, path: table.optimize.compact())
    statement("compact twice", lambda library, t, path: [library.DeltaTable(path).optimize.compact() for _ in range(2)])
    statement("compact no partition", lambda _, t, path: t.optimize.compact([("p", "=", "none")]), **parts)
    for interval in (None, 0, timedelta(hours=1)):
        compact = {"min_commit_interval": interval}
        statement(f"compact, {interval}", lambda _, table, path, o=compact: table.optimize.compact(**o), **parts)
        statement(f"z_order, {interval}", lambda _, table, path, o=compact: table.optimize.z_order(["a"], **o), **parts)
    for dry, full in itertools.product((True, False), (True, False)):
        told, options = f"vacuum{', dry' * dry}{', full' * full}", {"full": full}
        statement(told, lambda _, t, path, d=dry, o=options: (t.delete("a = 1"), t.vacuum(0, d, False, **o)))
        statement(f"{told}, nothing", lambda _, t, path, d=dry, o=options: t.vacuum(None, d, **o))
    for dry in (True, False):
        statement(f"repair{', dry' * dry}, nothing", lambda _, table, path, d=dry: table.repair(d))
        statement(
            f"repair{', dry' * dry}, a file is gone",
            lambda _, table, path, d=dry: (Path(table.file_uris()[0]).unlink(), table.repair(d)),
        )
    for name in ("create_checkpoint", "cleanup_metadata", "generate"):
        statement(name, lambda _, table, path, name=name: getattr(table, name)())
    statement("compact_logs", lambda _, table, path: table.compact_logs(0, 1))


def alterations() -> None:
    def alter(title: str, call: Callable[[Library, Any], object], **options: Any) -> None:
        statement(f"alter: {title}", lambda library, table, path: call(library, table.alter), **options)

    def features(library: Library, *names: str) -> list[Any]:
        return [getattr(library.module("table").TableFeatures, name) for name in names]

    for names in ((), ("ChangeDataFeed",), ("ChangeDataFeed", "DeletionVectors")):
        alter(f"features {names}", lambda library, a, n=names: a.add_feature(features(library, *n), True))
    alter(
        "a feature twice",
        lambda library, a: [a.add_feature(features(library, "DeletionVectors"), True) for _ in range(2)],
    )
    for columns in ((), ("n",), ("n", "m"), ("n", "a")):
        alter(f"columns {columns}", lambda library, a, c=columns: a.add_columns([library.column(n) for n in c]))
    alter("another type", lambda library, a: a.add_columns([library.column("n"), library.column("a", "string")]))
    for name, given in {
        "one constraint": {"c": "a > 0"},
        "two constraints": {"c": "a > 0", "d": "a < 100"},
        "no constraint": {},
        "two, the second broken": {"c": "a > 0", "d": "a < 0"},
        "two, the first broken": {"d": "a < 0", "c": "a > 0"},
        "two, the second wrong": {"c": "a > 0", "d": "nope > 0"},
    }.items():
        alter(name, lambda _, a, g=given: a.add_constraint(g))
    alter("a constraint twice", lambda _, a: [a.add_constraint({"c": "a > 0"}) for _ in range(2)])
    alter("drop a constraint", lambda _, a: (a.add_constraint({"c": "a > 0"}), a.drop_constraint("c")))
    for raises in (True, False):
        alter(f"drop no constraint, {raises}", lambda _, a, r=raises: a.drop_constraint("c", r))
    for given in (
        {},
        {"delta.appendOnly": "true"},
        {"delta.enableChangeDataFeed": "true"},
        {"delta.enableDeletionVectors": "true"},
        {"delta.appendOnly": "false", "delta.logRetentionDuration": "interval 3 days"},
        {"delta.appendOnly": "true", "x.y": "1"},
    ):
        alter(f"properties {given}", lambda _, a, g=given: a.set_table_properties(g))
    alter("a property of another", lambda _, a: a.set_table_properties({"x.y": "1"}, raise_if_not_exists=False))
    alter("name", lambda _, a: a.set_table_name("N"))
    alter("the same name", lambda _, a: a.set_table_name("N"), name="N")
    alter("description", lambda _, a: a.set_table_description("D"))
    alter("the same description", lambda _, a: a.set_table_description("D"), description="D")
    for given in ({}, {"x": "y"}, {"x": "y", "z": "1"}):
        alter(f"metadata {given}", lambda _, a, g=given: a.set_column_metadata("a", g))
    alter("nulls where they are allowed", lambda _, a: a.drop_column_not_null("a"))
    CALLS["alter: allow nulls"] = lambda library, path: (
        library.DeltaTable.create(path, library.Schema([library.column("a", nullable=False)])),
        library.DeltaTable(path).alter.drop_column_not_null("a"),
    )


def applications() -> None:
    def properties(library: Library) -> Any:
        return library.CommitProperties(app_transactions=[library.Transaction("app", 1)])

    statement("delete of an application", lambda library, t, path: t.delete(commit_properties=properties(library)))
    statement(
        "append of an application, twice",
        lambda library, _, path: [
            library.write_deltalake(path, ROWS, mode="append", commit_properties=properties(library)) for _ in range(2)
        ],
    )


for group in (writes, files_of_others, changes_of_rows, maintenance, alterations, applications):
    group()

IGNORED = "deltalake ignores the properties, since the table exists; they are refused"
NOTHING = "deltalake commits although nothing changes"
OTHERWISE = {
    "write rows, append {'configuration': {'delta.appendOnly': 'false'}}, on a table": IGNORED,
    "write rows, overwrite {'configuration': {'delta.appendOnly': 'false'}}, on a table": IGNORED,
    "write no rows, append {'configuration': {'delta.appendOnly': 'false'}}, on a table": IGNORED,
    "write no rows, overwrite {'configuration': {'delta.appendOnly': 'false'}}, on a table": IGNORED,
    "append of an application, twice": "deltalake does not look whether an application's version is there",
    "restore 1": "deltalake refuses the version that is there; nothing is committed",
    "alter: a feature twice": NOTHING,
    "alter: columns ()": NOTHING,
    "alter: columns ('n', 'a')": "deltalake ignores a column that is there; it is refused",
    "alter: a constraint twice": "deltalake replaces a constraint; it is refused",
    "alter: properties {}": NOTHING,
    "alter: the same name": NOTHING,
    "alter: the same description": NOTHING,
    "alter: metadata {}": NOTHING,
}
"""Calls with another number of commits, or with an error of one library alone, and the reason."""


def versions(call: Call, library: Library, path: Path) -> tuple[list[str], Exception | None]:
    """The operations of the versions after a call, and its error."""
    error = None
    try:
        call(library, str(path))
    except Exception as raised:
        error = raised
    found = []
    for commit in sorted(path.glob("_delta_log/" + "[0-9]" * 20 + ".json")):
        (info,) = [json.loads(line)["commitInfo"] for line in commit.read_text().splitlines() if "commitInfo" in line]
        found.append(info["operation"])
    return found, error


@pytest.mark.sample(check=60)
@pytest.mark.breaks_tables
@pytest.mark.parametrize("name", CALLS)
def test_a_call_makes_as_many_commits_as_deltalakes(tmp_path, name):
    (theirs, their_error), (ours, our_error) = (
        versions(CALLS[name], library, tmp_path / library.name) for library in (THEIRS, OURS)
    )
    same = len(theirs) == len(ours) and (their_error is None) == (our_error is None)
    assert same != (name in OTHERWISE), (theirs, their_error, ours, our_error)


def test_a_constraint_for_each_commit_would_be_found(tmp_path, monkeypatch):
    alterer = OURS.module("builders").TableAlterer
    whole = alterer.add_constraint
    monkeypatch.setattr(
        alterer, "add_constraint", lambda self, given: [whole(self, {name: sql}) for name, sql in given.items()]
    )
    for name in ("alter: two constraints", "alter: two, the second broken"):
        theirs, ours = (versions(CALLS[name], library, tmp_path / name / library.name)[0] for library in (THEIRS, OURS))
        assert len(ours) > len(theirs)
