"""UnityCatalog against ``refdelta serve``, in a process of its own: all verbs, racers, lost replies, refusals.

Tests of catalog.delta_api, catalog.unity_http.
"""

import concurrent.futures
import itertools
import json
import pickle
import socket
import threading
import time
import uuid

import pyarrow as pa
import pytest

from catalog.contract import ids
from catalog.serving import TOKEN, Proxy, serving
from refdelta import DeltaTable, errors, verify, write_deltalake
from refdelta.catalog import SqlCatalog, UnityCatalog, unity_http
from refdelta.catalog import delta_api as api
from refdelta.catalog.base import Entry
from refdelta.core.log.actions import CommitInfo
from refdelta.core.log.codec import encode_commit
from refdelta.engine.log.managed_log import Exists, ManagedStore
from refdelta.transaction import background
from refdelta_storage import Committed, StorageError
from waiting import until

pytestmark = pytest.mark.tier("test")

SCHEMA = pa.schema({"id": pa.int64(), "town": pa.string()})
ROWS = pa.table({"id": range(10), "town": ["Oslo"] * 10}, SCHEMA)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    everywhere = str(tmp_path_factory.getbasetemp())
    with serving(tmp_path_factory.mktemp("served"), "--max-unpublished", "5", "--locations", everywhere) as served:
        yield served


@pytest.fixture
def catalog(served):
    with UnityCatalog(served.url, TOKEN) as catalog:
        yield catalog
        background.settle()


@pytest.fixture
def name(request):
    return "main.sales." + "".join(letter if letter.isalnum() else "_" for letter in request.node.name)


@pytest.fixture
def table(catalog, name):
    return catalog.create_table(name, SCHEMA)


@pytest.fixture
def unpublished(monkeypatch):
    """No writer publishes in the background."""
    monkeypatch.setattr(background, "run", lambda *_, **__: True)


def append(table, *new):
    return write_deltalake(table, pa.table({"id": [*new], "town": ["x"] * len(new)}, SCHEMA), mode="append")


def test_all_verbs(table, catalog, name, served):
    write_deltalake(table, ROWS, mode="append")
    table.update({"town": "'Bergen'"}, predicate="id < 3")
    table.delete("id = 9")
    table.merge(pa.table({"id": [1, 50], "town": ["Moss", "Moss"]}), "t.id = s.id", source_alias="s", target_alias="t")\
        .when_matched_update_all().when_not_matched_insert_all().execute()  # fmt: skip
    assert ids(table) == [*range(9), 50]
    other = catalog.table(name)
    assert other.version() == 4
    assert [one["version"] for one in other.history()] == [4, 3, 2, 1, 0]
    assert ids(catalog.table(name, version=1)) == [*range(10)]
    table.restore(1)
    assert ids(catalog.table(name)) == [*range(10)]
    background.settle()
    with SqlCatalog(served.database) as behind:
        assert ids(behind.table(name)) == [*range(10)]
        assert verify(behind.table(name)).sound


def test_changes_of_metadata_are_announced(table, catalog, name, served):
    append(table, 1)
    table.alter.add_columns(pa.schema({"pieces": pa.int64()}))
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 7 days", "owner": "us"})
    table.alter.set_table_properties({"owner": "you"})
    table.alter.set_table_description("Orders of the year")
    loaded = catalog.load(name)
    assert [field["name"] for field in loaded.metadata.columns["fields"]] == ["id", "town", "pieces"]
    assert loaded.metadata.properties["owner"] == "you"
    table.alter.unset_table_properties(["owner"])
    assert "owner" not in catalog.load(name).metadata.properties
    background.settle()


def test_columns_of_every_kind_and_partitions(catalog, name):
    nested = pa.struct({"a": pa.list_(pa.map_(pa.string(), pa.decimal128(9, 2)))})
    schema = pa.schema({"day": pa.date32(), "n": nested})
    table = catalog.create_table(name, schema, partition_by=["day"], cluster_by=None, description="days")
    found = catalog.load(name).metadata
    assert found.partition_columns == ["day"]
    inner = found.columns["fields"][1]["type"]["fields"][0]["type"]
    assert (inner["element-type"]["value-type"], inner["contains-null"]) == ("decimal(9,2)", True)
    assert table.schema().to_arrow() == catalog.table(name).schema().to_arrow()
    clustered = catalog.create_table(f"{name}_c", schema, cluster_by=["day"])
    assert json.loads(catalog.load(f"{name}_c").metadata.properties["delta.clusteringColumns"]) == [["day"]]
    assert clustered.version() == 0


