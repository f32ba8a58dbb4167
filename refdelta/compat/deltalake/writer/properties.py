"""Properties of Parquet files by deltalake's names. ``deltalake.parquet_options`` applies them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from refdelta.errors import InvalidArgumentError

# The default and the highest level of a codec, after its lowest one.
_LEVELS = {"GZIP": (0, 6, 10), "BROTLI": (0, 1, 11), "ZSTD": (1, 1, 22)}
_CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")


@dataclass
class BloomFilterProperties:
    """A Bloom filter."""

    set_bloom_filter_enabled: bool | None
    fpp: float | None = None
    ndv: int | None = None

    def __post_init__(self) -> None:
        if self.fpp is not None and not 0 < self.fpp < 1:
            raise InvalidArgumentError("fpp must be between 0 and 1 exclusive")

    def __str__(self) -> str:
        return f"set_bloom_filter_enabled: {self.set_bloom_filter_enabled}, fpp: {self.fpp}, ndv: {self.ndv}"


@dataclass
class ColumnProperties:
    """The properties of a column."""

    dictionary_enabled: bool | None = None
    statistics_enabled: Literal["NONE", "CHUNK", "PAGE"] | None = None
    bloom_filter_properties: BloomFilterProperties | None = None
    encoding: (
        Literal[
            "PLAIN", "RLE", "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT"
        ]
        | None
    ) = None

    def __post_init__(self) -> None:
        if self.encoding is not None and self.dictionary_enabled:
            raise InvalidArgumentError("Cannot specify dictionary_enabled=True and encoding")

    def __str__(self) -> str:
        return (
            f"dictionary_enabled: {self.dictionary_enabled}, statistics_enabled: {self.statistics_enabled}, "
            f"bloom_filter_properties: {self.bloom_filter_properties}, encoding: {self.encoding}"
        )


class WriterProperties:
    """The properties of a Parquet file."""

    def __init__(
        self,
        data_page_size_limit: int | None = None,
        dictionary_page_size_limit: int | None = None,
        data_page_row_count_limit: int | None = None,
        write_batch_size: int | None = None,
        max_row_group_size: int | None = None,
        compression: Literal["UNCOMPRESSED", "SNAPPY", "GZIP", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW"] | None = None,
        compression_level: int | None = None,
        statistics_truncate_length: int | None = None,
        default_column_properties: ColumnProperties | None = None,
        column_properties: dict[str, ColumnProperties] | None = None,
    ) -> None:
        self.data_page_size_limit = data_page_size_limit
        self.dictionary_page_size_limit = dictionary_page_size_limit
        self.data_page_row_count_limit = data_page_row_count_limit
        self.write_batch_size = write_batch_size
        self.max_row_group_size = max_row_group_size
        self.compression = _compression(compression, compression_level)
        self.statistics_truncate_length = statistics_truncate_length
        self.default_column_properties = default_column_properties
        self.column_properties = column_properties

    def __str__(self) -> str:
        columns = (
            ", ".join(f"column '{k}': {v}" for k, v in self.column_properties.items())
            if self.column_properties
            else None
        )
        return (
            f"WriterProperties(data_page_size_limit: {self.data_page_size_limit}, "
            f"dictionary_page_size_limit: {self.dictionary_page_size_limit}, "
            f"data_page_row_count_limit: {self.data_page_row_count_limit}, write_batch_size: {self.write_batch_size}, "
            f"max_row_group_size: {self.max_row_group_size}, compression: {self.compression}, "
            f"statistics_truncate_length: {self.statistics_truncate_length},"
            f"default_column_properties: {self.default_column_properties}, column_properties: {columns})"
        )


def _compression(codec: str | None, level: int | None) -> str | None:
    if codec is None:
        if level is not None:
            raise InvalidArgumentError("compression_level needs compression: provide the compression as well")
        return None
    name = codec.upper()
    if name not in _CODECS:
        raise InvalidArgumentError(f"{codec} is not a valid Compression. Valid values are: {list(_CODECS)}")
    if name not in _LEVELS:
        return name
    lowest, default, highest = _LEVELS[name]
    if level is not None and not lowest <= level <= highest:
        raise InvalidArgumentError(f"Compression level for {name} should fall between {lowest}-{highest}")
    return f"{name}({default if level is None else level})"
