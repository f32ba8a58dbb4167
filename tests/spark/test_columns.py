"""A predicate reaches Spark as a built column, or not at all: what a session makes of SQL text changes no row.

Tests of spark.frames.
"""

from __future__ import annotations

import contextlib
import functools

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

import spark_tables
from handmade import Handmade, field, struct
from predicate_strategies import PREDICATES, SCHEMA, batch_of, rows
from refdelta import DeltaTable, write_deltalake
from refdelta.expressions.binding import bind
from refdelta.expressions.evaluate import row_mask
from refdelta.expressions.sql_text import string_sql
from refdelta.spark import SparkExecutor, columns, frames, read
from refdelta_storage import LocalStore
from tiers import examples, some

pytestmark = pytest.mark.spark

NAN = float("nan")
SETTINGS = {
    "the defaults": {},
    "backslashes as they are": {"spark.sql.parser.escapedStringLiterals": "true"},
    "names as patterns": {"spark.sql.parser.quotedRegexColumnNames": "true"},
    "double quotes around names": {"spark.sql.ansi.doubleQuotedIdentifiers": "true"},
    "reserved words": {"spark.sql.ansi.enforceReservedKeywords": "true"},
    "adjacent literals": {"spark.sql.legacy.consecutiveStringLiterals.enabled": "true"},
    "times without zone": {"spark.sql.timestampType": "TIMESTAMP_NTZ"},
    "exponents as decimals": {"spark.sql.legacy.exponentLiteralAsDecimal.enabled": "true"},
    "negative scales": {"spark.sql.legacy.allowNegativeScaleOfDecimal": "true"},
    "exact decimals": {"spark.sql.decimalOperations.allowPrecisionLoss": "false"},
    "without ANSI": {"spark.sql.ansi.enabled": "false"},
    "another zone": {"spark.sql.session.timeZone": "Asia/Tokyo"},
    "case": {"spark.sql.caseSensitive": "true"},
    "few values of IN": {"spark.sql.optimizer.inSetConversionThreshold": "1"},
}
MEANT = (
    *(
        "${env:HOME}",
        "${spark.app.name}",
        "${x",
        "$",
        "\\",
        "\\\\",
        "\\n",
        "\n",
        "\r\n",
        "\t",
        "\0",
        "\\0",
        "'",
        '"',
        "`",
    ),
    *("a'b", "''", "\\'", "%", "\\%", "_", "a_b", "\\_", "\\u0041", "A", "\U0001f680", "é", "--", "/* */", ":p", "?"),
    *("\u2028", "{d '2020-01-01'}", "X'41'", "\\x41", "", " "),
)
"""Strings that a parser of SQL could take for others."""


@contextlib.contextmanager
def set_to(spark, settings):
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


@pytest.fixture(scope="module")
def strings(tmp_path_factory):
    path = tmp_path_factory.mktemp("strings") / "t"
    write_deltalake(path, pa.table({"row": range(len(MEANT)), "s": MEANT, "`a.`": MEANT, "env:HOME": MEANT}))
    return path


def of_strings():
    for place, text in enumerate(MEANT):
        yield f"s = {string_sql(text)}", [place]
        yield f"`env:HOME` IN ({string_sql(text)}, 'none')", [place]
        yield f"```a.``` <> {string_sql(text)}", [at for at in range(len(MEANT)) if at != place]
        pattern = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        yield f"s LIKE {string_sql(pattern)}", [place]


@pytest.mark.sample(test=4)
@pytest.mark.parametrize("name", SETTINGS)
def test_a_string_is_what_it_is_whatever_the_session_says(spark, strings, name):
    with set_to(spark, SETTINGS[name]):
        wrong = lost(spark, strings, some([*of_strings()], check=20, test=60))
    assert not wrong, wrong


def lost(spark, path, cases):
    """The predicates for which a filter of a read finds other rows."""
    found = united([read(spark, path, columns=["row"], filter=text) for text, _ in cases])
    return [text for (text, wanted), numbers in zip(cases, found, strict=True) if numbers != wanted]


def united(some_frames):
    """The numbers of the rows of several DataFrames, found by a few jobs."""
    from pyspark.sql import functions as f

    found = [[] for _ in some_frames]
    for start in range(0, len(found), 20):
        marked = [
            frame.select(f.lit(at).alias("at"), "row")
            for at, frame in enumerate(some_frames[start : start + 20], start)
        ]
        for at, row in functools.reduce(lambda one, other: one.unionAll(other), marked).collect():
            found[at].append(row)
    return [sorted(numbers) for numbers in found]


