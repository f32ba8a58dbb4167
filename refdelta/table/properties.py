"""Table properties: which there are, what they may be, and what they are where they are not set.

A property is one row of :data:`PROPERTIES`. Names are found in any case, as in delta-spark, and stored as they are
written here. Only ``delta.*`` names mean something; others are the user's own. PROTOCOL.md, "Change Metadata", has them
as the table's configuration.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, Final, Generic, TypeVar

from refdelta.errors import InvalidArgumentError, InvalidLogError, suggestion, unknown_name

log = logging.getLogger("refdelta")

FEATURE_PREFIX: Final = "delta.feature."
CONSTRAINT_PREFIX: Final = "delta.constraints."
# Families of names that end in something free.
_FREE_PREFIXES: Final = (CONSTRAINT_PREFIX, "delta.universalformat.config.")
# Settings of the protocol that ride along with properties, and are never stored as such.
PROTOCOL_KEYS: Final = ("delta.minReaderVersion", "delta.minWriterVersion", "delta.ignoreProtocolDefaults")

MS_PER_DAY: Final = 86_400_000


# --- how values are read -----------------------------------------------------------------------------------------


def _boolean(text: str) -> bool:
    value = {"true": True, "false": False}.get(text.strip().lower())
    if value is None:
        raise ValueError("must be true or false")
    return value


def _integer(at_least: int | None = None) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"\s*[+-]?[0-9]{1,19}\s*", text):
            raise ValueError("must be an integer")
        value = int(text)
        if not -(2**63) <= value < 2**63:
            raise ValueError("must fit in 64 bits")
        if at_least is not None and value < at_least:
            raise ValueError(f"must be at least {at_least}")
        return value

    return read


def _one_of(*names: str) -> Callable[[str], str]:
    by_lower = {name.lower(): name for name in names}

    def read(text: str) -> str:
        value = by_lower.get(text.strip().lower())
        if value is None:
            raise ValueError(f"must be one of {', '.join(names)}{suggestion(text.strip(), names)}")
        return value

    return read


def _text(text: str) -> str:
    return text


_UNIT_US: Final = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_TERM = re.compile(r"([+-]?\d{1,19})(?:\.(\d{1,9}))?\s*([a-z]+)\s*", re.ASCII)
_MOST_US: Final = 2**63 - 1  # of an interval of Spark, which has 64 bits of microseconds


def parse_interval(text: str) -> int:
    """A calendar interval such as ``interval 7 days`` or ``2 weeks 12 hours``, in whole milliseconds.

    Raises:
        ValueError: it is none, is negative, is longer than 64 bits of microseconds, or counts in months or years, which
            have no fixed length.
    """
    rest = text.strip().lower().removeprefix("interval").strip()
    total, position = 0, 0
    while position < len(rest):
        term = _TERM.match(rest, position)
        unit = None if term is None else _UNIT_US.get(term[3].removesuffix("s"))
        if term is None or unit is None or (term[2] and term[3].removesuffix("s") != "second"):
            raise ValueError(
                "must be an interval such as '7 days' or '2 weeks 12 hours'; months and years do not count"
            )
        micros = int(term[1]) * unit
        if term[2]:
            fraction = int(term[2].ljust(9, "0")[:6])
            micros += -fraction if term[1].startswith("-") else fraction
        total, position = total + micros, term.end()
    if not rest or total < 0:
        raise ValueError("must be an interval that is not negative, such as '7 days'")
    if total > _MOST_US:
        raise ValueError("must be an interval of less than 292,000 years")
    return total // 1000


_SIZE = re.compile(r"(\d{1,15})\s*(b|k|kb|m|mb|g|gb|t|tb)?")


def parse_size(text: str) -> int:
    """A size such as ``134217728``, ``128mb`` or ``1 GB``, in bytes; units are powers of 1024, as in Spark.

    Raises:
        ValueError: it is none, or is zero.
    """
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None or int(match[1]) == 0:
        raise ValueError("must be a size such as 134217728 or 128mb")
    return int(match[1]) << (10 * "bkmgt".index((match[2] or "b")[0]))


def split_columns(text: str) -> tuple[str, ...]:
    """A comma-separated list of column names, each plain, dotted, or with parts in backticks.

    Raises:
        ValueError: a name is empty or a backtick is left open.
    """
    names = [name.strip() for name in re.findall(r"(?:`(?:[^`]|``)*`|[^,`])+", text)]
    if re.sub(r"`(?:[^`]|``)*`", "", text).count("`") or len(names) != re.sub(r"`[^`]*`", "", text).count(",") + 1:
        raise ValueError("must be a comma-separated list of column names")
    if not all(names):
        raise ValueError("has an empty column name")
    return tuple(names)


# --- the properties ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Property:
    """One property.

    Attributes:
        name: as it is stored.
        read: text to value; raises ValueError, with a phrase that completes "it ...".
        default: the value where the property is not set.
        settable: whether a user may set it; the others are the engines' own.
    """

    name: str
    read: Callable[[str], Any]
    default: Any = None
    settable: bool = True


_CODECS = ("uncompressed", "none", "snappy", "gzip", "lz4", "lz4_raw", "zstd", "brotli")

_ROWS: tuple[Property, ...] = (
    Property("delta.appendOnly", _boolean, default=False),
    Property("delta.autoOptimize", _text),
    Property("delta.autoOptimize.autoCompact", _text),
    Property("delta.autoOptimize.optimizeWrite", _text),
    Property("delta.castIcebergTimeType", _boolean, default=False),
    Property("delta.checkpoint.writeStatsAsJson", _boolean, default=True),
    Property("delta.checkpoint.writeStatsAsStruct", _boolean, default=False),
    Property("delta.checkpointInterval", _integer(1)),
    Property("delta.checkpointPolicy", _one_of("classic", "v2"), default="classic"),
    Property("delta.checkpointRetentionDuration", parse_interval, default=2 * MS_PER_DAY),
    Property("delta.columnMapping.maxColumnId", _integer(0), default=0, settable=False),
    Property("delta.columnMapping.mode", _one_of("none", "name", "id"), default="none"),
    Property("delta.compatibility.symlinkFormatManifest.enabled", _boolean, default=False),
    Property("delta.coordinatedCommits.commitCoordinator-preview", _text),
    Property("delta.coordinatedCommits.commitCoordinatorConf-preview", _text),
    Property("delta.coordinatedCommits.tableConf-preview", _text, settable=False),
    Property("delta.dataSkippingNumIndexedCols", _integer(-1), default=32),
    Property("delta.dataSkippingStatsColumns", split_columns),
    Property("delta.deletedFileRetentionDuration", parse_interval, default=7 * MS_PER_DAY),
    Property("delta.dropFeatureTruncateHistory.retentionDuration", parse_interval, default=MS_PER_DAY),
    Property("delta.enableChangeDataCapture", _boolean, default=False),
    Property("delta.enableChangeDataFeed", _boolean, default=False),
    Property("delta.enableDeletionVectors", _boolean, default=False),
    Property("delta.enableExpiredLogCleanup", _boolean, default=True),
    Property("delta.enableFullRetentionRollback", _boolean, default=True),
    Property("delta.enableIcebergCompatV1", _boolean, default=False),
    Property("delta.enableIcebergCompatV2", _boolean, default=False),
    Property("delta.enableIcebergCompatV3", _boolean, default=False),
    Property("delta.enableIcebergWriterCompatV1", _boolean, default=False),
    Property("delta.enableInCommitTimestamps", _boolean, default=False),
    Property("delta.enableMaterializePartitionColumnsFeature", _boolean, default=False),
    Property("delta.enableRowTracking", _boolean, default=False),
    Property("delta.enableTypeWidening", _boolean, default=False),
    Property("delta.enableVariantShredding", _boolean, default=False),
    Property("delta.ignoreProtocolDefaults", _boolean, default=False),
    Property("delta.inCommitTimestampEnablementTimestamp", _integer(), settable=False),
    Property("delta.inCommitTimestampEnablementVersion", _integer(0), settable=False),
    Property("delta.isolationLevel", _one_of("Serializable", "WriteSerializable"), default="WriteSerializable"),
    Property("delta.logRetentionDuration", parse_interval, default=30 * MS_PER_DAY),
    Property("delta.minReaderVersion", _integer(1)),
    Property("delta.minWriterVersion", _integer(1)),
    Property("delta.parquet.compression.codec", _one_of(*_CODECS)),
    Property("delta.parquet.format.version", _one_of("1.0.0", "2.12.0"), default="1.0.0"),
    Property("delta.randomPrefixLength", _integer(1), default=2),
    Property("delta.randomizeFilePrefixes", _boolean, default=False),
    Property("delta.redirectReaderWriter-preview", _text, settable=False),
    Property("delta.redirectWriterOnly-preview", _text, settable=False),
    Property("delta.requireCheckpointProtectionBeforeVersion", _integer(0), default=0, settable=False),
    Property("delta.rowTracking.materializedRowCommitVersionColumnName", _text, settable=False),
    Property("delta.rowTracking.materializedRowIdColumnName", _text, settable=False),
    Property("delta.rowTrackingSuspended", _boolean, default=False),
    Property("delta.sampleRetentionDuration", parse_interval, default=7 * MS_PER_DAY),
    Property("delta.setTransactionRetentionDuration", parse_interval),
    Property("delta.targetFileSize", parse_size),
    Property("delta.tuneFileSizesForRewrites", _boolean, default=False),
    Property("delta.universalFormat.enabledFormats", _text, default=""),
    Property("delta.writePartitionColumnsToParquet", _boolean, default=False),
    # This engine's own. The catalog of a catalog-managed table, for messages.
    Property("refdelta.catalog", _text),
    Property("refdelta.tableId", _text),
    # Whether small deletion vectors stand in the log.
    Property("refdelta.inlineDeletionVectors", _boolean, default=False),
    # Whether conflicts are decided by rows. Unless said, they are if the table has no partition columns.
    Property("refdelta.rowLevelConcurrency", _boolean),
    # So many versions have a log compaction file; none unless said.
    Property("refdelta.logCompactionInterval", _integer(2)),
    # Whether commits record the predicates of statements, which contain values.
    Property("refdelta.recordPredicates", _boolean, default=True),
)
PROPERTIES: Final[Mapping[str, Property]] = {row.name.lower(): row for row in _ROWS}


def validate(configuration: Mapping[str, str]) -> dict[str, str]:
    """Check properties that a user gives.

    Returns:
        The properties to store: names as this module spells them, those that only concern the protocol left out.

    Raises:
        InvalidArgumentError: a ``delta.*`` or ``refdelta.*`` name that does not exist or is not the user's to set, a
            value that does not fit, one name in two spellings.
    """
    stored: dict[str, str] = {}
    for key, value in configuration.items():
        name = _checked(key, value)
        if name is None:
            continue
        if name in stored:
            raise InvalidArgumentError(f"property {name} is given twice, in different spellings")
        stored[name] = value
    return stored


def _checked(key: str, value: str) -> str | None:
    """The name under which a property is stored, or None if it is not."""
    if not isinstance(key, str) or not isinstance(value, str):
        raise InvalidArgumentError(f"property {key!r}: names and values are strings, not {type(value).__name__}")
    lower = key.lower()
    if not lower.startswith(("delta.", "refdelta.")) or lower.startswith(_FREE_PREFIXES):
        return key
    if lower == f"{FEATURE_PREFIX}clustering":
        raise InvalidArgumentError(
            f"property {key} is not for users to set: cluster_by names the clustering columns of a table that is "
            "created or replaced"
        )
    if lower.startswith(FEATURE_PREFIX):
        if value.strip().lower() not in ("supported", "enabled"):
            raise InvalidArgumentError(f"property {key} must be 'supported', not {value!r}")
        return None
    row = PROPERTIES.get(lower)
    if row is None:
        settable = [one.name for one in _ROWS if one.settable]
        raise InvalidArgumentError(unknown_name("table property", key, settable, kinds="table properties"))
    if not row.settable:
        raise InvalidArgumentError(f"property {row.name} is not for users to set")
    try:
        row.read(value)
    except ValueError as error:
        raise InvalidArgumentError(f"property {row.name} is {value!r}, but it {error}") from None
    return None if row.name in PROTOCOL_KEYS else row.name


def get(configuration: Mapping[str, str], name: str) -> Any:
    """The typed value of one property in a table's metadata, or its default.

    Raises:
        InvalidLogError: the table has a value there that does not fit.
    """
    row = PROPERTIES[name.lower()]
    text = configuration.get(row.name)
    if text is None:
        # delta-spark stores the names in this spelling; other writers may not.
        text = next((value for key, value in configuration.items() if key.lower() == name.lower()), None)
    if text is None:
        return row.default
    try:
        return row.read(text)
    except ValueError as error:
        raise InvalidLogError(_invalid(row, text, error)) from None


def _invalid(row: Property, text: str, error: ValueError) -> str:
    setting = "alter.set_table_properties gives it another value, and " if row.settable else ""
    return (
        f"the table's property {row.name} is {text!r}, but it {error}; {setting}"
        f"alter.unset_table_properties([{row.name!r}]) removes it"
    )


def invalid_properties(configuration: Mapping[str, str]) -> dict[str, str]:
    """The properties of a table whose values do not fit: by name, a sentence that says so and how to mend it.

    Args:
        configuration: of the table's metadata, in which another engine may have spelled a name otherwise.
    """
    found: dict[str, str] = {}
    for key, text in configuration.items():
        row = PROPERTIES.get(key.lower())
        if row is not None:
            try:
                row.read(text)
            except ValueError as error:
                found[row.name] = _invalid(row, text, error)
    return found


def without_properties(configuration: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """A table's configuration without these properties, in whatever case their names are spelled."""
    lower = {name.lower() for name in names}
    return {key: text for key, text in configuration.items() if key.lower() not in lower}


