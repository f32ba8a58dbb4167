"""Bounds of variants: their form, and the rows that they are of."""

from __future__ import annotations

import datetime as dt
import io
import json
from base64 import b85encode
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handmade import field, struct
from refdelta.core.rows.deletion_vector import _TO_Z85
from refdelta.table.variant import decode, encode, parted
from refdelta.verifier.run import verify_store
from verifier.tables import add, found, protocol, table

# The example of PROTOCOL.md, which has the values before the metadata.
LOW = "0S&u501fk+ze0(tB98CpzF6vU0rJl95HpNdvjbtatpi(cu0wW^cTu"
HIGH = "0S&u500&]LC42A9vqZe}wb#-i1}-a+cT!xdbWhT9cTx}7v<+K"
ROWS = [{"a": "min-string", "b": {"c": 100}}, None, {"a": "variant", "b": {"c": 1}}]


def z85(value) -> str:
    return b85encode(b"".join(encode(value))).translate(_TO_Z85).decode()


def made(rows=ROWS, **stats):
    """A file of variants with these bounds."""
    there = table(schema=struct(field("v", "variant")), protocol=protocol(reader=("variantType",)))
    pairs = [None if row is None else dict(zip(("metadata", "value"), encode(row), strict=True)) for row in rows]
    out = io.BytesIO()
    pq.write_table(
        pa.table({"v": pa.array(pairs, pa.struct([("metadata", pa.binary()), ("value", pa.binary())]))}), out
    )
    there.store.put("a.parquet", out.getvalue())
    text = json.dumps({"numRecords": len(rows), **{part: {"v": bound} for part, bound in stats.items()}})
    there.commit(add("a.parquet", size=len(out.getvalue()), stats=text))
    return there


def clauses(there):
    return [finding.clause for finding in verify_store(there.store, sample=None).findings]


def test_the_example_of_the_specification():
    there = made(minValues=LOW, maxValues=HIGH)
    assert clauses(there) == []
    assert decode(*parted(b"".join(encode({"$['a']": 1})))) == {"$['a']": 1}


@pytest.mark.parametrize(
    "bounds",
    [
        {"minValues": "a"},
        {"minValues": "é" * 5},
        {"minValues": 7},
        {"minValues": LOW[:20]},
        {"maxValues": z85([1])},
        {"maxValues": z85("x")},
        {"minValues": z85({"a": "m"})},
        {"minValues": z85({'$["a"]': "m"})},
        {"minValues": z85({"$.a": "m"})},
        {"minValues": z85({"$['\n']": "m"})},
        {"minValues": z85({"$['\\x']": "m"})},
        {"minValues": z85({"$['b']": {}})},
        {"minValues": z85({"$['b']": None})},
        {"minValues": z85({"$['x']": 1}), "maxValues": z85({"$['x']": "1"})},
        {"minValues": z85({"$['x']": 1}), "maxValues": z85({"$['x']": 1.5})},
    ],
)
def test_bounds_that_are_none(bounds):
    there = made(**bounds)
    assert {clause for clause, *_ in found(there)} == {"stats-7"}
    assert set(clauses(there)) == {"stats-7"}


@pytest.mark.parametrize(
    ("bounds", "clause"),
    [
        ({"minValues": z85({"$['a']": "min-string", "$['b']['c']": 0})}, None),
        ({"minValues": z85({"$['b']['c']": Decimal("0.5")})}, None),
        ({"minValues": z85({"$['b']": "x", "$['a'][0]": 1, "$['nowhere']": True, "$": 5})}, None),
        ({"maxValues": z85({"$['a']": "variant\U0010ffff"})}, None),
        ({"minValues": z85({"$['b']['c']": 2})}, "stats-1"),
        ({"maxValues": z85({"$['b']['c']": 99})}, "stats-1"),
        ({"maxValues": z85({"$['a']": "v"})}, "stats-1"),
        ({"maxValues": z85({"$['b']['c']": "100"})}, "stats-7"),
        ({"maxValues": z85({"$['b']['c']": True})}, "stats-7"),
    ],
)
def test_bounds_against_rows(bounds, clause):
    assert set(clauses(made(**bounds))) == ({clause} if clause else set())


def test_paths_with_odd_names_and_what_may_be_cut():
    late = dt.datetime(2020, 1, 1, 0, 0, 0, 1500, dt.UTC)
    rows = [{"a'\\\n\"": [{"é": 3}, late, "long enough to be cut"]}, {"a'\\\n\"": "other", "x": []}, 7]
    name = "$['a\\'\\\\\\n\"']"
    low = {f"{name}[0]['é']": 3, f"{name}[1]": late}
    cut = {f"{name}[0]['é']": 3, f"{name}[1]": late.replace(microsecond=1000), f"{name}[2]": "long enough"}
    assert clauses(made(rows, minValues=z85(low), maxValues=z85(cut))) == []
    assert clauses(made(rows, maxValues=z85({f"{name}[0]['é']": 2}))) == ["stats-1"]
    assert clauses(made(rows, maxValues=z85({f"{name}[1]": late.replace(microsecond=0)}))) == ["stats-1"]


@pytest.mark.tier("test")
@given(st.dictionaries(st.text(max_size=300), st.integers(-(10**38) + 1, 10**38 - 1), max_size=5) | st.integers(0, 9))
def test_a_variant_is_parted_either_way(value):
    metadata, inner = encode(value)
    assert parted(metadata + inner) == (metadata, inner)
    if isinstance(value, dict):
        assert parted(inner + metadata) == (metadata, inner)
