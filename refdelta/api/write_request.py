"""What a write asks for, and how it is carried out: rows or files become a commit over a snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from refdelta import arguments
from refdelta.engine.arrow.schema import from_arrow
from refdelta.errors import (
    ConstraintViolationError,
    InvalidArgumentError,
    ProtocolChangedException,
    SchemaMismatchError,
    TableAlreadyExistsError,
    UnsupportedFeatureError,
)
from refdelta.operations.dml.rewritten import Rewritten
from refdelta.operations.layout.auto_compact import auto_compact
from refdelta.operations.write.append import Written, append
from refdelta.operations.write.insert import MODES, describe_write
from refdelta.operations.write.source import Source, record_reads
from refdelta.operations.write.target import Target, existing_table, new_table
from refdelta.transaction.driver import CERTAIN_FAILURES
from refdelta.transaction.results import CommitProperties, CommitResult
from refdelta.transaction.staging import Staging

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pyarrow as pa

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.operations.write.source import Rows
    from refdelta_storage import Store


_NOTHING_COMMITTED = (*CERTAIN_FAILURES, SchemaMismatchError, ConstraintViolationError, UnsupportedFeatureError)
"""What an append raises where it is certain that it committed nothing, so that it may begin anew."""


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


@dataclass(frozen=True)
class Told:
    """What a caller said of a commit; see :func:`write_deltalake`."""

    commit_properties: CommitProperties | None = None
    app_id: str | None = None
    app_version: int | None = None
    isolation: str | None = None


class Handle(Protocol):
    """What a write needs of a handle: :class:`refdelta.DeltaTable` is one, and says what each does."""

    @property
    def store(self) -> Store: ...  # noqa: D102

    def recent(self) -> tuple[Snapshot, float] | None: ...  # noqa: D102

    def newest_for_writing(self) -> Snapshot: ...  # noqa: D102

    def adopt(self, snapshot: Snapshot, *, alone: bool) -> None: ...  # noqa: D102


def commit_files(table: Handle, actions: Iterable[Any], request: WriteRequest, schema: Any, told: Told) -> CommitResult:
    """See :meth:`refdelta.DeltaTable.create_write_transaction`."""
    from refdelta.operations.write.prepared_files import PreparedFiles

    files = PreparedFiles(actions, schema)

    def attempt(snapshot: Snapshot, age: float = 0.0) -> CommitResult:
        return write_over(table.store, snapshot, files, request, told, age, table)

    return over_newest(table, attempt, again=request.mode == "append")


def over_newest(table: Handle, attempt: Callable[..., CommitResult], *, again: bool) -> CommitResult:
    """Write over the newest version of a table.

    A handle that knew the newest version a moment ago need not look whether it still is the newest: the put of the
    commit tells, which over a network saves a round trip. An append rests on nothing that somebody could have
    changed meanwhile but the table's schema and protocol, and a change of these conflicts; then, as after any other
    error, what counts is what the newest version has to say.

    Args:
        table: the handle.
        attempt: writes over a snapshot, of an age that :class:`~refdelta.transaction.staging.Staging` takes.
        again: whether it is an append that can be attempted a second time.
    """
    recent = table.recent() if again else None
    if recent is None:
        return attempt(table.newest_for_writing())
    try:
        return attempt(*recent)
    except _NOTHING_COMMITTED:
        before, _ = recent
        newest = table.newest_for_writing()
        if newest.version == before.version and newest.metadata is before.metadata:
            raise
    return attempt(newest)


def write_over(
    store: Store,
    snapshot: Snapshot | None,
    rows: Rows,
    request: WriteRequest,
    told: Told,
    age: float | None,
    table: Handle | None,
) -> CommitResult:
    """Write over a snapshot, whose age is as for :class:`~refdelta.transaction.staging.Staging`. ``table`` moves on."""
    txn = Staging(
        store,
        snapshot,
        commit_properties=told.commit_properties,
        app_id=told.app_id,
        app_version=told.app_version,
        age=age,
        isolation=told.isolation,
    )
    result = write_rows(txn, rows, request)
    if table and txn.result_snapshot:
        table.adopt(txn.result_snapshot, alone=txn.alone)
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
        if isinstance(rows, Source):
            record_reads(txn, rows.tables)
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
    from refdelta.operations.write.overwrite import overwrite, overwrite_partitions, replace_where

    if request.predicate is not None:
        return replace_where(txn, source, target, request.predicate, target_file_size=size)
    if request.partition_overwrite is not None:
        return overwrite_partitions(txn, source, target, target_file_size=size)
    return overwrite(txn, source, target, target_file_size=size)


def _one_of(what: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if value not in allowed:
        raise InvalidArgumentError(f"{what} is one of {', '.join(map(repr, allowed))}, not {value!r}")
