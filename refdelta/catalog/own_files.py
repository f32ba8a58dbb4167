"""The files of one table in its folder, which may also have other tables and files of other programs."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from refdelta.core.log.actions import Add, Metadata
from refdelta.core.log.codec import decode_commit
from refdelta.core.log.paths import LOG, checksum_key, commit_key, data_key, parse_log_name
from refdelta.engine.log.managed_log import TABLE_ID
from refdelta.engine.log.references import referenced_keys, removals
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.errors import DeltaError
from refdelta.pruning.partition_folders import HIVE_NULL, partition_prefix
from refdelta.table.types import parse_schema, physical_name
from refdelta_storage import ObjectNotFoundError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import pyarrow as pa

    from refdelta_storage import Store

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# The names that engines give: such files are leftovers of a write if the log does not name them. In a folder that is
# none of the table's, they may be those of a dataset without a log.
_GIVEN = re.compile(rf"(?:part|cdc)-[0-9]{{5}}-{_UUID}[^/]*\.parquet|deletion_vector_{_UUID}\.bin")
_CHANGES = re.compile(r"_change_data/(?:.+/)?(?:cdc|part)-[^/]+\.parquet")
_OTHER_TABLE = re.compile(rf"^(.+?)/{LOG}/")


_IDS = (TABLE_ID, "io.unitycatalog.tableId")


def delete_own_files(
    store: Store, folder: Store, table_id: str, *, inside: Collection[str] = (), leftovers: bool = True
) -> tuple[str, ...]:
    """Delete the files of a table: those that its log names, leftovers with names that engines give in folders of the
    table, its change data, and its log. Files of other names stay, and so does every table in a folder below.

    The log goes last, its oldest commit at the very end. As long as that is there, no other table can be created in the
    folder, and each step looks whether it still is the same one: of a table that was created anew nothing is deleted.

    Args:
        store: the table's store, with the commits that its catalog holds.
        folder: the store of its folder.
        table_id: its id in its catalog. If the log in the folder names another one, nothing is deleted.
        inside: the folders of other tables within this one, besides those that a listing shows.
        leftovers: whether to delete files that the log does not name; not where they may be another table's.

    Returns:
        The keys of the files that stay; empty if the folder has another table.

    Raises:
        StorageError: the store failed, or the log cannot be read; what was deleted stays deleted. It can be called
            again. Another program that deletes the same files at the same time is no error.
    """
    listed = [info.key for info in folder.list()]
    below = {found.group(1) for key in listed if (found := _OTHER_TABLE.match(key)) is not None}
    roots = tuple(f"{root}/" for root in {*below, *inside})
    own = [key for key in listed if not key.startswith(roots)]
    log = sorted((key for key in own if key.startswith(f"{LOG}/")), reverse=True)
    commits = [key for key in log if (name := parse_log_name(key)) is not None and name.kind == "commit"]
    anchor = commits[-1] if commits else commit_key(0)
    content = _content(folder, anchor) if commits else None
    if commits and content is None:
        return ()  # another program has deleted all of it meanwhile
    try:
        named, metadata = _read(store, folder, commits[::-1])
    except StorageError:
        if commits and _content(folder, anchor) != content:
            return ()
        raise
    configuration = (metadata.configuration or {}) if metadata is not None else {}
    if any(configuration.get(name, table_id) != table_id for name in _IDS):
        return ()
    is_own = _own_names(named, metadata, leftovers=leftovers)
    data = [key for key in own if not key.startswith(f"{LOG}/") and is_own(key)]
    left = tuple(sorted({*own}.difference(data, log)))
    if leftovers:
        data += [info.key for info in folder.leftovers() if not info.key.startswith(roots)]
    if not commits:  # the end of a deletion that did not come to its end, or of a creation
        folder.delete([*data, *log])
        return left
    for keys in (data, [key for key in log if key != anchor], [anchor]):
        if _content(folder, anchor) != content:
            return ()  # deleted by another program, and perhaps another table by now
        folder.delete(keys)
    return left


def _own_names(named: Collection[str], metadata: Metadata | None, *, leftovers: bool) -> Callable[[str], bool]:
    """Whether a key is a file of the table: named by its log, change data, or a leftover in a folder of the table.

    Folders of the table are its own, those of files that the log names, and those of its partitions.
    """
    folders = {"", *(key.rpartition("/")[0] for key in named)}
    partition = _partitions(metadata)

    def is_own(key: str) -> bool:
        if key in named or _CHANGES.fullmatch(key):
            return True
        place, _, name = key.rpartition("/")
        is_leftover = leftovers and _GIVEN.fullmatch(name) is not None
        return is_leftover and (place in folders or partition.fullmatch(place) is not None)

    return is_own


def _prefix(column: str) -> str:
    return partition_prefix([column], {}).removesuffix(HIVE_NULL)


def _partitions(metadata: Metadata | None) -> re.Pattern[str]:
    """The folders of partitions: a segment for each partition column, by its name or its physical one."""
    physical: dict[str, str] = {}
    if metadata is not None:
        with suppress(DeltaError):  # the log cannot be read: the logical names are left
            physical = {field.name: physical_name(field) for field in parse_schema(metadata.schema_string)}
    segments = []
    for column in metadata.partition_columns if metadata is not None else ():
        names = {column, physical.get(column, column)}
        segments.append(f"(?:{'|'.join(re.escape(_prefix(name)) for name in names)})[^/]*")
    return re.compile("/".join(segments))


def _content(folder: Store, key: str) -> bytes | None:
    try:
        return folder.get(key)
    except ObjectNotFoundError:
        return None


def _read(store: Store, folder: Store, commits: list[str]) -> tuple[frozenset[str], Metadata | None]:
    """The keys of the files that the log names, and the metadata of the table in the folder.

    Where the log cannot be read as that of this table, no names are known, and the metadata is that of the oldest
    commit that has some. Raises ``StorageError`` if there is none: the table may be another one.
    """
    try:
        snapshot = load_snapshot(store)
        tables = (snapshot.files, snapshot.tombstones(), removals(store))
        return frozenset(key for table in tables for key in _keys(table, store.uri)), snapshot.metadata
    except DeltaError as error:
        if not commits:
            return frozenset(), None
        for key in commits:
            with suppress(DeltaError, ObjectNotFoundError):
                for action in decode_commit(folder.get(key), key):
                    if isinstance(action, Metadata):
                        return frozenset(), action
        raise StorageError(f"the log in {folder.uri} cannot be read, so it may be that of another table") from error


def _keys(entries: pa.Table, uri: str) -> list[str]:
    found: list[str] = referenced_keys(entries, uri, resolvable=True).to_pylist()
    return found


def discard_creation(folder: Store, metadata_id: str) -> None:
    """Delete version 0 of a table that was created and did not become a table of its catalog, and its data files.

    Args:
        folder: the store of its folder.
        metadata_id: the id in its metadata, which the version 0 of another table does not have.

    Raises:
        StorageError: the store failed.
    """
    key = commit_key(0)
    try:
        actions = decode_commit(folder.get(key), key)
    except ObjectNotFoundError:
        return
    if any(isinstance(action, Metadata) and action.id == metadata_id for action in actions):
        # The commit goes first: without the files it would be a damaged table.
        folder.delete([checksum_key(0), key])
        folder.delete([data_key(action.path, folder.uri) for action in actions if isinstance(action, Add)])
