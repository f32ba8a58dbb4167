"""Statistics of the files of a list: the JSON of ``stats`` as columns, structs for checkpoints, and complete actions.

PROTOCOL.md, "Per-file Statistics" and "Checkpoint Schema": ``stats_parsed`` and ``partitionValues_parsed`` hold the
content of the strings ``stats`` and ``partitionValues``, with the types of the table's columns. Statistics are an aid:
a missing value, or one that is not of its column's type, is null and never an error.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import reduce
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from refdelta.arrow.arrays import array_of, concat, one_array, pieces, text_of
from refdelta.arrow.partition import from_internal, partition_table
from refdelta.arrow.schema import arrow_type
from refdelta.core.log.actions import Add
from refdelta.core.log.claims import EXACT_BOUNDS
from refdelta.core.log.statistics import parse_stats
from refdelta.engine.log.state import STATS_PARSED, to_adds
from refdelta.engine.parquet.column_stats import StatsLeaf, stats_leaves
from refdelta.pruning.stats import load_stats, lookup, statistic
from refdelta.table.clustering import ColumnPath
from refdelta.table.properties import TableProperties
from refdelta.table.types import (
    BOOLEAN,
    DATE,
    FLOAT,
    FRACTIONAL,
    LONG,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    DataType,
    DecimalType,
    StructType,
    physical_name,
)

_CHUNK = 16_384  # files parsed at once: bounds the memory, and keeps the JSON below 2 GiB
_FEW = 32  # so few files are parsed one by one: sooner than Arrow begins
_ENCODER = msgspec.json.Encoder(decimal_format="number")
_RAW = msgspec.json.Decoder(dict[str, msgspec.Raw])

Statistic = tuple[tuple[str, ...], DataType]
"""One statistic of one column: its path of keys, and the type of its values. A statistic of type void is not read."""


# --- JSON as columns ---------------------------------------------------------------------------------------------


def read_statistics(texts: pa.ChunkedArray, wanted: Sequence[Statistic]) -> tuple[pa.Array, list[pa.Array]]:
    """Some statistics of many files.

    Args:
        texts: ``add.stats`` of each file.
        wanted: the statistics to read.

    Returns:
        Whether each file has statistics at all: false for a text that is no JSON object. Then one array for each wanted
        statistic, of the Arrow type of its type. All arrays are as long as ``texts``.
    """
    reader = _JsonReader(wanted)
    texts_alone = pa.table([texts], [""])
    parts = [reader.read(one_array(piece.column(0)).cast(pa.string())) for piece in pieces(texts_alone, _CHUNK)]
    known, *columns = map(concat, zip(*parts, strict=True))
    return known, columns


class _JsonReader:
    """Parses chunks of JSON strings with Arrow; if that fails, each half of them. A few are parsed one by one."""

    def __init__(self, wanted: Sequence[Statistic]):
        self.wanted = wanted
        self.kinds = [arrow_type(kind) for _, kind in wanted]
        self.clash, tree = _tree(wanted)
        self.schema = pa.schema([pa.field("i", pa.int64()), pa.field("s", pa.list_(struct_of(tree)))])

    def read(self, texts: pa.Array) -> list[pa.Array]:
        """First whether each string has statistics, then the wanted statistics."""
        if len(texts) <= _FEW or self.clash:
            return self._slow(texts)
        try:
            return self._fast(texts)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError):
            half = len(texts) // 2
            halves = zip(self.read(texts.slice(0, half)), self.read(texts.slice(half)), strict=True)
            return [concat(pair) for pair in halves]

    def _fast(self, texts: pa.Array) -> list[pa.Array]:
        texts = pc.fill_null(texts, "null")
        content = text_of(texts)
        if b"\n" in content or b"\r" in content:
            # A line break between tokens would end the line; inside strings line breaks are illegal.
            texts = pc.replace_substring_regex(texts, "[\r\n]", " ")
        numbers = pa.array(range(len(texts)), pa.int64())
        # Inside a list, a truncated string cannot be completed by the next line, nor continue after its end.
        lines = pc.binary_join_element_wise('{"i":', numbers.cast(pa.string()), ',"s":[', texts, "]}\n", "")
        longest = pc.max(pc.binary_length(lines)).as_py() or 0
        table = pj.read_json(
            pa.BufferReader(text_of(lines)),
            read_options=pj.ReadOptions(use_threads=False, block_size=max(1 << 20, 2 * longest)),
            parse_options=pj.ParseOptions(explicit_schema=self.schema, unexpected_field_behavior="ignore"),
        )
        # A string could contain the end of its line and the beginning of another one: the numbers show that.
        if table.num_rows != len(texts) or not one_array(table["i"]).equals(numbers):
            raise pa.ArrowInvalid("strings that are not one JSON value each")
        lists = one_array(table["s"])
        if not pc.all(pc.equal(pc.list_value_length(lists), 1), skip_nulls=False, min_count=0).as_py():
            raise pa.ArrowInvalid("strings that are not one JSON value each")
        stats = lists.flatten()
        columns = [
            _converted(child_of(stats, path), data_type, kind, len(stats))
            for (path, data_type), kind in zip(self.wanted, self.kinds, strict=True)
        ]
        return [stats.is_valid(), *columns]

    def _slow(self, texts: pa.Array) -> list[pa.Array]:
        found = [load_stats(text) for text in texts.to_pylist()]
        columns = [
            from_internal([statistic(lookup(stats, path), data_type) for stats in found], data_type)
            for path, data_type in self.wanted
        ]
        return [array_of([isinstance(stats, dict) for stats in found], pa.bool_()), *columns]


def _tree(fields: Sequence[Statistic]) -> tuple[bool, dict[str, Any]]:
    """The fields as nested dicts, and whether one is the parent of another, as in ``s IS NULL AND s.x = 1``."""
    tree: dict[str, Any] = {}
    clash = False
    for path, data_type in fields:
        if data_type == VOID:
            continue
        here = tree
        for name in path[:-1]:
            here = here.setdefault(name, {})
            if not isinstance(here, dict):
                return True, {}
        clash |= isinstance(here.get(path[-1]), dict)
        here[path[-1]] = _json_type(data_type)
    return clash, {} if clash else tree


def _json_type(data_type: DataType) -> pa.DataType:
    """The type in which Arrow's parser reads a statistic; dates and times are text."""
    if isinstance(data_type, DecimalType):
        # The parser silently changes a number with more digits than the type has. It accepts at most 38 digits, which
        # fit here for any scale.
        return pa.decimal256(38, data_type.scale)
    if data_type in FRACTIONAL:
        return pa.float64()
    return pa.string() if data_type in (DATE, TIMESTAMP, TIMESTAMP_NTZ) else arrow_type(data_type)


