"""The list of live files as columns: reconciliation (PROTOCOL.md, "Action Reconciliation") without a loop over actions.

:mod:`refdelta.core.log.replay` is the definition; a property-based test holds this module equal to it.
:class:`LiveFiles` is the list of one version, from which the list of a later version is derived at little cost.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from dataclasses import dataclass
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import (
    ARROW_ZERO,
    all_missing,
    array_of,
    as_numpy,
    exact_sum,
    few_chunks,
    is_among,
    one_array,
    sum_fits,
    take,
    text_of,
)
from refdelta.core.log.actions import Add, AnyAction, DeletionVectorDescriptor, Remove
from refdelta.core.log.checksum import DELETED_BINS, SIZE_BINS
from refdelta.core.log.paths import ODD_PATH, same_path
from refdelta.core.log.replay import file_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

_NOTHING, _AT, _BETWEEN = array_of(["", "@", "\0"], pa.string())
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

# A list of files may end with so many chunks of fewer rows than this.
_CHUNKS, _CHUNK_ROWS = 16, 8192
# At most so many added files are kept as actions beside the table, since actions are larger than rows.
_BESIDE = 4096
# So many bytes are searched by numpy.
_LONG_TEXT = 4096
# The same as _BESIDE, where the next added files have to be compared with each of them.
_COMPARED_BESIDE = 64
# Up to so many files, the keys of a list that is compared again and again are held as a set.
_KEYS_HELD = 100_000


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
        newer: the actions of each commit, oldest commit first. Actions other than add and remove are ignored.

    Returns:
        The files of ``base`` to which no commit refers, in their order, then the files that the commits added.
    """
    newest = _newest_references(newer)
    if not newest:
        return base
    kept = without_keys(base, newest)
    added = [action for action in newest.values() if isinstance(action, Add)]
    return appended(kept, added) if added else kept


def appended(base: pa.Table, added: Sequence[Add]) -> pa.Table:
    """The live files followed by added files, none of which is among them."""
    return _merged_chunks(concat_files([base, adds_table(added)]))


def with_newer(base: pa.Table, adds: pa.Table) -> pa.Table:
    """Same as :func:`reconcile`, for commits that only add files, given as columns, oldest first."""
    keys = keys_of(adds)
    if pc.count_distinct(keys).as_py() < len(keys):
        numbered = pa.table({"key": keys, "number": pa.array(np.arange(len(keys)))})
        last = numbered.group_by("key").aggregate([("number", "max")]).column("number_max")
        adds = take(adds, one_array(last.sort()))
    if base.num_rows:
        hit = is_among(keys_of(base), keys)
        base = base.filter(pc.invert(hit)) if pc.any(hit).as_py() else base
    return _merged_chunks(concat_files([base, adds]))


def reconcile_tombstones(base: pa.Table, newer: Iterable[Iterable[AnyAction]]) -> pa.Table:
    """The tombstones after some commits, as :func:`reconcile` for live files. A file that is added again has none."""
    newest = _newest_references(newer)
    if not newest:
        return base
    kept = without_keys(base, newest)
    removed = [action for action in newest.values() if isinstance(action, Remove)]
    return concat_files([kept, removes_table(removed)]) if removed else kept


def without_shared(files: pa.Table, others: pa.Table) -> pa.Table:
    """The logical files of ``files`` that ``others`` lacks: with another path, or another deletion vector."""
    return files.filter(pc.invert(is_among(keys_of(files), keys_of(others))))


def has_any(keys: pa.ChunkedArray, others: Iterable[str]) -> bool:
    """Whether one of the keys that :func:`keys_of` returns is among others."""
    return len(keys) > 0 and bool(pc.any(_among(keys, others)).as_py())


def without_keys(base: pa.Table, keys: Iterable[str]) -> pa.Table:
    """The files that have none of these keys, as :func:`keys_of` returns them. Nothing is copied for a commit that only
    adds new files, as most do.
    """
    if not base.num_rows:
        return base
    hit = _among(keys_of(base), keys)
    return base.filter(pc.invert(hit)) if pc.any(hit).as_py() else base


def _among(keys: pa.ChunkedArray, others: Iterable[str]) -> pa.ChunkedArray:
    return pc.is_in(keys, value_set=array_of(list(others), pa.string()))


