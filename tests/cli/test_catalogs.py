"""``--catalog`` and ``refdelta catalog``: tables by their names.

Tests of cli.group.
"""

import contextlib
import json
import sqlite3

import pyarrow as pa
import pytest

from refdelta import DeltaTable, write_deltalake
from refdelta.catalog import SqlCatalog
from refdelta.cli.group import CATALOG_VARIABLE


@pytest.fixture
def url(tmp_path, monkeypatch):
    """The URL of a catalog, which the environment names."""
    url = f"sqlite:///{tmp_path}/catalog.db"
    monkeypatch.setenv(CATALOG_VARIABLE, url)
    return url


@pytest.fixture
def orders(cli, url, tmp_path):
    """A table of the catalog with two rows, at version 1."""
    (tmp_path / "a.csv").write_text("id,town\n1,Oslo\n2,Moss\n")
    made = cli(
        "create", "sales.orders", "--location", tmp_path / "orders", "--column", "id=long", "--column", "town=string"
    )
    assert made.out == "version 0: 2 columns\n"
    assert cli("write", "sales.orders", tmp_path / "a.csv", "--mode", "append").status == 0
    return "sales.orders"


@pytest.mark.tier("test")
def test_every_command_on_a_table_takes_its_name(cli, url, orders):
    changed = cli("update", orders, "--set", "town='Bergen'", "--where", "id = 1", "--json")
    assert json.loads(changed.out)["version"] == 2
    assert cli("read", orders, "--where", "id = 1", "--format", "csv").out.splitlines()[1] == '1,"Bergen"'
    assert [commit["version"] for commit in cli("history", orders, "--json").json] == [2, 1, 0]
    assert [row["version"] for row in cli("timeline", orders, "--json").json] == [0, 1, 2]
    assert cli("why", orders, 1, 2, "--json").json["conflict"] is False
    assert "commitInfo" in cli("log", orders).out
    assert len(cli("files", orders, "--json").json) == 2
    assert cli("verify", orders).out.startswith("sound: versions 0 to 2")
    assert cli("diff", orders, 1, 2, "--json").json["inserted"] == 1
    assert cli("optimize", orders).status == 0
    assert SqlCatalog(url).table(orders).version() == 3


def test_the_option_is_the_variable(cli, url, orders, monkeypatch):
    monkeypatch.delenv(CATALOG_VARIABLE)
    assert cli("read", orders).status == 1
    assert cli("read", orders, "--catalog", url).status == 0


def test_names_are_listed_given_changed_and_taken_away(cli, url, orders, tmp_path):
    old = tmp_path / "old"
    write_deltalake(old, pa.table({"id": [1]}))
    assert cli("catalog", "register", "sales.old", old).out == f"sales.old: {DeltaTable(old).table_uri}, version 0\n"
    assert cli("catalog", "rename", "sales.old", "archive.old").status == 0
    assert cli("catalog", "tables").out.split() == ["archive.old", orders]
    assert cli("catalog", "tables", "sales", "--json").json == [orders]
    assert cli("catalog", "drop", "archive.old").out == "archive.old is dropped; its files stay\n"
    assert DeltaTable(old).count() == 1
    assert cli("catalog", "drop", orders, "--purge", "--json").json == {"name": orders, "purged": True}
    assert not list((tmp_path / "orders").rglob("*.parquet"))


def test_inline_commits_are_published_on_demand(cli, url, tmp_path):
    cli("create", "t", "--location", tmp_path / "t", "--column", "id=long", "--inline")
    (tmp_path / "a.csv").write_text("id\n1\n")
    cli("write", "t", tmp_path / "a.csv", "--mode", "append")
    assert cli("catalog", "publish", "t", "--json").json["published"] in {0, 1}, "the writer may have been faster"
    assert (tmp_path / "t" / "_delta_log" / f"{1:020}.json").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("read", "sales.order"), "did you mean 'sales.orders'?"),
        (("read", "sales.orders", "--outside", "x"), "--outside goes with a folder"),
        (("create", "t", "--column", "id=long", "--mode", "ignore"), "--mode and --name go with a folder"),
        (("create", "t", "--column", "id=long"), "the catalog has no warehouse"),
        (("convert", "sales.orders"), "convert takes the path of a folder, and no --catalog"),
        (("catalog", "rename", "sales.orders", "a..b"), "the name of a table is like"),
        (("catalog", "drop", "t"), "does not exist in the catalog"),
    ],
)
def test_mistakes_are_one_line(cli, url, orders, arguments, said):
    done = cli(*arguments)
    assert done.status == 1
    assert said in done.err
    assert cli("catalog", "tables").out.split() == [orders]


def test_without_a_catalog_there_is_no_name(cli, tmp_path, monkeypatch):
    monkeypatch.delenv(CATALOG_VARIABLE, raising=False)
    assert "--catalog URL, or REFDELTA_CATALOG" in cli("catalog", "tables").err
    assert "go with --catalog" in cli("create", tmp_path / "t", "--column", "id=long", "--inline").err
    assert "not the URL of a database" in cli("catalog", "tables", "--catalog", "nonsense").err


def test_no_message_shows_a_password(cli):
    done = cli("catalog", "tables", "--catalog", "postgresql+psycopg://ada:hunter2@nowhere.invalid/db")
    assert done.status == 1
    assert "hunter2" not in done.err


def test_the_time_after_which_a_wait_for_the_database_ends(cli, fails, url, orders, monkeypatch):
    path = url.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        rename = ("catalog", "rename", orders, "sales.old")
        ended = "a lock that another session holds ended after"
        assert ended in fails(*rename, "--catalog-timeout", 0.2)
        monkeypatch.setenv("REFDELTA_CATALOG_TIMEOUT", "0.2")
        assert "sets the limit, which is 0.2 s" in fails(*rename)
        assert cli("read", orders, "--format", "csv").status == 0
    assert "'soon' is not a valid float" in cli("read", orders, "--catalog-timeout", "soon").err
    assert "timeout is a number of seconds above 0" in fails("read", orders, "--catalog-timeout", 0)