def test_conflicts_are_decided_as_always(table, catalog, name):
    write_deltalake(table, ROWS, mode="append")
    first, second, third = (catalog.table(name).begin() for _ in range(3))
    first.delete("id = 1")
    second.delete("id = 2")
    third.delete("id = 1")
    assert first.commit().version == 2
    assert second.commit().rebased_over == (2,)
    with pytest.raises(errors.ConcurrentDeleteReadException):
        third.commit()
    assert ids(catalog.table(name)) == [0, *range(3, 10)]


@pytest.mark.tier("test")
def test_racers(catalog, name, table):
    start = threading.Barrier(6)

    def write(number):
        own = catalog.table(name)
        start.wait()
        return [append(own, 100 * number + i).version for i in range(4)]

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        versions = sorted(v for found in pool.map(write, range(6)) for v in found)
    assert versions == [*range(1, 25)]
    background.settle()
    catalog.publish(name)
    assert ids(catalog.table(name)) == sorted(100 * n + i for n in range(6) for i in range(4))


def test_of_racing_creations_one_wins(catalog, name):
    start = threading.Barrier(4)

    def create(_):
        start.wait()
        try:
            return catalog.create_table(name, SCHEMA).store.ratifier.entry.table_id
        except errors.TableAlreadyExistsError:
            return None

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        won = [found for found in pool.map(create, range(4)) if found]
    assert len(won) == 1
    assert catalog.load(name).metadata.table_uuid == won[0]


@pytest.mark.tier("test")
@pytest.mark.usefixtures("unpublished")
def test_a_full_backlog_is_published_by_the_next_writer(table, catalog, name, monkeypatch):
    pauses = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    for number in range(12):
        append(table, number)
    assert ids(catalog.table(name)) == [*range(12)]
    assert len(table.store.unpublished()) <= 5
    assert table.store.inner.head("_delta_log/00000000000000000005.json").size
    assert pauses
    assert max(pauses) <= 5


def test_writers_by_the_server_and_by_its_database(served, table, name):
    with SqlCatalog(served.database) as behind:
        other = behind.table(name)
        for number in range(0, 6, 2):
            append(table, number)
            append(other, number + 1)
        other.alter.set_table_properties({"owner": "us"})
        append(table, 6)
        assert ids(table) == ids(behind.table(name)) == [*range(7)]
        assert table.metadata().configuration["owner"] == "us"
        background.settle()
        other.optimize.compact()
        assert ids(table) == [*range(7)]
        background.settle()


# --- lost requests and replies ---


def commit_of(method, path, body):
    return method == "POST" and b"add-commit" in body


def once(wanted, *faults):
    """The first requests that fit meet these faults, the others none."""
    left = list(faults)
    return lambda method, path, body: left.pop(0) if left and wanted(method, path, body) else None


def error_of(status, kind, *headers):
    """A reply in place of the server's."""
    body = json.dumps({"error": {"type": kind, "code": status, "message": "as the test has it"}})
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close", *headers, "", body]
    return "\r\n".join(lines).encode()


def reply_of(body):
    content = json.dumps(body)
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n{content}".encode()


@pytest.fixture
def through(served, monkeypatch):
    """Open the catalog through a proxy with a plan. Pauses take no time."""
    monkeypatch.setattr(unity_http.time, "sleep", lambda _: None)
    opened = []

    def open_through(plan):
        opened.append(Proxy(served.url, plan).__enter__())
        opened.append(UnityCatalog(opened[-1].url, TOKEN).__enter__())
        return opened[-1]

    yield open_through
    background.settle()
    for one in reversed(opened):
        one.__exit__(None, None, None)


STRICT = error_of(409, "CommitVersionConflictException")
FAULTS = {
    "the reply": ["lose-reply"],
    "the request": ["lose-request"],
    "two requests": ["lose-request", "lose-request"],
    "the request and then the reply": ["lose-request", "lose-reply"],
    "nothing, but it is sent twice": ["twice"],
    "the server's certainty": [error_of(500, "CommitStateUnknownException")],
    "a gateway": [error_of(503, "")],
    "too many requests": [error_of(429, "TooManyRequestsException", "Retry-After: 1")],
}


