"""Processes that are killed while they write to a catalog-managed table, and PostgreSQL restarted under their load. By
hundreds: ``make kills-catalogs``.
"""

from __future__ import annotations

import pytest

from kills.catalogs import campaign


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
