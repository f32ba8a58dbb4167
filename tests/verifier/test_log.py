"""Each rule of a log is broken once, by hand, and the verifier names just that clause, with version and line.

Tests of verifier.commits, verifier.metadata, verifier.run.
"""

from __future__ import annotations

import json
import os
from typing import ClassVar

import pyarrow as pa
import pytest

from handmade import PROTOCOL, Handmade, field, metadata, struct
from refdelta import DeltaTable, write_deltalake
from refdelta.engine.log.location import open_location
from refdelta.errors import TableNotFoundError
from refdelta.verifier.run import verify_store
from refdelta_storage import MemoryStore
from verifier.tables import SCHEMA, add, found, protocol, remove, table, vector

VECTORS = {"protocol": protocol(reader=("deletionVectors",)), "configuration": {"delta.enableDeletionVectors": "true"}}
STAMPED = {"protocol": protocol("inCommitTimestamp"), "configuration": {"delta.enableInCommitTimestamps": "true"}}
# Read as one of row 3, though it is no z85.
FILLED_UP = vector("^Bg9^0rr910000000000iXQKl0rr91000005c8Xg##093", 1) | {"sizeInBytes": 34}


def info(stamp):
    return {"commitInfo": {"inCommitTimestamp": stamp, "operation": "WRITE"}}


def vectors():
    made = table(**VECTORS)
    made.commit(add("a", 30))
    return made


def test_a_sound_log_has_no_finding():
    made = vectors()
    made.commit(remove("a"), add("a", 30, deletionVector=vector()), {"txn": {"appId": "x", "version": 1}})
    made.commit(remove("a", deletionVector=vector()), add("b", 24), {"unheard": {"of": 1}})
    made.commit(add("b", 24, dataChange=False))
    assert found(made) == []


def test_a_folder_without_a_log_is_no_table():
    with pytest.raises(TableNotFoundError):
        verify_store(MemoryStore())


LINES = [
    ("log-3", 2, '{"add": {"path": "a"}}'),
    ("log-3", 2, "{"),
    ("log-3", 2, '{"add": {}, "remove": {}}'),
    ("log-7", 2, '{"checkpointMetadata": {"version": 1}}'),
    ("action-13", 2, '{"cdc": {"path": "_change_data/a", "partitionValues": {}, "size": 1, "dataChange": true}}'),
    ("cdf-5", 2, '{"cdc": {"path": "a", "partitionValues": {}, "size": 1, "dataChange": false}}'),
]


@pytest.mark.parametrize(("clause", "line", "text"), LINES)
def test_lines_that_no_commit_has(clause, line, text):
    made = table()
    made.version += 1
    made.put(f"_delta_log/{1:020d}.json", f"{json.dumps(add('x'))}\n{text}\n".encode())
    assert found(made) == [(clause, 1, line)]


@pytest.mark.parametrize("unset", ["", ', "schemaString": null'])
def test_a_table_that_gets_its_schema_later(unset):
    made = Handmade()
    made.version += 1
    first = f'{{"metaData": {{"id": "{metadata(SCHEMA)["metaData"]["id"]}", "partitionColumns": []{unset}}}}}'
    made.put(f"_delta_log/{0:020d}.json", f"{json.dumps(PROTOCOL)}\n{first}\n".encode())
    made.commit(metadata(SCHEMA))
    assert found(made) == [("schema-1", 0, 2)]


def test_an_empty_commit():
    made = table()
    made.put(f"_delta_log/{1:020d}.json", b"\n")
    assert found(made) == [("log-3", 1, None)]


