"""A small table engine on refdelta's core: the log and the rows are in one SQLite file. It needs refdelta-core alone.

Two processes that delete one row conflict. In two terminals: ``python docs/examples/foreign_engine.py shop.sqlite``
"""

import itertools
import json
import random
import re
import sqlite3
import sys
import time
from contextlib import closing

from pyroaring import BitMap64

from refdelta.core.commit import CommitOutcome, PreparedCommit, carry_out, commit_loop, effects
from refdelta.core.conflicts.reads import ReadSet, ReadTable
from refdelta.core.conflicts.state import RowChanges
from refdelta.core.errors import ConcurrentModificationError
from refdelta.core.log.actions import Add, DeletionVectorDescriptor, Metadata, Protocol
from refdelta.core.log.codec import decode_commit
from refdelta.core.log.replay import Replay
from refdelta.core.rows.deletes import RowDelete
from refdelta.core.rows.deletion_vector import encode_inline, locate, parse_bitmap, serialize_bitmap


class SqliteLog:
    """The log: a `Committer`. The primary key admits one writer a version."""

    def __init__(self, path: str) -> None:
        self.db = sqlite3.connect(path, isolation_level=None, timeout=30)
        self.db.execute("CREATE TABLE IF NOT EXISTS log (version INTEGER PRIMARY KEY, at_ms INTEGER, body BLOB)")

    def commit(self, version: int, data: bytes) -> effects.Committed | effects.Exists | effects.Unknown:
        try:
            self.db.execute("INSERT INTO log VALUES (?, ?, ?)", (version, time.time_ns() // 1_000_000, data))
        except sqlite3.IntegrityError:
            return effects.Exists(self.read(version, self.newest(version)))  # with all winners
        except sqlite3.OperationalError as error:
            return effects.Unknown(error)
        return effects.Committed()

    def exists(self, version: int) -> bool:  # of -1: whether the log is empty. This log is never made anew
        return self.newest(-1) < 0 if version < 0 else self.read(version, version)[0] is not None

    def newest(self, after: int) -> int:
        return self.db.execute("SELECT coalesce(max(version), ?) FROM log", (after,)).fetchone()[0]

    def read(self, first: int, last: int) -> tuple[bytes | None, ...]:
        rows = dict(self.db.execute("SELECT version, body FROM log WHERE version BETWEEN ? AND ?", (first, last)))
        return tuple(rows.get(version) for version in range(first, last + 1))

    def withdraw(self, version: int) -> None:
        self.db.execute("DELETE FROM log WHERE version = ?", (version,))

    def time_ms(self, version: int) -> int:
        return self.db.execute("SELECT at_ms FROM log WHERE version = ?", (version,)).fetchone()[0]


class Where:
    """A condition in SQL that compares columns with literals: a `RowPredicate`. Whether it can be true in a file is
    tried out at the bounds of the file, and at each literal and its neighbours: in between it does not change.
    """

    undecidable = None

    def __init__(self, text: str, columns: tuple[str, ...], partition_by: tuple[str, ...] = ()) -> None:
        self.text, self.partition_by = text, partition_by
        self.columns = tuple(name for name in dict.fromkeys(columns) if re.search(rf"\b{name}\b", text))
        values = "".join(f", json_extract(value, '$.{name}') AS {name}" for name in self.columns)
        self.query = f"SELECT place FROM (SELECT key AS place{values} FROM json_each(?)) WHERE {text}"
        numbers = {int(found) + near for found in re.findall(r"\b\d+\b", text) for near in (-1, 0, 1)}
        self.points = [None, *numbers, *(found.rstrip("%") for found in re.findall(r"'([^']*)'", text))]

    def matching(self, rows: list[dict]) -> BitMap64:
        with closing(sqlite3.connect(":memory:")) as db:
            return BitMap64(place for (place,) in db.execute(self.query, (json.dumps(rows),)))

    def candidates(self, files):
        return [file for file in files if self.may_match(file)]

    def may_match(self, file, with_statistics=None) -> bool:
        stats, known = json.loads((with_statistics or (lambda one: one))(file).stats or "{}"), file.partition_values
        return known is None or self.may_be({name: self.among(name, known, stats) for name in self.columns})

    def is_disjoint(self, other) -> bool:
        text = f"({self.text}) AND ({other.text})"
        both = Where(text, self.columns + other.columns) if isinstance(other, Where) else self
        return not both.may_be(dict.fromkeys(both.columns, both.points))

    def among(self, name: str, partition: dict, stats: dict) -> list:
        if name in self.partition_by:
            value = partition.get(name)
            return [int(value) if value is not None and value.isdigit() else value]
        low, high, nulls = (stats.get(side, {}).get(name) for side in ("minValues", "maxValues", "nullCount"))
        if low is None or high is None or nulls != 0:
            return self.points
        return [low, high, *(one for one in self.points if type(one) is type(low) and low < one < high)]

    def may_be(self, values: dict[str, list]) -> bool:
        return bool(self.matching([dict(zip(values, row, strict=True)) for row in itertools.product(*values.values())]))


def commit(log, transaction: PreparedCommit, answer) -> CommitOutcome:
    """Drive the commit loop: the log carries out its effects on the log, `answer` those on rows."""
    loop, reply, start = commit_loop(transaction), None, time.monotonic()
    while True:
        try:
            effect = loop.send(reply)
        except StopIteration as done:
            return done.value
        reply = carry_out(effect, log) or answer(effect)
        if isinstance(effect, effects.Pause):
            time.sleep(random.uniform(0, min(0.1, 0.001 * 2**effect.count)))
            reply = effects.Elapsed(time.monotonic() - start)


def hidden(vector: DeletionVectorDescriptor | None) -> BitMap64:
    return BitMap64() if vector is None else parse_bitmap(locate(vector).data, file="a deletion vector")


def inline(rows: BitMap64) -> DeletionVectorDescriptor:
    text, size = encode_inline(serialize_bitmap(rows)), len(serialize_bitmap(rows))
    return DeletionVectorDescriptor(storage_type="i", path_or_inline_dv=text, size_in_bytes=size, cardinality=len(rows))


class Table:
    """A table of rows, each a dict. A file is a list of rows."""

    def __init__(self, path: str, columns: tuple[str, ...]) -> None:
        self.log, self.columns = SqliteLog(path), columns
        self.table = ReadTable(parse=lambda text: Where(text, columns))
        self.log.db.execute("CREATE TABLE IF NOT EXISTS data (file TEXT PRIMARY KEY, rows TEXT)")

    def create(self) -> int:
        named = ["deletionVectors"]
        protocol = Protocol(min_reader_version=3, min_writer_version=7, reader_features=named, writer_features=named)
        return self.commit(-1, [protocol, Metadata(id="t", schema_string="{}", partition_columns=[])])

    def snapshot(self) -> tuple[int, list[Add]]:
        state, commits = Replay(), self.log.read(0, self.log.newest(-1))
        for version, data in enumerate(commits):
            state.apply(decode_commit(data, str(version)))
        return len(commits) - 1, list(state.files.values())

    def rows(self, file: str) -> list[dict]:
        return json.loads(self.log.db.execute("SELECT rows FROM data WHERE file = ?", (file,)).fetchone()[0])

    def append(self, rows: list[dict]) -> int:
        file, version = random.randbytes(16).hex(), self.log.newest(-1)
        self.log.db.execute("INSERT INTO data VALUES (?, ?)", (file, json.dumps(rows)))
        low, high = ({name: pick(row[name] for row in rows) for name in self.columns} for pick in (min, max))
        stats = {"numRecords": len(rows), "minValues": low, "maxValues": high, "nullCount": dict.fromkeys(low, 0)}
        new = {"partition_values": {}, "size": 1, "modification_time": 0, "data_change": True}
        return self.commit(version, [Add(path=file, stats=json.dumps(stats), **new)])

    def delete(self, text: str) -> int:
        (version, files), where, deletes = self.snapshot(), Where(text, self.columns), []
        read = ReadSet(version=version).with_predicate(where)
        for add in where.candidates(files):
            if rows := where.matching(self.rows(add.path)) - (base := hidden(add.deletion_vector)):
                read = read.with_rows([(add, rows)])
                deletes.append(RowDelete(add, base, rows))
        return self.commit(version, [], read, deletes)

    def commit(self, version: int, actions: list, read: ReadSet | None = None, deletes=()) -> int:
        read = read or ReadSet(version=version)
        known = {"read_version": version, "read_set": read, "table": self.table}
        does = {"actions": actions, "changes": RowChanges(deletes=deletes, vectors=True, row_level=True)}
        info = {"operation": "DELETE" if deletes else "WRITE", "isBlindAppend": read.blind, "readVersion": version}
        prepared = PreparedCommit(**known, **does, commit_info=info, txn_id=random.randbytes(16).hex())
        return commit(self.log, prepared, lambda effect: self.answer(effect, read)).version

    def answer(self, effect, read: ReadSet):
        match effect:
            case effects.ReadVectors(descriptors):
                return effects.Vectors(tuple(map(hidden, descriptors)))
            case effects.WriteVectors(bitmaps):
                return effects.Descriptors(tuple(map(inline, bitmaps)))
            case effects.MatchRows(asked):
                return effects.Matches(tuple(self.matches(one, read) for one in asked), seconds=0.0)
            case effects.ConfirmRows(trusted=trusted):
                return effects.Yes() if trusted else effects.No()
        return effects.Relocations({})

    def matches(self, file, read: ReadSet) -> bool:
        rows = self.rows(file.add.path)
        asked = (BitMap64(range(len(rows))) if file.rows is None else file.rows) - hidden(file.add.deletion_vector)
        return any(asked & each.predicate.matching(rows) for each in read.reads)


if __name__ == "__main__":
    shop = Table(sys.argv[1] if len(sys.argv) > 1 else "shop.sqlite", ("id", "price"))
    for number in range(-1, 20):
        try:
            print("version", shop.create() if number < 0 else shop.append([{"id": number, "price": random.random()}]))
            print("version", shop.delete(f"id = {random.randrange(20)}"))
        except ConcurrentModificationError as error:
            print(f"conflict: {error.conflict.rule} with version {error.conflict.version}")
