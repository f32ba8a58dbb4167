"""Processes that are killed while they write to a catalog-managed table, and PostgreSQL restarted under their load. By
hundreds: ``make search NAME=kills-catalogs``.
"""

from __future__ import annotations

import pytest

from kills.catalogs import campaign
from kills.lives import Lives, Restores


@pytest.mark.tier("test")
@pytest.mark.sample(test=1)
@pytest.mark.parametrize("commits", ["staged", "inline"])
@pytest.mark.parametrize("layout", ["vectors", "partitions"])
def test_kills_with_a_catalog_in_sqlite(fresh_path, layout, commits):
    done = campaign(fresh_path(), "sqlite", commits, layout, 20261123, None).run(8)
    done.finish()
    assert done.killed.total() == 8


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("commits", ["staged", "inline"])
def test_kills_and_restarts_of_postgresql(fresh_path, postgres_server, commits):
    done = campaign(fresh_path(), "postgres", commits, "vectors", 20261126, postgres_server).run(8)
    done.finish()
    assert done.killed.total() == 8
    assert done.restarts > 0


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_two_programs_drop_and_recreate_tables_of_one_name(fresh_path, database, request):
    folder = fresh_path()
    folder.mkdir()
    server = request.getfixturevalue("postgres_server") if database == "postgres" else None
    done = Lives(server.database() if server else f"sqlite:///{folder}/catalog.db", folder / "tables", 20261125).run(8)
    done.finish()
    assert done.killed == 8


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("commits", ["staged", "inline"])
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_database_that_is_restored_under_load_is_adopted(fresh_path, database, commits, request):
    server = request.getfixturevalue("postgres_server") if database == "postgres" else None
    done = Restores(fresh_path(), commits, 20261125, server).run(1)
    assert done.restored == 1