COMMITS = [
    ("action-1", 2, [add("b"), add("b", deletionVector=vector())]),
    ("action-1", 2, [remove("a"), remove("a", deletionVector=vector())]),
    ("action-8", 2, [metadata(SCHEMA), metadata(SCHEMA)]),
    ("action-8", 2, [VECTORS["protocol"], VECTORS["protocol"]]),
    ("action-8", 2, [{"txn": {"appId": "x", "version": 1}}, {"txn": {"appId": "x", "version": 2}}]),
    ("action-9", 1, [remove("a"), add("a", 30)]),
    ("action-10", 1, [add("a", 30, deletionVector=vector())]),
    ("action-11", 1, [add("c", 30, dataChange=False)]),
    ("action-11", None, [add("c", 31, dataChange=False), remove("a", dataChange=False)]),
    ("action-12", None, [add("c", 29, dataChange=False), remove("a", dataChange=False)]),
    ("action-12", 1, [remove("a", dataChange=False)]),
    ("action-14", 1, [remove("a", extendedFileMetadata=True, size=1)]),
    ("action-15", 1, [{"remove": {"path": "a", "dataChange": True}}]),
    ("action-18", 1, [{"domainMetadata": {"domain": "mine", "configuration": "", "removed": False}}]),
    ("path-1", 1, [add("%zz")]),
    ("path-1", 1, [add("../b")]),
    ("file-6", 1, [add("_hidden/b")]),
    ("file-3", 1, [add("b", partitionValues={"part": "x"})]),
    ("stats-4", 1, [add("b", -1)]),
    ("stats-6", 1, [add("b", stats="{")]),
    ("dv-5", 1, [add("b", stats="{}", deletionVector=vector())]),
    ("dv-6", 1, [remove("a", deletionVector=vector())]),
    ("dv-9", 1, [add("b", 30, deletionVector=vector("!"))]),
    ("dv-9", 1, [add("b", 30, deletionVector=FILLED_UP)]),
    ("dv-9", 1, [add("b", 30, deletionVector=vector() | {"offset": 1})]),
    ("dv-9", 1, [add("b", 30, deletionVector=vector() | {"storageType": "x"})]),
]


@pytest.mark.parametrize(("clause", "line", "actions"), COMMITS)
def test_a_commit_that_breaks_one_rule(clause, line, actions):
    made = vectors()
    made.commit(*actions)
    names = found(made)
    assert (clause, 2, line) in names
    # What is wrong with a vector may be wrong in a second way.
    assert {name for name, *_ in names} <= {clause, "dv-6", "dv-7"}


def test_new_vectors_only_where_they_are_enabled():
    made = table(protocol=protocol(reader=("deletionVectors",)))
    made.commit(add("a", 30))
    made.commit(remove("a"), add("a", 30, deletionVector=vector()))
    assert found(made) == [("dv-4", 2, 2)]


def test_a_vector_that_comes_back_is_not_new():
    made = vectors()
    made.commit(remove("a"), add("a", 30, deletionVector=vector()))
    made.commit(metadata(SCHEMA), remove("a", deletionVector=vector()), add("b", 1))
    made.commit(add("a", 30, deletionVector=vector()), remove("b"))
    assert found(made) == []


def test_vectors_need_their_feature():
    made = table(protocol=protocol("appendOnly"))
    made.commit(add("a", 30, deletionVector=vector()))
    assert found(made) == [("dv-7", 1, 1)]


def test_the_first_version_has_protocol_and_metadata():
    made = Handmade()
    made.commit(add("a"))
    assert found(made) == [("action-2", 0, None), ("action-2", 0, None)]


def test_append_only():
    made = table(configuration={"delta.appendOnly": "true"})
    made.commit(add("a"))
    made.commit(remove("a", dataChange=False), add("b", dataChange=False))
    assert found(made) == []
    made.commit(remove("b"))
    assert found(made) == [("feature-4", 3, 1)]


CDC = {"cdc": {"path": "_change_data/c", "partitionValues": {}, "size": 1, "dataChange": False}}


@pytest.mark.parametrize(
    ("operation", "more", "clauses"),
    [
        ("UPDATE", [add("b")], [("cdf-3", 2, 3)]),
        ("UPDATE", [add("b"), CDC], []),
        ("DELETE", [add("b")], [("cdf-3", 2, 3)]),
        ("DELETE", [], []),
        ("DELETE", [add("a", deletionVector=vector())], []),
        ("DELETE", [add("a", deletionVector=vector()), add("b")], []),
        ("DELETE 0", [add("b")], []),
        ("DELETE 1", [add("b")], [("cdf-3", 2, 3)]),
        ("WRITE", [add("b")], []),
    ],
)
def test_changes_are_told_where_the_feed_is_on(operation, more, clauses):
    made = table(
        protocol=protocol("changeDataFeed", reader=("deletionVectors",)),
        configuration={"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"},
    )
    made.commit(add("a"))
    name, *copied = operation.split()
    metrics = {"operationMetrics": {"numCopiedRows": copied[0]}} if copied else {}
    made.commit({"commitInfo": {"operation": name, **metrics}}, remove("a"), *more)
    assert found(made) == clauses


