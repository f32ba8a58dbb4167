"""Data files of another program as rows to write: checked by the table's schema, and not opened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec import structs

from refdelta import arguments
from refdelta.arrow.arrays import take
from refdelta.arrow.schema import from_arrow, to_arrow
from refdelta.core.log.actions import Add
from refdelta.core.log.paths import LOG, data_key, encode_path
from refdelta.core.log.statistics import num_records, parse_stats
from refdelta.core.rows.deletes import tombstone
from refdelta.engine.log.state import to_adds
from refdelta.errors import InvalidArgumentError, InvalidLogError, SchemaMismatchError, UnsupportedFeatureError
from refdelta.operations.shared.rewrite import remove_files
from refdelta.operations.write.append import Rows, WrittenFiles
from refdelta.schema import struct_of
from refdelta.table.features import features_of
from refdelta.table.partition_values import parse
from refdelta.transaction.commit_info import now_ms

if TYPE_CHECKING:
    from refdelta.operations.write.append import FileWriter
    from refdelta.operations.write.target import Target
    from refdelta.table.types import StructType
    from refdelta.transaction.transaction import Transaction

_FIELDS = ("path", "size", "partition_values", "modification_time", "data_change", "stats")


@dataclass(frozen=True)
class AddAction:
    """A data file that exists already. The attributes have deltalake's names; deltalake's class is accepted, too.

    Attributes:
        path: its path relative to the table's folder, as the store spells it (not percent-encoded).
        size: its size in bytes.
        partition_values: by partition column, the value, serialized by PROTOCOL.md, "Partition Value Serialization";
            None for null.
        modification_time: the time at which it was written, in milliseconds since 1970.
        data_change: whether its rows are new in the table.
        stats: its statistics as JSON (PROTOCOL.md, "Per-file Statistics"), or None.

    Example::

        write_deltalake(uri, rows)
        file = Path(uri, "more.parquet")
        pq.write_table(rows, file)
        action = AddAction(file.name, file.stat().st_size, {}, int(file.stat().st_mtime * 1000))
        DeltaTable(uri).create_write_transaction([action], "append", rows.schema)
    """

    path: str
    size: int
    partition_values: Mapping[str, str | None]
    modification_time: int
    data_change: bool = True
    stats: str | None = None


@dataclass(frozen=True)
class RemoveAction:
    """A live data file that leaves the table. The attributes have deltalake's names; its class is accepted, too.

    Attributes:
        path: its path relative to the table's folder, as the store or as the log spells it.
        data_change: True if its rows leave the table; False if they are in files that the same commit adds.
        deletion_timestamp: not used: the retention of VACUUM counts from the commit.
        size: not used: the log knows it, like ``partition_values``.
        partition_values: see ``size``.

    Example::

        write_deltalake(table, rows, mode="append")
        old = [RemoveAction(path, data_change=False) for path in table.get_add_actions()["path"].to_pylist()]
        file = Path(uri, "compacted.parquet")
        pq.write_table(table.to_pyarrow_table(), file)
        new = AddAction(file.name, file.stat().st_size, {}, int(file.stat().st_mtime * 1000), data_change=False)
        table.create_write_transaction([new, *old], "append", rows.schema)
    """

    path: str
    data_change: bool = True
    deletion_timestamp: int | None = None
    size: int | None = None
    partition_values: Mapping[str, str | None] | None = None


class PreparedFiles(Rows):
    """Rows in files that are in the table's folder already, and files that leave the table. ``write`` can be repeated.

    Args:
        actions: objects of :class:`AddAction` and :class:`RemoveAction`, or with the same attributes.
        schema: the schema of all files, with or without the partition columns.

    Attributes:
        schema: their Arrow schema.
        removes: the actions of files that leave the table.

    Raises:
        InvalidArgumentError: ``actions`` is not a list, or a file is added and removed.
        UnsupportedTypeError: Delta cannot store a type.
    """

    def __init__(self, actions: Iterable[Any], schema: Any):
        if not isinstance(actions, Iterable) or isinstance(actions, (str, bytes, Mapping)):
            raise InvalidArgumentError(f"actions must be a list of AddAction, not a {type(actions).__name__}")
        given = [(one, hasattr(one, "deletion_timestamp") and not hasattr(one, "stats")) for one in actions]
        self.removes = [one for one, removes in given if removes]
        self._actions = [one for one, removes in given if not removes]
        removed = {one.path for one in self.removes}
        if both := [one.path for one in self._actions if getattr(one, "path", None) in removed]:
            raise InvalidArgumentError(f"{both[0]!r}: the same file path is added and removed in one commit")
        # The files are compared by names and types alone: the table has its own metadata of columns.
        self.schema = to_arrow(struct_of(schema))
        self._struct = from_arrow(self.schema)

    def write(self, writer: FileWriter) -> WrittenFiles:
        """The files as actions of the table that ``writer`` writes to.

        Raises:
            SchemaMismatchError: the files lack a column that may not be null, have a column of another type, or one
                that the table lacks.
            InvalidArgumentError: a file cannot belong to the table.
            UnsupportedFeatureError: the table has column mapping, or rules that must be checked row by row.
        """
        target = writer.target
        _check_fits(self._struct, target)
        found = [_add(action, target, writer.store.uri) for action in self._actions]
        return WrittenFiles([add for add, _ in found], sum(rows for _, rows in found), ours=False)

    def replaced(self, live: list[Add]) -> list[Add]:
        """All but the files that are committed again, which no commit may both add and remove."""
        paths = [getattr(action, "path", None) for action in self._actions]
        again = {encode_path(path) for path in paths if isinstance(path, str)}
        return [add for add in live if add.deletion_vector is not None or add.path not in again]

    def remove(self, txn: Transaction) -> None:
        """Stage the removal of the files that leave the table, after :meth:`write`.

        A file counts as read, so that a concurrent change of its rows conflicts.

        Raises:
            InvalidArgumentError: a file is not live; files leave without a change of data, and the added ones hold
                another number of rows.
            ConstraintViolationError: a file leaves with its rows, and the table is append-only.
            UnsupportedFeatureError: a file leaves without a change of data, and the table tracks rows, whose ids are
                not known in the new files.
        """
        if not self.removes:
            return
        snapshot = txn.existing
        live = {data_key(path, snapshot.store.uri): row for row, path in enumerate(snapshot.files["path"].to_pylist())}
        gone: list[int] = []
        moved: list[int] = []
        for action in self.removes:
            rows = {live[key] for key in (action.path, data_key(action.path, snapshot.store.uri)) if key in live}
            if len(rows) != 1:
                found = "is in version {} twice, once percent-encoded" if rows else "is not in version {}"
                raise InvalidArgumentError(f"the file to remove, {action.path!r}, {found.format(snapshot.version)}")
            change = arguments.flag(f"data_change of {action.path!r}", action.data_change)
            (gone if change else moved).extend(rows)
        removed = [to_adds(take(snapshot.files, pa.array(rows, pa.int64()))) for rows in (gone, moved)]
        if moved and "rowTracking" in features_of(snapshot.protocol):
            hint = "the ids of rows in the new files are not known; data_change=True gives them new ones"
            raise UnsupportedFeatureError(("rowTracking",), "replace files in", hint)
        if moved:
            _check_same_rows(
                removed[1], [each for each in txn.staged if isinstance(each, Add) and not each.data_change]
            )
        remove_files(txn, removed[0])
        txn.read_files(removed[1])
        txn.stage(tombstone(add, now_ms=now_ms(), data_change=False) for add in removed[1])
        if txn.description is not None:
            adds = [*removed[0], *removed[1]]
            figures = {"numRemovedFiles": len(adds), "numRemovedBytes": sum(add.size for add in adds)}
            noted = {**txn.description.operation_metrics, **figures}
            txn.description = structs.replace(txn.description, operation_metrics=noted)


def _check_same_rows(removed: Sequence[Add], added: Sequence[Add]) -> None:
    """Refuse files in place of others if it is certain that they cannot hold the same rows."""
    if not added:
        raise InvalidArgumentError("files leave with data_change=False, and no added file has data_change=False")
    before, after = _rows(removed), _rows(added)
    if None not in (before, after) and before != after:
        raise InvalidArgumentError(
            f"files with {before} rows leave with data_change=False, and those with data_change=False have {after} rows"
        )


def _rows(files: Sequence[Add]) -> int | None:
    """The number of live rows in files; None if the statistics do not say it."""
    total = 0
    for add in files:
        rows = num_records(add)
        if rows is None:
            return None
        total += rows - (0 if add.deletion_vector is None else add.deletion_vector.cardinality)
    return total


def _check_fits(files: StructType, target: Target) -> None:
    if target.properties.column_mapping_mode != "none":
        raise UnsupportedFeatureError(("columnMapping",), "commit existing files to")
    made = target.rules.left_out(files.names) - {*target.partition_columns}
    if features := target.rules.features or (("allowColumnDefaults",) if made else ()):
        hint = "its rules are checked when rows are written, and these rows are written already"
        raise UnsupportedFeatureError(features, "commit existing files to", hint)
    partitioning = {name.lower() for name in target.partition_columns}
    if target.properties.requires_partition_columns and not partitioning <= {name.lower() for name in files.names}:
        raise InvalidArgumentError(
            "the data files of this table must contain its partition columns, and the schema of these files lacks them"
        )
    found = {field.name.lower(): field for field in files.fields}
    plain = from_arrow(to_arrow(target.schema))
    wrong = []
    for field in target.schema.fields:
        given = found.pop(field.name.lower(), None)
        if given is None:
            if not field.nullable and field.name.lower() not in partitioning:
                wrong.append(f"column {field.name!r} is missing, and may not be null")
        elif given.name != field.name:
            wrong.append(f"column {field.name!r} of the table is {given.name!r} in the files")
        elif given.type != plain.field(field.name).type:
            wrong.append(f"column {field.name!r} is {given.type} in the files, and {field.type} in the table")
        elif given.nullable and not field.nullable:
            wrong.append(f"column {field.name!r} may be null by the schema of the files, and not in the table")
    wrong += [f"column {field.name!r} is not in the table" for field in found.values()]
    if wrong:
        raise SchemaMismatchError(f"the files do not fit the table: {'; '.join(wrong)}")


def _add(action: Any, target: Target, table_uri: str) -> tuple[Add, int]:
    """The action of a file, and its number of rows by its statistics, or 0."""
    missing = [name for name in _FIELDS if not hasattr(action, name)]
    if missing:
        raise InvalidArgumentError(
            f"a file to commit must be an AddAction, with {', '.join(_FIELDS)}; a {type(action).__name__} has no "
            f"{', '.join(missing)}"
        )
    name = arguments.text("path", action.path)
    if not name:
        raise InvalidArgumentError("a file to commit has an empty path")
    path = encode_path(name)
    try:
        inside = data_key(path, table_uri)
    except InvalidLogError as error:
        raise InvalidArgumentError(str(error)) from None
    if inside != name or inside.startswith(f"{LOG}/"):
        raise InvalidArgumentError(f"the path {name!r} does not name a data file inside the table")
    what = f"of {name!r}"
    size = arguments.whole(f"the size {what}", action.size)
    modified = arguments.whole(f"the modification time {what}", action.modification_time)
    if size is None or size < 0 or modified is None:
        raise InvalidArgumentError(f"a size and a modification time {what} are missing, or the size is negative")
    if not isinstance(action.data_change, bool):
        raise InvalidArgumentError(f"data_change {what} must be True or False, not {action.data_change!r}")
    stats = arguments.text(f"stats {what}", action.stats)
    parsed = parse_stats(stats)
    if stats and parsed is None:
        raise InvalidArgumentError(f"stats {what} are not valid JSON of statistics (PROTOCOL.md, Per-file Statistics)")
    add = Add(
        path=path,
        partition_values=_partition_values(action.partition_values, target, what),
        size=size,
        modification_time=modified,
        data_change=action.data_change,
        stats=stats or None,
    )
    return add, (parsed and parsed.num_records) or 0


def _partition_values(given: Any, target: Target, what: str) -> dict[str, str | None]:
    values = dict(arguments.mapping(f"partition_values {what}", given) or {})
    if values.keys() != {*target.partition_columns}:
        raise InvalidArgumentError(
            f"partition_values {what} have {sorted(values)}, but the table is partitioned by "
            f"{list(target.partition_columns)}"
        )
    for name, value in values.items():
        field = target.schema.find(name)
        text = arguments.text(f"the partition value of {name!r} {what}", value)
        if field is None:
            continue
        try:
            empty = parse(text, field.type, column=repr(name)) is None
        except InvalidLogError as error:
            raise InvalidArgumentError(f"{error} ({what})") from None
        if empty and not field.nullable:
            raise InvalidArgumentError(f"the partition value of {name!r} {what} is null, which the column may not be")
    return values