@pytest.mark.sample(check=4)
@pytest.mark.parametrize("after_another", [False, True], ids=["alone", "after another writer"])
@pytest.mark.parametrize("lost", FAULTS)
def test_what_is_lost_is_settled(catalog, through, name, lost, after_another):
    catalog.create_table(name, SCHEMA)
    table = through(once(commit_of, *FAULTS[lost])).table(name)
    if after_another:
        append(catalog.table(name), 7)
    assert append(table, 1).version == 1 + after_another
    append(table, 2)
    background.settle()
    seen = catalog.table(name)
    assert (ids(seen), seen.version()) == (([1, 2, 7], 3) if after_another else ([1, 2], 2))


@pytest.mark.parametrize("published", [False, True], ids=["unpublished", "published"])
def test_a_server_that_refuses_what_is_sent_again(catalog, through, name, published, monkeypatch):
    """The older specification: a commit that was accepted is a conflict when it comes again."""
    catalog.create_table(name, SCHEMA)
    monkeypatch.setattr(background, "run", lambda *_, **__: True)
    seen = []

    def plan(method, path, body):
        if not commit_of(method, path, body):
            return None
        seen.append(json.loads(body)["updates"][-1]["commit"]["file-name"])
        if len(seen) == 1:
            return "lose-reply"
        if published and len(seen) == 2:
            catalog.publish(name)
        return STRICT if seen.count(seen[-1]) > 1 else None

    table = through(plan).table(name)
    assert append(table, 1).version == 1
    assert append(catalog.table(name), 2).version == 2
    assert ids(catalog.table(name)) == [1, 2]


def test_a_commit_that_is_sent_again_after_it_was_published(table, name, unpublished):
    append(table, 1)
    log = table.store
    (first,) = log.unpublished()
    log.publish()
    assert log.unpublished() == ()
    assert isinstance(log.ratifier.propose(first), Committed)
    other = encode_commit([CommitInfo({"inCommitTimestamp": first.timestamp_ms, "txnId": "another"})])
    assert isinstance(log.propose(1, other), Exists)


@pytest.mark.sample(check=3)
@pytest.mark.parametrize("lost", [["lose-reply"], ["lose-request"], ["twice"]], ids="".join)
@pytest.mark.parametrize("call", ["staging-tables", "tables"])
def test_a_creation_whose_reply_is_lost(catalog, through, name, lost, call):
    own = through(once(lambda method, path, body: method == "POST" and path.endswith(f"/{call}"), *lost))
    append(own.create_table(name, SCHEMA), 1)
    assert ids(catalog.table(name)) == [1]


def test_publishing_whose_reply_is_lost(catalog, through, name, unpublished):
    table = catalog.create_table(name, SCHEMA)
    append(table, 1)
    own = through(once(lambda _, __, body: b"set-latest-backfilled-version" in body, "lose-reply"))
    assert own.publish(name) == 1
    assert catalog.table(name).store.unpublished() == ()


@pytest.mark.tier("test")
def test_a_reply_that_never_comes_certainly_is_unknown(catalog, through, name):
    catalog.create_table(name, SCHEMA)
    broken = []

    def plan(method, path, body):
        if broken or commit_of(method, path, body):
            broken.append(path)
            return "lose-reply"
        return None

    table = through(plan).table(name)
    with pytest.raises(errors.CommitOutcomeUnknownError):
        append(table, 1)
    assert ids(catalog.table(name)) == [1]


def busy(seconds):
    """The answer of a server that has no memory for a request."""
    body = json.dumps({"error": {"message": "busy", "type": api.UNAVAILABLE, "code": 503}}).encode()
    head = f"HTTP/1.1 503 Busy\r\nRetry-After: {seconds}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


