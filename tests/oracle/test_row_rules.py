"""What a table asks of its rows, between refdelta and delta-spark: what one declares the other holds."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from comparison import assert_same_table
from refdelta import DeltaTable, errors, write_deltalake
from refdelta.spark import oracle

pytestmark = pytest.mark.spark

VALUES = pa.table({"a": [1, 2, 3, None], "b": ["x", "y", "z", None], "d": pa.array([1.5, 2.5, 3.5, None])})
# Conditions of all kinds, each of which holds for some of these rows and not for others.
CONDITIONS = [
    "a BETWEEN 1 AND 2 OR b IS NULL",
    "b LIKE 'y%' AND length(b) = 1",
    "CASE WHEN a = 1 THEN d < 1 ELSE true END",
    "coalesce(nullif(b, 'z'), 'w') < 'y'",
    "nullif(a, 3) > 0",
    "NOT (a <=> 2) AND d * 2 > 3",
]
# Row k of condition n: each condition is a constraint that asks something of its own rows only.
ROWS = pa.concat_tables(
    VALUES.append_column("n", [[n] * 4]).append_column("k", [list(range(4))]) for n in range(len(CONDITIONS))
)
CONSTRAINTS = {f"c{n}": f"n <> {n} OR ({sql})" for n, sql in enumerate(CONDITIONS)}


def test_constraints_are_the_same_whoever_declares_and_whoever_holds_them(quick_spark, tmp_path):
    spark = quick_spark
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for place in (ours, theirs):
        write_deltalake(place, ROWS.slice(0, 0))
    for name, sql in CONSTRAINTS.items():
        DeltaTable(ours).alter.add_constraint({name: sql})
        spark.sql(f"ALTER TABLE {oracle.identifier(theirs)} ADD CONSTRAINT {name} CHECK ({sql})")
    # Spark writes its own spaces between the words.
    assert DeltaTable(ours).metadata().configuration.keys() == DeltaTable(theirs).metadata().configuration.keys()
    assert DeltaTable(ours).protocol() == DeltaTable(theirs).protocol()

    kept: list[dict] = []
    refused: dict[str, list[dict]] = {}
    for row in ROWS.to_pylist():
        try:
            write_deltalake(theirs, pa.Table.from_pylist([row], ROWS.schema), mode="append")
            kept.append(row)
        except errors.ConstraintViolationError as error:
            refused.setdefault(str(error).split("'")[1], []).append(row)
    assert refused.keys() == CONSTRAINTS.keys()
    assert all({f"c{row['n']}" for row in rows} == {name} for name, rows in refused.items())

    def insert(rows):
        frame = spark.createDataFrame(rows, "a long, b string, d double, n long, k long")
        frame.write.format("delta").mode("append").save(str(ours))

    insert(kept)
    for name, rows in refused.items():
        with pytest.raises(Exception, match=f"CHECK constraint {name} "):
            insert(rows[-1:])
    for place in (ours, theirs):
        assert_same_table(DeltaTable(place).to_pyarrow_table(), pa.Table.from_pylist(kept, ROWS.schema))


def test_neither_adds_a_constraint_that_rows_break(quick_spark, tmp_path):
    spark, path = quick_spark, tmp_path / "t"
    write_deltalake(path, VALUES)
    table, name = DeltaTable(path), oracle.identifier(path)
    for sql in CONDITIONS:
        with pytest.raises(errors.ConstraintViolationError) as ours:
            table.alter.add_constraint({"c": sql})
        with pytest.raises(Exception, match="DELTA_NEW_CHECK_CONSTRAINT_VIOLATION") as theirs:
            spark.sql(f"ALTER TABLE {name} ADD CONSTRAINT c CHECK ({sql})")
        counts = [str(error.value).split(" row")[0].split()[-1] for error in (ours, theirs)]
        assert counts[0] == counts[1], sql
    table.alter.add_constraint({"Mixed": "a IS NULL OR a > 0"})
    spark.sql(f"ALTER TABLE {name} DROP CONSTRAINT mixed")
    assert not [key for key in DeltaTable(path).metadata().configuration if "constraints" in key]
    spark.sql(f"ALTER TABLE {name} ADD CONSTRAINT Other CHECK (a IS NULL OR a > 0)")
    spark.sql(f"UPDATE {name} SET a = 9 WHERE a = 3")
    with pytest.raises(errors.ConstraintViolationError, match="'other'"):
        DeltaTable(path).update({"a": "-a"})
    DeltaTable(path).alter.drop_constraint("other")
    spark.sql(f"UPDATE {name} SET a = -1 WHERE a = 9")
    assert pc.min(DeltaTable(path).to_pyarrow_table()["a"]).as_py() == -1
