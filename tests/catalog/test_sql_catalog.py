"""Tables of a SqlCatalog: every verb, and what is of databases. The contract of all catalogs: test_contract.py.

Tests of catalog.locations, engine.log.managed_log.
"""

import concurrent.futures
import datetime as dt
import json
import pickle
import subprocess
import sys
import threading

import pyarrow as pa
import pytest
import sqlalchemy as sa

from catalog.contract import ids, leave_unpublished
from refdelta import DeltaTable, errors, verify, write_deltalake
from refdelta.catalog import SqlCatalog
from refdelta.engine.log import managed_log
from refdelta.engine.log.cleanup import cleanup_log
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.transaction import background
from refdelta_storage import TracingStore, open_store

SCHEMA = pa.schema({"id": pa.int64(), "town": pa.string()})
ROWS = pa.table({"id": range(10), "town": ["Oslo"] * 10}, SCHEMA)


@pytest.fixture
def catalog(tmp_path):
    with SqlCatalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path / "warehouse") as catalog:
        yield catalog
        settled()


@pytest.fixture(params=["staged", "inline"])
def table(catalog, request):
    return catalog.create_table("sales.orders", SCHEMA, commits=request.param)


def settled():
    background.settle()


def log_names(table):
    settled()
    return {info.key for info in table.store.inner.list("_delta_log/0")}


def test_times_without_a_zone_are_those_of_the_handle(catalog):
    catalog.create_table("sales.visits", pa.schema({"at": pa.timestamp("us", "UTC")}))
    noon = pa.table({"at": [dt.datetime(2026, 7, 1, 12)]})
    table = catalog.table("sales.visits", timezone="Europe/Berlin")
    write_deltalake(table, noon, mode="append")
    assert table.to_pyarrow_table()["at"].to_pylist() == [dt.datetime(2026, 7, 1, 10, tzinfo=dt.UTC)]
    with pytest.raises(errors.InvalidArgumentError, match="Europe/Atlantis"):
        catalog.table("sales.visits", timezone="Europe/Atlantis")


def test_a_new_table_has_the_features_that_delta_spark_gives_it(table):
    protocol = table.protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (3, 7)
    assert {"catalogManaged", "vacuumProtocolCheck"} <= set(protocol.reader_features)
    both = {
        "catalogManaged",
        "vacuumProtocolCheck",
        "inCommitTimestamp",
        "deletionVectors",
        "rowTracking",
        "v2Checkpoint",
    }
    assert both <= set(protocol.writer_features)
    assert table.metadata().configuration["delta.enableInCommitTimestamps"] == "true"


@pytest.mark.tier("test")
def test_all_verbs(table, catalog):
    write_deltalake(table, ROWS, mode="append")
    table.update({"town": "'Bergen'"}, predicate="id < 3")
    table.delete("id = 9")
    table.merge(pa.table({"id": [1, 50], "town": ["Moss", "Moss"]}), "t.id = s.id", source_alias="s", target_alias="t")\
        .when_matched_update_all().when_not_matched_insert_all().execute()  # fmt: skip
    table.optimize.compact()
    assert ids(table) == [*range(9), 50]
    other = catalog.table("sales.orders")
    assert other.version() == table.version() == 5
    assert [one["version"] for one in other.history()] == [5, 4, 3, 2, 1, 0]
    assert ids(catalog.table("sales.orders", version=1)) == [*range(10)]
    table.restore(1)
    assert ids(catalog.table("sales.orders")) == [*range(10)]
    infos = [json.loads(table.store.get(f"_delta_log/{v:020d}.json").splitlines()[0])["commitInfo"] for v in range(7)]
    stamps = [info["inCommitTimestamp"] for info in infos]
    assert stamps == sorted(set(stamps))
    assert all(info["txnId"] for info in infos)


@pytest.mark.parametrize("most", ["_HELD_BYTES", "_REMEMBERED"])
def test_what_is_forgotten_is_asked_for_again(catalog, monkeypatch, most):
    leave_unpublished(monkeypatch)
    monkeypatch.setattr(managed_log, most, 3)
    table = catalog.create_table("t", SCHEMA, commits="inline")
    for number in range(9):
        write_deltalake(table, pa.table({"id": [number], "town": ["a"]}), mode="append")
    assert len(table.store._known) <= 3
    assert ids(DeltaTable.in_store(table.store)) == [*range(9)]
    assert [one["version"] for one in table.history()] == [*range(9, -1, -1)]
    assert catalog.publish("t") == 9
    assert ids(DeltaTable.in_store(table.store)) == [*range(9)]


