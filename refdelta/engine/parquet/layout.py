"""The layout of data files: their columns, their folders and names, and the split of a batch by partition.

PROTOCOL.md, "Data Files" and "Partition Value Serialization". Names are the same as Spark's:
``a=1/part-00000-<uuid>-c000.snappy.parquet``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from refdelta.arrow import variant
from refdelta.arrow.arrays import array_of, scalar_of, with_names
from refdelta.arrow.partition import partition_strings
from refdelta.arrow.schema import arrow_type
from refdelta.engine.parquet.dictionaries import with_dictionaries
from refdelta.errors import ColumnNotFoundError, InvalidArgumentError, UnsupportedTypeError, unknown_name
from refdelta.pruning.partition_folders import partition_prefix
from refdelta.table.column_mapping import nested_ids
from refdelta.table.properties import TableProperties
from refdelta.table.types import (
    VARIANT,
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    field_id,
    physical_name,
)

PartitionKey = tuple[str | None, ...]

# The key of metadata from which Parquet's writer takes a column's id.
_FIELD_ID = b"PARQUET:field_id"

# Limits of most file systems and object stores: 255 bytes for a segment, about 1,024 for the key.
_MAX_SEGMENT = 255
_MAX_PREFIX = 900

# Parts of fewer rows, on average, are slices of one copy.
_SMALL_PART = 4096

# The codecs that Spark knows and pyarrow can write: Parquet's name, and the part of the file's name.
CODECS = {
    "none": ("NONE", ""),
    "uncompressed": ("NONE", ""),
    "snappy": ("SNAPPY", ".snappy"),
    "gzip": ("GZIP", ".gz"),
    "zstd": ("ZSTD", ".zstd"),
    "brotli": ("BROTLI", ".br"),
    "lz4": ("LZ4", ".lz4raw"),  # which pyarrow writes as LZ4_RAW; it knows that name from 26 on
    "lz4_raw": ("LZ4", ".lz4raw"),
}


@dataclass(frozen=True, slots=True)
class FileLayout:
    """The columns and partitions of a table's data files.

    Attributes:
        schema: the Arrow schema of a data file: physical names, and ids where the table's columns have them
            (PROTOCOL.md, "Writer Requirements for Column Mapping").
        columns: the names of its columns in the table's batches.
        types: their types there, with logical names, but otherwise as in a file.
        partitions: the table's partition columns, in their order.
    """

    schema: pa.Schema
    columns: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    partitions: tuple[StructField, ...]

    @classmethod
    def of(cls, schema: StructType, partition_columns: Sequence[str], *, materialized: bool = False) -> FileLayout:
        """Plan the files of a table.

        Void columns are left out, since they have no values, and so are partition columns, since the log has their
        values. If no column remains, the first partition column is stored: a Parquet file without columns has no number
        of rows.

        Args:
            schema: the table's schema.
            partition_columns: its partition columns.
            materialized: whether the files store partition columns too, after the others.

        Raises:
            ColumnNotFoundError: the schema lacks a partition column.
            UnsupportedTypeError: there is no column that a file can store.
        """
        by_name = {field.name: field for field in schema.fields}
        for name in partition_columns:
            if name not in by_name:
                raise ColumnNotFoundError(name, by_name)
        partitions = tuple(by_name[name] for name in partition_columns)
        stored = [field for field in schema.fields if field not in partitions and not _is_void(field.type)]
        last = [field for field in partitions if not _is_void(field.type)]
        stored = [*stored, *last] if materialized else stored or last[:1]
        if not stored:
            raise UnsupportedTypeError("a table whose columns are all void has nothing that a data file could hold")
        files = [replace(f, type=_physical(f.type, f.name)) for f in stored]
        return cls(
            pa.schema([_file_field(field) for field in files]),
            tuple(field.name for field in files),
            tuple(arrow_type(field.type) for field in files),
            partitions,
        )

    def project(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of a table's batch that its data files store, in their types; dictionaries are kept."""
        columns = []
        for name, logical, stored in zip(self.columns, self.types, self.schema.types, strict=True):
            column = batch.column(name)
            if not pt.is_dictionary(column.type):
                column = column if column.type == logical else column.cast(logical)
                column = column if logical == stored else with_names(column, stored)
            columns.append(column)
        schema = with_dictionaries(self.schema, [column.type for column in columns])
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[PartitionKey, pa.RecordBatch]]:
        """Split a table's batch by partition, keeping the order of rows within each.

        Returns:
            For each partition its key (the serialized partition values) and its rows, projected to the file's columns.
            A part of a batch does not keep that batch in memory, but many small parts share one copy of it.
        """
        if not self.partitions:
            yield (), self.project(batch)
            return
        codes, counts = _group(batch, [field.name for field in self.partitions])
        rows = self.project(batch)
        if len(counts) == 1:
            yield self._keys(batch.slice(0, 1))[0], rows
            return
        order = pc.sort_indices(codes)
        starts = [0, *itertools.accumulate(counts)]
        keys = self._keys(batch, order.take(array_of(starts[:-1], pa.int64())))
        if shares_copies(rows.num_rows, len(counts)):
            ordered = rows.take(order)
            for key, start, count in zip(keys, starts, counts, strict=False):
                yield key, ordered.slice(start, count)
            return
        for key, start, count in zip(keys, starts, counts, strict=False):
            yield key, rows.take(order.slice(start, count))

    def _keys(self, batch: pa.RecordBatch, rows: pa.Array | None = None) -> list[PartitionKey]:
        columns = []
        for field in self.partitions:
            column = batch.column(field.name)
            strings = partition_strings(
                column if rows is None else column.take(rows), field.type, name=field.name
            ).to_pylist()
            # An empty string is null for every type: the log has one form for both.
            columns.append([value or None for value in strings])
        return list(zip(*columns, strict=True))

    def values(self, key: PartitionKey) -> dict[str, str | None]:
        """A key as the ``partitionValues`` of an add action."""
        return {physical_name(field): value for field, value in zip(self.partitions, key, strict=True)}

    def folder(self, key: PartitionKey) -> str:
        """The folder of a partition's files: the Hive form with a trailing slash, or ``""``.

        A value that is too long for the name of a folder is cut: readers take partition values from the log, not from
        paths.

        Raises:
            InvalidArgumentError: the path is longer than stores accept.
        """
        if not self.partitions:
            return ""
        prefix = partition_prefix([physical_name(field) for field in self.partitions], self.values(key))
        folders = [_cut(segment) for segment in prefix.split("/")]
        path = "/".join(folders)
        if len(path.encode()) > _MAX_PREFIX:
            raise InvalidArgumentError(
                f"the partition values {list(key)!r:.200} make a path of {len(path.encode())} bytes; "
                f"a data file's folder may have {_MAX_PREFIX}"
            )
        return path + "/"


