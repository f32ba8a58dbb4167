"""Partitions of -0.0 and 0.0: as in delta-spark 4.4, they are two partitions in the log, and one value for every
statement: filters, DELETE, UPDATE, MERGE, replaceWhere and the dynamic overwrite.
"""

from __future__ import annotations

import itertools
import json
import math
import random

import pyarrow as pa
import pytest

from refdelta import DeltaTable, write_deltalake
from refdelta.operations.write import overwrite

VALUES = [0.0, -0.0, 1.0, float("nan"), None]
_tables = itertools.count()
Row = tuple[float | None, int]


def rows_of(rows: list[Row], kind=None) -> pa.Table:
    values, numbers = [row[0] for row in rows], [row[1] for row in rows]
    return pa.table({"p": pa.array(values, kind or pa.float64()), "x": pa.array(numbers, pa.int64())})


def same(one: float | None, other: float | None) -> bool:
    """Equality of SQL, of values that are not null; NaN equals itself."""
    return one is not None and other is not None and (one == other or (math.isnan(one) and math.isnan(other)))


def text(row: Row) -> str:
    return f"{row[0]!r} {row[1]}"


def sql(value: float) -> str:
    return "double('NaN')" if math.isnan(value) else f"double('{value!r}')"


def found(uri) -> list[str]:
    return sorted(map(text, zip(*DeltaTable(uri).to_pyarrow_table().to_pydict().values(), strict=True)))


def history(seed: int, kind: pa.DataType) -> None:
    chosen, uri, model = random.Random(seed), f"memory://zeros-{next(_tables)}", []
    write_deltalake(uri, rows_of([], kind), partition_by="p")
    for number in range(8):
        table = DeltaTable(uri)
        value = chosen.choice([0.0, -0.0, 1.0, float("nan")])
        fresh = [(chosen.choice(VALUES), 100 * number + place) for place in range(chosen.randrange(1, 4))]
        step = chosen.choice(["append", "delete", "update", "merge", "replace", "dynamic", "compact", "filter"])
        if step == "append":
            write_deltalake(table, rows_of(fresh, kind), mode="append")
            model += fresh
        elif step == "delete":
            table.delete(f"p = {sql(value)}")
            model = [row for row in model if not same(row[0], value)]
        elif step == "update":
            table.update({"x": "-x"}, predicate=f"p = {sql(value)}")
            model = [(p, -x) if same(p, value) else (p, x) for p, x in model]
        elif step == "merge":
            one = (value, number)
            merge = table.merge(rows_of([one], kind), "s.p = t.p").when_matched_update({"x": "s.x"})
            merge.when_not_matched_insert_all().execute()
            met = any(same(row[0], value) for row in model)
            model = [(p, number) if same(p, value) else (p, x) for p, x in model] + ([] if met else [one])
        elif step == "replace":
            new = [(chosen.choice([value, -value]) if value == 0 else value, number)]
            write_deltalake(table, rows_of(new, kind), mode="overwrite", predicate=f"p = {sql(value)}")
            model = [row for row in model if not same(row[0], value)] + new
        elif step == "dynamic":
            write_deltalake(table, rows_of(fresh, kind), mode="overwrite", partition_overwrite="dynamic")
            gone = [row[0] for row in fresh]
            model = [
                row for row in model if not any(same(row[0], one) or (row[0] is None and one is None) for one in gone)
            ] + fresh
        elif step == "compact":
            table.optimize.compact()
        else:
            met = table.to_pyarrow_table(filters=f"p = {sql(value)}")
            assert met.num_rows == sum(same(row[0], value) for row in model)
            assert table.count(f"p < {sql(0.0)}") == 0
        assert found(uri) == sorted(map(text, model)), (seed, number, step)


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()], ids=str)
def test_random_histories_are_those_of_equal_zeros(kind):
    for seed in range(25):
        history(seed, kind)


def test_the_log_has_both_zeros_as_spark_writes_them(tmp_path):
    write_deltalake(tmp_path, rows_of([(0.0, 1), (-0.0, 2), (-0.0, 3)]), partition_by="p")
    log = (tmp_path / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    adds = [json.loads(line)["add"]["partitionValues"]["p"] for line in log if '"add"' in line]
    assert sorted(adds) == ["-0.0", "0.0"]


def test_a_dynamic_overwrite_replaces_both_zeros(tmp_path):
    write_deltalake(tmp_path, rows_of([(0.0, 1), (-0.0, 2), (1.0, 3)]), partition_by="p")
    write_deltalake(tmp_path, rows_of([(0.0, 9)]), mode="overwrite", partition_overwrite="dynamic")
    assert found(tmp_path) == ["0.0 9", "1.0 3"]


def codes_of_bits(old: pa.ChunkedArray, new: pa.ChunkedArray) -> pa.Array:
    values = pa.chunked_array([*old.chunks, *new.chunks], type=old.type).combine_chunks()
    return values.dictionary_encode(null_encoding="encode").indices.cast(pa.int64())


def test_without_the_rule_the_random_histories_find_it(monkeypatch):
    monkeypatch.setattr(overwrite, "_codes", codes_of_bits)
    with pytest.raises(AssertionError, match="dynamic"):
        test_random_histories_are_those_of_equal_zeros(pa.float64())