def records_changes(configuration: Mapping[str, str]) -> bool:
    """Whether changes are recorded: ``delta.enableChangeDataFeed``, or its older name, is true.

    Raises:
        InvalidLogError: one of them is neither true nor false.
    """
    new, old = "delta.enableChangeDataFeed", "delta.enableChangeDataCapture"
    return bool(get(configuration, new) or get(configuration, old))


@dataclass(frozen=True, slots=True)
class TableProperties:
    """A table's properties, typed, but for those of features that have a module of their own. Durations are in
    milliseconds, sizes in bytes; None is "not set".
    """

    append_only: bool
    checkpoint_interval: int | None
    checkpoint_policy: str
    write_stats_as_json: bool
    write_stats_as_struct: bool
    data_skipping_num_indexed_cols: int
    data_skipping_stats_columns: tuple[str, ...] | None
    deleted_file_retention_ms: int
    log_compaction_interval: int | None
    log_retention_ms: int
    enable_expired_log_cleanup: bool
    set_transaction_retention_ms: int | None
    isolation_level: str
    target_file_size: int | None
    compression_codec: str | None
    parquet_format_version: str
    enable_deletion_vectors: bool
    inline_deletion_vectors: bool
    row_level_concurrency: bool | None
    enable_in_commit_timestamps: bool
    enable_type_widening: bool
    column_mapping_mode: str
    require_checkpoint_protection_before_version: int
    requires_partition_columns: bool
    writes_partition_columns: bool

    @classmethod
    def parse(cls, configuration: Mapping[str, str] | None, features: Collection[str] = ()) -> TableProperties:
        """Read a table's configuration.

        Args:
            configuration: of its metadata.
            features: those that its protocol supports, where some of them say of themselves how files are written.

        Raises:
            InvalidLogError: a value does not fit; the message names the property.
        """
        stored = configuration or {}
        values = {field: get(stored, name) for field, name in _FIELDS.items()}
        # PROTOCOL.md, "Iceberg Compatibility", "Materialize Partition Columns": a must, or as the table would have it.
        must = _HOLDS_PARTITIONS in features or any(get(stored, name) for name in _HOLD_PARTITION_COLUMNS)
        values["requires_partition_columns"] |= must
        values["writes_partition_columns"] |= values["requires_partition_columns"]
        return cls(**values)


