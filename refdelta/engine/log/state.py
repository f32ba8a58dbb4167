"""The list of live files, columnar: what replay computes action by action, computed column by column.

:mod:`refdelta.core.log.replay` is the plain definition of reconciliation (PROTOCOL.md, "Action Reconciliation"); a
property-based test holds this module equal to it.
"""

from __future__ import annotations

from itertools import chain, takewhile
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.core.log.actions import Add, AnyAction, DeletionVectorDescriptor, Remove
from refdelta.core.log.paths import ODD_PATH, same_path
from refdelta.core.log.replay import file_key
from refdelta.engine.arrow.arrays import all_missing, array_of, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_STRINGS = pa.map_(pa.string(), pa.string())

DELETION_VECTOR_TYPE = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
        ("maxRowIndex", pa.int64()),
    ]
)

# The columns of a list of live files: the fields of ``add``, named as the log names them. A snapshot whose checkpoint
# has only struct statistics carries them in one more column, ``stats_parsed``.
FILE_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("partitionValues", _STRINGS),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
        ("tags", _STRINGS),
        ("deletionVector", DELETION_VECTOR_TYPE),
        ("baseRowId", pa.int64()),
        ("defaultRowCommitVersion", pa.int64()),
        ("clusteringProvider", pa.string()),
    ]
)

# The columns of a list of tombstones: the fields of ``remove`` that outlive a checkpoint.
TOMBSTONE_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("deletionTimestamp", pa.int64()),
        ("dataChange", pa.bool_()),
        ("extendedFileMetadata", pa.bool_()),
        ("partitionValues", _STRINGS),
        ("size", pa.int64()),
        ("tags", _STRINGS),
        ("deletionVector", DELETION_VECTOR_TYPE),
        ("baseRowId", pa.int64()),
        ("defaultRowCommitVersion", pa.int64()),
    ]
)

STATS_PARSED = "stats_parsed"

# So many pieces of fewer rows than this may a list of files end with.
_PIECES, _PIECE_ROWS = 16, 8192


def adds_table(adds: Sequence[Add]) -> pa.Table:
    """The actions as a table of :data:`FILE_SCHEMA`, in their order."""
    return _table(adds, FILE_SCHEMA)


def removes_table(removes: Sequence[Remove]) -> pa.Table:
    """The actions as a table of :data:`TOMBSTONE_SCHEMA`, in their order."""
    return _table(removes, TOMBSTONE_SCHEMA)


def to_adds(files: pa.Table) -> list[Add]:
    """The rows of a file list as actions, in their order. Statistics that exist only as a struct are left out."""
    return _actions(files, FILE_SCHEMA, Add)


def to_removes(tombstones: pa.Table) -> list[Remove]:
    """The rows of a tombstone list as actions, in their order."""
    return _actions(tombstones, TOMBSTONE_SCHEMA, Remove)


def reconcile(base: pa.Table, newer: Iterable[Iterable[AnyAction]]) -> pa.Table:
    """The live files after some commits.

    Implements PROTOCOL.md, "Action Reconciliation", for file actions: of all references to a logical file, the newest
    decides whether it is live and with which fields.

    Args:
        base: the live files before the commits, of :data:`FILE_SCHEMA` (and perhaps ``stats_parsed``).
        newer: the actions of each commit, oldest commit first. Actions other than add and remove are passed over.

    Returns:
        The files of ``base`` that the commits leave alone, in their order, then those that the commits added.
    """
    newest = _newest_references(newer)
    if not newest:
        return base
    kept = _without(base, newest)
    added = [action for action in newest.values() if isinstance(action, Add)]
    return appended(kept, added) if added else kept


def appended(base: pa.Table, added: Sequence[Add]) -> pa.Table:
    """The live files and, behind them, others of which none is among them."""
    return _few_pieces(concat_files([base, adds_table(added)]))


