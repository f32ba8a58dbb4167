"""The decoders of the protocol, each held against a second way to the same answer."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pyarrow as pa
from pyroaring import BitMap64

from fuzz.targets import CORPUS, Target, shown
from refdelta.arrow.partition import parse_partition_column, to_internal
from refdelta.arrow.schema import arrow_type, from_arrow, to_arrow
from refdelta.core.log import codec, lean, paths
from refdelta.core.log.actions import (
    Add,
    Cdc,
    DeletionVectorDescriptor,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from refdelta.core.log.checksum import decode_checksum, encode_checksum
from refdelta.core.log.replay import Replay, validate_commit
from refdelta.core.log.segment import LastCheckpoint, build_segment, encode_last_checkpoint, parse_last_checkpoint
from refdelta.core.log.statistics import parse_stats, widened
from refdelta.core.log.timestamps import in_commit_timestamp
from refdelta.core.rows.deletion_vector import (
    InlineBytes,
    RelativeKey,
    encode_inline,
    frame,
    framed_range,
    locate,
    parse_bitmap,
    serialize_bitmap,
    unframe,
)
from refdelta.engine.log.state import (
    FILE_SCHEMA,
    TOMBSTONE_SCHEMA,
    reconcile,
    reconcile_tombstones,
    to_adds,
    to_removes,
)
from refdelta.engine.log.statistics import read_statistics
from refdelta.errors import DeltaError, InvalidLogError
from refdelta.expressions.sql import parse_expression, parse_predicate
from refdelta.pruning.stats import load_stats, lookup, statistic
from refdelta.table import properties
from refdelta.table.clustering import clustering_columns
from refdelta.table.features import check_readable, check_writable
from refdelta.table.in_commit_timestamp import enablement
from refdelta.table.partition_values import parse
from refdelta.table.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DecimalType,
    StructField,
    StructType,
    leaves,
    parse_schema,
    schema_json,
)
from refdelta.transaction.time_travel import milliseconds

FILE = "_delta_log/00000000000000000007.json"
TABLE = "s3://bucket/a table"


# --- the log -----------------------------------------------------------------------------------------------------

# What conflict checks do not look at.
_PASSED_OVER = {
    Add: ("extra", "stats", "tags", "clustering_provider"),
    Remove: ("extra", "stats", "tags", "extended_file_metadata", "base_row_id", "default_row_commit_version"),
}


def _needed(action: Any) -> Any:
    kind: Any = Add if isinstance(action, Add) else Remove
    fields = {name: getattr(action, name) for name in kind.__struct_fields__}
    return kind(**{**fields, **dict.fromkeys(_PASSED_OVER[kind])})


def commit(data: bytes) -> Any:
    """A commit: the quick way, the slow way and that of conflict checks agree, and what is decoded can be written."""
    try:
        actions = codec.decode_commit(data, FILE)
    except InvalidLogError:
        _refused(lambda: codec._decode_slowly(data, FILE))
        raise
    assert actions == codec._decode_slowly(data, FILE)
    found = lean.decode_lean(data, FILE)
    files = [a for a in actions if isinstance(a, (Add, Remove))]
    ordered = sorted(files, key=lambda action: isinstance(action, Remove))
    assert list(map(_needed, (*found.adds, *found.removes))) == list(map(_needed, ordered))
    assert found.others == [a for a in actions if isinstance(a, (Metadata, Protocol, Txn, DomainMetadata, Cdc))]
    again = codec.encode_commit(actions)
    assert not actions or codec.encode_commit(codec.decode_commit(again, FILE)) == again
    return tuple(sorted({type(action).__name__ for action in actions}))


def replay(data: bytes) -> Any:
    """The state after a commit: in columns it is what the plain definition says, and each part of it is looked into."""
    actions = codec.decode_commit(data, FILE)
    half = len(actions) // 2
    plain = Replay()
    plain.apply(actions[:half])
    plain.apply(actions[half:])
    commits = [actions[:half], actions[half:]]
    files = reconcile(FILE_SCHEMA.empty_table(), commits)
    bare = [msgspec.structs.replace(add, extra=None) for add in plain.files.values()]
    assert to_adds(files) == bare
    gone = reconcile_tombstones(TOMBSTONE_SCHEMA.empty_table(), commits)
    assert len(to_removes(gone)) == len(plain.tombstones)
    _maybe(lambda: validate_commit(actions, 0))
    for action in actions:
        _looked_into(action)
    return len(plain.files), len(plain.tombstones), len(plain.txns), len(plain.domains)


def _looked_into(action: Any) -> None:
    if isinstance(action, (Add, Remove)):
        _maybe(lambda: paths.data_key(action.path, TABLE, file=FILE))
        _maybe(lambda: action.deletion_vector and locate(action.deletion_vector))
    if isinstance(action, Metadata):
        _maybe(lambda: parse_schema(action.schema_string, file=FILE))
        _maybe(lambda: properties.TableProperties.parse(action.configuration))
        protocol = Protocol(
            min_reader_version=3, min_writer_version=7, reader_features=[], writer_features=["inCommitTimestamp"]
        )
        _maybe(lambda: enablement(protocol, action))
        _maybe(lambda: check_writable(protocol, action))
    if isinstance(action, Protocol):
        _maybe(lambda: check_readable(action))
    if type(action).__name__ == "CommitInfo":
        _maybe(lambda: in_commit_timestamp([action], FILE))
    if type(action).__name__ == "DomainMetadata":
        _maybe(lambda: clustering_columns({action.domain: action}, StructType((StructField("a", LONG),))))
    if type(action).__name__ == "Sidecar":
        _maybe(lambda: paths.sidecar_key(action.path, TABLE))


def _maybe(run: Any) -> Any:
    """What a part of an input gives; a DeltaError will do."""
    try:
        return run()
    except DeltaError as error:
        shown(str(error))


def _refused(run: Any) -> None:
    try:
        run()
    except DeltaError:
        return
    raise AssertionError("one way refuses what another takes")


def action(data: bytes) -> Any:
    """One line. What is taken is one object for the standard library too."""
    found = codec.decode_action(data, FILE, 3)
    assert isinstance(json.loads(data), dict)
    return type(found).__name__


def hint(data: bytes) -> Any:
    """``_last_checkpoint``: a hint or None, and never an error."""
    found = parse_last_checkpoint(data)
    if found is None:
        return None
    assert isinstance(found, LastCheckpoint)
    assert found.version >= 0
    assert parse_last_checkpoint(encode_last_checkpoint(found)) == found
    return found.parts is None, found.checkpoint_schema is None, found.tags is None


def checksum(data: bytes) -> Any:
    """A version checksum."""
    found = decode_checksum(data, "x.crc")
    assert decode_checksum(encode_checksum(found), "x.crc") == found
    return found.set_transactions is None, found.file_size_histogram is None


def names(data: bytes) -> Any:
    """A listing: names of log files, one a line."""
    listing = [(line, 1, 1) for line in data.decode("utf-8", "replace").split("\n")]
    versions = [found.version for line, _, _ in listing if (found := paths.parse_log_name(line)) and found.version >= 0]
    segment = build_segment(listing)
    if segment is None:
        return None
    # What is taken is whole: every version once, from the checkpoint or from 0.
    start = 0 if segment.checkpoint is None else segment.checkpoint.version + 1
    for file in segment.commits:
        assert file.version == start
        start = file.hi + 1
    assert start == segment.version + 1
    assert segment.version in versions
    return segment.checkpoint and segment.checkpoint.kind, min(len(segment.commits), 4)


def timestamps(data: bytes) -> Any:
    """A time that a user names."""
    return milliseconds(data.decode("utf-8", "replace")) > 0


# --- metadata ----------------------------------------------------------------------------------------------------


def schema(data: bytes) -> Any:
    """A schema: what is taken can be written, read again and put into Arrow."""
    found = parse_schema(data.decode("utf-8", "replace"))
    again = parse_schema(schema_json(found))
    assert again == found
    list(leaves(found, physical=True))
    arrow = to_arrow(found)
    _maybe(lambda: from_arrow(arrow))
    return tuple(sorted({str(field.type)[:8] for field in found}))[:4], len(found) > 3


def prop(data: bytes) -> Any:
    """Properties: a name and its value a line."""
    pairs = [line.partition("=") for line in data.decode("utf-8", "replace").split("\n")]
    configuration = {name: value for name, _, value in pairs}
    _maybe(lambda: properties.validate(configuration))
    parsed = properties.TableProperties.parse(configuration)
    assert parsed.checkpoint_interval is None or parsed.checkpoint_interval >= 1
    assert parsed.log_retention_ms >= 0
    return parsed.column_mapping_mode, parsed.isolation_level, parsed.data_skipping_stats_columns is None


_TYPES = [BINARY, BOOLEAN, BYTE, DATE, DOUBLE, FLOAT, INTEGER, LONG, SHORT, STRING, TIMESTAMP, TIMESTAMP_NTZ,
          DecimalType(5, 2), DecimalType(38, 0), DecimalType(38, 38)]  # fmt: skip


def partition(data: bytes) -> Any:
    """A partition value, of the type that the first byte chooses: one at a time, and as a column."""
    if not data:
        return None
    kind = _TYPES[data[0] % len(_TYPES)]
    text = data[1:].decode("utf-8", "replace")
    strings = pa.array([text, None, text], pa.string())
    try:
        value = parse(text, kind)
    except DeltaError:
        _refused(lambda: parse_partition_column(strings, kind))
        raise
    column = parse_partition_column(strings, kind)
    assert column.type == arrow_type(kind)
    assert _same(to_internal(column, kind), [value, None, value], kind)
    return str(kind), value is None


def _same(found: list[Any], expected: list[Any], kind: Any) -> bool:
    if kind == FLOAT:
        import numpy as np

        with np.errstate(over="ignore"):
            expected = [None if value is None else float(np.float32(value)) for value in expected]
    # A decimal's negative zero is no other number, a float's is.
    return found == expected if isinstance(kind, DecimalType) else repr(found) == repr(expected)


_STATISTICS = [
    (("numRecords",), LONG),
    *((("minValues", f"c{i}"), kind) for i, kind in enumerate(_TYPES) if kind != BINARY),
]
_STATISTICS += [(("minValues", "s", "x"), LONG), (("nullCount", "c0"), LONG), (("tightBounds",), BOOLEAN)]


def _lenient(text: str) -> Any:
    """What the definition says of a text; ``...`` where it refuses what Arrow may pass over in a place that nobody asks
    for: a key that is there twice, a number that no type has, or deep nests.
    """
    found = load_stats(text)
    if found is None:
        try:
            loaded = json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
        except RecursionError:
            return ...
        except ValueError:
            return None
        return ... if isinstance(loaded, dict) else None
    return found


def stats(data: bytes) -> Any:
    """Statistics, a text a line: what Arrow reads of them is what the definition says."""
    texts = data.decode("utf-8", "replace").split("\n")
    known, columns = read_statistics(pa.chunked_array([pa.array(texts, pa.string())]), _STATISTICS)
    loaded = [_lenient(text) for text in texts]
    alone = [read_statistics(pa.chunked_array([pa.array([text], pa.string())]), _STATISTICS) for text in texts]
    for row, one in enumerate(loaded):
        if one is ...:
            continue
        assert known[row].as_py() == isinstance(one, dict), (texts[row], known[row])
        assert alone[row][0][0].as_py() == isinstance(one, dict)
        for number, (path, kind) in enumerate(_STATISTICS):
            expected = statistic(lookup(one, path), kind)
            for column in (columns[number].slice(row, 1), alone[row][1][number]):
                assert _same(to_internal(column, kind), [expected], kind), (texts[row], path, column, expected)
    for text in texts:
        parse_stats(text)
        wide = widened(text, 3)
        assert wide is None or load_stats(text) is None or load_stats(wide) is not None, text
    return tuple(column.null_count < len(texts) for column in columns)


# --- paths and vectors -------------------------------------------------------------------------------------------


def path(data: bytes) -> Any:
    """A path of an action: what is taken is a key inside the table, and has a path that means it."""
    text = data.decode("utf-8", "replace")
    same = paths.same_path(text)
    assert paths.same_path(text) == same
    key = paths.data_key(text, TABLE)
    segments = key.split("/")
    assert key
    assert not {"", ".", ".."} & set(segments)
    assert "\0" not in key
    assert paths.data_key(paths.encode_path(key), TABLE) == key
    _maybe(lambda: paths.sidecar_key(text, TABLE))
    return "%" in text, ":" in text, len(segments) > 2


def bitmap(data: bytes) -> Any:
    """A vector: what is taken is the set that a plain reading of the same bytes gives."""
    found = parse_bitmap(data, file="f")
    assert len(found) <= 2**17 * (len(data) + 1)
    again = serialize_bitmap(found)
    assert parse_bitmap(again, file="f", cardinality=len(found)) == found
    assert unframe(frame(again), len(again), "f") == again
    if len(found) < 20_000:
        assert found == BitMap64(_rows(data)), "another set than the bytes say"
    return len(found).bit_length(), data[:4]


def _rows(data: bytes) -> list[int]:
    """The rows of a vector, read by the letter of the Roaring format."""
    rows: list[int] = []
    native = data[:4] != (1681511377).to_bytes(4, "little")
    order: Any = "big" if native and data[:4] == (1681511376).to_bytes(4, "big") else "little"
    at = 8 if native else 12
    for bucket in range(int.from_bytes(data[4:at], order)):
        high = bucket if native else int.from_bytes(data[at : at + 4], "little")
        at = _bucket(data, at + 4, high << 32, rows)
    return rows


def _bucket(data: bytes, at: int, base: int, rows: list[int]) -> int:
    def number(position: int, size: int = 2) -> int:
        return int.from_bytes(data[position : position + size], "little")

    runs = number(at) == 12347
    count = number(at + 2) + 1 if runs else number(at + 4, 4)
    flags, at = (at + 4, at + 4 + (count + 7) // 8) if runs else (0, at + 8)
    heads, at = at, at + 4 * count * (2 if not runs or count >= 4 else 1)
    for one in range(count):
        high, size = base + (number(heads + 4 * one) << 16), number(heads + 4 * one + 2) + 1
        if runs and data[flags + one // 8] >> one % 8 & 1:
            for run in range(number(at)):
                start = number(at + 2 + 4 * run)
                rows.extend(range(high + start, high + start + number(at + 4 + 4 * run) + 1))
            at += 2 + 4 * number(at)
        elif size <= 4096:
            rows.extend(high + number(at + 2 * place) for place in range(size))
            at += 2 * size
        else:
            bits = number(at, 8192)
            rows.extend(high + place for place in range(65536) if bits >> place & 1)
            at += 8192
    return at


def descriptor(data: bytes) -> Any:
    """A descriptor, and what an inline vector holds."""
    try:
        found = msgspec.json.decode(data, type=DeletionVectorDescriptor)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    place = locate(found, file=FILE)
    start, length = framed_range(found)
    assert start >= 0
    assert length >= 8
    if isinstance(place, RelativeKey):
        assert not {"", ".", ".."} & set(place.key.split("/"))
    if isinstance(place, InlineBytes):
        assert len(place.data) == found.size_in_bytes
        parse_bitmap(place.data, file="f", cardinality=found.cardinality)
    return type(place).__name__


# --- predicates --------------------------------------------------------------------------------------------------

_COLUMNS = StructType(
    (
        StructField("id", LONG),
        StructField("name", STRING),
        StructField("d", DATE),
        StructField("t", TIMESTAMP),
        StructField("x", DOUBLE),
        StructField("m", DecimalType(10, 2)),
        StructField("ok", BOOLEAN),
        StructField("b", BINARY),
        StructField("s", StructType((StructField("a", INTEGER),))),
    )
)


def predicate(data: bytes) -> Any:
    """SQL of a user."""
    text = data.decode("utf-8", "replace")
    found = parse_predicate(text, _COLUMNS, now=0)
    return type(found).__name__


def expression(data: bytes) -> Any:
    """A value in SQL."""
    return type(parse_expression(data.decode("utf-8", "replace"), _COLUMNS, now=0)).__name__


def _commits() -> list[bytes]:
    return [path.read_bytes() for path in sorted((CORPUS / "commit").glob("*"))]


def _vectors() -> list[bytes]:
    sets = [
        [],
        [0],
        [1, 2, 3],
        range(5000),
        range(0, 20_000, 2),
        [2**32 + 5, 2**33],
        [i << 16 for i in range(6)],
        range(0, 130_000, 130),
    ]
    portable = [serialize_bitmap(BitMap64(rows)) for rows in sets]
    plain = [(1681511377).to_bytes(4, "little") + BitMap64(rows).serialize() for rows in sets]
    small = BitMap64([3, 4, 7, 11, 18, 29]).serialize()[12:]
    native = [order_magic + number(1) + number(len(small)) + small for order_magic, number in (
        ((1681511376).to_bytes(4, "big"), lambda value: value.to_bytes(4, "big")),
        ((1681511376).to_bytes(4, "little"), lambda value: value.to_bytes(4, "little")))]  # fmt: skip
    return [*portable, *plain, *native]


def _descriptors() -> list[bytes]:
    inline = [
        {"storageType": "i", "pathOrInlineDv": encode_inline(data), "sizeInBytes": len(data), "cardinality": 3}
        for data in _vectors()[:3]
    ]
    places = ("u", "ab^-aqEH.-t@S}K{vb[*k^"), ("u", "folder/^-aqEH.-t@S}K{vb[*k^"), ("p", "s3://bucket/dv.bin")
    rest = {"offset": 1, "sizeInBytes": 36, "cardinality": 2}
    other = [{"storageType": kind, "pathOrInlineDv": text, **rest} for kind, text in places]
    return [json.dumps(one).encode() for one in inline + other]


_NAMES = b"00000000000000000003 .json .checkpoint .parquet .crc .compacted .0000000001 _delta_log/ 99999999999999999999"
_VERSIONS = b"09223372036854775807 09223372036854775808"
_TIMES = b"2020-01-01 T00:00:00 +01:00 Z 0001 9999-12-31 .999999"
_TEXTS = b"2020-02-30 1e5 NaN 23:59:60 +18:00 true - . e999999999"
_PLACES = b"%2e%2e/ ../ ./ // s3a://bucket/a%20table/ file: %00 \\"
_PROPERTIES = tuple(row.name.encode() + b"=" for row in properties.PROPERTIES.values())

TARGETS = [
    Target("commit", commit, "json", 250),
    Target("replay", replay, "json", 30, _commits),
    Target("action", action, "json", 120),
    Target("hint", hint, "json", 80),
    Target("checksum", checksum, "json", 60),
    Target("names", names, "text", 80, tokens=(*_NAMES.split(), *_VERSIONS.split())),
    Target("timestamps", timestamps, "text", 20, tokens=tuple(_TIMES.split())),
    Target("schema", schema, "json", 90),
    Target("properties", prop, "text", 80, tokens=_PROPERTIES),
    Target("partition", partition, "text", 80, tokens=tuple(_TEXTS.split())),
    Target("stats", stats, "json", 8),
    Target("path", path, "text", 80, tokens=(b"s3://bucket/a table/", *_PLACES.split())),
    Target("bitmap", bitmap, "bytes", 80, _vectors),
    Target("descriptor", descriptor, "json", 40, _descriptors),
    Target("predicate", predicate, "text", 8),
    Target("expression", expression, "text", 4),
]
