"""Columns of char(n): padded where they are read, compared as Spark compares them, and never pruned wrongly.

Tests of table.char_varchar.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta import DeltaTable, errors, verify, write_deltalake
from refdelta.core.log.actions import Add
from refdelta.engine.log.state import adds_table
from refdelta.engine.scan.skipping import prune
from refdelta.expressions.evaluate import call, row_mask, value_of
from refdelta.expressions.expression import Call, Literal, to_sql
from refdelta.expressions.functions import typed_call
from refdelta.expressions.scope import Scope
from refdelta.expressions.sql import parse_predicate
from refdelta.pruning.file_match import may_match
from refdelta.table.char_varchar import NOTE, char_length, padded, padded_upper, padding_of
from refdelta.table.types import INTEGER, STRING, ArrayType, MapType, StructField, StructType
from tiers import examples


def column(name, kind, note):
    return StructField(name, kind, metadata={NOTE: note})


INNER = StructType((StructField("x", STRING), StructField("y", STRING)))
SCHEMA = StructType(
    (
        StructField("id", INTEGER),
        column("c", STRING, "char(3)"),
        column("d", STRING, "char(5)"),
        column("v", STRING, "varchar(5)"),
        StructField("s", STRING),
        column("n", INNER, "struct<x:char(2),y:varchar(2)>"),
        column("l", ArrayType(STRING), "array<char(2)>"),
        column("m", MapType(STRING, INNER), "map<char(2),struct<x:string,y:char(2)>>"),
    )
)


def test_what_is_padded():
    assert [char_length(SCHEMA, path) for path in [("C",), ("d",), ("v",), ("s",), ("n", "X"), ("n", "y"), ("l",)]] == [
        3,
        5,
        None,
        None,
        2,
        None,
        None,
    ]
    assert padding_of(column("c", STRING, "no type<")) is None
    with pytest.raises(errors.UnsupportedFeatureError, match=r"char\(40000\)> of column c"):
        padding_of(column("c", STRING, "array<char(40000)>"))


@pytest.mark.parametrize(
    ("sql", "meaning"),
    [
        ("c = 'a'", "c = 'a  '"),
        ("'a' < C", "'a  ' < c"),
        ("c <=> 'é'", "c <=> 'é  '"),
        ("c = 'a' || 'b'", "c = 'ab '"),
        ("c <> 'abcde'", "rpad(c, 5) <> 'abcde'"),
        ("c in ('a', null, 'ab')", "c IN ('a  ', NULL, 'ab ')"),
        ("c in ('a', 'abcd')", "rpad(c, 4) IN ('a   ', 'abcd')"),
        ("c between 'a' and 'b'", "(c >= 'a  ') AND (c <= 'b  ')"),
        ("c = d", "rpad(c, 5) = d"),
        ("c = c", "c = c"),
        ("c = null", "NULL"),
        # Spark takes no other value for a char.
        ("c = s", "c = s"),
        ("c = v", "c = v"),
        ("v = 'a'", "v = 'a'"),
        ("n.x = 'a'", "n.x = 'a'"),
        ("upper(c) = 'A'", "upper(c) = 'A'"),
        ("c like 'a'", "c LIKE 'a'"),
    ],
)
def test_comparisons(sql, meaning):
    found = parse_predicate(sql, SCHEMA)
    assert to_sql(found) == meaning
    if meaning != "NULL":
        assert parse_predicate(meaning, SCHEMA) == found


def test_comparisons_within_two_tables():
    scope = Scope.of_two("t", SCHEMA, "u", StructType((column("e", STRING, "char(4)"), StructField("f", STRING))))
    assert to_sql(parse_predicate("t.c = u.e and c = f and e = 'x'", scope)) == (
        "(rpad(t.c, 4) = u.e) AND (t.c = u.f) AND (u.e = 'x   ')"
    )
    assert to_sql(parse_predicate("case c when 'a' then true else false end", SCHEMA)).count("'a  '") == 1


# --- never pruned wrongly ----------------------------------------------------------------------------------------

TEXTS = st.text(st.sampled_from("ab \x01\x1f~é😀"), max_size=4)
FLAT = StructType((column("c", STRING, "char(3)"), column("p", STRING, "char(2)"), StructField("s", STRING)))
ATOMS = st.builds(
    lambda name, op, text: f"{name} {op} '{text}'",
    st.sampled_from(["c", "p", "s"]),
    st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>", "like"]),
    st.text(st.sampled_from("ab \x01~é"), max_size=4),
)
CONDITIONS = st.recursive(
    ATOMS | st.builds("not ({})".format, ATOMS) | st.builds("c in ('a', '{}', 'ab')".format, TEXTS),
    lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner),
    max_leaves=3,
)


@given(CONDITIONS, st.lists(st.none() | TEXTS, min_size=1, max_size=4), st.none() | TEXTS)
@examples(300)
def test_a_file_that_is_skipped_has_no_matching_row(sql, values, partition):
    """Statistics are those of what is stored, without the spaces, or with some."""
    predicate = parse_predicate(sql, FLAT)
    known = [value for value in values if value is not None]
    stats = {"numRecords": len(values), "nullCount": {"c": len(values) - len(known)}}
    if known:
        stats |= {"minValues": {"c": min(known, key=str.encode)}, "maxValues": {"c": max(known, key=str.encode)}}
    add = Add(
        path="f",
        partition_values={"p": partition},
        size=1,
        modification_time=0,
        data_change=True,
        stats=json.dumps(stats, ensure_ascii=False),
    )
    keep = prune(adds_table([add]), FLAT, ["p"], predicate).keep[0].as_py()
    assert keep == may_match(predicate, add, FLAT, ["p"])
    read = [None if value is None else padded(value, 3) for value in values]
    of_partition = padded(partition, 2) if partition else None
    rows = pa.record_batch(
        {
            "c": pa.array(read, pa.string()),
            "p": pa.array([of_partition] * len(read), pa.string()),
            "s": pa.nulls(len(read), pa.string()),
        }
    )
    assert keep or True not in row_mask(predicate, rows).to_pylist()


@given(TEXTS, TEXTS, st.integers(0, 6))
def test_a_bound_of_padded_strings(text, bound, length):
    low, high = sorted((text, bound), key=str.encode)
    assert padded(low, length).encode() <= padded_upper(high, length).encode()


@given(
    st.sampled_from(["lpad", "rpad"]),
    st.lists(st.none() | TEXTS, max_size=4),
    st.integers(-1, 7) | st.none(),
    st.lists(TEXTS | st.none(), max_size=1),
)
def test_pad_of_columns_is_that_of_values(name, texts, count, more):
    typed = typed_call(name, (Literal("", STRING), Literal(count, INTEGER), *(Literal(pad, STRING) for pad in more)))
    expected = [value_of(Call(name, (Literal(text, STRING), *typed.args[1:]), STRING), {}) for text in texts]
    assert call(typed, [pa.array(texts, pa.string())]).to_pylist() == expected
    assert rpad_of_java("ab", 5, "xyz") == "abxyz"


def rpad_of_java(text, count, pad):
    return value_of(typed_call("rpad", (Literal(text, STRING), Literal(count, INTEGER), Literal(pad, STRING))), {})


# --- tables ------------------------------------------------------------------------------------------------------


def unpadded_table(path):
    """A table whose files and partition values lack the spaces: columns were text when they were written."""
    nested = {"n": {"x": "p", "y": "q"}, "l": ["a", None, "bc"], "m": [("k", {"x": "u", "y": "w"})], "v": "v", "s": "s"}
    rows = [
        {"id": 1, "c": "a", "d": "b", **nested},
        {"id": 2, "c": "abc", "d": "abc", **nested},
        {"id": 3, "c": None, "d": None, **dict.fromkeys(nested)},
        {"id": 4, "c": "ab", "d": "ab", **nested},
    ]
    kinds = {item.name: item.type for item in SCHEMA}
    from refdelta.arrow.schema import arrow_type

    schema = pa.schema([pa.field(name, arrow_type(kind)) for name, kind in kinds.items()])
    write_deltalake(path, pa.Table.from_pylist(rows, schema), partition_by=["d"])
    first = path / "_delta_log" / "00000000000000000000.json"
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            found = json.loads(line["metaData"]["schemaString"])
            for item in found["fields"]:
                noted = SCHEMA.find(item["name"])
                item["metadata"].update(noted.metadata)
            line["metaData"]["schemaString"] = json.dumps(found)
    first.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for checksum in first.parent.glob("*.crc"):
        checksum.unlink()
    return DeltaTable(path)


def ids(table, sql):
    return sorted(table.to_pyarrow_table(filters=sql, columns=["id"])["id"].to_pylist())


def test_reading(tmp_path):
    table = unpadded_table(tmp_path / "t")
    rows = {row["id"]: row for row in table.to_pyarrow_table().to_pylist()}
    assert (rows[1]["c"], rows[1]["d"], rows[4]["d"]) == ("a  ", "b    ", "ab   ")
    assert (rows[3]["c"], rows[3]["d"], rows[3]["n"], rows[3]["l"]) == (None, None, None, None)
    assert rows[1]["n"] == {"x": "p ", "y": "q"}
    assert rows[1]["l"] == ["a ", None, "bc"]
    assert rows[1]["m"] == [("k ", {"x": "u", "y": "w "})]
    assert (rows[1]["v"], rows[1]["s"]) == ("v", "s")
    assert ids(table, "c = 'a'") == ids(table, "c = 'a '") == ids(table, "d = 'b'") == ids(table, "c = 'a     '") == [1]
    assert ids(table, "d = 'ab' or c in ('a', 'x')") == [1, 4]
    assert ids(table, "c = d") == [2, 4]
    assert ids(table, "length(d) = 5 and d > 'ab'") == [1, 2]
    assert ids(table, "c < 'b' and c >= 'ab'") == [2, 4]
    assert ids(table, "c like 'a'") == []
    assert ids(table, [("d", "=", "ab")]) == [4]
    assert table.scan(["id"], "d = 'ab'").explain().pruned_by_partition == 3
    assert table.scan(["id"], "c = 'zz'").explain().pruned_by_stats == 4
    assert not verify(tmp_path / "t").findings


@pytest.mark.tier("test")
def test_changing(tmp_path):
    table = unpadded_table(tmp_path / "t")
    assert table.delete("d = 'ab'")["num_deleted_rows"] == 1
    table.update({"s": "'changed'"}, predicate="c in ('a')")
    source = pa.table({"c": ["abc", "new"], "d": ["abc", "n"], "s": ["merged", "merged"]})
    merge = table.merge(source, "t.c = s.c", source_alias="s", target_alias="t")
    merge.when_matched_update({"s": "s.s"}).when_not_matched_insert({"c": "s.c", "d": "s.d", "s": "s.s"}).execute()
    found = {(row["c"], row["d"], row["s"]) for row in table.to_pyarrow_table().to_pylist()}
    assert found == {
        ("a  ", "b    ", "changed"),
        ("abc", "abc  ", "merged"),
        (None, None, None),
        ("new", "n    ", "merged"),
    }
    new = pa.table({"id": pa.array([9], pa.int32()), "c": ["z"], "d": ["n"]})
    write_deltalake(tmp_path / "t", new, mode="overwrite", predicate="d = 'n'")
    assert ids(DeltaTable(tmp_path / "t"), "d = 'n'") == [9]
    assert not verify(tmp_path / "t").findings