def test_publishing_puts_each_commit_and_reads_none_of_the_log(table, catalog, monkeypatch):
    leave_unpublished(monkeypatch)
    for number in range(3):
        write_deltalake(table, pa.table({"id": [number], "town": ["a"]}), mode="append")
    counting = TracingStore(table.store.inner)
    table.store.inner = counting
    assert table.store.publish() == 3
    log = [call for call in counting.calls if call[1].startswith("_delta_log/0")]
    # One look, by which a folder that was restored beneath the publisher does not get a hole.
    assert log[0] == ("head", f"_delta_log/{0:020d}.json")
    assert log[1:] == [("put_if_absent", f"_delta_log/{version:020d}.json") for version in (1, 2, 3)]


def test_a_commit_is_a_put_that_passes_the_wrappers_of_the_log(table):
    around = TracingStore(table.store)
    write_deltalake(DeltaTable.in_store(around), pa.table({"id": [7], "town": ["a"]}), mode="append")
    puts = [key for operation, key in around.calls if operation == "put_if_absent" and "/0" in key and ".json" in key]
    assert puts == [f"_delta_log/{1:020d}.json"]


def test_checkpoints_stand_for_published_versions(catalog, tmp_path):
    table = catalog.create_table("t", SCHEMA, configuration={"delta.checkpointInterval": "3"})
    for number in range(7):
        write_deltalake(table, pa.table({"id": [number], "town": ["a"]}), mode="append")
    settled()
    names = log_names(table)
    assert any(".checkpoint." in name and "0000000003." in name for name in names)
    assert "_delta_log/00000000000000000006.json" in names
    assert ids(catalog.table("t")) == [*range(7)]


def test_opening_by_the_path_names_the_catalog(table, catalog):
    uri = table.table_uri
    with pytest.raises(errors.UnsupportedFeatureError, match=r"take it from the catalog sqlite:///.*catalog\.db"):
        DeltaTable(uri)
    with pytest.raises(errors.UnsupportedFeatureError):
        write_deltalake(uri, ROWS, mode="append")
    assert catalog.table("sales.orders").version() == 0


def test_the_feature_is_given_by_a_catalog_only(tmp_path):
    feature = {"delta.feature.catalogManaged": "supported", "delta.enableInCommitTimestamps": "true"}
    with pytest.raises(errors.UnsupportedFeatureError, match="catalogManaged"):
        write_deltalake(tmp_path / "t", ROWS, configuration=feature)
    assert not DeltaTable.is_deltatable(tmp_path / "t")
    write_deltalake(tmp_path / "t", ROWS)
    with pytest.raises(errors.UnsupportedFeatureError, match="catalogManaged"):
        DeltaTable(tmp_path / "t").alter.set_table_properties(feature)
    assert DeltaTable(tmp_path / "t").version() == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.alter.set_table_properties({"delta.enableInCommitTimestamps": "false"}),
        lambda table: table.alter.unset_table_properties(["delta.enableInCommitTimestamps"]),
        lambda table: table.alter.drop_feature("inCommitTimestamp"),
        lambda table: table.alter.drop_feature("vacuumProtocolCheck"),
    ],
)
def test_what_a_table_of_a_catalog_needs_stays(table, change):
    before = table.protocol(), table.metadata().configuration
    with pytest.raises(
        errors.InvalidArgumentError, match=r"catalogManaged needs it|delta.enableInCommitTimestamps must"
    ):
        change(table)
    table.update_incremental()
    assert (table.version(), table.protocol(), table.metadata().configuration) == (0, *before)


def test_conflicts_are_decided_as_always(table, catalog):
    write_deltalake(table, ROWS, mode="append")
    first, second, third = (catalog.table("sales.orders").begin() for _ in range(3))
    first.delete("id = 1")
    second.delete("id = 2")
    third.delete("id = 1")
    assert first.commit().version == 2
    result = second.commit()
    assert (result.version, result.rebased_over) == (3, (2,))
    with pytest.raises(errors.ConcurrentDeleteReadException):
        third.commit()
    assert ids(catalog.table("sales.orders")) == [0, *range(3, 10)]


def test_a_catalog_that_permits_no_maintenance_is_named(table, monkeypatch):
    write_deltalake(table, ROWS, mode="append")
    write_deltalake(table, ROWS, mode="append")
    monkeypatch.setattr(type(table.store.ratifier), "maintenance", "the catalog keeps its tables in order itself")
    for statement in (table.optimize.compact, table.vacuum, table.optimize.purge, table.reorg_upgrade_uniform):
        with pytest.raises(errors.UnsupportedFeatureError, match="the catalog keeps its tables in order itself"):
            statement()
    assert table.version() == 2
    assert table.cleanup_metadata() == 0


