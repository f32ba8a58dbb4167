"""Options of Parquet files that are no property of the table: pages, encodings, statistics, Bloom filters."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from refdelta.errors import InvalidArgumentError

_KNOWN = frozenset(inspect.signature(pq.write_table).parameters)


@dataclass(frozen=True)
class ColumnOptions:
    """The options of one column in a Parquet file. None leaves the decision to the writer.

    Attributes:
        dictionary: whether its values are written by a dictionary. Floats with a zero have none in small files.
        statistics: whether the file has its least and greatest values. Statistics in the log are not affected.
        encoding: the encoding without a dictionary, by Parquet's name, such as ``DELTA_BINARY_PACKED``.
        bloom: whether there is a Bloom filter, or its ``ndv`` and ``fpp``. Booleans and floats have none.
    """

    dictionary: bool | None = None
    statistics: bool | None = None
    encoding: str | None = None
    bloom: bool | Mapping[str, float] | None = None


@dataclass(frozen=True)
class FileOptions:
    """The options of Parquet files. None leaves the decision to the table and to the writer.

    Attributes:
        codec: a key of ``layout.CODECS``.
        level: the level of the codec.
        row_group_rows: the most rows of a row group.
        page_bytes: the size at which a page of data is completed, in bytes.
        page_rows: the most rows of a page.
        dictionary_bytes: the most bytes of a dictionary.
        batch_rows: the number of values that are encoded at once.
        default: the options of columns that ``columns`` does not name.
        columns: options by the path of the column in the file, such as ``a.b`` for a field of a struct.
    """

    codec: str | None = None
    level: int | None = None
    row_group_rows: int | None = None
    page_bytes: int | None = None
    page_rows: int | None = None
    dictionary_bytes: int | None = None
    batch_rows: int | None = None
    default: ColumnOptions = ColumnOptions()
    columns: Mapping[str, ColumnOptions] = field(default_factory=dict)

    def of_writer(self, schema: pa.Schema, dictionaries: bool | list[str]) -> dict[str, Any]:
        """The keyword arguments of ``pyarrow.parquet.ParquetWriter`` that these options change.

        Args:
            schema: the Arrow schema of the file.
            dictionaries: the columns that the writer would write by a dictionary; True for all.
        """
        found: dict[str, Any] = {
            "compression_level": self.level,
            "data_page_size": self.page_bytes,
            "max_rows_per_page": self.page_rows,
            "dictionary_pagesize_limit": self.dictionary_bytes,
            "write_batch_size": self.batch_rows,
        }
        arguments = {name: value for name, value in found.items() if value is not None}
        if not self.columns and self.default == ColumnOptions():
            return _known(arguments)
        leaves = {path: (top, kind) for top in schema for path, kind in parquet_columns(top.name, top.type)}

        def chosen(path: str, name: str) -> Any:
            own = getattr(self.columns.get(path), name, None)
            return getattr(self.default, name) if own is None else own

        def by_dictionary(path: str, column: str) -> bool:
            if (asked := chosen(path, "dictionary")) is not None:
                return bool(asked)
            return chosen(path, "encoding") is None and (dictionaries is True or column in (dictionaries or ()))

        encodings = {path: encoding for path in leaves if (encoding := chosen(path, "encoding"))}
        arguments["use_dictionary"] = [path for path, (top, _) in leaves.items() if by_dictionary(path, top.name)]
        if encodings:
            arguments["column_encoding"] = {k: v for k, v in encodings.items() if k not in arguments["use_dictionary"]}
        arguments["write_statistics"] = [path for path in leaves if chosen(path, "statistics") is not False]
        blooms = {
            path: bloom
            for path, (_, kind) in leaves.items()
            if (bloom := chosen(path, "bloom")) and not _without_bloom(kind)
        }
        if blooms:
            arguments["bloom_filter_options"] = blooms
        return _known(arguments)


def _without_bloom(kind: pa.DataType) -> bool:
    """Whether columns of a type have no Bloom filter.

    A filter of two values excludes nothing. A filter of floats has the bits of one zero, and hides it from a reader
    that looks for the other.
    """
    return bool(pt.is_boolean(kind) or pt.is_floating(kind))


def _known(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments, if the installed pyarrow has them: 21 has no max_rows_per_page and no bloom_filter_options."""
    if missing := arguments.keys() - _KNOWN:
        raise InvalidArgumentError(
            f"pyarrow {pa.__version__} cannot write with {', '.join(sorted(missing))}: upgrade it"
        )
    return arguments


@contextmanager
def files_written_with(options: FileOptions) -> Iterator[None]:
    """A context in which all data files and change files are written with these options."""
    token = _options.set(options)
    try:
        yield
    finally:
        _options.reset(token)


def file_options() -> FileOptions:
    """The options of the files that are written now."""
    return _options.get()


_options: ContextVar[FileOptions] = ContextVar("file_options", default=FileOptions())  # noqa: B039 - it is frozen


def parquet_columns(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """The columns that Parquet stores for a column of this path and type: the path and the type of each."""
    if pt.is_struct(kind):
        for item in kind:
            yield from parquet_columns(f"{path}.{item.name}", item.type)
    elif pt.is_map(kind):
        yield from parquet_columns(f"{path}.key_value.key", kind.key_type)
        yield from parquet_columns(f"{path}.key_value.value", kind.item_type)
    elif pt.is_nested(kind):
        yield from parquet_columns(f"{path}.list.element", kind.value_type)
    else:
        yield path, kind
