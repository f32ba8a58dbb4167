"""Operations in both worlds: what the judge makes of one, and the calls of the engine that do the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count

import pyarrow as pa

from model.operations import (
    Statement,
    Values,
    Where,
    colour,
    copy,
    delete,
    everything,
    insert,
    insert_once,
    key,
    merge,
    merge_all,
    merge_within,
    paint,
    read_then_insert,
    rearrange,
    replace,
    set_property,
)
from refdelta.engine.scan import plan_scan
from refdelta.engine.state import to_adds
from refdelta.engine.write import write_files
from refdelta.protocol.actions import Remove
from refdelta.transaction import WriteTransaction

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
    """

    name: str
    kind: str
    statement: Statement
    call: Callable[[WriteTransaction], list[Values] | None]
    sql: str | None
    asks: Mapping[str, tuple[int, ...]] | None
    application: str | None = None


def table(*values: Values) -> pa.Table:
    return pa.Table.from_pylist([{"k": k, "a": a} for k, a in values], schema=SCHEMA)


def values_of(rows: pa.Table) -> list[Values]:
    return sorted(zip(rows["k"].to_pylist(), rows["a"].to_pylist(), strict=True))


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
            txn.append(table(*((k + 20, after) for k, _ in found)))
        return found

    statement = copy(colour(before), lambda k, _: (k + 20, after))
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
        elif matched == "delete":
            builder = builder.when_matched_delete()
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
        txn.set_properties({"judged": str(next(_numbers))})

    return Case("set property", "SET PROPERTIES", set_property(), call, None, None)


def _compact() -> Case:
    return Case("compact", "compaction", rearrange(), compact, None, None)


def compact(txn: WriteTransaction) -> None:
    """All files of each partition into one, staged by hand."""
    snapshot, staging = txn._snapshot, txn._staging
    inputs = list(to_adds(snapshot.files))
    if not inputs:
        return
    outputs = write_files(
        staging.store,
        plan_scan(snapshot).to_table().to_batches(),
        schema=snapshot.schema,
        partition_columns=snapshot.partition_columns,
        properties=snapshot.properties,
        data_change=False,
        workers=1,
    )
    now = time.time_ns() // 1_000_000
    staging.read_files(inputs)
    staging.stage_written(outputs)
    staging.stage(
        Remove(
            path=add.path,
            deletion_timestamp=now,
            data_change=False,
            extended_file_metadata=True,
            partition_values=add.partition_values,
            size=add.size,
        )
        for add in inputs
    )
    staging.describe("OPTIMIZE", {"predicate": "[]"}, {})


INSERT_0 = _insert((10, 0))
COPY_0_1 = _copy(0, 1)
DELETE_0 = _delete_colour(0)
PAINT_1_0 = _paint(1, 0)
MERGE = _merge({2: 0, 12: 0})
OVERWRITE = _overwrite((13, 0))
REPLACE_1 = _replace_where(1, (14, 1))
SET_PROPERTY = _set_property()
COMPACT = _compact()

BASIC = (INSERT_0, COPY_0_1, DELETE_0, PAINT_1_0, MERGE, OVERWRITE, REPLACE_1, SET_PROPERTY, COMPACT)
"""One of each kind, chosen to get into each other's way."""

ALL = (
    *BASIC,
    _insert((11, 1)),
    _insert_once((18, 0)),
    _copy(1, 0),
    _copy(0, 0),
    _delete_colour(1),
    _delete_key(2),
    _paint(0, 1),
    _paint(1, 2),
    _merge({0: 1, 12: 1}, "nothing"),
    _merge({12: 0, 19: 1}),
    _merge({1: 0, 2: 0}, "delete"),
    _replace_where(0, (15, 0)),
)
"""Variants of each."""

CYCLE = (
    INSERT_0,
    _ask("Y: ask k=10 or a=2", "k = 10 OR a = 2", lambda k, a: k == 10 or a == 2, {}, (16, 4)),
    _ask("Z: ask a=3", "a = 3", colour(3), {"a": (3,)}, (17, 2)),
    _paint(0, 3),
    _delete_colour(0),
)
"""Of these four make the contract's longer cycle."""

MORE = (
    *ALL,
    *(case for case in CYCLE if case not in ALL),
    _merge_all({1: 0, 12: 1}),
    _merge_within(0, 0, 12),
    _merge_within(1, 2, 12),
    _truncate(),
    _ask("ask k<2", "k < 2", lambda k, _: k < 2, {}, (16, 4)),
)
"""And others, where there is time for them."""
