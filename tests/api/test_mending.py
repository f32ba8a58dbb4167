"""The old value of a property is no condition of the statement that replaces it: tables that another engine has left
with values that do not fit are mended by SET, UNSET, RESTORE and a replacement; other writes say how.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.table import properties
from refdelta.table.clustering import DOMAIN

pytestmark = pytest.mark.breaks_tables
ROWS = pa.table({"id": [1, 2, 3], "s": ["a", "b", "c"]})

WRONG = {
    properties._boolean: ["maybe", ""],
    properties.parse_interval: ["P30D", "1 month", "-2 days"],
    properties.parse_size: ["large", "0"],
    properties.split_columns: ["a,,b", "`a"],
}
RIGHT = {
    properties._boolean: "false",
    properties.parse_interval: "interval 30 days",
    properties.parse_size: "64mb",
    properties.split_columns: "id",
}


def right(row):
    """A valid value of a property that users set."""
    if row.read in RIGHT:
        return RIGHT[row.read]
    return (
        "10"
        if row.read is not properties._text and row.name != "delta.checkpointPolicy" and _reads(row, "10")
        else {
            "delta.checkpointPolicy": "classic",
            "delta.columnMapping.mode": "none",
            "delta.isolationLevel": "Serializable",
            "delta.parquet.compression.codec": "zstd",
            "delta.parquet.format.version": "1.0.0",
        }.get(row.name)
    )


def _reads(row, text):
    try:
        row.read(text)
    except ValueError:
        return False
    return True


CASES = [
    (row.name, wrong)
    for row in properties.PROPERTIES.values()
    if row.read is not properties._text and row.name not in properties.PROTOCOL_KEYS
    for wrong in WRONG.get(row.read, ["ten", "9999999999999999999999"])
]


def spoil(path, *, of_column=(), marks=(), features=(), clustering=None, **configuration):
    """Another engine writes these properties, marks of a column and clustering domain, whatever their values."""
    snapshot = DeltaTable(path)._handle.snapshot
    version = snapshot.version + 1
    schema = json.loads(snapshot.metadata.schema_string)
    for field in schema["fields"]:
        if field["name"] in of_column:
            field["metadata"] |= dict(marks)
    metadata = {
        "id": snapshot.metadata.id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": [],
        "configuration": {**(snapshot.metadata.configuration or {}), **configuration},
    }
    lines = [{"commitInfo": {"operation": "SET TBLPROPERTIES"}}, {"metaData": metadata}]
    if features:
        versions = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": []}
        lines.append({"protocol": {**versions, "writerFeatures": list(features)}})
    if clustering is not None:
        lines.append({"domainMetadata": {"domain": DOMAIN, "configuration": clustering, "removed": False}})
    log = path / "_delta_log" / f"{version:020}.json"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def path(tmp_path):
    write_deltalake(tmp_path / "t", ROWS)
    return tmp_path / "t"


def writes(path):
    write_deltalake(path, ROWS, mode="append")
    DeltaTable(path).delete("id = 1")
    return DeltaTable(path)


def mends(path, name, how):
    row, table = properties.PROPERTIES[name.lower()], DeltaTable(path)
    if how == "set":
        table.alter.set_table_properties({name: right(row)})
    elif how == "unset":
        table.alter.unset_table_properties([name])
    elif how == "restore":
        table.restore(0)
    else:
        DeltaTable.create(path, ROWS.schema, mode="overwrite")


@pytest.mark.sample(check=24, test=80)
@pytest.mark.parametrize(("name", "wrong"), CASES)
@pytest.mark.parametrize("how", ["set", "unset", "restore", "replace"])
def test_a_value_that_does_not_fit_is_replaced(path, name, wrong, how):
    row = properties.PROPERTIES[name.lower()]
    spoil(path, **{name: wrong})
    if how == "set" and not row.settable:
        with pytest.raises(errors.InvalidArgumentError, match="is not for users to set"):
            DeltaTable(path).alter.set_table_properties({name: "1"})
        return
    mends(path, name, how)
    stored = DeltaTable(path)._handle.snapshot.metadata.configuration or {}
    assert stored.get(name) == (right(row) if how == "set" else None)
    table = writes(path)
    assert table.count() == {"replace": 2}.get(how, 4)
    assert table.to_pyarrow_table().schema.names == ["id", "s"]


@pytest.mark.parametrize(
    ("name", "wrong"), [(name, wrong) for name, wrong in CASES if name in properties._FIELDS.values()]
)
@pytest.mark.sample(check=8, test=20)
def test_other_writes_say_how_to_mend_it(path, name, wrong):
    spoil(path, **{name: wrong})
    if name != "delta.columnMapping.mode":  # by which columns are found
        assert DeltaTable(path).count() == 3
    files = {file.name for file in path.glob("*.parquet")}
    settable = properties.PROPERTIES[name.lower()].settable
    for write in (
        lambda: write_deltalake(path, ROWS, mode="append"),
        lambda: write_deltalake(path, ROWS, mode="overwrite"),
        lambda: write_deltalake(path, ROWS, mode="overwrite", schema_mode="overwrite"),
        lambda: DeltaTable(path).delete("id = 1"),
        lambda: DeltaTable(path).update({"s": "'x'"}),
        DeltaTable(path).optimize.compact,
        lambda: DeltaTable(path).alter.add_columns([pa.field("n", pa.int64())]),
        lambda: DeltaTable(path).alter.set_table_properties({"mine": "1"}),
        lambda: DeltaTable(path).alter.set_table_name("name"),
    ):
        with pytest.raises(errors.InvalidLogError) as caught:
            write()
        assert f"alter.unset_table_properties([{name!r}]) removes it" in str(caught.value)
        assert ("alter.set_table_properties gives it another value" in str(caught.value)) is settable
    assert DeltaTable(path).version() == 1
    assert {file.name for file in path.glob("*.parquet")} == files


def test_several_are_replaced_by_one_statement(path):
    wrong = {"delta.checkpointInterval": "ten", "delta.logRetentionDuration": "P30D", "delta.appendOnly": "perhaps"}
    spoil(path, **wrong)
    with pytest.raises(errors.InvalidLogError, match=r"logRetentionDuration is 'P30D'.*appendOnly is 'perhaps'"):
        DeltaTable(path).alter.set_table_properties({"delta.checkpointInterval": "10"})
    with pytest.raises(errors.InvalidLogError, match="checkpointInterval is 'ten'"):
        DeltaTable(path).alter.unset_table_properties(["delta.logRetentionDuration", "delta.appendOnly"])
    assert DeltaTable(path).version() == 1
    DeltaTable(path).alter.unset_table_properties(list(wrong))
    assert not DeltaTable(path)._handle.snapshot.metadata.configuration
    assert writes(path).count() == 4


def test_names_in_another_case(path):
    spoil(path, **{"delta.CheckpointINTERVAL": "ten", "mine": "1"})
    DeltaTable(path).alter.unset_table_properties(["delta.checkpointInterval"])
    assert DeltaTable(path)._handle.snapshot.metadata.configuration == {"mine": "1"}
    assert writes(path).count() == 4


def test_one_transaction_mends_and_writes(path):
    spoil(path, **{"delta.checkpointInterval": "ten"})
    with DeltaTable(path).begin() as txn:
        with pytest.raises(errors.InvalidLogError, match="'ten'"):
            txn.append(ROWS)
        assert txn.read().num_rows == 3
        txn.unset_table_properties(["delta.checkpointInterval"])
        txn.append(ROWS)
        txn.commit()
    assert DeltaTable(path).count() == 6


def test_a_version_with_a_value_that_does_not_fit_is_not_restored(path):
    spoil(path, **{"delta.checkpointInterval": "ten"})
    DeltaTable(path).alter.unset_table_properties(["delta.checkpointInterval"])
    with pytest.raises(errors.InvalidLogError, match="'ten'"):
        DeltaTable(path).restore(1)
    assert DeltaTable(path).version() == 2


# --- other parts of the table that cannot be read --------------------------------------------------------------------

CLUSTERED = ("clustering", "domainMetadata")
GONE = json.dumps({"clusteringColumns": [["gone"], ["id"]], "domainName": DOMAIN})
IDENTITY = {"delta.identity.start": "x", "delta.identity.step": 1, "delta.identity.allowExplicitInsert": True}
TIMES = {"delta.enableInCommitTimestamps": "true", "delta.inCommitTimestampEnablementVersion": "1"}

ALTERS = {
    "drop_constraint": lambda table: table.alter.drop_constraint("c"),
    "drop_default": lambda table: table.alter.drop_default("s"),
    "set_default": lambda table: table.alter.set_default("s", "'x'"),
    "cluster_by(None)": lambda table: table.alter.cluster_by(None),
    "cluster_by": lambda table: table.alter.cluster_by(["s"]),
    "times off": lambda table: table.alter.set_table_properties({"delta.enableInCommitTimestamps": "false"}),
    "unset times": lambda table: table.alter.unset_table_properties(["delta.enableInCommitTimestamps"]),
    "restore": lambda table: table.restore(0),
    "replace": lambda table: DeltaTable.create(table.table_uri, ROWS.schema, mode="overwrite"),
    "overwrite": lambda table: write_deltalake(table, ROWS, mode="overwrite", schema_mode="overwrite"),
}


def constraint(sql):
    return {"features": ["checkConstraints"], "delta.constraints.c": sql}


def marked(feature, column, **marks):
    return {"features": [feature], "of_column": [column], "marks": marks}


SPOILT = {
    "a constraint that cannot be parsed": (constraint("id >>> 0 ((("), "drop_constraint('c')", "drop_constraint"),
    "a constraint of a column that is gone": (constraint("gone > 0"), "drop_constraint('c')", "drop_constraint"),
    "a constraint that is no condition": (constraint("id + 1"), "drop_constraint('c')", "drop_constraint"),
    "a default that cannot be parsed": (
        marked("allowColumnDefaults", "s", CURRENT_DEFAULT="((("),
        "drop_default('s')",
        "drop_default set_default overwrite",
    ),
    "an expression that cannot be parsed": (
        marked("generatedColumns", "s", **{"delta.generationExpression": "((("}),
        'schema_mode="overwrite"',
        "overwrite",
    ),
    "an invariant that is not JSON": (
        marked("invariants", "s", **{"delta.invariants": "{bad"}),
        'schema_mode="overwrite"',
        "overwrite",
    ),
    "an identity column that starts nowhere": (
        marked("identityColumns", "id", **IDENTITY),
        'schema_mode="overwrite"',
        "overwrite",
    ),
    "a clustering domain that is not JSON": (
        {"features": CLUSTERED, "clustering": "{bad"},
        "cluster_by(None)",
        "cluster_by(None) cluster_by",
    ),
    "half of the beginning of in-commit timestamps": (
        {"features": ["inCommitTimestamp"], **TIMES},
        "unset_table_properties(['delta.enableInCommitTimestamps'])",
        "times_off unset_times",
    ),
}


@pytest.mark.parametrize(
    ("what", "how"),
    [(what, how) for what, (_, _, mends) in SPOILT.items() for how in [*mends.split(), "restore", "replace"]],
)
def test_what_cannot_be_read_is_replaced(path, what, how):
    spoilt, named, _ = SPOILT[what]
    spoil(path, **spoilt)
    with pytest.raises(errors.DeltaError) as caught:
        write_deltalake(path, ROWS, mode="append")
    assert named in str(caught.value)
    ALTERS[how.replace("_", " ") if how.replace("_", " ") in ALTERS else how](DeltaTable(path))
    write_deltalake(path, ROWS, mode="append")
    assert DeltaTable(path).count() == (3 if how == "replace" else 6)


def test_cluster_by_replaces_columns_that_are_gone(path):
    spoil(path, features=CLUSTERED, clustering=GONE)
    DeltaTable(path).alter.cluster_by(["id"])
    assert "gone" not in DeltaTable(path)._handle.snapshot.domains[DOMAIN].configuration
    version = DeltaTable(path).version()
    DeltaTable(path).alter.cluster_by(["id"])
    assert DeltaTable(path).version() == version
    spoil(path, features=CLUSTERED, clustering=GONE.replace(', ["id"]', ""))
    DeltaTable(path).alter.cluster_by(None)
    assert json.loads(DeltaTable(path)._handle.snapshot.domains[DOMAIN].configuration)["clusteringColumns"] == []