@pytest.mark.tier("test")
def test_cleanup_removes_what_was_staged_and_is_not_needed(catalog, monkeypatch):
    hour = 3_600_000
    table = catalog.create_table("t", SCHEMA, configuration={"delta.checkpointInterval": "4"})
    for number in range(9):
        write_deltalake(table, pa.table({"id": [number], "town": ["a"]}), mode="append")
    settled()
    catalog.publish("t")
    inner = table.store.inner
    lost = f"_delta_log/_staged_commits/{5:020d}.01234567-89ab-cdef-0123-456789abcdef.json"
    inner.put(lost, b"{}")
    staged = [info.key for info in inner.list("_delta_log/_staged_commits")]
    assert len(staged) == 10
    now = max(info.mtime_ms for info in inner.list("_delta_log")) + 60 * 24 * hour
    deleted = cleanup_log(table.store, load_snapshot(table.store), now)
    assert lost in deleted
    assert [*inner.list("_delta_log/_staged_commits")] == []
    assert ids(catalog.table("t")) == [*range(9)]
    write_deltalake(table, pa.table({"id": [9], "town": ["a"]}), mode="append")
    assert ids(catalog.table("t")) == [*range(10)]


def test_the_verifier_takes_a_table(table, monkeypatch):
    leave_unpublished(monkeypatch)
    write_deltalake(table, ROWS, mode="append")
    table.delete("id = 3")
    report = verify(table)
    assert report.sound, [str(finding) for finding in report.findings]


# --- the catalog itself ---


def test_names(catalog, tmp_path):
    catalog.create_table("sales.orders", SCHEMA)
    catalog.create_table("sales.lines", SCHEMA)
    catalog.create_table("other", SCHEMA)
    assert catalog.tables() == ["other", "sales.lines", "sales.orders"]
    assert catalog.tables("sales") == ["sales.lines", "sales.orders"]
    assert catalog.namespaces() == ["sales"]
    with pytest.raises(errors.TableAlreadyExistsError, match=r"'sales.orders'"):
        catalog.create_table("sales.orders", SCHEMA)
    with pytest.raises(errors.TableNotFoundError, match=r"did you mean 'sales.orders'"):
        catalog.table("sales.order")
    catalog.rename_table("other", "sales.other")
    assert catalog.tables("sales") == ["sales.lines", "sales.orders", "sales.other"]
    with pytest.raises(errors.TableAlreadyExistsError):
        catalog.rename_table("sales.other", "sales.lines")
    for wrong in ("", ".", "a..b", " a", "a.", 3, None):
        with pytest.raises(errors.InvalidArgumentError, match="the name of a table"):
            catalog.table(wrong)


def test_dropping(table, catalog):
    write_deltalake(table, ROWS, mode="append")
    settled()
    store = open_store(table.table_uri)
    catalog.drop_table("sales.orders")
    assert catalog.tables() == []
    assert [*store.list()]
    with pytest.raises(errors.StoreError, match=r"has no table sales\.orders any more"):
        write_deltalake(table, ROWS, mode="append")
    again = catalog.create_table("sales.orders", SCHEMA)
    write_deltalake(again, ROWS, mode="append")
    settled()
    catalog.drop_table("sales.orders", purge=True)
    assert [*open_store(again.table_uri).list()] == []


def test_a_table_of_the_file_system_stays_one(catalog, tmp_path):
    write_deltalake(tmp_path / "t", ROWS)
    table = catalog.register_table("old", tmp_path / "t")
    write_deltalake(table, ROWS, mode="append")
    assert DeltaTable(tmp_path / "t").version() == catalog.table("old").version() == 1
    assert catalog.publish("old") == 0
    with pytest.raises(errors.TableNotFoundError):
        catalog.register_table("none", tmp_path / "nothing")


def test_a_folder_with_a_table_is_refused_and_the_name_is_free_again(catalog, tmp_path):
    write_deltalake(tmp_path / "t", ROWS)
    with pytest.raises(errors.TableAlreadyExistsError, match="register_table"):
        catalog.create_table("x", SCHEMA, location=tmp_path / "t")
    catalog.create_table("x", SCHEMA)


def test_a_catalog_survives_a_pickle(catalog, table):
    with pickle.loads(pickle.dumps(catalog)) as copy:
        assert copy.tables() == ["sales.orders"]
    store = pickle.loads(pickle.dumps(table.store))
    assert DeltaTable.in_store(store).version() == 0


