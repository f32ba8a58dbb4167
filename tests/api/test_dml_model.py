"""DELETE, UPDATE and MERGE against a model in plain Python: a table is a list of rows, SQL is walked by hand.

The model shares nothing with the engine: its conditions are trees of its own, and it knows three-valued logic, clauses
and matches only as the loops below say them.

Tests of operations.dml.assign, operations.merge.matches, operations.shared.rewrite.
"""

from __future__ import annotations

import itertools
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta import DeltaTable, write_deltalake
from refdelta.engine.log.location import open_location
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.scan import reader
from refdelta.errors import ConstraintViolationError
from refdelta.operations.merge import matches
from tiers import examples

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("p", pa.string())])
numbers = itertools.count()

ids = st.one_of(st.none(), st.integers(0, 5))
values = st.one_of(st.none(), st.integers(-3, 3))
parts = st.sampled_from(["a", "b", None])
rows_of = st.fixed_dictionaries({"id": ids, "v": values, "p": parts})


# --- conditions and values of our own: SQL beside a function of the environment ---


def column(name):
    def look(env):
        alias, _, field = name.rpartition(".")
        row = env[alias] if alias else env["t"]
        return row[field]

    return name, look


def constant(value):
    sql = "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)
    return sql, lambda env: value


def compare(op, left, right):
    def test(env):
        a, b = left[1](env), right[1](env)
        if op == "<=>":
            return a == b
        if a is None or b is None:
            return None
        return {"=": a == b, "<>": a != b, "<": a < b, ">=": a >= b}[op]

    return f"({left[0]} {op} {right[0]})", test


def is_null(value):
    return f"({value[0]} IS NULL)", lambda env: value[1](env) is None


def spelled_out(left, right, *, flipped):
    """``left <=> right`` without the operator."""
    parts = [compare("=", left, right), both(is_null(right), is_null(left))]
    return either(*(reversed(parts) if flipped else parts))


def negated(condition):
    def test(env):
        found = condition[1](env)
        return None if found is None else not found

    return f"(NOT {condition[0]})", test


def both(left, right):
    def test(env):
        found = (left[1](env), right[1](env))
        return False if False in found else None if None in found else True

    return f"({left[0]} AND {right[0]})", test


def either(left, right):
    def test(env):
        found = (left[1](env), right[1](env))
        return True if True in found else None if None in found else False

    return f"({left[0]} OR {right[0]})", test


def plus(left, right):
    def add(env):
        a, b = left[1](env), right[1](env)
        return None if a is None or b is None else a + b

    return f"({left[0]} + {right[0]})", add


def case(condition, left, right):
    return (
        f"(CASE WHEN {condition[0]} THEN {left[0]} ELSE {right[0]} END)",
        lambda env: left[1](env) if condition[1](env) is True else right[1](env),
    )


def conditions(numeric, texts):
    number = st.sampled_from([column(name) for name in numeric])
    text = st.sampled_from([column(name) for name in texts])
    ops = st.sampled_from(["=", "<>", "<", ">=", "<=>"])
    leaf = st.one_of(
        st.builds(compare, ops, number, st.one_of(number, st.integers(-3, 5).map(constant))),
        st.builds(compare, ops, text, st.sampled_from(["a", "b", "c"]).map(constant)),
        st.builds(is_null, st.one_of(number, text)),
    )
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.builds(negated, inner), st.builds(both, inner, inner), st.builds(either, inner, inner)
        ),
        max_leaves=4,
    )


def amounts(numeric, texts):
    number = st.sampled_from([column(name) for name in numeric])
    leaf = st.one_of(number, st.integers(-3, 5).map(constant), st.just(constant(None)))
    return st.one_of(leaf, st.builds(plus, number, leaf), st.builds(case, conditions(numeric, texts), leaf, leaf))


def letters(texts):
    text = st.sampled_from([column(name) for name in texts])
    return st.one_of(text, parts.map(constant))


def assignments(numeric, texts):
    some = {"id": amounts(numeric, texts), "v": amounts(numeric, texts), "p": letters(texts)}
    return st.fixed_dictionaries({}, optional=some).filter(bool)


# --- tables ---


VECTORS = {"delta.enableDeletionVectors": "true"}
HIDDEN = {"id": 99, "v": 0, "p": "a"}


