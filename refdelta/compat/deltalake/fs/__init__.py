"""``DeltaStorageHandler``: the folder of a table, or another one, as a file system of pyarrow."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.fs as pa_fs

from refdelta.compat.deltalake.raw_table import RawDeltaTable, options_for
from refdelta.compat.deltalake.table import DeltaTable
from refdelta.engine.log.location import open_location
from refdelta_storage import ObjectNotFoundError, Store

__all__ = ["DeltaStorageHandler"]

_PART = 5 * 1024 * 1024


class DeltaStorageHandler(pa_fs.FileSystemHandler):  # type: ignore[misc]
    """A handler for :class:`pyarrow.fs.PyFileSystem`. Paths are relative to the folder.

    A file appears whole when its stream is closed. As in object stores, a folder is there if a file is in it.

    Args:
        table_uri: the folder: a path or a URI.
        options: options of the store. ``max_buffer_size`` is checked and has no effect.
        known_sizes: sizes of files in bytes, by path, which are then not asked for.

    Raises:
        InvalidArgumentError: no store understands the URI or an option.
    """

    def __init__(
        self, table_uri: str, options: dict[str, str] | None = None, known_sizes: dict[str, int] | None = None
    ) -> None:
        given = dict(options or {})
        self._buffer = given.pop("max_buffer_size", None)
        self._store: Store = open_location(table_uri, options_for(table_uri, given))
        self._sizes = dict(known_sizes or {})

    @classmethod
    def from_table(
        cls, table: Any, options: dict[str, str] | None = None, known_sizes: dict[str, int] | None = None
    ) -> DeltaStorageHandler:
        """The handler of a table's folder, with the table's own options unless others are given."""
        raw: RawDeltaTable = table._table if isinstance(table, DeltaTable) else table  # noqa: SLF001
        return cls(raw.table_uri(), options or raw.storage_options, known_sizes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeltaStorageHandler) and self._store.uri == other._store.uri

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._store.uri)

    def get_type_name(self) -> str:
        """The name of this kind of file system."""
        return "object-store"

    def normalize_path(self, path: str) -> str:
        """The path without slashes at its ends."""
        return path.strip("/")

    def get_file_info(self, paths: list[str]) -> list[pa_fs.FileInfo]:
        """The kind, size and time of the files or folders at these paths."""
        return [self._info(self.normalize_path(path)) for path in paths]

    def _info(self, key: str) -> pa_fs.FileInfo:
        if key:
            with _arrow_errors(), suppress(ObjectNotFoundError):
                return self._file(key, self._store.head(key))
        inside = not key or next(iter(self._store.list(f"{key}/")), None) is not None
        return pa_fs.FileInfo(key, pa_fs.FileType.Directory if inside else pa_fs.FileType.NotFound)

    def _file(self, key: str, found: Any) -> pa_fs.FileInfo:
        if local := self._store.local_path(key):  # a disk knows nanoseconds
            (info,) = pa_fs.LocalFileSystem().get_file_info([local])
            return pa_fs.FileInfo(key, pa_fs.FileType.File, size=info.size, mtime_ns=info.mtime_ns)
        return pa_fs.FileInfo(key, pa_fs.FileType.File, size=found.size, mtime_ns=found.mtime_ms * 1_000_000)

    def get_file_info_selector(self, selector: pa_fs.FileSelector) -> list[pa_fs.FileInfo]:
        """The files and folders in a folder. Raises ``FileNotFoundError`` if there is none, unless that is allowed."""
        base = self.normalize_path(selector.base_dir)
        prefix = f"{base}/" if base else ""
        files, folders = [], dict[str, None]()
        with _arrow_errors():
            for found in self._store.list(prefix):
                parents = found.key[len(prefix) :].split("/")[:-1]
                depth = len(parents) if selector.recursive else min(1, len(parents))
                folders.update((prefix + "/".join(parents[: n + 1]), None) for n in range(depth))
                if selector.recursive or not parents:
                    files.append(self._file(found.key, found))
        if not files and not folders and base and not selector.allow_not_found:
            raise FileNotFoundError(base)
        return [*(pa_fs.FileInfo(name, pa_fs.FileType.Directory) for name in folders), *files]

    def open_input_file(self, path: str) -> pa.NativeFile:
        """A stream of a file, in which one can seek. Raises ``FileNotFoundError``."""
        key = self.normalize_path(path)
        size, local = self._sizes.get(key), self._store.local_path(key)
        if local and size is None:
            return pa.OSFile(local, mode="r")
        with _arrow_errors():
            return pa.PythonFile(_Input(self._store.open_input(key, size), size), mode="r")

    open_input_stream = open_input_file

    def open_output_stream(self, path: str, metadata: Mapping[str, str] | None = None) -> pa.NativeFile:  # noqa: ARG002
        """A stream for a file, which appears, or replaces another, when the stream is closed."""
        if self._buffer is not None and int(self._buffer) < _PART:
            warnings.warn(
                f"You specified a `max_buffer_size` of {self._buffer} bits less than {_PART} bits. Most object stores "
                "need larger parts.",
                UserWarning,
                stacklevel=2,
            )
        return pa.PythonFile(_Output(self._store, self.normalize_path(path)), mode="w")

    def open_append_stream(self, path: str, metadata: Mapping[str, str] | None = None) -> NoReturn:
        """Refuse: object stores cannot append. Raises ``NotImplementedError``."""
        raise NotImplementedError("files cannot be appended to")

    def create_dir(self, path: str, recursive: bool = True) -> None:
        """Do nothing: a folder is there as soon as a file is in it."""

    def delete_file(self, path: str) -> None:
        """Delete a file."""
        self._delete([self.normalize_path(path)])

    def delete_dir(self, path: str) -> None:
        """Delete all files in a folder, at any depth. A folder that does not exist is no error."""
        self._delete(self._store.list_keys(f"{self.normalize_path(path)}/"))

    def delete_dir_contents(
        self,
        path: str,
        *,
        accept_root_dir: bool = False,
        missing_dir_ok: bool = False,  # noqa: ARG002 - deltalake's
    ) -> None:
        """Same as :meth:`delete_dir`; the root only with ``accept_root_dir``."""
        if self.normalize_path(path):
            self.delete_dir(path)
        elif accept_root_dir:
            self.delete_root_dir_contents()
        else:
            raise PermissionError("delete_dir_contents() does not delete the root")

    def delete_root_dir_contents(self) -> None:
        """Delete all files."""
        self._delete(self._store.list_keys())

    def _delete(self, keys: Iterable[str]) -> None:
        with _arrow_errors():
            self._store.delete(list(keys))

    def copy_file(self, src: str, dst: str) -> None:
        """Copy a file; one that is there is replaced. Raises ``FileNotFoundError``."""
        with _arrow_errors():
            self._store.put(self.normalize_path(dst), self._store.get(self.normalize_path(src)))

    def move(self, src: str, dest: str) -> None:
        """Copy a file, and delete the first one."""
        self.copy_file(src, dest)
        self.delete_file(src)

    def equals(self, other: Any) -> bool:
        """True if the other handler has the same folder."""
        return bool(self == other)


class _Output:
    """A file that appears when it is closed; of one that is not closed nothing stays."""

    def __init__(self, store: Store, key: str) -> None:
        self._block = store.open_output(key)
        self._stream = self._block.__enter__()
        self.closed = False

    def write(self, data: Any) -> int:
        return self._stream.write(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._block.__exit__(None, None, None)

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


class _Input:
    """A stream of a file, perhaps with a size that the caller has given; it is closed when Arrow drops it."""

    def __init__(self, stream: Any, size: int | None) -> None:
        self._stream, self._size = stream, size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __del__(self) -> None:
        self._stream.close()

    def seek(self, offset: int, whence: int = 0) -> int:
        if whence == 2 and self._size is not None:
            offset, whence = offset + self._size, 0
        return int(self._stream.seek(offset, whence))


@contextmanager
def _arrow_errors() -> Iterator[None]:
    """Turn the store's error for an object that is missing into the one that Arrow knows."""
    try:
        yield
    except ObjectNotFoundError as error:
        raise FileNotFoundError(str(error)) from error
