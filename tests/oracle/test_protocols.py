"""Which protocol a table gets: the one that delta-spark's own functions choose, for any properties and features."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta.core.log.actions import Metadata, Protocol
from refdelta.table.features import REGISTRY, ActivationFacts, features_of, validate_protocol
from refdelta.table.protocol_choice import minimal_protocol, new_protocol, upgraded, with_requirements, without
from tiers import examples

pytestmark = pytest.mark.spark

# Those that delta-spark knows, by this engine's registry. Its functions ask the same questions of all of them.
NOT_IN_SPARK = {
    "collations", "columnMappingUsageTracking", "concurrentIdentityColumns", "timestampNanos", "icebergWriterCompatV1",
    "catalogOwned-preview", "redirectWriterOnly-preview", "redirectReaderWriter-preview",
}  # fmt: skip
KNOWN = sorted(REGISTRY.keys() - NOT_IN_SPARK)
# delta-spark has catalogManaged bring vacuumProtocolCheck, which the specification does not ask for; and with it
# adaptiveMetadata-preview, whose proposal changes.
OTHER_REQUIREMENTS = {"catalogManaged", "adaptiveMetadata-preview"}

# A catalog gives it to a new table; ALTER TABLE DROP FEATURE is refused in delta-spark, too, though its class could.
CREATED_WITH = "catalogManaged"

SETTINGS = {
    "delta.appendOnly": "true",
    "delta.enableChangeDataFeed": "true",
    "delta.columnMapping.mode": "name",
    "delta.enableDeletionVectors": "true",
    "delta.enableTypeWidening": "true",
    "delta.enableRowTracking": "true",
    "delta.enableIcebergCompatV1": "true",
    "delta.enableIcebergCompatV2": "true",
    "delta.enableInCommitTimestamps": "true",
    "delta.checkpointPolicy": "v2",
    "delta.enableMaterializePartitionColumnsFeature": "true",
    "delta.constraints.c": "a > 0",
    "mine": "1",
}
KINDS = st.sampled_from(["long", "timestamp_ntz", "variant"])
CONFIGURATIONS = st.lists(st.sampled_from(sorted(SETTINGS)), unique=True, max_size=4).map(
    lambda keys: {key: SETTINGS[key] for key in keys}
)
ASKED = st.frozensets(st.sampled_from(sorted(set(KNOWN) - OTHER_REQUIREMENTS)), max_size=4)
VERSIONS = st.sampled_from(
    [(None, None), (1, 1), (1, 3), (2, 5), (2, None), (None, 4), (2, 6), (2, 7), (3, 7), (None, 7)]
)


class Oracle:
    """delta-spark's functions for protocols, over the JSON of actions."""

    def __init__(self, spark: Any):
        self._java = spark._jvm.org.apache.spark.sql.delta
        self._some = spark._jvm.scala.Some
        self._session = spark._jsparkSession

    def _action(self, **action: Any) -> Any:
        return self._java.actions.Action.fromJson(json.dumps(action))

    def _protocol(self, protocol: Protocol) -> Any:
        fields = {
            "minReaderVersion": protocol.min_reader_version,
            "minWriterVersion": protocol.min_writer_version,
            "readerFeatures": protocol.reader_features,
            "writerFeatures": protocol.writer_features,
        }
        return self._action(protocol={key: value for key, value in fields.items() if value is not None})

    def _metadata(self, schema: str, configuration: dict[str, str]) -> Any:
        kind = {"provider": "parquet", "options": {}}
        return self._action(
            metaData={
                "id": "i", "format": kind, "schemaString": schema, "partitionColumns": [],
                "configuration": configuration,
            }
        )  # fmt: skip

    def new(self, schema: str, configuration: dict[str, str]) -> Protocol:
        metadata = self._metadata(schema, configuration)
        return said(self._java.actions.Protocol.forNewTable(self._session, self._some(metadata)))

    def upgraded(self, protocol: Protocol, schema: str, configuration: dict[str, str]) -> Protocol:
        found = self._java.actions.Protocol.upgradeProtocolFromMetadataForExistingTable(
            self._session, self._metadata(schema, configuration), self._protocol(protocol)
        )
        return said(found.get()) if found.isDefined() else protocol

    def lowest(self, protocol: Protocol) -> Protocol:
        return said(self._protocol(protocol).denormalizedNormalized())

    def without(self, protocol: Protocol, feature: str) -> Protocol:
        row = self._java.TableFeature.featureNameToFeature(feature).get()
        return said(self._protocol(protocol).removeFeature(row))

    def features(self) -> dict[str, tuple[bool, bool, int, int, str]]:
        """By name: whether readers must know it, whether old versions imply it, which ones, and how it is dropped."""
        found = {}
        rows = self._java.TableFeature.allSupportedFeaturesMap().values().iterator()
        while rows.hasNext():
            row = rows.next()
            drop = "never" if not row.isRemovable() else "history" if row.requiresHistoryProtection() else "plain"
            found[row.name()] = (
                row.isReaderWriterFeature(), row.isLegacyFeature(), row.minReaderVersion(), row.minWriterVersion(), drop
            )  # fmt: skip
        return found


