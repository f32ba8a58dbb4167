"""``refdelta serve`` under hostile requests: each is answered with 4xx in the API's form, and changes nothing.

Tests of catalog.delta_api, catalog.server, catalog.service.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import uuid
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from starlette.requests import Request

from catalog.serving import OTHER, TOKEN, serving
from refdelta import errors, write_deltalake
from refdelta.catalog import SqlCatalog, UnityCatalog, delta_api, server, service
from refdelta.core.log.actions import CommitInfo, DomainMetadata, Protocol
from refdelta.core.log.codec import encode_commit
from refdelta.core.log.paths import commit_key
from refdelta.core.log.timestamps import in_commit_timestamp
from refdelta.transaction import background
from waiting import GENEROUS, until

pytestmark = pytest.mark.tier("test")

SCHEMA = pa.schema({"id": pa.int64()})
HERE = "/delta/v1/catalogs/main/schemas/sales/tables/orders"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    with serving(folder, "--max-unpublished", "4") as served, UnityCatalog(served.url, TOKEN) as catalog:
        table = catalog.create_table("main.sales.orders", SCHEMA)
        write_deltalake(table, pa.table({"id": [1]}, SCHEMA), mode="append")
        background.settle()
        served.table = table
        yield served


@pytest.fixture
def unchanged(served):
    """The test leaves the database and the table's folder as they are."""

    def seen():
        with SqlCatalog(served.database) as behind:
            names = behind.tables()
            ratified = behind.table("main.sales.orders").store.ask()
        return (
            names,
            ratified.latest,
            ratified.commits,
            [info.key for info in served.table.store.inner.list("_delta_log/0")],
        )

    before = seen()
    yield
    assert seen() == before


def refused(served, status, *request, **more):
    found, headers, body = served.request(*request, **more)
    assert found == status, body
    assert headers["content-type"] == "application/json"
    assert body["error"]["code"] == status
    assert body["error"]["message"]
    assert "\n" not in body["error"]["message"]
    assert TOKEN not in json.dumps(body)
    return body["error"]["type"]


def table_id(served):
    return served.table.store.ratifier.entry.table_id


def uuid_is(served):
    return {"type": "assert-table-uuid", "uuid": table_id(served)}


def updating(served, *updates, requirements=None):
    return {"requirements": requirements or [uuid_is(served)], "updates": list(updates)}


def staged(served, actions=None, **changed):
    """A staged file, and the update that would make it version 2, with some fields changed."""
    inner = served.table.store.inner
    timestamp = changed.get("timestamp", in_commit_timestamp(served.table.store.get(commit_key(1)), "") + 1)
    info = CommitInfo({"inCommitTimestamp": timestamp, "operation": "WRITE", "txnId": str(uuid.uuid4())})
    data = encode_commit([info, *(actions or [])])
    name = f"{2:020d}.{uuid.uuid4()}.json"
    inner.put(f"_delta_log/_staged_commits/{name}", data)
    commit = {"version": 2, "timestamp": timestamp, "file-name": name, "file-size": len(data)}
    commit = {**commit, "file-modification-timestamp": timestamp, **changed}
    return {"action": "add-commit", "commit": {key: value for key, value in commit.items() if value is not None}}


# --- tokens ---


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": f"Bearer {TOKEN[:-1]}"},
        {"Authorization": "Bearer # tokens"},
        {"Authorization": "Bearer \xff"},
    ],
)
def test_without_a_right_token_nothing_is_answered(served, headers, unchanged):
    for method, path in (
        ("GET", HERE),
        ("DELETE", HERE),
        ("POST", HERE),
        ("GET", "/delta/v1/config"),
        ("GET", "/none"),
    ):
        assert refused(served, 401, method, path, b"{", token=None, headers=headers) == "NotAuthorizedException"


def test_every_token_of_the_file_opens(served):
    for token in (TOKEN, OTHER):
        assert served.request("GET", HERE, token=token)[0] == 200


def test_tokens_are_read_from_a_file_or_the_environment():
    assert server.read_tokens(f"# one\n\n {TOKEN} \n{OTHER}\n") == [TOKEN, OTHER]
    for wrong in ("", "# none\n", "short", f"{TOKEN} {OTHER}", "ünprintable-as-a-header-value"):
        with pytest.raises(errors.InvalidArgumentError, match="token"):
            server.read_tokens(wrong)


