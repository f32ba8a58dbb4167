"""Each exception in each situation that the documentation names for it, and its examples, through a store and back."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

from concurrency.commits import FLAT, SCHEMA, SERIALIZABLE, TABLE, WRITE_SERIALIZABLE, add, remove, where
from refdelta import CommitProperties, DeltaTable, errors, write_deltalake
from refdelta.core.commit.transaction import CommitOutcome, PreparedCommit
from refdelta.core.conflicts.reads import Read, ReadSet, ReadTable
from refdelta.core.log.actions import AnyAction, CommitInfo, DomainMetadata, Metadata, Protocol, Remove, Txn
from refdelta.core.log.codec import decode_commit, encode_commit
from refdelta.core.log.paths import commit_key
from refdelta.engine.log.file_committer import list_versions, read_commit
from refdelta.table.types import schema_json
from refdelta.transaction.driver import commit
from refdelta_storage import LocalStore, MemoryStore

PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)
METADATA = Metadata(id="m", schema_string=schema_json(SCHEMA), partition_columns=["p"])


class Table:
    """A log in memory, and transactions upon it that see version 0."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.commit("origin", [PROTOCOL, METADATA, add("f1", 1), add("f2", 2)], version=-1)

    def commit(
        self, name: str, actions: list[AnyAction], *, reads=(), version=0, level=WRITE_SERIALIZABLE, table=TABLE, **more
    ) -> CommitOutcome:
        removed = [action for action in actions if isinstance(action, Remove)]
        parse = (table and table.parse) or where
        read = ReadSet(version=version, reads=tuple(Read(parse(sql)) for sql in reads), **more)
        read = read.with_files(removed if reads else [])
        info = {"operation": name, "readVersion": version, "isolationLevel": level.value}
        info |= {"isBlindAppend": read.blind and not removed, "engineInfo": "refdelta/1.0"}
        return commit(
            self.store,
            PreparedCommit(
                read_version=version, read_set=read, actions=actions, commit_info=info, txn_id=str(uuid.uuid4()),
                level=level, table=table,
            ),
        )  # fmt: skip

    def info(self, version: int) -> dict:
        (first, *_) = decode_commit(read_commit(self.store, version), str(version))
        assert isinstance(first, CommitInfo)
        return first.fields


INSERT = {"name": "INSERT", "actions": [add("i", 1)]}
DELETE_1 = {"name": "DELETE", "actions": [remove("f1", 1)], "reads": ["p = 1"]}
UPDATE_1 = {"name": "UPDATE", "actions": [remove("f1", 1), add("u1", 1)], "reads": ["p = 1"]}
MERGE_1 = {"name": "MERGE", "actions": [remove("f1", 1), add("m1", 1)], "reads": ["p = 1 AND a = 3"]}
MERGE_2 = {"name": "MERGE", "actions": [remove("f2", 2), add("m2", 2)], "reads": ["p = 2 AND a = 3"]}
MOVE_2_TO_1 = {"name": "UPDATE", "actions": [remove("f2", 2), add("moved", 1)], "reads": ["p = 2"]}
OPTIMIZE_1 = {"name": "OPTIMIZE", "actions": [remove("f1", 1, changes=False), add("o1", 1, changes=False)]}
UNPARTITIONED = {"table": FLAT}
STREAM = {"name": "STREAMING UPDATE", "actions": [Txn(app_id="query", version=5), add("s", 1)]}
PROPERTIES = {"name": "SET TBLPROPERTIES", "actions": [METADATA]}
UPGRADE = {"name": "UPGRADE PROTOCOL", "actions": [PROTOCOL]}
REPLACE = {"name": "REPLACE TABLE", "actions": [METADATA, add("r")], "reads": ["TRUE"]}
CREATE = {"name": "CREATE TABLE", "actions": [PROTOCOL, METADATA], "version": -1, "table": None}
DOMAIN = {"name": "X", "actions": [DomainMetadata(domain="d", configuration="", removed=False)]}
AT_SERIALIZABLE = {"level": SERIALIZABLE}


