"""JSON statistics of many files as columns (PROTOCOL.md, "Per-file Statistics").

Statistics are an aid: what is missing or is no value of its column's type is null here, and never an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from refdelta.core.pruning.stats import load_stats, lookup, statistic
from refdelta.core.table.types import (
    DATE,
    FLOAT,
    FRACTIONAL,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    DataType,
    DecimalType,
)
from refdelta.engine.arrow.arrays import one_array
from refdelta.engine.arrow.schema import arrow_type
from refdelta.engine.expressions.partition import from_internal

_CHUNK = 16_384  # files parsed at once: bounds the memory, and keeps texts below 2 GiB
_ODD = 32  # so few files are parsed one by one, once a chunk has turned out not to parse

Statistic = tuple[tuple[str, ...], DataType]
"""One statistic of one column: its path of keys, and the type of its values. Of type void, it is not looked for."""


def read_statistics(texts: pa.ChunkedArray, wanted: Sequence[Statistic]) -> tuple[pa.Array, list[pa.Array]]:
    """Some statistics of many files.

    Args:
        texts: ``add.stats`` of each file.
        wanted: what to look for.

    Returns:
        Whether a file has statistics at all, which none of its texts that is no JSON object has; then an array for each
        that is wanted, of the Arrow type of its type. All are as long as there are files.
    """
    texts = one_array(texts).cast(pa.string())
    reading = _Reading(wanted)
    parts = [reading.read(texts.slice(start, _CHUNK)) for start in range(0, len(texts), _CHUNK)]
    kinds = [pa.bool_(), *reading.kinds]
    known, *columns = (pa.concat_arrays([part[i] for part in parts] or [pa.array([], k)]) for i, k in enumerate(kinds))
    return known, columns


class _Reading:
    """Parses chunks of texts: with Arrow, or where that fails in halves, and one by one at last."""

    def __init__(self, wanted: Sequence[Statistic]):
        self.wanted = wanted
        self.kinds = [arrow_type(kind) for _, kind in wanted]
        self.clash, tree = _tree(wanted)
        self.schema = pa.schema([pa.field("i", pa.int64()), pa.field("s", pa.list_(struct_of(tree)))])

    def read(self, texts: pa.Array) -> list[pa.Array]:
        """Whether there are statistics, then those that are wanted."""
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
        # In a list, a text that is cut off cannot be completed by what follows, nor go on behind its end.
        lines = pc.binary_join_element_wise('{"i":', numbers.cast(pa.string()), ',"s":[', texts, "]}\n", "")
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
        lists = one_array(table["s"])
        if not pc.all(pc.equal(pc.list_value_length(lists), 1), skip_nulls=False, min_count=0).as_py():
            raise pa.ArrowInvalid("texts that are not one value each")
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
        return [pa.array([isinstance(stats, dict) for stats in found], pa.bool_()), *columns]


def _value_bytes(lines: pa.Array) -> list[memoryview]:
    _, offsets, data = lines.buffers()
    if not len(lines) or data is None:
        return []
    first, last = (memoryview(offsets).cast("i")[lines.offset + at] for at in (0, len(lines)))
    return [memoryview(data)[first:last]]


def _tree(fields: Sequence[Statistic]) -> tuple[bool, dict[str, Any]]:
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


def _json_type(data_type: DataType) -> pa.DataType:
    """The type in which Arrow's parser reads a statistic; dates and times come as text."""
    if isinstance(data_type, DecimalType):
        # A number whose digits are more than the type has goes unnoticed by the parser, and comes out as another one.
        # It does not take more than 38 digits, and all of them fit here, whatever the scale.
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