# --- paths and bodies ---


def test_what_the_api_does_not_have(served, unchanged):
    for path in ("/", "/delta/v1", "/delta/v2/config", f"{HERE}/", f"{HERE}/nothing", "/delta/v1/catalogs//schemas"):
        assert refused(served, 404, "GET", path) == "NotFoundException"
    for method, path in (("PUT", HERE), ("PATCH", HERE), ("POST", "/delta/v1/config"), ("GET", f"{HERE}/rename")):
        assert refused(served, 405, method, path) == "BadRequestException"


@pytest.mark.parametrize(
    "name", ["a%2Fb", "..%2f..%2fx", "a%5Cb", "a.b", "..", "a%00b", "a%0Ab", "a%20b", "a" * 256, "%FF", "%E2%80%AE%0d"]
)
def test_names_that_are_none(served, name, unchanged):
    place = "/delta/v1/catalogs/main/schemas/sales/tables"
    assert refused(served, 400, "GET", f"{place}/{name}") == "BadRequestException"
    assert refused(served, 400, "DELETE", f"{place}/{name}") == "BadRequestException"
    assert (
        refused(served, 400, "GET", f"/delta/v1/catalogs/{name}/schemas/sales/tables/orders") == "BadRequestException"
    )


@pytest.mark.parametrize("name", ["a/b", "../x", "a.b", "", " ", "a\x00b", "a" * 256, 3, None, ["a"], "a b", "\ud800"])
def test_names_in_bodies_that_are_none(served, name, unchanged):
    assert refused(served, 400, "POST", f"{HERE}/rename", {"new-name": name})
    assert refused(served, 400, "POST", "/delta/v1/catalogs/main/schemas/sales/staging-tables", {"name": name})