def shares_copies(rows: int, parts: int) -> bool:
    """Whether the parts into which :meth:`FileLayout.split` divides so many rows share one copy of them: a copy of each
    part would take longer than to write its rows.
    """
    return parts > 1 and rows < parts * _SMALL_PART


def file_name(sequence: int, unique: str, codec: str, *, changes: bool = False) -> str:
    """The name of a data file or a change file, as in delta-spark.

    Args:
        sequence: the number of the file in its write.
        unique: the UUID of the write.
        codec: one of :data:`CODECS`.
        changes: whether it is a change file.
    """
    return f"{'cdc' if changes else 'part'}-{sequence:05d}-{unique}-c000{CODECS[codec][1]}.parquet"


def codec_of(name: str | None) -> str:
    """The codec of a table's data files and checkpoints: that of the property, or else snappy, which is the default of
    delta-spark and deltalake and known to all readers.

    Raises:
        InvalidArgumentError: this engine cannot write the codec.
    """
    codec = (name or "snappy").lower()
    if codec not in CODECS:
        raise InvalidArgumentError(unknown_name("delta.parquet.compression.codec", name, CODECS, kinds="codecs"))
    return codec


def pages_of(properties: TableProperties) -> Literal["1.0", "2.0"]:
    """The version of data pages that ``delta.parquet.format.version`` asks for."""
    return "2.0" if properties.parquet_format_version == "2.12.0" else "1.0"