def _merged_chunks(files: pa.Table) -> pa.Table:
    """The same list. Small chunks at its end, one from every append, are merged once they are many, since each chunk
    costs every later pass over the list.
    """
    if files.column(0).num_chunks <= _CHUNKS:
        return files
    chunks = files.to_batches()
    small = len(list(itertools.takewhile(lambda chunk: chunk.num_rows < _CHUNK_ROWS, reversed(chunks))))
    if small <= _CHUNKS:
        return files
    merged = few_chunks(pa.Table.from_batches(chunks[-small:]))
    return pa.Table.from_batches([*chunks[:-small], *merged.to_batches()])


def _newest_references(commits: Iterable[Iterable[AnyAction]]) -> dict[str, Add | Remove]:
    """The newest action of each logical file to which the commits refer, by the key of :func:`keys_of`, in the order of
    these actions.
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
    """The key that :func:`keys_of` has for the file of an action."""
    path, vector = file_key(action)
    return path if vector is None else f"{path}\0{vector}"


def keys_of(files: pa.Table) -> pa.ChunkedArray:
    """One string for each row that identifies its logical file. A path never contains the separator, U+0000."""
    vectors = files.column("deletionVector")
    paths = _same_paths(files.column("path"))
    if vectors.null_count == files.num_rows:
        return paths
    ids = unique_ids(files)
    joined = pc.binary_join_element_wise(paths, ids, _BETWEEN)
    return pc.coalesce(joined, paths)


def _same_paths(paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """:func:`refdelta.core.log.paths.same_path` of each; most logs have no path that it changes."""
    if not _perhaps_odd(paths):
        return paths
    odd = pc.match_substring_regex(paths, ODD_PATH)
    if not pc.any(odd).as_py():
        return paths
    return pa.chunked_array(map(_same_paths_of, paths.chunks), pa.string())


def _same_paths_of(paths: pa.StringArray) -> pa.StringArray:
    odd = pc.match_substring_regex(paths, ODD_PATH)
    changed = [same_path(path) for path in paths.filter(odd).to_pylist()]
    return pc.replace_with_mask(paths, odd, array_of(changed, pa.string()))


def _perhaps_odd(paths: pa.ChunkedArray) -> bool:
    """Whether :data:`ODD_PATH` may match a path: a search for the characters without which it cannot, in all paths at
    once, which takes a tenth of the time.
    """
    if any(map(_has_odd_mark, map(text_of, paths.chunks))):
        return True
    return bool(pc.any(pc.starts_with(paths, "/")).as_py())


def _has_odd_mark(text: bytes) -> bool:
    """True if a string has "%", ":", "//" or "./". A search for two characters in a long text is slow."""
    if b"%" in text or b":" in text:
        return True
    if len(text) < _LONG_TEXT:
        return b"//" in text or b"./" in text
    letters = np.frombuffer(text, np.uint8)
    before = letters[np.flatnonzero(letters[1:] == ord("/"))]
    return bool(((before == ord("/")) | (before == ord("."))).any())


def unique_ids(files: pa.Table) -> pa.ChunkedArray:
    """The derived unique id of each row's deletion vector, null where it has none.

    Implements PROTOCOL.md, "Derived Fields" of deletion vectors.
    """
    vectors = files.column("deletionVector")
    kind, place = pc.struct_field(vectors, "storageType"), pc.struct_field(vectors, "pathOrInlineDv")
    offset = pc.struct_field(vectors, "offset").cast(pa.string())
    bare = pc.binary_join_element_wise(kind, place, _NOTHING)
    return pc.coalesce(pc.binary_join_element_wise(bare, offset, _AT), bare)


def concat_files(tables: list[pa.Table]) -> pa.Table:
    """Lists of files in sequence. A column that only some of them have is null for the others."""
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
    """Dicts as a map column. Flat lists of keys and items are far fewer objects than lists of pairs."""
    missing = array_of([value is None for value in values], pa.bool_()) if None in values else None
    present = [value or {} for value in values]
    offsets = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum(np.fromiter(map(len, present), dtype=np.int32, count=len(values)), out=offsets[1:])
    starts = pa.Array.from_buffers(pa.int32(), len(offsets), [None, pa.py_buffer(offsets)])
    keys = array_of(list(itertools.chain.from_iterable(present)), pa.string())
    items = array_of(list(itertools.chain.from_iterable(map(methodcaller("values"), present))), pa.string())
    return pa.MapArray.from_arrays(starts, keys, items, mask=missing)


def _vectors(values: list[DeletionVectorDescriptor | None]) -> pa.StructArray:
    """Descriptors, at least one of which is not None, as a struct column."""
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
    """One value of the ``deletionVector`` column, as ``to_pylist`` returns it, as a descriptor."""
    return DeletionVectorDescriptor(
        storage_type=value["storageType"],
        path_or_inline_dv=value["pathOrInlineDv"],
        offset=value["offset"],
        size_in_bytes=value["sizeInBytes"],
        cardinality=value["cardinality"],
        max_row_index=value["maxRowIndex"],
    )


# --- live files over commits -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over a list of files, as version checksums have them.

    Attributes:
        files: the number of files.
        size: the sum of their sizes, in bytes.
        hidden: the number of rows that their deletion vectors hide.
        vectors: the number of files with a deletion vector.
        bins: the number of files in each of ``DELETED_BINS``, by hidden rows.
        sizes: the number of files in each of ``SIZE_BINS``, and their bytes.
    """

    files: int
    size: int
    hidden: int
    vectors: int
    bins: tuple[int, ...]
    sizes: tuple[tuple[int, ...], tuple[int, ...]]

    @classmethod
    def of(cls, files: pa.Table) -> Totals:
        """The totals of a table of files."""
        size = exact_sum(files.column("size"))
        vectors, sizes = files.column("deletionVector"), _by_size(files.column("size"))
        if vectors.null_count == files.num_rows:
            return cls(files.num_rows, size, 0, 0, (files.num_rows, *(0 for _ in DELETED_BINS[1:])), sizes)
        hidden = pc.struct_field(vectors, "cardinality")
        counts = as_numpy(one_array(pc.coalesce(hidden, ARROW_ZERO)), np.int64)
        places = np.searchsorted(DELETED_BINS, counts, side="right") - 1
        bins = tuple(np.bincount(places[places >= 0], minlength=len(DELETED_BINS)).tolist())
        return cls(files.num_rows, size, exact_sum(hidden), len(hidden) - hidden.null_count, bins, sizes)

    def plus(self, adds: Collection[Add]) -> Totals:
        """The totals with some more files, none of which has a deletion vector."""
        count, size = len(adds), sum(add.size for add in adds)
        bins = (self.bins[0] + count, *self.bins[1:])
        counts, sums = map(list, self.sizes)
        for add in adds:
            at = max(0, bisect_right(SIZE_BINS, add.size) - 1)
            counts[at] += 1
            sums[at] += add.size
        sizes = tuple(counts), tuple(sums)
        return Totals(self.files + count, self.size + size, self.hidden, self.vectors, bins, sizes)


