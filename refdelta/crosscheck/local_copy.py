"""A local copy of a table in a store, so that delta-spark can read it without a Hadoop file system."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from refdelta.engine.log.references import referenced_keys
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import DeltaError, InvalidArgumentError
from refdelta_storage import LocalStore, ObjectInfo, ObjectNotFoundError

if TYPE_CHECKING:
    from refdelta.api.table import DeltaTable
    from refdelta_storage import Store

COPY_LIMIT: Final = 2**30
"""The default limit of bytes to copy."""

# The version of a file of the log; for a compacted file also its last version.
_OF_VERSION: Final = re.compile(r"_delta_log/(\d{20})\.(?:(\d{20})\.compacted\.)?")
_AT_ONCE: Final = 8
_CHUNK: Final = 2**20


@contextmanager
def copied(
    table: DeltaTable,
    versions: Iterable[int],
    *,
    limit: int = COPY_LIMIT,
    progress: Callable[[str], None] = lambda _: None,
) -> Iterator[str]:
    """Copy a table for the duration of the block: its log up to the handle's version, and the files of some versions.

    The copies have the same bytes and modification times.

    Args:
        table: the table.
        versions: the versions whose files are copied, if they can be read; those of the handle's version always are.
        limit: the maximum of bytes to copy.
        progress: called with a message on the size of the copy.

    Returns:
        The folder of the copy, which is removed at the end.

    Raises:
        InvalidArgumentError: the size exceeds the limit.
        StoreError: the store cannot be read.
    """
    wanted = _objects(table, versions)
    size = sum(item.size for item in wanted)
    if size > limit:
        raise InvalidArgumentError(
            f"delta-spark needs a copy of {table.table_uri}, whose {size:,} bytes exceed the limit of {limit:,}: raise "
            "the limit (--copy-limit), compare less (--versions 0), or name a path for delta-spark (--spark-path)"
        )
    progress(f"copying {len(wanted):,} files of {table.table_uri}, {size:,} bytes")
    with tempfile.TemporaryDirectory(prefix="refdelta-copy-") as folder:
        copy = LocalStore(folder, fsync=False)
        with store_errors("copy the table"), ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in pool.map(lambda item: _copy(table.store, item, copy), wanted):
                pass
        yield folder


def _objects(table: DeltaTable, versions: Iterable[int]) -> list[ObjectInfo]:
    keys = set(referenced_keys(load_snapshot(table.store, table.version()).files, table.store.uri).to_pylist())
    for version in versions:
        try:
            keys.update(referenced_keys(load_snapshot(table.store, version).files, table.store.uri).to_pylist())
        except DeltaError:  # neither engine can read it, which is compared
            continue
    with store_errors("list the table's folder"):
        return [item for item in table.store.list() if item.key in keys or _is_of_the_log(item.key, table.version())]


def _is_of_the_log(key: str, newest: int) -> bool:
    if not key.startswith("_delta_log/"):
        return False
    found = _OF_VERSION.match(key)
    # _last_checkpoint may name a later version than the handle's, and readers do not need it.
    return key != "_delta_log/_last_checkpoint" if found is None else int(found[2] or found[1]) <= newest


def _copy(store: Store, item: ObjectInfo, copy: LocalStore) -> None:
    try:
        with store.open_input(item.key, item.size) as source, copy.open_output(item.key) as target:
            shutil.copyfileobj(source, target, _CHUNK)
    except ObjectNotFoundError:  # removed since the listing: both engines will miss it
        return
    path = copy.local_path(item.key)
    assert path is not None  # noqa: S101 - a local store has paths
    os.utime(path, ns=(item.mtime_ms * 1_000_000, item.mtime_ms * 1_000_000))