def with_newer(base: pa.Table, adds: pa.Table) -> pa.Table:
    """As :func:`reconcile` over commits that only add files: these are at hand as columns, the oldest first."""
    keys = keys_of(adds)
    if pc.count_distinct(keys).as_py() < len(keys):
        numbered = pa.table({"key": keys, "number": pa.array(np.arange(len(keys)))})
        last = numbered.group_by("key").aggregate([("number", "max")]).column("number_max")
        adds = adds.take(last.sort())
    if base.num_rows:
        hit = pc.is_in(keys_of(base), value_set=keys)
        base = base.filter(pc.invert(hit)) if pc.any(hit).as_py() else base
    return _few_pieces(concat_files([base, adds]))


def reconcile_tombstones(base: pa.Table, newer: Iterable[Iterable[AnyAction]]) -> pa.Table:
    """The tombstones after some commits, as :func:`reconcile` for live files: a file that is added again has none."""
    newest = _newest_references(newer)
    if not newest:
        return base
    kept = _without(base, newest)
    removed = [action for action in newest.values() if isinstance(action, Remove)]
    return concat_files([kept, removes_table(removed)]) if removed else kept


def without_shared(files: pa.Table, others: pa.Table) -> pa.Table:
    """The logical files that ``others`` has not: another path, or another deletion vector over the same data file."""
    return files.filter(pc.invert(pc.is_in(keys_of(files), value_set=keys_of(others))))


def has_any(keys: pa.ChunkedArray, others: Iterable[str]) -> bool:
    """Whether one of the keys, as :func:`keys_of` gives them, is among others."""
    return len(keys) > 0 and bool(pc.any(_among(keys, others)).as_py())


def _without(base: pa.Table, keys: Iterable[str]) -> pa.Table:
    """The files that have none of these keys. Most commits only add, and then nothing is copied."""
    if not base.num_rows:
        return base
    hit = _among(keys_of(base), keys)
    return base.filter(pc.invert(hit)) if pc.any(hit).as_py() else base


def _among(keys: pa.ChunkedArray, others: Iterable[str]) -> pa.ChunkedArray:
    return pc.is_in(keys, value_set=array_of(list(others), pa.string()))


def _few_pieces(files: pa.Table) -> pa.Table:
    """The same list; small pieces at its end, one from every append, are put together once they are many.

    Each piece costs every later pass over the list.
    """
    if files.column(0).num_chunks <= _PIECES:
        return files
    pieces = files.to_batches()
    small = len(list(takewhile(lambda piece: piece.num_rows < _PIECE_ROWS, reversed(pieces))))
    if small <= _PIECES:
        return files
    return pa.Table.from_batches([*pieces[:-small], pa.concat_batches(pieces[-small:])])


def _newest_references(commits: Iterable[Iterable[AnyAction]]) -> dict[str, Add | Remove]:
    """Each logical file that the commits refer to, as :func:`keys_of` has it, with its newest action, in the order of
    these.
    """
    references = [action for commit in commits for action in commit if isinstance(action, (Add, Remove))]
    keys = list(map(key_of, references))
    newest = dict(zip(keys, references, strict=True))
    if len(newest) < len(references):  # a dict keeps the place of the oldest
        newest = {}
        for key, action in zip(keys, references, strict=True):
            newest.pop(key, None)
            newest[key] = action
    return newest


def key_of(action: Add | Remove) -> str:
    """What :func:`keys_of` has for the file of an action."""
    path, vector = file_key(action)
    return path if vector is None else f"{path}\0{vector}"


def keys_of(files: pa.Table) -> pa.ChunkedArray:
    """One string for each row that tells logical files apart: a path never contains the separator, U+0000."""
    vectors = files.column("deletionVector")
    paths = _same_paths(files.column("path"))
    if vectors.null_count == files.num_rows:
        return paths
    ids = unique_ids(files)
    joined = pc.binary_join_element_wise(paths, ids, "\0")
    return pc.coalesce(joined, paths)