def _by_size(sizes: pa.ChunkedArray) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The number of sizes in each of ``SIZE_BINS``, and the sum of them."""
    kind = np.int64 if sum_fits(sizes) else object
    counts, sums = np.zeros(len(SIZE_BINS), np.int64), np.zeros(len(SIZE_BINS), kind)
    for chunk in sizes.drop_null().chunks:
        if not len(chunk):
            continue
        values = as_numpy(chunk, np.int64)
        places = np.maximum(0, np.searchsorted(SIZE_BINS, values, side="right") - 1)
        counts += np.bincount(places, minlength=len(SIZE_BINS))
        np.add.at(sums, places, values.astype(kind, copy=False))
    return tuple(counts.tolist()), tuple(sums.tolist())


class LiveFiles:
    """A list of live files. The files that were added last are kept beside the table until the table is read.

    Args:
        table: files, as :func:`reconcile` returns them.
        added: further files, in their order, none of which is in the table; without deletion vectors.
        totals: the totals of all of them, if known.
        lineage: the lineage of a list that this one continues; None for a list of its own.
    """

    __slots__ = ("_keyed", "_keys", "_parts", "_totals", "lineage")

    def __init__(
        self,
        table: pa.Table,
        added: tuple[Add, ...] = (),
        totals: Totals | None = None,
        lineage: object | None = None,
    ) -> None:
        # One attribute, so that it is replaced atomically: many threads may read one snapshot.
        self._parts, self._totals = (table, added), totals
        # A table and its files' keys. Later lists take them over, since most commits do not change the table.
        self._keyed: tuple[pa.Table, pa.ChunkedArray] | None = None
        # The keys of all files of the lineage, this list's and later ones'; None while they are not asked for.
        self._keys: set[str] | None = None
        # The same object in lists of which the later begin with all rows of the earlier, unchanged and in their order.
        self.lineage: object = object() if lineage is None else lineage

    @property
    def table(self) -> pa.Table:
        """All files, of :data:`FILE_SCHEMA` (and perhaps ``stats_parsed``)."""
        table, added = self._parts
        if added:
            table = appended(table, added)
            self._parts = table, ()
        return table

    @property
    def totals(self) -> Totals:
        """The totals of all files; updated, not computed again, over commits that only add files."""
        if self._totals is None:
            self._totals = Totals.of(self.table)
        return self._totals

    def after(self, commits: Sequence[Sequence[AnyAction]], new: Collection[str] = ()) -> LiveFiles:
        """The list after some commits.

        Args:
            commits: the actions of each, oldest first.
            new: paths that no earlier version can have, such as names that the writer has just generated. They are
                not compared with the files.
        """
        table, added = self._parts
        files = [action for actions in commits for action in actions if isinstance(action, (Add, Remove))]
        if not files:
            return self
        adds = [file for file in files if isinstance(file, Add) and file.deletion_vector is None]
        compared = [add for add in adds if add.path not in new]
        # The first comparison is by columns, since a handle that is opened once makes no other.
        again = self._keyed is not None and compared and len(adds) == len(files)
        keys = self._held_keys() if again else self._keys
        most = _COMPARED_BESIDE if compared and keys is None else _BESIDE
        only_adds = len(adds) == len(files) and len(added) + len(adds) <= most
        if not only_adds or (compared and self._has_any(table, added, compared, keys)):
            before = self.table
            return self._continued(before, reconcile(before, commits), sum(isinstance(file, Add) for file in files))
        totals = self._totals
        later = LiveFiles(table, (*added, *adds), totals and totals.plus(adds), self.lineage)
        later._keyed = self._keyed
        if keys is not None:
            keys.update(map(key_of, adds))
            later._keys = keys
        return later

    def _held_keys(self) -> set[str] | None:
        """The keys of all files; None if they are too many to hold."""
        if self._keys is None:
            table, added = self._parts
            if table.num_rows + len(added) <= _KEYS_HELD:
                self._keys = {*self._keys_of(table).to_pylist(), *map(key_of, added)}
        elif len(self._keys) > _KEYS_HELD:
            self._keys = None
        return self._keys

    def after_adds(self, adds: list[pa.Table]) -> LiveFiles:
        """The list after commits that only add files, given as tables in the order of the commits."""
        if not adds:
            return self
        before, added = self.table, pa.concat_tables(adds)
        return self._continued(before, with_newer(before, added), added.num_rows)

    def _continued(self, before: pa.Table, after: pa.Table, added: int) -> LiveFiles:
        """A later list, which continues this one if none of its rows is gone: not removed, and not added again."""
        kept = after.num_rows == before.num_rows + added
        return LiveFiles(after, lineage=self.lineage if kept else None)

    def _has_any(self, table: pa.Table, added: Sequence[Add], adds: Sequence[Add], held: set[str] | None) -> bool:
        """Whether one of ``adds`` is among the files, or occurs twice. True also if it may be among them: ``held`` has
        the keys of later lists, too.
        """
        keys = set(map(key_of, adds))
        if len(keys) < len(adds):
            return True
        if held is not None:
            return not keys.isdisjoint(held)
        if not keys.isdisjoint(map(key_of, added)):
            return True
        return has_any(self._keys_of(table), keys)

    def _keys_of(self, table: pa.Table) -> pa.ChunkedArray:
        keyed = self._keyed
        if keyed is None or keyed[0] is not table:
            keyed = self._keyed = table, keys_of(table)
        return keyed[1]
