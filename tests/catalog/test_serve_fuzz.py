"""Random requests to the server's application: none of them is answered with 5xx, and none changes anything."""

import copy
import json
import uuid
from urllib.parse import quote

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from catalog.asking import Application
from refdelta import write_deltalake
from refdelta.catalog import service
from tiers import examples

SCHEMA = pa.schema({"id": pa.int64()})
NAME = "main.sales.orders"
PATHS = (
    "/delta/v1/catalogs/main/schemas/sales/tables/orders",
    "/delta/v1/catalogs/main/schemas/sales/tables/orders/metrics",
    "/delta/v1/catalogs/main/schemas/sales/tables",
)

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner))


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    with service.open_served(f"sqlite:///{folder}/catalog.db", str(folder / "warehouse"), None) as catalog:
        table = catalog.create_table(NAME, SCHEMA)
        write_deltalake(table, pa.table({"id": [1]}, SCHEMA), mode="append")
        catalog.publish(NAME)
        yield Served(catalog, table)


class Served(Application):
    """The application, called without a network, and a request of each kind that would succeed."""

    def __init__(self, catalog, table):
        self.catalog, self.table = catalog, table
        super().__init__(catalog)
        table_id = table.store.ratifier._entry.table_id
        commit = {"version": 2, "timestamp": 4_000_000_000_000, "file-size": 10, "file-modification-timestamp": 1}
        commit["file-name"] = f"{2:020d}.{uuid.uuid4()}.json"
        updates = [
            {"action": "add-commit", "commit": commit},
            {"action": "set-properties", "updates": {"a": "b"}},
            {"action": "set-domain-metadata", "updates": {"delta.clustering": {"clusteringColumns": [["id"]]}}},
            {"action": "set-protocol", "protocol": {"min-reader-version": 3, "min-writer-version": 7}},
        ]
        requirements = [{"type": "assert-table-uuid", "uuid": table_id}]
        create = {"name": "x", "location": "file:///x", "table-type": "MANAGED", "columns": {}, "properties": {}}
        create |= {"protocol": {"min-reader-version": 3, "min-writer-version": 7}, "last-commit-timestamp-ms": 1}
        histogram = {"sorted-bin-boundaries": [0], "file-counts": [1], "total-bytes": [1, 2]}
        metrics = {"table-id": table_id, "report": {"commit-report": {"file-size-histogram": histogram}}}
        bodies = ({"requirements": requirements, "updates": updates}, metrics, create)
        self.bodies = dict(zip(PATHS, bodies, strict=True))

    def state(self):
        log = self.table.store.inner
        return self.catalog.tables(), self.table.store.ask(), [info.key for info in log.list("_delta_log")]


def places(value, path=()):
    """The paths of all values in a JSON document."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from places(one, (*path, key))


def changed(data, body):
    """The document with a value removed, doubled, or replaced by any other."""
    at = data.draw(st.sampled_from([path for path in places(body) if path]))
    body = copy.deepcopy(body)
    parent = body
    for key in at[:-1]:
        parent = parent[key]
    match data.draw(st.sampled_from(["replace", "remove", "double"])):
        case "replace":
            parent[at[-1]] = data.draw(VALUES)
        case "remove":
            del parent[at[-1]]
        case _ if isinstance(parent, list):
            parent.append(parent[at[-1]])
    return body


@pytest.mark.tier("test")
@examples(400)
@given(data=st.data(), path=st.sampled_from(PATHS))
def test_requests_that_are_nearly_right(served, data, path):
    before = served.state()
    body = changed(data, served.bodies[path])
    status, answer = served.ask("POST", path, json.dumps(body).encode())
    # Metrics may become right, and are not kept.
    assert 400 <= status < 500 or (path.endswith("/metrics") and status == 204), answer
    assert served.state() == before


@examples(200)
@given(
    method=st.sampled_from(["GET", "HEAD", "POST", "DELETE", "PUT"]),
    parts=st.lists(st.text(max_size=8) | st.sampled_from(["catalogs", "main", "tables", "credentials"]), max_size=8),
    body=st.binary(max_size=50),
    query=st.binary(max_size=20),
)
def test_any_requests(served, method, parts, body, query):
    before = served.state()
    status, answer = served.ask(method, "/".join(["/delta/v1", *parts]), body, query)
    assert 400 <= status < 500, answer
    assert served.state() == before


@examples(100)
@given(query=st.dictionaries(st.sampled_from(["catalog_name", "schema_name", "max_results", "page_token"]), st.text()))
def test_any_lists(served, query):
    text = "&".join(f"{key}={quote(value, errors='surrogatepass')}" for key, value in query.items()).encode()
    for path in ("/catalogs", "/schemas", "/tables"):
        status, answer = served.ask("GET", path, query=text)
        assert status == 200 or 400 <= status < 500, answer
