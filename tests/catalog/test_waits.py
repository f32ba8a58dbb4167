"""Every wait for the database of a catalog ends, with one sentence that says which it was; to read needs no lock, and
no right to write. The search for more: :mod:`catalog.waits`.
"""

import contextlib
import math
import os
import pickle
import re
import shutil
import sqlite3

import pytest
import sqlalchemy as sa

from catalog import waits
from refdelta import errors
from refdelta.catalog import SqlCatalog, database, open_catalog
from refdelta.engine.parquet.files import store_errors
from refdelta.transaction import background

ENDED = r"ended after \d+\.\d s; SqlCatalog\(\.\.\., timeout=SECONDS\) or --catalog-timeout sets the limit, which is "
LOCK = f"the wait for a lock that another session holds {ENDED}0.3 s"
OF_SERVER = LOCK.replace("0.3", "1")


# --- the network ------------------------------------------------------------------------------------------------------


@pytest.mark.sample(test=8)
@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize("where", waits.WHERE)
@pytest.mark.parametrize("statement", waits.STATEMENTS)
def test_a_network_that_swallows_packets_blocks_no_statement(statement, where, forever, postgres_server):
    """In the middle of it, and at its last packet, where the most depends on it."""
    last = 0
    for at in range(0, 40, 3):
        played = waits.play(postgres_server, statement, at, where, forever=forever, fresh=statement == "tables")
        assert not played.wrong, str(played)
        if not played.within:
            break
        last = at
    assert last or statement in ("count", "snapshot", "history", "table")


def test_the_wait_for_a_connection_is_named(postgres_server):
    proxy = waits.Swallowing(postgres_server.port)
    proxy.silence(0, "request", forever=True)
    url = (
        postgres_server.database()
        .replace(f":{postgres_server.port}/", f":{proxy.port}/")
        .replace("refdelta@", "refdelta:SECRET@")
    )
    with pytest.raises(errors.StoreError, match=f"the wait for a connection {ENDED}0.3 s") as raised:
        SqlCatalog(f"{url}&sslpassword=SECRET", timeout=0.3)
    assert "SECRET" not in str(raised.value)
    proxy.close()


def test_the_wait_for_an_answer_is_named_and_the_next_statement_has_a_new_connection(postgres_server, tmp_path):
    world = waits.World(postgres_server.database(), tmp_path)
    proxy = waits.Swallowing(postgres_server.port)
    # Long enough for the statements that have an answer.
    catalog = waits.opened(world.url.replace(f":{postgres_server.port}/", f":{proxy.port}/"), tmp_path, timeout=3)
    proxy.silence(1, "reply", forever=False)  # the first one finds out that the connection is alive
    with pytest.raises(errors.StoreError, match=f"the wait for an answer {ENDED}3 s"):
        catalog.tables()
    assert catalog.tables() == [waits.NAME]
    proxy.silence(0, "reply", forever=False)
    assert catalog.tables() == [waits.NAME], "a connection that is dead is replaced before it is used"
    catalog.close()
    world.direct.close()
    proxy.close()


def test_a_statement_that_takes_too_long_is_named(postgres_server):
    with SqlCatalog(postgres_server.database(), timeout=3) as catalog:
        with pytest.raises(errors.StoreError, match=f"the wait for a statement {ENDED}3 s"):
            read(catalog, "select pg_sleep(600)")
        assert catalog.tables() == []


def test_a_session_that_does_nothing_amid_a_transaction_holds_no_lock(postgres_server, tmp_path):
    """The server ends it, so that a program that is gone stops no other one."""
    world = waits.World(postgres_server.database(), tmp_path)
    with SqlCatalog(world.url, timeout=2) as gone, gone._database.connect() as connection:
        connection.execute(sa.text("select * from refdelta_tables for update"))
        world.direct.rename_table(waits.NAME, waits.NEW)
        with pytest.raises(sa.exc.DBAPIError) as raised:
            connection.execute(sa.text("select 1"))
        assert "did nothing amid a transaction" in database.Waits(2).reason(raised.value)
    world.direct.close()


def read(catalog, statement, afterwards=lambda: None):
    with store_errors("read it"), catalog._reading("read it") as connection:
        connection.execute(sa.text(statement)).all()
        afterwards()


