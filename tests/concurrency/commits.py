"""Small commits, written down in a line, and a transaction that meets them as in the real loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from refdelta.concurrency.conflict import RULES, Conflict, Rule, check
from refdelta.concurrency.isolation import IsolationLevel
from refdelta.concurrency.read_set import Read, ReadSet, ReadTable
from refdelta.concurrency.standing import Standing
from refdelta.concurrency.summary import CommitSummary, summarize
from refdelta.engine.sql import parse_predicate
from refdelta.protocol.actions import Add, AnyAction, CommitInfo, DeletionVectorDescriptor, Remove
from refdelta.protocol.codec import encode_commit
from refdelta.protocol.types import LONG, StructField, StructType

SERIALIZABLE, WRITE_SERIALIZABLE = IsolationLevel.SERIALIZABLE, IsolationLevel.WRITE_SERIALIZABLE
LEVELS = (SERIALIZABLE, WRITE_SERIALIZABLE)

# The table of all tests here: a partition column p and a data column a.
SCHEMA = StructType((StructField("p", LONG), StructField("a", LONG)))


def where(sql: str):
    return parse_predicate(sql, SCHEMA)


TABLE = ReadTable(schema=SCHEMA, partition_columns=("p",), parse=where)
FLAT = ReadTable(schema=SCHEMA, parse=where)


def vector(name: str, cardinality: int = 1) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(
        storage_type="u", path_or_inline_dv=name, offset=1, size_in_bytes=40, cardinality=cardinality
    )


def _p(p: int | None) -> dict[str, str | None]:
    return {} if p is None else {"p": str(p)}


def add(
    path: str, p: int | None = None, *, a: tuple[int, int] | None = None, changes: bool = True, dv: Any = None, **fields
) -> Add:
    """``a``: the bounds of column a in its statistics, which has no nulls."""
    stats = None
    if a is not None:
        texts = {"numRecords": 2, "minValues": {"a": a[0]}, "maxValues": {"a": a[1]}, "nullCount": {"a": 0}}
        stats = msgspec.json.encode(texts).decode()
    return Add(
        path=path, partition_values=_p(p), size=1, modification_time=1, data_change=changes, stats=stats,
        deletion_vector=dv, **fields,
    )  # fmt: skip


def remove(path: str, p: int | None = None, *, changes: bool | None = True, dv: Any = None, **fields) -> Remove:
    return Remove(
        path=path, deletion_timestamp=1, data_change=changes, partition_values=_p(p), deletion_vector=dv, **fields
    )


def commit(
    version: int,
    *actions: AnyAction,
    reads: Sequence[str] | None = None,
    saw: int | None = None,
    blind: bool | None = None,
    operation: str | None = "WRITE",
) -> CommitSummary:
    """A winner, through its bytes. ``reads``: what it recorded; ``blind``: what it says of itself."""
    info: dict[str, Any] = {"operation": operation, "txnId": f"winner-{version}"}
    info |= {} if reads is None else {"readPredicates": list(reads)}
    info |= {} if saw is None else {"readVersion": saw}
    info |= {} if blind is None else {"isBlindAppend": blind}
    fields = {name: value for name, value in info.items() if value is not None}
    return summarize(version, encode_commit([CommitInfo(fields=fields), *actions]), f"{version}.json")


def ours(
    *actions: AnyAction,
    reads: Sequence[str] = (),
    files: Iterable[Add | Remove] = (),
    level: IsolationLevel = WRITE_SERIALIZABLE,
    table: ReadTable | None = TABLE,
    version: int = 0,
    operation: str = "WRITE",
    whole_table: bool = False,
    **read: Any,
) -> Standing:
    """A transaction that reads the rows of these predicates in these files, and is about to commit these actions."""
    read_set = ReadSet(version=version, reads=tuple(Read(where(sql)) for sql in reads), **read).with_files(files)
    if whole_table:
        read_set = read_set.with_everything()
    return Standing(read_set, [CommitInfo(fields={"operation": operation}), *actions], level, table)


def run(standing: Standing, *winners: CommitSummary, rules: Sequence[Rule] = RULES) -> tuple[str, int] | None:
    """The rule that fires and the winner's version; None where it commits over all."""
    for winner in winners:
        found = check(standing, winner, rules)
        if isinstance(found, Conflict):
            return found.rule.id, winner.version
        standing.advance(winner)
    return None
