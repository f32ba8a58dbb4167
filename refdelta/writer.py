"""``write_deltalake``: the one function that most users call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from refdelta import arguments
from refdelta.engine.schema import from_arrow
from refdelta.engine.snapshot import Snapshot, load_snapshot
from refdelta.errors import InvalidArgumentError, ProtocolChangedException, TableAlreadyExistsError, TableNotFoundError
from refdelta.location import open_location
from refdelta.ops.append import Written, append
from refdelta.ops.auto_compact import auto_compact
from refdelta.ops.insert import MODES, describe_write
from refdelta.ops.rewritten import Rewritten
from refdelta.ops.source import Rows, open_source
from refdelta.ops.target import Target, existing_table, new_table
from refdelta.results import CommitProperties, CommitResult
from refdelta.staging import Staging
from refdelta.table import DeltaTable

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from refdelta_storage import Store


@dataclass(frozen=True)
class WriteRequest:
    """The arguments of a write that decide what becomes of the table; see :func:`write_deltalake`."""

    mode: str = "error"
    partition_by: Sequence[str] | str | None = None
    cluster_by: Sequence[str] | str | None = None
    schema_mode: str | None = None
    predicate: str | None = None
    configuration: Mapping[str, str | None] | None = None
    name: str | None = None
    description: str | None = None
    target_file_size: int | None = None
    partition_overwrite: str | None = None

    def __post_init__(self) -> None:
        _one_of("mode", self.mode, tuple(MODES))
        _one_of("schema_mode", self.schema_mode, (None, "merge", "overwrite"))
        _one_of("partition_overwrite", self.partition_overwrite, (None, "dynamic"))
        arguments.text("predicate", self.predicate)
        if (size := arguments.whole("target_file_size", self.target_file_size)) is not None and size <= 0:
            raise InvalidArgumentError(f"target_file_size is a positive number of bytes, not {self.target_file_size}")
        overwrites = self.mode == "overwrite"
        for given, what in (
            (self.predicate is not None, "predicate"),
            (self.partition_overwrite is not None, "partition_overwrite"),
            (self.schema_mode == "overwrite", 'schema_mode="overwrite"'),
        ):
            if given and not overwrites:
                raise InvalidArgumentError(f'{what} goes with mode="overwrite", not with mode="{self.mode}"')
        if self.predicate is not None and self.partition_overwrite is not None:
            raise InvalidArgumentError(
                "predicate and partition_overwrite are two ways to say what is replaced: give one"
            )
        if self.schema_mode == "overwrite" and (self.predicate is not None or self.partition_overwrite is not None):
            raise InvalidArgumentError(
                'schema_mode="overwrite" replaces the whole table: it takes no predicate or partitions'
            )

    def goes_ahead(self, snapshot: Snapshot | None) -> bool:
        """Whether there is something to write: not where the mode is ``ignore`` and the table exists.

        Raises ``TableAlreadyExistsError`` where the mode is ``error`` and the table exists.
        """
        if snapshot is not None and self.mode == "error":
            raise TableAlreadyExistsError(
                f'there is a table at {snapshot.store.uri}; mode="append" or mode="overwrite" writes to it'
            )
        return snapshot is None or self.mode != "ignore"

    def target(self, snapshot: Snapshot | None, schema: pa.Schema) -> Target:
        """What the table will be, with data of this schema. Raises what :func:`write_deltalake` does, but for rows."""
        data = from_arrow(schema)
        if snapshot is None:
            return new_table(
                data,
                partition_by=self.partition_by,
                cluster_by=self.cluster_by,
                configuration=self.configuration,
                name=self.name,
                description=self.description,
            )
        return existing_table(
            snapshot,
            data,
            schema_mode=self.schema_mode,
            partition_by=self.partition_by,
            cluster_by=self.cluster_by,
            configuration=self.configuration,
        )


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
            structs. A new one gets deletion vectors, so that rows decide over conflicts, unless ``configuration`` has
            ``delta.enableDeletionVectors`` false. Where the schema is overwritten, None keeps the table's.
        schema_mode: ``merge`` adds the columns that the table lacks; ``overwrite`` replaces the schema.
        predicate: replaceWhere, with ``mode="overwrite"``: only rows for which this SQL is true are replaced, and
            every new row must satisfy it.
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
        mode,
        partition_by,
        cluster_by,
        schema_mode,
        predicate,
        configuration,
        name,
        description,
        target_file_size,
        partition_overwrite,
    )
    table = table_or_uri if isinstance(table_or_uri, DeltaTable) else None
    store = table.store if table else open_location(table_or_uri, storage_options)  # type: ignore[arg-type]
    snapshot = table.newest_for_writing() if table else existing(store)
    if not request.goes_ahead(snapshot):
        return CommitResult(version=None)
    source = open_source(data.scan() if isinstance(data, DeltaTable) else data)
    reads_target = source.snapshot is not None and source.snapshot.store.uri == store.uri
    if reads_target and not (isinstance(data, DeltaTable) and data.pinned):
        # The rows are those of that snapshot, so the transaction begins there. A version that the caller named never
        # changes.
        snapshot = source.snapshot
    txn = Staging(
        store,
        snapshot,
        commit_properties=commit_properties,
        app_id=app_id,
        app_version=app_version,
        fresh=not (reads_target and snapshot is source.snapshot),
        isolation=isolation,
    )
    result = write_rows(txn, source, request, reads_target=reads_target)
    if table and txn.result_snapshot:
        table.adopt(txn.result_snapshot)
    return result


def write_rows(txn: Staging, rows: Rows, request: WriteRequest, *, reads_target: bool = False) -> CommitResult:
    """Write rows and commit them: the part of :func:`write_deltalake` that knows its snapshot.

    Args:
        txn: the transaction. It is over afterwards.
        rows: what to write, wherever that is done.
        request: what becomes of the table.
        reads_target: whether the rows are made from those of the transaction's snapshot.
    """
    with txn:
        if reads_target:
            txn.read_whole_table()
        if txn.already_recorded:
            return CommitResult(version=None)
        result = _write(txn, rows, request)
        auto_compact(txn)
    return result


def _write(txn: Staging, source: Rows, request: WriteRequest) -> CommitResult:
    target = request.target(txn.snapshot, source.schema)
    written, rewritten = _stage(txn, source, target, request)
    describe_write(
        txn,
        target,
        written,
        rewritten,
        mode=request.mode,
        predicate=request.predicate,
        dynamic=request.partition_overwrite is not None,
        always=True,
    )
    try:
        return txn.commit()
    except ProtocolChangedException:
        if request.mode == "ignore":
            return CommitResult(version=None)
        raise


def _stage(txn: Staging, source: Rows, target: Target, request: WriteRequest) -> tuple[Written, Rewritten]:
    size = request.target_file_size
    if request.mode != "overwrite":
        return append(txn, source, target, target_file_size=size), Rewritten([], [], 0)
    from refdelta.ops.overwrite import overwrite, overwrite_partitions, replace_where

    if request.predicate is not None:
        return replace_where(txn, source, target, request.predicate, target_file_size=size)
    if request.partition_overwrite is not None:
        return overwrite_partitions(txn, source, target, target_file_size=size)
    return overwrite(txn, source, target, target_file_size=size)


def existing(store: Store) -> Snapshot | None:
    """The newest snapshot of a table, or None where there is no table."""
    try:
        return load_snapshot(store)
    except TableNotFoundError:
        return None


def _one_of(what: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if value not in allowed:
        raise InvalidArgumentError(f"{what} is one of {', '.join(map(repr, allowed))}, not {value!r}")
