"""The statistics of many files as columns: bounds and null counts of those columns that a predicate looks at.

They come from ``add.stats`` (JSON) or from a ``stats_parsed`` struct (PROTOCOL.md, "Per-file Statistics"). Statistics
are an aid: what is missing, malformed or contradicts itself is null here, which means "anything is possible", and
never an error.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from refdelta.engine.evaluate import compare
from refdelta.engine.partition import from_internal
from refdelta.engine.schema import arrow_type
from refdelta.protocol import partition_values
from refdelta.protocol.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    FRACTIONAL,
    INTEGRAL,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    DataType,
    DecimalType,
    StructField,
    StructType,
    is_nested,
    physical_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

_CHUNK = 50_000  # files parsed at once: bounds the memory, and keeps texts below 2 GiB
_ODD = 32  # so few files are parsed one by one, once a chunk has turned out not to parse
_MILLISECOND = 1_000
_TYPE_CHANGES = "delta.typeChanges"


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is known of one column in each file; all arrays are as long as there are files, null is unknown.

    Attributes:
        low: a value that none is below; nulls of the column apart.
        high: a value that none is above.
        nulls: how many are null; under wide bounds only 0 and the number of rows mean something.
        nested: whether a parent of the column may be null, which not every writer counts.
    """

    low: pa.Array
    high: pa.Array
    nulls: pa.Array
    nested: bool = False


@dataclass(frozen=True, slots=True)
class FileStatsView:
    """The statistics of files, for some columns.

    Attributes:
        rows: the rows in each file, those under deletion vectors included; null is unknown.
        bounds: by the column's logical path.
    """

    rows: pa.Array
    bounds: dict[tuple[str, ...], Bounds]


@dataclass(frozen=True, slots=True)
class _Wanted:
    path: tuple[str, ...]
    physical: tuple[str, ...]
    type: DataType
    bounded: bool
    nested: bool


def view_stats(files: pa.Table, schema: StructType, paths: Iterable[tuple[str, ...]]) -> FileStatsView:
    """Read the statistics of some columns.

    Args:
        files: has the column ``stats`` (JSON strings), or ``stats_parsed`` (a struct), or both; the JSON wins.
        schema: the table's.
        paths: logical paths of columns, spelled as in the schema.
    """
    wanted = [_wanted(schema, path) for path in paths]
    parsed = _from_json(files["stats"], wanted) if "stats" in files.column_names else None
    if "stats_parsed" in files.column_names and pa.types.is_struct(files.schema.field("stats_parsed").type):
        struct = _from_struct(_one(files["stats_parsed"]), wanted)
        parsed = struct if parsed is None else [_coalesced(a, b) for a, b in zip(parsed, struct, strict=True)]
    if parsed is None:
        parsed = [pa.nulls(files.num_rows, kind) for kind in _types(wanted)]
    rows, columns = parsed[0], parsed[1:]
    bounds = {item.path: _bounds(item, *columns[3 * i : 3 * i + 3]) for i, item in enumerate(wanted)}
    return FileStatsView(rows, bounds)


def _wanted(schema: StructType, path: tuple[str, ...]) -> _Wanted:
    fields: list[StructField] = []
    here: DataType = schema
    for name in path:
        item = here.field(name) if isinstance(here, StructType) else None
        if item is None:
            break
        fields.append(item)
        here = item.type
    changed = fields[-1].metadata.get(_TYPE_CHANGES) and here == DOUBLE
    # A float's shortest text is not that of the double that equals it, so old bounds of a widened column would be off.
    bounded = not (is_nested(here) or here in (BINARY, VOID) or changed)
    nested = any(field.nullable for field in fields[:-1])
    return _Wanted(path, tuple(physical_name(field) for field in fields), here, bounded, nested)


def _bounds(item: _Wanted, low: pa.Array, high: pa.Array, nulls: pa.Array) -> Bounds:
    if item.type == STRING:
        # Older Spark cut a string behind its 32nd UTF-16 unit and put U+FFFD there, which is below emoji; half of one
        # became "?".
        high = pc.replace_substring_regex(high, "\\??\ufffd$", "\U0010ffff")
    elif item.type in (TIMESTAMP, TIMESTAMP_NTZ):
        high = _whole_millisecond(high)
    if item.bounded:
        # Bounds in the wrong order are no bounds: some writers let times wrap round.
        sane = pc.fill_null(compare("<=", low, high), True)
        low, high = (pc.if_else(sane, side, pa.scalar(None, side.type)) for side in (low, high))
    return Bounds(low, high, nulls, item.nested)