@pytest.mark.sample(test=4)
@pytest.mark.parametrize("name", SETTINGS)
@given(st.lists(PREDICATES, min_size=60, max_size=60), st.lists(rows(), min_size=30, max_size=30))
@examples(3, fewest=1, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
def test_a_column_has_the_engine_s_value_for_each_row(spark, fresh_path, name, predicates, found):
    batch, path = batch_of(found), fresh_path()
    with set_to(spark, {}):
        write_deltalake(path, pa.Table.from_batches([batch]).append_column("row", pa.array(range(len(found)))))
    with set_to(spark, SETTINGS[name]):
        bound = [bind(predicate, SCHEMA) for predicate in predicates]
        chosen = [predicate for predicate in bound if columns.means_the_same(spark, predicate)]
        made = [columns.condition(spark, predicate).alias(f"c{at}") for at, predicate in enumerate(chosen)]
        answers = read(spark, path).orderBy("row").select(*made).collect()
    assert len(chosen) >= (20 if name == "another zone" else 45)
    wrong = [
        str(predicate)
        for at, predicate in enumerate(chosen)
        if [answer[at] for answer in answers] != row_mask(predicate, batch).to_pylist()
    ]
    assert not wrong, wrong


# --- NaN ---------------------------------------------------------------------------------------------------------

NUMBERS = [0.1, NAN, -1.0, 0.0, -0.0, None, 5.0, float("inf"), float("-inf"), -NAN, 1e300, -1e-300]
PLACES = ["d", "f", "s.x", "s.deep.y", "`a.b`"]


def nan_files(path):
    """Files of pyarrow, whose bounds leave NaN out, with few rows each; Spark skips rows of each kind otherwise."""
    inner = struct(field("x", "double"), field("deep", struct(field("y", "float"))), field("n", "long"))
    schema = struct(
        *(field("row", "long"), field("d", "double"), field("f", "float"), field("s", inner), field("a.b", "double")),
        field("many", {"type": "array", "elementType": "double", "containsNull": True}),
    )
    table = Handmade(schema, store=LocalStore(path))
    kinds = [
        {"use_dictionary": False},
        {"use_dictionary": True},
        {"use_dictionary": False, "write_page_index": True, "data_page_size": 1},
        {"use_dictionary": True, "write_page_index": True, "row_group_size": 2},
    ]
    numbers = [NUMBERS, NUMBERS[:3], [5.0, NAN], [0.0, 5.0], [-0.0, -1.0], [NAN]]
    count = 0
    for kind in kinds:
        for place, own in enumerate(numbers):
            floats = pa.array([None if number is None else min(max(number, -3e38), 3e38) for number in own], "float32")
            doubles = pa.array(own, "float64")
            lower = pa.StructArray.from_arrays([floats], ["y"])
            nested = pa.StructArray.from_arrays([doubles, lower, pa.array([1] * len(own))], ["x", "deep", "n"])
            data = pa.table(
                [pa.array(range(count, count + len(own))), doubles, floats, nested, doubles, doubles_of(own)],
                names=["row", "d", "f", "s", "a.b", "many"],
            )
            count += len(own)
            table.commit(table.data(f"{table.version}-{place}.parquet", data, parquet=kind))


def doubles_of(own):
    return pa.array([[number] for number in own], pa.list_(pa.float64()))


def of_numbers():
    constants = ["CAST('NaN' AS DOUBLE)", "-0.0D", "0.0D", "5.0D", "1e300D", "CAST('Infinity' AS DOUBLE)", "0.1D"]
    for place in PLACES:
        for op in ("=", "<>", "<", "<=", ">", ">=", "<=>"):
            for constant in constants:
                yield f"{place} {op} {constant}"
        yield f"NOT ({place} <= 5)"
        yield f"isnan({place})"
        yield f"{place} IN (-0.0D, CAST('NaN' AS DOUBLE))"
        yield f"{place} NOT IN (0.1D, 5.0D)"
        yield f"{place} IS NOT NULL AND NOT ({place} BETWEEN -5 AND 10)"
        yield f"{place} IS NULL OR {place} >= 5"
        yield f"CASE WHEN {place} > 5 THEN true ELSE false END"


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    path = tmp_path_factory.mktemp("numbers") / "t"
    nan_files(path)
    return path


def missed(spark, path, texts):
    """The predicates for which a filter of a read, or a ``where`` on it, finds other rows than the engine."""
    table = DeltaTable(path)
    ours = [sorted(table.to_pyarrow_table(columns=["row"], filters=text)["row"].to_pylist()) for text in texts]
    by_filter = united([read(spark, path, columns=["row"], filter=text) for text in texts])
    by_where = united([read(spark, path).where(text) for text in texts])
    found = zip(texts, ours, by_filter, by_where, strict=True)
    return [text for text, wanted, *others in found if any(numbers != wanted for numbers in others)]


def test_nan_and_both_zeros_are_found_in_files_of_any_writer(spark, numbers):
    wrong = missed(spark, numbers, some([*of_numbers()], check=20, test=40))
    assert not wrong, wrong


KEYS = {
    "d = d": "t.d = s.d",
    "both": "t.d <=> s.d",
    "more": "t.d = s.d AND t.d > 5",
    "not": "t.d = s.d AND NOT (t.f <= 5)",
}


@pytest.mark.parametrize("name", KEYS)
def test_a_shuffled_merge_matches_nan_and_both_zeros_once(spark, tmp_path, name):
    made = []
    source = pa.table({"d": [NAN, 0.0, 5.0, 7.0, None], "row": [-1, -2, -3, -4, -5]})
    for place in ("here", "there"):
        nan_files(tmp_path / place)
        table = DeltaTable(tmp_path / place)
        there = place == "there"
        rows = spark.createDataFrame(source) if there else source
        executor = SparkExecutor(spark, broadcast_bytes=0) if there else None
        merge = table.merge(rows, KEYS[name], source_alias="s", target_alias="t", executor=executor)
        merge.when_matched_update({"row": "s.row"}).when_not_matched_insert({"d": "s.d", "row": "s.row"}).execute()
        made.append(sorted(map(repr, table.to_pyarrow_table(columns=["row", "d"]).to_pylist())))
    assert made[0] == made[1]


# --- a predicate that is evaluated by the engine ------------------------------------------------------------------


def test_other_columns_are_pushed_down_beside_floats(spark, numbers):
    frame = read(spark, numbers).where("row > 3 AND d > 5 AND s.x > 5 AND s.n = 1")
    plan = frame._jdf.queryExecution().executedPlan().toString()
    pushed = plan[plan.index("PushedFilters") :].partition("]")[0]
    assert "GreaterThan(row,3)" in pushed
    assert not [name for name in ("(d,", "s.x") if name in pushed]


# --- char(n) -----------------------------------------------------------------------------------------------------


def test_a_char_column_is_compared_as_by_delta_spark(spark, fresh_path):
    path = fresh_path()
    spark_tables.sql(
        spark, path, "CREATE TABLE {t} (row INT, c CHAR(5), d CHAR(3), v VARCHAR(5), s STRUCT<x: CHAR(4)>) USING delta"
    )
    spark_tables.sql(
        spark,
        path,
        "INSERT INTO {t} VALUES (0, 'ab', 'ab', 'ab', named_struct('x', 'ab')), (1, 'ab  c', 'x', 'x', NULL), "
        "(2, NULL, 'abc', 'ab ', named_struct('x', NULL))",
    )
    texts = ["c = 'ab'", "c = 'ab   '", "'ab' < c", "c IN ('ab', 'z')", "c = d", "c <> 'ab'", "v = 'ab'", "c LIKE 'ab'"]
    theirs, ours = spark.read.format("delta").load(str(path)), read(spark, path)
    wanted = united([theirs.where(text) for text in texts])
    assert wanted[0] == [0]
    assert united([ours.where(text) for text in texts]) == wanted
    assert united([ours.alias("o").select("row", "c", "d", "v").where(text) for text in texts]) == wanted
    assert [item.metadata for item in ours.schema][1:3] == [item.metadata for item in theirs.schema][1:3]
    # The engine evaluates a filter, and a MERGE joins rows of the same columns.
    assert read(spark, path, filter="c = 'ab'").count() == 1
    merge = DeltaTable(path).merge(ours, "t.c = s.c", executor=SparkExecutor(spark, broadcast_bytes=0))
    merge.when_matched_update({"row": "s.row + 10"}).when_not_matched_insert_all().execute()
    assert DeltaTable(path).count() == 4


# --- each rule is needed -----------------------------------------------------------------------------------------


def test_without_opaque_floats_rows_are_missed(spark, numbers, monkeypatch):
    texts = ["d > 5.0D", "s.deep.y > 5.0D", "`a.b` = CAST('NaN' AS DOUBLE)", "s.x <=> -0.0D"]
    monkeypatch.setattr(frames, "_has_floats", lambda _: False)
    assert missed(spark, numbers, texts) == texts


def test_as_text_predicates_find_other_rows(spark, strings, monkeypatch):
    from pyspark.sql import functions as f

    monkeypatch.setattr(frames, "condition", lambda _, predicate: f.expr(str(predicate)))
    cases = [case for case in of_strings() if case[0].startswith("s =")]
    assert "s = '${env:HOME}'" in lost(spark, strings, cases[:3])
    with set_to(spark, SETTINGS["backslashes as they are"]):
        assert "s = '\\\\\\\\'" in lost(spark, strings, cases[:6])
