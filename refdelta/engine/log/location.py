"""The store of a table, by the path or URI that a user gives."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from refdelta import arguments
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import InvalidArgumentError
from refdelta_storage import InvalidOptionError, Store, open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


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