def _whole_millisecond(high: pa.Array) -> pa.Array:
    """Times are cut to milliseconds in statistics, so the true maximum lies anywhere within that of the bound."""
    micros = high.cast(pa.int64())
    cut = pc.equal(pc.subtract(micros, pc.multiply(pc.divide(micros, _MILLISECOND), _MILLISECOND)), 0)
    room = pc.less(micros, 2**63 - _MILLISECOND)
    later = pc.add(micros, pc.if_else(pc.and_(cut, room), _MILLISECOND - 1, 0))
    return later.cast(high.type)


def _types(wanted: list[_Wanted]) -> list[pa.DataType]:
    kinds = [pa.int64()]
    for item in wanted:
        bound = arrow_type(item.type) if item.bounded else pa.null()
        kinds += [bound, bound, pa.int64()]
    return kinds


def _one(column: Any) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    found = column.combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


def _coalesced(first: pa.Array, second: pa.Array) -> pa.Array:
    return first if pa.types.is_null(first.type) else pc.coalesce(first, second)


# --- JSON --------------------------------------------------------------------------------------------------------


def _from_json(texts: pa.ChunkedArray, wanted: list[_Wanted]) -> list[pa.Array]:
    """Row counts, then low, high and nulls of every wanted column, from JSON texts."""
    texts = _one(texts).cast(pa.string())
    reading = _Reading(wanted)
    parts = [reading.read(texts.slice(start, _CHUNK)) for start in range(0, len(texts), _CHUNK)]
    kinds = _types(wanted)
    return [
        pa.concat_arrays([part[i] for part in parts]) if parts else pa.array([], kind) for i, kind in enumerate(kinds)
    ]


class _Reading:
    """Parses chunks of texts: with Arrow, or where that fails in halves, and one by one at last."""

    def __init__(self, wanted: list[_Wanted]):
        self.wanted, self.kinds = wanted, _types(wanted)
        # By (statistic, physical path): what is asked of the parser, and what is made of it.
        self.fields: list[tuple[tuple[str, ...], DataType | None]] = [(("numRecords",), None)]
        for item in wanted:
            bound = item.type if item.bounded else VOID
            self.fields += [(("minValues", *item.physical), bound), (("maxValues", *item.physical), bound)]
            self.fields.append((("nullCount", *item.physical), None))
        self.clash, tree = _tree(self.fields)
        self.schema = pa.schema([pa.field("i", pa.int64()), pa.field("s", _struct_of(tree))])

    def read(self, texts: pa.Array) -> list[pa.Array]:
        try:
            return self._fast(texts)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError):
            if len(texts) <= _ODD or self.clash:
                return self._slow(texts)
            half = len(texts) // 2
            halves = zip(self.read(texts.slice(0, half)), self.read(texts.slice(half)), strict=True)
            return [pa.concat_arrays(pair) for pair in halves]

    def _fast(self, texts: pa.Array) -> list[pa.Array]:
        if self.clash:
            raise pa.ArrowInvalid("paths of which one is the beginning of another")
        # Line breaks between tokens would end a line here, and are not legal inside strings.
        texts = pc.replace_substring_regex(pc.fill_null(texts, "null"), "[\r\n]", " ")
        numbers = pa.array(range(len(texts)), pa.int64())
        lines = pc.binary_join_element_wise('{"i":', numbers.cast(pa.string()), ',"s":', texts, "}\n", "")
        longest = pc.max(pc.binary_length(lines)).as_py() or 0
        data = pa.BufferReader(pa.py_buffer(b"".join(_value_bytes(lines))))
        table = pj.read_json(
            data,
            read_options=pj.ReadOptions(use_threads=False, block_size=max(1 << 20, 2 * longest)),
            parse_options=pj.ParseOptions(explicit_schema=self.schema, unexpected_field_behavior="ignore"),
        )
        # A text could hold the end of its line and the beginning of another: the numbers tell.
        if table.num_rows != len(texts) or not table["i"].combine_chunks().equals(numbers):
            raise pa.ArrowInvalid("texts that are not one value each")
        stats = _one(table["s"])
        return [
            _converted(_child(stats, path), data_type, kind, len(stats))
            for (path, data_type), kind in zip(self.fields, self.kinds, strict=True)
        ]

    def _slow(self, texts: pa.Array) -> list[pa.Array]:
        columns: list[list[Any]] = [[] for _ in self.fields]
        for text in texts.to_pylist():
            stats = _loads(text)
            for column, (path, data_type) in zip(columns, self.fields, strict=True):
                column.append(_internal(_lookup(stats, path), data_type))
        return [
            pa.array(values, kind) if data_type is None or data_type == VOID else from_internal(values, data_type)
            for values, (_, data_type), kind in zip(columns, self.fields, self.kinds, strict=True)
        ]


def _value_bytes(lines: pa.Array) -> list[memoryview]:
    _, offsets, data = lines.buffers()
    if not len(lines) or data is None:
        return []
    first, last = (memoryview(offsets).cast("i")[lines.offset + at] for at in (0, len(lines)))
    return [memoryview(data)[first:last]]


