"""The options of the data source: strings, by case-insensitive names."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from refdelta.errors import InvalidArgumentError, unknown_name
from refdelta.operations.inspection.feed_range import FeedRange
from refdelta.operations.stream.offsets import StreamOptions, byte_count
from refdelta.operations.write.target import WriteRequest
from refdelta.transaction.options import CommitProperties

if TYPE_CHECKING:
    from collections.abc import Mapping

    from refdelta import DeltaTable

_FEED = ("readChangeFeed", "readChangeData")
_RANGE = ("startingVersion", "endingVersion", "startingTimestamp", "endingTimestamp")
_PLACE = ("path", "catalog", "table")
_OPENED = (*_PLACE, "locations", "storageOptions")
READ = (*_OPENED, "outside", "versionAsOf", "timestampAsOf", "filter", *_FEED, *_RANGE)
WRITE = (
    *_OPENED, "partitionBy", "readsTarget", "replaceWhere", "partitionOverwriteMode", "mergeSchema",
    "overwriteSchema", "targetFileSize", "txnAppId", "txnVersion", "userMetadata", "group",
)  # fmt: skip
STREAM_READ = (
    *_OPENED, "outside", "startingVersion", "startingTimestamp", "maxFilesPerTrigger",
    "maxBytesPerTrigger", "ignoreDeletes", "ignoreChanges", "ignoreFileDeletion", "skipChangeCommits", "excludeRegex",
    "failOnDataLoss", *_FEED,
)  # fmt: skip
# The last two are options of Spark itself, which it passes on.
STREAM_WRITE = (
    *_OPENED, "partitionBy", "readsTarget", "mergeSchema", "overwriteSchema", "targetFileSize",
    "txnAppId", "userMetadata", "group", "checkpointLocation", "queryName",
)  # fmt: skip

_RELOADED = (
    "is not needed: a commit that changes the schema stops the stream; load it again, with the same checkpoint, and it "
    "continues with the new columns"
)
_FIRST = "is for one version; startingVersion or startingTimestamp begins a stream later than with all rows"
_LAST = "is for a batch; trigger(availableNow=True) ends a stream at the newest version"
_SIZE = (
    "does not exist here; targetFileSize limits the files, in bytes, and optimize.compact() of DeltaTable joins them"
)
_CHOSEN = "does not exist here; replaceWhere replaces the rows of a predicate, and merge of DeltaTable those of keys"
_PROPERTY = "does not exist here; the table property {} is for all files of a table"
# The options of delta-spark and Databricks that are refused, with the alternative of each.
_STREAMS = {
    **dict.fromkeys(
        ("schemaTrackingLocation", "schemaLocation", "streamingSourceTrackingId", "allowSourceColumnDrop",
         "allowSourceColumnRename", "allowSourceColumnTypeChange"), _RELOADED,
    ),
    **dict.fromkeys(("versionAsOf", "timestampAsOf"), _FIRST),
    **dict.fromkeys(("endingVersion", "endingTimestamp"), _LAST),
    "withEventTimeOrder": "does not exist here; refdelta.spark.read gives the rows of a version, which can be sorted, "
    "and startingVersion begins a stream after them",
}  # fmt: skip
_WRITES = {
    **dict.fromkeys(("optimizeWrite", "maxRecordsPerFile"), _SIZE),
    **dict.fromkeys(("replaceOn", "replaceUsing", "targetAlias", "useNullIntolerantEqualityWithDPO"), _CHOSEN),
    "dataChange": "does not exist here; optimize of DeltaTable rewrites files without a change of data",
    "compression": _PROPERTY.format("delta.parquet.compression.codec"),
    "parquet.writer.version": _PROPERTY.format("delta.parquet.format.version"),
    "writePartitionColumns": _PROPERTY.format("delta.enableMaterializePartitionColumnsFeature"),
}
_INSTEAD = {STREAM_READ: _STREAMS, WRITE: _WRITES, STREAM_WRITE: _WRITES}

_GROUPS = ("intents", "always")
_STREAM_NUMBERS = ("startingVersion", "maxFilesPerTrigger", "maxBytesPerTrigger")


def check_names(options: Mapping[str, str], known: tuple[str, ...], what: str) -> None:
    """Raise ``InvalidArgumentError`` for an unknown option."""
    names = {name.lower() for name in known}
    elsewhere = {name.lower(): (name, instead) for name, instead in _INSTEAD.get(known, {}).items()}
    for name in options:
        if name.lower() in elsewhere:
            spelled, instead = elsewhere[name.lower()]
            raise InvalidArgumentError(f"option {spelled!r} {instead}")
        if name.lower() not in names:
            where = f"{what} with the data source refdelta"
            raise InvalidArgumentError(unknown_name("option", name, known, where=where))


def place_of(options: Mapping[str, str]) -> str | DeltaTable:
    """The path or URI of the table, or the table that ``catalog`` and ``table`` name.

    Raises:
        InvalidArgumentError: there is neither, or both.
        TableNotFoundError: the catalog has no such table.
        StoreError: the catalog cannot be reached.
    """
    path, catalog, table = (options.get(name) for name in _PLACE)
    if catalog is not None or table is not None:
        if path or not catalog or not table:
            raise InvalidArgumentError(
                "a table of a catalog takes the options catalog (the URL of its database) and table (its name), "
                "and no path"
            )
        from refdelta.catalog import open_catalog

        return open_catalog(catalog, storage_options(options), _folders("locations", options) or None).table(table)
    if not path:
        raise InvalidArgumentError(
            "the data source refdelta needs a path, and one only: load(path), save(path), start(path), or in SQL "
            "CREATE TEMPORARY VIEW name USING refdelta OPTIONS (path '...'); tables of Spark's catalog give it none "
            "(CREATE TABLE, saveAsTable, writeTo, toTable), and refdelta.spark.write creates a table by its path. "
            "Tables of a catalog of refdelta take the options catalog and table instead"
        )
    return path


def storage_options(options: Mapping[str, str]) -> dict[str, str] | None:
    """The options of the store: ``storageOptions``, a JSON object of strings."""
    text = options.get("storageOptions")
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        # Not shown: it may contain a secret.
        raise InvalidArgumentError("storageOptions must be a JSON object of strings")
    return found


def outside_of(options: Mapping[str, str]) -> list[str]:
    """Other folders whose files may be read: ``outside``, a path or a JSON list of paths."""
    return _folders("outside", options)


def _folders(name: str, options: Mapping[str, str]) -> list[str]:
    text = options.get(name)
    return [] if text is None else _texts(name, text) if text.startswith("[") else [text]


def version_of(options: Mapping[str, str]) -> int | str | None:
    """``versionAsOf`` or ``timestampAsOf``; None for the newest version."""
    version, moment = options.get("versionAsOf"), options.get("timestampAsOf")
    if version is not None and moment is not None:
        raise InvalidArgumentError("versionAsOf and timestampAsOf both name a version: give one of them")
    return moment if version is None else _number("versionAsOf", version)


def reads_feed(options: Mapping[str, str]) -> bool:
    """True if the change data feed is read instead of the table: ``readChangeFeed``, or its older name."""
    return any(_flag(options, name) for name in _FEED)


def range_of(options: Mapping[str, str]) -> FeedRange | None:
    """The versions of which the change data feed is read; None if the table is read."""
    found = {name: options.get(name) for name in _RANGE}
    if not reads_feed(options):
        for name, value in found.items():
            if value is not None:
                raise InvalidArgumentError(
                    f"{name} requires readChangeFeed=true; a table is read at one version, which versionAsOf names"
                )
        return None
    if found["startingVersion"] is None and found["startingTimestamp"] is None:
        raise InvalidArgumentError("readChangeFeed=true needs startingVersion or startingTimestamp")
    first, last = (None if found[name] is None else _number(name, found[name] or "") for name in _RANGE[:2])
    return FeedRange(first, last, found["startingTimestamp"], found["endingTimestamp"])


def request_of(options: Mapping[str, str], *, overwrite: bool) -> WriteRequest:
    """The kind of a write."""
    schema_mode = None
    if _flag(options, "overwriteSchema"):
        schema_mode = "overwrite"
    elif _flag(options, "mergeSchema"):
        schema_mode = "merge"
    partitions = options.get("partitionOverwriteMode", "static").lower()
    if partitions not in ("static", "dynamic"):
        raise InvalidArgumentError(f"partitionOverwriteMode must be static or dynamic, not {partitions!r}")
    size = options.get("targetFileSize")
    return WriteRequest(
        mode="overwrite" if overwrite else "append",
        partition_by=_names(options.get("partitionBy")),
        schema_mode=schema_mode,
        predicate=options.get("replaceWhere"),
        target_file_size=None if size is None else _number("targetFileSize", size),
        partition_overwrite="dynamic" if partitions == "dynamic" else None,
    )


def commit_options(options: Mapping[str, str]) -> dict[str, Any]:
    """How a write commits, as arguments of a transaction: its application transaction, the user's metadata, and whether
    it shares its version.

    Raises:
        InvalidArgumentError: an option has a value that it does not take.
    """
    version, note, group = (options.get(name) for name in ("txnVersion", "userMetadata", "group"))
    if group is not None and group.lower() not in _GROUPS:
        raise InvalidArgumentError(f"group must be {' or '.join(_GROUPS)}, not {group!r}")
    shared = None if group is None else group.lower()
    return {
        "app_id": options.get("txnAppId"),
        "app_version": None if version is None else _number("txnVersion", version),
        "commit_properties": CommitProperties(user_metadata=note, group=shared),
    }


def reads_target(options: Mapping[str, str]) -> bool | int:
    """The version of the table from which the rows are made; True for the newest, False for none."""
    text = options.get("readsTarget", "false").lower()
    return text == "true" if text in ("true", "false") else _number("readsTarget", text)


def stream_of(options: Mapping[str, str]) -> StreamOptions:
    """The options of a stream that reads a table."""
    version, files, size = (options.get(name) for name in _STREAM_NUMBERS)
    latest = version is not None and version.lower() == "latest"
    return StreamOptions(
        starting_version="latest" if latest else None if version is None else _number("startingVersion", version),
        starting_timestamp=options.get("startingTimestamp"),
        max_files=None if files is None else _number("maxFilesPerTrigger", files),
        max_bytes=None if size is None else byte_count(size),
        ignore_deletes=_flag(options, "ignoreDeletes"),
        ignore_changes=_flag(options, "ignoreChanges") or _flag(options, "ignoreFileDeletion"),  # the older name
        skip_change_commits=_flag(options, "skipChangeCommits"),
        exclude=options.get("excludeRegex"),
        fail_on_data_loss=_flag(options, "failOnDataLoss", default=True),
        feed=reads_feed(options),
    )


def _flag(options: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise InvalidArgumentError(f"{name} must be true or false, not {text!r}")
    return text == "true"


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidArgumentError(f"{name} is a whole number, not {text!r}") from None


def _names(text: str | None) -> list[str] | None:
    """Names of columns separated by commas, or as a JSON list if a name contains a comma."""
    if text is None:
        return None
    if text.startswith("["):
        return _texts("partitionBy", text)
    return [name.strip() for name in text.split(",") if name.strip()]


def _texts(name: str, text: str) -> list[str]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise InvalidArgumentError(f"{name} must be a JSON list of strings, not {text!r}")
    return found
