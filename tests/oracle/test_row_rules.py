"""Rules of tables for their rows, between refdelta and delta-spark: each enforces the rules that the other declares."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from comparison import assert_same_table
from refdelta import DeltaTable, Identity, errors, verify, write_deltalake
from refdelta.crosscheck import oracle
from refdelta.table.features import features_of

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


@pytest.mark.tier("nightly")
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


@pytest.mark.tier("nightly")
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


BASE = "at TIMESTAMP, a BIGINT, s STRING, d DOUBLE, x DECIMAL(10,2)"
MADE = {
    "g0": ("DATE", "CAST(at AS DATE)"),
    "g1": ("INT", "year(at) * 100 + month(at)"),
    "g2": ("INT", "hour(at)"),
    "g3": ("TIMESTAMP", "date_trunc('MONTH', at)"),
    "g4": ("BIGINT", "a * 2 + 1"),
    "g5": ("STRING", "upper(substring(s, 1, 2))"),
    "g6": ("STRING", "concat(s, '-', CAST(a AS STRING))"),
    "g7": ("BOOLEAN", "d > 1.5 OR a IS NULL"),
    "g8": ("STRING", "CASE WHEN a > 2 THEN 'many' WHEN s LIKE 'b%' THEN s ELSE 'few' END"),
    "g9": ("DECIMAL(11,2)", "x + 1.25BD"),
    "g10": ("DOUBLE", "d / 2"),
    "g11": ("DATE", "trunc(at, 'YEAR')"),
    "g12": ("BIGINT", "coalesce(a, length(s), 0)"),
}
DEFAULTS = {
    "n": ("INT", "7"),
    "t": ("STRING", "concat('x', 'y')"),
    "u": ("DATE", "DATE '2024-02-29'"),
    "v": ("INT", "NULL"),
}
INPUT = pa.table(
    {
        "at": pa.array([0, 1709210096123456, -3600 * 10**6, None], pa.timestamp("us", "UTC")),
        "a": pa.array([1, 5, None, -7], pa.int64()),
        "s": pa.array(["abc", "b", "", None]),
        "d": pa.array([1.5, 2.5, float("nan"), None]),
        "x": pa.array([1, 2, None, 4], pa.int32()).cast(pa.decimal128(12, 0)).cast(pa.decimal128(10, 2)),
    }
)


def made_by_spark(spark, path):
    generated = [f"{name} {kind} GENERATED ALWAYS AS ({sql})" for name, (kind, sql) in MADE.items()]
    defaults = [f"{name} {kind} DEFAULT {sql}" for name, (kind, sql) in DEFAULTS.items()]
    spark.sql(
        f"CREATE TABLE {oracle.identifier(path)} ({', '.join([BASE, *generated, *defaults])}) USING delta "
        "PARTITIONED BY (g0) TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    )


@pytest.mark.tier("nightly")
def test_generated_columns_and_defaults_are_the_same_whoever_declares_and_whoever_makes_them(quick_spark, tmp_path):
    spark = quick_spark
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    made_by_spark(spark, theirs)
    schema = DeltaTable(theirs).schema()
    table = DeltaTable.create(
        ours,
        schema.to_arrow(),
        partition_by="g0",
        generated={name: sql for name, (_, sql) in MADE.items()},
        defaults={name: sql for name, (_, sql) in DEFAULTS.items()},
    )
    assert table.schema() == schema
    assert features_of(table.protocol()) == features_of(DeltaTable(theirs).protocol())
    frame = spark.createDataFrame(INPUT.to_pylist(), BASE)
    for place in (theirs, ours):
        write_deltalake(place, INPUT, mode="append")
        frame.write.format("delta").mode("append").save(str(place))
        # What is there is what the expressions make, for both: each takes all of it as it is.
        whole = DeltaTable(place).to_pyarrow_table()
        write_deltalake(place, whole, mode="append")
        spark.sql(f"INSERT INTO {oracle.identifier(place)} SELECT * FROM {oracle.identifier(place)}")
        found = DeltaTable(place).to_pyarrow_table()
        assert found.num_rows == 8 * INPUT.num_rows
        assert found.group_by(found.column_names).aggregate([]).num_rows == INPUT.num_rows
    assert_same_table(DeltaTable(ours).to_pyarrow_table(), DeltaTable(theirs).to_pyarrow_table())
    assert_same_table(DeltaTable(ours).to_pyarrow_table(), oracle.read_table(spark, ours))

    name = oracle.identifier(ours)
    spark.sql(f"UPDATE {name} SET at = at + INTERVAL 40 DAYS, s = DEFAULT, n = 3, t = DEFAULT WHERE a = 5")
    DeltaTable(theirs).update(
        {"at": "CAST(date_add(CAST(at AS DATE), 40) AS TIMESTAMP)", "s": "DEFAULT", "n": "3", "t": "DEFAULT"},
        predicate="a = 5",
    )
    drop = [name for name in table.schema().names if name in ("at", "g2")]
    one, other = (DeltaTable(place).to_pyarrow_table().drop_columns(drop) for place in (ours, theirs))
    assert_same_table(one, other)
    for column in ("a + 1", "NULL"):
        with pytest.raises(Exception, match="Generated Column"):
            spark.sql(f"UPDATE {name} SET g4 = {column}")
        with pytest.raises(errors.ConstraintViolationError, match="generated column g4"):
            DeltaTable(theirs).update({"g4": column})


@pytest.mark.tier("nightly")
def test_identity_columns_are_numbered_by_both_in_turns(quick_spark, tmp_path):
    spark = quick_spark
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    spark.sql(
        f"CREATE TABLE {oracle.identifier(theirs)} "
        "(id BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 10 INCREMENT BY 5), "
        "down BIGINT GENERATED BY DEFAULT AS IDENTITY (START WITH -1 INCREMENT BY -1), a BIGINT) USING delta "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    table = DeltaTable.create(
        ours,
        DeltaTable(theirs).schema().to_arrow(),
        identity={"id": Identity(10, 5), "down": Identity(-1, -1, always=False)},
        configuration={"delta.enableDeletionVectors": "true"},
    )
    assert table.schema() == DeltaTable(theirs).schema()
    assert features_of(table.protocol()) == features_of(DeltaTable(theirs).protocol())
    for place in (theirs, ours):
        name = oracle.identifier(place)
        spark.createDataFrame([(n,) for n in range(6)], "a long").repartition(3).createOrReplaceTempView("numbered")
        spark.sql(f"INSERT INTO {name} (a) SELECT a FROM numbered")
        write_deltalake(place, pa.table({"a": [6, 7]}), mode="append")
        spark.sql(f"INSERT INTO {name} (a) VALUES (8)")
        write_deltalake(place, pa.table({"a": [9], "down": [1000]}), mode="append")
        DeltaTable(place).merge(pa.table({"a": [9, 10, 11]}), "s.a = t.a").when_not_matched_insert(
            {"a": "s.a"}
        ).execute()
        spark.sql(
            f"MERGE INTO {name} t USING (SELECT explode(array(11, 12, 13)) AS a) s ON s.a = t.a "
            "WHEN NOT MATCHED THEN INSERT (a) VALUES (s.a)"
        )
        spark.sql(f"RESTORE TABLE {name} TO VERSION AS OF 3")
        write_deltalake(place, pa.table({"a": [14]}), mode="append")
        spark.sql(f"INSERT INTO {name} (a) VALUES (15)")
        DeltaTable(place).restore(2)
        write_deltalake(place, pa.table({"a": [16]}), mode="append")
        spark.sql(f"INSERT INTO {name} (a) VALUES (17)")
        found = DeltaTable(place).to_pyarrow_table()
        assert_same_table(found, oracle.read_table(spark, place))
        assert sorted(found["a"].to_pylist()) == [*range(8), 16, 17]
        new = found.filter(pc.greater(found["a"], 15))
        every = pa.concat_tables(
            DeltaTable(place, version=version).to_pyarrow_table() for version in range(DeltaTable(place).version() + 1)
        )
        pairs = every.group_by(["a", "id"]).aggregate([]).num_rows
        assert pairs == len(pc.unique(every["id"])) == len(pc.unique(every["a"]))  # no number was given twice
        assert set(pc.unique(every["id"]).to_pylist()) <= set(range(10, 2000, 5))
        assert pc.min(new["id"]).as_py() > pc.max(every.filter(pc.less(every["a"], 16))["id"]).as_py()
        for sql in ("INSERT INTO {} (id, a) VALUES (1, 2)", "UPDATE {} SET down = 3"):
            with pytest.raises(Exception, match="IDENTITY"):
                spark.sql(sql.format(name))


@pytest.mark.tier("nightly")
def test_workers_of_spark_hold_the_rules_too(quick_spark, tmp_path):
    import refdelta.spark

    spark, path = quick_spark, tmp_path / "t"
    refdelta.spark.register(spark)
    schema = pa.schema([("a", pa.int64()), ("g", pa.int64()), ("n", pa.int32())])
    table = DeltaTable.create(
        path,
        schema,
        generated={"g": "a * 2"},
        defaults={"n": "7"},
        configuration={"delta.constraints.c": "a > 0", "delta.enableDeletionVectors": "true"},
    )
    good, bad = spark.range(1, 5).selectExpr("id AS a"), spark.range(0, 5).selectExpr("id AS a")
    wrong = good.selectExpr("a", "a * 3 AS g")
    executor = refdelta.spark.SparkExecutor(spark)
    source = pa.table({"a": [1, 50, 60]})
    refdelta.spark.write(good, str(path), mode="append")
    good.write.format("refdelta").mode("append").save(str(path))
    table.update({"a": "a + 10"}, predicate="a = 4", executor=executor)
    merger = table.merge(source, "s.a = t.a", executor=executor).when_matched_update({"a": "s.a + 20"})
    merger.when_not_matched_insert({"a": "s.a"}).execute()
    frame = spark.createDataFrame([(2,), (70,)], "a long")
    apart = refdelta.spark.SparkExecutor(spark, broadcast_bytes=0)
    merger = table.merge(frame, "s.a = t.a", executor=apart).when_matched_update({"a": "s.a + 30", "n": "DEFAULT"})
    merger.when_not_matched_insert({"a": "s.a", "n": "1"}).execute()
    found = table.to_pyarrow_table().sort_by("a").to_pydict()
    assert found["a"] == [3, 3, 14, 14, 21, 21, 32, 32, 50, 60, 70]
    assert found["g"] == [2 * a for a in found["a"]]
    assert found["n"] == [7] * 10 + [1]
    version = table.version()
    for rows, said in ((bad, "CHECK constraint 'c'"), (wrong, "generated column g")):
        with pytest.raises(errors.ConstraintViolationError, match=said):
            refdelta.spark.write(rows, str(path), mode="append")
    with pytest.raises(Exception, match="the CHECK constraint 'c'"):
        bad.write.format("refdelta").mode("append").save(str(path))
    with pytest.raises(errors.ConstraintViolationError, match="CHECK constraint 'c'"):
        table.update({"a": "a - 100"}, executor=executor)
    with pytest.raises(errors.ConstraintViolationError, match="CHECK constraint 'c'"):
        table.merge(frame, "s.a = t.a", executor=apart).when_not_matched_insert({"a": "-s.a"}).execute()
    assert DeltaTable(path).version() == version

    numbered = DeltaTable.create(tmp_path / "n", schema, identity={"g": Identity(always=False)})
    refdelta.spark.write(wrong, str(tmp_path / "n"), mode="append")
    numbered.merge(frame, "s.a = t.a", executor=executor).when_not_matched_insert({"a": "s.a"}).execute()
    assert sorted(numbered.to_pyarrow_table()["g"].to_pylist()) == [1, 3, 6, 9, 12]


@pytest.mark.tier("nightly")
def test_workers_of_spark_number_rows_apart(quick_spark, tmp_path):
    """By frames, the data source, a stream and MERGE, between statements of delta-spark: no number is given twice."""
    import refdelta.spark

    spark, path = quick_spark, tmp_path / "t"
    refdelta.spark.register(spark)
    name = oracle.identifier(path)
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT GENERATED ALWAYS AS IDENTITY, a BIGINT, "
        "down BIGINT GENERATED BY DEFAULT AS IDENTITY (START WITH -1 INCREMENT BY -2)) USING delta "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true')"
    )
    some = [spark.range(i * 100, i * 100 + 60, 1, 4).selectExpr("id AS a") for i in range(6)]
    refdelta.spark.write(some[0], str(path), mode="append")
    some[1].write.format("refdelta").mode("append").save(str(path))
    spark.sql(f"INSERT INTO {name} (a) SELECT id FROM range(200, 260)")
    apart = refdelta.spark.SparkExecutor(spark, broadcast_bytes=0)
    merger = DeltaTable(path).merge(spark.range(290, 360, 1, 4).selectExpr("id AS a"), "s.a = t.a", executor=apart)
    merger.when_matched_update({"a": "-s.a"}).when_not_matched_insert({"a": "s.a"}).execute()
    source = tmp_path / "source"
    some[4].write.format("delta").save(str(source))
    stream = spark.readStream.format("delta").load(str(source)).writeStream.format("refdelta")
    stream = stream.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    stream.start(str(path)).awaitTermination()
    given = spark.range(500, 560, 1, 4).selectExpr("id AS a", "id AS down")
    refdelta.spark.write(given, str(path), mode="append")
    spark.sql(f"INSERT INTO {name} (a) VALUES (600)")
    write_deltalake(path, pa.table({"a": [601]}), mode="append")
    rows = DeltaTable(path).to_pyarrow_table()
    assert_same_table(rows, oracle.read_table(spark, path))
    assert rows.num_rows == 4 * 60 + 70 + 60 + 2
    assert len(rows["id"].unique()) == len(rows["down"].unique()) == rows.num_rows
    ids = dict(zip(rows["a"].to_pylist(), rows["id"].to_pylist(), strict=True))
    spans = [[ids[a] for a in ids if low <= a < low + 100] for low in (0, 100, 200, 300, 400, 500)]
    assert all(max(one) < min(other) for one, other in zip(spans, [*spans[1:], [ids[600]]], strict=True))
    assert ids[600] < ids[601]
    assert not [found for found in verify(path, sample=None).findings if found.severity == "error"]


@pytest.mark.tier("nightly")
def test_all_rules_beside_mapped_columns_vectors_and_tracked_rows(quick_spark, tmp_path):
    spark, path = quick_spark, tmp_path / "t"
    name = oracle.identifier(path)
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT GENERATED ALWAYS AS IDENTITY, a BIGINT, "
        "g BIGINT GENERATED ALWAYS AS (a * 10), "
        "p STRING GENERATED ALWAYS AS (CASE WHEN a % 2 = 0 THEN 'even' ELSE 'odd' END), d INT DEFAULT 7, n STRING) "
        "USING delta PARTITIONED BY (p) TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported', "
        "'delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = 'true', "
        "'delta.enableRowTracking' = 'true', 'delta.enableInCommitTimestamps' = 'true', "
        "'delta.checkpointInterval' = '3')"
    )
    table = DeltaTable(path)
    table.alter.add_constraint({"c": "a < 1000"})
    write_deltalake(table, pa.table({"a": [1, 2, 3]}), mode="append")
    spark.sql(f"INSERT INTO {name} (a, d) VALUES (4, 5), (5, DEFAULT)")
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN n TO `some n`")
    table.update({"a": "a + 10", "d": "DEFAULT", "`some n`": "'ours'"}, predicate="a IN (2, 4)")
    spark.sql(f"UPDATE {name} SET a = a + 20, `some n` = 'theirs' WHERE a IN (3, 14)")
    merger = table.merge(pa.table({"k": [1, 6]}), "s.k = t.a").when_matched_update({"a": "s.k + 100", "d": "1"})
    merger.when_not_matched_insert({"a": "s.k"}).execute()
    spark.sql(
        f"MERGE INTO {name} t USING (SELECT explode(array(5L, 8L)) AS k) s ON s.k = t.a "
        "WHEN MATCHED THEN UPDATE SET a = s.k + 200 WHEN NOT MATCHED THEN INSERT (a, d) VALUES (s.k, 7)"
    )
    spark.sql(f"OPTIMIZE {name}")
    table.delete("a = 6")
    table.optimize.compact()
    write_deltalake(table, pa.table({"a": [9]}), mode="append")
    expected = {101: 1, 12: 7, 23: 7, 34: 7, 205: 7, 8: 7, 9: 7}
    found = table.to_pyarrow_table()
    assert dict(zip(found["a"].to_pylist(), found["d"].to_pylist(), strict=True)) == expected
    assert found["g"].to_pylist() == [a * 10 for a in found["a"].to_pylist()]
    assert found["p"].to_pylist() == ["odd" if a % 2 else "even" for a in found["a"].to_pylist()]
    assert len(set(found["id"].to_pylist())) == len(expected)
    assert_same_table(found, oracle.read_table(spark, path))
    with pytest.raises(Exception, match="CHECK constraint c "):
        spark.sql(f"INSERT INTO {name} (a) VALUES (1000)")
    with pytest.raises(errors.ConstraintViolationError, match="CHECK constraint 'c'"):
        write_deltalake(table, pa.table({"a": [1000]}), mode="append")
    assert not verify(path).errors
