"""The registry of table features: what is known, what is refused by name, and the protocols that are written.

Tests of table.protocol_choice.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta.core.log.actions import Metadata, Protocol
from refdelta.errors import InvalidArgumentError, InvalidLogError, UnsupportedFeatureError
from refdelta.table import protocol_choice
from refdelta.table.features import (
    REGISTRY,
    ActivationFacts,
    check_readable,
    check_writable,
    features_of,
    validate_protocol,
)
from refdelta.table.protocol_choice import (
    asked_features,
    minimal_protocol,
    protocol_for_new_table,
    upgraded,
    without,
)
from refdelta.table.types import parse_schema

# PROTOCOL.md, "Valid Feature Names in Table Features", and the three that its body adds.
WRITER_ONLY = {
    "appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "identityColumns",
    "allowColumnDefaults", "rowTracking", "domainMetadata", "icebergCompatV1", "icebergCompatV2", "clustering",
    "inCommitTimestamp",
}  # fmt: skip
READER_WRITER = {
    "columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "catalogManaged", "vacuumProtocolCheck",
    "typeWidening", "variantType", "variantShredding",
}  # fmt: skip
PROPOSED = {
    "columnMappingUsageTracking", "collations", "checkpointProtection", "icebergWriterCompatV1", "icebergCompatV3",
    "materializePartitionColumns", "timestampNanos", "concurrentIdentityColumns",
}  # fmt: skip
PREVIEWS = {
    "typeWidening-preview", "variantType-preview", "variantShredding-preview", "geospatial", "geospatial-dev",
    "redirectReaderWriter-preview", "redirectWriterOnly-preview", "adaptiveMetadata-preview",
    "coordinatedCommits-preview", "catalogOwned-preview",
}  # fmt: skip


def protocol(reader, writer, readers=None, writers=None):
    return Protocol(
        min_reader_version=reader, min_writer_version=writer, reader_features=readers, writer_features=writers
    )


def supporting(*names):
    """A protocol that names just these."""
    readers = [n for n in names if n not in REGISTRY or REGISTRY[n].kind == "reader_writer"]
    return protocol(3, 7, readers, list(names))


def schema(type_="long", metadata=None):
    field = {"name": "a", "type": type_, "nullable": True, "metadata": metadata or {}}
    return json.dumps({"type": "struct", "fields": [field]})


def table(configuration=None, schema_string=None, partition_columns=()):
    return Metadata(
        id="i",
        schema_string=schema_string or schema(),
        partition_columns=list(partition_columns),
        configuration=configuration or {},
    )


# --- the registry ------------------------------------------------------------------------------------------------


def test_every_known_feature_is_registered():
    assert {n for n, f in REGISTRY.items() if f.kind == "writer"} >= WRITER_ONLY
    assert {n for n, f in REGISTRY.items() if f.kind == "reader_writer"} >= READER_WRITER
    assert len(WRITER_ONLY | READER_WRITER) == 22
    assert set(REGISTRY) >= PROPOSED | PREVIEWS


def test_the_registry_is_consistent():
    for name, row in REGISTRY.items():
        assert row.name == name
        assert set(row.requires) <= set(REGISTRY)
        # Readers need not know writer features; what we cannot read we had better not write.
        assert row.read or row.kind == "reader_writer"
        assert row.read or row.write == "never"
        assert not row.preview or row.preview in REGISTRY


W2 = {"appendOnly", "invariants"}
W4 = W2 | {"checkConstraints", "changeDataFeed", "generatedColumns"}


@pytest.mark.parametrize(
    ("reader", "writer", "names"),
    [
        (1, 1, set()),
        (1, 2, W2),
        (1, 3, W2 | {"checkConstraints"}),
        (1, 4, W4),
        (2, 5, W4 | {"columnMapping"}),
        (2, 6, W4 | {"columnMapping", "identityColumns"}),
    ],
)
def test_old_versions_imply_features(reader, writer, names):
    assert features_of(protocol(reader, writer)) == names
    assert minimal_protocol(names) == protocol(reader, writer)


def test_named_features():
    assert features_of(protocol(1, 7, None, ["appendOnly"])) == {"appendOnly"}
    assert features_of(protocol(3, 7, ["timestampNtz"], ["timestampNtz", "x"])) == {"timestampNtz", "x"}
    assert features_of(protocol(3, 7, [], [])) == set()


# --- reading -----------------------------------------------------------------------------------------------------

NOT_READ = {
    "geospatial", "geospatial-dev", "redirectReaderWriter-preview", "catalogOwned-preview",
    "adaptiveMetadata-preview",
    "timestampNanos",
}  # fmt: skip


@pytest.mark.parametrize("name", [*sorted(REGISTRY), "somethingNew"])
def test_reading(name):
    if name in NOT_READ or name not in REGISTRY:
        with pytest.raises(UnsupportedFeatureError, match=name) as caught:
            check_readable(supporting("deletionVectors", name))
        assert caught.value.features == (name,)
    else:
        check_readable(supporting("deletionVectors", name))


@pytest.mark.parametrize("writer", [-1, 2, 6])
def test_features_of_readers_need_the_writer_version_that_lists_features(writer):
    with pytest.raises(InvalidLogError, match=r"versions start at 1|reader version 3 needs writer version 7"):
        check_readable(protocol(3, writer, ["columnMapping"], None))


def test_reading_takes_no_offence_at_writer_features():
    check_readable(protocol(1, 7, None, ["somethingNew", "rowTracking"]))
    check_readable(protocol(3, 7, [], ["somethingNew"]))
    check_readable(protocol(1, 99, None, None))
    check_readable(protocol(2, 5))


def test_versions_from_the_future_are_refused():
    with pytest.raises(UnsupportedFeatureError, match="reader version 99"):
        check_readable(protocol(99, 7, [], []))
    with pytest.raises(UnsupportedFeatureError, match="writer version 8"):
        check_writable(protocol(1, 8), table())


# --- writing -----------------------------------------------------------------------------------------------------

# How each feature becomes active: configuration, field metadata.
ACTIVE = {
    "columnMapping": ({"delta.columnMapping.mode": "name"}, {}),
    "icebergCompatV1": ({"delta.enableIcebergCompatV1": "true"}, {}),
    "icebergCompatV2": ({"delta.enableIcebergCompatV2": "true"}, {}),
    "icebergCompatV3": ({"delta.enableIcebergCompatV3": "true"}, {}),
    "icebergWriterCompatV1": ({"delta.enableIcebergWriterCompatV1": "true"}, {}),
}


def with_requirements(name):
    return supporting(*sorted(protocol_choice.with_requirements([name])))


@pytest.mark.parametrize("name", sorted(n for n, f in REGISTRY.items() if f.write == "inactive"))
def test_some_features_are_written_only_while_inactive(name):
    configuration, field_metadata = ACTIVE[name]
    check_writable(with_requirements(name), table())
    with pytest.raises(UnsupportedFeatureError, match=name) as caught:
        check_writable(with_requirements(name), table(configuration, schema(metadata=field_metadata)))
    assert caught.value.features == (name,)


@pytest.mark.parametrize("name", sorted(n for n, f in REGISTRY.items() if f.write == "never"))
def test_some_features_are_never_written(name):
    with pytest.raises(UnsupportedFeatureError, match=name):
        check_writable(with_requirements(name), table())


@pytest.mark.parametrize("name", sorted(n for n, f in REGISTRY.items() if f.write == "always"))
def test_some_features_are_written_active_or_not(name):
    active = {
        "delta.appendOnly": "true",
        "delta.enableDeletionVectors": "true",
        "delta.checkpointPolicy": "v2",
        "delta.enableTypeWidening": "true",
        "delta.enableInCommitTimestamps": "true",
        "delta.requireCheckpointProtectionBeforeVersion": "5",
    }
    wanted = {
        "checkpointProtection",
        "appendOnly",
        "deletionVectors",
        "v2Checkpoint",
        "typeWidening",
        "timestampNtz",
        "inCommitTimestamp",
    }
    check_writable(with_requirements(name), table())
    supported = supporting(*sorted(protocol_choice.with_requirements(wanted | {name})))
    check_writable(supported, table(active, schema("timestamp_ntz")))


def test_unknown_features_are_not_written():
    with pytest.raises(UnsupportedFeatureError, match="liquid"):
        check_writable(protocol(1, 7, None, ["liquid"]), table())


def test_old_versions_are_written_with_what_they_imply():
    for reader, writer in ((1, 1), (1, 2), (1, 3), (1, 4), (2, 5), (2, 6)):
        check_writable(protocol(reader, writer), table({"delta.columnMapping.mode": "none"}))
    check_writable(protocol(1, 4), table({"delta.enableChangeDataFeed": "TRUE", "delta.constraints.c": "a > 0"}))


def test_a_property_that_the_protocol_does_not_back_is_refused_too():
    with pytest.raises(UnsupportedFeatureError, match="icebergCompatV3"):
        check_writable(protocol(1, 2), table({"delta.enableIcebergCompatV3": "true"}))
    # But an expression that an old table carries means nothing there.
    check_writable(protocol(1, 2), table(schema_string=schema(metadata={"delta.generationExpression": "a + 1"})))


def test_marks_are_found_at_any_depth():
    inner = {
        "type": "struct",
        "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {"delta.invariants": "{}"}}],
    }
    for nested in (
        inner,
        {"type": "array", "elementType": inner, "containsNull": True},
        {
            "type": "map",
            "keyType": "string",
            "valueType": {"type": "array", "elementType": inner, "containsNull": True},
        },
    ):
        assert REGISTRY["invariants"].active(ActivationFacts.of(schema(nested), {}))


def test_reasons_are_given():
    with pytest.raises(UnsupportedFeatureError, match="catalog"):
        check_writable(with_requirements("catalogOwned-preview"), table())


def test_nonsense_in_the_metadata_is_the_tables_fault():
    with pytest.raises(InvalidLogError, match="schema"):
        check_writable(protocol(1, 2), table(schema_string="{"))
    with pytest.raises(InvalidLogError, match=r"delta\.columnMapping\.mode"):
        check_writable(protocol(2, 5), table({"delta.columnMapping.mode": "sideways"}))


# --- validity ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        protocol(0, 2),
        protocol(3, 6, [], None),
        protocol(1, 7),
        protocol(3, 7, None, []),
        protocol(1, 2, None, ["appendOnly"]),
        protocol(1, 7, ["timestampNtz"], ["timestampNtz"]),
        protocol(3, 7, ["timestampNtz"], []),
        protocol(3, 7, [], ["timestampNtz"]),
        protocol(1, 7, None, ["rowTracking"]),
        protocol(3, 7, ["variantShredding"], ["variantShredding"]),
    ],
)
def test_invalid_protocols(bad):
    with pytest.raises(InvalidLogError, match="protocol"):
        validate_protocol(bad, file="f")


names = st.frozensets(st.sampled_from(sorted(REGISTRY)), max_size=8)


@given(names)
def test_minimal_protocols_are_valid_and_support_what_was_asked(wanted):
    made = minimal_protocol(wanted)
    validate_protocol(made)
    assert features_of(made) == protocol_choice.with_requirements(wanted)
    assert minimal_protocol(features_of(made)) == made


@given(names, names)
def test_upgrades_lose_nothing(have, also):
    before = minimal_protocol(have)
    # The properties of a table with all these active.
    configuration = {k: v for n in also for k, v in ACTIVE.get(n, ({}, {}))[0].items()}
    after = upgraded(before, table(configuration))
    validate_protocol(after)
    assert features_of(after) >= features_of(before)
    assert features_of(after) >= {n for n in also if ACTIVE.get(n, ({}, {}))[0]}
    assert upgraded(after, table(configuration)) == after


def test_an_upgrade_names_the_new_feature():
    after = upgraded(protocol(1, 2), table(schema_string=schema("timestamp_ntz")))
    assert after == protocol(3, 7, ["timestampNtz"], ["appendOnly", "invariants", "timestampNtz"])
    after = upgraded(protocol(2, 5), table(schema_string=schema("timestamp_ntz")))
    assert after.reader_features == ["columnMapping", "timestampNtz"]
    assert upgraded(protocol(3, 7, [], []), table()) == protocol(3, 7, [], [])
    fed = table({"delta.enableChangeDataFeed": "true"})
    assert upgraded(protocol(1, 4), fed) == protocol(1, 4)


def test_an_upgrade_brings_a_protocol_to_its_lowest_form():
    fed = table({"delta.enableChangeDataFeed": "true"})
    # A reader version that no feature needs, and lists where old versions imply the same.
    assert upgraded(protocol(3, 7, [], []), fed) == protocol(1, 7, None, ["changeDataFeed"])
    assert upgraded(protocol(2, 7, None, []), fed) == protocol(1, 7, None, ["changeDataFeed"])
    assert upgraded(protocol(2, 3), table(), ["generatedColumns", "changeDataFeed"]) == protocol(1, 4)
    named = ["appendOnly", "invariants"]
    assert upgraded(protocol(3, 7, [], named), table(), ["checkConstraints"]) == protocol(1, 3)
    # Where nothing is added, it stays as another writer left it.
    assert upgraded(protocol(3, 7, [], named), table()) == protocol(3, 7, [], named)


def test_a_protocol_without_a_feature():
    assert without(protocol(1, 3), "checkConstraints") == protocol(1, 2)
    assert without(protocol(1, 4), "changeDataFeed").writer_features == [
        "appendOnly", "checkConstraints", "generatedColumns", "invariants",
    ]  # fmt: skip
    vectors = protocol(3, 7, ["deletionVectors"], ["deletionVectors", "domainMetadata"])
    assert without(vectors, "deletionVectors") == protocol(1, 7, None, ["domainMetadata"])


def test_a_preview_stands_for_its_feature():
    widening = {"delta.enableTypeWidening": "true"}
    preview = protocol(3, 7, ["typeWidening-preview"], ["typeWidening-preview"])
    assert upgraded(preview, table(widening)) == preview
    asked = {"delta.feature.typeWidening-preview": "supported", **widening}
    assert "typeWidening" not in features_of(protocol_for_new_table(schema(), asked))
    assert "typeWidening" in features_of(protocol_for_new_table(schema(), widening))
    # Both may stand side by side, where somebody has asked for both.
    both = upgraded(preview, table(widening), ["typeWidening"])
    assert both.reader_features == ["typeWidening", "typeWidening-preview"]


def test_versions_that_a_user_asks_for_are_the_features_that_they_imply():
    old = protocol(1, 2)
    mapped = {"delta.minReaderVersion": "2", "delta.minWriterVersion": "5"}
    assert asked_features(mapped, old) == features_of(protocol(2, 5))
    assert asked_features({"DELTA.minwriterVERSION": "4"}, protocol(2, 5)) == features_of(protocol(2, 4))
    assert asked_features({"delta.minReaderVersion": "3", "delta.minWriterVersion": "7"}, old) == frozenset()
    assert asked_features({"delta.feature.domainmetadata": "supported"}, protocol(1, 1)) == {"domainMetadata"}
    with pytest.raises(InvalidArgumentError, match="reader version 3 and writer version 2"):
        asked_features({"delta.minReaderVersion": "3"}, old)


# --- new tables --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("configuration", "type_", "made"),
    [
        ({}, "long", protocol(1, 2)),
        ({"delta.appendOnly": "true", "mine": "x"}, "long", protocol(1, 2)),
        ({}, "timestamp_ntz", protocol(3, 7, ["timestampNtz"], ["appendOnly", "invariants", "timestampNtz"])),
        (
            {},
            {"type": "array", "elementType": "timestamp_ntz", "containsNull": True},
            protocol(3, 7, ["timestampNtz"], ["appendOnly", "invariants", "timestampNtz"]),
        ),
        (
            {"delta.enableDeletionVectors": "true"},
            "long",
            protocol(3, 7, ["deletionVectors"], ["appendOnly", "deletionVectors", "invariants"]),
        ),
        (
            {"delta.feature.V2Checkpoint": "supported"},
            "long",
            protocol(3, 7, ["v2Checkpoint"], ["appendOnly", "invariants", "v2Checkpoint"]),
        ),
        (
            {"delta.feature.domainMetadata": "supported"},
            "long",
            protocol(1, 7, None, ["appendOnly", "domainMetadata", "invariants"]),
        ),
        ({"delta.minWriterVersion": "4"}, "long", protocol(1, 4)),
        (
            {"delta.minReaderVersion": "3", "delta.minWriterVersion": "7"},
            "long",
            protocol(1, 1),
        ),
        ({"delta.minWriterVersion": "7"}, "long", protocol(1, 1)),
        ({"delta.minWriterVersion": "5"}, "long", protocol(1, 4)),
        ({"delta.ignoreProtocolDefaults": "TRUE"}, "long", protocol(1, 1)),
    ],
)  # fmt: skip
def test_new_tables(configuration, type_, made):
    assert protocol_for_new_table(schema(type_), configuration) == made
    assert protocol_for_new_table(parse_schema(schema(type_)), configuration) == made
    check_writable(made, table({k: v for k, v in configuration.items() if not k.startswith("delta.m")}, schema(type_)))


@pytest.mark.parametrize(
    ("configuration", "name"),
    [(ACTIVE[name][0], name) for name in sorted(ACTIVE) if ACTIVE[name][0] and REGISTRY[name].write != "always"]
    + [
        ({"delta.feature.catalogOwned-preview": "supported"}, "catalogOwned-preview"),
        ({"delta.feature.geospatial": "supported"}, "geospatial"),
    ],
)
def test_new_tables_that_we_could_not_write(configuration, name):
    with pytest.raises(UnsupportedFeatureError, match=f"cannot create this table.*{name}"):
        protocol_for_new_table(schema(), configuration)


@pytest.mark.parametrize(
    "configuration",
    [
        {"delta.feature.nonsense": "supported"},
        {"delta.minReaderVersion": "4"},
        {"delta.minWriterVersion": "8"},
        {"delta.minReaderVersion": "3", "delta.minWriterVersion": "6"},
    ],
)
def test_new_tables_that_nobody_could_make(configuration):
    with pytest.raises(InvalidArgumentError):
        protocol_for_new_table(schema(), configuration)