_FIELDS: Final = {
    "append_only": "delta.appendOnly",
    "checkpoint_interval": "delta.checkpointInterval",
    "checkpoint_policy": "delta.checkpointPolicy",
    "write_stats_as_json": "delta.checkpoint.writeStatsAsJson",
    "write_stats_as_struct": "delta.checkpoint.writeStatsAsStruct",
    "data_skipping_num_indexed_cols": "delta.dataSkippingNumIndexedCols",
    "data_skipping_stats_columns": "delta.dataSkippingStatsColumns",
    "deleted_file_retention_ms": "delta.deletedFileRetentionDuration",
    "log_compaction_interval": "refdelta.logCompactionInterval",
    "log_retention_ms": "delta.logRetentionDuration",
    "enable_expired_log_cleanup": "delta.enableExpiredLogCleanup",
    "set_transaction_retention_ms": "delta.setTransactionRetentionDuration",
    "isolation_level": "delta.isolationLevel",
    "target_file_size": "delta.targetFileSize",
    "compression_codec": "delta.parquet.compression.codec",
    "parquet_format_version": "delta.parquet.format.version",
    "enable_deletion_vectors": "delta.enableDeletionVectors",
    "inline_deletion_vectors": "refdelta.inlineDeletionVectors",
    "row_level_concurrency": "refdelta.rowLevelConcurrency",
    "enable_in_commit_timestamps": "delta.enableInCommitTimestamps",
    "enable_type_widening": "delta.enableTypeWidening",
    "column_mapping_mode": "delta.columnMapping.mode",
    "require_checkpoint_protection_before_version": "delta.requireCheckpointProtectionBeforeVersion",
    "requires_partition_columns": "delta.enableMaterializePartitionColumnsFeature",
    "writes_partition_columns": "delta.writePartitionColumnsToParquet",
}


