"""``write_deltalake``: the one function that most users call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from refdelta.api.table import DeltaTable
from refdelta.api.write_request import Told, WriteRequest, over_newest, write_over
from refdelta.engine.log.snapshot import Snapshot, load_snapshot
from refdelta.errors import InvalidArgumentError, TableNotFoundError
from refdelta.operations.write.source import open_source
from refdelta.transaction.location import open_location, with_others
from refdelta.transaction.results import CommitProperties, CommitResult

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

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
    commit_properties: CommitProperties | None = None,
    target_file_size: int | None = None,
    app_id: str | None = None,
    app_version: int | None = None,
    partition_overwrite: str | None = None,
    isolation: str | None = None,
    outside: Sequence[str | os.PathLike[str]] = (),
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
        commit_properties: how to commit, and what to note in the commit.
        target_file_size: at which size in bytes a data file is closed; None for the table's own.
        app_id: with ``app_version``, makes the write idempotent: it is skipped if the table records this version of
            the application, or a later one.
        app_version: see ``app_id``.
        partition_overwrite: ``dynamic`` with ``mode="overwrite"``: the partitions that the data has rows of are
            replaced, the others stay.
        isolation: ``WriteSerializable`` or ``Serializable``, at least as strict as the table's own level; None for
            that. It matters to a write that reads the table: an overwrite, or one whose data is of this table.
        outside: for a URI, as :class:`~refdelta.DeltaTable` takes it; a handle has its own.

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
    told = Told(commit_properties, app_id, app_version, isolation)

    def attempt(snapshot: Snapshot | None, age: float | None = 0.0) -> CommitResult:
        if not request.goes_ahead(snapshot):
            return CommitResult(version=None)
        source = open_source(data)
        if (read := source.tables.of(store)) is not None:
            # The rows are those of that snapshot, so the transaction begins there.
            snapshot, age = read, None
        return write_over(store, snapshot, source, request, told, age, table)

    if table is None:
        return attempt(existing(store))
    # What has a length is in memory, and can be read a second time.
    return over_newest(table, attempt, again=request.mode == "append" and hasattr(data, "__len__"))


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
