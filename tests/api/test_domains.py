"""Metadata domains of users: set by themselves or with other changes, carried along, never lost in silence."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake
from written_tables import actions

ROWS = pa.table({"a": [1, 2, 3]})


@pytest.fixture
def table(tmp_path):
    write_deltalake(tmp_path, ROWS, configuration={"delta.enableDeletionVectors": "true"})
    return DeltaTable(tmp_path)


def test_a_domain_is_set_changed_and_removed(table, tmp_path):
    assert table.domain_metadata() == {}
    assert table.alter.set_domain_metadata("my.app", '{"at": 1}').version == 1
    assert "domainMetadata" in table.protocol().writer_features
    assert table.domain_metadata() == {"my.app": '{"at": 1}'}
    assert table.alter.set_domain_metadata("my.app", '{"at": 1}').version is None
    table.alter.set_domain_metadata("my.app", "")
    table.alter.set_domain_metadata("other", "né")
    assert actions(tmp_path, 2, "protocol") == []
    entry = table.history(1)[0]
    assert (entry["operation"], entry["operationParameters"]) == ("SET DOMAIN METADATA", {"domains": '["other"]'})
    table.create_checkpoint()
    assert DeltaTable(tmp_path).domain_metadata() == {"my.app": "", "other": "né"}
    table.alter.set_domain_metadata("other", None)
    assert actions(tmp_path, 4, "domainMetadata") == [{"domain": "other", "configuration": "né", "removed": True}]
    assert DeltaTable(tmp_path).domain_metadata() == {"my.app": ""}
    assert DeltaTable(tmp_path, version=1).domain_metadata() == {"my.app": '{"at": 1}'}
    said = r"metadata domain 'other' does not exist in the table; metadata domains: my\.app"
    with pytest.raises(errors.InvalidArgumentError, match=said):
        table.alter.set_domain_metadata("other", None)
    # Of a table that is created anew, or of which a version is restored, they stay, as an application's versions do.
    table.restore(1)
    DeltaTable.create(tmp_path, ROWS.schema, mode="overwrite")
    assert DeltaTable(tmp_path).domain_metadata() == {"my.app": ""}


def test_it_comes_with_the_rows(table, tmp_path):
    with table.begin() as txn, pytest.raises(errors.InvalidArgumentError, match="does not support domainMetadata"):
        txn.set_domain_metadata("progress", "1")
    table.alter.add_feature("domainMetadata", True)
    for way in ("append", "delete", "merge", "compact", "nothing"):
        with table.begin() as txn:
            txn.set_domain_metadata(f"{way} before", "1")
            if way == "append":
                txn.append(ROWS)
            elif way == "delete":
                txn.delete("a = 2")
            elif way == "merge":
                txn.merge(ROWS, "s.a = t.a").when_not_matched_insert_all().execute()
            elif way == "compact":
                txn.compact()
            txn.set_domain_metadata(f"{way} after", "2")
            with pytest.raises(errors.InvalidArgumentError, match="already"):
                txn.set_domain_metadata(f"{way} after", "3")
            done = txn.commit()
        names = {"append": "WRITE", "nothing": "SET DOMAIN METADATA", "compact": "OPTIMIZE"}
        assert table.history(1)[0]["operation"] == names.get(way, way.upper())
        assert len(actions(tmp_path, done.version, "domainMetadata")) == 2
    assert len(table.domain_metadata()) == 10
    with table.begin() as txn:
        txn.set_domain_metadata("gone", "1")
        txn.abort()
    assert "gone" not in DeltaTable(tmp_path).domain_metadata()


def test_a_version_of_an_application_is_recorded_with_it_once(table):
    table.alter.set_domain_metadata("d", "0")
    for text in ("1", "2"):
        with table.begin(app_id="app", app_version=7) as txn:
            txn.set_domain_metadata("d", text)
            txn.commit()
    table.update_incremental()
    assert table.domain_metadata() == {"d": "1"}


def test_two_who_set_the_same_domain(table, tmp_path):
    table.alter.set_domain_metadata("d", "0")
    first, second, third = (DeltaTable(tmp_path).begin() for _ in range(3))
    first.set_domain_metadata("d", "1")
    second.append(ROWS)
    second.set_domain_metadata("d", None)
    third.set_domain_metadata("e", "1")
    first.commit()
    with pytest.raises(errors.ConcurrentTransactionException, match="metadata domain"):
        second.commit()
    assert third.commit().rebased_over == (2,)
    assert DeltaTable(tmp_path).domain_metadata() == {"d": "1", "e": "1"}
    assert DeltaTable(tmp_path).count() == 3


@pytest.mark.parametrize("domain", ["delta.clustering", "DELTA.x", "", 5, None])
def test_domains_of_the_engines_are_theirs(table, domain):
    with pytest.raises(errors.InvalidArgumentError, match="the name of a metadata domain must be"):
        table.alter.set_domain_metadata(domain, "{}")


@pytest.mark.parametrize("configuration", [5, {"a": 1}, b"x"])
def test_configurations_are_texts(table, configuration):
    with pytest.raises(errors.InvalidArgumentError, match="must be a string"):
        table.alter.set_domain_metadata("d", configuration)
    assert table.version() == 0


def test_those_of_the_engines_are_read(tmp_path):
    write_deltalake(tmp_path, ROWS, cluster_by="a", configuration={"delta.enableRowTracking": "true"})
    found = DeltaTable(tmp_path).domain_metadata()
    assert json.loads(found["delta.clustering"])["clusteringColumns"] == [["a"]]
    assert json.loads(found["delta.rowTracking"]) == {"rowIdHighWaterMark": 2}
    DeltaTable(tmp_path).alter.set_domain_metadata("mine", "1")
    assert DeltaTable(tmp_path).domain_metadata() == {**found, "mine": "1"}
