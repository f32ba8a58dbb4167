"""Writes of DataFrames: Spark's workers write the data files, and the driver commits them.

The commit is that of :func:`refdelta.write_deltalake`, in the process of the caller: conflicts are raised there with
their own types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from refdelta import arguments
from refdelta.api.table_transaction import TableTransaction
from refdelta.api.writer import existing, write_and_commit
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.operations.write.target import WriteRequest
from refdelta.spark import origins
from refdelta.spark.executor import SparkExecutor
from refdelta.spark.job import FrameRows, shared_store
from refdelta.transaction.results import CommitResult

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from refdelta.api.table import DeltaTable
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.options import CommitProperties
    from refdelta_storage import Store


def write(
    df: Any,
    uri: str | os.PathLike[str] | DeltaTable,
    mode: arguments.WriteMode = "error",
    partition_by: Sequence[str] | str | None = None,
    predicate: str | None = None,
    schema_mode: arguments.SchemaMode | None = None,
    app_id: str | None = None,
    app_version: int | None = None,
    configuration: Mapping[str, str | None] | None = None,
    storage_options: Mapping[str, str] | None = None,
    *,
    commit_properties: CommitProperties | None = None,
    target_file_size: int | None = None,
    partition_overwrite: arguments.PartitionOverwrite | None = None,
    cluster_by: Sequence[str] | str | None = None,
    name: str | None = None,
    description: str | None = None,
    isolation: arguments.Isolation | None = None,
    reads_target: bool | int | None = None,
) -> CommitResult:
    """Write a DataFrame to a Delta table, and create it where it does not exist. One call is one commit.

    Each partition of the DataFrame becomes at least one file for each partition of the table of which it has rows. All
    columns of a new table are nullable.

    Args:
        df: the rows. Columns are found by name.
        uri: the path or URI of the table, or a ``DeltaTable``, such as one of a catalog; not ``memory://``, which no
            worker can reach.
        mode: ``append`` or ``overwrite``; ``error`` raises if the table exists, ``ignore`` then does nothing.
        partition_by: the partition columns of a new table, or of one whose schema is overwritten.
        predicate: replaceWhere, with ``mode="overwrite"``: only rows for which this SQL is true are replaced, and
            every new row must satisfy it.
        schema_mode: ``merge`` adds the columns that the table lacks; ``overwrite`` replaces the schema.
        app_id: with ``app_version``, makes the write idempotent: it is skipped, and the DataFrame not computed, if
            the table records this version of the application, or a later one.
        app_version: see ``app_id``.
        configuration: table properties of a new table.
        storage_options: options of the store, which workers get, too.
        commit_properties: options of the commit, and metadata to record in it.
        target_file_size: the size in bytes at which a data file is closed; None for the property of the table.
        partition_overwrite: ``dynamic`` with ``mode="overwrite"`` replaces only the partitions of which the data has
            rows.
        cluster_by: the clustering columns, instead of ``partition_by``.
        name: the name of a new table.
        description: the description of a new table.
        isolation: ``WriteSerializable`` or ``Serializable``; None for the property of the table.
        reads_target: the version of the table from which the rows are made; True for the newest, False if they are
            not made from it. None finds it out: rows of :func:`refdelta.spark.read`, of the data source and of other
            readers of the table's files are known by the plan of the DataFrame. Where the plan hides a source (a
            checkpoint, an RDD of other rows than the driver's, a source in Python), the rows count as read at the
            oldest version of the table that this process has read by ``refdelta.spark.read`` since it last wrote to
            the table, or at the newest version if it has read none. A write of such rows is not a blind append: it
            conflicts with later changes of the table. Rows that pass through the driver (``collect``, ``toPandas``),
            and what functions of the user read themselves, do not count.

    Returns:
        The result of the commit; its ``version`` is None if nothing was committed (``ignore``, or a version of an
        application that is already recorded).

    Raises:
        TableAlreadyExistsError: the table exists and the mode is ``error``.
        SchemaMismatchError: the data does not fit; nothing was written.
        ConstraintViolationError: a row does not satisfy ``predicate``; its files are removed.
        ConcurrentModificationError: a concurrent commit conflicts; the files are removed.
        UnsupportedFeatureError: the table needs a feature, or the data a type, that this engine cannot write.
        InvalidArgumentError: arguments that exclude each other, or a store that workers cannot reach.
        CommitOutcomeUnknownError: it is unknown whether the commit succeeded; the message says how to find out.

    Example::

        refdelta.spark.write(flights, "flights", mode="append").version
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
    rows = FrameRows(df)
    store = shared_store(uri, storage_options)
    newest = existing(store)
    if not request.goes_ahead(newest):
        return CommitResult(version=None)
    made_from = _made_from(df, store, newest, reads_target)
    snapshot = made_from or newest
    try:
        with TableTransaction(
            store,
            snapshot,
            commit_properties=commit_properties,
            app_id=app_id,
            app_version=app_version,
            age=0.0 if snapshot is newest else None,
            isolation=isolation,
            executor=SparkExecutor(df.sparkSession),
        ) as txn:
            return write_and_commit(txn, rows, request, reads_target=made_from is not None)
    finally:
        origins.wrote(df.sparkSession, store.uri)


def _made_from(df: Any, store: Store, newest: Snapshot | None, reads_target: bool | int | None) -> Snapshot | None:
    """The snapshot of the table from which the rows are made; None if they are not made from it."""
    if newest is None or reads_target is False:
        return None
    if reads_target is None or reads_target is True:
        version = origins.version_of(df, newest)
    else:
        version = arguments.whole("reads_target", reads_target)
    if version is None:
        return newest if reads_target else None
    return newest if version == newest.version else load_snapshot(store, version)
