"""``convert_to_deltalake``: create a table from a folder of Parquet files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from refdelta import arguments
from refdelta.engine.log.listing import has_log
from refdelta.engine.log.location import open_location
from refdelta.errors import InvalidArgumentError, TableAlreadyExistsError
from refdelta.operations.write.convert import Strategy, convert
from refdelta.schema import struct_of
from refdelta.table.types import STRING, StructField, type_named
from refdelta.transaction.options import CommitProperties
from refdelta.transaction.results import CommitResult
from refdelta.transaction.transaction import Transaction

if TYPE_CHECKING:
    import os

_STRATEGIES: tuple[Strategy, ...] = ("hive", "directory")


def convert_to_deltalake(
    uri: str | os.PathLike[str],
    mode: arguments.ConvertMode = "error",
    partition_by: Any = None,
    partition_strategy: Strategy | None = None,
    name: str | None = None,
    description: str | None = None,
    configuration: Mapping[str, str | None] | None = None,
    storage_options: Mapping[str, str] | None = None,
    *,
    collect_stats: bool = True,
    commit_properties: CommitProperties | None = None,
) -> CommitResult:
    """Create a table from a folder of Parquet files (CONVERT TO DELTA). The files are not moved or rewritten.

    The table's schema is the union of the files' schemas; every column is nullable. Files whose names begin with ``_``
    or ``.`` are ignored.

    Args:
        uri: the folder, which becomes the table's.
        mode: the behaviour if the table exists: ``error`` or ``ignore``.
        partition_by: the partition columns and their types, in the order of the folders: a
            :class:`~refdelta.schema.Schema`, anything with ``__arrow_c_schema__``, or a mapping of column names to
            Delta's type names, such as ``{"year": "integer"}``. A list of names makes string columns.
        partition_strategy: ``hive`` for folders such as ``year=2026``; ``directory`` for folders such as ``2026``. None
            is ``hive``.
        name: the table's name.
        description: the table's description.
        configuration: table properties.
        storage_options: options of the store.
        collect_stats: read the files to collect the minimum and maximum of their columns, by which queries skip files.
            Otherwise only footers are read.
        commit_properties: notes in the commit, and limits of its retries.

    Returns:
        The result of the commit; ``version`` is None if the table exists and the mode is ``ignore``. Metrics:
        ``num_converted_files``, ``num_added_rows``.

    Raises:
        TableAlreadyExistsError: the table exists and the mode is ``error``.
        InvalidArgumentError: the folder has no Parquet file, or its folders do not fit the partition columns.
        DataFileError: a file is not Parquet, or has a type that Delta lacks; the message names the file.
        SchemaMismatchError: the schemas of the files cannot be merged.
        ProtocolChangedException: another writer created the table meanwhile.

    Example::

        pq.write_table(rows, Path(uri, "part-0.parquet"))
        convert_to_deltalake(uri)
        DeltaTable(uri).count()
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
        raise TableAlreadyExistsError(f"there is a table at {store.uri}; mode='ignore' keeps it")
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
