"""MERGE: clauses and their order, keys of every type, schema evolution, what the commit says, what is refused.

Tests of api.merge_builder, operations.merge.execution, operations.merge.join, operations.merge.plan,
operations.merge.result, operations.merge.strategy.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
from decimal import Decimal
from random import Random

import duckdb
import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.arrow.schema import from_arrow
from refdelta.errors import ColumnNotFoundError, ConstraintViolationError, InvalidArgumentError, PredicateError
from refdelta.expressions.scope import Scope
from refdelta.expressions.sql import parse_predicate
from refdelta.operations.merge import matches
from refdelta.operations.merge.join import JoinCondition
from written_tables import actions, with_vector

NAN = float("nan")
INT = pa.int64()
numbers = itertools.count()


def rows(table, *names):
    found = table.to_pyarrow_table(list(names) or None).to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


@pytest.fixture
def table(tmp_path):
    """Two files: 1 2, 3 null."""
    write_deltalake(tmp_path / "t", pa.table({"id": [1, 2], "v": ["a", "b"]}))
    write_deltalake(tmp_path / "t", pa.table({"id": [3, None], "v": ["c", "null"]}), mode="append")
    return DeltaTable(tmp_path / "t")


def source(**columns):
    return pa.table(columns)


# --- what is read ---

PARTS = ["a", "b", None]
TARGET = pa.schema([("k", INT), ("v", INT), ("p", pa.string())])


@pytest.fixture
def parted():
    """A file for each partition, of which one is null; with ``k`` 0 and 10, 100 and 110, 200 and 210."""
    uri = f"memory://parted{next(numbers)}"
    for number, part in enumerate(PARTS):
        rows = pa.table({"k": [100 * number, 100 * number + 10], "v": [0, 0], "p": pa.array([part] * 2, pa.string())})
        write_deltalake(uri, rows, mode="append", partition_by=["p"])
    return DeltaTable(uri)


def by_source(merger, *conditions):
    for condition in conditions:
        merger = merger.when_not_matched_by_source_update({"v": "t.v + 1"}, condition)
    return merger


BY_SOURCE = {
    "its partition": (["t.p = 'a'"], {"a"}),
    "another one than the source's": (["p = 'b'"], {"a", "b"}),
    "no partition": (["t.p = 'none'"], {"a"}),
    "the null one": (["t.p is null"], {"a", None}),
    "several clauses": (["t.p = 'b' and t.k > 5", "t.p is null"], {"a", "b", None}),
    "a data column": (["t.k = 210"], {"a", None}),
    "either": (["t.k = 110 or t.p = 'a'"], {"a", "b"}),
    "unknown": (["t.v + t.k > -1"], {"a", "b", None}),
    "a clause for all rows": (["t.p = 'b'", None], {"a", "b", None}),
}


@pytest.mark.parametrize("name", BY_SOURCE)
def test_clauses_by_source_read_what_their_conditions_may_be_true_for(parted, name):
    conditions, read = BY_SOURCE[name]
    rows = source(k=[0], v=[7], p=["a"])

    def merging(merger):
        return by_source(merger.when_matched_update_all().when_not_matched_insert_all(), *conditions)

    on = "t.p = s.p and t.k = s.k"
    for part in PARTS:
        txn = parted.begin()
        merging(txn.merge(rows, on)).execute()
        parted.update({"v": "v + 0"}, predicate=f"p <=> {'NULL' if part is None else repr(part)}")
        if part in read:
            with pytest.raises(errors.ConcurrentModificationError):
                txn.commit()
        else:
            txn.commit()
    assert merging(parted.merge(rows, on)).execute()["num_target_files_scanned"] == len(read)


def test_a_row_that_a_clause_by_source_would_change_is_a_conflict(parted):
    parted.alter.set_table_properties({"delta.isolationLevel": "Serializable"})
    for k, conflicts in ((99, True), (5, False), (0, True)):
        txn = parted.begin()
        by_source(txn.merge(source(k=[0]), "t.k = s.k").when_matched_delete(), "t.p = 'a' and t.k > 50").execute()
        write_deltalake(parted.table_uri, source(k=[k], v=[0], p=["a"]), mode="append")
        if conflicts:
            with pytest.raises(errors.ConcurrentModificationError):
                txn.commit()
        else:
            txn.commit()


SPELLED = [
    "t.{0} <=> s.{0}",
    "s.{0} <=> t.{0}",
    "t.{0} is not distinct from s.{0}",
    "equal_null(t.{0}, s.{0})",
    *(
        form.format(equal, nulls)
        for form in ("{} or ({})", "({1}) or {0}", "({0} or ({1}))")
        for equal in ("t.{0} = s.{0}", "s.{0} = t.{0}", "t.{0} <=> s.{0}")
        for nulls in ("t.{0} is null and s.{0} is null", "s.{0} is null and t.{0} is null")
    ),
]


@pytest.mark.tier("test")
@pytest.mark.parametrize("form", SPELLED)
def test_null_safe_equalities_are_keys(parted, form):
    for part, column in itertools.product(PARTS, ("p", "k")):
        number = PARTS.index(part)
        rows = source(k=pa.array([100 * number], pa.int32()), p=pa.array([part], pa.string()))
        on = form.format(column)
        scope = Scope.of_two("t", from_arrow(TARGET), "s", from_arrow(rows.schema))
        plan = JoinCondition.of(parse_predicate(on, scope), "t")
        assert [key.nulls for key in plan.keys] == [True]
        txn = parted.begin()
        txn.merge(rows, on).when_matched_update({"v": "t.v + 1"}).execute()
        other = PARTS[number - 1]
        parted.update({"v": "v + 0"}, predicate=f"p <=> {'NULL' if other is None else repr(other)}")
        result = txn.commit()
        assert result["num_target_files_scanned"] == 1
        assert result["num_target_rows_updated"] == (2 if column == "p" else 1)


NEARLY = [
    "t.k = s.k or (t.k is null and s.v is null)",
    "t.k = s.k or (t.k is null and t.k is null)",
    "t.k = s.k or (t.k is null and s.k is null and t.v = 1)",
    "t.k = s.k or t.k is null",
    "t.k = s.k and (t.k is null or s.k is null)",
    "t.k >= s.k or (t.k is null and s.k is null)",
    "t.k = s.k or not (t.k is null and s.k is null)",
    "t.k = s.k or (try_cast(t.w as int) is null and s.k is null)",
]


@pytest.mark.parametrize("on", NEARLY)
def test_other_conditions_are_no_null_safe_keys(on):
    schema = from_arrow(pa.schema([("k", INT), ("v", INT), ("w", pa.string())]))
    plan = JoinCondition.of(parse_predicate(on, Scope.of_two("t", schema, "s", schema)), "t")
    assert [key.nulls for key in plan.keys] in ([], [False])


def test_many_null_safe_keys_are_a_range_and_the_null():
    uri = "memory://many-null-safe"
    for first in (None, 0, 2000):
        keys = [None, None] if first is None else list(range(first, first + 1000))
        write_deltalake(uri, pa.table({"k": pa.array(keys, INT), "v": pa.array([0] * len(keys), INT)}), mode="append")
    for keys, files in ((range(5, 905), 1), ([*range(5, 905), None], 2)):
        merge = (
            DeltaTable(uri)
            .merge(source(k=pa.array(keys, INT)), "t.k <=> s.k and t.v = 0")
            .when_not_matched_insert({"k": "-1"})
        )
        assert merge.execute()["num_target_files_scanned"] == files


# --- clauses ---


def test_the_first_clause_that_holds_takes_the_row(table):
    result = (
        table.merge(source(id=[1, 2, 3, 9, 10], v=["x"] * 5), "t.id = s.id")
        .when_matched_update({"v": "'first'"}, predicate="s.id = 1")
        .when_matched_delete(predicate="t.id <= 2")
        .when_matched_update({"v": "concat(t.v, s.v)"})
        .when_not_matched_insert({"id": "id", "v": "'ten'"}, predicate="s.id = 10")
        .when_not_matched_insert_all(predicate="s.id < 0")
        .when_not_matched_by_source_update({"v": "'alone'"})
        .execute()
    )
    assert rows(table) == rows_of((1, "first"), (3, "cx"), (10, "ten"), (None, "alone"))
    wanted = {
        "num_source_rows": 5,
        "num_target_rows_inserted": 1,
        "num_target_rows_updated": 3,
        "num_target_rows_deleted": 1,
        "num_target_rows_copied": 0,
        "num_output_rows": 4,
        "num_target_files_removed": 2,
    }
    assert {name: result[name] for name in wanted} == wanted


def rows_of(*found):
    return sorted(found, key=repr)


def test_files_in_which_nothing_changes_stay(table):
    merge = table.merge(source(id=[1, 3], v=["x", "x"]), "t.id = s.id").when_matched_update_all("t.id = 3")
    result = merge.execute()
    assert (result["num_target_files_removed"], result["num_target_files_added"]) == (1, 1)
    assert result["num_target_rows_copied"] == 1
    assert rows(table) == rows_of((1, "a"), (2, "b"), (3, "x"), (None, "null"))


def test_files_are_skipped_by_the_keys_of_the_source(table):
    result = table.merge(source(id=[1], v=["x"]), "t.id = s.id").when_matched_delete().execute()
    assert (result["num_target_files_scanned"], result["num_target_files_skipped_during_scan"]) == (1, 1)
    result = table.merge(source(id=[1], v=["x"]), "t.id = s.id AND t.v = 'b'").when_matched_delete().execute()
    assert (result.version, result["num_target_files_scanned"]) == (None, 0)  # both files begin behind 1 by now


def test_inserts_alone_remove_nothing_and_never_mind_repeated_rows(table):
    merge = table.merge(source(id=[1, 1, 9, 9], v=["x"] * 4), "t.id = s.id").when_not_matched_insert_all()
    result = merge.execute()
    assert (result["num_target_files_removed"], result["num_target_rows_inserted"]) == (0, 2)
    assert table.count() == 6


def test_a_merge_that_changes_nothing_commits_nothing(table):
    result = table.merge(source(id=[7], v=["x"]), "t.id = s.id").when_matched_delete().execute()
    assert (result.version, table.version()) == (None, 1)
    empty = pa.table({"id": pa.array([], pa.int64()), "v": pa.array([], pa.string())})
    assert table.merge(empty, "t.id = s.id").when_not_matched_insert_all().execute().version is None


def test_rows_that_no_row_of_the_source_matches(table):
    empty = pa.table({"id": pa.array([], pa.int64())})
    table.merge(empty, "t.id = s.id").when_not_matched_by_source_delete("t.id IS NULL").execute()
    assert rows(table) == rows_of((1, "a"), (2, "b"), (3, "c"))
    table.merge(source(id=[1]), "t.id = s.id").when_not_matched_by_source_delete().execute()
    assert rows(table) == [(1, "a")]


def test_several_rows_of_the_source_for_one_row_are_an_error_that_shows_the_key(table):
    twice = source(id=[3, 3, 1], v=["x", "y", "z"])
    before = rows(table)
    with pytest.raises(ConstraintViolationError, match=r"2 rows of the source match one row of the table \(id=3\)"):
        table.merge(twice, "t.id = s.id").when_matched_update_all().execute()
    with pytest.raises(ConstraintViolationError, match="id=3"):
        table.merge(twice, "t.id = s.id").when_matched_delete("s.v = 'x'").execute()
    assert rows(table) == before
    result = table.merge(twice, "t.id = s.id").when_matched_delete().execute()
    assert result["num_target_rows_deleted"] == 2


def test_aliases_and_names_without_them(table):
    merge = table.merge(source(id=[1], w=["x"]), "old.id = new.id AND w = 'x'", "new", "old")
    merge.when_matched_update({"old.v": "concat(v, w)"}, predicate="v = 'a'").execute()
    assert (1, "ax") in rows(table)
    with pytest.raises(PredicateError, match="'id' is ambiguous"):
        table.merge(source(id=[1]), "id = 1").when_matched_delete().execute()
    with pytest.raises(PredicateError, match="same alias"):
        table.merge(source(id=[1]), "id = 1", "t", "T").when_matched_delete().execute()


# --- keys ---


@pytest.mark.sample(check=8)
@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        (["a", "ä", "", None], pa.string()),
        ([b"a", b"\xff", b"", None], pa.binary()),
        ([True, False, None], pa.bool_()),
        ([Decimal("1.50"), Decimal("-3.25"), None], pa.decimal128(9, 2)),
        ([dt.date(2020, 1, 1), dt.date(1900, 1, 1), None], pa.date32()),
        ([dt.datetime(2020, 1, 1, 1), dt.datetime(1900, 1, 1), None], pa.timestamp("us", "UTC")),
        ([dt.datetime(2020, 1, 1, 1), dt.datetime(1900, 1, 1), None], pa.timestamp("us")),
        ([0.0, -1.5, NAN, float("inf"), None], pa.float64()),
        ([0.0, -1.5, NAN, None], pa.float32()),
        ([1, -128, None], pa.int8()),
    ],
)
@pytest.mark.parametrize("op", ["=", "<=>"])
def test_keys_of_every_type(tmp_path, keys, kind, op):
    own = pa.table({"k": pa.array(keys, kind), "n": list(range(len(keys)))})
    write_deltalake(tmp_path, own)
    table = DeltaTable(tmp_path)
    result = (
        table.merge(pa.table({"k": pa.array(keys, kind)}), f"t.k {op} s.k")
        .when_matched_update({"n": "n + 100"})
        .when_not_matched_insert({"n": "-1"})
        .execute()
    )
    matched = len(keys) - (op == "=")
    assert result["num_target_rows_updated"] == matched
    assert result["num_target_rows_inserted"] == len(keys) - matched
    assert {n for (n,) in rows(table, "n") if n >= 100} == set(range(100, 100 + matched))


def test_zero_has_one_meaning_whatever_its_sign(tmp_path):
    write_deltalake(tmp_path, pa.table({"k": [0.0, -0.0]}))
    merge = DeltaTable(tmp_path).merge(pa.table({"k": [-0.0]}), "t.k = s.k").when_matched_delete()
    assert merge.execute()["num_target_rows_deleted"] == 2


def test_keys_of_different_types_meet_in_the_wider_one(tmp_path):
    write_deltalake(tmp_path, pa.table({"k": pa.array([1, 2, 3], pa.int32())}))
    table = DeltaTable(tmp_path)
    for keys in (pa.array([1], pa.int64()), pa.array([2.0]), pa.array([Decimal("3.0")])):
        assert (
            table.merge(pa.table({"k": keys}), "s.k = t.k").when_matched_delete().execute()["num_target_rows_deleted"]
            == 1
        )


def test_several_keys_and_expressions_as_keys(tmp_path):
    write_deltalake(tmp_path, pa.table({"a": [1, 1, 2], "b": ["x", "y", "x"], "n": [0, 0, 0]}))
    table = DeltaTable(tmp_path)
    matches = pa.table({"a": [1, 2], "b": ["Y", "X"]})
    table.merge(matches, "t.a = s.a AND upper(t.b) = s.b").when_matched_update({"n": "1"}).execute()
    assert rows(table) == [(1, "x", 0), (1, "y", 1), (2, "x", 1)]


def test_conditions_without_any_equality(tmp_path):
    write_deltalake(tmp_path, pa.table({"a": list(range(10))}))
    table = DeltaTable(tmp_path)
    result = (
        table.merge(pa.table({"lo": [2, 7], "hi": [3, 8]}), "t.a BETWEEN s.lo AND s.hi").when_matched_delete().execute()
    )
    assert result["num_target_rows_deleted"] == 4
    table.merge(pa.table({"x": [1]}), "false").when_not_matched_insert({"a": "x + 100"}).execute()
    assert [a for (a,) in rows(table)] == [0, 1, 101, 4, 5, 6, 9]


BY_PARTS = [
    ("t.a = s.a or t.b = s.b", 2),
    ("t.a = s.a or t.b <=> s.b", 2),
    ("(t.a = s.a and t.n > 3) or (t.b = s.b and s.n < 5)", 2),
    ("(t.a = s.a or t.b = s.b or t.n = s.n) and t.n <> s.n", 3),
    ("t.a = s.a or (t.b = s.b or (t.n = s.n and s.a > 2))", 3),
    ("t.a = s.a or t.n > s.n", 0),
    ("(t.a > s.a or t.n = s.n) and (t.a = s.a or t.b = s.b)", 2),
]


@pytest.mark.parametrize(("on", "ways"), BY_PARTS)
def test_a_disjunction_is_joined_by_the_keys_of_its_parts(on, ways, monkeypatch):
    """The pairs are those of DuckDB, each once though several parts hold for it, and no product is made of them."""
    random = Random(7)

    def some(count):
        def column():
            return pa.array([random.choice([None, *range(9)]) for _ in range(count)], INT)

        return pa.table({"a": column(), "b": column(), "n": pa.array(range(count), INT)})

    target, rows = some(40), some(15)
    scope = Scope.of_two("t", from_arrow(target.schema), "s", from_arrow(rows.schema))
    assert len(JoinCondition.of(parse_predicate(on, scope), "t").joins) == ways
    products = []
    whole = matches._products
    monkeypatch.setattr(matches, "_products", lambda *sides: [products.append(1), whole(*sides)][1])
    sql = on.replace("<=>", "is not distinct from")
    wanted = duckdb.sql(f"select distinct t.n from target t join rows s on {sql}").fetchnumpy()["n"]
    uri = f"memory://by-parts-{next(numbers)}"
    write_deltalake(uri, target)
    result = DeltaTable(uri).merge(rows, on).when_matched_delete().execute()
    assert result["num_target_rows_deleted"] == len(wanted)
    left = DeltaTable(uri).to_pyarrow_table()["n"].to_pylist()
    assert sorted(left) == sorted({*range(40)} - {*wanted.tolist()})
    assert bool(products) == (not ways)


def test_a_pair_for_which_several_parts_hold_is_one_pair(tmp_path):
    write_deltalake(tmp_path, pa.table({"a": [1, 2], "b": [5, 6], "n": [0, 0]}))
    table = DeltaTable(tmp_path)
    both = pa.table({"a": [1], "b": [5]})
    table.merge(both, "t.a = s.a or t.b = s.b").when_matched_update({"n": "n + 1"}).execute()
    assert rows(table) == [(1, 5, 1), (2, 6, 0)]
    two = pa.table({"a": [1, 7], "b": [8, 5]})
    with pytest.raises(ConstraintViolationError, match="2 rows of the source match"):
        table.merge(two, "t.a = s.a or t.b = s.b").when_matched_update({"n": "9"}).execute()


# --- columns and schema ---


def test_all_columns_need_their_counterpart(table):
    with pytest.raises(ColumnNotFoundError, match="'v' does not exist in the source, but update of all columns"):
        table.merge(source(id=[1]), "t.id = s.id").when_matched_update_all().execute()
    table.merge(source(id=[1], v=["x"], more=[1]), "t.id = s.id").when_matched_update_all().execute()
    assert table.schema().names == ["id", "v"]
    table.merge(source(id=[2]), "t.id = s.id").when_matched_update_all(except_cols=["v"]).execute()
    table.merge(source(id=[8]), "t.id = s.id").when_not_matched_insert_all(except_cols=["v"]).execute()
    assert rows(table) == rows_of((1, "x"), (2, "b"), (3, "c"), (8, None), (None, "null"))


def test_schema_evolution_by_all_columns(table):
    more = source(ID=[1, 9], new=[10, 90])
    (
        table.merge(more, "t.id = s.id", merge_schema=True)
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )
    assert table.schema().names == ["id", "v", "new"]
    assert rows(table) == rows_of((1, "a", 10), (2, "b", None), (3, "c", None), (9, None, 90), (None, "null", None))


def test_schema_evolution_by_name_and_without_a_row(table):
    more = source(id=[77], new=[10], other=[1])
    merge = table.merge(more, "t.id = s.id", merge_schema=True).when_matched_update({"new": "s.new + 1"})
    assert merge.execute().version == 2
    assert table.schema().names == ["id", "v", "new"]
    with pytest.raises(ColumnNotFoundError, match="'other'"):
        table.merge(more, "t.id = s.id").when_matched_update({"other": "1"}).execute()


def test_schema_evolution_within_structs(tmp_path):
    write_deltalake(tmp_path, pa.table({"id": [1, 2], "s": [{"a": 1, "b": 2}, None]}))
    table = DeltaTable(tmp_path)
    more = pa.table({"id": [1, 8, 9], "s": [{"a": 10, "c": 30}, None, {"a": 90, "c": 91}]})
    merge = table.merge(more, "t.id = s.id", "s", "t", merge_schema=True)
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert {row["id"]: row["s"] for row in table.to_pyarrow_table().to_pylist()} == {
        1: {"a": 10, "b": 2, "c": 30},
        2: None,
        8: None,
        9: {"a": 90, "b": None, "c": 91},
    }


WRAPPED = {
    "struct": (lambda value: value, lambda kind: kind),
    "within a struct": (lambda value: {"in": value}, lambda kind: pa.struct([("in", kind)])),
    "list": (lambda value: [value], pa.list_),
    "map": (lambda value: [("key", value)], lambda kind: pa.map_(pa.string(), kind)),
}


@pytest.mark.parametrize("wrapped", WRAPPED)
@pytest.mark.parametrize("new", ["xy", "y", "yx", "xyz"])
def test_a_struct_that_is_assigned_may_have_other_fields(new, wrapped):
    value, kind = WRAPPED[wrapped]
    uri = f"memory://struct-{new}-{wrapped.replace(' ', '-')}"

    def data(ids, fields, structs):
        kinds = kind(pa.struct([(name, INT) for name in fields]))
        return pa.table({"id": ids, "c": pa.array(list(map(value, structs)), kinds)})

    def struct(number, fields):
        return {name: number + place for place, name in enumerate(fields)}

    write_deltalake(uri, data([0, 1, 2], "yz", [struct(0, "yz"), None, struct(20, "yz")]))
    source = data([0, 2, 3], new, [struct(100, new), None, struct(300, new)])
    merge = DeltaTable(uri).merge(source, "t.id = s.id", merge_schema=True).when_matched_update({"t.c": "s.c"})
    merge.when_not_matched_insert({"id": "s.id", "c": "s.c"}).when_not_matched_by_source_update({"c": "t.c"}).execute()
    fields = [*"yz", *(["x"] if "x" in new else [])]
    wanted = {0: struct(100, new), 1: None, 2: None, 3: struct(300, new)}
    filled = {i: one and {name: one.get(name) for name in fields} for i, one in wanted.items()}
    found = {row["id"]: row["c"] for row in DeltaTable(uri).to_pyarrow_table().to_pylist()}
    assert found == {i: value(one) for i, one in filled.items()}
    odd = DeltaTable(uri).merge(data([0], "w", [{"w": 1}]), "t.id = s.id").when_matched_update({"c": "s.c"})
    with pytest.raises(errors.SchemaMismatchError, match="merge_schema=True"):
        odd.execute()


def test_a_field_that_is_assigned_is_added_alone():
    uri = "memory://field-alone"
    write_deltalake(uri, pa.table({"id": [0, 1], "c": [{"y": 1}, {"y": 2}]}))
    source = pa.table({"id": [0], "c": [{"y": "text", "X": 5, "unused": 6}]})
    merge = DeltaTable(uri).merge(source, "t.id = s.id", merge_schema=True)
    merge.when_matched_update({"c.x": "s.c.X + 1", "c.y": "length(s.c.y)"}).execute()
    assert [row["c"] for row in DeltaTable(uri).to_pyarrow_table().sort_by("id").to_pylist()] == [
        {"y": 4, "X": 6},
        {"y": 2, "X": None},
    ]


def test_values_are_stored_as_spark_stores_them(table):
    table.merge(source(id=pa.array([1], pa.int32()), v=[5]), "t.id = s.id").when_matched_update_all().execute()
    assert (1, "5") in rows(table)
    with pytest.raises(errors.DeltaError, match="'x'"):
        table.merge(source(k=["x"]), "t.id = 1").when_matched_update({"id": "s.k"}).execute()


def test_rows_move_between_partitions(tmp_path):
    write_deltalake(tmp_path, pa.table({"id": [1, 2], "p": ["a", "a"]}), partition_by="p")
    table = DeltaTable(tmp_path)
    merge = table.merge(pa.table({"id": [2, 3], "p": ["b", "c"]}), "t.id = s.id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert rows(table) == [(1, "a"), (2, "b"), (3, "c")]
    assert {part["p"] for part in table.partitions()} == {"a", "b", "c"}


def test_nulls_where_the_table_has_none_leave_nothing(tmp_path):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
    write_deltalake(tmp_path, pa.table({"id": [1], "v": ["a"]}, schema))
    table = DeltaTable(tmp_path)
    files = sorted(tmp_path.glob("*.parquet"))
    for merge in (
        table.merge(source(v=["a"]), "t.v = s.v").when_matched_update({"id": "NULL"}),
        table.merge(source(v=["b"]), "t.v = s.v").when_not_matched_insert({"v": "s.v"}),
    ):
        with pytest.raises(ConstraintViolationError, match="id"):
            merge.execute()
    assert sorted(tmp_path.glob("*.parquet")) == files


@pytest.mark.breaks_tables
def test_deletion_vectors_of_other_engines(tmp_path):
    vector = with_vector(tmp_path, [0, 9])
    table = DeltaTable(tmp_path)
    result = (
        table.merge(source(id=[0, 1, 2]), "t.id = s.id")
        .when_matched_update({"id": "t.id + 100"}, predicate="s.id = 1")
        .when_matched_delete()
        .when_not_matched_insert_all()
        .execute()
    )
    assert [number for (number,) in rows(table)] == sorted([0, 101, *range(3, 9)], key=str)
    assert (result["num_target_rows_inserted"], result["num_target_rows_copied"]) == (1, 6)
    (remove,) = actions(tmp_path, 2, "remove")
    assert remove["deletionVector"] == vector
    assert table.history(1)[0]["operationMetrics"]["numTargetDeletionVectorsRemoved"] == "1"


def test_append_only_tables_take_inserts_and_nothing_else(tmp_path):
    write_deltalake(tmp_path, pa.table({"id": [1]}), configuration={"delta.appendOnly": "true"})
    table = DeltaTable(tmp_path)
    table.merge(source(id=[1, 2]), "t.id = s.id").when_not_matched_insert_all().execute()
    assert rows(table) == [(1,), (2,)]
    with pytest.raises(ConstraintViolationError, match="append-only"):
        table.merge(source(id=[7]), "t.id = s.id").when_matched_delete().execute()


# --- the commit ---


def test_what_the_commit_says(table):
    (
        table.merge(source(id=[1, 9], v=["x", "y"]), "t.id = s.id")
        .when_matched_update_all("s.v = 'x'")
        .when_matched_delete()
        .when_not_matched_insert_all()
        .when_not_matched_by_source_delete("t.id = 2")
        .execute()
    )
    info = table.history(1)[0]
    assert (info["operation"], info["isBlindAppend"], info["readVersion"]) == ("MERGE", False, 1)
    parameters = {name: json.loads(text) for name, text in info["operationParameters"].items()}
    assert parameters == {
        "predicate": ["t.id = s.id"],
        "matchedPredicates": [{"predicate": "s.v = 'x'", "actionType": "update"}, {"actionType": "delete"}],
        "notMatchedPredicates": [{"actionType": "insert"}],
        "notMatchedBySourcePredicates": [{"predicate": "t.id = 2", "actionType": "delete"}],
    }
    metrics = info["operationMetrics"]
    wanted = {
        "numSourceRows": "2",
        "numTargetRowsInserted": "1",
        "numTargetRowsUpdated": "1",
        "numTargetRowsMatchedUpdated": "1",
        "numTargetRowsNotMatchedBySourceUpdated": "0",
        "numTargetRowsDeleted": "1",
        "numTargetRowsMatchedDeleted": "0",
        "numTargetRowsNotMatchedBySourceDeleted": "1",
        "numTargetRowsCopied": "0",
        "numOutputRows": "2",
        "numTargetFilesRemoved": "1",
    }
    assert {name: metrics[name] for name in wanted} == wanted


def test_merges_of_different_keys_and_partitions_pass_each_other(tmp_path):
    """The documentation's advice: literals of the partition in the condition keep merges apart."""
    data = {"day": ["mon", "tue"], "id": [1, 1], "v": [0, 0]}
    write_deltalake(tmp_path, pa.table(data), partition_by="day")
    table = DeltaTable(tmp_path)
    pending = []
    for day in ("mon", "tue"):
        txn = table.begin(isolation="Serializable")
        changes = pa.table({"id": [1, 2], "v": [5, 6]})
        (
            txn.merge(changes, f"t.id = s.id AND t.day = '{day}'")
            .when_matched_update({"v": "s.v"})
            .when_not_matched_insert({"day": f"'{day}'", "id": "s.id", "v": "s.v"})
            .execute()
        )
        pending.append(txn)
    assert [txn.commit().version for txn in pending] == [1, 2]
    assert rows(table, "day", "id", "v") == [("mon", 1, 5), ("mon", 2, 6), ("tue", 1, 5), ("tue", 2, 6)]


