"""Properties of Parquet files as refdelta's file options."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from refdelta.compat.deltalake.commit import no_effect
from refdelta.engine.parquet.file_options import ColumnOptions, FileOptions, files_written_with

if TYPE_CHECKING:
    from refdelta.compat.deltalake.writer.properties import BloomFilterProperties, ColumnProperties, WriterProperties


@contextmanager
def written_with(properties: WriterProperties | None) -> Iterator[None]:
    """A context in which files are written with these properties."""
    if properties is None:
        yield
        return
    with files_written_with(_file_options(properties)):
        yield


def _file_options(given: WriterProperties) -> FileOptions:
    if given.statistics_truncate_length is not None:
        no_effect("writer_properties: statistics_truncate_length", "statistics have the lengths that Spark gives them")
    codec, level = _codec(given.compression)
    return FileOptions(
        codec,
        level,
        given.max_row_group_size,
        given.data_page_size_limit,
        given.data_page_row_count_limit,
        given.dictionary_page_size_limit,
        given.write_batch_size,
        _column_options(given.default_column_properties),
        {path: _column_options(each) for path, each in (given.column_properties or {}).items()},
    )


def _codec(compression: str | None) -> tuple[str | None, int | None]:
    """The codec and its level, within those that pyarrow has."""
    if compression is None:
        return None, None
    name, _, level = compression.lower().rstrip(")").partition("(")
    if not level:
        return name, None
    least, most = pa.Codec.minimum_compression_level(name), pa.Codec.maximum_compression_level(name)
    return name, min(max(int(level), least), most)


def _column_options(given: ColumnProperties | None) -> ColumnOptions:
    if given is None:
        return ColumnOptions()
    if given.encoding == "RLE":
        no_effect("writer_properties: encoding RLE", "pyarrow uses it where it is the only one")
    return ColumnOptions(
        given.dictionary_enabled,
        None if given.statistics_enabled is None else given.statistics_enabled != "NONE",
        None if given.encoding == "RLE" else given.encoding,
        _bloom(given.bloom_filter_properties),
    )


def _bloom(given: BloomFilterProperties | None) -> Any:
    if given is None or not given.set_bloom_filter_enabled:
        return given if given is None else False
    return {name: value for name, value in (("ndv", given.ndv), ("fpp", given.fpp)) if value is not None} or True
