"""A catalog whose database, or whose folder, is restored from a copy: in real files and databases, beside programs that
have the table open. Every history of a small scope is in tests/model/test_catalog_goes_back.py.

Tests of engine.log.adoption.
"""

import contextlib
import json
import shutil
import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest

from catalog.contract import append, check_log, ids, leave_unpublished, log_of
from refdelta import errors, verify
from refdelta.catalog import SqlCatalog
from refdelta.core.log.paths import commit_key
from refdelta.transaction import background

NAME = "sales.orders"


class Place:
    """A catalog in SQLite, and copies of its database and of its folder."""

    def __init__(self, folder: Path, commits: str) -> None:
        self.database, self.copy = folder / "catalog.db", folder / "copy"
        self.copy.mkdir()
        self.catalog = self.opened()
        self.table = self.catalog.create_table(
            NAME,
            pa.schema({"id": pa.int64()}),
            location=folder / "t",
            commits=commits,
            configuration={"delta.checkpointInterval": "1000"},
        )
        self.folder = folder / "t"

    def opened(self) -> SqlCatalog:
        return SqlCatalog(f"sqlite:///{self.database}")

    def fresh(self):
        return self.opened().table(NAME)

    def append(self, *rows: int) -> None:
        for row in rows:
            append(self.table, row)
        background.settle()

    def save(self) -> None:
        self.catalog.close()  # what is in the log of the database goes into its file
        shutil.copy(self.database, self.copy / "catalog.db")
        shutil.copytree(self.folder, self.copy / "t", dirs_exist_ok=True)

    def restore_database(self) -> None:
        for one in self.database.parent.glob("catalog.db*"):
            one.unlink()
        shutil.copy(self.copy / "catalog.db", self.database)

    def restore_folder(self) -> None:
        shutil.rmtree(self.folder)
        shutil.copytree(self.copy / "t", self.folder)


@pytest.fixture(params=["staged", "inline"])
def place(tmp_path, request):
    made = Place(tmp_path, request.param)
    made.append(1, 2)
    made.save()
    yield made
    background.settle()
    made.catalog.close()


def refused(place, match):
    """Each use is refused by the same error."""
    opened = place.fresh()
    for use in (
        lambda: append(opened, 101),
        opened.version,
        lambda: ids(place.fresh()),
        lambda: place.opened().publish(NAME),
        lambda: place.opened().drop_table(NAME),
    ):
        with pytest.raises(errors.CatalogMismatchError, match=match):
            use()
    assert place.opened().tables() == [NAME]


def test_the_database_is_behind_what_is_published(place):
    place.append(3, 4)
    place.catalog.publish(NAME)
    place.restore_database()
    with pytest.raises(errors.CatalogMismatchError):
        append(place.table, 100)
    refused(place, "refdelta catalog adopt NAME")
    kept = {path.name: path.read_bytes() for path in place.folder.glob("_delta_log/0*.json")}
    done = place.opened().adopt(NAME)
    assert (done.before, done.latest, done.adopted, done.dropped) == (2, 4, (3, 4), ())
    assert place.opened().adopt(NAME).adopted == ()
    assert ids(check_log(place.opened())) == [1, 2, 3, 4]
    append(place.table, 5)
    append(place.fresh(), 6)
    place.opened().publish(NAME)
    assert ids(check_log(place.opened())) == [1, 2, 3, 4, 5, 6]
    assert all((place.folder / "_delta_log" / name).read_bytes() == data for name, data in kept.items())


def test_the_folder_is_behind_the_database(place):
    place.catalog.publish(NAME)
    place.save()
    place.append(3, 4)
    log_of(place.table).publish()
    place.restore_folder()
    with pytest.raises(errors.CatalogMismatchError):
        append(place.table, 100)
    refused(place, r"the latest version is 4 by the catalog.* refdelta catalog adopt NAME")
    with pytest.raises(errors.CatalogMismatchError, match=r"would lose the versions \[.*4\]"):
        place.opened().adopt(NAME)
    done = place.opened().adopt(NAME, discard=True)
    assert (done.before, done.latest, done.adopted, done.dropped[-1]) == (4, 2, (), 4)
    assert ids(check_log(place.opened())) == [1, 2]
    fresh = place.fresh()
    for row in (5, 6, 7):
        append(fresh, row)
    # A program that has seen a version 4 which is none any more does not follow on another one of this number.
    with pytest.raises(errors.StoreError):
        append(place.table, 8)
    assert ids(check_log(place.opened())) == [1, 2, 5, 6, 7]


def test_a_version_with_other_content_in_the_database(place, monkeypatch):
    leave_unpublished(monkeypatch)
    place.append(3)
    log = log_of(place.table)
    content = log.get(commit_key(3))
    log.inner.put(commit_key(3), content.replace(b"WRITE", b"MERGE"))
    refused(place, "another commit as version 3|is not the commit")
    with pytest.raises(errors.CatalogMismatchError, match=r"\[3\]"):
        place.opened().adopt(NAME)
    done = place.opened().adopt(NAME, discard=True)
    assert (done.latest, done.dropped) == (3, (3,))
    assert [(place.folder / key).read_bytes() for key in done.saved] == [content]
    assert place.fresh().version() == 3
    assert json.loads(place.fresh().store.get(commit_key(3)).splitlines()[0])["commitInfo"]["operation"] == "MERGE"