BODIES = {
    "nothing": b"",
    "no JSON": b"{",
    "no object": b"[]",
    "null": b"null",
    "a number": b"1e999",
    "not UTF-8": b'{"updates": "\xff\xfe"}',
    "cut off": b'{"updates":[[[[',
    "an empty request": b"{}",
    "a number beyond all": b'{"requirements": [{"type": "assert-table-uuid", "uuid": "x"}], "updates": [{"action": '
    b'"set-latest-backfilled-version", "latest-published-version": 99999999999999999999}]}',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("path", [HERE, f"{HERE}/rename", f"{HERE}/metrics", f"{HERE.rpartition('/')[0]}"])
def test_malformed_bodies(served, body, path, unchanged):
    assert refused(served, 400, "POST", path, body) in ("BadRequestException", "InvalidParameterValueException")


def test_a_body_in_which_the_stack_of_its_decoder_ends(monkeypatch):
    class StackEnds:
        def decode(self, body):
            raise RecursionError("the stack has an end")

    monkeypatch.setattr(delta_api, "decoder_of", lambda kind: StackEnds())
    with pytest.raises(service.ApiError, match="the body is not JSON: the stack has an end") as caught:
        server._decoded(b"{}", delta_api.UpdateTable)
    assert caught.value.status == 400


def test_huge_bodies_are_not_read(served, unchanged):
    assert refused(served, 413, "POST", HERE, b"x" * (4 * 2**20 + 1)) == "BadRequestException"
    place = urlsplit(served.url)
    # A length that is only claimed, and a body in chunks that never ends.
    for head in (b"Content-Length: 99999999999", b"Transfer-Encoding: chunked"):
        with socket.create_connection((place.hostname, place.port), timeout=120) as connection:
            request = f"POST {place.path}{HERE} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n".encode()
            connection.sendall(request + head + b"\r\n\r\n")
            with contextlib.suppress(OSError):  # the server may close before all is sent
                for _ in range(80):
                    connection.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n" if b"chunked" in head else b"")
            with contextlib.suppress(ConnectionResetError):
                assert b" 413 " in connection.recv(65536).split(b"\r\n")[0]
    assert served.request("GET", HERE)[0] == 200


# --- updates ---


def test_shapes_that_are_refused(served, unchanged):
    backfilled = {"action": "set-latest-backfilled-version", "latest-published-version": 1}
    for body in (
        updating(served, backfilled, requirements=[{"type": "assert-etag", "etag": "x"}]),
        updating(served, backfilled, requirements=[uuid_is(served), uuid_is(served)]),
        updating(served, backfilled, requirements=[{"type": "assert-something"}]),
        updating(served, backfilled, backfilled),
        updating(served, {"action": "drop-everything"}),
        updating(served, {"action": "set-properties", "updates": {"a": "b"}}),
        updating(served, {"action": "set-properties", "updates": {"a": 1}}),
        updating(
            served,
            {"action": "update-metadata-snapshot-version", "last-commit-version": 1, "last-commit-timestamp-ms": 1},
        ),
        updating(
            served,
            staged(served),
            {"action": "set-properties", "updates": {"a": "b"}},
            {"action": "remove-properties", "removals": ["a"]},
        ),
        {"requirements": [], "updates": [backfilled]},
        {"requirements": [uuid_is(served)], "updates": []},
    ):
        assert refused(served, 400, "POST", HERE, body) == "InvalidParameterValueException"


def test_requirements_that_do_not_hold(served, unchanged):
    wrong = [{"type": "assert-table-uuid", "uuid": str(uuid.uuid4())}]
    stale = [uuid_is(served), {"type": "assert-etag", "etag": "stale"}]
    for requirements in (wrong, stale):
        body = updating(served, staged(served), requirements=requirements)
        assert refused(served, 409, "POST", HERE, body) == "UpdateRequirementConflictException"


COMMITS = {
    "no version": {"version": None},
    "version 0": {"version": 0},
    "a negative version": {"version": -1},
    "a version of text": {"version": "2"},
    "too late a version": {"version": 3, "file-name": f"{3:020d}.{uuid.uuid4()}.json"},
    "another version than its file": {"file-name": f"{3:020d}.{uuid.uuid4()}.json"},
    "a file that is missing": {"file-name": f"{2:020d}.{uuid.uuid4()}.json"},
    "a path": {"file-name": "../00000000000000000001.json"},
    "a path within": {"file-name": f"{2:020d}.x/../y.json"},
    "an empty name": {"file-name": ""},
    "another size": {"file-size": 3},
    "no size": {"file-size": 0},
    "an enormous size": {"file-size": 2**62},
    "the past": {"timestamp": 1},
    "a far future": {"timestamp": 2**62},
    "the last moment": {"timestamp": 2**63 - 1},
}


@pytest.mark.parametrize("changed", COMMITS.values(), ids=COMMITS)
def test_commits_that_are_refused(served, changed, unchanged):
    body = updating(served, staged(served, **changed))
    assert refused(served, 400, "POST", HERE, body) == "InvalidParameterValueException"


def test_another_timestamp_than_in_the_file(served, unchanged):
    update = staged(served)
    update["commit"]["timestamp"] += 1
    assert refused(served, 400, "POST", HERE, updating(served, update)) == "InvalidParameterValueException"


def test_files_that_are_no_commits(served, unchanged):
    inner = served.table.store.inner
    for data in (b"nothing", b"{}", b'{"commitInfo":{}}\n', b"\x00" * 100, b'{"add":{}}\n'):
        update = staged(served)
        inner.put(f"_delta_log/_staged_commits/{update['commit']['file-name']}", data)
        update["commit"]["file-size"] = len(data)
        assert refused(served, 400, "POST", HERE, updating(served, update)) == "InvalidParameterValueException"


def test_a_commit_that_takes_the_table_from_its_catalog(served, unchanged):
    for protocol in (
        Protocol(min_reader_version=1, min_writer_version=2),
        Protocol(min_reader_version=3, min_writer_version=7, reader_features=[], writer_features=["inCommitTimestamp"]),
    ):
        body = updating(served, staged(served, [protocol]))
        assert refused(served, 400, "POST", HERE, body) == "InvalidParameterValueException"


def test_changes_that_the_commit_does_not_make(served, unchanged):
    mark = DomainMetadata(domain="delta.rowTracking", configuration='{"rowIdHighWaterMark":7}', removed=False)
    for change in (
        {"action": "set-properties", "updates": {"owner": "me"}},
        {"action": "remove-properties", "removals": ["delta.enableInCommitTimestamps"]},
        {"action": "set-columns", "columns": {"type": "struct", "fields": []}},
        {"action": "set-partition-columns", "partition-columns": ["id"]},
        {"action": "set-table-comment", "comment": "mine"},
        {"action": "set-protocol", "protocol": {"min-reader-version": 1, "min-writer-version": 2}},
        {"action": "set-domain-metadata", "updates": {"delta.rowTracking": {"rowIdHighWaterMark": 8}}},
        {"action": "remove-domain-metadata", "domains": ["delta.rowTracking"]},
    ):
        body = updating(served, staged(served, [mark]), change)
        assert refused(served, 400, "POST", HERE, body) == "InvalidParameterValueException"
    uniform = {**staged(served), "uniform": {"iceberg": {}}}
    assert refused(served, 400, "POST", HERE, updating(served, uniform)) == "InvalidParameterValueException"


@pytest.mark.parametrize("published", [False, True])
def test_a_request_that_is_sent_again_is_nothing_new(tmp_path, published, monkeypatch):
    monkeypatch.setattr(background, "run", lambda *_, **__: True)
    with serving(tmp_path) as served, UnityCatalog(served.url, TOKEN) as catalog:
        served.table = table = catalog.create_table("main.sales.orders", SCHEMA)
        write_deltalake(table, pa.table({"id": [1]}, SCHEMA), mode="append")
        metadata = catalog.load("main.sales.orders").metadata
        requirements = [uuid_is(served), {"type": "assert-etag", "etag": metadata.etag}]
        body = updating(served, staged(served), requirements=requirements)
        first = served.request("POST", HERE, body)
        assert (first[0], first[2]["latest-table-version"]) == (200, 2)
        if published:
            assert catalog.publish("main.sales.orders") == 2
        again = served.request("POST", HERE, body)
        assert (again[0], again[2]["latest-table-version"]) == (200, 2)
        other = updating(served, staged(served), requirements=requirements[:1])
        assert refused(served, 409, "POST", HERE, other) == "CommitVersionConflictException"


def test_a_commit_that_is_not_published_is_not_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr(background, "run", lambda *_, **__: True)
    with serving(tmp_path) as served, UnityCatalog(served.url, TOKEN) as catalog:
        table = catalog.create_table("main.sales.orders", SCHEMA)
        served.table = table
        for row in range(3):
            write_deltalake(table, pa.table({"id": [row]}, SCHEMA), mode="append")
        table.store.publish(1)
        # A file that is there, has the right size, and is not the commit.
        content = table.store.get("_delta_log/00000000000000000002.json")
        other = content.replace(b"WRITE", b"WRONG")
        table.store.inner.put("_delta_log/00000000000000000002.json", other)
        for version, status, kind in [
            (2, 409, "CatalogMismatchException"),
            (3, 409, "CatalogMismatchException"),
            (100, 400, "InvalidParameterValueException"),
        ]:
            backfilled = {"action": "set-latest-backfilled-version", "latest-published-version": version}
            assert refused(served, status, "POST", HERE, updating(served, backfilled)) == kind
        with SqlCatalog(served.database) as behind:
            ratifier = behind._ratifier(behind._entry("main.sales.orders"))
            assert [one.version for one in ratifier.ratified().commits] == [2, 3]
        with pytest.raises(errors.CatalogMismatchError, match="version 2"):
            catalog.table("main.sales.orders").count()
        table.store.inner.put("_delta_log/00000000000000000002.json", content)
        backfilled["latest-published-version"] = 3
        kind = refused(served, 400, "POST", HERE, updating(served, backfilled))
        assert kind == "InvalidParameterValueException"
        assert catalog.table("main.sales.orders").count() == 3
        backfilled["latest-published-version"] = 0
        assert served.request("POST", HERE, updating(served, backfilled))[0] == 200


# --- other requests ---


def test_other_requests_that_are_refused(served, unchanged):
    metrics = {"table-id": table_id(served)}
    histogram = {"sorted-bin-boundaries": [0, 1], "file-counts": [1], "total-bytes": [1, 2]}
    report = {"commit-report": {"file-size-histogram": histogram}}
    for status, *request in (
        (400, "GET", "/delta/v1/config"),
        (400, "GET", "/delta/v1/config?catalog=main&protocol-versions=x"),
        (400, "GET", "/delta/v1/config?catalog=main&protocol-versions=2.3"),
        (400, "GET", "/delta/v1/config?catalog=a/b&protocol-versions=1.0"),
        (400, "GET", f"{HERE}/credentials"),
        (400, "GET", f"{HERE}/credentials?operation=OWN"),
        (404, "GET", f"{HERE}x/credentials?operation=READ"),
        (404, "GET", f"/delta/v1/staging-tables/{table_id(served)}/credentials"),
        (404, "GET", "/delta/v1/staging-tables/x/credentials"),
        (404, "GET", f"{HERE}x"),
        (404, "DELETE", f"{HERE}x"),
        (404, "POST", f"{HERE}x", updating(served, staged(served))),
        (404, "POST", f"{HERE}x/rename", {"new-name": "y"}),
        (400, "POST", f"{HERE}/metrics", {**metrics, "table-id": "x"}),
        (400, "POST", f"{HERE}/metrics", {**metrics, "report": report}),
        (400, "GET", "/tables?catalog_name=main&schema_name=sales&max_results=-1"),
        (400, "GET", "/tables?catalog_name=main&schema_name=a%2Fb"),
    ):
        assert refused(served, status, *request)
    assert served.request("HEAD", f"{HERE}x")[0] == 404
    assert served.request("HEAD", HERE)[0] == 204
    assert served.request("POST", f"{HERE}/metrics", metrics)[0] == 204


def creation(staging, **changed):
    """A request for a table at a staging location, and the files there."""
    protocol = {
        "min-reader-version": 3,
        "min-writer-version": 7,
        "reader-features": ["catalogManaged", "vacuumProtocolCheck"],
        "writer-features": ["catalogManaged", "inCommitTimestamp", "vacuumProtocolCheck"],
    }
    properties = {"delta.enableInCommitTimestamps": "true", "io.unitycatalog.tableId": staging["table-id"]}
    columns = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
    request = {"name": "new", "location": staging["location"], "table-type": "MANAGED", "columns": columns}
    request |= {"protocol": protocol, "properties": properties, "last-commit-timestamp-ms": 5, "partition-columns": []}
    return {**request, **changed}


def version_zero(request, *, properties=None):
    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(request["columns"]),
        "partitionColumns": [],
        "configuration": request["properties"] if properties is None else properties,
    }
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": request["protocol"]["reader-features"],
        "writerFeatures": request["protocol"]["writer-features"],
    }
    info = {"inCommitTimestamp": 5, "operation": "CREATE TABLE", "txnId": "x"}
    lines = ({"commitInfo": info}, {"protocol": protocol}, {"metaData": metadata})
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def test_creations_that_are_refused(served, tmp_path, unchanged):
    place = "/delta/v1/catalogs/main/schemas/sales"
    status, _, staging = served.request("POST", f"{place}/staging-tables", {"name": "new"})
    assert (status, staging["storage-credentials"]) == (200, [])
    good = creation(staging)
    log = server.Path(urlsplit(staging["location"]).path) / "_delta_log"
    assert "version 0" in served.request("POST", f"{place}/tables", good)[2]["error"]["message"]
    log.mkdir(parents=True)
    zero = log / f"{0:020d}.json"
    zero.write_bytes(version_zero(good))
    other = {**good["protocol"], "writer-features": [*good["protocol"]["writer-features"], "rowTracking"]}
    for status, changed in (
        (400, {"table-type": "EXTERNAL"}),
        (400, {"table-type": "VIEW"}),
        (400, {"location": "file:///etc"}),
        (400, {"properties": {}}),
        (404, {"properties": {"io.unitycatalog.tableId": str(uuid.uuid4())}}),
        (404, {"properties": {"io.unitycatalog.tableId": table_id(served)}}),
        (400, {"properties": {**good["properties"], "owner": "me"}}),
        (400, {"columns": {"type": "struct", "fields": []}}),
        (400, {"partition-columns": ["id"]}),
        (400, {"protocol": other}),
        (400, {"last-commit-timestamp-ms": 6}),
        (400, {"uniform": {"iceberg": {}}}),
        (400, {"name": "a/b"}),
        (409, {"name": "orders"}),
    ):
        assert refused(served, status, "POST", f"{place}/tables", {**good, **changed})
    for wrong in (b"nothing", version_zero(good, properties={}), version_zero(creation(staging, protocol={
            **good["protocol"], "reader-features": [], "writer-features": ["inCommitTimestamp"]}))):  # fmt: skip
        zero.write_bytes(wrong)
        assert refused(served, 400, "POST", f"{place}/tables", good) == "InvalidParameterValueException"
    assert "main.sales.new" not in {one["name"] for one in served.request("GET", "/catalogs")[2]["catalogs"]}


