"""``write_deltalake``: write rows to a table, and create it if needed, in one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from refdelta.api.awaiting import awaitable
from refdelta.api.handle import Handle, handle_of
from refdelta.api.table import DeltaTable
from refdelta.api.table_transaction import TableTransaction
from refdelta.engine.log.location import open_location, with_others
from refdelta.engine.log.snapshot import Snapshot, load_snapshot
from refdelta.errors import InvalidArgumentError, ProtocolChangedException, TableNotFoundError
from refdelta.operations.write.append import Rows
from refdelta.operations.write.source import open_source
from refdelta.operations.write.target import WriteRequest
from refdelta.transaction.options import check_options, without_attempts
from refdelta.transaction.results import CommitResult

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from refdelta.arguments import PartitionOverwrite, SchemaMode, WriteMode
    from refdelta.transaction.options import StatementOptions
    from refdelta_storage import Store


def write_deltalake(
    table_or_uri: DeltaTable | str | os.PathLike[str],
    data: Any,
    *,
    mode: WriteMode = "error",
    partition_by: Sequence[str] | str | None = None,
    cluster_by: Sequence[str] | str | None = None,
    schema_mode: SchemaMode | None = None,
    predicate: str | None = None,
    configuration: Mapping[str, str | None] | None = None,
    name: str | None = None,
    description: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    target_file_size: int | None = None,
    partition_overwrite: PartitionOverwrite | None = None,
    outside: Sequence[str | os.PathLike[str]] = (),
    timezone: str | None = None,
    **options: Unpack[StatementOptions],
) -> CommitResult:
    """Write rows to a Delta table in one commit. If the table does not exist, it is created.

    Args:
        table_or_uri: a :class:`~refdelta.DeltaTable`, or the table's folder: a path, ``file://``, ``memory://`` or a
            URI that fsspec knows.
        data: anything with ``__arrow_c_stream__`` or ``__arrow_c_array__`` (pyarrow, polars, duckdb, pandas 2.2 or
            later), a Polars LazyFrame, a pyarrow dataset or scanner, an iterable of record batches, a ``DeltaTable`` or
            a scan of one. It is streamed, never held in memory as a whole. Columns are matched by name.
        mode: ``append``; ``overwrite``; ``error``, which raises an error if the table exists; ``ignore``, which then
            writes nothing.
        partition_by: the partition columns of a new table, or of one whose schema is overwritten.
        cluster_by: the clustering columns of such a table, at most four, instead of partition columns; dots separate
            the fields of structs. A new table gets deletion vectors, so that conflicts are detected by row, and row
            tracking, so that clustering does not conflict with changes of rows, unless ``configuration`` sets
            ``delta.enableDeletionVectors`` or ``delta.enableRowTracking`` to false. None keeps the table's clustering
            columns if its schema is overwritten.
        schema_mode: ``merge`` adds the columns that the table lacks; ``overwrite`` replaces the schema.
        predicate: with ``mode="overwrite"``, replaceWhere: only rows for which this SQL is true are replaced, and every
            new row must satisfy it. A column that the write adds is null in the rows of the table.
        configuration: table properties of a new table.
        name: the name of a new table.
        description: the description of a new table.
        storage_options: options of the store, by the names of s3fs, adlfs or deltalake.
        target_file_size: the size in bytes at which a data file is completed; None for the table's own.
        partition_overwrite: with ``mode="overwrite"``, ``dynamic`` replaces only the partitions of which the data has
            rows.
        outside: for a URI, as :class:`~refdelta.DeltaTable` takes it; a handle has its own.
        timezone: the zone of the times in ``data`` that have none, such as ``Europe/Berlin`` or ``UTC``. They become
            points in time where the table has a ``timestamp``, and in new columns. As in Spark, a time that occurs
            twice is the earlier one, and one that is left out, when clocks are set forward, is as much later. None
            for that of the handle; without any, such times are refused where the table has a ``timestamp``, and new
            columns are ``timestamp_ntz``.
        options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`. ``isolation`` matters to a
            write that reads the table: an overwrite, or a write of data from the same table.

    Returns:
        The result of the commit; ``version`` is None if nothing was written (``ignore``, or an application's version
        that is recorded already).

    Raises:
        TableAlreadyExistsError: the table exists and the mode is ``error``.
        SchemaMismatchError: the data does not fit the table; nothing was written.
        ConstraintViolationError: a null in a column without nulls, or a row outside of ``predicate``; the files that
            were written are removed.
        ConcurrentModificationError: another writer's commit conflicts; the files that were written are removed.
        UnsupportedFeatureError: the table needs a feature that this engine cannot write.
        InvalidArgumentError: arguments exclude each other, or the isolation level is weaker than the table's.
        CommitOutcomeUnknownError: it is not known whether the commit happened; the message says how to find out.

    Example::

        write_deltalake(uri, rows, partition_by="day")
        write_deltalake(uri, rows, mode="append", app_id="nightly", app_version=7)
        write_deltalake(uri, rows.slice(0, 1), mode="overwrite", predicate="id = 3")
    """
    check_options(options)
    own = without_attempts(options)
    request = WriteRequest(
        mode=mode,
        partition_by=partition_by,
        cluster_by=cluster_by,
        schema_mode=schema_mode,
        predicate=predicate,
        configuration=configuration,
        name=name,
        description=description,
        target_file_size=target_file_size,
        partition_overwrite=partition_overwrite,
        timezone=timezone,
    )
    table = table_or_uri if isinstance(table_or_uri, DeltaTable) else None
    if table is not None and outside:
        raise InvalidArgumentError("outside goes with a URI; a DeltaTable takes it in its constructor")
    if table is not None:
        handle = handle_of(table)
    else:
        handle = Handle(_opened(table_or_uri, storage_options, outside), timezone=timezone)  # type: ignore[arg-type]

    def newest() -> Snapshot | None:
        found = existing(handle.store)
        return None if found is None else found.in_zone(timezone)

    def write(snapshot: Snapshot | None, age: float | None) -> CommitResult:
        if not request.goes_ahead(snapshot):
            return CommitResult(version=None)
        source = open_source(data)
        if (read := source.tables.of(handle.store)) is not None:
            # The rows are those of that snapshot, so the transaction begins there.
            snapshot, age = read, None
        with handle.begin_at(snapshot, age, **own) as txn:
            return write_and_commit(txn, source, request)

    # Data with a length is in memory, and can be read a second time.
    again = request.mode == "append" and hasattr(data, "__len__")
    handle.check_readable_again(data, options)
    return handle.repeated(lambda: handle.over_newest(write, again=again) if table else write(newest(), 0.0), options)


write_deltalake_async = awaitable(write_deltalake)


def write_and_commit(
    txn: TableTransaction, rows: Rows, request: WriteRequest, *, reads_target: bool = False
) -> CommitResult:
    """Write rows in a transaction and commit it: the last step of :func:`write_deltalake` and of Spark's writes.

    Args:
        txn: the transaction, which is committed.
        rows: the rows to write, in this process or in others.
        request: the mode and its arguments.
        reads_target: whether the rows are made from those of the transaction's snapshot.
    """
    if reads_target:
        txn.read_whole_table()
    txn.write(rows, request, always=True)
    try:
        return txn.commit()
    except ProtocolChangedException:  # another writer has created the table
        if request.mode != "ignore":
            raise
        return CommitResult(version=None)


def _opened(
    uri: str | os.PathLike[str],
    storage_options: Mapping[str, str] | None,
    outside: Sequence[str | os.PathLike[str]],
) -> Store:
    return with_others(open_location(uri, storage_options), outside, storage_options)


def existing(store: Store) -> Snapshot | None:
    """The newest snapshot of a table, or None if there is no table."""
    try:
        return load_snapshot(store)
    except TableNotFoundError:
        return None
