"""Rows that lie outside the statistics of another writer are found, changed, matched and conflicted over."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import claimed_tables as claimed
import handmade
from refdelta import DeltaTable, errors, write_deltalake
from refdelta.arrow.schema import from_arrow
from refdelta.core.log.claims import EXACT_BOUNDS
from refdelta.table.types import schema_json

pytestmark = pytest.mark.breaks_tables


LOCAL_TIMES = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["timestampNtz"],
        "writerFeatures": ["timestampNtz"],
    }
}


def foreign(path: Path, files: list[tuple[pa.Table, str | None]], **configuration: str) -> Path:
    """A table of files with statistics that another engine wrote."""
    (path / "_delta_log").mkdir(parents=True)
    schema = json.loads(schema_json(from_arrow(files[0][0].schema)))
    handmade.write_commit(
        path, 0, LOCAL_TIMES, handmade.metadata(schema, (), configuration), *(add(path, *file) for file in files)
    )
    return path


def add(path: Path, rows: pa.Table, stats: str | None) -> dict:
    name = f"f{len(list(path.glob('*.parquet')))}.parquet"
    pq.write_table(rows, path / name)
    return handmade.add(name, size=(path / name).stat().st_size, **({} if stats is None else {"stats": stats}))


def stats(low: str, high: str, column: str = "x", rows: int = 1) -> str:
    return (
        f'{{"numRecords":{rows},"minValues":{{"{column}":{low}}},"maxValues":{{"{column}":{high}}},'
        f'"nullCount":{{"{column}":0}}}}'
    )


EXACT = "1234.567890123456789012"
DECIMALS = pa.table({"x": pa.array([Decimal(EXACT)], pa.decimal128(38, 18)), "n": [1]})


def test_a_decimal_that_was_rounded_through_a_double_is_found_matched_and_deleted(tmp_path):
    table = foreign(tmp_path / "t", [(DECIMALS, stats("1234.5678901234567", "1234.5678901234567"))])
    assert DeltaTable(table).count(f"x = {EXACT}BD") == 1
    merge = DeltaTable(table).merge(DECIMALS, "t.x = s.x").when_matched_update_all().when_not_matched_insert_all()
    merge.execute()
    assert DeltaTable(table).count() == 1
    assert DeltaTable(table).update({"n": "2"}, predicate=f"x >= {EXACT}BD")["num_updated_rows"] == 1


def test_a_decimal_that_was_rounded_is_deleted(tmp_path):
    table = foreign(tmp_path / "t", [(DECIMALS, stats("1234.5678901234567", "1234.5678901234567"))])
    assert DeltaTable(table).delete(f"x = {EXACT}BD")["num_deleted_rows"] == 1


@pytest.mark.parametrize(
    ("condition", "found"),
    [("x > 5", 1), ("x = double('NaN')", 1), ("not (x <= 5)", 1), ("x in (double('NaN'), 7)", 1), ("x <> 1", 2)],
)
def test_a_row_that_is_nan_is_found_beyond_the_bounds(tmp_path, condition, found):
    rows = pa.table({"x": [1.0, float("nan"), 2.0]})
    assert DeltaTable(foreign(tmp_path / "t", [(rows, stats("1.0", "2.0", rows=3))])).count(condition) == found


@pytest.mark.parametrize("operator", ["=", ">=", "<="])
@pytest.mark.parametrize("struct_only", [False, True])
def test_a_time_whose_zone_offset_was_cut_to_minutes_is_found(tmp_path, operator, struct_only):
    rows = pa.table({"x": pa.array([-3_786_825_600_000_000], pa.int64()).cast(pa.timestamp("us", "UTC"))})
    bound = '"1850-01-01T01:12:12.000+01:12"'
    options = {"delta.checkpoint.writeStatsAsJson": "false", "delta.checkpoint.writeStatsAsStruct": "true"}
    table = foreign(tmp_path / "t", [(rows, stats(bound, bound))], **(options if struct_only else {}))
    if struct_only:
        DeltaTable(table).create_checkpoint()
        (table / "_delta_log" / f"{0:020d}.json").unlink()
    assert DeltaTable(table).count(f"x {operator} timestamp'1850-01-01 00:00:00'") == 1


@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable"])
def test_a_winner_with_a_rounded_decimal_conflicts(tmp_path, level):
    other = pa.table({"x": pa.array([Decimal(1)], pa.decimal128(38, 18)), "n": [0]})
    table = foreign(tmp_path / "t", [(other, stats("1", "1"))], **{"delta.isolationLevel": level})
    txn = DeltaTable(table).begin()
    txn.merge(DECIMALS, "t.x = s.x").when_not_matched_insert_all().execute()
    handmade.write_commit(table, 1, add(table, DECIMALS, stats("1234.5678901234567", "1234.5678901234567")))
    with pytest.raises(errors.ConcurrentAppendException):
        txn.commit()


@pytest.mark.tier("test")
@pytest.mark.sample(check=3, test=3)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rounding", claimed.ROUNDINGS)
def test_statements_do_the_same_with_and_without_statistics(tmp_path, rounding, seed):
    draw = random.Random(seed)
    groups = [claimed.rows_of(draw) for _ in range(4)]
    texts = [claimed.text_of(claimed.stats_of(rows, frozenset([rounding]), draw)) for rows in groups]
    files = [claimed.arrow(rows) for rows in groups]
    for number in range(3):
        condition = claimed.predicate(draw.choice(groups), draw, claimed.TOUCHED[rounding])
        column, source = draw.choice(claimed.TOUCHED[rounding]), claimed.arrow(draw.choice(groups)).slice(0, 1)
        results = []
        for name, said in (("with", texts), ("without", [None] * len(texts))):
            table = foreign(tmp_path / f"{name}{number}", list(zip(files, said, strict=True)))
            found = [DeltaTable(table).count(condition)]
            merge = DeltaTable(table).merge(source, f"t.{column} = s.{column}").when_not_matched_insert_all()
            found.append(merge.execute()["num_target_rows_inserted"])
            found.append(DeltaTable(table).update({"n": "100"}, predicate=condition)["num_updated_rows"])
            found.append(DeltaTable(table).delete(condition)["num_deleted_rows"])
            found.append(DeltaTable(table).count("true or n = 1"))
            results.append(found)
        assert results[0] == results[1], (condition, column)


def test_files_of_this_engine_are_marked_where_bounds_would_have_a_margin(tmp_path):
    def marked(**columns: pa.Array) -> bool:
        table = tmp_path / f"t{len(list(tmp_path.iterdir()))}"
        write_deltalake(table, pa.table(columns))
        lines = (table / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
        (found,) = [json.loads(line)["add"] for line in lines if line.startswith('{"add"')]
        return json.loads(found["stats"]).get(EXACT_BOUNDS) is True

    assert marked(x=pa.array([1.0]))
    assert marked(x=pa.array([{"y": 1.0}]))
    assert marked(x=pa.array([Decimal(1)], pa.decimal128(16, 2)))
    assert marked(x=pa.array([0], pa.timestamp("us", "UTC")))
    assert marked(x=pa.array([0], pa.timestamp("us")))
    assert marked(x=pa.array(["12345678"]))
    assert not marked(x=pa.array(["1234567"]), n=pa.array([1]), m=pa.array([Decimal(1)], pa.decimal128(15, 2)))
    assert not marked(x=pa.array([None], pa.float64()))