def test_a_creation_by_hand(served):
    place = "/delta/v1/catalogs/main/schemas/by_hand"
    _, _, staging = served.request("POST", f"{place}/staging-tables", {"name": "new"})
    request = creation(staging)
    log = server.Path(urlsplit(staging["location"]).path) / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_bytes(version_zero(request))
    path = f"/delta/v1/staging-tables/{staging['table-id']}/credentials"
    assert served.request("GET", path)[2] == {"storage-credentials": []}
    status, _, found = served.request("POST", f"{place}/tables", request)
    assert (status, found["latest-table-version"], found["commits"]) == (200, 0, [])
    again, _, same = served.request("POST", f"{place}/tables", request)
    assert (again, same) == (200, found), "a creation that is sent twice is one"
    other = {**request, "name": "other"}
    assert refused(served, 404, "POST", f"{place}/tables", other) == "NoSuchTableException"
    assert refused(served, 404, "GET", path) == "NoSuchTableException"
    with UnityCatalog(served.url, TOKEN) as catalog:
        write_deltalake(catalog.table("main.by_hand.new"), pa.table({"id": [1]}, SCHEMA), mode="append")
        assert catalog.table("main.by_hand.new").count() == 1
        assert "by_hand" in [one["name"] for one in served.request("GET", "/schemas?catalog_name=main")[2]["schemas"]]
        background.settle()
        catalog.drop_table("main.by_hand.new")