def build(files, layout):
    """A table, partitioned or not; by its vectors: without, with them enabled, with some in its files already, or with
    such files where no new ones are wanted.
    """
    partitioned, vectors = layout
    uri = f"memory://model{next(numbers)}"
    for rows in files:
        own = rows if vectors in ("none", "enabled") else [rows[0], HIDDEN, *rows[1:]]
        configuration = None if vectors == "none" else VECTORS
        by = ["p"] if partitioned else None
        data = pa.Table.from_pylist(own, SCHEMA)
        write_deltalake(uri, data, mode="append", partition_by=by, configuration=configuration)
    table = DeltaTable(uri)
    if vectors in ("there", "left over"):
        table.delete("id = 99")
    if vectors == "left over":
        table.alter.set_table_properties({"delta.enableDeletionVectors": "false"})
    return table


def bag(rows):
    return Counter((row["id"], row["v"], row["p"]) for row in rows)


def held(table):
    return bag(DeltaTable(table.table_uri).to_pyarrow_table().to_pylist())


layouts = st.tuples(st.booleans(), st.sampled_from(["none", "enabled", "there", "left over"]))
tables = st.tuples(st.lists(st.lists(rows_of, min_size=1, max_size=4), min_size=1, max_size=3), layouts)


def by_vectors(layout):
    return layout[1] in ("enabled", "there")


def checked(table, layout, result, copied):
    """What holds of every statement: no row is copied where vectors are enabled, and the files add up."""
    after = DeltaTable(table.table_uri)
    assert after.count() == after.to_pyarrow_table().num_rows
    if by_vectors(layout):
        assert copied == 0
    elif result.version is not None:
        assert result["num_deletion_vectors_added"] == 0
    files = load_snapshot(open_location(table.table_uri)).files
    for vector, stats in zip(files["deletionVector"].to_pylist(), files["stats"].to_pylist(), strict=True):
        assert vector is None or '"tightBounds":false' in stats


@pytest.mark.tier("test")
@given(tables, st.one_of(st.none(), conditions(["id", "v"], ["p"])))
@examples(150)
def test_delete(made, condition):
    files, layout = made
    rows = [row for file in files for row in file]
    gone = [row for row in rows if condition is None or condition[1]({"t": row}) is True]
    table = build(files, layout)
    result = table.delete(condition and condition[0])
    assert held(table) == bag(rows) - bag(gone)
    checked(table, layout, result, result["num_copied_rows"])
    assert result["num_deleted_rows"] == len(gone)
    assert (result.version is None) == (not gone)


@pytest.mark.tier("test")
@given(tables, st.one_of(st.none(), conditions(["id", "v"], ["p"])), assignments(["id", "v"], ["p"]))
@examples(150)
def test_update(made, condition, updates):
    files, layout = made
    rows = [row for file in files for row in file]
    hit = [condition is None or condition[1]({"t": row}) is True for row in rows]
    wanted = [
        {**row, **{name: value({"t": row}) for name, (_, value) in updates.items()}} if chosen else row
        for row, chosen in zip(rows, hit, strict=True)
    ]
    table = build(files, layout)
    result = table.update({name: sql for name, (sql, _) in updates.items()}, predicate=condition and condition[0])
    assert held(table) == bag(wanted)
    checked(table, layout, result, result["num_copied_rows"])
    assert result["num_updated_rows"] == sum(hit)
    assert (result.version is None) == (not any(hit))


# --- merge ---

BOTH = ["t.id", "t.v", "s.id", "s.v"], ["t.p", "s.p"]
TARGET = ["t.id", "t.v"], ["t.p"]
SOURCE = ["s.id", "s.v"], ["s.p"]