_HOLDS_PARTITIONS: Final = "materializePartitionColumns"
_HOLD_PARTITION_COLUMNS: Final = (
    "delta.enableIcebergCompatV1",
    "delta.enableIcebergCompatV2",
    "delta.enableIcebergCompatV3",
)


def requested_features(configuration: Mapping[str, str]) -> Iterable[str]:
    """The names after ``delta.feature.`` in properties that a user gives, in their spelling."""
    return [key[len(FEATURE_PREFIX) :] for key in configuration if key.lower().startswith(FEATURE_PREFIX)]


# --- what follows from them --------------------------------------------------------------------------------------

# "auto" and "legacy" differ between platforms, but both enable it.
_COMPACTS, _DOES_NOT = frozenset({"true", "auto", "legacy"}), frozenset({"false", ""})


def compacts_by_itself(configuration: Mapping[str, str]) -> bool:
    """Whether small files are compacted after each write: ``delta.autoOptimize.autoCompact``. A value that it cannot
    have is logged, and does not.
    """
    # The older property enables the whole group of properties, as in delta-spark.
    if configuration.get("delta.autoOptimize", "").lower() == "true":
        return True
    value = configuration.get("delta.autoOptimize.autoCompact", "").strip().lower()
    if value not in _COMPACTS | _DOES_NOT:
        log.warning("delta.autoOptimize.autoCompact is %r, which is not a known value: no auto-compaction", value)
    return value in _COMPACTS


Value = TypeVar("Value")
Result = TypeVar("Result")


class LastCall(Generic[Value, Result]):
    """A function of one immutable value that keeps the result of its last call: it is called only if the value is
    another object than the last time.

    A statement asks many times for what follows from its table's protocol or metadata, which are the same objects as
    long as no commit changes them.

    Args:
        function: a function whose result depends on its argument alone. Neither is changed afterwards.
    """

    def __init__(self, function: Callable[[Value], Result]) -> None:
        self._function = function
        # Replaced as a whole, so that threads need no lock.
        self._last: tuple[Value, Result] | None = None
        update_wrapper(self, function)

    def __call__(self, value: Value) -> Result:
        """The function of the value."""
        last = self._last
        if last is None or last[0] is not value:
            last = self._last = value, self._function(value)
        return last[1]