def test_lists_have_pages(served, tmp_path):
    with SqlCatalog(served.database) as behind:
        for number in range(3):
            write_deltalake(tmp_path / str(number), pa.table({"id": [1]}))
            behind.register_table(f"listed.s.t{number}", tmp_path / str(number))
    query = "/tables?catalog_name=listed&schema_name=s&max_results=2"
    _, _, first = served.request("GET", query)
    _, _, second = served.request("GET", f"{query}&page_token={first['next_page_token']}")
    names = [[one["name"] for one in page["tables"]] for page in (first, second)]
    assert names == [["t0", "t1"], ["t2"]]
    assert second["next_page_token"] is None
    with UnityCatalog(served.url, TOKEN) as catalog:
        assert catalog.tables("listed") == ["listed.s.t0", "listed.s.t1", "listed.s.t2"]


# --- credentials ---


def test_credentials_are_given_only_if_that_is_asked_for(tmp_path):
    options = {"AWS_ACCESS_KEY_ID": "AKIAxxxxxxxxxxxxxxxx", "aws_secret_access_key": "SECRET-of-s3", "region": "x"}
    for vend in (False, True):
        with service.open_served(f"sqlite:///{tmp_path}/c.db", "s3://bucket/tables", options) as catalog:
            found = service.DeltaService(catalog, vend=vend)._catalog.vended() if vend else {}
            assert found == (
                {"s3.access-key-id": "AKIAxxxxxxxxxxxxxxxx", "s3.secret-access-key": "SECRET-of-s3"} if vend else {}
            )