def test_a_server_that_is_busy_is_asked_again_with_an_end(catalog, served, name, monkeypatch):
    slept, left = [], [2]
    monkeypatch.setattr(unity_http.time, "sleep", slept.append)

    def plan(method, path, _):
        if method == "POST" and path.endswith(name.rpartition(".")[2]) and left[0]:
            left[0] -= 1
            return busy(3600)
        return None

    catalog.create_table(name, SCHEMA)
    with Proxy(served.url, plan) as proxy, UnityCatalog(proxy.url, TOKEN) as through:
        table = through.table(name)
        write_deltalake(table, ROWS, mode="append")
        assert slept == [5.0, 5.0], "no longer than it has patience for"
        left[0] = 10**6
        with pytest.raises(errors.DeltaError) as caught:
            write_deltalake(table, ROWS, mode="append")
        assert not isinstance(caught.value, errors.CommitOutcomeUnknownError), "it is certain that nothing was done"
        assert len(slept) < 50
        background.settle()
    assert catalog.table(name).count() == len(ROWS)


def test_a_server_that_is_away(served, monkeypatch, catalog, name):
    monkeypatch.setattr(unity_http.time, "sleep", lambda _: None)
    with Proxy(served.url, lambda *_: None) as proxy, UnityCatalog(proxy.url, TOKEN) as own:
        table = own.create_table(name, SCHEMA)
    with pytest.raises(errors.StoreError, match="no answer"):
        append(table, 1)
    with pytest.raises(errors.StoreError, match="no answer"):
        own.table(name)
    assert ids(catalog.table(name)) == []


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n[1,",
        b"nonsense\r\n\r\n",
        error_of(500, "x" * 10_000),
        error_of(302, ""),
    ],
    ids=["broken", "no HTTP", "long", "elsewhere"],
)
def test_a_server_that_answers_nonsense(through, reply):
    own = through(lambda *_: reply)
    with pytest.raises(errors.StoreError) as raised:
        own.table("main.sales.orders")
    assert len(str(raised.value)) < 1000


# --- what a server of Unity Catalog asks for ---

REQUIRED = {
    "delta.checkpointPolicy": "v2",
    "delta.enableDeletionVectors": "true",
    "delta.enableInCommitTimestamps": "true",
    "delta.checkpoint.writeStatsAsStruct": "true",
    "delta.checkpoint.writeStatsAsJson": "true",
    "io.unitycatalog.tableId": "550e8400-e29b-41d4-a716-446655440000",
}
READERS = ["catalogManaged", "deletionVectors", "v2Checkpoint", "vacuumProtocolCheck"]
WRITERS = [*READERS, "inCommitTimestamp"]