def _same_paths(paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """:func:`refdelta.core.log.paths.same_path` of each; most logs have no path that it changes."""
    if not _perhaps_odd(paths):
        return paths
    odd = pc.match_substring_regex(paths, ODD_PATH)
    if not pc.any(odd).as_py():
        return paths
    changed = [same_path(path) for path in paths.filter(odd).to_pylist()]
    return pc.replace_with_mask(paths.combine_chunks(), odd.combine_chunks(), array_of(changed, pa.string()))


def _perhaps_odd(paths: pa.ChunkedArray) -> bool:
    """Whether :data:`ODD_PATH` may match any, from what it cannot match without; of all at once, in a tenth of the
    time.
    """
    texts = map(text_of, paths.chunks)
    marks = (b"%", b":", b"//", b"./")
    if any(mark in text for text in texts for mark in marks):
        return True
    return bool(pc.any(pc.starts_with(paths, "/")).as_py())


def unique_ids(files: pa.Table) -> pa.ChunkedArray:
    """The derived unique id of each row's deletion vector, null where it has none.

    Implements PROTOCOL.md, "Derived Fields" of deletion vectors.
    """
    vectors = files.column("deletionVector")
    kind, place = pc.struct_field(vectors, "storageType"), pc.struct_field(vectors, "pathOrInlineDv")
    offset = pc.struct_field(vectors, "offset").cast(pa.string())
    bare = pc.binary_join_element_wise(kind, place, "")
    return pc.coalesce(pc.binary_join_element_wise(bare, offset, "@"), bare)


def concat_files(tables: list[pa.Table]) -> pa.Table:
    """Lists of files one after another; a column that only some have is null in the others."""
    return pa.concat_tables(tables, promote_options="default")


_CAMEL = {field.name: field.encode_name for cls in (Add, Remove) for field in msgspec.structs.fields(cls)}
_SNAKE = {camel: snake for snake, camel in _CAMEL.items()}
_GET = {camel: attrgetter(snake) for camel, snake in _SNAKE.items()}
_GET_VECTOR = {field.encode_name: attrgetter(field.name) for field in msgspec.structs.fields(DeletionVectorDescriptor)}


def _table(actions: Sequence[Any], schema: pa.Schema) -> pa.Table:
    return pa.table([_column(list(map(_GET[field.name], actions)), field.type) for field in schema], schema=schema)


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if all_missing(values):
        return pa.nulls(len(values), kind)
    if kind == _STRINGS:
        return _maps(values)
    return _vectors(values) if kind == DELETION_VECTOR_TYPE else array_of(values, kind)


def _maps(values: list[dict[str, str | None] | None]) -> pa.MapArray:
    """Dicts as a map column, by way of flat lists: lists of pairs would be many more objects."""
    missing = array_of([value is None for value in values], pa.bool_()) if None in values else None
    present = [value or {} for value in values]
    offsets = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum(np.fromiter(map(len, present), dtype=np.int32, count=len(values)), out=offsets[1:])
    starts = pa.Array.from_buffers(pa.int32(), len(offsets), [None, pa.py_buffer(offsets)])
    keys = array_of(list(chain.from_iterable(present)), pa.string())
    items = array_of(list(chain.from_iterable(map(methodcaller("values"), present))), pa.string())
    return pa.MapArray.from_arrays(starts, keys, items, mask=missing)


def _vectors(values: list[DeletionVectorDescriptor | None]) -> pa.StructArray:
    """Descriptors, of which there is one at least, as a struct column."""
    some = next(value for value in values if value is not None)
    filled = [value or some for value in values]
    columns = [_column(list(map(_GET_VECTOR[field.name], filled)), field.type) for field in DELETION_VECTOR_TYPE]
    missing = array_of([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(columns, fields=list(DELETION_VECTOR_TYPE), mask=missing)


def _actions(files: pa.Table, schema: pa.Schema, kind: Any) -> list[Any]:
    columns = {}
    for field in schema:
        values = files.column(field.name).to_pylist(maps_as_pydicts="strict")
        if field.type == DELETION_VECTOR_TYPE:
            values = [None if value is None else to_descriptor(value) for value in values]
        columns[_SNAKE[field.name]] = values
    return [kind(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]


def to_descriptor(value: dict[str, Any]) -> DeletionVectorDescriptor:
    """One value of the ``deletionVector`` column, as ``to_pylist`` gives it, as the action's struct."""
    return DeletionVectorDescriptor(
        storage_type=value["storageType"],
        path_or_inline_dv=value["pathOrInlineDv"],
        offset=value["offset"],
        size_in_bytes=value["sizeInBytes"],
        cardinality=value["cardinality"],
        max_row_index=value["maxRowIndex"],
    )