def test_credentials_come_from_options_the_environment_or_a_file(tmp_path, monkeypatch):
    url, options = f"sqlite:///{tmp_path}/c.db", {"aws_access_key_id": "OPTION"}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "VARIABLE")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "SESSION")
    monkeypatch.setenv("KEY", "SOMETHING ELSE")
    with service.open_served(url, None, options) as catalog:
        assert catalog.vended() == {"s3.access-key-id": "OPTION"}, "not with the session of another key"
    with service.open_served(url, None, None) as catalog:
        assert catalog.vended() == {"s3.access-key-id": "VARIABLE", "s3.session-token": "SESSION"}
        catalog.keys = tmp_path / "keys"
        for key in ("FIRST", "SECOND"):
            catalog.keys.write_text(f"# of clients\naws_access_key_id={key}\nAWS_SECRET_ACCESS_KEY=a=b\n")
            assert catalog.vended() == {"s3.access-key-id": key, "s3.secret-access-key": "a=b"}
    for wrong in ("", "SECRET", "secret of mine=SECRET"):
        (tmp_path / "keys").write_text(wrong)
        with pytest.raises(errors.InvalidArgumentError, match="has none of the keys") as caught:
            service.read_keys(tmp_path / "keys")
        assert "SECRET" not in str(caught.value)
    with pytest.raises(errors.InvalidArgumentError, match="cannot read the keys"):
        service.read_keys(tmp_path / "none")