def test_a_version_that_is_missing():
    made = table()
    made.version += 1
    made.commit(add("a"))
    assert found(made) == [("log-2", 1, None)]
    made.checkpoint(2, [PROTOCOL, metadata(SCHEMA), add("a")])
    made.commit(add("b"), remove("b", extendedFileMetadata=True))
    # After the gap it continues from a checkpoint.
    assert {clause for clause, *_ in found(made)} == {"log-2", "action-9", "action-14"}


def test_versions_that_went_without_a_checkpoint():
    made = table()
    made.commit(add("a"))
    made.store.delete([f"_delta_log/{0:020d}.json"])
    assert found(made) == [("check-7", 1, None)]


def test_a_catalog_managed_table_has_timestamps_and_ids():
    managed = protocol("inCommitTimestamp", reader=("catalogManaged",))
    on = {"delta.enableInCommitTimestamps": "true"}

    def commit(stamp, txn_id):
        return {"commitInfo": {"inCommitTimestamp": stamp, "operation": "WRITE", "txnId": txn_id}}

    made = Handmade()
    made.commit(commit(5, "a"), managed, metadata(SCHEMA, configuration=on))
    made.commit(commit(6, "b"), add("a"))
    assert found(made) == []
    made.commit(commit(7, None), add("b"))
    made.commit(commit(8, "c"), metadata(SCHEMA))
    assert found(made) == [("catalog-10", 2, 1), ("catalog-9", 3, 1)]


class TestTimestamps:
    def test_they_rise_and_stand_first(self):
        made = Handmade()
        made.commit(info(5), STAMPED["protocol"], metadata(SCHEMA, configuration=STAMPED["configuration"]))
        made.commit(info(6), add("a"))
        assert found(made) == []
        made.commit(info(6), add("b"))
        made.commit(add("c"), info(9))
        assert found(made) == [("ict-2", 2, 1), ("ict-2", 3, 1)]

    @pytest.mark.parametrize(
        ("version", "stamp", "bad"), [("1", "7", 0), (None, None, 2), ("1", "8", 1), ("2", "7", 1)]
    )
    def test_where_they_come_later_the_metadata_says_so(self, version, stamp, bad):
        made = table(protocol=STAMPED["protocol"])
        since = {
            "delta.inCommitTimestampEnablementVersion": version,
            "delta.inCommitTimestampEnablementTimestamp": stamp,
        }
        told = {name: value for name, value in since.items() if value is not None}
        made.commit(info(7), metadata(SCHEMA, configuration=STAMPED["configuration"] | told))
        assert found(made) == [("ict-3", 1, None)] * bad


def test_timestamps_begin_behind_the_file_of_the_version_before(tmp_path):
    """Unless the file was copied since: then its time is unknown."""
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"id": [1]}))
    DeltaTable(path).alter.set_table_properties({"delta.enableInCommitTimestamps": "true"})
    first = path / "_delta_log" / f"{0:020d}.json"
    for minutes, expected in ((0, []), (10, ["ict-4"]), (100, [])):
        time = first.stat().st_mtime + minutes * 60
        os.utime(first, (time, time))
        report = verify_store(open_location(path), sample=0)
        assert [finding.clause for finding in report.findings] == expected
        assert report.sound


