"""Texts and commits of others cost no more than they are worth: lowered limits end each in one answer or error."""

from __future__ import annotations

import contextlib
import io
import json

import pyarrow as pa
import pytest

from handmade import write_commit
from refdelta import DeltaTable, errors, write_deltalake
from refdelta.cli import main
from refdelta.core.conflicts import precedence, reads, state
from refdelta.core.rows import sets
from refdelta.engine.scan import reader
from refdelta.expressions import columnar, signature, sql_dialect, sql_reader, time_format
from refdelta.expressions.evaluate import value_of
from refdelta.expressions.library import text as text_functions
from refdelta.expressions.sql import parse_expression
from refdelta.pruning import disjoint
from refdelta.table.types import STRING, StructField, StructType


@pytest.fixture
def table(tmp_path):
    """Ten rows, in one file."""
    columns = {"a": pa.array(range(10), pa.int64()), "s": ["x" * 30] * 10}
    write_deltalake(tmp_path, pa.table(columns), configuration={"delta.enableDeletionVectors": "true"})
    return DeltaTable(tmp_path)


def add_of(path, version=0):
    """The add of the one file that a version of the table adds."""
    lines = (path / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    (add,) = (json.loads(line)["add"] for line in lines if line.startswith('{"add"'))
    return dict(add)


# --- commits that meet a writer ----------------------------------------------------------------------------------


def test_no_bitmap_is_made_of_a_number_of_rows_that_is_claimed(table, tmp_path, monkeypatch):
    table.delete("a = 5")
    txn = DeltaTable(tmp_path).begin()
    txn.update({"s": "'y'"}, predicate="a = 7")
    add = add_of(tmp_path, 1)
    vector = add.pop("deletionVector")
    gone = {"path": add["path"], "deletionTimestamp": 1, "dataChange": True, "deletionVector": vector}
    add["stats"] = json.dumps({"numRecords": 1_000_001})
    write_commit(tmp_path, 2, {"commitInfo": {"operation": "RESTORE"}}, {"remove": gone}, {"add": add})
    made = []

    def bitmap(rows=(), *, own=state.BitMap64):
        made.append(rows)
        assert not isinstance(rows, range) or len(rows) <= 1_000
        return own(rows)

    monkeypatch.setattr("refdelta.transaction.row_matching.MOST_ROWS", 1_000)
    monkeypatch.setattr(state, "MOST_ROWS", 1_000)
    monkeypatch.setattr(state, "BitMap64", bitmap)
    with pytest.raises(errors.ConcurrentAppendException):
        txn.commit()
    assert sets.MOST_ROWS == 2**31


RECORDED = {
    "text": (["a = 5", "a = 6"], (precedence, "PREDICATE_TEXT", 9)),
    "operands that are used twice": (["a = 5 AND nullif(nullif(a, 1), 1) = 5"], (sql_reader, "MOST_REPEATED", 2)),
    "types in types": (["a = 5 AND int(int(int(a))) = 5"], (sql_dialect, "MOST_TYPES", 2)),
    "alternatives": (["(a = 5 OR a = 6) AND (a = 5 OR a = 7)"], (disjoint, "_MOST", 3)),
    "conditions": (["(a = 5 OR a = 6) AND a <> 8 AND a <> 9"], (disjoint, "_STEPS", 3)),
}
"""Predicates that read none of the rows that the transaction changes, and the limit without which that is seen."""


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_predicate_that_is_too_much_counts_as_the_whole_table(name, limited, table, tmp_path, monkeypatch):
    """A transaction passes over an append, and then meets a commit that recorded what it read."""
    texts, limit = RECORDED[name]
    assert reads.PREDICATE_TEXT == 16_384
    txn = table.begin()
    txn.delete("a = 3")
    add = add_of(tmp_path)
    stats = {"numRecords": 9, "minValues": {"a": 100}, "maxValues": {"a": 200}, "nullCount": {"a": 0}}
    skipped = {"operation": "WRITE", "isBlindAppend": True, "readVersion": 0}
    write_commit(tmp_path, 1, {"commitInfo": skipped}, {"add": {**add, "path": "one.parquet"}})
    info = {"operation": "UPDATE", "readPredicates": texts, "readDomains": [], "readVersion": 1}
    info |= {"engineInfo": "refdelta/0.1.0", "isolationLevel": "WriteSerializable"}
    write_commit(tmp_path, 2, {"commitInfo": info}, {"add": {**add, "path": "two.parquet", "stats": json.dumps(stats)}})
    if not limited:
        assert txn.commit().version == 3
    else:
        monkeypatch.setattr(*limit)
        with pytest.raises(errors.ConcurrentAppendException):
            txn.commit()


# --- the output of expressions -----------------------------------------------------------------------------------

REPLACED = "replace(replace({}, 'x', 'xxx'), 'x', 'xxx')"
OUTPUT = {
    "a column": (REPLACED.format("s") + " = 'x'", "replace would make .* for 10 rows; at most 2,000"),
    "concat": ("concat(s, s, s, s, s, s, s, s) = 'x'", "concat would make .* for 10 rows; at most 2,000"),
    "a long constant": (f"concat(s, '{'x' * 220}') = 'x'", "a constant would make .* for 10 rows"),
}


@pytest.mark.parametrize("name", OUTPUT)
def test_the_output_of_functions_is_bounded_before_it_is_made(name, table, monkeypatch):
    predicate, reason = OUTPUT[name]
    assert table.scan(predicate=predicate).to_reader().read_all().num_rows == 0
    for module in (columnar, text_functions):
        monkeypatch.setattr(module, "MOST_BYTES", 2_000)
    with pytest.raises(errors.ExpressionError, match=reason):
        table.scan(predicate=predicate).to_reader().read_all()


@pytest.mark.parametrize("operand", ["s", f"'{'x' * 30}'"])
def test_new_values_are_bounded_before_they_are_made(operand, table, monkeypatch):
    for module in (columnar, text_functions):
        monkeypatch.setattr(module, "MOST_BYTES", 2_000)
    with pytest.raises(errors.ExpressionError, match=r"replace would make .* for 10 rows; at most 2,000"):
        table.update({"s": REPLACED.format(REPLACED.format(operand))})


CALLS = ("replace(s, 'x', 'xxx')", "concat(s, s, s)", "repeat(s, 3)")


@pytest.mark.parametrize("call", [*CALLS, "concat_ws('', s, s, s)", "array_join(array(s, s, s), '')"])
def test_one_string_is_bounded_before_it_is_made(call, monkeypatch):
    value = parse_expression(call, StructType((StructField("s", STRING),)))
    assert set(value_of(value, {"s": "x" * 30})) == {"x"}
    monkeypatch.setattr(signature, "LONGEST_TEXT", 80)
    with pytest.raises(errors.ExpressionError, match=r"would make a string of 90 characters; the limit is 80"):
        value_of(value, {"s": "x" * 30})


def test_a_pattern_of_dates_is_bounded(table, monkeypatch):
    monkeypatch.setattr(time_format, "_LONGEST", 10)
    table.scan(predicate="date_format(timestamp '2024-01-01', 'y-M-d h-m.') = s")
    with pytest.raises(errors.PredicateError, match="patterns of 10 characters at most, not of 11"):
        table.scan(predicate="date_format(timestamp '2024-01-01', 'y-M-d h-m-s') = s")


def test_a_batch_with_a_long_partition_value_has_fewer_rows(tmp_path, monkeypatch):
    columns = {"a": pa.array(range(2_000), pa.int64()), "p": ["v" * 500] * 2_000}
    write_deltalake(tmp_path, pa.table(columns), partition_by=["p"])
    monkeypatch.setattr(reader, "BATCH_BYTES", 2**19)
    sizes = [batch.num_rows for batch in DeltaTable(tmp_path).scan().to_reader()]
    assert sum(sizes) == 2_000
    assert 500 < max(sizes) < 2**19 // 500


# --- the command line --------------------------------------------------------------------------------------------


def said_of(*words):
    """The output of the command line."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = main([str(word) for word in words])
    assert "Traceback" not in said.getvalue(), said.getvalue()
    return f"{status} {said.getvalue()}"


@pytest.mark.parametrize(
    "uri", ["s3a://AKIA:SEC/RET@bucket/t", "s3a://AKIA:SEC%2FRET%40x@bucket/t", "s3a://AKIA:SEC%252FRET@b/t"]
)
def test_a_login_with_a_slash_is_not_shown(uri):
    said = said_of("detail", uri)
    assert "RET" not in said
    assert said.startswith("1 refdelta: ")


def test_no_output_goes_through_a_link(table, tmp_path):
    other = tmp_path / "other"
    other.write_text("mine")
    for name in (".out.csv.part", "out.csv.part", "out.csv"):
        (tmp_path / name).symlink_to(other)
    said_of("read", tmp_path, "--output", tmp_path / "out.csv")
    assert other.read_text() == "mine"
