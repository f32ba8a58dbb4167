"""Whatever delta-spark writes, refdelta reads: every type, every version, and each feature that changes how to read."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spark_tables
import strategies
from comparison import assert_same_table
from refdelta import DeltaTable
from refdelta.crosscheck import oracle
from spark_tables import tries

pytestmark = pytest.mark.spark


@tries(12)
@given(table=strategies.tables())
def test_refdelta_reads_what_spark_wrote(spark, fresh_path, table):
    path = fresh_path()
    spark_tables.create(spark, path, table.schema, table.partition_by)
    for part in table.parts:
        spark_tables.write(spark, path, part, partition_by=table.partition_by, files=2)

    ours = DeltaTable(path)
    assert_same_table(ours.to_pyarrow_table(), table.whole)
    assert ours.count() == table.whole.num_rows
    nullable = [field.nullable for field in ours.to_record_batch_reader().schema]
    assert nullable == [field.nullable for field in table.schema]


@tries(6)
@given(table=strategies.tables(parts=(2, 4), columns=4), data=st.data())
def test_refdelta_travels_through_versions_of_spark(spark, fresh_path, table, data):
    path = fresh_path()
    alive: list[pa.Table] = []
    wanted = {}
    for part in table.parts:
        mode = data.draw(st.sampled_from(["append", "append", "overwrite"]), label="mode")
        spark_tables.write(spark, path, part, mode, table.partition_by)
        alive = [part] if mode == "overwrite" else [*alive, part]
        # Spark commits nothing where there is nothing to append, so versions are not the numbers of parts.
        wanted[oracle.delta_log(spark, path).unsafeVolatileSnapshot().version()] = table.seen(*alive)

    for version, want in wanted.items():
        assert_same_table(DeltaTable(path, version=version).to_pyarrow_table(), want)


@tries(5)
@given(table=strategies.tables(types=st.sampled_from([strategies.TIMESTAMP, pa.date32()]), not_null=False))
def test_int96_and_instants_before_the_gregorian_calendar(spark, fresh_path, table):
    path = fresh_path()
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    try:
        for part in table.parts:
            spark_tables.write(spark, path, part, partition_by=table.partition_by)
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")

    assert_same_table(DeltaTable(path).to_pyarrow_table(), table.whole)


@pytest.mark.parametrize("kind", ["TIMESTAMP_MILLIS", "TIMESTAMP_MICROS"])
def test_timestamps_of_other_physical_types(spark, tmp_path, kind):
    instants = pa.array([-62135596800_000_000, -1_000, 0, 253402300799_999_000, None], strategies.TIMESTAMP)
    data = pa.table({"at": instants})
    spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
    try:
        spark_tables.write(spark, tmp_path / "t", data)
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")

    assert_same_table(DeltaTable(tmp_path / "t").to_pyarrow_table(), data)


NUMBERS = pa.table({"id": pa.array(range(100), pa.int64()), "name": [f"n{i}" for i in range(100)]})


VECTORS = {"delta.enableDeletionVectors": "true"}


class TestDeletionVectors:
    @pytest.fixture
    def path(self, spark, tmp_path):
        spark_tables.create(spark, tmp_path / "t", NUMBERS.schema, properties=VECTORS)
        spark_tables.write(spark, tmp_path / "t", NUMBERS, files=1)
        return tmp_path / "t"

    @pytest.mark.tier("nightly")
    def test_rows_deleted_in_several_steps_are_gone_in_each_version(self, spark, path):
        for predicate in ("id % 7 = 0", "id > 90", "name = 'n1'"):
            spark_tables.sql(spark, path, f"DELETE FROM {{t}} WHERE {predicate}")
        newest = DeltaTable(path)
        assert newest.version() == 4

        for version in range(1, 5):
            want = oracle.read_table(spark, path, version)
            assert_same_table(DeltaTable(path, version=version).to_pyarrow_table(), want)
        assert newest.count() == want.num_rows < 80
        assert len(newest.file_uris()) == 1  # it was a vector and not a rewritten file
        assert set(newest.to_pyarrow_table(columns=["id"], filters="id < 10")["id"].to_pylist()) == {
            2,
            3,
            4,
            5,
            6,
            8,
            9,
        }

    @pytest.mark.tier("nightly")
    def test_update_and_merge_by_vectors(self, spark, path):
        spark_tables.sql(spark, path, "UPDATE {t} SET name = concat(name, '!') WHERE id BETWEEN 20 AND 30")
        spark_tables.sql(
            spark,
            path,
            "MERGE INTO {t} t USING (SELECT explode(sequence(95, 105)) AS id) s ON t.id = s.id "
            "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, 'new')",
        )
        for version in (2, 3):
            want = oracle.read_table(spark, path, version)
            assert_same_table(DeltaTable(path, version=version).to_pyarrow_table(), want)

    @pytest.mark.tier("nightly")
    def test_a_large_table_with_vectors_over_several_row_groups(self, spark, tmp_path):
        path = tmp_path / "large"
        spark.sql(
            f"CREATE TABLE {oracle.identifier(path)} USING delta "
            "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true') AS SELECT /*+ COALESCE(1) */ id FROM range(200000)"
        )
        spark_tables.sql(spark, path, "DELETE FROM {t} WHERE id % 1000 < 3 OR id BETWEEN 100000 AND 170000")
        kept = [i for i in range(200_000) if i % 1000 >= 3 and not 100_000 <= i <= 170_000]

        assert DeltaTable(path).to_pyarrow_table()["id"].to_pylist() == kept
        assert oracle.read_table(spark, path).num_rows == len(kept)

    @pytest.mark.parametrize("storage", ["i", "p"])
    def test_vectors_stored_inline_and_at_an_absolute_path(self, spark, path, storage):
        """delta-spark itself writes the relative form; the others come from the same bytes, and it reads them too."""
        spark_tables.sql(spark, path, "DELETE FROM {t} WHERE id % 3 = 1")
        restate_deletion_vector(path, 2, storage)
        oracle.clear_cache(spark)

        want = oracle.read_table(spark, path)
        assert want.num_rows == 67
        assert_same_table(DeltaTable(path).to_pyarrow_table(), want)


def restate_deletion_vector(path, version, storage):
    """Rewrite the deletion vector that a commit adds: ``i`` inline, ``p`` in the same file by its absolute path."""
    import json

    from refdelta.core.rows.deletion_vector import z85_encode

    commit = path / "_delta_log" / f"{version:020d}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    (vector,) = [a["add"]["deletionVector"] for a in actions if "add" in a]
    (file,) = path.glob("deletion_vector_*.bin")
    assert vector["storageType"] == "u"
    if storage == "p":
        vector.update(storageType="p", pathOrInlineDv=file.as_uri())
    else:
        start = vector.pop("offset") + 4
        bitmap = file.read_bytes()[start : start + vector["sizeInBytes"]]
        padded = bitmap + b"\0" * (-len(bitmap) % 4)
        vector.update(storageType="i", pathOrInlineDv=z85_encode(padded))
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    (path / "_delta_log" / f"{version:020d}.crc").unlink(missing_ok=True)
    (path / "_delta_log" / f".{commit.name}.crc").unlink(missing_ok=True)  # Hadoop's own, of the bytes


@pytest.mark.parametrize("mode", ["name", "id"])
class TestColumnMapping:
    @pytest.fixture
    def path(self, spark, tmp_path, mode):
        path = tmp_path / "t"
        schema = pa.schema(
            [
                ("a", pa.int64()),
                ("b c", pa.string()),
                ("s", pa.struct([("x, y", pa.int32()), ("z", pa.date32())])),
                ("part", pa.string()),
            ]
        )
        spark_tables.create(spark, path, schema, ["part"], {"delta.columnMapping.mode": mode})
        spark_tables.sql(
            spark, path, "INSERT INTO {t} VALUES (1, 'one', struct(10, DATE'2020-01-01'), 'p/1'), (2, NULL, NULL, NULL)"
        )
        return path

    @pytest.mark.tier("nightly")
    def test_columns_renamed_dropped_and_added_again(self, spark, path):
        for statement in (
            "ALTER TABLE {t} RENAME COLUMN `b c` TO `a,b`",
            "ALTER TABLE {t} RENAME COLUMN s.z TO `the day`",
            "INSERT INTO {t} VALUES (3, 'three', struct(30, DATE'0001-01-01'), 'p=3')",
            "ALTER TABLE {t} DROP COLUMN a",
            "ALTER TABLE {t} ADD COLUMN (a STRING)",
            "ALTER TABLE {t} RENAME COLUMN part TO key",
            "INSERT INTO {t} (`a,b`, s, key, a) VALUES ('four', struct(40, NULL), 'p4', 'new a')",
        ):
            spark_tables.sql(spark, path, statement)

        newest = DeltaTable(path).version()
        for version in range(1, newest + 1):
            want = oracle.read_table(spark, path, version)
            assert_same_table(DeltaTable(path, version=version).to_pyarrow_table(), want)
        assert want.num_rows == 4

    @pytest.mark.sample(test=1)
    def test_filters_find_the_physical_names(self, spark, path):
        spark_tables.sql(spark, path, "ALTER TABLE {t} RENAME COLUMN a TO n")
        spark_tables.sql(spark, path, "INSERT INTO {t} VALUES (3, 'three', struct(30, DATE'2021-01-01'), 'p=3')")

        for predicate in ("n = 3", "n < 3", "s.`x, y` > 10", "part = 'p/1'", "part IS NULL", "`b c` IS NULL"):
            want = oracle.frame(spark, path).where(predicate).toArrow()
            assert want.num_rows in (1, 2)
            assert_same_table(DeltaTable(path).to_pyarrow_table(filters=predicate), want)


def test_widened_types(spark, tmp_path):
    path = tmp_path / "t"
    spark.sql(
        f"CREATE TABLE {oracle.identifier(path)} (a BYTE, b INT, c FLOAT, d DECIMAL(5,2), e DATE, n STRUCT<x: SHORT>) "
        "USING delta TBLPROPERTIES ('delta.enableTypeWidening' = 'true', 'delta.feature.timestampNtz' = 'supported')"
    )
    spark_tables.sql(
        spark,
        path,
        "INSERT INTO {t} VALUES (1, 2, 0.1, 1.25, DATE'2020-01-01', struct(7)), (NULL, NULL, NULL, NULL, NULL, NULL)",
    )
    for column, wider in (
        ("a", "INT"),
        ("b", "BIGINT"),
        ("c", "DOUBLE"),
        ("d", "DECIMAL(12,4)"),
        ("e", "TIMESTAMP_NTZ"),
        ("n.x", "BIGINT"),
    ):
        spark_tables.sql(spark, path, f"ALTER TABLE {{t}} ALTER COLUMN {column} TYPE {wider}")
    spark_tables.sql(
        spark,
        path,
        "INSERT INTO {t} VALUES "
        "(300, 3000000000, 0.1, 12345678.1234, TIMESTAMP_NTZ'2020-01-01 01:02:03', struct(70000))",
    )

    want = oracle.read_table(spark, path)
    assert want.num_rows == 3
    assert_same_table(DeltaTable(path).to_pyarrow_table(), want)


def test_tables_with_writer_features_are_readable(spark, tmp_path):
    """Row tracking, in-commit timestamps, change data feed, constraints, generated and identity columns, defaults."""
    path = tmp_path / "t"
    spark.sql(
        f"CREATE TABLE {oracle.identifier(path)} (id BIGINT GENERATED ALWAYS AS IDENTITY, n INT NOT NULL DEFAULT 5, "
        "twice INT GENERATED ALWAYS AS (n * 2), day DATE) USING delta CLUSTER BY (n) TBLPROPERTIES ("
        "'delta.enableRowTracking' = 'true', 'delta.enableInCommitTimestamps' = 'true', "
        "'delta.enableChangeDataFeed' = 'true', 'delta.feature.allowColumnDefaults' = 'supported', "
        "'delta.enableDeletionVectors' = 'true')"
    )
    spark_tables.sql(spark, path, "ALTER TABLE {t} ADD CONSTRAINT small CHECK (n < 1000)")
    spark_tables.sql(
        spark, path, "INSERT INTO {t} (n, day) VALUES (1, DATE'2024-01-01'), (2, NULL), (3, DATE'2024-01-03')"
    )
    spark_tables.sql(spark, path, "UPDATE {t} SET n = n + 10 WHERE n >= 2")
    spark_tables.sql(spark, path, "DELETE FROM {t} WHERE n = 12")

    for version in range(2, 5):
        want = oracle.read_table(spark, path, version)
        assert_same_table(DeltaTable(path, version=version).to_pyarrow_table(), want)
    assert want.num_rows == 2