def test_vended_keys_of_a_file_reach_the_client(tmp_path):
    (tmp_path / "keys").write_text("azure_storage_sas_token=SAS\n")
    with serving(tmp_path, "--vended-keys", str(tmp_path / "keys")) as served:
        staging = served.request("POST", "/delta/v1/catalogs/main/schemas/s/staging-tables", {"name": "new"})[2]
        assert [one["config"] for one in staging["storage-credentials"]] == [{"azure.sas-token": "SAS"}]
    assert "other users of this machine can open" in (tmp_path / "server.log").read_text()


# --- memory ---


def test_bodies_have_a_bound_together(tmp_path):
    with service.open_served(f"sqlite:///{tmp_path}/c.db", None, None) as catalog:
        endpoints = server._Endpoints(service.DeltaService(catalog), 3600)
        go_on = threading.Event()
        late = waiting(endpoints, go_on, server._BODIES_HELD // server._LARGEST_BODY)
        kinds = [json.loads(reply.body)["error"]["type"] for reply in late]
        assert set(kinds) == {"CommitStateUnknownException"}
        (refused,) = waiting(endpoints, go_on, 1)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert json.loads(refused.body)["error"]["type"] == "ServiceUnavailableException"
        go_on.set()
        # Given back when the work is done, and not before.
        until(lambda: endpoints._bodies._left == server._BODIES_HELD)


class Leaping(asyncio.SelectorEventLoop):
    """An event loop whose clock leaps, so that its time-outs are over."""

    leapt = 0.0

    def time(self):
        return super().time() + self.leapt

    def leap(self):
        """Let an hour pass. May be called by any thread."""
        self.call_soon_threadsafe(lambda: setattr(self, "leapt", self.leapt + 3600))


def waiting(endpoints, go_on, count):
    """The replies to so many requests without a length, each of which is at work until an event. Their time is over
    when all of them are at work: what has not begun would be given up, and its bytes would be free.
    """
    at_work = []

    def work(_):
        at_work.append(1)
        if len(at_work) == count:
            loop.leap()
        go_on.wait(GENEROUS)

    async def ask():
        return await asyncio.gather(*(request() for _ in range(count)))

    async def receive():
        return {"type": "http.request", "body": b'{"name": "x"}', "more_body": False}

    def request():
        scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "query_string": b"", "path_params": {}}
        return endpoints._with_body(Request(scope, receive), delta_api.CreateStagingTable, work)

    with asyncio.Runner(loop_factory=Leaping) as runner:
        loop = runner.get_loop()
        return runner.run(ask())


def test_staged_commits_have_a_bound_together(served, monkeypatch):
    budget = service.HeldBytes(100, "commits")
    with budget.taken(60):
        with pytest.raises(service.ApiError, match="60 bytes more of commits") as caught, budget.taken(60):
            pass
        assert (caught.value.status, caught.value.retry_after) == (503, 1)
        with budget.taken(40):
            pass
    with budget.taken(100):
        pass


def test_failures_are_answered_without_their_reasons(tmp_path, caplog):
    """The log has the reason, without credentials; the answer has neither."""
    with service.open_served(f"sqlite:///{tmp_path}/c.db", None, None) as catalog:
        app = server.make_app(catalog, [TOKEN])

        async def ask(path, method="GET"):
            sent = []

            async def receive():
                return {"type": "http.request", "body": b"", "more_body": False}

            async def send(message):
                sent.append(message)

            headers = [(b"authorization", f"Bearer {TOKEN}".encode())]
            scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b""}
            await app({**scope, "headers": headers, "http_version": "1.1", "root_path": ""}, receive, send)
            return sent[0]["status"], sent[-1]["body"].decode()

        def fails(error):
            def call(*_, **__):
                raise error

            return call

        path = f"/api/2.1/unity-catalog{HERE}"
        for error in (ValueError(f"password=SECRET {TOKEN}"), errors.StoreError("https://me:SECRET@host failed")):
            catalog.row = fails(error)
            status, body = asyncio.run(ask(path))
            assert (status, json.loads(body)["error"]["type"]) == (500, "InternalServerErrorException")
            assert "SECRET" not in body + caplog.text
            assert TOKEN not in body + caplog.text
        assert "failed" in caplog.text