def test_verify_names_each_difference(place, monkeypatch):
    leave_unpublished(monkeypatch)
    assert verify(place.table).sound
    place.append(3)
    log, right = log_of(place.table), log_of(place.table).get(commit_key(3))

    def found():
        return {finding.clause for finding in verify(place.fresh()).findings}

    log.inner.put(commit_key(3), right.replace(b"WRITE", b"MERGE"))
    assert found() == {"catalog-7"}
    log.inner.put(commit_key(3), right)
    log.inner.put(commit_key(4), right)
    assert found() == {"catalog-12"}
    log.inner.delete([commit_key(4)])
    assert found() == set()
    place.catalog.publish(NAME)
    log.inner.delete([commit_key(3)])
    assert found() == {"catalog-13"}
    log.inner.put(commit_key(3), right)
    assert found() == set()


def test_a_foreign_name_is_not_the_staged_commit_that_is_missing(tmp_path, monkeypatch):
    leave_unpublished(monkeypatch)
    place = Place(tmp_path, "staged")
    place.append(1)
    log = log_of(place.table)
    (staged,) = [info.key for info in log.inner.list("_delta_log/_staged_commits/") if "/" + f"{1:020d}" in info.key]
    log.inner.put(f"{staged}.part", log.inner.get(staged))
    log.inner.delete([staged])
    assert {finding.clause for finding in verify(place.fresh()).findings} >= {"catalog-13"}
    done = place.opened().adopt(NAME, discard=True)
    assert (done.latest, done.dropped, done.saved) == (0, (1,), ())
    place.catalog.close()


def test_a_program_does_not_go_on_with_a_file_of_the_database_that_was_removed(place):
    """SQLite does: what it writes there is gone with the process."""
    other = place.opened().table(NAME)
    append(other, 3)
    place.restore_database()
    for table in (other, place.table):
        with pytest.raises(errors.CatalogMismatchError):
            append(table, 4)


def test_rows_of_the_database_that_go_back_in_their_place(place):
    """No other database can be told, and nothing of the lost version is published: the folder has its checksum."""
    late = place.fresh()
    late.version()
    place.append(3)
    place.catalog.close()
    with contextlib.closing(sqlite3.connect(place.database)) as database, database:
        database.execute("DELETE FROM refdelta_commits WHERE version = 3")
        database.execute("UPDATE refdelta_tables SET latest = 2")
    with pytest.raises(errors.CatalogMismatchError, match="refdelta catalog adopt"):
        append(late, 100)
    assert place.opened().adopt(NAME, discard=True).dropped == (3,)
    append(place.fresh(), 4)
    assert ids(check_log(place.opened())) == [1, 2, 4]


def test_a_copy_that_has_all_is_no_difference(place):
    place.restore_database()
    append(place.table, 3)
    append(place.fresh(), 4)
    assert ids(check_log(place.opened())) == [1, 2, 3, 4]


@pytest.mark.tier("test")
def test_a_failover_to_a_database_that_is_behind(postgres_server, tmp_path):
    """Another database in the place of the first one, which has its rows of an earlier time."""
    import sqlalchemy as sa

    url = postgres_server.database()
    with SqlCatalog(url) as catalog:
        table = catalog.create_table(NAME, pa.schema({"id": pa.int64()}), location=tmp_path / "t", commits="inline")
        append(table, 1)
        with catalog._database.connect() as connection:
            kept = {
                name: connection.execute(sa.text(f"SELECT * FROM {name}")).mappings().all()
                for name in ("refdelta_schema", "refdelta_tables", "refdelta_commits")
            }
        for row in (2, 3, 4):
            append(table, row)
        catalog.publish(NAME)
        background.settle()
        with catalog._database.begin() as connection:
            for name in ("refdelta_schema", "refdelta_tables", "refdelta_commits"):
                connection.execute(sa.text(f"ALTER TABLE {name} RENAME TO {name}_old"))
                connection.execute(sa.text(f"CREATE TABLE {name} AS SELECT * FROM {name}_old WHERE false"))
                for row in kept[name]:
                    columns = ", ".join(f":{column}" for column in row)
                    connection.execute(sa.text(f"INSERT INTO {name} VALUES ({columns})"), dict(row))
        catalog.close()
        for use in (lambda: append(table, 5), lambda: append(catalog.table(NAME), 6), lambda: catalog.publish(NAME)):
            with pytest.raises(errors.CatalogMismatchError, match="refdelta catalog adopt"):
                use()
        assert catalog.adopt(NAME).latest == 4
        append(table, 5)
        assert ids(catalog.table(NAME)) == [1, 2, 3, 4, 5]
        background.settle()
