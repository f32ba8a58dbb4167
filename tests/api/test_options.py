"""The options of a commit, which every statement takes and passes on.

Tests of transaction.commit_info.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from refdelta import AppTransaction, CommitProperties, DeltaTable, errors, write_deltalake

ROWS = pa.table({"a": [1, 2, 3]})
STATEMENTS = {
    "begin": lambda table, options: table.begin(**options),
    "write": lambda table, options: write_deltalake(table, ROWS, mode="append", **options),
    "delete": lambda table, options: table.delete("a = 1", **options),
    "update": lambda table, options: table.update({"a": "a + 1"}, **options),
    "merge": lambda table, options: table.merge(ROWS, "t.a = s.a", **options),
    "restore": lambda table, options: table.restore(0, **options),
    "compact": lambda table, options: table.optimize.compact(**options),
    "alter": lambda table, options: table.alter.set_table_properties({"mine": "x"}, **options),
    "drop_feature": lambda table, options: table.alter.drop_feature("deletionVectors", **options),
}


@pytest.fixture
def table(tmp_path):
    write_deltalake(tmp_path / "t", ROWS, configuration={"delta.enableDeletionVectors": "true"})
    return DeltaTable(tmp_path / "t")


@pytest.mark.parametrize("name", STATEMENTS)
def test_an_option_that_does_not_exist_is_refused_and_changes_nothing(table, name):
    with pytest.raises(TypeError, match="unexpected keyword argument 'isolaton'; did you mean 'isolation'"):
        STATEMENTS[name](table, {"isolaton": "Serializable"})
    with pytest.raises(TypeError, match="'zzz'; options: isolation, app_id, app_version, commit_properties, executor"):
        STATEMENTS[name](table, {"zzz": 1})
    table.update_incremental()
    assert table.version() == 0


@pytest.mark.parametrize("name", [name for name in STATEMENTS if name not in ("begin", "merge", "drop_feature")])
def test_every_statement_records_the_version_of_an_application_once(table, name):
    for version in (1, 1):
        STATEMENTS[name](table, {"app_id": "job", "app_version": version})
    assert table.transaction_version("job") == 1
    assert table.version() == 1


def test_a_statement_of_a_transaction_takes_no_options(table):
    with table.begin() as txn:
        with pytest.raises(TypeError, match="unexpected keyword argument 'isolation'"):
            txn.add_columns(pa.field("b", pa.int64()), isolation="Serializable")
        with pytest.raises(TypeError, match="unexpected keyword argument 'app_id'"):
            txn.set_domain_metadata("mine", "x", app_id="job")
        txn.add_columns(pa.field("b", pa.int64()))
        assert txn.commit().version == 1


@pytest.mark.parametrize(
    "options",
    [
        {"app_id": "job", "app_version": 1},
        {"commit_properties": CommitProperties(app_transactions=[AppTransaction(app_id="job", version=1)])},
    ],
)
def test_of_several_commits_the_last_records_the_application(tmp_path, monkeypatch, options):
    monkeypatch.setattr("refdelta.api.alter.FILES_AT_ONCE", 1)
    for _ in range(3):
        write_deltalake(tmp_path / "t", ROWS, mode="append")
    table = DeltaTable(tmp_path / "t")
    result = table.alter.set_table_properties({"delta.enableRowTracking": "true"}, **options)
    assert result.version > 3  # ids for the files that are there, some in commits of their own, and then the property
    assert table.metadata().configuration["delta.enableRowTracking"] == "true"
    assert table.transaction_version("job") == 1
    with pytest.raises(
        errors.InvalidArgumentError, match=r"drop_feature makes several commits, and .* is recorded by one"
    ):
        table.alter.drop_feature("rowTracking", **options)
    with pytest.raises(
        errors.InvalidArgumentError, match=r"min_commit_interval makes several commits, and .* is recorded by one"
    ):
        table.optimize.compact(min_commit_interval=0, **options)