@pytest.mark.tier("test")
def test_no_connection_is_left_behind(tmp_path):
    code = (
        "import gc, pyarrow as pa; from refdelta.catalog import SqlCatalog\n"
        f"catalog = SqlCatalog('sqlite:///{tmp_path}/c.db', warehouse={str(tmp_path)!r})\n"
        "catalog.create_table('t', pa.schema({'id': pa.int64()})); catalog.close(); assert catalog.tables() == ['t']\n"
        "del catalog; gc.collect()"
    )
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_wrong_arguments(catalog, tmp_path):
    with pytest.raises(errors.InvalidArgumentError, match="commits is one of"):
        catalog.create_table("x", SCHEMA, commits="both")
    with pytest.raises(errors.InvalidArgumentError, match="needs a location"):
        SqlCatalog(f"sqlite:///{tmp_path}/other.db").create_table("x", SCHEMA)
    for url in ("nonsense", "nosuch://x/y"):
        with pytest.raises(errors.InvalidArgumentError, match="not the URL of a database"):
            SqlCatalog(url)
    for url in ("sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true"):
        with pytest.raises(errors.InvalidArgumentError, match=r"cannot be in memory.* sqlite:///catalog\.db"):
            SqlCatalog(url)


def test_a_password_is_not_shown():
    # With its driver there is no server, without it no driver.
    with pytest.raises(errors.DeltaError) as raised:
        SqlCatalog("postgresql+psycopg://me:SECRET@127.0.0.1:1/x?connect_timeout=1")
    assert "SECRET" not in str(raised.value)


def test_a_database_that_cannot_be_reached_is_a_store_error(catalog, tmp_path, monkeypatch):
    with pytest.raises(errors.StoreError, match=r"cannot open the catalog: .* unable to open database file"):
        SqlCatalog(f"sqlite:///{tmp_path}/no/such/folder/catalog.db")
    catalog.create_table("t", SCHEMA)

    def fails(*_):
        raise sa.exc.OperationalError("statement", {}, Exception("the disk is full"))

    with monkeypatch.context() as patch:
        patch.setattr(sa.Connection, "execute", fails)
        for call in (
            catalog.tables,
            catalog.namespaces,
            lambda: catalog.table("t"),
            lambda: catalog.rename_table("t", "u"),
            lambda: catalog.publish("t"),
            lambda: catalog.drop_table("t"),
            lambda: catalog.create_table("u", SCHEMA),
        ):
            with pytest.raises(errors.StoreError, match="the disk is full"):
                call()
    assert catalog.tables() == ["t"]


def test_many_threads_that_lose_do_not_wait_for_connections(catalog):
    """Each has one connection at a time: the pool has fifteen."""
    log = catalog.create_table("t", SCHEMA).store
    log.ask()
    start = threading.Barrier(40, timeout=120)
    commit = managed_log.RatifiedCommit(1, 2, 1, file_name=f"{1:020d}.x.json")
    log.ratifier.propose(commit)

    def lose(_):
        start.wait()
        return [type(log.ratifier.propose(commit)) for _ in range(3)]

    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        assert {one for found in pool.map(lose, range(40)) for one in found} == {managed_log.Exists}


@pytest.mark.tier("test")
@pytest.mark.parametrize("where", ["sqlite", "postgres"])
def test_a_new_catalog_is_opened_by_many_at_once(where, tmp_path, request):
    server = request.getfixturevalue("postgres_server") if where == "postgres" else None
    for number in range(3 if server else 40):  # SQLite refuses some of them in one of twenty new databases
        url = server.database() if server else f"sqlite:///{tmp_path}/{number}.db"
        start = threading.Barrier(8, timeout=120)

        def open_it(_, url=url, start=start):
            start.wait()
            with SqlCatalog(url) as catalog:
                return catalog.tables()

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert [*pool.map(open_it, range(8))] == [[]] * 8


def test_the_default_level_of_a_server_does_not_matter(postgres_server, tmp_path):
    url = postgres_server.database(default_transaction_isolation="serializable")
    with SqlCatalog(url, warehouse=tmp_path) as catalog:
        catalog.create_table("t", SCHEMA, configuration={"delta.checkpointInterval": "1000"})

        def write(number):
            own = catalog.table("t")
            return [write_deltalake(own, ROWS, mode="append").version for _ in range(4)]

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            versions = sorted(version for found in pool.map(write, range(8)) for version in found)
        assert versions == [*range(1, 33)]
        settled()
