"""What VACUUM may remove: objects in the table's folder that no retained version needs and that are old enough.

A version is retained while it was the newest at some time within the retention. So what is needed are the live files,
and those that were removed within it; whoever writes right now has files that are younger than it.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.core.log.actions import Cdc
from refdelta.core.log.codec import decode_commit
from refdelta.core.log.paths import commit_key, data_key
from refdelta.core.pruning.partition_folders import partition_prefix
from refdelta.core.table.types import physical_name
from refdelta.engine.log.references import REMOVAL_SCHEMA, referenced_keys, removals
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import StoreError
from refdelta_storage.errors import ObjectNotFoundError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta_storage import ObjectInfo, Store

OBJECT_SCHEMA = pa.schema(
    [("key", pa.string()), ("size", pa.int64()), ("mtime", pa.int64()), ("temporary", pa.bool_())]
)
"""Objects of the store: key, size in bytes, modification time in milliseconds since 1970, and whether it is no object
but the temporary file of a write.
"""

_ROWS = 65_536

# Names beginning so belong to others, as in Spark: at any depth, and whatever is below.
_HIDDEN = r"(^|/)[._]"
# Except for these, which are Delta's own.
_OWN_FOLDERS = ("_change_data/", "_delta_index/")
# Nobody but an engine gives such names: what no version needs of these is a leftover, whether or not the log names it.
_OWN = r"^_change_data/|(^|/)deletion_vector_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.bin$"
# A table within the folder of this one. Its files are its own business.
_OTHER_TABLE = r"^(?P<root>.+?)/_delta_log/"


@dataclass(frozen=True)
class Garbage:
    """What may go.

    Attributes:
        objects: of :data:`OBJECT_SCHEMA`, in the order of their keys.
        untracked: how many objects only ``full`` would add to them.
    """

    objects: pa.Table
    untracked: int

    @property
    def size_bytes(self) -> int:
        """The size of the objects."""
        return pc.sum(self.objects.column("size")).as_py() or 0


def list_objects(store: Store) -> pa.Table:
    """All objects of the table's folder and the temporary files of writes, of :data:`OBJECT_SCHEMA`; the log's too."""
    with store_errors("list the table's folder"):
        return pa.concat_tables([_table(store.list(), temporary=False), _table(store.leftovers(), temporary=True)])


def find_garbage(
    snapshot: Snapshot, objects: pa.Table, *, expired_ms: int, full: bool, keep_versions: Sequence[int] = ()
) -> Garbage:
    """Tell what may go from what is needed.

    Args:
        snapshot: the newest version: an older one does not know which files a RESTORE has brought back.
        objects: :func:`list_objects`.
        expired_ms: when the retention began, in milliseconds since 1970. What was written or removed later stays.
        full: whether to take what no entry of the log names, too.
        keep_versions: versions whose files stay, however old.

    Raises:
        VersionNotFoundError: a version to keep cannot be read.
        UnsafePathError: a version that is retained needs a file outside of the table's folder.
        InvalidLogError: the log breaks the protocol.
        StoreError: the store refused or failed.
    """
    store = snapshot.store
    # Of commits that are older than the retention, all removals have expired; they only tell what the log names.
    gone = pa.concat_tables(
        [
            snapshot.tombstones().select(REMOVAL_SCHEMA.names),
            removals(store, None if not full else expired_ms),
        ]
    )
    expired = pc.less_equal(pc.fill_null(gone.column("deletionTimestamp"), 0), expired_ms)
    needed = [referenced_keys(files, store.uri) for files in (snapshot.files, gone.filter(pc.invert(expired)))]
    needed += [keys for version in sorted(set(keep_versions)) for keys in _keys_of_version(store, version)]

    key = objects.column("key")
    old = pc.less_equal(objects.column("mtime"), expired_ms)
    others = pc.and_not(_is_hidden(key, snapshot), objects.column("temporary"))
    kept = pc.or_(pc.or_(others, _is_of_another_table(key)), pc.is_in(key, value_set=_chunked(needed)))
    garbage = objects.filter(pc.and_not(old, kept)).sort_by("key")
    if full:
        return Garbage(garbage, 0)
    key = garbage.column("key")
    named = pc.is_in(key, value_set=referenced_keys(gone.filter(expired), store.uri, resolvable=True))
    own = pc.or_(garbage.column("temporary"), pc.match_substring_regex(key, _OWN))
    tracked = garbage.filter(pc.or_(named, own))
    return Garbage(tracked, garbage.num_rows - tracked.num_rows)


def _keys_of_version(store: Store, version: int) -> Iterator[pa.ChunkedArray]:
    """What a version needs: its live files, and the change data that it wrote."""
    yield referenced_keys(load_snapshot(store, version).files, store.uri)
    key = commit_key(version)
    try:
        actions = decode_commit(store.get(key), key)
    except ObjectNotFoundError:
        return  # a checkpoint stands for it; its changes can no longer be read
    except StorageError as error:
        raise StoreError(f"cannot read {key}: {error}") from error
    changes = [data_key(action.path, store.uri, file=key) for action in actions if isinstance(action, Cdc)]
    yield pa.chunked_array([changes], pa.string())


def _is_hidden(keys: pa.ChunkedArray, snapshot: Snapshot) -> pa.ChunkedArray:
    # The folder of a partition may begin so because its column does.
    partitions = [f"{_folder_name(name)}=" for name in _column_names(snapshot)]
    shown = [re.escape(name[1:]) for name in (*_OWN_FOLDERS, *partitions) if name[0] in "_."]
    bare = pc.replace_substring_regex(keys, rf"(^|/)[._]({'|'.join(shown)})", r"\1-\2")
    return pc.match_substring_regex(bare, _HIDDEN)


def _is_of_another_table(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    roots = pc.struct_field(pc.extract_regex(keys, _OTHER_TABLE), "root").unique().drop_null().to_pylist()
    if not roots:
        return pa.chunked_array([pa.repeat(False, len(keys))])
    return pc.match_substring_regex(keys, f"^(?:{'|'.join(re.escape(root) for root in roots)})/")


def _column_names(snapshot: Snapshot) -> Iterator[str]:
    """The partition columns, by their names in the schema and in the files."""
    for name in snapshot.partition_columns:
        yield name
        yield physical_name(snapshot.schema.field(name))


def _folder_name(column: str) -> str:
    return partition_prefix([column], {}).rpartition("=")[0]


def _table(infos: Iterator[ObjectInfo], *, temporary: bool) -> pa.Table:
    batches = []
    while some := list(itertools.islice(infos, _ROWS)):
        columns = ([i.key for i in some], [i.size for i in some], [i.mtime_ms for i in some], [temporary] * len(some))
        arrays = [pa.array(values, field.type) for values, field in zip(columns, OBJECT_SCHEMA, strict=True)]
        batches.append(pa.record_batch(arrays, schema=OBJECT_SCHEMA))
    return pa.Table.from_batches(batches, OBJECT_SCHEMA)


def _chunked(parts: list[pa.ChunkedArray]) -> pa.ChunkedArray:
    return pa.chunked_array([chunk for part in parts for chunk in part.chunks], pa.string())
