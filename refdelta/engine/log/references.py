"""The objects of the store that a log references: data files, and files of deletion vectors.

Computed with columns, since a log may reference millions of files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import pieces
from refdelta.core.log.lean import decode_lean
from refdelta.core.log.paths import data_key, parse_log_name
from refdelta.core.rows.deletion_vector import relative_key
from refdelta.engine.log.listing import list_log
from refdelta.engine.log.state import TOMBSTONE_SCHEMA, removes_table
from refdelta.engine.log.store_clock import SAME_MS
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import DeltaError
from refdelta_storage.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from refdelta.core.log.actions import Remove
    from refdelta_storage.base import Store

REMOVAL_SCHEMA = pa.schema([TOMBSTONE_SCHEMA.field(name) for name in ("path", "deletionTimestamp", "deletionVector")])
"""The used fields of a remove action: the file, its deletion vector, and the time in milliseconds since 1970."""

# A path of the log that matches this may differ from its key: escapes, absolute paths, segments such as "..".
_ODD = r"^$|%|^/|^[A-Za-z][A-Za-z0-9+.\-]*:|//|\./|^\.|[/.]$|\\|\x00"
# Commits that are fetched together: few round trips for a long log, and bounded memory.
_AT_ONCE = 100


def referenced_keys(entries: pa.Table, table_uri: str, *, resolvable: bool = False) -> pa.ChunkedArray:
    """The keys of the objects that entries of the log reference: data files, and files of deletion vectors.

    Args:
        entries: live files, tombstones or removals, with the columns ``path`` and ``deletionVector``.
        table_uri: the URI of the table, for absolute paths.
        resolvable: whether to leave out references without a key in this store, instead of raising.

    Returns:
        Keys, in no order, perhaps with duplicates.

    Raises:
        UnsafePathError: an entry references an object outside of the table.
        InvalidLogError: a path, or the place of a vector, is malformed.
    """

    def key(path: str) -> str:
        return data_key(path, table_uri)

    vectors = entries.column("deletionVector")
    kinds, texts = pc.struct_field(vectors, "storageType"), pc.struct_field(vectors, "pathOrInlineDv")
    paths = entries.column("path")
    odd = pc.match_substring_regex(paths, _ODD)
    parts = [
        *paths.filter(pc.invert(odd)).chunks,
        *_each(key, paths.filter(odd), resolvable),
        *_each(relative_key, texts.filter(pc.equal(kinds, "u")), resolvable),
        *_each(key, texts.filter(pc.equal(kinds, "p")), resolvable),
    ]
    return pa.chunked_array(parts, pa.string())


def _each(key: Callable[[str], str], texts: pa.ChunkedArray, resolvable: bool) -> Iterator[pa.Array]:
    def keys(some: pa.Array) -> Iterator[str]:
        for text in some.to_pylist():
            try:
                yield key(text)
            except DeltaError:
                if not resolvable:
                    raise

    for piece in pieces(pa.table([texts], [""])):
        # Many vectors share a file.
        yield pa.array(keys(pc.unique(piece.column(0))), pa.string())


def removals(store: Store, after_ms: int | None = None) -> pa.Table:
    """The removals in the existing commits, of :data:`REMOVAL_SCHEMA`, including those of files that were added again.

    A checkpoint drops tombstones after the table's retention; commits keep them. The time of a removal is that of its
    commit's file, if its writer's clock was slow.

    Args:
        store: the table's folder.
        after_ms: only commits whose file was written after this time count, in milliseconds since 1970; None for all.

    Raises:
        InvalidLogError: a commit breaks the protocol.
        StoreError: the store refused or failed.
    """
    keys = []
    for key, _, mtime_ms in list_log(store):
        name = parse_log_name(key)
        if name is not None and name.kind == "commit" and (after_ms is None or mtime_ms > after_ms):
            keys.append((key, mtime_ms))
    found = [REMOVAL_SCHEMA.empty_table()]
    for start in range(0, len(keys), _AT_ONCE):
        some = keys[start : start + _AT_ONCE]
        times = dict(some)
        removes = [
            _removed_at(remove, times[key])
            for data, key in _contents(store, [*times])
            for remove in decode_lean(data, key).removes
        ]
        found.append(removes_table(removes).select(REMOVAL_SCHEMA.names))
    return pa.concat_tables(found)


def _removed_at(remove: Remove, file_ms: int) -> Remove:
    if (remove.deletion_timestamp or 0) >= file_ms - SAME_MS:
        return remove
    return msgspec.structs.replace(remove, deletion_timestamp=file_ms)


def _contents(store: Store, keys: list[str]) -> Iterable[tuple[bytes, str]]:
    """The contents of the files that still exist: log cleanup may run at the same time."""
    with store_errors("read the log"):
        try:
            return list(zip(store.get_many(keys), keys, strict=True))
        except ObjectNotFoundError:
            found = []
            for key in keys:
                try:
                    found.append((store.get(key), key))
                except ObjectNotFoundError:
                    continue
            return found
