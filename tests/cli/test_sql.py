"""``refdelta sql``: rows, metrics and errors for people and for programs.

Tests of cli.sql.
"""

import json

import pyarrow as pa

from refdelta import DeltaTable, write_deltalake


def test_rows_by_name_and_by_path(cli, tmp_path):
    write_deltalake(tmp_path / "t", pa.table({"id": [1, 2, 3]}))
    result = cli("sql", "SELECT id, id * 2 AS twice FROM f ORDER BY id LIMIT 2", f"f={tmp_path}/t")
    assert [line.split() for line in result.out.splitlines() if "─" not in line] == [
        ["id", "twice"],
        ["1", "2"],
        ["2", "4"],
    ]
    lines = cli("sql", f"SELECT id FROM delta.`{tmp_path}/t` WHERE id > 2", "--json").out.splitlines()
    assert [json.loads(line) for line in lines] == [{"id": 3}]


def test_metrics_history_and_description(cli, tmp_path):
    write_deltalake(tmp_path / "t", pa.table({"id": [1, 2, 3]}))
    name = f"t={tmp_path}/t"
    found = json.loads(cli("sql", "DELETE FROM t WHERE id = 1", name, "--json").out)
    assert (found["version"], found["metrics"]["num_deleted_rows"]) == (1, 1)
    assert "DELETE" in cli("sql", "DESCRIBE HISTORY t", name).out
    assert "num_files" in cli("sql", "DESCRIBE DETAIL t", name).out
    assert "version" in cli("sql", "UPDATE t SET id = id + 1", name).out
    assert "table" in cli("sql", "CREATE TABLE u (x INT)", f"u={tmp_path}/u").out
    assert cli("sql", "VACUUM t DRY RUN", name).out == ""


def test_tables_of_a_catalog(cli, tmp_path):
    catalog = ("--catalog", f"sqlite:///{tmp_path}/catalog.db")
    cli("sql", f"CREATE TABLE sales.orders (id BIGINT) LOCATION '{tmp_path}/orders'", *catalog)
    cli("sql", "INSERT INTO sales.orders VALUES (1)", *catalog)
    assert json.loads(cli("sql", "SELECT * FROM sales.orders", *catalog, "--json").out) == {"id": 1}


def test_a_wrong_statement_is_one_line(fails, tmp_path):
    write_deltalake(tmp_path / "t", pa.table({"id": [1]}))
    line = fails("sql", "DELETE t", f"t={tmp_path}/t")
    assert "line 1, column 8, at t: expected FROM" in line
    assert DeltaTable(tmp_path / "t").version() == 0
