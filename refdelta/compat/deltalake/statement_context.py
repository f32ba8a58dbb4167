"""The context of each statement of the compat module: what deltalake accepts, and key words of its messages.

Messages of errors begin with the key words for which programs look, and refdelta's message follows.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from refdelta.compat.deltalake.parquet_options import written_with
from refdelta.errors import (
    CommitFailedError,
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConstraintViolationError,
    DeltaError,
    MetadataChangedException,
    ProtocolChangedException,
)
from refdelta.table.field_names import names_of_any_characters
from refdelta.table.types import StructType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from refdelta.compat.deltalake.writer.properties import WriterProperties

__all__ = ["AppendOnlyError", "key_words", "statement"]


class AppendOnlyError(ConstraintViolationError, CommitFailedError):
    """Rows of an append-only table were to be removed: in deltalake the commit fails, in refdelta a constraint does."""


_INVALID = "Invalid data found:"
_FAILED = f"{_INVALID} {{rows}} rows failed validation check."
_SHORT = "Cannot cast schema, number of fields does not match"
_PARTITIONING = "Generic error: Specified table partitioning does not match table partitioning:"
_APPEND_ONLY = "The transaction includes Remove action with data change but Delta table is append-only."
_CONVERSION = (
    "Generic error: The schema of partition columns must be provided to convert a Parquet table to a Delta table."
)
_RETENTION = (
    "Generic error: Invalid retention period, minimum retention for vacuum is configured to be greater than {least} "
    "hours, got {hours} hours."
)
_WRITER_FEATURE = (
    "Generic DeltaTable error: Table feature enables writer feature, but min_writer is not v7. Set "
    "allow_protocol_versions_increase or increase version explicitly through set_tbl_properties."
)
_READER_FEATURE = (
    "Generic DeltaTable error: Table feature enables reader and writer feature, but reader is not v3, and writer not "
    "v7. Set allow_protocol_versions_increase or increase versions explicitly through set_tbl_properties."
)
_CONVERTED = "The given location is already a delta table location"
_READER = (
    "The table has set these reader features: {{{{'{feature}'}}}} but these are not yet supported by the deltalake "
    "reader."
)
_RULES = (
    (r"of the source match one row of the table", "satisfy duplicate relevant WHEN MATCHED clauses:"),
    (r"does not hold for (?P<rows>\d+) of the rows", _FAILED),
    (r"the data holds rows outside of the predicate .* \((?P<rows>\d+) in one batch\)", _FAILED),
    (r"is not null in the table", _INVALID),
    (r"the table is append-only", _APPEND_ONLY),
    (r"the table has no column", f"{_SHORT}."),
    (r"there is a table at (?P<uri>\S+); mode=\"append\"", "Generic error: A table already exists at: {uri}/."),
    (
        r"there is a table at .*; mode='ignore' keeps it, mode='overwrite'",
        "Generic error: A Delta Lake table already exists at that location.",
    ),
    (r"there is a table at .*; mode='ignore' keeps it", f"Generic error: {_CONVERTED}."),
    (
        r"mode='append' is not supported by create",
        "Generic error: SaveMode `append` is not allowed for create operation.",
    ),
    (
        r"schema_mode=\"overwrite\" goes with mode=\"overwrite\", not with mode=\"append\"",
        "Generic DeltaTable error: Schema overwrite not supported for Append:",
    ),
    (
        r"^mode is one of .*, not '(?P<mode>.*?)'",
        "Invalid save mode provided: {mode}, only these are supported: ['append', 'overwrite', 'error', 'ignore'].",
    ),
    (
        r"^schema_mode is one of .*, not '(?P<mode>.*?)'",
        "Invalid schema write mode provided: {mode}, only these are supported: ['overwrite', 'merge'].",
    ),
    (r"cannot parse '", "sql parser error:"),
    (r"cannot write a \w+; data must be", "Expected object with __arrow_c_array__ or __arrow_c_stream__ method:"),
    (r"a table needs at least one column", "At least one column must be defined to create a table."),
    (
        r"the table has no version (?P<asked>\d+); its newest is (?P<newest>\d+)",
        "LogSegment end version {newest} not the same as the specified end version {asked}.",
    ),
    (r"is an integer, a datetime or an ISO 8601 string, not '", "Failed to parse datetime string:"),
    (r"there is no Delta table at .*: its folder", "No files in log segment:"),
    (r"column '(?P<name>\w+)' is ambiguous", "Schema error: Ambiguous reference to unqualified field {name}:"),
    (r"z_order needs at least one column", "Z-order requires at least one column:"),
    (
        r"cannot sort by '(?P<name>.*?)': it is a partition column",
        'Z-order columns cannot be partition columns. Found: ["{name}"]:',
    ),
    (
        r"what changed in version (?P<version>\d+) was not recorded",
        "Reading a table version: {version} that does not have change data enabled:",
    ),
    (r"cannot be added: it is false or null for (?P<rows>\d+) rows", _FAILED),
    (r"constraint '(?P<name>.*?)' does not exist in the table", "Constraint with name '{name}' does not exist."),
    (r"constraints must have an entry", "No check constraint (Name and Expression) provided."),
    (r"there is no Parquet file at", "Generic error: No parquet file is found in the given location."),
    (
        r"column '(?P<name>.*?)' does not exist in the data, and cannot part",
        "Partition column '{name}' not found in schema.",
    ),
    (r"column '(?P<name>.*?)' does not exist in (?!the table)", "No field named {name}."),
    (r"filter on .*: operator '", "Invalid partition filter found:"),
    (r"it has deletion vectors, which a dataset", _READER.format(feature="deletionVectors")),
    (r"a pyarrow dataset cannot read .*column mapping", _READER.format(feature="columnMapping")),
    (r"the table is partitioned by (?P<had>\[.*?\]), not by (?P<asked>\[.*?\])", _PARTITIONING),
    (r"column (?P<name>'.*?') does not exist in the table", "No field named {name}."),
    (r"the changes begin with version (?P<version>\d+), after version", "Invalid table version: {version}."),
    (r"the changes begin at .*, after version", "The starting timestamp is greater than latest commit timestamp."),
    (r"partition_strategy is 'hive' or 'directory', not", "Partition strategy must be `hive` or `directory`:"),
    (r"cannot add column .* with delta\.generationExpression", "New columns cannot be a generated column."),
    (r"is in folders of the partition columns", _CONVERSION),
    (r"retention_hours=(?P<hours>\S+) is below the (?P<least>\S+) hours", _RETENTION),
    (r"would need 1 and \d+; pass allow_protocol", _WRITER_FEATURE),
    (r"would need \d+ and \d+; pass allow_protocol", _READER_FEATURE),
)
"""Parts of refdelta's messages, and the key words of deltalake's in the same case."""

_CONFLICTS: dict[type[DeltaError], str] = {
    ConcurrentAppendException: "Commit failed: a concurrent transactions added new data.",
    ConcurrentDeleteReadException: "Commit failed: a concurrent transaction deleted data this operation read.",
    ConcurrentDeleteDeleteException: (
        "Commit failed: a concurrent transaction deleted the same data your transaction deletes."
    ),
    MetadataChangedException: "Metadata changed since last commit.",
    ConcurrentTransactionException: "Concurrent transaction failed.",
    ProtocolChangedException: "Protocol changed since last commit:",
}
"""The key words of conflicts with other writers."""

_CAST = re.compile(r"the value (.+?) of column (.+?) \((.+?) in the data\) does not fit into (.+?) without loss")
_UNKNOWN = re.compile(r"the table has no column (.+?)(?: \(|;|$)")
_ARROW = {
    "byte": "Int8",
    "short": "Int16",
    "integer": "Int32",
    "long": "Int64",
    "float": "Float32",
    "double": "Float64",
    "string": "Utf8",
    "binary": "Binary",
    "boolean": "Boolean",
    "date": "Date32",
}


@contextmanager
def statement(
    writer_properties: WriterProperties | None = None, fields: Callable[[], tuple[StructType, StructType]] | None = None
) -> Iterator[None]:
    """A context in which columns may have any names, and errors begin with deltalake's key words.

    Args:
        writer_properties: the properties of Parquet files that are written in it.
        fields: gives the columns of the data and those of the table, if both are there; it is called for an error.

    Raises:
        AppendOnlyError: in the place of the ``ConstraintViolationError`` of an append-only table.
    """
    try:
        with names_of_any_characters(), written_with(writer_properties):
            yield
    except DeltaError as error:
        text = str(error.args[0]) if error.args else ""
        words = _CONFLICTS.get(type(error)) or key_words(text)
        if fields is not None and (unknown := _UNKNOWN.search(text)):
            words = _count_words(unknown[1].split("."), *fields())
        if words and not text.startswith(words):
            error.args = (f"{words} {text}", *error.args[1:])
        if words == _APPEND_ONLY and not isinstance(error, CommitFailedError):
            raise AppendOnlyError(*error.args) from error
        raise


def _count_words(path: list[str], data: StructType, table: StructType) -> str:
    """The key words for a field of the data that the table lacks."""
    for name in path[:-1]:
        inner = [struct.find(name) for struct in (data, table)]
        kinds = [None if item is None else item.type for item in inner]
        if not all(isinstance(kind, StructType) for kind in kinds):
            break
        data, table = kinds  # type: ignore[assignment]
    given, had = len(data.fields), len(table.fields)
    return f"Field {path[-1]} not found in schema." if given == had else f"{_SHORT}: {given} vs {had}."


def key_words(message: str) -> str:
    """The key words of deltalake for one of refdelta's messages; an empty string if there are none."""
    if cast := _CAST.search(message):
        value, column, given, kind = cast.groups()
        if given == "string" and kind != "string":
            return f"Cast error: Cannot cast string {value} to value of {_arrow(kind)} type."
        return f"Cannot cast field {column} from {_arrow(given)} to {_arrow(kind)}."
    for part, words in _RULES:
        if found := re.search(part, message):
            if words == _PARTITIONING:
                had, asked = (found[name].replace("'", '"') for name in ("had", "asked"))
                return f"{words} expected: {had}, got: {asked}"
            return words.format(**{name: value.strip("'") for name, value in found.groupdict().items()})
    return ""


def _arrow(kind: str) -> str:
    """A type of Delta by the name that Arrow has for it in Rust."""
    decimal = re.fullmatch(r"decimal\((\d+), ?(\d+)\)", kind)
    return f"Decimal128({decimal[1]}, {decimal[2]})" if decimal else _ARROW.get(kind, kind)