@pytest.mark.tier("test")
@pytest.mark.parametrize("where", ["sqlite", "postgres"])
def test_the_wait_for_a_connection_of_the_pool_is_named(where, tmp_path, request):
    server = request.getfixturevalue("postgres_server") if where == "postgres" else None
    url = server.database() if server else f"sqlite:///{tmp_path}/c.db"
    with SqlCatalog(url, timeout=2) as catalog, contextlib.ExitStack() as held:
        for _ in range(15):
            held.enter_context(catalog._database.connect())
        with pytest.raises(errors.StoreError, match=r"as all of this program's are in use, after 2\.0 s; SqlCatalog"):
            catalog.tables()


def test_how_long_it_waits_is_a_number_that_can_be_set(tmp_path):
    url = f"sqlite:///{tmp_path}/c.db"
    for wrong in (0, -1, math.nan, math.inf, "3", 10**9):
        with pytest.raises(errors.InvalidArgumentError, match="timeout is a number of seconds above 0"):
            SqlCatalog(url, timeout=wrong)
    with open_catalog(url, timeout=3) as catalog, pickle.loads(pickle.dumps(catalog)) as copy:
        assert (catalog._patience.timeout, copy._patience.timeout) == (3, 3)
    with SqlCatalog(url) as catalog:
        assert catalog._patience.timeout == 30
    with pytest.raises(errors.InvalidArgumentError, match="timeout is for the database of a catalog"):
        open_catalog("http://127.0.0.1:1", timeout=3)


@pytest.mark.parametrize("name", ["password", "sslpassword", "access_token", "client_secret"])
def test_secrets_among_the_parameters_of_a_url_are_not_shown(name):
    shown = database.shown(sa.make_url(f"postgresql://me:SECRET@h/d?{name}=SECRET&options=-csearch_path%3Dx"))
    assert shown == "postgresql://me:***@h/d?options=-csearch_path%3Dx"


# --- locks ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def world(tmp_path):
    made = waits.World(f"sqlite:///{tmp_path}/catalog.db", tmp_path)
    yield made
    background.settle()
    made.direct.close()


@pytest.mark.tier("test")
@pytest.mark.parametrize("lock", ["write", "exclusive"])
def test_beside_a_write_lock_all_is_read_and_what_writes_ends_in_one_sentence(lock, world, tmp_path):
    with waits.sqlite_lock(tmp_path / "catalog.db", lock), waits.opened(world.url, tmp_path) as catalog:
        found = waits.refusals(catalog, tmp_path)
    assert tuple(found) == waits.WRITES
    assert all(re.search(LOCK, told) for told in found.values())
    assert world.rows() == [1]
    assert world.direct.tables() == [waits.NAME]


@pytest.mark.parametrize("lock", waits.POSTGRES_LOCKS)
def test_a_lock_of_postgresql_ends_in_one_sentence(lock, postgres_server, tmp_path):
    world = waits.World(postgres_server.database(), tmp_path)
    catalog = SqlCatalog(world.url, warehouse=tmp_path, timeout=1)
    catalog.folder = tmp_path
    handle = catalog.table(waits.NAME)
    with waits.postgres_lock(postgres_server, world.url, lock):
        if lock == "schema":
            with pytest.raises(errors.StoreError, match=OF_SERVER):
                SqlCatalog(world.url, timeout=1)
        for name, (run, done) in waits.STATEMENTS.items():
            writes = done is not None and name not in ("create", "register")
            if (lock == "row" and writes) or (
                lock in ("tables", "commits") and name in ("table", "snapshot", "append")
            ):
                with pytest.raises(errors.StoreError, match=OF_SERVER):
                    run(catalog, handle)
            elif lock == "row" and name in waits.READS:
                run(catalog, handle)
    assert world.rows() == [1]
    catalog.close()
    world.direct.close()


# --- files that cannot be written -------------------------------------------------------------------------------------


