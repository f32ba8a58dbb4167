"""Names of columns: ``a.b`` is a field, or a column with a dot in its name; backticks are of a name with a dot."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from refdelta import DeltaTable, write_deltalake
from refdelta.errors import ColumnNotFoundError, InvalidArgumentError, PredicateError

MAPPED = {"delta.columnMapping.mode": "name", "delta.enableChangeDataFeed": "true"}
numbers = itertools.count()


def made(**options):
    """A table with ``a.b``, ``k`` and ``s`` with the field ``f``."""
    uri = f"memory://names{next(numbers)}"
    rows = pa.table({"a.b": [1, 2], "k": [1, 2], "s": [{"f": 1}, {"f": 2}]})
    write_deltalake(uri, rows, configuration=MAPPED, **options)
    return DeltaTable(uri)


def merged(table, clause, *given, **named):
    rows = pa.table({"a.b": [7], "k": [1], "s": [{"f": 1}]})
    return getattr(table.merge(rows, "t.k = s.k"), clause)(*given, **named).execute()


WHOLE = {
    "columns": lambda t, n: t.to_pyarrow_table(columns=[n]),
    "columns of a scan": lambda t, n: t.scan([n]).to_table(),
    "columns of a transaction": lambda t, n: t.begin().read(columns=[n]),
    "columns of the change data feed": lambda t, n: t.load_cdf(0, columns=[n]).read_all(),
    "columns of polars": lambda t, n: t.to_polars(columns=[n]).collect(),
    "filters": lambda t, n: t.to_pyarrow_table(filters=[(n, "=", 1)]),
    "z_order": lambda t, n: t.optimize.z_order([n]),
    "new_values": lambda t, n: t.update(new_values={n: 9}),
    "updates": lambda t, n: t.update({n: "9"}),
    "merge updates": lambda t, n: merged(t, "when_matched_update", {n: "9"}),
    "merge updates with an alias": lambda t, n: merged(t, "when_matched_update", {f"t.{n}": "9"}),
    "merge inserts": lambda t, n: merged(t, "when_not_matched_insert", {n: "9"}),
    "except_cols": lambda t, n: merged(t, "when_matched_update_all", except_cols=[n]),
    "set_default": lambda t, n: t.alter.set_default(n, "5"),
    "drop_default": lambda t, n: t.alter.drop_default(n),
    "rename_column": lambda t, n: t.alter.rename_column(n, "z"),
    "drop_columns": lambda t, n: t.alter.drop_columns([n]),
    "set_nullable": lambda t, n: t.alter.set_nullable(n, False),
    "drop_column_not_null": lambda t, n: t.alter.drop_column_not_null(n),
    "change_type": lambda t, n: t.alter.change_type(n, "long"),
    "move_column": lambda t, n: t.alter.move_column(n, after="k"),
    "after": lambda t, n: t.alter.move_column("k", after=n),
    "set_column_metadata": lambda t, n: t.alter.set_column_metadata(n, {"note": "x"}),
    "cluster_by": lambda t, n: t.alter.cluster_by([n]),
    "partition_by": lambda t, n: made(partition_by=[n]),
}
FIELDS = {
    name: WHOLE[name]
    for name in (
        "columns",
        "columns of a scan",
        "columns of a transaction",
        "columns of the change data feed",
        "filters",
        "z_order",
        "new_values",
    )
} | {
    name: WHOLE[name]
    for name in (
        "updates",
        "merge updates",
        "merge updates with an alias",
        "merge inserts",
        "rename_column",
        "drop_columns",
    )
}


@pytest.mark.parametrize("name", ["a.b", "`a.b`"])
@pytest.mark.parametrize("argument", WHOLE)
def test_every_argument_takes_a_name_with_a_dot(argument, name):
    WHOLE[argument](made(), name)


@pytest.mark.parametrize("name", ["s.f", "`s`.f", "S.`F`"])
@pytest.mark.parametrize("argument", FIELDS)
def test_every_argument_takes_a_field(argument, name):
    rows = pa.table({"s": [{"f": 1, "g": 2}], "k": [1]})
    uri = f"memory://names{next(numbers)}"
    write_deltalake(uri, rows, configuration=MAPPED)
    FIELDS[argument](DeltaTable(uri), name)


@pytest.mark.parametrize("argument", [name for name in WHOLE if name not in ("drop_default", "partition_by")])
def test_an_unknown_name_is_not_suggested(argument):
    with pytest.raises(InvalidArgumentError) as raised:
        WHOLE[argument](made(), "a.bc")
    assert "did you mean 'a.bc'" not in str(raised.value)


def test_a_name_that_is_a_column_and_a_field_needs_backticks():
    uri = f"memory://names{next(numbers)}"
    write_deltalake(uri, pa.table({"a.b": [1], "a": [{"b": 2, "c": 0}]}), configuration=MAPPED)
    table = DeltaTable(uri)
    with pytest.raises(InvalidArgumentError, match=r"`a\.b` for the column, or `a`\.`b` for the field"):
        table.update({"a.b": "3"})
    table.update({"`a.b`": "3"})
    table.update({"`a`.`b`": "4"})
    assert table.to_pyarrow_table().to_pylist() == [{"a.b": 3, "a": {"b": 4, "c": 0}}]
    assert table.to_pyarrow_table(columns=["`a`.`b`"]).to_pylist() == [{"a": {"b": 4}}]
    assert table.to_pyarrow_table(columns=["a.b"]).to_pylist() == [{"a.b": 3}]


def test_sql_over_a_name_with_a_dot_says_that_it_needs_backticks():
    with pytest.raises(ColumnNotFoundError, match=r"did you mean '`a\.b`'"):
        made().count("a.b = 1")
    assert made().count("`a.b` = 1") == 1


# --- fields as columns of a read ---

NESTED = [
    {"s": {"a": 1, "b": {"c": 10, "d": "x"}}, "k": 1, "l": [{"y": 1}]},
    {"s": None, "k": 2, "l": None},
    {"s": {"a": None, "b": None}, "k": 3, "l": []},
    {"s": {"a": 4, "b": {"c": None, "d": "z"}}, "k": 4, "l": [{"y": 2}]},
]
KIND = pa.schema(
    [
        ("s", pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.int64()), ("d", pa.string())]))])),
        ("k", pa.int64()),
        ("l", pa.list_(pa.struct([("y", pa.int64())]))),
    ]
)


def part(value, fields):
    if value is None or fields is None:
        return value
    return {name: part(value[name], inner) for name, inner in fields.items()}


PARTS = {
    ("s.a",): {"s": {"a": None}},
    ("s.b.c", "k"): {"s": {"b": {"c": None}}, "k": None},
    ("k", "s.b", "s.a"): {"k": None, "s": {"a": None, "b": None}},
    ("S.B.D", "s.a"): {"s": {"a": None, "b": {"d": None}}},
}
FILTERS = {
    None: lambda row: True,
    "k > 1": lambda row: row["k"] > 1,
    "s.a = 4": lambda row: row["s"] is not None and row["s"]["a"] == 4,
    "s.b.d = 'x'": lambda row: row["s"] is not None and row["s"]["b"] is not None and row["s"]["b"]["d"] == "x",
    "s is null": lambda row: row["s"] is None,
}


@pytest.mark.parametrize("mapping", ["none", "name"])
@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("columns", PARTS)
def test_fields_are_read_as_parts_of_their_structs(columns, filters, mapping):
    uri = f"memory://parts{next(numbers)}"
    options = {
        "delta.columnMapping.mode": mapping,
        "delta.enableDeletionVectors": "true",
        "delta.enableChangeDataFeed": "true",
    }
    write_deltalake(uri, pa.Table.from_pylist([*NESTED, {"k": 99}], KIND), configuration=options)
    table = DeltaTable(uri)
    table.delete("k = 99")
    wanted = [part(row, PARTS[columns]) for row in NESTED if FILTERS[filters](row)]
    scan = table.scan(list(columns), filters)
    assert scan.to_table().to_pylist() == wanted
    assert [row for batch in scan.to_batches() for row in batch.to_pylist()] == wanted
    assert scan.to_reader().schema == scan.to_table().schema == scan.schema
    assert scan.count() == len(wanted)
    assert table.begin().read(list(columns), filters).to_pylist() == wanted
    assert (
        table.load_cdf(0, 0, columns=list(columns), predicate=filters).read_all().to_pylist()[: len(wanted)] == wanted
    )


@pytest.mark.parametrize("columns", [["s.a", "s.a"], ["s", "s.a"], ["s.b.c", "s.b"], ["l.element.y"], ["s.x"], ["k.x"]])
def test_parts_that_are_not_there_or_asked_for_twice_are_refused(columns):
    uri = f"memory://parts{next(numbers)}"
    write_deltalake(uri, pa.Table.from_pylist(NESTED, KIND))
    with pytest.raises((InvalidArgumentError, PredicateError)):
        DeltaTable(uri).to_pyarrow_table(columns=columns)


def test_polars_selects_fields_itself():
    with pytest.raises(InvalidArgumentError, match="Polars selects by itself"):
        made().to_polars(columns=["s.f", "k"])