@pytest.mark.parametrize(
    ("winner", "ours", "error", "rule"),
    [
        # Files are added where the transaction reads: by an INSERT only at Serializable, by others at either level.
        (INSERT, DELETE_1 | AT_SERIALIZABLE, "ConcurrentAppendException", "files-added"),
        (INSERT, UPDATE_1 | AT_SERIALIZABLE, "ConcurrentAppendException", "files-added"),
        (INSERT, MERGE_1 | AT_SERIALIZABLE, "ConcurrentAppendException", "files-added"),
        (UPDATE_1, DELETE_1, "ConcurrentAppendException", "files-added"),
        (MERGE_1, MERGE_1, "ConcurrentAppendException", "files-added"),
        (MOVE_2_TO_1, DELETE_1, "ConcurrentAppendException", "files-added"),
        # Without partitions, or literals to tell them apart, a file may be of any.
        (MERGE_2, MERGE_1 | UNPARTITIONED, "ConcurrentAppendException", "files-added"),
        (MERGE_2, MERGE_1 | {"reads": ["a = 3"]}, "ConcurrentAppendException", "files-added"),
        # A file that it read was deleted, or rewritten.
        (DELETE_1, UPDATE_1, "ConcurrentDeleteReadException", "read-file-removed"),
        (DELETE_1, MERGE_1, "ConcurrentDeleteReadException", "read-file-removed"),
        (OPTIMIZE_1, UPDATE_1, "ConcurrentDeleteReadException", "read-file-removed"),
        # A file that it deletes was deleted: two compactions of the same files.
        (OPTIMIZE_1, OPTIMIZE_1, "ConcurrentDeleteDeleteException", "deleted-by-both"),
        (DELETE_1, OPTIMIZE_1, "ConcurrentDeleteDeleteException", "deleted-by-both"),
        # ALTER TABLE, or a write that changes the schema.
        (PROPERTIES, INSERT, "MetadataChangedException", "metadata"),
        (PROPERTIES, DELETE_1, "MetadataChangedException", "metadata"),
        (PROPERTIES, OPTIMIZE_1, "MetadataChangedException", "metadata"),
        (PROPERTIES, PROPERTIES, "MetadataChangedException", "metadata"),
        ({"name": "W", "actions": [METADATA, add("w")]}, INSERT, "MetadataChangedException", "metadata"),
        # A streaming query that was started twice; a domain that both write.
        (STREAM, STREAM, "ConcurrentTransactionException", "application"),
        (DOMAIN, DOMAIN, "ConcurrentTransactionException", "domain"),
        # The protocol was upgraded; two create or replace the table, or write to an empty path.
        (UPGRADE, INSERT, "ProtocolChangedException", "protocol"),
        (UPGRADE, UPGRADE, "ProtocolChangedException", "protocol"),
        (REPLACE, REPLACE, "ProtocolChangedException", "table-replaced"),
        (INSERT, CREATE, "ProtocolChangedException", "table-created"),
    ],
)
def test_each_exception_in_each_situation(winner, ours, error, rule):
    table = Table()
    assert table.commit(**winner).version == 1
    with pytest.raises(errors.ConcurrentModificationError) as caught:
        table.commit(**ours)
    assert type(caught.value) is getattr(errors, error)
    found = caught.value.conflict
    creation = ours["actions"] == CREATE["actions"]
    assert (found.rule, found.version) == (rule, 0 if creation else 1)
    assert found.advice in str(caught.value)
    assert [*list_versions(table.store, -1)] == [0, 1]


@pytest.mark.parametrize(
    ("winner", "ours"),
    [
        (INSERT, INSERT | {"actions": [add("j", 1)]}),
        (INSERT, DELETE_1),
        (INSERT, MERGE_1),
        (DELETE_1, INSERT),
        (DELETE_1, INSERT | AT_SERIALIZABLE),
        (MERGE_2, MERGE_1),
        (MERGE_2, MERGE_1 | AT_SERIALIZABLE),
        (OPTIMIZE_1, INSERT),
        (INSERT, OPTIMIZE_1 | AT_SERIALIZABLE),
        (OPTIMIZE_1, MERGE_2),
        (STREAM, STREAM | {"actions": [Txn(app_id="another", version=1)]}),
        (INSERT, PROPERTIES),
    ],
)
def test_what_commits_together(winner, ours):
    table = Table()
    table.commit(**winner)
    outcome = table.commit(**ours)
    assert (outcome.version, outcome.rebased_over) == (2, (1,))


def test_commit_information_says_what_was_read_and_at_which_level():
    table = Table()
    table.commit(**MERGE_2)
    table.commit(**INSERT)
    table.commit(**OPTIMIZE_1, reads=["true"])
    table.commit("QUERY", [add("q", 2)], reads=["p = 9", "a > 3 OR p IS NULL"], level=SERIALIZABLE, version=3)
    table.commit("EVERYTHING", [add("e", 2)], version=4, reads=["TRUE"])
    keys = ("isolationLevel", "readPredicates", "readVersion")
    found = [tuple(table.info(version).get(key) for key in keys) for version in range(1, 6)]
    assert found[1:3] == [("WriteSerializable", None, 0), ("SnapshotIsolation", None, 0)]
    assert found[4] == ("WriteSerializable", ["TRUE"], 4)
    for (level, texts, _), expected in ((found[0], MERGE_2["reads"]), (found[3], ["p = 9", "a > 3 OR p IS NULL"])):
        assert level == ("Serializable" if len(expected) == 2 else "WriteSerializable")
        assert [where(text) for text in texts] == [where(sql) for sql in expected]


