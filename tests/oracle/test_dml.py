"""DELETE, UPDATE and MERGE on copies of one table: refdelta and delta-spark leave the same rows.

A statement of delta-spark takes a second or so. So the rows of a table fall into groups by the column ``g``, and one
statement has a random condition for each of them: a dozen conditions are tried at the price of one.
"""

from __future__ import annotations

import shutil
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spark_tables
from comparison import assert_same_rows
from refdelta import DeltaTable, write_deltalake
from refdelta.crosscheck import oracle
from refdelta.errors import ConstraintViolationError
from spark_tables import tries

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("g", pa.int64()), ("k", pa.int64()), ("v", pa.int64()), ("d", pa.float64()), ("p", pa.string())])
GROUPS = 8
HIDDEN = 99  # of k; no statement names it

# --- rows and tables ---

small = st.one_of(st.none(), st.integers(-2, 4))
doubles = st.sampled_from([None, float("nan"), float("inf"), float("-inf"), -1.5, 0.0, 2.5])
words = st.sampled_from([None, "a", "b", "ab"])
rows = st.fixed_dictionaries({"g": st.integers(0, GROUPS - 1), "k": small, "v": small, "d": doubles, "p": words})
files = st.lists(st.lists(rows, min_size=2, max_size=20), min_size=1, max_size=4)
# Partition columns, and whether deletion vectors are enabled.
layouts = st.tuples(st.sampled_from([None, ["p"], ["g"], ["g", "p"]]), st.booleans())


def build(fresh_path: Any, parts: list[list[dict[str, Any]]], layout: tuple[list[str] | None, bool]) -> tuple[Any, Any]:
    """A table, and a copy of it. With deletion vectors, some of its rows are hidden by one already."""
    ours, theirs = fresh_path(), fresh_path()
    partition_by, vectors = layout
    for part in parts:
        rows = [*part, {**part[0], "k": HIDDEN}] if vectors else part
        data = pa.Table.from_pylist(rows, SCHEMA)
        configuration = {"delta.enableDeletionVectors": "true"} if vectors else None
        write_deltalake(ours, data, mode="append", partition_by=partition_by, configuration=configuration)
    if vectors:
        DeltaTable(ours).delete(f"k = {HIDDEN}")
    shutil.copytree(ours, theirs)
    return ours, theirs


def assert_same(spark: Any, ours: Any, theirs: Any) -> None:
    """delta-spark reads the same rows from both tables, and refdelta reads from its own what delta-spark does."""
    want = oracle.read_table(spark, theirs)
    assert_same_rows(oracle.read_table(spark, ours), want)
    assert_same_rows(DeltaTable(ours).to_pyarrow_table(), want)


# --- conditions and values, as SQL ---


def conditions(prefixes: tuple[str, ...] = ("",)) -> st.SearchStrategy[str]:
    def named(*columns: str) -> st.SearchStrategy[str]:
        return st.sampled_from([prefix + column for prefix in prefixes for column in columns])

    compare = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"])
    number = st.one_of(named("k", "v"), st.integers(-2, 4).map(str), st.just("CAST(NULL AS BIGINT)"))
    double = st.one_of(named("d"), st.sampled_from(["0.0D", "2.5D", "CAST('NaN' AS DOUBLE)"]))
    text = st.sampled_from(["'a'", "'b'", "'ab'"])
    leaf = st.one_of(
        st.builds("{} {} {}".format, named("k", "v"), compare, number),
        st.builds("{} {} {}".format, named("d"), compare, double),
        st.builds("{} {} {}".format, named("p"), compare, text),
        st.builds("{} + {} {} {}".format, named("k"), named("v"), compare, number),
        st.builds("{} IS {}NULL".format, named("k", "d", "p"), st.sampled_from(["", "NOT "])),
        st.builds("{} {}IN ({}, {})".format, named("k"), st.sampled_from(["", "NOT "]), number, number),
        st.builds("{} BETWEEN {} AND {}".format, named("v"), st.integers(-2, 1), st.integers(0, 4)),
        st.builds("{} LIKE {}".format, named("p"), st.sampled_from(["'a%'", "'_b'", "'%'"])),
        st.builds("coalesce({}, 0) > {}".format, named("k", "v"), st.integers(-1, 2)),
    )
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.builds("NOT ({})".format, inner),
            st.builds("({}) AND ({})".format, inner, inner),
            st.builds("({}) OR ({})".format, inner, inner),
        ),
        max_leaves=4,
    )


def values(prefix: str = "", other: str | None = None) -> dict[str, st.SearchStrategy[str]]:
    """SQL for each column that may be set."""
    prefixes = (prefix,) if other is None else (prefix, other)

    def named(*columns: str) -> st.SearchStrategy[str]:
        return st.sampled_from([one + column for one in prefixes for column in columns])

    number = st.one_of(named("k", "v"), st.integers(-2, 4).map(str), st.just("NULL"))
    choice = st.builds("CASE WHEN {} THEN {} ELSE {} END".format, conditions(prefixes), named("k", "v"), number)
    return {
        "k": st.one_of(number, st.builds("{} * 2 - {}".format, named("v"), named("k")), choice),
        "v": st.one_of(number, st.builds("coalesce({}, {})".format, named("v"), number), choice),
        "d": st.one_of(named("d", "v"), st.just("CAST('NaN' AS DOUBLE)"), st.builds("{} / 2".format, named("d"))),
        "p": st.one_of(
            named("p"), words.map(lambda w: "NULL" if w is None else f"'{w}'"), named("p").map("upper({})".format)
        ),
    }


