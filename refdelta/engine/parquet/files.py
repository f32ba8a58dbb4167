"""Opening objects of the table's folder; errors of the store and of Parquet become errors that name the file."""

from __future__ import annotations

import functools
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from refdelta.errors import (
    DataFileError,
    DataFileNotFoundError,
    DeltaError,
    InvalidLogError,
    NotEnoughMemoryError,
    StoreError,
)
from refdelta_storage.errors import ObjectNotFoundError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from refdelta.engine.parquet.limits import BoundedParquetFile
    from refdelta_storage.base import Store

SMALL_BYTES = 2**18
"""Local files of up to so many bytes are read whole, by one call of the system."""

# Exceptions of pyarrow for invalid content.
_BAD_CONTENT = (pa.ArrowException, OSError, ValueError, IndexError, KeyError)


@contextmanager
def store_errors(what: str) -> Iterator[None]:
    """Turn errors of the store into :class:`~refdelta.errors.StoreError`; ``what`` is the attempted action."""
    try:
        yield
    except StorageError as error:
        raise StoreError(f"cannot {what}: {error}") from error


@contextmanager
def data_errors(key: str) -> Iterator[None]:
    """Turn errors of reading a data file into a :class:`~refdelta.errors.DataFileError` that names it.

    Errors of the store or the system become :class:`~refdelta.errors.StoreError`; others are unchanged.
    """
    try:
        yield
    except DeltaError:
        raise
    except MemoryError as error:
        raise NotEnoughMemoryError(f"there is not enough memory to read {key}: {_first_line(error)}") from error
    except FileNotFoundError as error:
        raise missing_file(key) from error
    except _BAD_CONTENT as error:
        _raise_trouble(key, error)
        raise DataFileError(f"cannot be read as Parquet: {_first_line(error)}", file=key) from error


def missing_file(key: str, *, vector: bool = False) -> DataFileNotFoundError:
    """The error of a file that the log names and the store does not have: its kind, and what to do.

    Args:
        key: the file.
        vector: whether it holds deletion vectors.
    """
    if key.startswith("_change_data/"):
        what, advice = "change file", "VACUUM removes those of old versions: read the changes of later versions only"
    elif vector:
        what, advice = "deletion vector", "if VACUUM removed it, read a newer version; else put the file back"
    else:
        what = "file"
        advice = "if VACUUM removed it, read a newer version; else put it back, or remove its entry by repair()"
    return DataFileNotFoundError(f"the log names this {what}, but it does not exist; {advice}", file=key)


@contextmanager
def log_errors(key: str) -> Iterator[None]:
    """Turn errors of reading a checkpoint into an :class:`~refdelta.errors.InvalidLogError` that names it.

    A missing file raises ``ObjectNotFoundError``: log cleanup may have removed it, and the caller lists the log again.
    """
    try:
        yield
    except (DeltaError, ObjectNotFoundError):
        raise
    except MemoryError as error:
        raise NotEnoughMemoryError(f"there is not enough memory to read {key}: {_first_line(error)}") from error
    except FileNotFoundError as error:
        raise ObjectNotFoundError(f"no object {key!r}") from error
    except _BAD_CONTENT as error:
        _raise_trouble(key, error)
        raise InvalidLogError(f"cannot be read: {_first_line(error)}", file=key) from error


def _raise_trouble(key: str, error: Exception) -> None:
    """Raise a ``StoreError`` for an error of the store or the system; the latter has an error number."""
    if isinstance(error, StorageError) or (isinstance(error, OSError) and error.errno is not None):
        raise StoreError(f"cannot read {key}: {_first_line(error)}") from error


def open_parquet(
    store: Store, key: str, size: int | None = None, *, footer_only: bool = False, **options: Any
) -> BoundedParquetFile:
    """The ``ParquetFile`` of an object: by its local path if there is one, in few requests over a network, otherwise
    through the store's stream.

    Args:
        store: the table's folder.
        key: the object.
        size: its size in bytes by the log, which saves a request.
        footer_only: whether nothing but the footer will be read, which is one request.
        options: for ``ParquetFile``.
    """
    from refdelta.engine.parquet.limits import BoundedParquetFile  # an append reads no Parquet

    path = store.local_path(key)
    if path is not None:
        data = _small_file(path) if size is not None and size <= SMALL_BYTES else None
        if data is not None:
            return BoundedParquetFile(pa.BufferReader(data), functools.partial(_bytes_at, data), **options)
        local = pa.OSFile(path)
        return BoundedParquetFile(local, lambda start, length: local.read_at(length, start), **options)
    if store.capabilities.remote or footer_only:
        from refdelta.engine.parquet.ranged import open_ranged

        return open_ranged(store, key, size, footer_only=footer_only, **options)
    return BoundedParquetFile(
        pa.PythonFile(store.open_input(key), mode="r"), functools.partial(store.get_range, key), **options
    )


def _small_file(path: str) -> bytes | None:
    """The content of a file; None if it is longer than :data:`SMALL_BYTES`, or not a plain file."""
    file = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_size > SMALL_BYTES:
            return None
        data = os.read(file, found.st_size)
        return data if len(data) == found.st_size else None
    finally:
        os.close(file)


def _bytes_at(data: bytes, start: int, length: int) -> bytes:
    return data[start : start + length] if start >= 0 else b""


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def log_bytes(store: Store, key: str) -> bytes:
    """The content of a log file. Raises ``ObjectNotFoundError``, after which the caller may list again, and
    ``StoreError``.
    """
    with log_errors(key):
        return store.get(key)
