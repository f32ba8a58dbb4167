"""Small commits, written down in a line, and a transaction that meets them as in the real loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from refdelta.core.conflicts.isolation import IsolationLevel
from refdelta.core.conflicts.reads import Read, ReadSet, ReadTable, RowPredicate
from refdelta.core.conflicts.rules import RULES, Conflict, Rule, check
from refdelta.core.conflicts.state import TransactionState
from refdelta.core.log.actions import Add, AnyAction, CommitInfo, DeletionVectorDescriptor, Remove
from refdelta.core.log.codec import encode_commit
from refdelta.core.log.footprint import Footprint, fold_commit
from refdelta.core.rows.touched import Facts
from refdelta.expressions.sql import parse_predicate
from refdelta.pruning.row_predicate import row_predicate
from refdelta.table.types import LONG, StructField, StructType

SERIALIZABLE, WRITE_SERIALIZABLE = IsolationLevel.SERIALIZABLE, IsolationLevel.WRITE_SERIALIZABLE
LEVELS = (SERIALIZABLE, WRITE_SERIALIZABLE)

# The table of all tests here: a partition column p and a data column a.
SCHEMA = StructType((StructField("p", LONG), StructField("a", LONG)))


def where(sql: str, partition_columns: Sequence[str] = ("p",)) -> RowPredicate:
    return row_predicate(parse_predicate(sql, SCHEMA), SCHEMA, partition_columns)


def where_flat(sql: str) -> RowPredicate:
    return where(sql, ())


TABLE = ReadTable(parse=where)
FLAT = ReadTable(parse=where_flat)


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
    engine: str | None = "refdelta/1.0",
    level: str | None = "WriteSerializable",
) -> Footprint:
    """A winner, through its bytes. ``reads``: what it recorded; ``blind``: what it says of itself."""
    info: dict[str, Any] = {"operation": operation, "txnId": f"winner-{version}"}
    info |= {"engineInfo": engine, "isolationLevel": level}
    info |= {} if reads is None else {"readPredicates": list(reads)}
    info |= {} if saw is None else {"readVersion": saw}
    info |= {} if blind is None else {"isBlindAppend": blind}
    fields = {name: value for name, value in info.items() if value is not None}
    return fold_commit(version, encode_commit([CommitInfo(fields=fields), *actions]), f"{version}.json")


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
) -> TransactionState:
    """A transaction that reads the rows of these predicates in these files, and is about to commit these actions."""
    read_set = ReadSet(version=version, reads=tuple(Read(where(sql)) for sql in reads), **read).with_files(files)
    if whole_table:
        read_set = read_set.with_everything()
    return TransactionState(read_set, [CommitInfo(fields={"operation": operation}), *actions], level, table)


def run(state: TransactionState, *winners: Footprint, rules: Sequence[Rule] = RULES) -> tuple[str, int] | None:
    """The rule that fires and the winner's version; None where it commits over all."""
    for winner in winners:
        facts = Facts.of(winner)
        found = check(state, winner, facts, rules)
        assert found == check(state, winner, facts, rules), "asked twice it answers otherwise"
        if isinstance(found, Conflict):
            return found.rule.id, winner.version
        if found.passed is not None:
            state.advance(found.passed)
    return None