def by_group(chosen: list[str]) -> str:
    """The condition that is for each group its own."""
    return " OR ".join(f"(g = {group} AND ({condition}))" for group, condition in enumerate(chosen))


def value_by_group(column: str, chosen: list[str]) -> str:
    whens = " ".join(f"WHEN {group} THEN {value}" for group, value in enumerate(chosen))
    return f"CASE g {whens} ELSE {column} END"


a_condition_for_each_group = st.lists(conditions(), min_size=GROUPS, max_size=GROUPS).map(by_group)


# --- the statements ---


@tries(6)
@given(parts=files, layout=layouts, condition=st.one_of(a_condition_for_each_group, conditions()))
def test_delete(quick_spark, fresh_path, parts, layout, condition):
    ours, theirs = build(fresh_path, parts, layout)
    DeltaTable(ours).delete(condition)
    spark_tables.sql(quick_spark, theirs, f"DELETE FROM {{t}} WHERE {condition}")
    assert_same(quick_spark, ours, theirs)


@pytest.mark.tier("nightly")
@tries(6)
@given(parts=files, layout=layouts, condition=a_condition_for_each_group, data=st.data())
def test_update(quick_spark, fresh_path, parts, layout, condition, data):
    columns = data.draw(st.lists(st.sampled_from(["k", "v", "d", "p"]), min_size=1, unique=True), label="columns")
    per_group = {name: st.lists(values()[name], min_size=GROUPS, max_size=GROUPS) for name in columns}
    updates = {name: value_by_group(name, data.draw(drawn, label=name)) for name, drawn in per_group.items()}
    ours, theirs = build(fresh_path, parts, layout)
    DeltaTable(ours).update(updates, predicate=condition)
    sets = ", ".join(f"{name} = {value}" for name, value in updates.items())
    spark_tables.sql(quick_spark, theirs, f"UPDATE {{t}} SET {sets} WHERE {condition}")
    assert_same(quick_spark, ours, theirs)


@st.composite
def merges(draw: st.DrawFn) -> tuple[str, list[tuple[str, str, str | None, dict[str, str] | None]]]:
    """ON, and clauses: when, what, on which condition, with which values (None for all columns)."""
    on = draw(
        st.sampled_from(
            [
                "t.g = s.g AND t.k = s.k",
                "t.g = s.g AND t.k <=> s.k",
                "t.g = s.g AND t.k = s.k AND t.p = 'a'",
                "t.k = s.k AND t.p = s.p AND t.v > 0",
                "t.g = s.g AND t.d = s.d",
                "t.g = s.g AND t.k + 1 = s.v",
            ]
        )
    )
    clauses = []
    for when, prefix, other, kinds in (
        ("matched", "t.", "s.", ["update", "all", "delete"]),
        ("not matched", "s.", None, ["insert", "all"]),
        ("not matched by source", "t.", None, ["update", "delete"]),
    ):
        count = draw(st.integers(0, 2))
        for index in range(count):
            tested = conditions((prefix,) if other is None else (prefix, other))
            condition = draw(tested if index < count - 1 else st.one_of(st.none(), tested))
            kind = draw(st.sampled_from(kinds))
            columns = draw(st.lists(st.sampled_from(["k", "v", "d", "p"]), min_size=1, unique=True))
            sets = {name: draw(values(prefix, other)[name]) for name in columns}
            clauses.append((when, kind, condition, sets if kind in {"update", "insert"} else None))
    return on, clauses or [("matched", "all", None, None)]


def run_merge(path: Any, source: pa.Table, on: str, clauses: list[Any]) -> None:
    merger = DeltaTable(path).merge(source, on)
    for when, kind, condition, sets in clauses:
        verb = {"matched": "update_all", "not matched": "insert_all"}[when] if kind == "all" else kind
        given_sets = () if sets is None else (sets,)
        getattr(merger, f"when_{when.replace(' ', '_')}_{verb}")(*given_sets, predicate=condition)
    merger.execute()


def merge_sql(on: str, clauses: list[Any]) -> str:
    lines = [f"MERGE INTO {{t}} t USING source s ON {on}"]
    for when, kind, condition, sets in clauses:
        test = f" AND ({condition})" if condition else ""
        match when, kind:
            case "matched", "all":
                then = "UPDATE SET *"
            case "not matched", "all":
                then = "INSERT *"
            case _, "delete":
                then = "DELETE"
            case _, "update":
                then = "UPDATE SET " + ", ".join(f"{name} = {value}" for name, value in sets.items())
            case _:
                then = f"INSERT ({', '.join(sets)}) VALUES ({', '.join(sets.values())})"
        lines.append(f"WHEN {when.upper()}{test} THEN {then}")
    return "\n".join(lines)


@tries(10)
@given(parts=files, layout=layouts, source=st.lists(rows, max_size=8), request=merges(), unique=st.integers(0, 3))
def test_merge(quick_spark, fresh_path, parts, layout, source, request, unique):
    on, clauses = request
    if unique:  # most sources have one row a key, as a MERGE needs
        source = list({(row["g"], row["k"]): row for row in source}.values())
    ours, theirs = build(fresh_path, parts, layout)
    incoming = pa.Table.from_pylist(source, SCHEMA)
    spark_tables.frame(quick_spark, incoming).createOrReplaceTempView("source")
    try:
        run_merge(ours, incoming, on, clauses)
    except ConstraintViolationError:
        with pytest.raises(Exception, match="DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"):
            spark_tables.sql(quick_spark, theirs, merge_sql(on, clauses))
    else:
        spark_tables.sql(quick_spark, theirs, merge_sql(on, clauses))
    assert_same(quick_spark, ours, theirs)