def struct_of(tree: dict[str, Any]) -> pa.DataType:
    """The struct type of nested dicts of types."""
    return pa.struct(
        [pa.field(name, struct_of(kind) if isinstance(kind, dict) else kind) for name, kind in tree.items()]
    )


def child_of(array: pa.Array, path: tuple[str, ...]) -> pa.Array | None:
    """A field of a struct array, or None where there is no such field."""
    for name in path:
        if not pa.types.is_struct(array.type) or array.type.get_field_index(name) < 0:
            return None
        array = pc.struct_field(array, [name])
    return array


def _converted(array: pa.Array | None, data_type: DataType, kind: pa.DataType, length: int) -> pa.Array:
    if array is None or data_type == VOID:
        return pa.nulls(length, kind)
    if array.type == kind:
        return array
    if data_type == FLOAT:
        return array.cast(kind, safe=False)
    try:
        return array.cast(kind)
    except pa.ArrowInvalid:
        encoded = array.dictionary_encode()
        values = [statistic(text, data_type) for text in encoded.dictionary.to_pylist()]
        return from_internal(values, data_type).take(encoded.indices)


# --- structs for checkpoints -------------------------------------------------------------------------------------


def partition_values_parsed(
    files: pa.Table, schema: StructType, partition_columns: Sequence[str]
) -> pa.ChunkedArray | None:
    """The partition values of files as structs of the partition columns' types; None for an unpartitioned table.

    Raises:
        InvalidLogError: a value is not of its column's type.
    """
    if not partition_columns:
        return None
    names = [physical_name(schema.field(name)) for name in partition_columns]
    typed = partition_table(files, schema, partition_columns, as_stored=True)
    return typed.rename_columns(names).to_struct_array()


