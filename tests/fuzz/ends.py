"""Tables with integers at the ends of 31, 32, 53 and 63 bits: every integer of every action, of the texts in actions,
of properties, checksums, checkpoints, hints and names of files, one at a time, and every statement on such a table.

``PYTHONPATH=tests python -m fuzz.ends EVERY FIRST`` tries each EVERY-th case (1 for all) from FIRST on, and prints what
it finds.
"""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from refdelta import DeltaTable, Identity, write_deltalake
from refdelta.errors import DeltaError
from refdelta.transaction import background
from refdelta_storage import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Objects = dict[str, bytes]

NUMBERS: Final = (
    *(-1, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 2, 2**63 - 1, 2**63, 2**64, 10**20),
    *(-(2**31) - 1, -(2**63), -(2**63) - 1),
)
"""The values that each integer takes."""

SMALL: Final = (-1, 7, 1_000)
"""The values of lengths, places in files, and numbers of parts and versions, by which a reader may ask for memory."""

_SIZES: Final = ("deletionVector.sizeInBytes", "deletionVector.offset", "name: compacted", "name: parts")
_LOG = "_delta_log/"
_NAME = "fuzz-ends"
URI = f"memory://{_NAME}"


# --- the tables --------------------------------------------------------------------------------------------------


def _key(version: int, suffix: str = ".json") -> str:
    return f"{_LOG}{version:020d}{suffix}"


def _rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "a": pa.array(ids, pa.int32())})


def _objects(store: MemoryStore) -> Objects:
    return {info.key: store.get(info.key) for info in store.list()}


def _without(objects: Objects, *suffixes: str) -> Objects:
    return {key: data for key, data in objects.items() if not key.endswith(suffixes)}


@cache
def tables() -> dict[str, Objects]:
    """The sound tables by name."""
    found = {}
    for name, properties in {
        "rich": {
            "delta.enableRowTracking": "true",
            "delta.enableDeletionVectors": "true",
            "delta.enableInCommitTimestamps": "true",
            "delta.enableChangeDataFeed": "true",
            "delta.columnMapping.mode": "name",
            "delta.checkpointInterval": "100",
            "delta.dataSkippingNumIndexedCols": "32",
            "delta.targetFileSize": "100000",
            "delta.logRetentionDuration": "interval 30 days",
            "delta.deletedFileRetentionDuration": "interval 7 days",
            "delta.setTransactionRetentionDuration": "interval 30 days",
        },
        "plain": {"delta.checkpointPolicy": "v2", "delta.enableDeletionVectors": "true"},
    }.items():
        store = MemoryStore(f"{_NAME}-{name}")
        write_deltalake(store.uri, _rows(1, 2, 3, 4), configuration=properties)
        write_deltalake(store.uri, _rows(5, 6), mode="append", app_id="app", app_version=3)
        DeltaTable(store.uri).delete("id = 2")
        DeltaTable(store.uri).update({"a": "a + 1"}, predicate="id = 5")
        if name == "plain":
            DeltaTable(store.uri).create_checkpoint(top_level="json")
            found["json checkpoint"] = _objects(store)
        else:
            found[name] = _objects(store)
            DeltaTable(store.uri).create_checkpoint()
            found["checkpoint"] = _objects(store)
    store = MemoryStore(f"{_NAME}-identity")
    schema = pa.schema([("n", pa.int64()), ("id", pa.int64()), ("a", pa.int32())])
    DeltaTable.create(store.uri, schema, identity={"n": Identity()})
    write_deltalake(store.uri, _rows(1, 2, 3), mode="append")
    write_deltalake(store.uri, _rows(4, 5), mode="append")
    found["identity"] = _objects(store)
    background.settle()
    return found


# --- the integers ------------------------------------------------------------------------------------------------