def test_a_request_that_takes_too_long_is_answered(tmp_path):
    with service.open_served(f"sqlite:///{tmp_path}/c.db", None, None) as catalog:
        endpoints = server._Endpoints(service.DeltaService(catalog), 3600)
        go_on = threading.Event()

        def work():
            loop.leap()
            go_on.wait(GENEROUS)

        async def ask():
            reply = await endpoints._answer(work, "CommitStateUnknownException")
            go_on.set()
            return reply

        with asyncio.Runner(loop_factory=Leaping) as runner:
            loop = runner.get_loop()
            reply = runner.run(ask())
        assert (reply.status_code, json.loads(reply.body)["error"]["type"]) == (500, "CommitStateUnknownException")


# --- the process ---


def test_it_ends_when_it_is_asked_to_and_shows_nothing(tmp_path):
    with serving(tmp_path) as served:
        assert served.request("GET", "/catalogs")[0] == 200
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(120) in (0, -signal.SIGTERM)
    assert (tmp_path / "server.log").read_text() == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--catalog", "nonsense"], "not the URL of a database"),
        ([], "Missing option '--catalog'"),
        (["--catalog", "sqlite:///{}/c.db"], "the server needs tokens"),
        (["--catalog", "sqlite:///{}/c.db", "--token-file", "{}/none"], "No such file or directory"),
        (["--catalog", "sqlite:///{}/c.db", "--certificate", "{}/tokens"], "belong together"),
        (["--catalog", "sqlite:///{}/c.db", "--vended-keys", "{}/tokens"], "has none of the keys"),
        (["--catalog", "sqlite:///{}/c.db", "--host", "192.0.2.1", "--port", "0"], "cannot listen at 192.0.2.1"),
    ],
)
def test_wrong_arguments(tmp_path, capsys, monkeypatch, arguments, message):
    from refdelta.cli import main

    (tmp_path / "tokens").write_text(TOKEN)
    if not message.startswith("the server needs"):
        monkeypatch.setenv("REFDELTA_TOKENS", TOKEN)
    assert main(["serve", *(one.format(tmp_path) for one in arguments)]) == 1
    assert message in capsys.readouterr().err


def test_what_others_can_see_is_a_warning(tmp_path):
    from refdelta.cli.catalogs import _warnings

    tokens, key = tmp_path / "tokens", tmp_path / "key.pem"
    for file, mode in ((tokens, 0o640), (key, 0o600)):
        file.write_text("")
        file.chmod(mode)
    assert list(_warnings("127.0.0.1", False, [key, None])) == []
    assert list(_warnings("localhost", False, [])) == list(_warnings("::1", False, [])) == []
    assert list(_warnings("0.0.0.0", True, [])) == []
    for host in ("0.0.0.0", "::", "192.168.1.7", "example.org"):
        (warning,) = _warnings(host, False, [key])
        assert warning.startswith(f"tokens go unencrypted to {host}")
    (warning,) = _warnings("127.0.0.1", False, [tokens, key])
    assert warning == f"other users of this machine can open {tokens}: chmod 600 {tokens}"


def test_slow_clients_are_cut_off(tmp_path):
    code = (
        "from refdelta.catalog import listener, server; listener.HEADER_SECONDS = server._BODY_SECONDS = 0.2\n"
        "from refdelta.cli import main; raise SystemExit(main())"
    )
    command = [sys.executable, "-c", code, "serve", "--catalog", f"sqlite:///{tmp_path}/c.db", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "REFDELTA_TOKENS": TOKEN})
    try:
        place = urlsplit(process.stdout.readline().split()[-1])
        head = f"POST {place.path}{HERE} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
        for sent, wanted in (("", b""), (head, b""), (f"{head}Content-Length: 10\r\n\r\n12", b"408")):
            with socket.create_connection((place.hostname, place.port), timeout=120) as connection:
                connection.sendall(sent.encode())
                assert wanted in connection.recv(65536)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_replies_do_not_wait_for_acknowledgements():
    """Accepted connections inherit the option; asyncio sets it for other kinds of sockets only."""
    with server.listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()[:2]):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