def stats_parsed(
    files: pa.Table,
    schema: StructType,
    partition_columns: Sequence[str],
    properties: TableProperties,
    clustering: Collection[ColumnPath] = (),
) -> pa.ChunkedArray:
    """The statistics of files as structs; null for a file without statistics.

    The JSON of a file is used first; where there is none, its struct in ``files``, if there is such a column.

    Args:
        files: a list of files, of ``FILE_SCHEMA`` (and perhaps ``stats_parsed``).
        schema: the table's schema.
        partition_columns: its partition columns, by logical name.
        properties: its properties, which say for which columns it keeps statistics.
        clustering: its clustering columns, which have statistics in any case.

    Returns:
        Structs of the columns with statistics, by physical names.
    """
    statistics = list(_statistics_of(stats_leaves(schema, partition_columns, properties, clustering)))
    return pa.chunked_array([_parsed(piece, statistics) for piece in pieces(files)])


def _parsed(files: pa.Table, statistics: Sequence[Statistic]) -> pa.StructArray:
    known, columns = read_statistics(files.column("stats"), statistics)
    tree: dict[str, Any] = {}
    for (path, _), column in zip(statistics, columns, strict=True):
        here = tree
        for name in path[:-1]:
            here = here.setdefault(name, {})
        here[path[-1]] = column
    parsed = _struct(tree, known)
    if STATS_PARSED in files.column_names:
        parsed = pc.if_else(known, parsed, one_array(files.column(STATS_PARSED)).cast(parsed.type))
    return parsed


def _statistics_of(kept: Iterable[StatsLeaf]) -> Iterator[Statistic]:
    yield ("numRecords",), LONG
    leaves = [(leaf.stored, leaf) for leaf in kept]
    for part in ("minValues", "maxValues"):
        yield from (((part, *path), leaf.type) for path, leaf in leaves if leaf.bounded)
    yield from ((("nullCount", *path), LONG) for path, _ in leaves)
    yield ("tightBounds",), BOOLEAN
    yield (EXACT_BOUNDS,), BOOLEAN


def _struct(tree: dict[str, Any], known: pa.Array | None = None) -> pa.Array:
    """Nested dicts of arrays as structs; null where not ``known``, or else where all fields are null."""
    columns = [_struct(part) if isinstance(part, dict) else part for part in tree.values()]
    if known is None:
        known = pc.invert(reduce(pc.and_, [column.is_null() for column in columns]))
    return pa.StructArray.from_arrays(columns, list(tree), mask=pc.invert(known))


# --- complete actions --------------------------------------------------------------------------------------------


def whole_adds(files: pa.Table) -> list[Add]:
    """The entries of a file list as actions, in their order. Statistics that a checkpoint has only as a struct become
    JSON.
    """
    adds = to_adds(files)
    if STATS_PARSED not in files.column_names:
        return adds
    column = files.column(STATS_PARSED)
    return [
        add if parse_stats(add.stats) is not None else msgspec.structs.replace(add, stats=_text(column.slice(row, 1)))
        for row, add in enumerate(adds)
    ]


def counted_add(file: pa.Table, physical_rows: int) -> Add:
    """The entry of a file that is to get a deletion vector, with ``numRecords`` in its statistics.

    Implements PROTOCOL.md, "Writer Requirement for Deletion Vectors": without ``numRecords`` the number of live rows
    would be unknown. Statistics that a checkpoint has only as a struct are kept, as JSON.

    Args:
        file: one row of a snapshot's file list.
        physical_rows: how many rows the file has by its footer, deleted ones included.
    """
    (add,) = whole_adds(file)
    stats = add.stats
    known = parse_stats(stats)
    if known is None or stats is None:
        stats = _ENCODER.encode({"numRecords": physical_rows}).decode()
    elif known.num_records != physical_rows:
        rest = {name: value for name, value in _RAW.decode(stats).items() if name != "numRecords"}
        stats = _ENCODER.encode({"numRecords": physical_rows, **rest}).decode()
    return msgspec.structs.replace(add, stats=stats)


def _text(parsed: pa.ChunkedArray) -> str | None:
    try:
        (value,) = parsed.to_pylist()
    except (ValueError, OverflowError):  # a date that Python's calendar does not have
        return None
    return None if value is None else _ENCODER.encode(_json(value)).decode()


def _json(value: Any) -> Any:
    """A value of a struct of statistics in its JSON form; None if there is no such form."""
    if isinstance(value, dict):
        parts = {name: _json(part) for name, part in value.items()}
        return {name: part for name, part in parts.items() if part is not None}
    if isinstance(value, dt.datetime):
        utc = value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)
        return utc.isoformat(timespec="microseconds") + ("" if value.tzinfo is None else "Z")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | Decimal) else None