class TestDropped:
    """Features that go."""

    FED = metadata(SCHEMA, configuration={"delta.enableChangeDataFeed": "true"})
    STAMPED = metadata(SCHEMA, configuration=STAMPED["configuration"])
    OFF = metadata(SCHEMA)
    DROP: ClassVar = {"commitInfo": {"operation": "DROP FEATURE"}}

    def of(self, before, after, *actions, start=()):
        made = table(protocol=protocol(*before))
        if start:
            made.commit(*start)
        made.commit(*actions, protocol(*after))
        return found(made)

    def test_as_the_specification_has_it(self):
        assert self.of(["changeDataFeed", "appendOnly"], ["appendOnly"], self.DROP) == []
        assert self.of(["appendOnly"], ["appendOnly", "changeDataFeed"]) == []
        assert self.of(["changeDataFeed"], [], self.DROP, self.OFF, start=[self.FED]) == []

    def test_by_another_operation(self):
        write = {"commitInfo": {"operation": "WRITE"}}
        assert self.of(["changeDataFeed", "appendOnly"], ["appendOnly"], write) == [("feature-5", 1, 2)]

    def test_without_a_word(self):
        assert self.of(["appendOnly"], []) == [("feature-5", 1, 1)]

    def test_versions_that_have_used_it_are_protected_or_gone(self):
        used = ({"commitInfo": {"inCommitTimestamp": 1}}, self.VECTORS_ON)
        features = {"reader": ("deletionVectors",)}

        def of(*after, configuration=None):
            made = table(protocol=protocol(**features))
            made.commit(*used)
            made.commit(self.DROP, metadata(SCHEMA, configuration=configuration or {}), protocol(*after))
            return found(made)

        assert of() == [("feature-5", 2, 3)]
        assert of("checkpointProtection") == [("feature-5", 2, 3)]
        version = {"delta.requireCheckpointProtectionBeforeVersion": "2"}
        assert of("checkpointProtection", configuration=version) == []

    VECTORS_ON = metadata(SCHEMA, configuration=VECTORS["configuration"])


class TestPartitions:
    def test_values_are_of_the_columns_type(self):
        made = table("id")
        made.commit(add("a", partitionValues={"id": "x"}), add("b", partitionValues={"id": ""}))
        assert found(made) == [("part-3", 1, 1)]

    def test_every_file_has_one(self):
        made = table("part")
        made.commit(add("part=x/a", partitionValues={"part": None}), add("part=x/b"))
        assert found(made) == [("file-3", 1, 2)]

    def test_the_columns_are_in_the_schema(self):
        made = table("nowhere")
        assert found(made) == [("action-16", 0, 2)]


