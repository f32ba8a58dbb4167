"""Operations in both worlds: what the judge makes of one, and the calls of the engine that do the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count

import msgspec
import pyarrow as pa

from model.calls import Program, Programmed
from model.layouts import CREATED
from model.operations import (
    Statement,
    Values,
    Where,
    colour,
    copy,
    delete,
    everything,
    in_order,
    insert,
    insert_once,
    key,
    merge,
    merge_all,
    merge_within,
    paint,
    plus,
    read_then_insert,
    rearrange,
    replace,
    restore,
    set_property,
)
from refdelta.api.transaction import WriteTransaction
from refdelta.core.log.actions import Add
from refdelta.core.rows.deletes import tombstone
from refdelta.engine.log.state import to_adds
from refdelta.engine.parquet.write import write_files
from refdelta.engine.scan.scan import plan_scan

_numbers = count()
SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("a", pa.int64())])


@dataclass(frozen=True, eq=False)
class Case:
    """One operation.

    Attributes:
        name: of this variant.
        kind: what precision is measured by.
        statement: in the judge's world.
        call: in the engine's: the calls on a transaction that has begun. What it returns are rows that it was shown.
        sql: the predicate of what it reads, empty for everything, None where nothing is read.
        asks: columns and the constants to which they are compared: what a plain checker of files goes by. None where
            nothing is read, and empty where everything is.
        application: whose version 1 it records.
        program: its calls, where it has been written as a program.
    """

    name: str
    kind: str
    statement: Statement | Programmed
    call: Callable[[WriteTransaction], list[Values] | None]
    sql: str | None
    asks: Mapping[str, tuple[int, ...]] | None
    application: str | None = None
    program: Program | None = None

    @property
    def rearranges(self) -> bool:
        """Whether it moves rows and changes none."""
        return self in (COMPACT, SORT, PURGE, BY_HAND, REFRESH) or self.kind == "OPTIMIZE"


def table(*values: Values) -> pa.Table:
    return pa.Table.from_pylist([{"k": k, "a": a} for k, a in values], schema=SCHEMA)


def values_of(rows: pa.Table) -> list[Values]:
    return in_order(zip(rows["k"].to_pylist(), rows["a"].to_pylist(), strict=True))


def _insert(*values: Values) -> Case:
    name = f"insert a={values[0][1]}"
    return Case(name, "INSERT", insert(*values), lambda txn: txn.append(table(*values)), None, None)


def _insert_once(*values: Values) -> Case:
    call = _insert(*values).call
    return Case("insert once", "INSERT", insert_once(*values), call, None, None, application="writer")


def _copy(before: int, after: int) -> Case:
    def call(txn):
        found = values_of(txn.read(predicate=f"a = {before}"))
        if found:
            txn.append(table(*((plus(k, 20), after) for k, _ in found)))
        return found

    statement = copy(colour(before), lambda k, _: (plus(k, 20), after))
    return Case(f"copy a={before} as {after}", "INSERT SELECT", statement, call, f"a = {before}", {"a": (before,)})


def _ask(name: str, sql: str, where: Where, asks: Mapping[str, tuple[int, ...]], *values: Values) -> Case:
    """Looks at some rows, then inserts what does not depend on them."""

    def call(txn):
        found = values_of(txn.read(predicate=sql))
        txn.append(table(*values))
        return found

    return Case(name, "INSERT SELECT", read_then_insert(where, *values), call, sql, asks)


def _delete_colour(a: int) -> Case:
    return _delete(f"a = {a}", colour(a), {"a": (a,)})


def _delete_key(k: int) -> Case:
    return _delete(f"k = {k}", key(k), {"k": (k,)})


def _delete(sql: str, where: Where, asks: Mapping[str, tuple[int, ...]]) -> Case:
    def call(txn):
        txn.delete(sql)

    return Case(f"delete {sql}", "DELETE", delete(where), call, sql, asks)


def _paint(before: int, after: int) -> Case:
    def call(txn):
        txn.update(updates={"a": str(after)}, predicate=f"a = {before}")

    return Case(
        f"update a={before} to {after}", "UPDATE", paint(before, after), call, f"a = {before}", {"a": (before,)}
    )


def _merge(source: Mapping[int, int], matched: str = "update") -> Case:
    def call(txn):
        builder = txn.merge(table(*source.items()), "t.k = s.k", source_alias="s", target_alias="t")
        if matched == "update":
            builder = builder.when_matched_update({"a": "s.a"})
        elif matched.startswith("delete"):
            builder = builder.when_matched_delete("s.a = 0" if matched == "delete some" else None)
        builder.when_not_matched_insert({"k": "s.k", "a": "s.a"}).execute()

    sql = f"k IN ({', '.join(map(str, source))})"
    name = f"merge {sql} {matched}"
    return Case(name, "MERGE", merge(source, matched=matched), call, sql, {"k": tuple(source)})


def _merge_all(source: Mapping[int, int]) -> Case:
    def call(txn):
        builder = txn.merge(table(*source.items()), "t.k = s.k", source_alias="s", target_alias="t")
        builder = builder.when_matched_update({"a": "s.a"}).when_not_matched_insert_all()
        builder.when_not_matched_by_source_delete().execute()

    return Case("merge by source", "MERGE", merge_all(source), call, "", {})


def _merge_within(a: int, *keys: int) -> Case:
    def call(txn):
        source = table(*((k, a) for k in keys))
        builder = txn.merge(source, f"t.k = s.k AND t.a = {a}", source_alias="s", target_alias="t")
        builder.when_matched_delete().when_not_matched_insert_all().execute()

    sql = f"k IN ({', '.join(map(str, keys))}) AND a = {a}"
    return Case(f"merge {sql}", "MERGE", merge_within(a, keys), call, sql, {"k": keys, "a": (a,)})


def _truncate() -> Case:
    def call(txn):
        txn.delete()

    return Case("truncate", "DELETE", delete(everything), call, "", {})


def _overwrite(*values: Values) -> Case:
    statement = replace(everything, *values)
    return Case("overwrite", "overwrite", statement, lambda txn: txn.overwrite(table(*values)), "", {})


def _replace_where(a: int, *values: Values) -> Case:
    def call(txn):
        txn.overwrite(table(*values), predicate=f"a = {a}")

    return Case(f"replace a={a}", "replaceWhere", replace(colour(a), *values), call, f"a = {a}", {"a": (a,)})


def _set_property() -> Case:
    def call(txn):
        txn.set_table_properties({"judged": str(next(_numbers))})

    return Case("set property", "SET PROPERTIES", set_property(), call, None, None)


def _maintenance(name: str, kind: str, call: Callable[[WriteTransaction], None]) -> Case:
    return Case(name, kind, rearrange(), call, None, None)


def _by_hand(public: WriteTransaction) -> None:
    """All files of each partition into one, by actions and not by groups: nobody can follow where its rows are."""
    txn = public._transaction
    snapshot = txn.existing
    inputs = list(to_adds(snapshot.files))
    if not inputs:
        return
    outputs = write_files(
        txn.store,
        plan_scan(snapshot).to_table().to_batches(),
        schema=snapshot.schema,
        partition_columns=snapshot.partition_columns,
        properties=snapshot.properties,
        data_change=False,
        workers=1,
    )
    txn.read_files(inputs)
    txn.stage_written(outputs)
    txn.stage(tombstone(add, now_ms=txn.started_ms, data_change=False) for add in inputs)
    txn.describe("OPTIMIZE", {"predicate": "[]"}, {})


def _refresh(public: WriteTransaction) -> None:
    """All files once more as they are, with other words about them."""
    txn = public._transaction
    txn.stage(refreshed(add) for add in to_adds(txn.existing.files))
    txn.describe("COMPUTE STATS", {}, {})


def refreshed(add: Add) -> Add:
    return msgspec.structs.replace(add, tags={"refreshed": str(next(_numbers))}, data_change=False)


def _restore() -> Case:
    """Back to version 0, in which a row more was live."""

    def call(txn):
        txn.restore(0)

    return Case("restore", "RESTORE", restore(CREATED), call, "", {})


INSERT_0 = _insert((10, 0))
INSERT_ONCE = _insert_once((18, 0))
COPY_0_1 = _copy(0, 1)
DELETE_0 = _delete_colour(0)
DELETE_K2 = _delete_key(2)
PAINT_1_0 = _paint(1, 0)
MERGE = _merge({2: 0, 12: 0})
MERGE_SOME = _merge({1: 0, 2: 1}, "delete some")
OVERWRITE = _overwrite((13, 0))
REPLACE_1 = _replace_where(1, (14, 1))
SET_PROPERTY = _set_property()
COMPACT = _maintenance("compact", "OPTIMIZE", lambda txn: txn.compact())
SORT = _maintenance("sort", "OPTIMIZE ZORDER", lambda txn: txn.z_order(["k"]))
PURGE = _maintenance("purge", "REORG PURGE", lambda txn: txn.reorg_purge())
BY_HAND = _maintenance("compact by hand", "OPTIMIZE", _by_hand)
REFRESH = _maintenance("refresh", "COMPUTE STATS", _refresh)
RESTORE = _restore()

BASIC = (
    *(INSERT_0, COPY_0_1, DELETE_0, PAINT_1_0, MERGE, OVERWRITE, REPLACE_1),
    *(SET_PROPERTY, COMPACT, SORT, PURGE, RESTORE),
)
"""One of each kind, chosen to get into each other's way."""