def _group(batch: pa.RecordBatch, names: list[str]) -> tuple[pa.Array, list[int]]:
    """Number the distinct key tuples by first occurrence: the number of each row, and the count of each number."""
    codes: pa.Array | None = None
    for name in names:
        encoded = batch.column(name).dictionary_encode(null_encoding="encode")
        mine = encoded.indices.cast(pa.int64())
        if codes is not None:
            # Renumbered after each column, so that the product stays below the square of the number of rows.
            mine = pc.add(pc.multiply(codes, scalar_of(len(encoded.dictionary), pa.int64())), mine)
            mine = mine.dictionary_encode().indices.cast(pa.int64())
        codes = mine
    # value_counts lists by first occurrence too: the counts are in the order of the numbers.
    return codes, pc.value_counts(codes).field("counts").to_pylist()


def _cut(segment: str) -> str:
    raw = segment.encode()
    if len(raw) <= _MAX_SEGMENT:
        return segment
    # Not inside a character or a %XX escape.
    text = raw[:_MAX_SEGMENT].decode("utf-8", errors="ignore")
    escape = text.rfind("%", len(text) - 2)
    return text if escape < 0 else text[:escape]


def _file_field(item: StructField) -> pa.Field:
    name = physical_name(item)
    kind = _file_type(item.type, nested_ids(item), name)
    return pa.field(name, kind, item.nullable, metadata=_id(field_id(item)))


def _file_type(kind: DataType, ids: Mapping[str, Any], path: str) -> pa.DataType:
    """The type in a file; ``ids`` are the ids of elements, keys and values of arrays and maps, by path."""
    match kind:
        case StructType():
            return pa.struct([_file_field(item) for item in kind])
        case ArrayType():
            return pa.list_(_file_part("element", kind.element, kind.contains_null, ids, path))
        case MapType():
            key = _file_part("key", kind.key, False, ids, path)
            return pa.map_(key, _file_part("value", kind.value, kind.value_contains_null, ids, path))
    return variant.STORED if kind == VARIANT else arrow_type(kind)


def _file_part(name: str, kind: DataType, nullable: bool, ids: Mapping[str, Any], path: str) -> pa.Field:
    here = f"{path}.{name}"
    return pa.field(name, _file_type(kind, ids, here), nullable, metadata=_id(ids.get(here)))


def _id(number: int | None) -> dict[bytes, bytes] | None:
    return None if number is None else {_FIELD_ID: str(number).encode()}


def _is_void(kind: DataType) -> bool:
    return isinstance(kind, PrimitiveType) and kind.name == "void"


def _physical(kind: DataType, path: str) -> DataType:
    """The type in a file: without the void fields of structs, which Spark leaves out too, and with all fields of
    structs nullable, since Arrow cannot write a null struct otherwise.
    """
    if isinstance(kind, StructType):
        stored = [f for f in kind.fields if not _is_void(f.type)]
        fields = tuple(replace(f, type=_physical(f.type, f"{path}.{f.name}"), nullable=True) for f in stored)
        if not fields:
            raise UnsupportedTypeError(f"column {path}: Parquet cannot store a struct without fields")
        return StructType(fields)
    if isinstance(kind, ArrayType):
        return ArrayType(_physical(_stored(kind.element, path), f"{path}.element"), kind.contains_null)
    if isinstance(kind, MapType):
        key = _physical(_stored(kind.key, path), f"{path}.key")
        return MapType(key, _physical(_stored(kind.value, path), f"{path}.value"), kind.value_contains_null)
    return kind


def _stored(kind: DataType, path: str) -> DataType:
    if _is_void(kind):
        raise UnsupportedTypeError(f"column {path}: Parquet cannot store arrays or maps of void")
    return kind