TABLES = [
    ("feature-3", {"minReaderVersion": 3, "minWriterVersion": 2}, {}),
    ("feature-3", {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking"]}, {}),
    ("feature-6", {"minReaderVersion": 1, "minWriterVersion": 2}, {"delta.enableChangeDataFeed": "true"}),
    ("feature-6", {"minReaderVersion": 1, "minWriterVersion": 2}, {"delta.enableRowTracking": "true"}),
]


@pytest.mark.parametrize(("clause", "versions", "configuration"), TABLES)
def test_a_protocol_that_does_not_do(clause, versions, configuration):
    made = table(protocol={"protocol": versions}, configuration=configuration)
    assert {name for name, *_ in found(made)} == {clause}


SCHEMAS = [
    ("schema-2", struct(field("a", "long"), field("A", "long"))),
    ("schema-2", struct(field("s", struct(field("a", "long"), field("A", "long"))))),
    ("schema-1", struct(field("a", "text"))),
    ("ntz-1", struct(field("a", "timestamp_ntz"))),
    ("rows-8", struct(field("a", "long", **{"delta.identity.start": 1, "delta.identity.step": 0}))),
    ("rows-8", struct(field("a", "long", **{"delta.identity.start": "x", "delta.identity.step": 1}))),
]


@pytest.mark.parametrize(("clause", "schema"), SCHEMAS)
def test_a_schema_that_does_not_do(clause, schema):
    made = table(schema=schema, protocol={"protocol": {"minReaderVersion": 1, "minWriterVersion": 6}})
    assert {name for name, *_ in found(made)} == {clause}


def test_marks_without_their_feature_are_a_warning():
    mark = {"delta.generationExpression": "1"}
    made = table(schema=struct(field("a", "long", **mark)), protocol=protocol("appendOnly"))
    report = verify_store(made.store, sample=0)
    assert [(finding.clause, finding.severity) for finding in report.findings] == [("rows-12", "warning")]
    assert report.sound


def test_a_constraint_names_columns_of_the_table():
    made = table(protocol=protocol("checkConstraints"), configuration={"delta.constraints.c": "gone > 1"})
    assert found(made) == [("rows-3", 0, 2)]


def test_only_parquet():
    made = Handmade()
    made.commit(PROTOCOL, {"metaData": metadata(SCHEMA)["metaData"] | {"format": {"provider": "orc", "options": {}}}})
    assert found(made) == [("action-16", 0, 2)]


class TestWidening:
    PROTOCOL: ClassVar = protocol(reader=("typeWidening",))
    RECORDED: ClassVar = {"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]}

    def changed(self, old, new, *more, protocol=None, **marks):
        made = table(schema=struct(field("a", old)), protocol=protocol or self.PROTOCOL)
        made.commit(add("a", stats="{}"))
        made.commit(
            metadata(struct(field("a", new, **marks)), configuration={"delta.enableTypeWidening": "true"}), *more
        )
        return [(clause, version) for clause, version, _ in found(made)]

    def test_a_recorded_widening_is_sound(self):
        assert self.changed("integer", "long", **self.RECORDED) == []

    def test_one_that_is_not_recorded(self):
        assert self.changed("integer", "long") == [("widen-3", 2)]

    def test_one_that_is_none(self):
        assert self.changed("long", "integer") == [("widen-3", 2)]

    def test_all_files_may_go(self):
        assert self.changed("long", "string", remove("a")) == []

    def restored(self, *late):
        made = table(schema=struct(field("a", "integer")), protocol=self.PROTOCOL)
        made.commit(add("a", stats="{}"))
        wide = struct(field("a", "long", **self.RECORDED))
        made.commit(metadata(wide, configuration={"delta.enableTypeWidening": "true"}), *late)
        return made

    def test_a_type_is_narrow_again_where_no_file_has_wide_values(self):
        made = self.restored()
        made.commit(metadata(struct(field("a", "integer"))))
        assert found(made) == []
        made = self.restored(add("b", stats="{}"))
        made.commit(metadata(struct(field("a", "integer"))), remove("b"))
        assert found(made) == []

    def test_one_with_wide_values_stays(self):
        made = self.restored(add("b", stats="{}"))
        made.commit(metadata(struct(field("a", "integer"))), remove("a"))
        assert found(made) == [("widen-3", 3, 1)]

    def test_one_with_wide_values_comes_back(self):
        made = self.restored(add("b", stats="{}"))
        made.commit(remove("b"))
        made.commit(metadata(struct(field("a", "integer"))), add("b", stats="{}"))
        assert found(made) == [("widen-3", 4, 1)]

    def test_small_integers_were_always_one(self):
        old = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
        made = table(schema=struct(field("a", "short")), protocol=old)
        made.commit(add("a", stats="{}"))
        made.commit(metadata(struct(field("a", "integer"))))
        assert found(made) == []

    @pytest.mark.parametrize(
        "changes",
        [[{"fromType": "long", "toType": "integer"}], [{"fromType": "long"}], "x", [{"fromType": "", "toType": "q"}]],
    )
    def test_records_that_are_none(self, changes):
        marks = {"delta.typeChanges": changes}
        made = table(schema=struct(field("a", "long", **marks)), protocol=self.PROTOCOL)
        assert found(made) == [("widen-1", 0, 2)]


class TestMapping:
    CONFIGURATION: ClassVar = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}

    def mapped(self, name, number, physical):
        marks = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
        return field(name, "long", **{key: value for key, value in marks.items() if value is not None})

    def table(self, *fields, **configuration):
        versions = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
        return table(schema=struct(*fields), protocol=versions, configuration=self.CONFIGURATION | configuration)

    def test_sound(self):
        made = self.table(self.mapped("a", 1, "x"), self.mapped("b", 2, "y"))
        made.commit(metadata(struct(self.mapped("c", 1, "x")), configuration=self.CONFIGURATION))
        assert found(made) == []

    @pytest.mark.parametrize("second", [(1, "y"), (2, "x"), (None, "y"), (2, None), ("2", "y"), (2**31, "y")])
    def test_names_and_ids_are_each_columns_own(self, second):
        made = self.table(self.mapped("a", 1, "x"), self.mapped("b", *second))
        assert {clause for clause, *_ in found(made)} - {"map-3", "map-6"} == {"map-2"}

    @pytest.mark.parametrize("highest", ["1", "x", ""])
    def test_the_highest_id(self, highest):
        made = self.table(self.mapped("a", 2, "x"), **{"delta.columnMapping.maxColumnId": highest})
        assert found(made) == [("map-3", 0, 2)]

    def test_it_never_goes_down(self):
        made = self.table(self.mapped("a", 1, "x"), **{"delta.columnMapping.maxColumnId": "9"})
        made.commit(metadata(struct(self.mapped("a", 1, "x")), configuration=self.CONFIGURATION))
        assert found(made) == [("map-3", 1, 1)]

    @pytest.mark.parametrize("again", [(2, "x"), (1, "z")])
    def test_they_stay(self, again):
        made = self.table(self.mapped("a", 1, "x"))
        made.commit(metadata(struct(self.mapped("a", *again)), configuration=self.CONFIGURATION))
        assert {clause for clause, *_ in found(made)} == {"map-6"}

    def test_columns_that_are_mapped_anew_have_new_ids(self):
        made = self.table(self.mapped("a", 1, "a"))
        off = self.CONFIGURATION | {"delta.columnMapping.mode": "none"}
        made.commit(metadata(struct(field("a", "long")), configuration=off))
        made.commit(metadata(struct(self.mapped("a", 2, "a")), configuration=self.CONFIGURATION))
        assert found(made) == []
        # As it was before the mapping ended: a version of then is restored.
        made.commit(metadata(struct(self.mapped("a", 1, "a")), configuration=self.CONFIGURATION))
        assert found(made) == []
        made.commit(metadata(struct(self.mapped("a", 1, "b")), configuration=self.CONFIGURATION))
        assert found(made) == [("map-6", 4, 1)]

    def test_files_go_by_physical_names(self):
        made = self.table(self.mapped("a", 1, "x"), self.mapped("b", 2, "y"))
        made.commit(
            metadata(
                json.loads(json.dumps(struct(self.mapped("a", 1, "x"), self.mapped("b", 2, "y")))),
                ("b",),
                self.CONFIGURATION,
            )
        )
        made.commit(add("f", partitionValues={"b": "1"}, stats='{"nullCount":{"x":0}}'))
        made.commit(add("g", partitionValues={"y": "1"}, stats='{"numRecords":1,"nullCount":{"a":0}}'))
        assert found(made) == [("map-5", 2, 1), ("map-5", 3, 1)]


class TestClustering:
    CONTENT: ClassVar = {"clusteringColumns": [["id"]]}

    def table(self, content=None, *partition_columns):
        made = table(*partition_columns, protocol=protocol("clustering", "domainMetadata"))
        text = json.dumps(self.CONTENT if content is None else content)
        made.commit({"domainMetadata": {"domain": "delta.clustering", "configuration": text, "removed": False}})
        return made

    def test_sound(self):
        made = self.table()
        made.commit(add("a"), add("b", 0, stats='{"numRecords":0}'))
        assert found(made) == []

    @pytest.mark.parametrize("content", [{}, [], {"clusteringColumns": [["gone"]]}])
    def test_the_domain_names_columns(self, content):
        assert found(self.table(content)) == [("cluster-1", 1, 1)]

    def test_its_columns_stay(self):
        made = self.table()
        made.commit(metadata(struct(field("other", "long"))))
        assert found(made) == [("cluster-1", 2, 1)]

    def test_files_have_statistics(self):
        made = self.table()
        made.commit(add("a", stats='{"numRecords":1}'))
        assert found(made) == [("cluster-2", 2, 1)]

    def test_not_partitioned_too(self):
        assert found(self.table(None, "part")) == [("cluster-3", 0, 2)]


class TestIceberg:
    def table(self, schema=None, more=(), **configuration):
        mapped = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "x"}
        kind = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "9"}
        return table(
            schema=schema or struct(field("a", "long", **mapped)),
            protocol=protocol("icebergCompatV1", "icebergCompatV2", reader=("columnMapping", *more)),
            configuration=kind | {"delta.enableIcebergCompatV2": "true"} | configuration,
        )

    def test_sound(self):
        made = self.table()
        made.commit(add("f", stats='{"numRecords":1}'))
        assert found(made) == []

    def test_files_count_their_rows(self):
        made = self.table()
        made.commit(add("f", stats="{}"))
        assert found(made) == [("iceberg-2", 1, 1)]

    def test_columns_are_mapped_and_vectors_are_off(self):
        made = self.table(more=("deletionVectors",), **{"delta.enableDeletionVectors": "true"})
        assert found(made) == [("iceberg-1", 0, 2)]
        assert ("iceberg-1", 0, 2) in found(self.table(**{"delta.columnMapping.mode": "none"}))

    def test_one_of_both(self):
        assert found(self.table(**{"delta.enableIcebergCompatV1": "true"})) == [("iceberg-7", 0, 2)]

    def test_types_and_ids_of_elements(self):
        marks = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "x"}
        numbers = {"x": {"type": "array", "elementType": "long", "containsNull": True}}
        assert found(self.table(struct(field("a", numbers["x"], **marks)))) == [("iceberg-5", 0, 2)]
        marks["delta.columnMapping.nested.ids"] = {"x.element": 2}
        assert found(self.table(struct(field("a", numbers["x"], **marks)))) == []
        assert found(self.table(struct(field("a", "void", **marks)))) == [("iceberg-4", 0, 2)]