def said(protocol: Any) -> Protocol:
    """A protocol of delta-spark, from the JSON that it would write."""
    fields = json.loads(protocol.json())["protocol"]
    lists = [sorted(fields[key]) if key in fields else None for key in ("readerFeatures", "writerFeatures")]
    return Protocol(
        min_reader_version=fields["minReaderVersion"],
        min_writer_version=fields["minWriterVersion"],
        reader_features=lists[0],
        writer_features=lists[1],
    )


@pytest.fixture(scope="module")
def oracle(spark: Any) -> Oracle:
    return Oracle(spark)


def schema(kind: str = "long") -> str:
    fields = [{"name": "a", "type": kind, "nullable": True, "metadata": {}}]
    return json.dumps({"type": "struct", "fields": fields})


def with_versions(configuration: dict[str, str], versions: tuple[int | None, int | None]) -> dict[str, str]:
    keys = ("delta.minReaderVersion", "delta.minWriterVersion")
    return configuration | {key: str(v) for key, v in zip(keys, versions, strict=True) if v is not None}


def test_the_registry_says_what_delta_spark_says(oracle):
    theirs = oracle.features()
    assert set(KNOWN) == {name for name in theirs if not name.startswith("test")}
    for name in KNOWN:
        row = REGISTRY[name]
        readers, implied, reader, writer, drop = theirs[name]
        assert readers == (row.kind == "reader_writer"), name
        assert (max(reader, 1), writer) == row.legacy if implied else row.legacy is None, name
        if row.write != "never" and name != CREATED_WITH:
            assert row.drop == drop, name


@examples(150)
@given(KINDS, CONFIGURATIONS, ASKED, VERSIONS, st.booleans())
def test_new_tables_get_the_same_protocol(oracle, kind, configuration, asked, versions, ignoring):
    configuration |= {f"delta.feature.{name}": "supported" for name in asked}
    configuration |= {"delta.ignoreProtocolDefaults": "true"} if ignoring else {}
    configuration = with_versions(configuration, versions)
    made = new_protocol(ActivationFacts.of(schema(kind), configuration))
    validate_protocol(made)
    assert made == oracle.new(schema(kind), configuration)


@examples(100)
@given(ASKED, CONFIGURATIONS)
def test_tables_are_upgraded_to_the_same_protocol(oracle, have, configuration):
    before = minimal_protocol(have)
    metadata = Metadata(id="i", schema_string=schema(), partition_columns=[], configuration=configuration)
    assert upgraded(before, metadata) == oracle.upgraded(before, schema(), configuration)


@examples(60)
@given(ASKED, st.sampled_from([(1, 7), (2, 7), (3, 7), (1, 5), (2, 3), (2, 4), (1, 6)]))
def test_the_lowest_form_is_the_same(oracle, features, versions):
    reader, writer = versions
    names = sorted(with_requirements(features)) if writer == 7 else None
    readers = [n for n in names or () if REGISTRY[n].kind == "reader_writer"]
    if readers:
        reader = 3
    written = Protocol(
        min_reader_version=reader,
        min_writer_version=writer,
        reader_features=readers if reader == 3 else None,
        writer_features=names,
    )
    assert minimal_protocol(features_of(written)) == oracle.lowest(written)


@examples(60)
@given(ASKED, st.sampled_from(sorted(n for n in KNOWN if REGISTRY[n].drop != "never")))
def test_a_feature_leaves_the_same_protocol_behind(oracle, others, dropped):
    before = minimal_protocol(others - {dropped} | {dropped})
    if any(dropped in REGISTRY[name].requires for name in features_of(before)):
        return
    assert without(before, dropped) == oracle.without(before, dropped)
