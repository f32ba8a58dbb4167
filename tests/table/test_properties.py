"""Table properties: typed, with their defaults, and refused where they make no sense."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta.core.log.actions import Protocol
from refdelta.errors import InvalidArgumentError, InvalidLogError
from refdelta.table import properties
from refdelta.table.features import features_of
from refdelta.table.properties import (
    PROPERTIES,
    LastCall,
    TableProperties,
    get,
    parse_interval,
    parse_size,
    records_changes,
    split_columns,
    validate,
)

DAY = 86_400_000


def test_defaults():
    table = TableProperties.parse({})
    assert table == TableProperties.parse(None)
    assert table.append_only is False
    assert table.checkpoint_interval is None
    assert table.data_skipping_num_indexed_cols == 32
    assert table.data_skipping_stats_columns is None
    assert table.deleted_file_retention_ms == 7 * DAY
    assert table.log_retention_ms == 30 * DAY
    assert table.enable_expired_log_cleanup is True
    assert table.isolation_level == "WriteSerializable"
    assert table.column_mapping_mode == "none"
    assert table.write_stats_as_json is True
    assert table.write_stats_as_struct is False
    assert table.checkpoint_policy == "classic"
    assert table.target_file_size is None


def test_values():
    configuration = {
        "delta.appendOnly": "TRUE",
        "delta.checkpointInterval": "100",
        "delta.dataSkippingNumIndexedCols": "-1",
        "delta.dataSkippingStatsColumns": "a, b.c, `x,y`.z",
        "delta.deletedFileRetentionDuration": "interval 1 week",
        "delta.logRetentionDuration": "36 hours",
        "delta.isolationLevel": "serializable",
        "delta.targetFileSize": "128mb",
        "delta.columnMapping.mode": "name",
        "delta.columnMapping.maxColumnId": "7",
        "delta.checkpointPolicy": "v2",
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": "5",
        "delta.parquet.compression.codec": "ZSTD",
        "delta.enableChangeDataCapture": "true",
        "someone.elses": "x",
    }
    table = TableProperties.parse(configuration)
    assert table.append_only is True
    assert table.checkpoint_interval == 100
    assert table.data_skipping_num_indexed_cols == -1
    assert table.data_skipping_stats_columns == ("a", "b.c", "`x,y`.z")
    assert table.deleted_file_retention_ms == 7 * DAY
    assert table.log_retention_ms == 36 * 3_600_000
    assert table.isolation_level == "Serializable"
    assert table.target_file_size == 128 << 20
    assert (table.column_mapping_mode, get(configuration, "delta.columnMapping.maxColumnId")) == ("name", 7)
    assert table.checkpoint_policy == "v2"
    assert table.enable_in_commit_timestamps is True
    assert get(configuration, "delta.inCommitTimestampEnablementVersion") == 5
    assert table.compression_codec == "zstd"
    assert records_changes(configuration)


def test_every_field_has_its_property():
    fields = {field.name for field in dataclasses.fields(TableProperties)}
    assert fields == properties._FIELDS.keys()
    assert {name.lower() for name in properties._FIELDS.values()} <= PROPERTIES.keys()


def test_names_are_found_in_any_case():
    assert get({"DELTA.checkpointinterval": "3"}, "delta.checkpointInterval") == 3
    # As delta-spark stores it, first.
    assert get({"delta.CHECKPOINTINTERVAL": "3", "delta.checkpointInterval": "4"}, "delta.checkpointInterval") == 4


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delta.appendOnly", "yes"),
        ("delta.checkpointInterval", "0"),
        ("delta.checkpointInterval", "ten"),
        ("delta.checkpointInterval", "1.5"),
        ("delta.checkpointInterval", "9" * 5000),
        ("delta.dataSkippingNumIndexedCols", "-2"),
        ("delta.logRetentionDuration", "1 month"),
        ("delta.logRetentionDuration", "-1 days"),
        ("delta.logRetentionDuration", "interval"),
        ("delta.isolationLevel", "SnapshotIsolation"),
        ("delta.columnMapping.mode", "index"),
        ("delta.checkpointPolicy", "v3"),
        ("delta.targetFileSize", "0"),
        ("delta.dataSkippingStatsColumns", "a,,b"),
        ("delta.dataSkippingStatsColumns", "`a"),
        ("delta.parquet.compression.codec", "rar"),
    ],
)
def test_values_that_do_not_fit(name, value):
    with pytest.raises(InvalidArgumentError, match=name):
        validate({name: value})
    # In a table it is the table's fault, found when the property is wanted.
    with pytest.raises(InvalidLogError, match=name):
        get({name: value}, name)


@pytest.mark.parametrize(
    "name", ["delta.checkpointIntervall", "delta.", "DELTA.nonsense", "delta.liquid.clusteringColumns"]
)
def test_names_that_do_not_exist(name):
    with pytest.raises(InvalidArgumentError, match=name):
        validate({name: "1"})


@pytest.mark.parametrize("name", sorted(row.name for row in PROPERTIES.values() if not row.settable))
def test_what_engines_keep_to_themselves(name):
    with pytest.raises(InvalidArgumentError, match="not for users"):
        validate({name: "1"})


def test_the_feature_of_clustered_tables_is_not_for_users():
    with pytest.raises(InvalidArgumentError, match=r"delta\.feature\.clustering is not for users to set: cluster_by"):
        validate({"delta.feature.clustering": "supported"})


def test_validate_gives_what_is_to_be_stored():
    given_properties = {
        "delta.APPENDONLY": "true",
        "delta.feature.deletionVectors": "supported",
        "delta.minReaderVersion": "3",
        "delta.minWriterVersion": "7",
        "delta.constraints.myCheck": "a > 0",
        "my.Own": "X",
        "deltaish": "Y",
    }
    stored = {"delta.appendOnly": "true", "delta.constraints.myCheck": "a > 0", "my.Own": "X", "deltaish": "Y"}
    assert validate(given_properties) == stored
    assert list(properties.requested_features(given_properties)) == ["deletionVectors"]
    with pytest.raises(InvalidArgumentError, match="twice"):
        validate({"delta.appendOnly": "true", "delta.appendonly": "false"})
    with pytest.raises(InvalidArgumentError, match="supported"):
        validate({"delta.feature.deletionVectors": "maybe"})
    with pytest.raises(InvalidArgumentError, match="strings"):
        validate({"delta.checkpointInterval": 5})


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("interval 7 days", 7 * DAY),
        ("INTERVAL 1 Week", 7 * DAY),
        ("2 weeks 12 hours", 14 * DAY + DAY // 2),
        ("0 seconds", 0),
        ("1.5 seconds", 1500),
        ("  90   minutes ", 5_400_000),
        ("1 day -1 hours", DAY - 3_600_000),
        ("2500 microseconds", 2),
        ("interval 168 hours", 7 * DAY),
    ],
)
def test_intervals(text, ms):
    assert parse_interval(text) == ms


LONGEST_DAYS = 2**63 // 86_400_000_000


@pytest.mark.parametrize(
    "text",
    [
        f"{LONGEST_DAYS + 1} days",
        "interval 999999999999 weeks",
        "interval 999999999999 hours",
        "9999999999999999999 microseconds",
        f"{LONGEST_DAYS} days {LONGEST_DAYS} days",
        "999999999999 weeks " * 2_000,
    ],
)
def test_an_interval_that_no_64_bits_of_microseconds_hold_is_refused_as_by_spark(text):
    with pytest.raises(ValueError, match="less than 292,000 years"):
        parse_interval(text)


def test_the_longest_interval_is_one():
    assert parse_interval(f"{LONGEST_DAYS} days") == LONGEST_DAYS * DAY
    assert parse_interval("9223372036854775807 microseconds") == 2**63 // 1_000


def test_digits_of_other_scripts_are_no_interval():
    with pytest.raises(ValueError, match="interval"):
        parse_interval("\u0663 days")


@pytest.mark.parametrize(
    "text",
    ["", "interval", "7", "days", "7 dayz", "1 month", "1 year", "-1 day", "1.5 days", "7 days!", "interval7days x"],
)
def test_what_is_no_interval(text):
    with pytest.raises(ValueError, match="interval"):
        parse_interval(text)


@given(st.lists(st.tuples(st.integers(0, 999), st.sampled_from(sorted(properties._UNIT_US))), min_size=1, max_size=4))
def test_intervals_add_up(terms):
    text = " ".join(f"{n} {unit}{'s' if n != 1 else ''}" for n, unit in terms)
    assert parse_interval(text) == sum(n * properties._UNIT_US[unit] for n, unit in terms) // 1000


def test_sizes():
    assert [parse_size(t) for t in ("1", "1b", "1 KB", "2k", "128mb", "1g", "1TB")] == [
        1, 1, 1024, 2048, 128 << 20, 1 << 30, 1 << 40,
    ]  # fmt: skip
    for bad in ("", "mb", "-1", "1.5mb", "0", "1xb"):
        with pytest.raises(ValueError, match="size"):
            parse_size(bad)


def test_column_lists():
    assert split_columns("a") == ("a",)
    assert split_columns(" a , `b c`.`d,e` ,f.g") == ("a", "`b c`.`d,e`", "f.g")
    for bad in ("", "a,", ",a", "a,,b", "`a,b"):
        with pytest.raises(ValueError, match=r"column"):
            split_columns(bad)


# --- the last result ---------------------------------------------------------------------------------------------


def test_it_is_called_for_another_object_only_and_keeps_no_error():
    calls = []

    @LastCall
    def size(value: list[int]) -> int:
        """The size."""
        calls.append(value)
        if not value:
            raise ValueError("empty")
        return len(value)

    one, two = [1], [1, 2]
    assert [size(one), size(one), size(two), size(one), size([1])] == [1, 1, 2, 1, 1]
    assert len(calls) == 4
    for _ in range(2):
        with pytest.raises(ValueError, match="empty"):
            size([])
    assert size(one) == 1
    assert (size.__doc__, size.__name__) == ("The size.", "size")


def test_each_protocol_has_its_features():
    old, new = (
        Protocol(min_reader_version=1, min_writer_version=2),
        Protocol(
            min_reader_version=3,
            min_writer_version=7,
            reader_features=["deletionVectors"],
            writer_features=["deletionVectors"],
        ),
    )
    for _ in range(2):
        assert features_of(old) == {"appendOnly", "invariants"}
        assert features_of(new) == {"deletionVectors"}
