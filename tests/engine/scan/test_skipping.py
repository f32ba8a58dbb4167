"""A file that is skipped holds no row for which the predicate is true: for any data, any predicate and any honest
statistics.

Tests of pruning.file_match.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from predicate_strategies import PARTITIONS, PREDICATES, SCHEMA, rows
from refdelta.core.log.actions import Add
from refdelta.core.log.claims import EXACT_BOUNDS
from refdelta.engine.scan.skipping import prune
from refdelta.errors import ExpressionError, InvalidLogError, PredicateError
from refdelta.expressions.binding import bind
from refdelta.expressions.evaluate import evaluate
from refdelta.expressions.ordering import order
from refdelta.expressions.sql import parse_predicate
from refdelta.pruning.file_match import may_match
from refdelta.pruning.stats import truncate_max, truncate_min
from refdelta.table import partition_values as pv
from refdelta.table.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DecimalType,
    StructField,
    StructType,
)
from tiers import examples
from value_strategies import CONDITIONS

# --- statistics as writers make them, written anew and naively ---------------------------------------------------


def extremes(values):
    low = high = values[0]
    for value in values:
        low = value if order(value, low) < 0 else low
        high = value if order(value, high) > 0 else high
    return low, high


def float_json(value, kind):
    if math.isnan(value) or math.isinf(value):
        return pv.format_float(value)
    return float(str(pa.scalar(value, pa.float32()).cast(pa.string()))) if kind == FLOAT else value


def bound_json(value, kind, *, upper):
    if kind == STRING:
        return truncate_max(value) if upper else truncate_min(value)
    if kind in (FLOAT, DOUBLE):
        return float_json(value, kind)
    if kind == DATE:
        return pv.format_date(value)
    if kind in (TIMESTAMP, TIMESTAMP_NTZ):
        # As Spark: both cut down to the millisecond.
        return pv.format_timestamp(value // 1000 * 1000, zone=kind == TIMESTAMP)[: -4 if kind == TIMESTAMP else -3] + (
            "Z" if kind == TIMESTAMP else ""
        )
    if isinstance(kind, DecimalType):
        return float(value)
    return value


def stats_of(found, schema):
    low, high, nulls = {}, {}, {}
    for item in schema:
        values = [None if row is None else row[item.name] for row in found]
        if isinstance(item.type, StructType):
            inner = stats_of(values, item.type)
            low[item.name], high[item.name], nulls[item.name] = (
                inner[k] for k in ("minValues", "maxValues", "nullCount")
            )
            continue
        present = [value for value in values if value is not None]
        nulls[item.name] = len(values) - len(present)
        if present and item.type not in (BOOLEAN, BINARY):
            least, most = extremes(present)
            low[item.name] = bound_json(least, item.type, upper=False)
            if (bound := bound_json(most, item.type, upper=True)) is not None:
                high[item.name] = bound
    return {"numRecords": len(found), "minValues": low, "maxValues": high, "nullCount": nulls}


def files_of(groups, stats):
    keys = [{c: pv.serialize(group[0][c], SCHEMA.field(c).type) for c in PARTITIONS} for group in groups]
    return pa.table(
        {
            "partitionValues": pa.array([list(key.items()) for key in keys], pa.map_(pa.string(), pa.string())),
            "stats": pa.array(stats, pa.string()),
        }
    )


def adds_of(groups, stats):
    return [
        Add(
            path="f",
            partition_values={c: pv.serialize(group[0][c], SCHEMA.field(c).type) for c in PARTITIONS},
            size=1,
            modification_time=0,
            data_change=True,
            stats=text,
        )
        for group, text in zip(groups, stats, strict=True)
    ]


@st.composite
def data_files(draw):
    """Groups of rows that share their partition values, and statistics for each, some of them missing, wide or
    damaged."""
    groups, stats = [], []
    for _ in range(draw(st.integers(1, 5))):
        group = draw(st.lists(rows(), min_size=1, max_size=4))
        # An empty string is null as a partition value.
        key = {c: group[0][c] or (None if c == "q" else group[0][c]) for c in PARTITIONS}
        live = [row | key for row in group]
        groups.append(live)
        data = StructType(tuple(f for f in SCHEMA if f.name not in PARTITIONS))
        found = stats_of(live, data)
        match draw(st.integers(0, 9)):
            case 0:
                stats.append(None)
                continue
            case 1:
                stats.append(
                    draw(
                        st.sampled_from(
                            ["", "{", "null", "[]", '{"numRecords":"x"}', '{"a":1}\n{"a":2}', '{}}{"i":1,"s":{}']
                        )
                    )
                )
                continue
            case 2:
                # Wide bounds: some rows are gone, which the statistics do not say; null counts mean nothing in between.
                found["tightBounds"] = False
                groups[-1] = live[: draw(st.integers(1, len(live)))]
            case 3:
                for part in ("minValues", "maxValues", "nullCount"):
                    for name in draw(st.sets(st.sampled_from(data.names))):
                        found[part].pop(name, None)
            case 4:
                del found[draw(st.sampled_from(list(found)))]
            case 5:
                found["minValues"][draw(st.sampled_from(data.names))] = draw(st.sampled_from(["odd", {}, [1], None]))
        stats.append(json.dumps(found, ensure_ascii=draw(st.booleans())))
    return groups, stats


def satisfies(predicate, row):
    try:
        return evaluate(predicate, row) is True
    except ExpressionError:
        return False


@pytest.mark.tier("test")
@given(st.one_of(PREDICATES, PREDICATES, CONDITIONS), data_files())
@examples(200)
def test_a_file_that_is_skipped_has_no_matching_row(predicate, made):
    groups, stats = made
    try:
        bound = bind(predicate, SCHEMA)
    except PredicateError:
        assume(False)
    result = prune(files_of(groups, stats), SCHEMA, PARTITIONS, bound)
    assert result.keep.null_count == 0
    for group, keep, reason, file in zip(
        groups, result.keep.to_pylist(), result.reason.to_pylist(), adds_of(groups, stats), strict=True
    ):
        assert keep or not any(satisfies(bound, row) for row in group)
        assert (reason is None) == keep
        assert may_match(bound, file, SCHEMA, PARTITIONS) == keep


# --- it does skip ------------------------------------------------------------------------------------------------

TABLE = StructType(
    (
        StructField("a", LONG),
        StructField("s", STRING),
        StructField("d", DOUBLE),
        StructField("t", TIMESTAMP),
        StructField("dec", DecimalType(20, 2)),
        StructField("day", DATE),
        StructField("st", StructType((StructField("x", INTEGER),))),
        StructField("p", DATE),
    )
)


def table(*stats, p="2020-01-01", **more):
    texts = [None if s is None else s if isinstance(s, str) else json.dumps(s) for s in stats]
    values = pa.array([[("p", p)]] * len(texts), pa.map_(pa.string(), pa.string()))
    return pa.table({"partitionValues": values, "stats": pa.array(texts, pa.string()), **more})


def bounds(low, high, nulls=None, rows=10):
    return {"numRecords": rows, "minValues": low, "maxValues": high, "nullCount": nulls or dict.fromkeys(low, 0)}


def ours(low, high):
    return bounds(low, high) | {EXACT_BOUNDS: True}


A = bounds({"a": 10}, {"a": 20})
SAME = bounds({"a": 5}, {"a": 5})
NULLS = {"numRecords": 10, "minValues": {}, "maxValues": {}, "nullCount": {"a": 10}}
S = bounds({"s": "bb"}, {"s": "bd"})
T = ours({"t": "2020-01-01T00:00:00.000Z"}, {"t": "2020-01-01T00:00:00.123Z"})
D = bounds({"d": 1.0}, {"d": "NaN"})


@pytest.mark.parametrize(
    ("sql", "stats", "keep"),
    [
        ("a < 10", A, False),
        ("a <= 10", A, True),
        ("a > 20", A, False),
        ("a >= 20", A, True),
        ("a = 9", A, False),
        ("a = 15", A, True),
        ("a <> 15", A, True),
        ("a <> 5", SAME, False),
        ("not (a = 5)", SAME, False),
        ("not (a <=> 5)", SAME, False),
        ("a in (1, 2, 30)", A, False),
        ("a in (1, 12)", A, True),
        ("a not in (5, 6)", SAME, False),
        ("a not in (6, null)", SAME, False),
        ("a is null", A, False),
        ("a is not null", NULLS, False),
        ("a = 1", NULLS, False),
        ("a <> 1", NULLS, False),
        ("a is null", NULLS, True),
        ("a < 10 or a > 20", A, False),
        ("a between 11 and 12 and a <> 5", A, True),
        ("a < 10.5", A, True),
        ("a > 20.5", A, False),
        ("a > 1e2", A, False),
        ("s like 'a%'", S, False),
        ("s like 'bc%'", S, True),
        ("s like 'be%'", S, False),
        ("s like 'b%'", S, True),
        ("s like 'ba_'", S, False),
        ("s = 'be'", S, False),
        ("s not like 'b%'", S, True),
        ("t > '2020-01-01T00:00:00.123999Z'", T, False),
        ("t > '2020-01-01T00:00:00.123998Z'", T, True),
        ("t < '2020-01-01'", T, False),
        ("d > 1e300", D, True),
        ("d < 1", D, False),
        ("d >= double 'nan'", D, True),
        ("d > 5", ours({"d": 1.0}, {"d": 5}), False),
        ("dec > 123456789012345678.90", bounds({"dec": 1}, {"dec": 1.5}), False),
        ("dec > 0.001", ours({"dec": 0}, {"dec": 0}), False),
        # of another writer: NaN may lie beyond the bounds, but in no range
        ("d > 5", bounds({"d": 1.0}, {"d": 5}), True),
        ("d > 5 and d < 9", bounds({"d": 1.0}, {"d": 5}), False),
        ("d > 5 and d < 9 or st.x is null", bounds({"d": 1.0}, {"d": 5}), True),
        ("d = 7", bounds({"d": 1.0}, {"d": 5}), False),
        ("d < 0", bounds({"d": "NaN"}, {"d": "NaN"}), True),
        ("d <> 1", bounds({"d": 1.0}, {"d": 1.0}), True),
        ("dec = 0.01", bounds({"dec": 0}, {"dec": 0}), True),
        ("dec = 0.02", bounds({"dec": 0}, {"dec": 0}), False),
        ("t > '2020-01-01T00:00:59'", bounds(T["minValues"], T["maxValues"]), True),
        ("t > '2020-01-01T00:01:01'", bounds(T["minValues"], T["maxValues"]), False),
        ("s > 'bcdefghi'", bounds({"s": "a"}, {"s": "bcdefghi"}), True),
        ("s > 'bcdefghi'", ours({"s": "a"}, {"s": "bcdefghi"}), False),
        ("s > 'bcdefg'", bounds({"s": "a"}, {"s": "bcdefg"}), False),
        # counts that contradict the bounds, or each other
        ("a = 11", A | {"nullCount": {"a": 10}}, True),
        ("a = 11", A | {"nullCount": {"a": -1}, "numRecords": -1}, True),
        ("s is not null", bounds({"a": 1}, {"a": 1}, {"s": 11}), True),
        ("day >= '2020-01-02'", bounds({"day": "2019-01-01"}, {"day": "2020-01-01"}), False),
        ("day >= '+10001-01-02'", bounds({"day": "2019-01-01"}, {"day": "+10000-01-01"}), False),
        ("st.x = 3", bounds({"st": {"x": 5}}, {"st": {"x": 9}}, {"st": {"x": 0}}), False),
        ("st.x is null", bounds({"st": {"x": 5}}, {"st": {"x": 9}}, {"st": {"x": 0}}), True),
        ("st is null and st.x = 3", bounds({"st": {"x": 5}}, {"st": {"x": 9}}, {"st": {"x": 0}}), False),
        ("false", A, False),
        ("null", A, False),
        ("true", A, True),
        # bounds that contradict themselves are none
        ("a = 1", bounds({"a": 9}, {"a": 3}), True),
        # without any
        ("a = 1", None, True),
        ("a = 1", "garbage", True),
        ("a = 1", '{"numRecords":10,"minValues":{"a":5,"a":0}}', True),
        ("s = 'z'", '{"numRecords":1,"minValues":{"s":"\\ud83d"},"maxValues":{"s":"b"}}', False),
        ("s = 'z'", '{"numRecords":1,"minValues":{"s":"a"},"maxValues":{"s":"\\ud83d"}}', True),
        # the tie-breaker of older Spark is below the rocket that it stands for
        ("s = '" + "x" * 32 + "\U0001f680'", bounds({"s": "x"}, {"s": "x" * 32 + "\ufffd"}), True),
        ("s = '" + "x" * 31 + "\U0001f680'", bounds({"s": "x"}, {"s": "x" * 31 + "?\ufffd"}), True),
    ],
)
def test_skipping_by_statistics(sql, stats, keep):
    predicate = parse_predicate(sql, TABLE)
    assert prune(table(stats, A), TABLE, ["p"], predicate).keep.to_pylist()[0] is keep
    text = stats if stats is None or isinstance(stats, str) else json.dumps(stats)
    file = Add(
        path="f", partition_values={"p": "2020-01-01"}, size=1, modification_time=0, data_change=True, stats=text
    )
    assert may_match(predicate, file, TABLE, ["p"]) is keep


def test_the_reason_is_the_first_that_holds():
    files = pa.concat_tables([table(A, p="2020-01-01"), table(A, p="2021-01-01"), table(A, p=None)])
    result = prune(files, TABLE, ["p"], parse_predicate("P >= '2021-01-01' and a = 11", TABLE))
    assert result.keep.to_pylist() == [False, True, False]
    assert result.reason.to_pylist() == ["partition", None, "partition"]
    result = prune(files, TABLE, ["p"], parse_predicate("p >= '2021-01-01' and a = 1", TABLE))
    assert result.reason.to_pylist() == ["partition", "stats", "partition"]
    result = prune(files, TABLE, ["p"], parse_predicate("p >= '2021-01-01' or a = 1", TABLE))
    assert result.reason.to_pylist() == ["stats", None, "stats"]


def test_without_a_predicate_every_file_is_kept():
    result = prune(table(A, A), TABLE, ["p"], None)
    assert result.keep.to_pylist() == [True, True]
    assert result.reason.to_pylist() == [None, None]
    assert len(prune(table(), TABLE, ["p"], parse_predicate("a = 1", TABLE)).keep) == 0


def test_a_partition_value_that_is_none_is_an_error():
    with pytest.raises(InvalidLogError, match="partition value of p"):
        prune(table(A, p="soon"), TABLE, ["p"], parse_predicate("p = '2020-01-01'", TABLE))


def test_one_odd_file_does_not_cost_the_others_their_statistics():
    stats = [bounds({"d": float(i)}, {"d": float(i)}) for i in range(200)]
    stats[77] = bounds({"d": 77.0}, {"d": "Infinity"})
    stats[123] = "{broken"
    keep = prune(table(*stats), TABLE, ["p"], parse_predicate("d = 150", TABLE)).keep.to_pylist()
    assert [i for i, kept in enumerate(keep) if kept] == [77, 123, 150]


def test_statistics_that_hold_more_than_one_value_do_not_shift_the_others():
    evil = '{"numRecords":10,"minValues":{"a":1}}}{"i":1,"s":{"numRecords":10,"minValues":{"a":1}}'
    keep = prune(table(evil, A, "null"), TABLE, ["p"], parse_predicate("a < 10", TABLE)).keep.to_pylist()
    assert keep == [True, False, True]


def test_a_partition_value_that_is_null_equals_nothing_where_rows_are_not_counted():
    files = table({"minValues": {"day": "2020-01-01"}}, {"nullCount": {"day": 3}}, p=None)
    assert prune(files, TABLE, ["p"], parse_predicate("day = p", TABLE)).keep.to_pylist() == [False, False]
    assert prune(files, TABLE, ["p"], parse_predicate("day is null", TABLE)).keep.to_pylist() == [True, True]


def test_physical_names_under_column_mapping():
    schema = StructType(
        (
            StructField("a", LONG, True, {"delta.columnMapping.physicalName": "col-1"}),
            StructField("p", DATE, True, {"delta.columnMapping.physicalName": "col-2"}),
        )
    )
    values = pa.array([[("col-2", "2020-01-01")]], pa.map_(pa.string(), pa.string()))
    files = pa.table({"partitionValues": values, "stats": [json.dumps(bounds({"col-1": 1}, {"col-1": 2}))]})
    assert prune(files, schema, ["p"], parse_predicate("a = 3", schema)).reason.to_pylist() == ["stats"]
    assert prune(files, schema, ["p"], parse_predicate("p = '2020-01-02'", schema)).reason.to_pylist() == ["partition"]
    assert prune(files, schema, ["p"], parse_predicate("a = 2", schema)).keep.to_pylist() == [True]


def test_a_float_that_became_a_double_has_no_bounds():
    change = {"delta.typeChanges": [{"fromType": "float", "toType": "double"}]}
    schema = StructType((StructField("d", DOUBLE, True, change),))
    files = table(bounds({"d": 0.1}, {"d": 0.1}))
    # The row holds the float 0.1, which as a double is 0.10000000149.
    assert prune(files, schema, [], parse_predicate("d > 0.1", schema)).keep.to_pylist() == [True]


def parsed(low, high, nulls=0, kind=None, exact=None):
    side = pa.struct([("t", kind or pa.timestamp("us", "UTC")), ("a", pa.int64())])
    kind = pa.struct(
        [
            ("numRecords", pa.int64()),
            ("minValues", side),
            ("maxValues", side),
            ("nullCount", pa.struct([("a", pa.int64())])),
            (EXACT_BOUNDS, pa.bool_()),
        ]
    )
    found = {"numRecords": 3, "minValues": low, "maxValues": high, "nullCount": {"a": nulls}, EXACT_BOUNDS: exact}
    return pa.array([found], kind)


@pytest.mark.parametrize(
    ("sql", "keep"),
    [("a = 0", False), ("a = 1", True), ("a is null", False), ("s = 'x'", True), ("day = '2020-01-01'", True)],
)
def test_struct_statistics_are_used_where_there_are_no_others(sql, keep):
    files = table(None, stats_parsed=parsed({"a": 1}, {"a": 2}))
    assert prune(files, TABLE, ["p"], parse_predicate(sql, TABLE)).keep.to_pylist() == [keep]


def test_struct_statistics_in_nanoseconds():
    stats = parsed({"t": 5_000_500}, {"t": 5_000_500}, kind=pa.timestamp("ns", "UTC"), exact=True)
    files = table(None, stats_parsed=stats)
    for sql, keep in [("t >= '1970-01-01T00:00:00.005001Z'", True), ("t > '1970-01-01T00:00:00.006Z'", False)]:
        assert prune(files, TABLE, ["p"], parse_predicate(sql, TABLE)).keep.to_pylist() == [keep]


def test_struct_statistics_of_whole_milliseconds_were_cut_there():
    # Spark fills the struct from the JSON, which has milliseconds, and stores it as INT96: nanoseconds.
    for kind, whole in [(pa.timestamp("ns", "UTC"), 5_000_000), (pa.timestamp("us", "UTC"), 5_000)]:
        files = table(None, stats_parsed=parsed({"t": whole}, {"t": whole}, kind=kind, exact=True))
        for sql, keep in [("t = '1970-01-01T00:00:00.005999Z'", True), ("t >= '1970-01-01T00:00:00.006Z'", False)]:
            assert prune(files, TABLE, ["p"], parse_predicate(sql, TABLE)).keep.to_pylist() == [keep]


@pytest.mark.parametrize(
    ("sql", "keep"), [("bin <> X'61'", True), ("bin not in (X'61')", True), ("not bin <=> X'61'", True)]
)
def test_a_column_without_bounds_is_told_apart_from_no_value(sql, keep):
    schema = StructType((StructField("bin", BINARY),))
    files = table('{"numRecords":2,"nullCount":{"bin":0}}')
    assert prune(files, schema, [], parse_predicate(sql, schema)).keep.to_pylist() == [keep]


def test_struct_statistics_of_times_without_the_mark_have_a_minute_on_each_side():
    files = table(None, stats_parsed=parsed({"t": 5_000}, {"t": 5_000}))
    for sql, keep in [
        ("t = '1970-01-01T00:01:00.005999Z'", True),
        ("t = '1969-12-31T23:59:00.005Z'", True),
        ("t = '1970-01-01T00:01:00.006Z'", False),
        ("t = '1969-12-31T23:59:00.004999Z'", False),
    ]:
        assert prune(files, TABLE, ["p"], parse_predicate(sql, TABLE)).keep.to_pylist() == [keep]


def test_the_mark_of_a_text_says_nothing_of_a_struct_and_the_other_way_round():
    at = {"t": 5_000}
    late = parse_predicate("t > '1970-01-01T00:00:01Z'", TABLE)
    text = ours({"t": "1970-01-01T00:00:00.005Z"}, {"t": "1970-01-01T00:00:00.005Z"})
    plain = {name: value for name, value in text.items() if name != EXACT_BOUNDS}
    for stats, mark, keep in [(text, None, False), (plain, True, True), (ours({}, {}), None, True)]:
        files = table(stats, stats_parsed=parsed(at, at, exact=mark))
        assert prune(files, TABLE, ["p"], late).keep.to_pylist() == [keep]


def test_json_wins_over_structs():
    files = table(A, stats_parsed=parsed({"a": 1}, {"a": 2}))
    assert prune(files, TABLE, ["p"], parse_predicate("a = 1", TABLE)).keep.to_pylist() == [False]


def test_long_lists_of_values_are_looked_at_by_their_ends():
    listed = ", ".join(map(str, range(100, 1_000)))
    keep = prune(
        table(A, bounds({"a": 500}, {"a": 500})), TABLE, ["p"], parse_predicate(f"a in ({listed})", TABLE)
    ).keep
    assert keep.to_pylist() == [False, True]


def test_decimals_keep_their_digits():
    bound = '{"dec":123456789012345678.91}'
    text = f'{{"numRecords":1,"minValues":{bound},"maxValues":{bound},"{EXACT_BOUNDS}":true}}'
    for value, keep in [
        ("123456789012345678.91", True),
        ("123456789012345678.90", False),
        ("123456789012345678.92", False),
    ]:
        assert prune(table(text), TABLE, ["p"], parse_predicate(f"dec = {Decimal(value)}", TABLE)).keep.to_pylist() == [
            keep
        ]


@pytest.mark.parametrize(
    ("sql", "kept"),
    [
        ("cast(q as int) = 5", ["5", "a"]),  # it fails for 'a', which may be a file whose rows are left out otherwise
        ("a = cast(q as int)", ["15", "a"]),
        ("cast(q as int) + 1 = 7", ["6", "a"]),
    ],
)
def test_a_partition_for_which_a_condition_fails_keeps_no_file_of_another(sql, kept):
    schema = StructType((StructField("a", LONG), StructField("q", STRING)))
    values = ["5", "6", "a", "15", "", None]
    files = pa.table(
        {
            "partitionValues": pa.array([[("q", value)] for value in values], pa.map_(pa.string(), pa.string())),
            "stats": pa.array([json.dumps(A)] * len(values)),
        }
    )
    keep = prune(files, schema, ["q"], parse_predicate(sql, schema)).keep.to_pylist()
    found = [value for value, one in zip(values, keep, strict=True) if one]
    assert sorted(found, key=str) == sorted(kept, key=str)


def test_after_some_failures_all_other_files_stay():
    schema = StructType((StructField("q", STRING),))
    values = [f"a{number}" for number in range(3_000)]
    files = pa.table(
        {
            "partitionValues": pa.array([[("q", value)] for value in values], pa.map_(pa.string(), pa.string())),
            "stats": pa.nulls(len(values), pa.string()),
        }
    )
    assert prune(files, schema, ["q"], parse_predicate("cast(q as int) = 5", schema)).keep.to_pylist() == [True] * 3_000
