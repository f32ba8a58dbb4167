"""Small commits of two given operations, with which the matrices ask the rules for conflicts.

The table has two files, in two partitions if it has partitions. The operations change the same row, two rows of one
file, or two files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal as OneOf

from pyroaring import BitMap64

from refdelta.core.conflicts.isolation import IsolationLevel
from refdelta.core.conflicts.reads import ReadSet, ReadTable, RowPredicate
from refdelta.core.conflicts.rules import Conflict, NeedRows, NeedVectors, check
from refdelta.core.conflicts.state import RowChanges, TransactionState
from refdelta.core.log.actions import (
    Add,
    AnyAction,
    CommitInfo,
    DeletionVectorDescriptor,
    Metadata,
    Protocol,
    Remove,
)
from refdelta.core.log.footprint import Footprint, fold
from refdelta.core.log.replay import file_key
from refdelta.core.rows.deletes import RowDelete, tombstone, with_vector
from refdelta.core.rows.relocation import CopiedRows, Group, Input, Output, record
from refdelta.core.rows.sets import ALL, NONE
from refdelta.core.rows.touched import Facts

Meeting = OneOf["row", "file", "table"]
"""The smallest thing that both operations change."""

UPDATING = ("UPDATE", "DELETE", "MERGE")
REARRANGING = ("OPTIMIZE", "REORG", "ZORDER")
REPLACING = ("OVERWRITE", "REPLACE TABLE")
QUERY = "INSERT FROM QUERY"

_METADATA = Metadata(id="m", schema_string="{}", partition_columns=["p"])
_VECTOR = DeletionVectorDescriptor(
    storage_type="u", path_or_inline_dv="vector", offset=1, size_in_bytes=40, cardinality=1
)


class _InFirstPartition:
    """``p = 1``, decided by partition values if the table has them; otherwise any file may have such a row."""

    text = "p = 1"
    undecidable = None

    def candidates(self, files: Sequence[Add]) -> Sequence[Add]:
        return [file for file in files if self.may_match(file)]

    def may_match(self, file: Add | Remove, with_statistics: Callable[[Add], Add] | None = None) -> bool:  # noqa: ARG002
        return (file.partition_values or {}).get("p", "1") == "1"

    def is_disjoint(self, other: RowPredicate) -> bool:  # noqa: ARG002
        return False


_WHERE = _InFirstPartition()


@dataclass(frozen=True, slots=True)
class TableKind:
    """A kind of table.

    Attributes:
        vectors: whether deletion vectors are enabled.
        row_level: whether conflicts are decided by rows, as with deletion vectors and without partition columns.
    """

    vectors: bool
    row_level: bool


def conflict(ours: str, winner: str, level: IsolationLevel, layout: TableKind, meeting: Meeting) -> Conflict | None:
    """The conflict of an operation with another one that committed first; None if there is none.

    Args:
        ours: the name of the operation.
        winner: the name of the other one.
        level: the isolation level.
        layout: the kind of table.
        meeting: the smallest thing that both change.
    """
    state = _state(ours, level, layout)
    theirs = _winner(winner, layout, 2 if meeting == "table" else 1)
    same, facts = meeting == "row", Facts.of(theirs)
    while True:
        found = check(state, theirs, facts)
        match found:
            case NeedVectors(descriptors):
                facts.vectors.update((one.unique_id, BitMap64([int(not same)])) for one in descriptors)
            case NeedRows(rows):
                facts.matches.update((file_key(one.add), same) for one in rows)
            case Conflict():
                return found
            case _:
                return None


def _file(name: str, p: int, layout: TableKind, *, changes: bool = True) -> Add:
    values: dict[str, str | None] = {} if layout.row_level else {"p": str(p)}
    return Add(
        path=name, partition_values=values, size=1, modification_time=0, data_change=changes, stats='{"numRecords":2}'
    )


def _old(p: int, layout: TableKind) -> Add:
    return _file(f"old-{p}", p, layout)


def _group(operation: str, p: int, name: str, layout: TableKind) -> Group:
    old, new = _old(p, layout), _file(name, p, layout, changes=False)
    permuted = operation == "ZORDER"
    places = () if permuted else (CopiedRows(old.path, None, 0, 2),)
    return Group((Input(old, NONE),), (Output(new, places),), permuted)


def _of_table(operation: str) -> list[AnyAction]:
    """The actions of an operation on the table itself."""
    if operation in {"SET PROPERTIES", "ADD COLUMNS", "REPLACE TABLE"}:
        return [_METADATA]
    return [Protocol(min_reader_version=1, min_writer_version=2)] if operation == "UPGRADE PROTOCOL" else []


def _brings_rows(operation: str, layout: TableKind) -> bool:
    # Without deletion vectors, the remaining rows of a file are written to a new one.
    return operation in {"INSERT", QUERY, "UPDATE", "MERGE", *REPLACING} or (
        operation == "DELETE" and not layout.vectors
    )


def _state(operation: str, level: IsolationLevel, layout: TableKind) -> TransactionState:
    old, row = _old(1, layout), BitMap64([0])
    actions = _of_table(operation)
    actions += [_file("ours", 1, layout)] if _brings_rows(operation, layout) else []
    read, deletes, groups = ReadSet(version=0), [], []
    if operation in {*UPDATING, QUERY}:
        read = read.with_predicate(_WHERE).with_rows([(old, row if layout.row_level else ALL)])
    if operation in REPLACING:
        read = read.with_everything()
    if operation in REARRANGING:
        groups.append(_group(operation, 1, "ours", layout))
    elif operation in {*UPDATING, *REPLACING}:
        if layout.vectors:
            deletes.append(RowDelete(old, NONE, row if operation in UPDATING else ALL))
        else:
            actions.append(tombstone(old, now_ms=0, data_change=True))
    changes = RowChanges(deletes=deletes, groups=groups, vectors=layout.vectors, row_level=layout.row_level)
    return TransactionState(read, [CommitInfo({"operation": operation}), *actions], level, ReadTable(), changes)


def _winner(operation: str, layout: TableKind, p: int) -> Footprint:
    old, new = _old(p, layout), _file("theirs", p, layout)
    name = "OPTIMIZE" if operation == "ZORDER" else operation
    info = {"operation": name, "isBlindAppend": operation == "INSERT", "engineInfo": "refdelta/"}
    actions = _of_table(operation) + ([new] if _brings_rows(operation, layout) else [])
    if operation in REARRANGING:
        group = _group(operation, p, "theirs", layout)
        info |= record([group])
        actions += [tombstone(old, now_ms=0, data_change=False), group.outputs[0].add]
    elif operation in {*UPDATING, *REPLACING}:
        actions.append(tombstone(old, now_ms=0, data_change=True))
        if operation in UPDATING and layout.vectors:
            actions.append(with_vector(old, _VECTOR, records=2, data_change=True))
    return fold(1, [CommitInfo(info), *actions])