def test_two_upserts_of_one_key_do_not_both_insert_it(table):
    pending = [table.begin() for _ in range(2)]
    for txn in pending:
        txn.merge(source(id=[9], v=["x"]), "t.id = s.id").when_not_matched_insert_all().execute()
    pending[0].commit()
    with pytest.raises(errors.ConcurrentAppendException):
        pending[1].commit()
    assert table.count() == 5


def test_the_table_itself_as_source_counts_as_read(table):
    txn = table.begin()
    txn.merge(table, "t.id = s.id + 1").when_matched_update({"v": "s.v"}).execute()
    write_deltalake(DeltaTable(table.table_uri), source(id=[50], v=["x"]), mode="overwrite")
    with pytest.raises(errors.ConcurrentModificationError):
        txn.commit()


# --- misuse ---


def test_misuse_is_one_clear_error(table):
    def begin():
        return table.merge(source(id=[1], v=["x"]), "t.id = s.id")

    cases = [
        (begin(), InvalidArgumentError, "needs at least one clause"),
        (begin().when_matched_delete().when_matched_update_all(), InvalidArgumentError, "only the last may be without"),
        (begin().when_matched_update({}), InvalidArgumentError, "sets no column"),
        (begin().when_matched_update({"nope": "1"}), ColumnNotFoundError, "'nope'"),
        (begin().when_matched_update({"v": "s.nope"}), ColumnNotFoundError, "'nope' does not exist in s"),
        (begin().when_matched_update({"v": "1", "t.V": "2"}), InvalidArgumentError, "assigned twice"),
        (begin().when_not_matched_insert({"id": "t.id"}), ColumnNotFoundError, "t"),
        (begin().when_not_matched_by_source_delete("s.id = 1"), ColumnNotFoundError, "s"),
        (begin().when_matched_update_all(except_cols=["nope"]), ColumnNotFoundError, "except_cols"),
        (table.merge(source(id=[1]), "t.id = ").when_matched_delete(), PredicateError, "cannot be parsed"),
        (table.merge(7, "t.id = s.id").when_matched_delete(), InvalidArgumentError, "cannot write a int"),
    ]
    for merge, error, said in cases:
        with pytest.raises(error, match=said):
            merge.execute()
    with pytest.raises(InvalidArgumentError, match="a list of column names"):
        begin().when_matched_update_all(except_cols="v")
    with pytest.raises(InvalidArgumentError, match="mapping"):
        begin().when_matched_update("v = 1")
    assert table.version() == 1


def test_a_merge_runs_once(table):
    merge = table.merge(source(id=[1]), "t.id = s.id").when_matched_delete()
    merge.execute()
    with pytest.raises(InvalidArgumentError, match="ran already"):
        merge.execute()
