"""The contract of catalogs, for a SqlCatalog in SQLite and in PostgreSQL, with staged and with inline commits.

Tests of catalog.base, engine.log.managed_committer.
"""

import pytest

from catalog.contract import CatalogContract
from refdelta.catalog import SqlCatalog


@pytest.fixture
def opened():
    """The catalogs of a test, which are closed after it."""
    found = []
    yield found
    for catalog in found:
        catalog.close()


class Sqlite(CatalogContract):
    @pytest.fixture
    def reopen(self, tmp_path, opened):
        def another():
            opened.append(SqlCatalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path / "warehouse"))
            return opened[-1]

        return another

    @pytest.fixture
    def catalog(self, reopen):
        return reopen()


class Postgres(Sqlite):
    @pytest.fixture
    def reopen(self, tmp_path, opened, postgres_server):
        url = postgres_server.database()

        def another():
            opened.append(SqlCatalog(url, warehouse=tmp_path / "warehouse"))
            return opened[-1]

        return another


class TestSqliteStaged(Sqlite):
    commits = "staged"


@pytest.mark.tier("test")
class TestSqliteInline(Sqlite):
    commits = "inline"


class TestPostgresStaged(Postgres):
    commits = "staged"


class TestPostgresInline(Postgres):
    commits = "inline"