def test_a_creation_with_what_unity_catalog_requires(through, tmp_path):
    """The answers of ``ManagedTablesSpec.md``: what it requires is in the table and in the request for it."""
    required = {"min-reader-version": 3, "min-writer-version": 7, "reader-features": READERS}
    staging = {
        "table-id": REQUIRED["io.unitycatalog.tableId"],
        "table-type": "MANAGED",
        "location": (tmp_path / "t").as_uri(),
        "storage-credentials": [],
        "required-protocol": {**required, "writer-features": WRITERS},
        "required-properties": REQUIRED,
        "suggested-protocol": {"reader-features": ["columnMapping"], "writer-features": ["columnMapping"]},
        "suggested-properties": {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": None},
    }
    created = []

    def plan(method, path, body):
        if path.endswith("/staging-tables"):
            return reply_of(staging)
        if path.endswith(("/tables", "/tables/orders")):
            created.extend([json.loads(body)] if body else [])
            metadata = {"etag": "e", "table-type": "MANAGED", "table-uuid": staging["table-id"]}
            metadata |= {"location": staging["location"], "created-time": 1, "updated-time": 1, "properties": {}}
            return reply_of({"metadata": {**metadata, "columns": {}}, "commits": None, "latest-table-version": 0})
        return None

    table = through(plan).create_table("main.sales.orders", SCHEMA, partition_by=["town"], description="of a year")
    (request,) = created
    assert REQUIRED.items() <= request["properties"].items()
    assert REQUIRED.items() <= table.metadata().configuration.items()
    assert set(READERS) <= set(request["protocol"]["reader-features"]) <= set(request["protocol"]["writer-features"])
    assert set(WRITERS) <= set(request["protocol"]["writer-features"])
    assert not any(name.startswith("delta.feature.") for name in table.metadata().configuration)
    assert (request["partition-columns"], request["comment"]) == (["town"], "of a year")
    assert request["last-commit-timestamp-ms"] == table.history()[0]["timestamp"]


def test_a_feature_that_is_required_and_not_known(through, tmp_path):
    protocol = {"min-reader-version": 3, "min-writer-version": 7, "reader-features": [], "writer-features": ["newest"]}
    staging = {"table-id": "x", "table-type": "MANAGED", "location": (tmp_path / "t").as_uri()}
    staging |= {"storage-credentials": [], "required-protocol": protocol, "required-properties": {}}
    own = through(lambda _, path, __: reply_of(staging) if path.endswith("/staging-tables") else None)
    with pytest.raises(errors.UnsupportedFeatureError, match="newest"):
        own.create_table("main.sales.orders", SCHEMA)
    assert not (tmp_path / "t").exists()


# --- refusals ---


def test_maintenance_is_refused_by_name(table, name):
    append(table, 1)
    append(table, 2)
    for statement in (table.optimize.compact, table.vacuum, table.optimize.purge, table.reorg_upgrade_uniform):
        with pytest.raises(errors.UnsupportedFeatureError, match=rf"Unity Catalog permits no .*{name}"):
            statement()
    assert table.cleanup_metadata() == 0
    assert table.version() == 2


def test_a_table_belongs_to_its_catalog(table, catalog):
    with pytest.raises(errors.UnsupportedFeatureError, match=f"take it from the catalog {catalog.name}"):
        DeltaTable(table.table_uri)


def test_names_and_arguments(catalog, name, tmp_path):
    for wrong in ("orders", "sales.orders", "a.b.c.d", "a.b.c/d", "", None):
        with pytest.raises(errors.InvalidArgumentError, match="the name of a table"):
            catalog.table(wrong)
    with pytest.raises(errors.InvalidArgumentError, match="chooses the location"):
        catalog.create_table(name, SCHEMA, location=tmp_path / "t")
    with pytest.raises(errors.InvalidArgumentError, match="staged commits only"):
        catalog.create_table(name, SCHEMA, commits="inline")
    write_deltalake(tmp_path / "t", ROWS)
    with pytest.raises(errors.InvalidArgumentError, match="with the server itself"):
        catalog.register_table(name, tmp_path / "t")
    with pytest.raises(errors.TableNotFoundError):
        catalog.table(name)
    catalog.create_table(name, SCHEMA)
    with pytest.raises(errors.TableAlreadyExistsError):
        catalog.create_table(name, SCHEMA)
    for url in ("nonsense", "ftp://x", "http://user:word@localhost", "https://x?token=1", None, 3):
        with pytest.raises(errors.InvalidArgumentError):
            UnityCatalog(url, TOKEN)
    with pytest.raises(errors.InvalidArgumentError, match="unencrypted"):
        UnityCatalog("http://example.org", TOKEN)
    assert UnityCatalog("http://example.org", TOKEN, allow_http=True).name == f"http://example.org{api.ROOT}"


def test_renaming_and_dropping(table, catalog, name):
    append(table, 1)
    catalog.rename_table(name, f"{name}_2")
    assert ids(catalog.table(f"{name}_2")) == [1]
    assert f"{name}_2" in catalog.tables()
    assert f"{name}_2" in catalog.tables("main.sales")
    assert catalog.tables("other") == []
    with pytest.raises(errors.StoreError, match="has no table"):
        append(table, 2)
    with pytest.raises(errors.InvalidArgumentError, match="within their schema"):
        catalog.rename_table(f"{name}_2", "main.other.x")
    with pytest.raises(errors.TableNotFoundError):
        catalog.rename_table(name, f"{name}_3")
    catalog.create_table(name, SCHEMA)
    with pytest.raises(errors.TableAlreadyExistsError):
        catalog.rename_table(name, f"{name}_2")
    background.settle()
    catalog.drop_table(f"{name}_2", purge=True)
    assert [*table.store.inner.list()] == []
    with pytest.raises(errors.TableNotFoundError):
        catalog.drop_table(f"{name}_2")


def test_a_handle_of_a_table_that_was_replaced(table, catalog, name):
    catalog.drop_table(name)
    catalog.create_table(name, SCHEMA)
    with pytest.raises(errors.StoreError, match="any more, or another one"):
        append(table, 1)
    assert ids(catalog.table(name)) == []


def test_a_table_of_the_file_system(served, catalog, tmp_path, name):
    write_deltalake(tmp_path / "t", ROWS)
    with SqlCatalog(served.database) as behind:
        behind.register_table(name, tmp_path / "t")
    append(catalog.table(name), 10)
    assert DeltaTable(tmp_path / "t").version() == 1
    assert catalog.publish(name) == 0


def test_inline_commits_are_not_served(served, catalog, tmp_path, name):
    with SqlCatalog(served.database, warehouse=tmp_path) as behind:
        behind.create_table(name, SCHEMA, commits="inline")
    with pytest.raises(errors.StoreError, match="holds the commits of this table inline"):
        catalog.table(name)


# --- tokens, processes ---


@pytest.mark.parametrize("token", [None, "a-wrong-token-of-the-tests-0123"])
def test_a_wrong_token(served, token):
    with UnityCatalog(served.url, token) as own, pytest.raises(errors.StoreError, match="401 NotAuthorized") as raised:
        own.table("main.sales.orders")
    assert token is None or token not in str(raised.value)


def test_a_token_is_shown_nowhere(catalog, through, name):
    assert TOKEN not in repr(catalog) + repr(catalog._connection) + catalog.name
    own = through(lambda *_: error_of(500, f"Bearer {TOKEN}"))
    with pytest.raises(errors.StoreError) as raised:
        own.table(name)
    assert TOKEN not in str(raised.value)


def test_a_token_may_be_asked_for_each_time(served):
    given = iter([TOKEN] * 2 + ["expired-token-0123456789"])
    with UnityCatalog(served.url, lambda: next(given)) as own:
        own.tables("main")
        with pytest.raises(errors.StoreError, match="401"):
            own.tables("main")


def test_catalogs_and_tables_survive_a_pickle(catalog, table):
    append(table, 1)
    with pickle.loads(pickle.dumps(catalog)) as copy:
        assert copy.tables("main") == catalog.tables("main")
    store = pickle.loads(pickle.dumps(table.store))
    assert ids(DeltaTable.in_store(store)) == [1]
    store.ratifier.catalog.close()
    with pytest.raises(unity_http.RequestError) as raised:
        catalog._connection.get(f"{api.DELTA}/nothing", dict)
    assert pickle.loads(pickle.dumps(raised.value)).status == 404


def test_answers_with_gaps_are_refused(table, catalog, name, monkeypatch):
    loaded = catalog.load(name)
    file = f"{5:020d}.{uuid.uuid4()}.json"
    far = api.ApiCommit(version=5, timestamp=1, file_name=file, file_size=1, file_modification_timestamp=1)
    answer = api.LoadedTable(metadata=loaded.metadata, commits=[far], latest_table_version=7)
    monkeypatch.setattr(type(catalog), "load", lambda *_: answer)
    with pytest.raises(StorageError, match="names versions"):
        ManagedStore(table.store.inner, table.store.ratifier).ask()


# --- credentials ---


def granted(*found):
    """A catalog whose server answers with these credentials, one after the other."""
    left = list(found)

    class Granting(UnityCatalog):
        asked = 0

        def _of_table(self, name):
            self.asked += 1
            return api.Credentials(storage_credentials=left.pop(0) if len(left) > 1 else left[0])

    return Granting("https://localhost", TOKEN, {"endpoint_url": "http://localhost:1", "allow_http": "true"})


def credential(prefix, key, *, lives_ms=3_600_000, **config):
    config = config or {"s3.access-key-id": key, "s3.secret-access-key": "secret", "gcs.oauth-token": None}
    until = int(time.time() * 1000) + lives_ms
    return api.StorageCredential(prefix=prefix, operation="READ_WRITE", expiration_time_ms=until, config=config)


ON_S3 = Entry("main.sales.orders", "s3://bucket/tables/a", managed=True, table_id="x")


def test_the_most_specific_credentials_are_taken():
    wide, narrow = credential("s3://bucket", "wide"), credential("s3://bucket/tables/a/", "narrow")
    other, near = credential("s3://other", "other"), credential("s3://bucket/tables/aa", "near")
    catalog = granted([other, wide, narrow, near], [other, near])
    options, until = catalog.credentials(ON_S3)
    assert (options["aws_access_key_id"], options["endpoint_url"]) == ("narrow", "http://localhost:1")
    assert until == narrow.expiration_time_ms
    assert catalog.credentials(ON_S3) == ({"endpoint_url": "http://localhost:1", "allow_http": "true"}, None)
    assert "secret" not in repr(narrow)


def test_credentials_are_asked_for_again_before_they_expire(monkeypatch):
    catalog = granted([credential("s3://bucket", "one")], [credential("s3://bucket", "two", lives_ms=7_200_000)])
    store = catalog._store(ON_S3)
    first, now = store.inner, time.time()
    assert store.inner is first
    assert catalog.asked == 1
    monkeypatch.setattr(time, "time", lambda: now + 3_600 - 400)
    assert store.inner is first
    monkeypatch.setattr(time, "time", lambda: now + 3_600 - 200)
    assert store.inner is not first
    assert catalog.asked == 2


@pytest.mark.parametrize("renewed_at", range(4))
def test_credentials_are_renewed_while_a_folder_is_pinned(monkeypatch, renewed_at):
    """At whatever look at the clock they are: in the block, and while it begins."""
    catalog = granted([credential("s3://bucket", "one")], [credential("s3://bucket", "two", lives_ms=7_200_000)])
    store = catalog._store(ON_S3)
    first, looks, now = store.inner, itertools.count(), time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3_400 * (next(looks) >= renewed_at))
    with store.pinned("_delta_log") as view:
        assert view.uri == store.uri
        assert [view.inner for _ in range(renewed_at + 1)][-1] is not first
        assert catalog.asked == 2


