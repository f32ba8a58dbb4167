"""Commits in which one field of one action is of any size: long, deep, many, or a number beyond all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from pyroaring import BitMap64

import handmade
from refdelta.core.rows.deletion_vector import encode_inline, serialize_bitmap

_BITS = serialize_bitmap(BitMap64([0]))
VECTOR = {"storageType": "i", "pathOrInlineDv": encode_inline(_BITS), "sizeInBytes": len(_BITS), "cardinality": 1}
STATS = {"numRecords": 3, "minValues": {"n": 1}, "maxValues": {"n": 9}, "nullCount": {"n": 0}, "tightBounds": True}
SCHEMA = {
    "type": "struct",
    "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {"delta.columnMapping.id": 1}}],
}
PLACES = {"out.parquet": [{"path": "x.parquet", "start": 0, "rows": 3}]}
INFO = {
    "timestamp": 1_700_000_000_000, "inCommitTimestamp": 1_700_000_000_000, "operation": "OPTIMIZE",
    "isBlindAppend": False, "operationParameters": {"predicate": "[]"}, "operationMetrics": {"numFiles": "1"},
    "readVersion": 0, "txnId": "t", "isolationLevel": "WriteSerializable", "readPredicates": ["n = 1"],
    "readDomains": ["a"], "rowPlaces": PLACES, "userMetadata": "u", "engineInfo": "e",
    "tags": {"a": "b"}, "clientVersion": "c",
}  # fmt: skip
FILE = {"path": "new.parquet", "partitionValues": {}, "size": 500, "dataChange": True, "tags": {"a": "b"},
        "deletionVector": VECTOR, "baseRowId": 1, "defaultRowCommitVersion": 1, "clusteringProvider": "liquid",
        "stats": json.dumps(STATS)}  # fmt: skip

ACTIONS: dict[str, dict[str, Any]] = {
    "add": {**FILE, "modificationTime": 1},
    "remove": {**FILE, "path": "x.parquet", "deletionTimestamp": 1, "extendedFileMetadata": True},
    "cdc": {"path": "_change_data/c.parquet", "partitionValues": {}, "size": 5, "dataChange": False},
    "metaData": {
        "id": "i", "name": "n", "description": "d", "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(SCHEMA), "partitionColumns": [], "createdTime": 1,
        "configuration": {"delta.appendOnly": "false", "delta.constraints.c": "n > 0", "other": "x"},
    },
    "protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"],
                 "writerFeatures": ["deletionVectors"]},
    "txn": {"appId": "a", "version": 1, "lastUpdated": 1},
    "domainMetadata": {"domain": "delta.clustering", "configuration": '{"clusteringColumns":[["n"]]}',
                       "removed": False},
    "commitInfo": INFO,
    "sidecar": {"path": "s.parquet", "sizeInBytes": 1, "modificationTime": 1, "tags": {"a": "b"}},
    "checkpointMetadata": {"version": 1, "tags": {"a": "b"}},
    "unknown": {"field": 1},
}  # fmt: skip

Path = tuple[Any, ...]


def grown(kind: str, size: int) -> Any:
    """A value of about so many characters, as JSON will have it."""
    match kind:
        case "long":
            return "x" * size
        case "parent":
            return "../" * (size // 3)
        case "escapes":
            return "%25" * (size // 3)
        case "spaces":
            return " " * size
        case "brackets":
            return "[" * min(size, DEEPEST)
        case "digits":
            return Raw("9" * size)
        case "digits in text":
            return "9" * size
        case "huge":
            return 2**62
        case "huger":
            return 2**70
        case "negative":
            return -(2**63)
        case "fraction":
            return Raw("0." + "1" * size)
        case "exponent":
            return Raw("1e" + "9" * min(size, 3))
        case "deep list":
            return Raw(_many("[" * DEEPEST + "]" * DEEPEST, size))
        case "deep map":
            return Raw(_many('{"a":' * DEEPEST + "1" + "}" * DEEPEST, size))
        case "many numbers":
            return list(range(size // 5))
        case "many texts":
            return [f"n = {number}" for number in range(size // 9)]
        case "many keys":
            return {f"k{number}": str(number) for number in range(size // 12)}
        case "predicate":
            return " AND ".join(f"(n = {number} OR n <> {number + 1})" for number in range(max(1, size // 25)))
    assert kind == "places"
    return {f"o{n}": [{"path": "x.parquet", "start": n, "rows": 2**40}] for n in range(max(1, size // 50))}


def _many(text: str, size: int) -> str:
    """A list of the same JSON."""
    return "[" + ",".join([text] * max(1, size // len(text))) + "]"


DEEPEST = 60
"""The most levels of a value of JSON, which every reader takes."""

SIZES = {"sizeInBytes", "offset"}
"""Fields by which a reader may ask for memory: their numbers stay small."""

KINDS = [
    "long", "parent", "escapes", "spaces", "brackets", "digits", "digits in text", "huge", "huger", "negative",
    "fraction", "exponent", "deep list", "deep map", "many numbers", "many texts", "many keys", "predicate", "places",
]  # fmt: skip


class Raw(str):
    """JSON as it is to stand in the commit."""

    __slots__ = ()


def fields(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every place in an action, those in JSON that stands in a text, too."""
    if isinstance(value, str) and value[:1] == "{":
        for path_in in fields(json.loads(value)):
            yield (*path, "json", *path_in)
    if isinstance(value, dict):
        for name in value:
            yield from fields(value[name], (*path, name))
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from fields(item, (*path, number))
    if path:
        yield path


