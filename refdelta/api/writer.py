"""``write_deltalake``: the one function that most users call."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from refdelta.api.table import DeltaTable
from refdelta.api.transaction import WriteTransaction
from refdelta.engine.log.snapshot import Snapshot, load_snapshot
from refdelta.errors import InvalidArgumentError, ProtocolChangedException, TableNotFoundError
from refdelta.operations.write.append import Rows
from refdelta.operations.write.request import WriteRequest
from refdelta.operations.write.source import open_source
from refdelta.transaction.location import open_location, with_others
from refdelta.transaction.results import CommitResult

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from refdelta.transaction.options import CommitOptions
    from refdelta_storage import Store


def write_deltalake(
    table_or_uri: DeltaTable | str | os.PathLike[str],
    data: Any,
    *,
    mode: str = "error",
    partition_by: Sequence[str] | str | None = None,
    cluster_by: Sequence[str] | str | None = None,
    schema_mode: str | None = None,
    predicate: str | None = None,
    configuration: Mapping[str, str | None] | None = None,
    name: str | None = None,
    description: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    target_file_size: int | None = None,
    partition_overwrite: str | None = None,
    outside: Sequence[str | os.PathLike[str]] = (),
    **options: Unpack[CommitOptions],
) -> CommitResult:
    """Write rows to a Delta table, and create it where it does not exist. One call is one commit.

    Args:
        table_or_uri: the table, or where it is: a path, ``file://``, ``memory://`` or a URI that fsspec knows.
        data: anything with ``__arrow_c_stream__`` or ``__arrow_c_array__`` (pyarrow, polars, duckdb, pandas 2.2 or
            later), a pyarrow dataset, an iterable of record batches, a ``DeltaTable`` or a scan of one. It is
            streamed, never held whole. Columns are found by name.
        mode: ``error`` if the table exists, ``ignore`` if it does, ``append`` or ``overwrite``.
        partition_by: the partition columns of a new table, or of one whose schema is overwritten.
        cluster_by: the clustering columns of such a table, at most four, instead of partition columns; dots lead into
            structs. A new one gets deletion vectors, so that rows decide over conflicts, and tracks rows, so that
            clustering conflicts with no change of rows, unless ``configuration`` has ``delta.enableDeletionVectors`` or
            ``delta.enableRowTracking`` false. Where the schema is overwritten, None keeps the table's.
        schema_mode: ``merge`` adds the columns that the table lacks; ``overwrite`` replaces the schema.
        predicate: replaceWhere, with ``mode="overwrite"``: only rows for which this SQL is true are replaced, and
            every new row must satisfy it. Rows of the table hold null in a column that the write adds.
        configuration: table properties of a new table.
        name: the new table's name.
        description: the new table's description.
        storage_options: what the store needs, by the names of s3fs, adlfs or deltalake.
        target_file_size: at which size in bytes a data file is closed; None for the table's own.
        partition_overwrite: ``dynamic`` with ``mode="overwrite"``: the partitions that the data has rows of are
            replaced, the others stay.
        outside: for a URI, as :class:`~refdelta.DeltaTable` takes it; a handle has its own.
        options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`. ``isolation`` matters to a
            write that reads the table: an overwrite, or one whose data is of this table.

    Returns:
        What was committed; its ``version`` is None where nothing was (``ignore``, or an application's version that
        is already recorded).

    Raises:
        TableAlreadyExistsError: the table exists and the mode is ``error``.
        SchemaMismatchError: the data does not fit; nothing was written.
        ConstraintViolationError: a null where there may be none, or a row outside of ``predicate``; nothing stays
            written.
        ConcurrentModificationError: another writer's commit conflicts; nothing stays written.
        UnsupportedFeatureError: the table needs a feature that this engine cannot write.
        InvalidArgumentError: arguments that do not go together, or an isolation weaker than the table's.
        CommitOutcomeUnknownError: nobody can tell whether the commit happened; its message says how to find out.
    """
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
    )
    table = table_or_uri if isinstance(table_or_uri, DeltaTable) else None
    if table is not None and outside:
        raise InvalidArgumentError("a handle knows its folders: give outside to DeltaTable, or here with a URI")
    store = table.store if table else _opened(table_or_uri, storage_options, outside)  # type: ignore[arg-type]

    def write(snapshot: Snapshot | None, age: float | None) -> CommitResult:
        if not request.goes_ahead(snapshot):
            return CommitResult(version=None)
        source = open_source(data)
        if (read := source.tables.of(store)) is not None:
            # The rows are those of that snapshot, so the transaction begins there.
            snapshot, age = read, None
        begin = table.begin_at if table else partial(WriteTransaction, store)
        with begin(snapshot, age=age, **options) as txn:
            return write_and_commit(txn, source, request)

    if table is None:
        return write(existing(store), 0.0)
    # What has a length is in memory, and can be read a second time.
    return table.over_newest(write, again=request.mode == "append" and hasattr(data, "__len__"))


def write_and_commit(
    txn: WriteTransaction, rows: Rows, request: WriteRequest, *, reads_target: bool = False
) -> CommitResult:
    """Write rows and commit them: the part of :func:`write_deltalake` that knows its transaction.

    Args:
        txn: the transaction; it has ended afterwards.
        rows: the rows to write, in whichever process they are written.
        request: the mode, and what goes with it.
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
    """The newest snapshot of a table, or None where there is no table."""
    try:
        return load_snapshot(store)
    except TableNotFoundError:
        return None