def test_a_catalog_that_gives_no_credentials_is_an_error_of_the_store(monkeypatch):
    catalog = granted([credential("s3://bucket", "one")])
    store, now = catalog._store(ON_S3), time.time()
    refusal = unity_http.RequestError("no more", status=403, certain=True)

    def refuse(_):
        raise refusal

    monkeypatch.setattr(catalog, "_of_table", refuse)
    monkeypatch.setattr(time, "time", lambda: now + 3_400)
    for call in (
        lambda: store.pinned("_delta_log").__enter__().put("_delta_log/x", b""),
        lambda: store.delete_unchanged([]),
        lambda: store.create_output("x"),
        store.hasty,
    ):
        with pytest.raises(StorageError) as caught:
            call()
        assert caught.value is refusal


def test_a_user_who_may_only_read(catalog, name, table, through):
    forbidden = error_of(403, "PermissionDeniedException")
    asked = []

    def plan(method, path, body):
        asked.append(path)
        return forbidden if path.endswith("operation=READ_WRITE") else None

    own = through(plan)
    assert own._of_table(name).storage_credentials == []
    assert asked[-1].endswith("operation=READ")


# --- a server that dies ---


@pytest.mark.tier("nightly")
def test_a_server_that_is_killed_loses_and_doubles_nothing(tmp_path):
    """Writers go on over three servers, each of which is killed at work; an outcome is known or said to be unknown."""
    done, unknown, refused = [], [], []
    stop = threading.Event()

    def write(url, number):
        with UnityCatalog(url, TOKEN) as own:
            table = own.table("main.sales.orders")
            for row in range(1000 * number, 1000 * number + 1000):
                if stop.is_set():
                    return
                try:
                    append(table, row)
                    done.append(row)
                except errors.CommitOutcomeUnknownError:
                    unknown.append(row)
                except errors.StoreError:
                    refused.append(row)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        try:
            for life in range(3):
                with serving(tmp_path, "--port", port) as served:
                    if life == 0:
                        with UnityCatalog(served.url, TOKEN) as catalog:
                            catalog.create_table("main.sales.orders", SCHEMA)
                        writers = [pool.submit(write, served.url, number) for number in range(3)]
                    begun = len(done)
                    until(lambda b=begun, w=writers: len(done) >= b + 8 or all(one.done() for one in w))
                    served.process.kill()
            with serving(tmp_path, "--port", port):
                begun = len(done)
                until(lambda: len(done) >= begun + 3)
                stop.set()
                for writer in writers:
                    writer.result()
                background.settle()
        finally:
            stop.set()
    with SqlCatalog(f"sqlite:///{tmp_path}/catalog.db") as behind:
        behind.publish("main.sales.orders")
        table = behind.table("main.sales.orders")
        found = ids(table)
        assert len(set(found)) == len(found)
        assert set(done) <= set(found) <= set(done) | set(unknown)
        assert verify(table).sound
