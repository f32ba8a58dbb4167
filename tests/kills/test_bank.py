"""Processes that are killed while they move money between the accounts of two tables. By more:
``python -m kills.bank``.
"""

from __future__ import annotations

import pytest

from kills.bank import Bank, KilledServer


@pytest.mark.tier("test")
@pytest.mark.sample(test=1)
@pytest.mark.parametrize("commits", ["staged", "inline"])
def test_the_sum_of_two_tables_stays_with_a_catalog_in_sqlite(fresh_path, commits):
    folder = fresh_path()
    folder.mkdir()
    done = Bank(f"sqlite:///{folder}/catalog.db", folder / "tables", commits, 20261127).run(9)
    done.finish()
    assert done.transfers > 0


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("commits", ["staged", "inline"])
def test_the_sum_of_two_tables_stays_while_postgresql_is_restarted(fresh_path, postgres_server, commits):
    folder = fresh_path()
    done = Bank(postgres_server.database(), folder, commits, 20261128, postgres_server).run(9)
    done.finish()
    assert done.transfers > 0
    assert done.restarts > 0


@pytest.mark.tier("test")
def test_the_sum_of_two_tables_stays_while_the_server_of_the_catalog_is_killed(fresh_path):
    folder = fresh_path()
    folder.mkdir()
    server = KilledServer(folder)
    try:
        done = Bank(f"sqlite:///{folder}/catalog.db", folder / "warehouse", "staged", 20261129, server).run(9)
        done.finish()
    finally:
        server.stop()
    assert done.transfers > 0
    assert done.restarts > 0
