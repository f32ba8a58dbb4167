"""What keeps a log short, and what must stay in it: checkpoints, their cleanup, checkpointProtection."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.core.log.actions import Metadata
from refdelta.core.log.codec import decode_commit, encode_commit
from refdelta.core.log.paths import commit_key
from written_tables import actions

PROTECTED = "delta.requireCheckpointProtectionBeforeVersion"


def rows(*numbers):
    return pa.table({"n": pa.array(numbers, pa.int64())})


def protect(path, version, before):
    """Commit what delta-spark's DROP FEATURE leaves: checkpoints before a version are protected."""
    table = DeltaTable(path)
    table.alter.set_table_properties({"delta.feature.checkpointProtection": "supported"})
    (metadata,) = actions(path, 0, "metaData")
    assert DeltaTable(path).version() == version - 1
    (action,) = decode_commit(json.dumps({"metaData": metadata}).encode(), "")
    assert isinstance(action, Metadata)
    action.configuration[PROTECTED] = str(before)
    (path / commit_key(version)).write_bytes(encode_commit([action]))


def test_protected_checkpoints(tmp_path):
    write_deltalake(tmp_path, rows(1))
    write_deltalake(tmp_path, rows(2), mode="append")
    stale, old = DeltaTable(tmp_path), DeltaTable(tmp_path, version=0)
    protect(tmp_path, version=3, before=3)
    for handle in (stale, old):
        with pytest.raises(errors.InvalidArgumentError, match="protects the checkpoints before version 3"):
            handle.create_checkpoint()
    assert not list(tmp_path.glob("_delta_log/*checkpoint*"))
    table = DeltaTable(tmp_path)
    table.create_checkpoint()
    # All verbs write to such a table, and none of them takes the protection from it.
    write_deltalake(table, rows(3), mode="append")
    table.delete("n = 1")
    table.optimize.compact()
    table.restore(1)
    assert table.metadata().configuration[PROTECTED] == "3"
    write_deltalake(table, rows(7), mode="overwrite", schema_mode="overwrite")
    DeltaTable.create(tmp_path, pa.schema([("m", pa.int32())]), mode="overwrite")
    table = DeltaTable(tmp_path)
    assert table.metadata().configuration == {PROTECTED: "3"}
    assert "checkpointProtection" in table.protocol().writer_features
    with pytest.raises(errors.InvalidArgumentError, match="cannot be unset"):
        table.alter.unset_table_properties([PROTECTED])


@pytest.mark.breaks_tables
def test_a_table_that_this_engine_may_not_write_keeps_its_log(tmp_path):
    write_deltalake(tmp_path, rows(1))
    later = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["from-tomorrow"]}}
    (tmp_path / commit_key(1)).write_text(json.dumps(later) + "\n")
    table = DeltaTable(tmp_path)
    for verb in (table.create_checkpoint, table.cleanup_metadata, table.compact_logs):
        with pytest.raises(errors.UnsupportedFeatureError, match="from-tomorrow"):
            verb()
    assert len(list(tmp_path.glob("_delta_log/*.json"))) == 2