@contextlib.contextmanager
def without_rights():
    """Let the rights of files hold, which they do not for root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


FILES = ["database", "all"]


@pytest.fixture
def frozen(world, tmp_path):
    """A folder ``frozen`` with a copy of the catalog, which nobody may write."""

    def make(*, folder=True, closed=True, journal="wal"):
        place = tmp_path / "frozen"
        if closed:
            world.direct.close()
        place.mkdir()
        for name in ("catalog.db", *(() if closed else ("catalog.db-wal", "catalog.db-shm"))):
            shutil.copy(tmp_path / name, place / name)
        if journal != "wal":
            with contextlib.closing(sqlite3.connect(place / "catalog.db")) as session:
                session.execute(f"PRAGMA journal_mode = {journal}")
        for file in place.iterdir():
            file.chmod(0o444)
        for parent in (tmp_path, *tmp_path.parents[:3]):
            with contextlib.suppress(PermissionError):
                parent.chmod(parent.stat().st_mode | 0o055)
        for path in (tmp_path / "t", *(tmp_path / "t").rglob("*")):
            path.chmod(0o755)
        place.chmod(0o555 if folder else 0o777)
        return place / "catalog.db"

    yield make
    if (tmp_path / "frozen").exists():
        (tmp_path / "frozen").chmod(0o777)


def read_all(url, folder):
    with waits.opened(url, folder) as catalog:
        handle = catalog.table(waits.NAME)
        assert catalog.tables() == [waits.NAME]
        for name in waits.READS:
            waits.STATEMENTS[name][0](catalog, handle)
        with pytest.raises(errors.StoreError, match=r"readonly database|unable to open"):
            catalog.rename_table(waits.NAME, waits.NEW)
        return handle.to_pyarrow_table().column("id").to_pylist()


@pytest.mark.parametrize("journal", ["wal", "delete"])
@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize("closed", [False, True])
def test_a_file_that_cannot_be_written_is_read(folder, closed, journal, frozen, tmp_path):
    if not closed and journal != "wal":
        pytest.skip("only a write-ahead log is beside the file while it is open")
    path = frozen(folder=folder, closed=closed, journal=journal)
    before = {file.name: file.read_bytes() for file in path.parent.iterdir() if "shm" not in file.name}
    with without_rights():
        assert read_all(f"sqlite:///{path}", tmp_path) == [1]
    if folder:
        assert {file.name: file.read_bytes() for file in path.parent.iterdir() if "shm" not in file.name} == before


@pytest.mark.parametrize("options", ["mode=ro&uri=true", "immutable=1&uri=true"])
def test_a_file_is_opened_as_its_url_says(options, frozen, tmp_path):
    path = frozen(folder=False)
    assert read_all(f"sqlite:///file:{path}?{options}", tmp_path) == [1]


def test_changes_that_are_in_the_write_ahead_log_only_are_not_left_out(frozen, tmp_path):
    path = frozen(closed=False)
    path.parent.chmod(0o777)
    (path.parent / "catalog.db-shm").unlink()
    path.parent.chmod(0o555)
    with without_rights(), pytest.raises(errors.StoreError, match=r"catalog\.db-wal has changes that are not in"):
        waits.opened(f"sqlite:///{path}", tmp_path)


def test_a_frozen_file_that_another_user_changes_is_read_anew(frozen, tmp_path):
    path = frozen()
    with without_rights():
        catalog = waits.opened(f"sqlite:///{path}", tmp_path)
        assert catalog.tables() == [waits.NAME]
    path.chmod(0o666)
    path.parent.chmod(0o777)
    with SqlCatalog(f"sqlite:///{path}") as writer:
        writer.rename_table(waits.NAME, waits.NEW)
    path.chmod(0o444)
    path.parent.chmod(0o555)

    def change():
        os.seteuid(os.getuid())
        os.utime(path, ns=(1, 1))

    with without_rights():
        assert catalog.tables() == [waits.NEW]
        with pytest.raises(errors.StoreError, match="was changed while it was read"):
            read(catalog, "select * from refdelta_tables", change)
    catalog.close()


@pytest.mark.parametrize("where", ["sqlite", "postgres"])
def test_to_open_a_catalog_writes_nothing(where, tmp_path, request):
    server = request.getfixturevalue("postgres_server") if where == "postgres" else None
    url = server.database() if server else f"sqlite:///{tmp_path}/c.db"
    SqlCatalog(url).close()
    said = []
    with sa_statements(said):
        SqlCatalog(url).close()
    assert [text for text in said if "refdelta" in text] == ["SELECT refdelta_schema.version \nFROM refdelta_schema"]
    assert not any(re.match("BEGIN|CREATE|INSERT|UPDATE", text) for text in said)


@contextlib.contextmanager
def sa_statements(said):
    def note(_connection, _cursor, statement, *_):
        said.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


def test_a_catalog_of_a_newer_version_is_refused_before_anything_is_written(tmp_path):
    url = f"sqlite:///{tmp_path}/c.db"
    with SqlCatalog(url) as catalog, catalog._database.begin() as connection:
        connection.execute(sa.text("update refdelta_schema set version = 2"))
    before = (tmp_path / "c.db").read_bytes()
    with pytest.raises(errors.InvalidArgumentError, match="made by a newer refdelta: its schema has version 2"):
        SqlCatalog(url)
    assert (tmp_path / "c.db").read_bytes() == before