def with_value(value: Any, path: Path, new: Any) -> Any:
    """An action with another value at a place; where JSON stands in a text, the text is made anew."""
    if not path:
        return new
    if path[0] == "json":
        return dumps(with_value(json.loads(value), path[1:], new))
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = with_value(value[path[0]], path[1:], new)
    return copy


def dumps(value: Any) -> str:
    """JSON, in which what is :class:`Raw` stands as it is."""
    held: list[str] = []

    def marked(one: Any) -> Any:
        if isinstance(one, Raw):
            held.append(one)
            return f"@raw{len(held) - 1}@"
        if isinstance(one, dict):
            return {name: marked(item) for name, item in one.items()}
        return [marked(item) for item in one] if isinstance(one, list) else one

    text = json.dumps(marked(value))
    for number, raw in enumerate(held):
        text = text.replace(f'"@raw{number}@"', raw)
    return text


Shape = Callable[[int], list[str]]
"""Makes commits, the contents of versions 1 and on, of about so many characters."""


def shapes() -> Iterator[tuple[str, Shape]]:
    """Every field of every action with every kind of value, and many of each action.

    A field is in a commit by itself; those of files and of commitInfo are so in a compaction of the table's file, too,
    and in an update behind an append, where the rest is as it should be and so gets its say.
    """
    for action, sample in ACTIONS.items():
        for path in fields(sample):
            for kind in KINDS:
                if path[-1] in SIZES and isinstance(grown(kind, 8), int | Raw):
                    continue
                name = f"{action}.{'.'.join(map(str, path))} {kind}"

                def made(size: int, a: str = action, s: Any = sample, p: Path = path, k: str = kind) -> str:
                    return _commit(a, with_value(s, p, grown(k, size)))

                yield name, lambda size, made=made: [made(size)]
                if action in {"add", "remove", "commitInfo"}:
                    yield f"{name} in a compaction", lambda size, a=action, made=made: [_compaction(a, made(size))]
                if action in {"add", "commitInfo"}:
                    yield (
                        f"{name} behind an append",
                        lambda size, a=action, made=made: [_append(), _update(a, made(size))],
                    )
        many = _commit(action, sample)
        yield f"many {action}", lambda size, text=many: [text * max(1, size // len(text))]
    yield "many files", lambda size: ["".join(_add(f"{n}.parquet") for n in range(max(1, size // 100)))]
    yield "an empty line each", lambda size: ["\n" * size]
    yield "one long line", lambda size: ['{"add":' + " " * size + "}\n"]


def _add(path: str, **others: Any) -> str:
    return handmade.lines(handmade.add(path, **others)).decode()


def _append() -> str:
    """A blind append of a file that is there, which a transaction may skip."""
    info = {"operation": "WRITE", "isBlindAppend": True, "readVersion": 0, "operationParameters": {"mode": "Append"}}
    return _add("appended.parquet", stats=json.dumps(STATS)) + _commit("commitInfo", info)


def _compaction(action: str, line: str) -> str:
    """A commit that puts ``out.parquet`` into the place of the table's file, with one of its actions as given."""
    lines = {
        "add": _add("out.parquet", dataChange=False, stats=json.dumps(STATS)),
        "remove": _commit("remove", {"path": "x.parquet", "deletionTimestamp": 1, "dataChange": False}),
        "commitInfo": _commit("commitInfo", INFO),
    }
    given = line.replace("new.parquet", "out.parquet").replace('"dataChange": true', '"dataChange": false')
    return "".join((lines | {action: given}).values())


def _update(action: str, line: str) -> str:
    """A commit that adds rows which no other has read, and has read what others change; with an action as given."""
    far = STATS | {"minValues": {"n": 100}, "maxValues": {"n": 200}}
    lines = {
        "add": _add("out.parquet", stats=json.dumps(far)),
        "commitInfo": _commit("commitInfo", INFO | {"operation": "UPDATE", "rowPlaces": None}),
    }
    return "".join((lines | {action: line.replace("new.parquet", "out.parquet")}).values())


def _commit(action: str, value: Any) -> str:
    return dumps({action: value}) + "\n"