@pytest.mark.tier("test")
def test_predicates_that_would_fill_the_log_become_everything():
    table = Table()
    keys = ", ".join(str(number) for number in range(10_000))
    table.commit("MERGE", [remove("f1", 1)], reads=[f"p = 1 AND a IN ({keys})"])
    assert table.info(1)["readPredicates"] == ["TRUE"]


def test_a_refreshed_file_is_removed_with_the_words_of_the_winner():
    table = Table()
    table.commit("COMPUTE STATS", [add("f1", 1, changes=False, base_row_id=70)])
    table.commit(**DELETE_1)
    removed = [a for a in decode_commit(read_commit(table.store, 2), "2") if isinstance(a, Remove)]
    assert [(action.path, action.base_row_id) for action in removed] == [("f1", 70)]


def test_nobody_sets_the_mark_of_row_ids():
    mark = DomainMetadata(domain="delta.rowTracking", configuration='{"rowIdHighWaterMark":9}', removed=False)
    with pytest.raises(errors.InvalidArgumentError, match="rowTracking"):
        Table().commit("INSERT", [add("i", 1), mark])


def test_identity_columns_admit_one_writer_at_a_time():
    table = Table()
    table.commit(**INSERT)
    with pytest.raises(errors.MetadataChangedException) as caught:
        table.commit("INSERT", [add("j", 1)], table=ReadTable(one_writer=True))
    assert caught.value.conflict.rule == "identity"


# --- the public interface -------------------------------------------------------------------------------------------


def test_the_timeline_with_real_rows(tmp_path):
    for level in ("WriteSerializable", "Serializable"):
        path = tmp_path / level
        write_deltalake(path, pa.table({"a": [1, 2]}), configuration={"delta.isolationLevel": level})
        copy = DeltaTable(path).begin()
        copy.append(copy.read(predicate="a = 1"))
        write_deltalake(path, pa.table({"a": [1, 7]}), mode="append")
        if level == "Serializable":
            with pytest.raises(errors.ConcurrentAppendException):
                copy.commit()
            continue
        assert copy.commit().rebased_over == (1,)
        # The query's answer is that of version 0, before the append, whose rows remain.
        assert sorted(DeltaTable(path).to_pyarrow_table()["a"].to_pylist()) == [1, 1, 1, 2, 7]
        assert DeltaTable(path, version=1).count() == 4


def test_an_append_that_was_skipped_and_read_is_in_the_way_with_real_rows(tmp_path):
    write_deltalake(tmp_path, pa.table({"p": [0, 1], "a": [5, 5]}), partition_by=["p"])
    delete = DeltaTable(tmp_path).begin()
    delete.overwrite(pa.table({"p": pa.array([], pa.int64()), "a": pa.array([], pa.int64())}), "p = 0")
    write_deltalake(tmp_path, pa.table({"p": [0], "a": [6]}), mode="append")
    copies = DeltaTable(tmp_path).begin()
    count = copies.read(predicate="p = 0").num_rows
    copies.append(pa.table({"p": [1] * count, "a": [9] * count}))
    copies.commit()
    with pytest.raises(errors.ConcurrentAppendException) as caught:
        delete.commit()
    assert (caught.value.conflict.rule, caught.value.conflict.version) == ("append-skipped", 2)
    assert DeltaTable(tmp_path).version() == 2


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_commit_that_writes_the_metadata_as_it_was_is_in_nobodys_way(tmp_path, checkpoint):
    write_deltalake(tmp_path, pa.table({"p": [0], "a": [5]}), partition_by=["p"], description="as it was")
    store = LocalStore(tmp_path)
    if checkpoint:
        DeltaTable(tmp_path).create_checkpoint()
    append = DeltaTable(tmp_path).begin()
    append.append(pa.table({"p": [1], "a": [6]}))
    (metadata,) = (a for a in decode_commit(read_commit(store, 0), "0") if isinstance(a, Metadata))
    store.put(commit_key(1), encode_commit([CommitInfo(fields={"operation": "another engine's"}), metadata]))
    assert append.commit().rebased_over == (1,)


def test_nobody_may_say_in_the_engines_place_what_was_read(tmp_path):
    lie = CommitProperties(custom_metadata={"readPredicates": []})
    with pytest.raises(errors.InvalidArgumentError, match="readPredicates"):
        write_deltalake(tmp_path / "t", pa.table({"a": [1]}), commit_properties=lie)