ALL = (
    *BASIC,
    _insert((11, 1)),
    INSERT_ONCE,
    _copy(1, 0),
    _copy(0, 0),
    _delete_colour(1),
    _delete_key(1),
    DELETE_K2,
    _paint(0, 1),
    _paint(1, 2),
    _merge({0: 1, 12: 1}, "nothing"),
    _merge({12: 0, 19: 1}),
    _merge({1: 0, 2: 0}, "delete"),
    MERGE_SOME,
    _replace_where(0, (15, 0)),
)
"""Variants of each."""

ABSENT = (_merge({9: 1}), _delete_key(9), _ask("ask k=9", "k = 9", key(9), {"k": (9,)}, (16, 4)))
"""These ask for the row that the table no longer has when histories begin."""

CYCLE = (
    INSERT_0,
    _ask("Y: ask k=10 or a=2", "k = 10 OR a = 2", lambda k, a: k == 10 or a == 2, {}, (16, 4)),
    _ask("Z: ask a=3", "a = 3", colour(3), {"a": (3,)}, (17, 2)),
    _paint(0, 3),
    _delete_colour(0),
)
"""Of these four make the contract's longer cycle."""

MAINTENANCE = (COMPACT, SORT, PURGE, MERGE_SOME, DELETE_K2, RESTORE)
"""Of these four make the contract's case of a MERGE that leaves a row alone, between compactions and a delete."""

MORE = (
    *ALL,
    *(case for case in CYCLE if case not in ALL),
    _merge_all({1: 0, 12: 1}),
    _merge_within(0, 0, 12),
    _merge_within(1, 2, 12),
    _truncate(),
    _delete_key(3),
    _ask("ask k<2", "k < 2", lambda k, _: k is not None and k < 2, {}, (16, 4)),
    BY_HAND,
    REFRESH,
)
"""And others, where there is time for them."""
