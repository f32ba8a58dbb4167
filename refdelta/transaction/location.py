"""From what a user calls a table to the store that holds it."""

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
    """The store of the table at ``uri``: a path, ``file://``, ``memory://`` or any URI that fsspec knows.

    Raises ``InvalidArgumentError`` for a URI or an option that no store understands, ``StoreError`` if the store
    cannot be reached.
    """
    if not isinstance(uri, (str, Path, os.PathLike)) or not str(uri):
        raise InvalidArgumentError(f"a table is named by a path or a URI, not by {uri!r}")
    arguments.mapping("storage_options", storage_options)
    with store_errors(f"open {os.fspath(uri).split('?')[0]}"):
        try:
            return open_store(os.fspath(uri), storage_options)
        except InvalidOptionError as error:
            raise InvalidArgumentError(str(error)) from error


def with_others(store: Store, others: Iterable[str | os.PathLike[str]], options: Mapping[str, str] | None) -> Store:
    """The store, and read-only beside it the folders of which its table's log may name objects. Raises as
    :func:`open_location`.
    """
    if isinstance(others, (str, os.PathLike)):
        others = [others]
    annexes = [open_location(other, options) for other in others]
    if not annexes:
        return store
    from refdelta.engine.log.annexed import AnnexedStore

    return AnnexedStore(store, annexes)
