"""The store of a table, by the path or URI that a user gives."""

from __future__ import annotations

import os
import shutil
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from refdelta import arguments
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import InvalidArgumentError
from refdelta_storage import InvalidOptionError, Store, open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


def open_location(uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> Store:
    """The store of a table.

    Args:
        uri: the table's folder: a path, ``file://``, ``memory://`` or any URI that fsspec knows.
        storage_options: options of the store.

    Raises:
        InvalidArgumentError: no store understands the URI or an option.
        StoreError: the store cannot be reached.
    """
    if not isinstance(uri, (str, Path, os.PathLike)) or not str(uri):
        raise InvalidArgumentError(f"a table's location must be a path or a URI, not {uri!r}")
    arguments.mapping("storage_options", storage_options)
    with store_errors(f"open {os.fspath(uri).split('?')[0]}"):
        try:
            store = open_store(os.fspath(uri), storage_options)
        except InvalidOptionError as error:
            raise InvalidArgumentError(str(error)) from error
    if store.capabilities.lists:
        return store
    from refdelta.engine.log.unlisted_log import UnlistedLog  # few stores have no listing

    return UnlistedLog(store)


@contextmanager
def scratch_folder(uri: str, storage_options: Mapping[str, str] | None, name: str) -> Iterator[str]:
    """A new folder under this URI, which is removed after the block.

    Args:
        uri: an existing folder, or a URI under which objects can be made.
        storage_options: options of the store.
        name: the beginning of the folder's name.

    Raises:
        InvalidArgumentError: a local folder does not exist.
        StoreError: the store cannot be reached.
    """
    above, question, query = uri.partition("?")
    folder = f"{above.rstrip('/')}/{name}-{uuid.uuid4().hex[:12]}{question}{query}"
    store = open_location(folder, storage_options)
    local = store.local_path("x")
    here = None if local is None else Path(local).parent
    if here is not None and not here.parent.is_dir():
        raise InvalidArgumentError(f"there is no folder {above}")
    try:
        yield folder
    finally:
        with store_errors(f"remove {folder.partition('?')[0]}"):
            store.delete([info.key for info in store.list()])
        if here is not None:
            shutil.rmtree(here, ignore_errors=True)


def with_others(store: Store, others: Iterable[str | os.PathLike[str]], options: Mapping[str, str] | None) -> Store:
    """A store that also reads files of other folders, which the table's log may name.

    Args:
        store: the table's store.
        others: the other folders.
        options: options of their stores.

    Raises:
        InvalidArgumentError, StoreError: as :func:`open_location`.
    """
    if isinstance(others, (str, os.PathLike)):
        others = [others]
    roots = [open_location(other, options) for other in others]
    if not roots:
        return store
    from refdelta.engine.log.multi_root import MultiRootStore

    return MultiRootStore(store, roots)
