"""``convert_to_deltalake``: a folder of Parquet files becomes a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from refdelta import arguments
from refdelta.core.table.types import STRING, StructField, type_named
from refdelta.engine.log.listing import has_log
from refdelta.errors import InvalidArgumentError, TableAlreadyExistsError
from refdelta.operations.write.convert import Strategy, convert
from refdelta.schema import struct_of
from refdelta.transaction.location import open_location
from refdelta.transaction.options import CommitProperties
from refdelta.transaction.results import CommitResult
from refdelta.transaction.transaction import Transaction

if TYPE_CHECKING:
    import os

_STRATEGIES: tuple[Strategy, ...] = ("hive", "directory")


def convert_to_deltalake(
    uri: str | os.PathLike[str],
    mode: str = "error",
    partition_by: Any = None,
    partition_strategy: str | None = None,
    name: str | None = None,
    description: str | None = None,
    configuration: Mapping[str, str | None] | None = None,
    storage_options: Mapping[str, str] | None = None,
    *,
    collect_stats: bool = True,
    commit_properties: CommitProperties | None = None,
) -> CommitResult:
    """Make a table of a folder of Parquet files, as CONVERT TO DELTA does. The files stay where they are.

    The table's schema is that of all files together; every column may be null. Files whose names begin with ``_`` or
    ``.`` are passed over.

    Args:
        uri: where the files are.
        mode: what to do where the table exists: ``error`` or ``ignore``.
        partition_by: the partition columns and their types, in the order of the folders: a
            :class:`~refdelta.schema.Schema`, anything with ``__arrow_c_schema__``, or a mapping of names to Delta's
            names of types, such as ``{"year": "integer"}``. Columns that are named alone are strings.
        partition_strategy: ``hive`` for folders such as ``year=2026``, which is what None means; ``directory`` for the
            values alone.
        name: the table's name.
        description: its description.
        configuration: its table properties.
        storage_options: what the store needs.
        collect_stats: whether the files are read, so that each has bounds of its columns by which queries skip it.
            Otherwise only their footers are.
        commit_properties: how to commit, and what to note in the commit.

    Returns:
        What was committed; its version is None where the table exists and the mode is ``ignore``. Metrics:
        ``num_converted_files``, ``num_added_rows``.

    Raises:
        TableAlreadyExistsError: the table exists and the mode is ``error``.
        InvalidArgumentError: there is no file, or the folders do not fit the partition columns.
        DataFileError: a file that is not Parquet, or has a type that Delta lacks; it is named.
        SchemaMismatchError: files whose columns do not go together.
        ProtocolChangedException: another writer created the table meanwhile.
    """
    if mode not in ("error", "ignore"):
        raise InvalidArgumentError(f"mode is one of 'error', 'ignore', not {mode!r}")
    strategy = next((one for one in _STRATEGIES if one == (partition_strategy or "hive")), None)
    if strategy is None:
        raise InvalidArgumentError(f"partition_strategy is 'hive' or 'directory', not {partition_strategy!r}")
    store = open_location(uri, storage_options)
    if has_log(store):
        if mode == "ignore":
            return CommitResult(version=None)
        raise TableAlreadyExistsError(f"there is a table at {store.uri}")
    with Transaction(store, None, commit_properties=commit_properties) as txn:
        convert(
            txn,
            _partition_fields(partition_by),
            strategy=strategy,
            configuration=configuration,
            name=name,
            description=description,
            collect_stats=collect_stats,
        )
        return txn.commit()


def _partition_fields(given: Any) -> list[StructField]:
    if given is None:
        return []
    if isinstance(given, Mapping):
        return [StructField(name, type_named(kind)) for name, kind in given.items()]
    if isinstance(given, (str, list, tuple)):
        return [StructField(name, STRING) for name in arguments.names("partition_by", given) or ()]
    return list(struct_of(given).fields)
