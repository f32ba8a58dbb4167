"""The commands and statements of docs/guide/operating-a-catalog.md, on a server of PostgreSQL. Its Python is run by
test_documents.py.
"""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
import sqlalchemy as sa

from refdelta import errors, write_deltalake
from refdelta.catalog import SqlCatalog
from refdelta.transaction import background

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guide" / "operating-a-catalog.md"
NAME = "sales.orders"


def blocks(language, heading):
    """The blocks of a section."""
    (text,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


RUN = {
    "sh": ["Back up", "Restore", "Fail over"],
    "sql": ["Rights", "Versions of the tables", "Watch"],
}


@pytest.fixture
def database(postgres_server):
    """An empty database of its own, as roles and dumps are of a whole one."""
    with postgres_server.session() as connection:
        connection.execute("DROP DATABASE IF EXISTS operated")
        connection.execute("CREATE DATABASE operated")
    yield f"postgresql+psycopg://refdelta@127.0.0.1:{postgres_server.port}/operated"
    with postgres_server.session() as connection:
        connection.execute("DROP DATABASE operated WITH (FORCE)")
        connection.execute("DROP ROLE IF EXISTS catalog_reader")
        connection.execute("DROP ROLE IF EXISTS catalog_writer")


@pytest.fixture
def catalog(database, tmp_path):
    with SqlCatalog(database, warehouse=tmp_path / "warehouse") as catalog:
        for name in (NAME, "sales.lines"):
            table = catalog.create_table(name, pa.schema({"id": pa.int64()}), commits="inline")
            append(table, 1)
        yield catalog


def append(table, row):
    write_deltalake(table, pa.table({"id": [row]}), mode="append")
    background.settle(table.store.uri)


@pytest.fixture
def shell(database, postgres_server, tmp_path):
    """Run a block of commands."""
    tools = tmp_path / "programs"
    tools.mkdir()
    (tools / "refdelta").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m refdelta "$@"\n')
    (tools / "refdelta").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(tools), str(postgres_server._programs), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "storage")]),
        "PGHOST": "127.0.0.1",
        "PGPORT": str(postgres_server.port),
        "PGUSER": "refdelta",
        "PGDATABASE": "operated",
        "REFDELTA_CATALOG": database,
        "REFDELTA_LOCATIONS": str(tmp_path),
    }

    def run(block):
        done = subprocess.run(
            ["bash", "-e", "-c", block], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        return done.stdout

    return run


def rows(catalog, name=NAME):
    return sorted(catalog.table(name).to_pyarrow_table().column("id").to_pylist())


def test_every_block_of_the_page_is_run():
    text = PAGE.read_text()
    for language, headings in RUN.items():
        assert sum(len(blocks(language, one)) for one in headings) == text.count(f"```{language}\n") > 0
    assert {*re.findall(r"^```(\w+)$", text, re.MULTILINE)} == {"python", "text", "sh", "sql"}


def test_a_database_that_is_restored_has_all_that_was_published_since(catalog, shell):
    (back_up,), (restore,) = blocks("sh", "Back up"), blocks("sh", "Restore")
    assert shell(back_up).count("published") == 2
    append(catalog.table(NAME), 2)
    catalog.publish(NAME)
    with catalog._database.begin() as connection:
        connection.exec_driver_sql("drop table refdelta_tables, refdelta_commits, refdelta_schema")
    catalog.close()
    told = shell(restore)
    assert "sales.orders: the latest version was 1, and is 2 now\nadopted: 2\n" in told
    assert "sales.lines: the latest version was 1, and is 1 now\n" in told
    assert rows(catalog) == [1, 2]
    append(catalog.table(NAME), 3)
    assert rows(catalog) == [1, 2, 3]


def test_a_url_of_several_servers_takes_the_one_that_answers(catalog, shell, postgres_server):
    (fail_over,) = blocks("sh", "Fail over")
    with socket.create_server(("127.0.0.1", 0)) as dead:  # accepts, and says nothing
        block = fail_over.replace(":5433", f":{dead.getsockname()[1]}").replace(":5432", f":{postgres_server.port}")
        block = block.replace("/postgres?", "/operated?").replace("--catalog-timeout 5", "--catalog-timeout 1")
        assert block.count("127.0.0.1") == 2
        assert shell(block).split() == ["sales.lines", "sales.orders"]


def test_the_roles_may_do_what_it_says(catalog, database, tmp_path):
    (grants,) = blocks("sql", "Rights")
    with catalog._database.begin() as connection:
        connection.exec_driver_sql(grants)
    given = {role: database.replace("refdelta@", f"{role}@") for role in ("catalog_reader", "catalog_writer")}
    with SqlCatalog(given["catalog_reader"], warehouse=tmp_path) as reader:
        assert reader.tables() == ["sales.lines", NAME]
        assert rows(reader) == [1]
        assert len(reader.table(NAME).history()) == 2
        for refused in (
            lambda: append(reader.table(NAME), 9),
            lambda: reader.rename_table(NAME, "x"),
            lambda: reader.drop_table(NAME),
            lambda: reader.create_table("x", pa.schema({"id": pa.int64()})),
        ):
            with pytest.raises(errors.StoreError, match="permission denied for table"):
                refused()
    with SqlCatalog(given["catalog_writer"], warehouse=tmp_path) as writer:
        append(writer.table(NAME), 2)
        assert rows(writer) == [1, 2]
        writer.publish(NAME)
        writer.adopt(NAME)
        writer.create_table("x", pa.schema({"id": pa.int64()}))
        writer.rename_table("x", "y")
        writer.drop_table("y", purge=True)
        assert writer.tables() == ["sales.lines", NAME]


def test_what_is_watched_shows_what_it_says(catalog):
    waiting, unfinished, locks, sizes = blocks("sql", "Watch")
    catalog._reserve("lost", None, "staged")
    (version,) = blocks("sql", "Versions of the tables")
    with catalog._database.begin() as connection:
        connection.exec_driver_sql("update refdelta_tables set created_ms = 1 where name = 'lost'")
        assert connection.exec_driver_sql(version).all() == [(1,)]
        found = sorted(row[:3] for row in connection.exec_driver_sql(waiting))
        assert found == [("sales.lines", 1, 1), ("sales.orders", 1, 1)]
        assert [row[:2] for row in connection.exec_driver_sql(unfinished)] == [("lost", -1)]
        assert connection.exec_driver_sql(locks).all() == []
        found = {row.relname for row in connection.execute(sa.text(sizes))}
    assert found == {"refdelta_schema", "refdelta_tables", "refdelta_commits"}
