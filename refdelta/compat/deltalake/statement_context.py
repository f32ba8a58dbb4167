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

if TYPE_CHECKING:
    from collections.abc import Iterator

    from refdelta.compat.deltalake.writer.properties import WriterProperties

__all__ = ["AppendOnlyError", "key_words", "statement"]


class AppendOnlyError(ConstraintViolationError, CommitFailedError):
    """Rows of an append-only table were to be removed: in deltalake the commit fails, in refdelta a constraint does."""


_INVALID = "Invalid data found:"
_FAILED = f"{_INVALID} {{rows}} rows failed validation check."
_SHORT = "Cannot cast schema, number of fields does not match."
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
_RULES = (
    (r"of the source match one row of the table", "satisfy duplicate relevant WHEN MATCHED clauses:"),
    (r"does not hold for (?P<rows>\d+) of the rows", _FAILED),
    (r"the data holds rows outside of the predicate .* \((?P<rows>\d+) in one batch\)", _FAILED),
    (r"is not null in the table", _INVALID),
    (r"the table is append-only", _APPEND_ONLY),
    (r"the table has no column", _SHORT),
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
def statement(writer_properties: WriterProperties | None = None) -> Iterator[None]:
    """A context in which columns may have any names, and errors begin with deltalake's key words.

    Args:
        writer_properties: the properties of Parquet files that are written in it.

    Raises:
        AppendOnlyError: in the place of the ``ConstraintViolationError`` of an append-only table.
    """
    try:
        with names_of_any_characters(), written_with(writer_properties):
            yield
    except DeltaError as error:
        text = str(error.args[0]) if error.args else ""
        words = _CONFLICTS.get(type(error)) or key_words(text)
        if words and not text.startswith(words):
            error.args = (f"{words} {text}", *error.args[1:])
        if words == _APPEND_ONLY and not isinstance(error, CommitFailedError):
            raise AppendOnlyError(*error.args) from error
        raise


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
