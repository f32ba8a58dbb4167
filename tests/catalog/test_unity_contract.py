"""The contract of catalogs, for a UnityCatalog over ``refdelta serve``.

Three of its tests are others here, since the API differs: staging tables have no name, tables are known by their names
and renamed within a schema, and the server chooses locations.
"""

import time

import pytest

from catalog import contract
from catalog.contract import NAME, CatalogContract, append, check_log, ids, rows
from catalog.serving import TOKEN, serving
from refdelta import errors
from refdelta.catalog import UnityCatalog
from refdelta.core.log.actions import CommitInfo
from refdelta.core.log.codec import encode_commit

pytestmark = pytest.mark.tier("test")


def in_main(name):
    """The contract's names have two parts."""
    return f"main.{name}" if isinstance(name, str) and name.count(".") == 1 else name


class InMain(UnityCatalog):
    def create_table(self, name, *arguments, **named):
        return super().create_table(in_main(name), *arguments, **named)

    def table(self, name, version=None):
        return super().table(in_main(name), version)

    def publish(self, name):
        return super().publish(in_main(name))

    def drop_table(self, name, *, purge=False):
        super().drop_table(in_main(name), purge=purge)

    def rename_table(self, name, new):
        super().rename_table(in_main(name), in_main(new))

    def tables(self, namespace=None):
        return [name.removeprefix("main.") for name in super().tables(namespace)]


# After the creation of any table of these tests, and not so far ahead that the server refuses it.
SOON = time.time_ns() // 1_000_000 + 6 * 3_600_000


def raw(name):
    """A commit without files, whose timestamp rises with its version: the server refuses others."""
    first = name.partition(" ")[0]
    timestamp = SOON + (int(first) if first.isdecimal() else 1)
    return encode_commit([CommitInfo({"inCommitTimestamp": timestamp, "operation": "WRITE", "txnId": name})])


class TestUnity(CatalogContract):
    @pytest.fixture
    def reopen(self, tmp_path, monkeypatch):
        monkeypatch.setattr(contract, "raw", raw)
        opened = []
        with serving(tmp_path) as served:

            def another():
                opened.append(InMain(served.url, TOKEN))
                return opened[-1]

            yield another
            for one in opened:
                one.close()

    @pytest.fixture
    def catalog(self, reopen):
        return reopen()

    def test_a_creation_that_ends_before_it_is_registered(self, catalog, reopen, monkeypatch):
        def ends(entry):
            raise contract.Killed

        with monkeypatch.context() as patch:
            patch.setattr(catalog, "_activate", ends)
            with pytest.raises(contract.Killed):
                self.create(catalog)
        assert reopen().tables() == []
        with pytest.raises(errors.TableNotFoundError):
            catalog.drop_table(NAME)
        append(self.create(catalog), 1)
        assert ids(check_log(reopen())) == [1]

    def test_an_open_handle_outlives_a_new_name(self, catalog, reopen, table):
        """It does not: it commits nothing, also where another table has taken the name."""
        append(table, 1)
        begun = table.begin()
        begun.append(rows(2))
        catalog.rename_table(NAME, "sales.archive")
        with pytest.raises(errors.StoreError, match="any more"):
            begun.commit()
        self.create(catalog)
        with pytest.raises(errors.StoreError, match="or another one"):
            append(table, 3)
        assert ids(check_log(reopen(), "sales.archive")) == [1]
        assert ids(check_log(reopen())) == []

    @pytest.mark.parametrize("purge", [False])
    def test_a_handle_of_a_table_that_was_created_again(self, catalog, reopen, purge):
        super().test_a_handle_of_a_table_that_was_created_again(catalog, reopen, purge)
