"""A copy of a table that is in a store, on this machine's disk: delta-spark needs no Hadoop file system to read it."""

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
"""How many bytes are copied unless said."""

# The version to which a file of the log belongs, and the last one of those that a compacted file stands for.
_OF_VERSION: Final = re.compile(r"_delta_log/(\d{20})\.(?:(\d{20})\.compacted\.)?")
_AT_ONCE: Final = 8
_CHUNK: Final = 2**20


@contextmanager
def copied(
    table: DeltaTable,
    versions: Iterable[int],
    *,
    limit: int = COPY_LIMIT,
    told: Callable[[str], None] = lambda _: None,
) -> Iterator[str]:
    """Copy a table for as long as the block runs: its log up to the handle's version, and the files of some versions.

    The objects are the same byte by byte, and have the same times.

    Args:
        table: the table.
        versions: whose files are copied, as far as they can be read; those of the handle's version are in any case.
        limit: how many bytes may be copied.
        told: called with how much there is to copy.

    Returns:
        The folder of the copy, which is removed in the end.

    Raises:
        InvalidArgumentError: there is more to copy.
        StoreError: the store refused or failed.
    """
    wanted = _objects(table, versions)
    size = sum(item.size for item in wanted)
    if size > limit:
        raise InvalidArgumentError(
            f"for delta-spark {table.table_uri} would be copied, and that is {size:,} bytes, more than {limit:,}; "
            "allow more (--copy-limit), compare less (--versions 0), or say where delta-spark finds it (--spark-path)"
        )
    told(f"copying {len(wanted):,} files of {table.table_uri}, {size:,} bytes")
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
        except DeltaError:  # then it is compared that neither can read it
            continue
    with store_errors("list the table's folder"):
        return [item for item in table.store.list() if item.key in keys or _is_of_the_log(item.key, table.version())]


def _is_of_the_log(key: str, newest: int) -> bool:
    if not key.startswith("_delta_log/"):
        return False
    found = _OF_VERSION.match(key)
    # The pointer to the last checkpoint may point behind the handle's version, and is a help to find it, no more.
    return key != "_delta_log/_last_checkpoint" if found is None else int(found[2] or found[1]) <= newest


def _copy(store: Store, item: ObjectInfo, copy: LocalStore) -> None:
    try:
        with store.open_input(item.key, item.size) as source, copy.open_output(item.key) as target:
            shutil.copyfileobj(source, target, _CHUNK)
    except ObjectNotFoundError:  # removed meanwhile: both will miss it
        return
    path = copy.local_path(item.key)
    assert path is not None  # noqa: S101 - a folder's
    os.utime(path, ns=(item.mtime_ms * 1_000_000, item.mtime_ms * 1_000_000))