def _tree(fields: list[tuple[tuple[str, ...], DataType | None]]) -> tuple[bool, dict[str, Any]]:
    """The fields as nested dicts, and whether one is the parent of another: ``s IS NULL AND s.x = 1``."""
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


def _json_type(data_type: DataType | None) -> pa.DataType:
    """The type in which Arrow's parser reads a statistic; dates and times come as text."""
    if data_type is None:
        return pa.int64()
    if data_type in FRACTIONAL:
        return pa.float64()
    return pa.string() if data_type in (DATE, TIMESTAMP, TIMESTAMP_NTZ) else arrow_type(data_type)


def _struct_of(tree: dict[str, Any]) -> pa.DataType:
    return pa.struct(
        [pa.field(name, _struct_of(kind) if isinstance(kind, dict) else kind) for name, kind in tree.items()]
    )


def _child(array: pa.Array, path: tuple[str, ...]) -> pa.Array | None:
    for name in path:
        if not pa.types.is_struct(array.type) or array.type.get_field_index(name) < 0:
            return None
        array = pc.struct_field(array, [name])
    return array


def _converted(array: pa.Array | None, data_type: DataType | None, kind: pa.DataType, length: int) -> pa.Array:
    if array is None or data_type == VOID:
        return pa.nulls(length, kind)
    if data_type is None or array.type == kind:
        return array
    if data_type == FLOAT:
        return array.cast(kind, safe=False)
    try:
        return array.cast(kind)
    except pa.ArrowInvalid:
        encoded = array.dictionary_encode()
        values = [_internal(text, data_type) for text in encoded.dictionary.to_pylist()]
        return from_internal(values, data_type or VOID).take(encoded.indices)


# --- one by one --------------------------------------------------------------------------------------------------


class _TwiceError(ValueError):
    """A key that occurs twice: nobody can tell which one counts."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _TwiceError
    return found


def _loads(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text, parse_float=Decimal, object_pairs_hook=_object)
    except (ValueError, RecursionError):
        return None


def _lookup(stats: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if not isinstance(stats, dict):
            return None
        stats = stats.get(name)
    return stats


def _internal(value: Any, data_type: DataType | None) -> Any:
    """A JSON value as an internal value of a type; None for what is odd. A type of None stands for a count."""
    try:
        return _of_json(value, data_type)
    except (ValueError, OverflowError, ArithmeticError):
        return None


def _of_json(value: Any, data_type: DataType | None) -> Any:
    number = isinstance(value, int | Decimal | float) and not isinstance(value, bool)
    if data_type is None or data_type in INTEGRAL:
        bits = 64 if data_type is None else INTEGRAL[data_type]
        return value if number and isinstance(value, int) and -(1 << bits - 1) <= value < 1 << bits - 1 else None
    if data_type in FRACTIONAL:
        found = float(value) if number else partition_values.parse_float(value) if isinstance(value, str) else None
        return (
            found if found is None or data_type == DOUBLE else pa.scalar(found, pa.float64()).cast(pa.float32()).as_py()
        )
    if isinstance(data_type, DecimalType):
        usable = number or isinstance(value, str)
        return partition_values.parse_decimal(str(value), data_type) if usable else None
    if data_type == BOOLEAN:
        return value if isinstance(value, bool) else None
    if not isinstance(value, str):
        return None
    if data_type == STRING:
        value.encode()  # half of a surrogate pair is no text
        return value
    if data_type == DATE:
        return partition_values.parse_date(value)
    if data_type in (TIMESTAMP, TIMESTAMP_NTZ):
        micros = partition_values.parse_timestamp(value, zone=data_type == TIMESTAMP)
        return micros if -(2**63) <= micros < 2**63 else None
    return None


# --- stats_parsed ------------------------------------------------------------------------------------------------


def _from_struct(stats: pa.Array, wanted: list[_Wanted]) -> list[pa.Array]:
    """The same as :func:`_from_json`, from the struct that a checkpoint has."""
    reading = _Reading(wanted)
    return [
        _of_struct(_child(stats, path), kind, len(stats), upper=path[0] == "maxValues")
        for (path, _), kind in zip(reading.fields, reading.kinds, strict=True)
    ]


def _of_struct(array: pa.Array | None, kind: pa.DataType, length: int, *, upper: bool) -> pa.Array:
    if array is None or pa.types.is_null(kind):
        return pa.nulls(length, kind)
    if array.type == kind:
        return array
    try:
        if pa.types.is_timestamp(array.type) and pa.types.is_timestamp(kind):
            # Nanoseconds are cut on their way here; the maximum stays above the true one.
            cut = array.cast(pa.timestamp("us", array.type.tz), safe=False).cast(pa.int64())
            later = pc.add(cut, 1) if upper and array.type.unit == "ns" else cut
            return later.cast(kind)
        return array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(length, kind)
