"""``refdelta.sql``: each statement does what its method does, and a wrong one changes nothing and says where.

Tests of sql_statements.run, sql_statements.session, sql_statements.words, sql_statements.query,
sql_statements.changing, sql_statements.defining, sql_statements.altering, sql_statements.maintaining.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import refdelta
from refdelta import CommitProperties, DeltaTable, errors, sql, write_deltalake
from refdelta.catalog import SqlCatalog
from refdelta.sql_statements import words

ROWS = pa.table({"id": [1, 2, 3], "town": ["Ulm", "Bonn", None], "n": [10, 20, -1]})


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    write_deltalake(tmp_path / "t", ROWS)
    return DeltaTable(tmp_path / "t")


def rows(table: DeltaTable, order: str = "id") -> list[tuple[Any, ...]]:
    found = DeltaTable(table.table_uri).to_pyarrow_table().sort_by(order)
    return [tuple(row.values()) for row in found.to_pylist()]


# --- SELECT ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT * FROM t ORDER BY id DESC LIMIT 2", [(3, None, -1), (2, "Bonn", 20)]),
        ("SELECT t.id, n * 2 AS twice FROM t WHERE t.n > 0 ORDER BY twice DESC", [(2, 40), (1, 20)]),
        ("SELECT x.id FROM t AS x WHERE x.town LIKE 'U%'", [(1,)]),
        ("SELECT x.id FROM t x ORDER BY x.town NULLS LAST, 1", [(2,), (1,), (3,)]),
        ("SELECT town FROM t ORDER BY town", [(None,), ("Bonn",), ("Ulm",)]),
        ("SELECT town FROM t ORDER BY town DESC", [("Ulm",), ("Bonn",), (None,)]),
        ("SELECT id FROM t ORDER BY id LIMIT 1 OFFSET 1;", [(2,)]),
        ("SELECT id FROM t ORDER BY id LIMIT 0", []),
        ("select upper(town) as big from t where id in (1, 2) order by big", [("BONN",), ("ULM",)]),
        ("SELECT CASE WHEN n < 0 THEN 'FROM' ELSE 'WHERE' END AS w FROM t ORDER BY id DESC LIMIT 1", [("FROM",)]),
        ("SELECT count(*) FROM t WHERE n > 0", [(2,)]),
        ("SELECT COUNT(1) AS many FROM t", [(3,)]),
        ("SELECT 1 + 1, 'a'", [(2, "a")]),
        ("TABLE t", [(1, "Ulm", 10), (2, "Bonn", 20), (3, None, -1)]),
        ("VALUES (1, 'a'), (2, NULL)", [(1, "a"), (2, None)]),
    ],
)
def test_a_select(table: DeltaTable, statement: str, expected: list[tuple[Any, ...]]) -> None:
    found = sql(statement, t=table)
    assert sorted(zip(*found.to_pydict().values(), strict=True), key=repr) == sorted(expected, key=repr)
    if "ORDER BY" in statement.upper():
        assert list(zip(*found.to_pydict().values(), strict=True)) == expected


def test_a_select_reads_only_the_columns_that_it_uses(table: DeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    scan = DeltaTable.scan

    def noted(self: DeltaTable, columns: Any = None, predicate: Any = None, **options: Any) -> Any:
        asked.append(columns)
        return scan(self, columns, predicate, **options)

    monkeypatch.setattr(DeltaTable, "scan", noted)
    sql("SELECT id + 1 AS one FROM t WHERE town = 'Ulm' ORDER BY n", t=table)
    assert asked == [["id", "n"]]


def test_names_of_the_result(table: DeltaTable) -> None:
    found = sql("SELECT ID, t.`town`, n + 1, n AS `a b` FROM t", t=table)
    assert found.column_names == ["id", "town", "n + 1", "a b"]


def test_versions_and_times(table: DeltaTable) -> None:
    table.delete("id = 1")
    for version in ("VERSION AS OF 0", "FOR VERSION AS OF 0", "@v0"):
        statement = f"SELECT count(*) FROM t {version}"
        assert sql(statement, t=table).column(0).to_pylist() == [3]
    with pytest.raises(errors.VersionNotFoundError):
        sql("SELECT * FROM t TIMESTAMP AS OF '1999-01-01'", t=table)


def test_rows_are_what_write_deltalake_takes(table: DeltaTable) -> None:
    for given in (ROWS, ROWS.to_reader(), ROWS.to_pandas(), table, table.table_uri):
        found = sql("SELECT id FROM s WHERE n > 0 ORDER BY id", s=given)
        assert found.to_pydict() == {"id": [1, 2]}


def test_a_path_in_the_statement(table: DeltaTable, tmp_path: Path) -> None:
    assert sql(f"SELECT id FROM delta.`{tmp_path}/t` WHERE id = 1").to_pydict() == {"id": [1]}


def test_a_query_is_read_batch_by_batch(tmp_path: Path) -> None:
    for number in range(4):
        write_deltalake(tmp_path / "t", pa.table({"id": [number]}), mode="append")
    from refdelta.sql_statements.query import read_query
    from refdelta.sql_statements.session import Session
    from refdelta.sql_statements.words import Words

    reader = read_query(Words("SELECT id FROM t LIMIT 2")).reader(Session({"t": str(tmp_path / "t")}))
    assert [batch.num_rows for batch in reader] == [1, 1]


# --- rows that change --------------------------------------------------------------------------------------------


def test_insert_by_position_by_list_and_by_name(table: DeltaTable) -> None:
    sql("INSERT INTO t VALUES (4, 'Kiel', 1 + 1), (5, NULL, 2.0)", t=table)
    sql("INSERT INTO TABLE t (n, id) VALUES (7, 6)", t=table)
    sql("INSERT INTO t BY NAME SELECT 8 AS n, 7 AS id", t=table)
    sql("INSERT INTO t SELECT b, a, NULL FROM s", t=table, s=pa.table({"a": ["Hof"], "b": [8]}))
    assert rows(table)[3:] == [(4, "Kiel", 2), (5, None, 2), (6, None, 7), (7, None, 8), (8, "Hof", None)]


def test_insert_of_a_table_into_itself_is_one_transaction(table: DeltaTable) -> None:
    result = sql("INSERT INTO t SELECT id + 10, town, n FROM t WHERE n > 0", t=table)
    assert rows(table)[3:] == [(11, "Ulm", 10), (12, "Bonn", 20)]
    info = table.history(1)[0]
    assert (info["version"], info["isBlindAppend"]) == (result.version, False)
    sql("INSERT OVERWRITE t SELECT id, town, n FROM t WHERE id < 2", t=table)
    assert rows(table) == [(1, "Ulm", 10)]


def test_insert_overwrite_and_replace_where(table: DeltaTable) -> None:
    sql("INSERT INTO t REPLACE WHERE t.id = 1 VALUES (1, 'Bern', 5)", t=table)
    assert rows(table) == [(1, "Bern", 5), (2, "Bonn", 20), (3, None, -1)]
    sql("INSERT OVERWRITE TABLE t VALUES (9, 'x', 0)", t=table)
    assert rows(table) == [(9, "x", 0)]


def test_update_and_delete_with_an_alias(table: DeltaTable) -> None:
    sql("UPDATE t AS x SET x.n = x.n + 1, town = concat(x.town, '!') WHERE x.id < 3 AND x.town IS NOT NULL", t=table)
    sql("DELETE FROM t WHERE t.id = 3", t=table)
    assert rows(table) == [(1, "Ulm!", 11), (2, "Bonn!", 21)]
    sql("TRUNCATE TABLE t", t=table)
    assert rows(table) == []


def test_merge_with_all_its_clauses(table: DeltaTable) -> None:
    source = pa.table({"id": [1, 2, 4, 5], "town": ["A", "B", "C", "D"], "n": [1, 2, 3, 4]})
    result = sql(
        """
        MERGE INTO t AS target USING s AS source ON target.id = source.id
        WHEN MATCHED AND source.n > 1 THEN UPDATE SET
            target.n = CASE WHEN source.n = 2 THEN target.n + source.n ELSE 0 END, town = source.town
        WHEN MATCHED THEN DELETE
        WHEN NOT MATCHED BY TARGET AND source.n = 3 THEN INSERT (id, town) VALUES (source.id, upper(source.town))
        WHEN NOT MATCHED THEN INSERT *
        WHEN NOT MATCHED BY SOURCE AND target.n < 0 THEN UPDATE SET n = 0
        WHEN NOT MATCHED BY SOURCE THEN DELETE
        """,
        t=table,
        s=source,
    )
    assert result["num_target_rows_updated"] == 2
    assert rows(table) == [(2, "B", 22), (3, None, 0), (4, "C", None), (5, "D", 4)]


def test_merge_from_a_query_and_with_new_columns(table: DeltaTable) -> None:
    source = pa.table({"id": [1, 7], "extra": ["x", "y"], "n": [1, 2]})
    sql(
        "MERGE WITH SCHEMA EVOLUTION INTO t USING (SELECT id, extra FROM s WHERE n = 2) q ON t.id = q.id "
        "WHEN NOT MATCHED THEN INSERT *",
        t=table,
        s=source,
    )
    assert rows(table)[-1] == (7, None, None, "y")


# --- tables ------------------------------------------------------------------------------------------------------


def test_create_with_every_declaration(tmp_path: Path) -> None:
    table = sql(
        f"""
        CREATE TABLE IF NOT EXISTS delta.`{tmp_path}/t` (
            id BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 5 INCREMENT BY 2),
            at TIMESTAMP NOT NULL COMMENT 'the time',
            day DATE GENERATED ALWAYS AS (CAST(at AS DATE)),
            price DECIMAL(10, 2) DEFAULT 1.5,
            code VARCHAR(3),
            deep STRUCT<a: INT COMMENT 'x', b: ARRAY<ARRAY<STRING>>, c: MAP<STRING, DOUBLE>>
        ) USING DELTA PARTITIONED BY (day) COMMENT 'all of it'
        TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', own.key = 3,
            'delta.feature.allowColumnDefaults' = 'supported')
        """
    )
    fields = {field.name: field for field in table.schema().fields}
    assert [str(field.type) for field in fields.values()] == [
        *("long", "timestamp", "date", "decimal(10,2)", "string"),
        "struct<a: integer,b: array<array<string>>,c: map<string,double>>",
    ]
    assert (fields["at"].nullable, fields["at"].metadata["comment"]) == (False, "the time")
    assert fields["code"].metadata["__CHAR_VARCHAR_TYPE_STRING"] == "varchar(3)"
    assert table.metadata().partition_columns == ["day"]
    assert table.metadata().description == "all of it"
    assert table.metadata().configuration["own.key"] == "3"
    sql("INSERT INTO t (at) VALUES (TIMESTAMP '2026-01-02 03:04:05')", t=table)
    (row,) = sql("SELECT id, day, price FROM t", t=table).to_pylist()
    assert (row["id"], str(row["day"]), str(row["price"])) == (5, "2026-01-02", "1.50")
    again = sql(f"CREATE TABLE IF NOT EXISTS delta.`{tmp_path}/t` (x INT)")
    assert again.version() == 1
    with pytest.raises(errors.TableAlreadyExistsError):
        sql(f"CREATE TABLE delta.`{tmp_path}/t` (x INT)")
    assert sql(f"CREATE OR REPLACE TABLE delta.`{tmp_path}/t` (x INT) CLUSTER BY (x)").schema().names == ["x"]


def test_create_from_a_query_and_as_a_clone(table: DeltaTable, tmp_path: Path) -> None:
    sql(f"CREATE TABLE delta.`{tmp_path}/u` PARTITIONED BY (town) AS SELECT id, town FROM t WHERE id < 3", t=table)
    made = DeltaTable(tmp_path / "u")
    assert (rows(made), made.metadata().partition_columns) == ([(1, "Ulm"), (2, "Bonn")], ["town"])
    sql("CREATE TABLE IF NOT EXISTS u AS SELECT 1 AS x", u=str(tmp_path / "u"))
    sql("REPLACE TABLE u AS SELECT 1 AS x", u=str(tmp_path / "u"))
    assert rows(made, "x") == [(1,)]
    clone = sql("CREATE TABLE c SHALLOW CLONE t VERSION AS OF 0", t=table, c=str(tmp_path / "c"))
    assert clone.count() == 3


def test_alter(table: DeltaTable) -> None:
    for statement in (
        "ALTER TABLE t SET TBLPROPERTIES (delta.columnMapping.mode = name, 'delta.enableTypeWidening' = true)",
        "ALTER TABLE t ADD COLUMNS (small INT COMMENT 'narrow', other STRING)",
        "ALTER TABLE t ADD COLUMN late DATE",
        "ALTER TABLE t ALTER COLUMN small TYPE BIGINT",
        "ALTER TABLE t ALTER COLUMN small COMMENT 'wide'",
        "ALTER TABLE t ALTER COLUMN other FIRST",
        "ALTER TABLE t ALTER COLUMN small AFTER other",
        "ALTER TABLE t RENAME COLUMN other TO `the other`",
        "ALTER TABLE t DROP COLUMN late",
        "ALTER TABLE t DROP COLUMNS IF EXISTS (nothing)",
        "ALTER TABLE t ADD CONSTRAINT few CHECK (n < 1000 AND id IN (1, 2, 3))",
        "ALTER TABLE t SET TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')",
        "ALTER TABLE t ALTER COLUMN n SET DEFAULT 1 + 1",
        "ALTER TABLE t ALTER COLUMN n DROP DEFAULT",
        "ALTER TABLE t SET TBLPROPERTIES ('a' = 'b')",
        "ALTER TABLE t UNSET TBLPROPERTIES IF EXISTS ('a', c)",
        "COMMENT ON TABLE t IS 'a table'",
        "COMMENT ON COLUMN t.town IS 'a town'",
    ):
        sql(statement, t=table)
    assert table.schema().names == ["the other", "small", "id", "town", "n"]
    assert table.metadata().configuration["delta.constraints.few"] == "n < 1000 AND id IN (1, 2, 3)"
    assert "a" not in table.metadata().configuration
    assert table.metadata().description == "a table"
    assert next(field for field in table.schema().fields if field.name == "town").metadata["comment"] == "a town"
    small = next(field for field in table.schema().fields if field.name == "small")
    assert (str(small.type), small.metadata["comment"]) == ("long", "wide")
    sql("ALTER TABLE t DROP CONSTRAINT few", t=table)
    sql("ALTER TABLE t DROP CONSTRAINT IF EXISTS few", t=table)
    assert "delta.constraints.few" not in table.metadata().configuration


def test_maintenance(table: DeltaTable) -> None:
    for _ in range(3):
        write_deltalake(table, ROWS, mode="append")
    assert sql("OPTIMIZE t", t=table)["numFilesRemoved"] == 4
    assert sql("OPTIMIZE t ZORDER BY (id, n)", t=table)["numFilesAdded"] == 1
    assert len(sql("VACUUM t RETAIN 200 HOURS DRY RUN", t=table)) == 0
    assert sql("REORG TABLE t APPLY (PURGE)", t=table) is not None
    assert sql("RESTORE TABLE t TO VERSION AS OF 0", t=table)["num_restored_files"] >= 0
    assert len(rows(table)) == 3
    assert sql("DESCRIBE HISTORY t LIMIT 2", t=table)[0]["operation"] == "RESTORE"
    assert sql("DESCRIBE DETAIL t", t=table)["num_files"] == 1
    assert sql("DESC TABLE EXTENDED t", t=table).column("col_name").to_pylist() == ["id", "town", "n"]
    assert sql("SHOW COLUMNS IN t", t=table).to_pydict() == {"col_name": ["id", "town", "n"]}
    sql("ALTER TABLE t SET TBLPROPERTIES ('b' = '2', 'a' = '1')", t=table)
    assert sql("SHOW TBLPROPERTIES t", t=table).to_pydict()["key"] == ["a", "b"]
    assert sql("SHOW TBLPROPERTIES t ('b')", t=table).to_pylist() == [{"key": "b", "value": "2"}]
    assert sql("SHOW TBLPROPERTIES t (c)", t=table).num_rows == 0
    assert sql("SHOW PARTITIONS t", t=table).num_rows == 0
    path = table.table_uri.removeprefix("file://")
    assert sql(f"DESCRIBE HISTORY '{path}' LIMIT 1")[0]["version"] == sql(f"DESCRIBE DETAIL '{path}'")["version"]
    assert sql("FSCK REPAIR TABLE t DRY RUN", t=table) is not None
    assert sql("GENERATE symlink_format_manifest FOR TABLE t", t=table)


def test_convert(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    (tmp_path / "p" / "k=1").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), tmp_path / "p" / "k=1" / "a.parquet")
    sql(f"CONVERT TO DELTA parquet.`{tmp_path}/p` NO STATISTICS PARTITIONED BY (k INT)")
    assert DeltaTable(tmp_path / "p").to_pyarrow_table().to_pylist() == [{"id": 1, "k": 1}]


def test_tables_of_a_catalog(tmp_path: Path) -> None:
    with SqlCatalog(f"sqlite:///{tmp_path}/catalog.db", tmp_path / "warehouse") as catalog:
        sql("CREATE TABLE sales.orders (id BIGINT, n INT) TBLPROPERTIES ('a' = 'b')", catalog=catalog)
        sql("INSERT INTO sales.orders VALUES (1, 2)", catalog=catalog)
        sql("CREATE TABLE sales.copy AS SELECT * FROM sales.orders", catalog=catalog)
        sql("CREATE TABLE IF NOT EXISTS sales.copy (x INT)", catalog=catalog)
        assert sql("SELECT * FROM sales.copy", catalog=catalog).to_pylist() == [{"id": 1, "n": 2}]
        sql("ALTER TABLE sales.copy RENAME TO sales.other", catalog=catalog)
        assert sql("SHOW TABLES IN sales", catalog=catalog).num_rows == 2
        sql("DROP TABLE sales.other PURGE", catalog=catalog)
        write_deltalake(tmp_path / "known", ROWS)
        sql(f"CREATE EXTERNAL TABLE sales.known USING DELTA LOCATION '{tmp_path}/known'", catalog=catalog)
        assert sql("SELECT count(*) FROM sales.known", catalog=catalog).column(0).to_pylist() == [3]
        sql("DROP TABLE IF EXISTS sales.other", catalog=catalog)
        with pytest.raises(errors.TableNotFoundError):
            sql("DROP TABLE sales.other", catalog=catalog)
        with pytest.raises(errors.TableNotFoundError):
            sql("SELECT * FROM sales.other", catalog=catalog)


def test_options_go_to_the_commit(table: DeltaTable) -> None:
    sql(
        "DELETE FROM t WHERE id = 1",
        t=table,
        options={"commit_properties": CommitProperties(user_metadata="why"), "isolation": "Serializable"},
    )
    assert table.history(1)[0]["userMetadata"] == "why"
    assert table.history(1)[0]["isolationLevel"] == "Serializable"


# --- errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("", "expected a statement"),
        ("SELEC 1", "did you mean 'SELECT'"),
        ("EXPLAIN SELECT 1", "EXPLAIN"),
        ("CREATE VIEW v AS SELECT 1", "only tables"),
        ("SELECT a FROM t JOIN s ON 1 = 1", "JOIN is not supported"),
        ("SELECT a FROM t, s", "a join is not supported"),
        ("SELECT town FROM t GROUP BY town", "GROUP is not supported"),
        ("SELECT DISTINCT id FROM t", "SELECT DISTINCT is not supported"),
        ("SELECT sum(n) FROM t", "sum"),
        ("SELECT zz FROM t", "zz"),
        ("SELECT INTERVAL '1' DAY AS i", "is an interval"),
        ("SELECT id FROM t ORDER BY 2", "ORDER BY 2"),
        ("SELECT id FROM t LIMIT x", "expected a number of rows"),
        ("SELECT 'abc", "not SQL"),
        ("SELECT * FROM t; DROP TABLE t", "expected the end of the statement"),
        ("SELECT * FROM nowhere", "nowhere stands for no table"),
        ("SELECT * FROM rows_of_", "did you mean 'rows_of'"),
        ("DELETE FROM s", "s stands for rows"),
        ("DELETE t WHERE id = 1", r"line 1, column 8, at t: expected FROM"),
        ("DELETE FROM t WHERE", "at the end of the statement: expected an expression"),
        ("DELETE FROM t\nWHERE id = 1 RETURNING", "RETURNING"),
        ("UPDATE t SET n 1", "expected ="),
        ("UPDATE t SET n = 1,", "at the end of the statement"),
        ("INSERT INTO t VALUES (1)", "1 columns for the 3 columns id, town, n"),
        ("INSERT INTO t VALUES (1, 'a', 2), (3)", "the rows of VALUES have 1 and 3 values"),
        ("INSERT INTO t PARTITION (id = 1) SELECT 1", "PARTITION is not supported"),
        ("INSERT INTO t (id) WITH q AS (SELECT 1) SELECT 1", "expected SELECT, VALUES or TABLE"),
        ("MERGE INTO t USING s ON t.id = s.id", "expected WHEN"),
        ("MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN INSERT *", "expected UPDATE"),
        (
            "MERGE INTO t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, n) VALUES (1)",
            "2 columns and 1 values",
        ),
        ("CREATE TABLE t", "expected columns in brackets"),
        ("CREATE TABLE t (id FOO)", "FOO"),
        ("CREATE TABLE t (id BIGINT, PRIMARY KEY (id))", "constraints are added by ALTER TABLE"),
        ("CREATE TABLE t (id BIGINT) USING ICEBERG", "expected DELTA"),
        ("CREATE TABLE u DEEP CLONE t", "only SHALLOW CLONE"),
        ("ALTER TABLE t", "expected SET"),
        ("ALTER TABLE t ADD COLUMN x INT FIRST", "adds at the end"),
        ("ALTER TABLE t ADD COLUMNS (x INT AFTER id)", "adds at the end"),
        ("ALTER TABLE t ADD COLUMNS (s.x INT)", "declared with its struct"),
        ("SELECT * FROM t@w12", "expected a version such as @v12"),
        ("SHOW CREATE TABLE t", "expected TBLPROPERTIES, COLUMNS, TABLES or PARTITIONS"),
        ("COMMENT ON COLUMN n IS 'x'", "named with its table"),
        ("CREATE TABLE u LOCATION '/x'", "registers a table in a catalog"),
        ("ALTER TABLE t RENAME TO u", "SqlCatalog"),
        ("DROP TABLE t", "tables of a catalog"),
        ("SHOW TABLES", "catalog"),
        ("VACUUM t RETAIN x HOURS", "expected a number of hours"),
        ("RESTORE TABLE t TO 3", "expected VERSION AS OF or TIMESTAMP AS OF"),
        ("REORG TABLE t APPLY (NOTHING)", "expected UPGRADE"),
    ],
)
def test_a_wrong_statement_says_where_and_changes_nothing(table: DeltaTable, statement: str, message: str) -> None:
    with pytest.raises(errors.DeltaError, match=message):
        sql(statement, t=table, s=ROWS, rows_of=ROWS)
    assert DeltaTable(table.table_uri).version() == 0


@pytest.mark.parametrize("statement", [None, 3, b"SELECT 1", "SELECT '\ud800'"])
def test_what_is_no_sql_is_refused(statement: Any) -> None:
    with pytest.raises(errors.PredicateError):
        sql(statement)


def test_a_statement_that_is_too_long_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert words.MOST_CHARACTERS == 10_000_000
    monkeypatch.setattr(words, "MOST_CHARACTERS", 20)
    words.Words("SELECT 1, 2, 3, 4, 5")

    def tokenize() -> None:
        raise AssertionError("the statement was handed on")

    monkeypatch.setattr(words, "Dialect", tokenize)
    with pytest.raises(errors.PredicateError, match="the statement has 21 characters; at most 20 are taken"):
        words.Words("SELECT 1, 2, 3, 4, 56")


def test_a_deep_type_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert words.DEEPEST_TYPE == 100
    monkeypatch.setattr(words, "DEEPEST_TYPE", 3)
    sql(f"CREATE TABLE delta.`{tmp_path}/three` (a ARRAY<ARRAY<ARRAY<INT>>>)")
    with pytest.raises(errors.PredicateError, match="nests less deeply"):
        sql(f"CREATE TABLE delta.`{tmp_path}/four` (a ARRAY<ARRAY<ARRAY<ARRAY<INT>>>>)")


def test_the_function_is_public() -> None:
    assert refdelta.sql is sql
