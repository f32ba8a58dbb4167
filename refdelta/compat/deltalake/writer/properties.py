"""Properties of Parquet files by deltalake's names. ``deltalake.parquet_options`` applies them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeVar

from refdelta.errors import InvalidArgumentError


class Compression(Enum):
    """The codecs of Parquet files."""

    UNCOMPRESSED = "UNCOMPRESSED"
    SNAPPY = "SNAPPY"
    GZIP = "GZIP"
    BROTLI = "BROTLI"
    LZ4 = "LZ4"
    ZSTD = "ZSTD"
    LZ4_RAW = "LZ4_RAW"

    @classmethod
    def from_str(cls, value: str) -> Compression:
        """A codec by its name, in any case. Raises ``ValueError``."""
        return _by_name(cls, value)

    def get_level_range(self) -> tuple[int, int]:
        """The lowest and the highest level. Raises ``KeyError`` for a codec without levels."""
        lowest, _, highest = self._levels
        return lowest, highest

    def get_default_level(self) -> int:
        """The default level. Raises ``KeyError`` for a codec without levels."""
        return self._levels[1]

    @property
    def _levels(self) -> tuple[int, int, int]:
        if self.value not in _LEVELS:
            raise KeyError(f"{self.value} does not have a compression level.")
        return _LEVELS[self.value]

    def check_valid_level(self, level: int) -> bool:
        """True for a level of the codec. Raises ``ValueError`` for another one."""
        lowest, highest = self.get_level_range()
        if not lowest <= level <= highest:
            raise InvalidArgumentError(f"Compression level for {self.value} should fall between {lowest}-{highest}")
        return True


class Encoding(Enum):
    """The encodings of columns in Parquet files, but for dictionaries."""

    PLAIN = "PLAIN"
    RLE = "RLE"
    DELTA_BINARY_PACKED = "DELTA_BINARY_PACKED"
    DELTA_LENGTH_BYTE_ARRAY = "DELTA_LENGTH_BYTE_ARRAY"
    DELTA_BYTE_ARRAY = "DELTA_BYTE_ARRAY"
    BYTE_STREAM_SPLIT = "BYTE_STREAM_SPLIT"

    @classmethod
    def from_str(cls, value: str) -> Encoding:
        """An encoding by its name, in any case. Raises ``ValueError``."""
        return _by_name(cls, value)


# The lowest level of a codec, its default and its highest one.
_LEVELS = {"GZIP": (0, 6, 10), "BROTLI": (0, 1, 11), "ZSTD": (1, 1, 22)}
_Named = TypeVar("_Named", Compression, Encoding)


def _by_name(kind: type[_Named], value: str) -> _Named:
    try:
        return kind(value.upper())
    except ValueError:
        names = [item.value for item in kind]
        raise InvalidArgumentError(f"{value} is not a valid {kind.__name__}. Valid values are: {names}") from None


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
    chosen = Compression.from_str(codec)
    if chosen.value not in _LEVELS:
        return chosen.value
    if level is None:
        level = chosen.get_default_level()
    chosen.check_valid_level(level)
    return f"{chosen.value}({level})"
