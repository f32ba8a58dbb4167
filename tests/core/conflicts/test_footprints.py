"""Every action and every operation has a row in the table of resources, and does no more than its row says.

Tests of core.conflicts.resources.
"""

from __future__ import annotations

import ast
import typing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import refdelta
import refdelta.transaction.transaction
from refdelta import DeltaTable, convert_to_deltalake, write_deltalake
from refdelta.core.conflicts.resources import ACTIONS, OPERATIONS, RESOURCES
from refdelta.core.conflicts.rules import RULES
from refdelta.core.log.actions import Add, AnyAction, DomainMetadata, Metadata, Protocol, Remove, Txn

PACKAGE = Path(refdelta.__file__).parent


def test_every_action_of_the_protocol_has_a_row():
    assert set(typing.get_args(AnyAction)) == ACTIONS.keys()
    assert frozenset().union(*ACTIONS.values()) <= RESOURCES.keys()


def test_every_resource_has_rules_or_says_why_not():
    asked = {rule.resource for rule in RULES}
    assert asked | {name for name, resource in RESOURCES.items() if resource.unruled} == RESOURCES.keys()
    assert not {name for name in asked if RESOURCES[name].unruled}


def described_operations():
    """The operations that the package's code names, where it describes a commit by a text."""
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                continue
            if node.func.attr in ("describe", "_note"):
                yield from (a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str))


@pytest.mark.tier("test")
def test_every_operation_has_a_row():
    found = set(described_operations())
    assert len(found) > 20
    assert not found - OPERATIONS.keys()
    for operation in OPERATIONS.values():
        assert (operation.reads | operation.writes) <= RESOURCES.keys()


@pytest.fixture
def seen(monkeypatch):
    """What each commit of the test reads and writes, with its operation."""
    commits = []
    commit = refdelta.transaction.transaction.commit

    def noted(store, prepared, **kwargs):
        commits.append(prepared)
        return commit(store, prepared, **kwargs)

    monkeypatch.setattr(refdelta.transaction.transaction, "commit", noted)
    return commits


def reads_of(prepared):
    read = prepared.read_set
    found = {"added rows", "removed rows", "moved rows"} if read.reads or read.files else set()
    found |= {"domains"} if read.domains or read.every_domain else set()
    found |= {"applications"} if read.app_ids else set()
    adds = any(isinstance(action, Add) for action in prepared.actions)
    return found | ({"deleted files"} if adds or read.unowned_since is not None else set())


def writes_of(prepared):
    found = set()
    for action in prepared.actions:
        match action:
            case Add() | Remove() if action.data_change is False:
                found.add("moved rows")
            case Add():
                found.add("added rows")
            case Remove():
                found.add("removed rows")
            case Metadata():
                found.add("metadata")
            case Protocol():
                found.add("protocol")
            case Txn():
                found.add("applications")
            case DomainMetadata():
                found.add("domains")
    found |= {"removed rows"} if prepared.changes.deletes else set()
    return found | ({"moved rows"} if prepared.changes.groups else set())


ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "s": ["a", "b", "c"]})
WITH = {"delta.enableDeletionVectors": "true", "delta.columnMapping.mode": "name"}


def everything(path, tmp_path):
    write_deltalake(path, ROWS, configuration=WITH)
    write_deltalake(path, ROWS, mode="append", app_id="etl", app_version=1)
    table = DeltaTable(path)
    table.delete("id = 1")
    table.update(updates={"s": "'x'"}, predicate="id = 2")
    table.merge(ROWS, "t.id = s.id").when_matched_delete("s.id = 3").when_not_matched_insert_all().execute()
    write_deltalake(path, ROWS, mode="overwrite", predicate="id < 10")
    write_deltalake(path, ROWS, mode="append")
    table = DeltaTable(path)
    table.optimize.compact()
    table.optimize.z_order(["id"])
    table.delete("id = 1")
    table.reorg_purge()
    table.restore(1)
    table.vacuum(dry_run=False, retention_hours=0, enforce_retention_duration=False)
    alter = DeltaTable(path).alter
    alter.add_columns([pa.field("n", pa.int64())])
    alter.rename_column("n", "m")
    alter.set_nullable("m", True)
    alter.move_column("m", after="id")
    alter.add_constraint({"c": "id > 0"})
    alter.drop_constraint("c")
    alter.drop_columns(["m"])
    alter.set_table_properties({"mine": "1"})
    alter.unset_table_properties(["mine"])
    alter.set_table_name("name")
    alter.set_table_description("text")
    alter.set_column_metadata("id", {"comment": "text"})
    alter.add_feature("domainMetadata", True)
    alter.set_domain_metadata("d", "1")
    alter.set_domain_metadata("d", None)
    alter.cluster_by(["id"])
    DeltaTable(path).optimize.cluster(full=True)
    alter.drop_feature("deletionVectors", truncate_history=False)
    DeltaTable(path).shallow_clone(tmp_path / "clone")
    DeltaTable.create(path, ROWS.schema, mode="overwrite")
    (tmp_path / "plain").mkdir()
    pq.write_table(ROWS, tmp_path / "plain" / "x.parquet")
    convert_to_deltalake(tmp_path / "plain")


@pytest.mark.tier("test")
def test_operations_read_and_write_what_their_rows_say(tmp_path, seen):
    everything(tmp_path / "t", tmp_path)
    names = {prepared.commit_info["operation"] for prepared in seen}
    assert len(names) > 20
    for prepared in seen:
        operation = OPERATIONS[prepared.commit_info["operation"]]
        assert reads_of(prepared) <= operation.reads, prepared.commit_info["operation"]
        assert writes_of(prepared) <= operation.writes, prepared.commit_info["operation"]