def _integers(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of integers in JSON, also in the JSON of strings (a step None) and in strings that have one. The name
    of a deletion vector is random, and may begin with a brace.
    """
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _integers(inner, (*path, name))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from _integers(inner, (*path, at))
    elif isinstance(value, str):
        if value.startswith('{"'):
            yield from _integers(json.loads(value), (*path, None))
        elif any(word.isdigit() for word in value.split()):
            yield path
    elif type(value) is int:
        yield path


def _with(value: Any, path: tuple[Any, ...], number: int) -> Any:
    if not path:
        if isinstance(value, str):
            return " ".join(str(number) if word.isdigit() else word for word in value.split())
        return number
    step, rest = path[0], path[1:]
    if step is None:
        return json.dumps(_with(json.loads(value), rest, number))
    changed = value.copy()
    changed[step] = _with(value[step], rest, number)
    return changed


def _shape(path: tuple[Any, ...]) -> str:
    """The place without the places in lists and the unique part of names."""
    return ".".join(step.partition("-")[0] for step in path if isinstance(step, str))


def _json_lines(name: str, key: str) -> Iterator[tuple[str, Callable[[int], Objects]]]:
    objects = tables()[name]
    others = _without(objects, ".crc") if key.endswith(".json") else objects
    lines = [json.loads(line) for line in objects[key].splitlines()]
    for at, line in enumerate(lines):
        for path in _integers(line):

            def mutated(number: int, at: int = at, path: tuple[Any, ...] = path) -> Objects:
                changed = [*lines]
                changed[at] = _with(lines[at], path, number)
                return {**others, key: "\n".join(map(json.dumps, changed)).encode()}

            yield f"{_kind(key)} {_shape(path)}", mutated


def _kind(key: str) -> str:
    name = key.removeprefix(_LOG)
    return "sidecar" if name.startswith("_sidecars/") else name.lstrip("0123456789.").partition("-")[0]


def _parquet(name: str, key: str) -> Iterator[tuple[str, Callable[[int], Objects]]]:
    objects = tables()[name]
    table = pq.read_table(pa.BufferReader(objects[key]))
    rows = table.to_pylist(maps_as_pydicts="strict")
    for at, row in enumerate(rows):
        for path in _integers(row):

            def mutated(number: int, at: int = at, path: tuple[Any, ...] = path) -> Objects:
                changed = [*rows]
                changed[at] = _with(rows[at], path, number)
                sink = io.BytesIO()
                pq.write_table(pa.Table.from_pylist(changed, table.schema), sink)
                return {**_without(objects, ".crc"), key: sink.getvalue()}

            yield f"{_kind(key)} {_shape(path)}", mutated


def _names() -> Iterator[tuple[str, Callable[[int], Objects]]]:
    checkpoint = tables()["checkpoint"]
    (key,) = (key for key in checkpoint if key.endswith(".checkpoint.parquet"))
    data = {key: value for key, value in checkpoint.items() if not key.startswith(_LOG)}
    commits = sorted(key for key in checkpoint if key.startswith(_LOG + "0") and key.endswith(".json"))

    def alone(number: int) -> Objects:
        return {**data, _named(number, ".checkpoint.parquet"): checkpoint[key]}

    def with_commit(number: int) -> Objects:
        return {**alone(number), _named(number, ".json"): checkpoint[commits[-1]]}

    def with_next(number: int) -> Objects:
        # The commits after a checkpoint of an early version.
        info = checkpoint[commits[-1]].splitlines()[0]
        txn = b'{"txn":{"appId":"another","version":1}}'
        return {**with_commit(number), _named(number + 1, ".json"): info + b"\n" + txn}

    def hint(number: int) -> Objects:
        return {**checkpoint, f"{_LOG}_last_checkpoint": json.dumps({"version": number, "size": 9}).encode()}

    def beside(number: int) -> Objects:
        return {**checkpoint, _named(number, ".json"): checkpoint[commits[-1]]}

    def compacted(number: int) -> Objects:
        return {**checkpoint, f"{_LOG}{1:020d}.{max(0, number):020d}.compacted.json": checkpoint[commits[1]]}

    def parts(number: int) -> Objects:
        name = _key(len(commits) - 1, f".checkpoint.{1:010d}.{max(0, number):010d}.parquet")
        return {**_without(checkpoint, ".checkpoint.parquet"), name: checkpoint[key]}

    for one in (alone, with_commit, with_next, hint, beside, compacted, parts):
        yield f"name: {one.__name__}", one


def _named(number: int, suffix: str) -> str:
    return f"{_LOG}{max(0, number):020d}{suffix}"


@dataclass(frozen=True)
class Case:
    """A table with one integer that has another value."""

    place: str
    number: int
    objects: Callable[[int], Objects]

    def __str__(self) -> str:
        return f"{self.place} {self.number}"


@cache
def cases() -> list[Case]:
    """All of them."""
    places: dict[str, Callable[[int], Objects]] = {}
    for name, objects in tables().items():
        for key in sorted(objects, reverse=True):
            if not key.startswith(_LOG):
                continue
            if key.endswith(".parquet"):
                found = _parquet(name, key)
            elif key.endswith(".crc") and key != max(one for one in objects if one.endswith(".crc")):
                continue
            else:
                found = _json_lines(name, key)
            # Of places of one kind, the newest: it is not covered by a later action.
            for where, mutated in found:
                if "operationMetrics" not in where:
                    places.setdefault(f"{name}: {where}", mutated)
    places.update(_names())
    return [
        Case(where, number, mutated)
        for where, mutated in places.items()
        for number in (SMALL if where.endswith(_SIZES) else NUMBERS)
    ]


# --- the statements ----------------------------------------------------------------------------------------------


def _merge(table: DeltaTable) -> None:
    merged = table.merge(_rows(1, 9), "target.id = source.id", source_alias="source", target_alias="target")
    merged.when_matched_update({"a": "source.a + 1"}).when_not_matched_insert(
        {"id": "source.id", "a": "source.a"}
    ).execute()


def _verify(table: DeltaTable) -> None:
    from refdelta import verify

    verify(table.table_uri)


WRITES: Final[dict[str, Callable[[DeltaTable], Any]]] = {
    "append": lambda table: write_deltalake(table, _rows(11, 12), mode="append"),
    "append with id": lambda table: write_deltalake(
        table, _rows(11), mode="append", app_id="app", app_version=2**63 - 1
    ),
    "overwrite": lambda table: write_deltalake(table, _rows(11, 12), mode="overwrite"),
    "delete": lambda table: table.delete("id = 1"),
    "update": lambda table: table.update({"a": "a + 1"}, predicate="id >= 4"),
    "merge": _merge,
    "optimize": lambda table: table.optimize.compact(),
    "restore": lambda table: table.restore(1),
    "comment": lambda table: table.alter.set_table_properties({"mine": "1"}),
    "add column": lambda table: table.alter.add_columns(pa.schema([("z", pa.int64())])),
    "checkpoint": lambda table: table.create_checkpoint(),
    "compact logs": lambda table: table.compact_logs(),
    "vacuum": lambda table: table.vacuum(dry_run=False, retention_hours=0, enforce_retention_duration=False, full=True),
    "cleanup": lambda table: table.cleanup_metadata(),
}
READS: Final[dict[str, Callable[[DeltaTable], Any]]] = {
    "count": lambda table: table.count(),
    "count some": lambda table: table.count("id > 2"),
    "filter": lambda table: table.to_pyarrow_table(filters="a = 4"),
    "ids": lambda table: table.to_pyarrow_table(columns=["id", "_metadata.row_id", "_metadata.row_commit_version"]),
    "history": lambda table: table.history(),
    "detail": lambda table: table.detail(),
    "files": lambda table: (table.files(), table.file_uris()),
    "changes": lambda table: table.load_cdf(starting_version=0).read_all(),
    "dry vacuum": lambda table: table.vacuum(),
    "verify": _verify,
    "at a time": lambda table: DeltaTable(table.table_uri, version="2100-01-01"),
}


def place(objects: Objects) -> None:
    """Put a table at :data:`URI`."""
    store = MemoryStore(_NAME)
    store.delete([info.key for info in store.list()])
    for key, data in objects.items():
        store.put(key, data)


def _read() -> list[int] | str:
    """The rows, or the error's name."""
    try:
        ids = DeltaTable(URI).to_pyarrow_table(columns=["id"])["id"].to_pylist()
        return sorted(-1 if one is None else one for one in ids)
    except DeltaError as error:
        return type(error).__name__
    except Exception as error:
        return f"raw {type(error).__name__}"


def judged(case: Case) -> Iterator[tuple[str, str]]:
    """The faults of a case: statement and fault."""
    try:
        objects = case.objects(case.number)
    except (OverflowError, pa.ArrowInvalid):
        return  # a Parquet column cannot hold the number
    place(objects)
    before = _read()
    if isinstance(before, str) and before.startswith("raw"):
        yield "read", before
    for name, statement in READS.items():
        try:
            answer = statement(DeltaTable(URI))
        except DeltaError:
            continue
        except Exception as error:
            yield name, f"raw {type(error).__name__}"
            continue
        if name.startswith("count") and answer < 0:
            yield name, "negative"
    for name, statement in WRITES.items():
        place(objects)
        try:
            statement(DeltaTable(URI))
            done = True
        except DeltaError:
            done = False
        except Exception as error:
            yield name, f"raw {type(error).__name__}"
            done = False
        background.settle()
        after = _read()
        if isinstance(after, str):
            if not isinstance(before, str):
                yield name, f"{'acknowledged' if done else 'refused'}, and then {after}"
        elif not done and after != before and not isinstance(before, str):
            yield name, "refused, and other rows"
        elif done and name == "append" and not isinstance(before, str) and len(after) != len(before) + 2:
            yield name, "acknowledged, and rows are missing"


def search(every: int = 1, start: int = 0) -> Iterator[str]:
    """Try each case of ``every``; yields the faults as they are found."""
    for case in cases()[start::every]:
        for statement, fault in judged(case):
            yield f"{case.place} | {case.number} | {statement} | {fault}"


if __name__ == "__main__":
    step, first = int((sys.argv[1:] or ["1"])[0]), int((sys.argv[2:] or ["0"])[0])
    count = 0
    for found in search(step, first):
        count += 1
        print(found, flush=True)
    tried = len(cases()[first::step])
    print(f"{tried} tables, {tried * (len(READS) + len(WRITES))} statements, {count} faults")