@st.composite
def merges(draw):
    """ON, and clauses as (when, kind, condition or None, assignments or None for all columns)."""
    on = draw(
        st.sampled_from(
            [
                compare("=", column("t.id"), column("s.id")),
                compare("<=>", column("s.id"), column("t.id")),
                compare("=", plus(column("t.id"), constant(1)), column("s.v")),
                compare("<=>", column("t.p"), column("s.p")),
                spelled_out(column("t.id"), column("s.id"), flipped=False),
                spelled_out(column("s.p"), column("t.p"), flipped=True),
                both(
                    spelled_out(column("t.p"), column("s.p"), flipped=True),
                    compare("=", column("t.id"), column("s.id")),
                ),
                both(compare("<=>", column("t.p"), column("s.p")), compare("<=>", column("t.v"), column("s.v"))),
                both(compare("=", column("t.id"), column("s.id")), compare("=", column("t.p"), column("s.p"))),
                compare("<", column("t.id"), column("s.v")),
            ]
        )
    )
    if draw(st.booleans()):
        on = both(on, draw(st.one_of(conditions(*TARGET), conditions(*SOURCE), conditions(*BOTH))))
    clauses = []
    for when, names, kinds in (
        ("matched", BOTH, ["update", "delete", "all"]),
        ("not matched", SOURCE, ["insert", "all"]),
        ("not matched by source", TARGET, ["update", "delete"]),
    ):
        count = draw(st.integers(0, 2))
        for index in range(count):
            last = index == count - 1
            condition = draw(st.one_of(st.none(), conditions(*names)) if last else conditions(*names))
            kind = draw(st.sampled_from(kinds))
            sets = draw(assignments(*names)) if kind in ("update", "insert") else None
            clauses.append((when, kind, condition, sets))
    if not clauses:
        clauses = [("matched", "delete", None, None)]
    return on, clauses


def after_merge(rows, source, on, clauses):
    """The rows after the merge, or None where it is an error."""

    def act(when, env, row):
        """What becomes of a row: (touched, the row or None)."""
        for own, kind, condition, sets in clauses:
            if own == when and (condition is None or condition[1](env) is True):
                if kind == "delete":
                    return True, None
                new = env["s"] if kind == "all" else {name: value(env) for name, (_, value) in sets.items()}
                return True, {**row, **new}
        return False, row

    kinds = {when for when, *_ in clauses}
    matched = [clause for clause in clauses if clause[0] == "matched"]
    deletes = [(kind, condition) for _, kind, condition, _ in matched] == [("delete", None)]
    wanted, hit = [], set()
    for row in rows:
        mates = [index for index, other in enumerate(source) if on[1]({"t": row, "s": other}) is True]
        hit.update(mates)
        if kinds == {"not matched"}:
            wanted.append(row)
            continue
        if len(mates) > 1 and not deletes:
            return None
        if mates:
            _, new = act("matched", {"t": row, "s": source[mates[0]]}, row)
        else:
            _, new = act("not matched by source", {"t": row}, row)
        if new is not None:
            wanted.append(new)
    empty = {"id": None, "v": None, "p": None}
    for index, other in enumerate(source):
        if index not in hit:
            touched, new = act("not matched", {"s": other}, empty)
            if touched:
                wanted.append(new)
    return wanted


def run(table, source, on, clauses):
    merger = table.merge(pa.Table.from_pylist(source, SCHEMA), on[0])
    for when, kind, condition, sets in clauses:
        name = "when_" + when.replace(" ", "_") + "_" + ("update" if kind == "all" and when == "matched" else kind)
        predicate = condition and condition[0]
        if kind == "all":
            name = "when_matched_update_all" if when == "matched" else "when_not_matched_insert_all"
        given_sets = [] if sets is None else [{field: sql for field, (sql, _) in sets.items()}]
        getattr(merger, name)(*given_sets, predicate=predicate)
    return merger.execute()


@pytest.mark.tier("test")
@given(tables, st.lists(rows_of, max_size=4), merges(), st.booleans())
@examples(250)
def test_merge(made, source, request, row_by_row):
    files, layout = made
    on, clauses = request
    rows = [row for file in files for row in file]
    wanted = after_merge(rows, source, on, clauses)
    table = build(files, layout)
    if wanted is None:
        with pytest.raises(ConstraintViolationError, match="match one row of the table"):
            run(table, source, on, clauses)
        assert held(table) == bag(rows)
        return
    with pytest.MonkeyPatch.context() as patch:
        if row_by_row:  # so that the target comes in many pieces
            patch.setattr(matches, "_LARGEST_PIECE", 1)
            patch.setattr(reader, "BATCH_ROWS", 1)
        result = run(table, source, on, clauses)
    assert held(table) == bag(wanted)
    checked(table, layout, result, result["num_target_rows_copied"])
    assert result["num_source_rows"] == len(source)
    assert len(rows) + result["num_target_rows_inserted"] - result["num_target_rows_deleted"] == len(wanted)