class TestRowTracking:
    CONFIGURATION: ClassVar = {
        "delta.enableRowTracking": "true",
        "delta.rowTracking.materializedRowIdColumnName": "_id",
        "delta.rowTracking.materializedRowCommitVersionColumnName": "_version",
    }

    def table(self, **configuration):
        return table(
            protocol=protocol("rowTracking", "domainMetadata"), configuration=self.CONFIGURATION | configuration
        )

    def mark(self, number):
        text = json.dumps({"rowIdHighWaterMark": number})
        return {"domainMetadata": {"domain": "delta.rowTracking", "configuration": text, "removed": False}}

    def file(self, path, start, version, rows=3, **fields):
        return add(path, rows, baseRowId=start, defaultRowCommitVersion=version, **fields)

    def test_sound(self):
        made = self.table()
        made.commit(self.file("a", 0, 1), self.mark(2))
        made.commit(self.file("b", 3, 2), self.mark(5))
        made.commit(self.file("a", 0, 1, dataChange=False))
        made.commit(remove("a", baseRowId=0, defaultRowCommitVersion=1))
        made.commit(self.file("a", 0, 1))
        assert found(made) == []

    @pytest.mark.parametrize(
        ("clauses", "actions"),
        [
            ({"track-1", "track-5"}, lambda self: [add("b")]),
            ({"track-1", "track-2"}, lambda self: [self.file("b", 2, 2), self.mark(9)]),
            ({"track-2"}, lambda self: [self.file("b", 3, 2)]),
            ({"track-2"}, lambda self: [self.mark(1)]),
            ({"track-3"}, lambda self: [self.file("b", 3, 1), self.mark(5)]),
            ({"track-4"}, lambda self: [self.file("a", 3, 1, dataChange=False), self.mark(5)]),
            ({"track-4"}, lambda self: [self.file("a", 0, 2, dataChange=False)]),
        ],
    )
    def test_each_rule(self, clauses, actions):
        made = self.table()
        made.commit(self.file("a", 0, 1), self.mark(2))
        made.commit(*actions(self))
        assert {clause for clause, *_ in found(made)} == clauses

    def test_the_hidden_columns_have_names_of_their_own(self):
        key = "delta.rowTracking.materializedRowIdColumnName"
        assert found(self.table(**{key: "id"})) == [("track-5", 0, None)]
        assert found(self.table(**{key: ""})) == [("track-5", 0, None)]

    def test_suspended(self):
        made = self.table(**{"delta.rowTrackingSuspended": "true"})
        assert found(made) == [("track-10", 0, None)]
