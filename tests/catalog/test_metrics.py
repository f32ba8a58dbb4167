"""``GET /health`` and ``GET /metrics`` of ``refdelta serve``.

Tests of catalog.metrics.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import sys
import threading
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from starlette.requests import Request

from catalog.serving import TOKEN, serving
from refdelta import CommitProperties, errors, write_deltalake
from refdelta.catalog import UnityCatalog, delta_api, metrics, server
from refdelta.catalog.service import ApiError, DeltaService, open_served
from refdelta.catalog.service_together import TogetherService
from refdelta.errors import CommitOutcomeUnknownError
from refdelta_storage import StorageError

pytestmark = pytest.mark.tier("test")

FOR_METRICS = "a-token-for-prometheus-0123456789"
SHARED = CommitProperties(group="intents")


def asked(served, path, token=TOKEN, method="GET", **headers):
    """One request at the root of a server: status, media type and text."""
    place = urlsplit(served.url)
    given = {**headers, **({} if token is None else {"Authorization": f"Bearer {token}"})}
    with contextlib.closing(http.client.HTTPConnection(place.hostname, place.port, timeout=120)) as connection:
        connection.request(method, path, headers=given)
        reply = connection.getresponse()
        return reply.status, reply.headers["Content-Type"], reply.read().decode()


def values(text: str) -> dict[str, float]:
    """The samples of a text in Prometheus' format."""
    from prometheus_client.parser import text_string_to_metric_families

    return {
        f"{one.name}{''.join(f' {label}={value}' for label, value in sorted(one.labels.items()))}": one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def append(table, *ids, **options):
    return write_deltalake(table, pa.table({"id": list(ids)}), mode="append", **options)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("metrics")
    tokens = folder / "metrics-tokens"
    tokens.write_text(FOR_METRICS)
    tokens.chmod(0o600)
    with serving(folder, "--max-unpublished", "3", "--metrics-token-file", str(tokens)) as served:
        yield served


def test_the_server_counts_what_it_does(served):
    before = values(asked(served, "/metrics")[2])
    assert before["refdelta_commits_total outcome=conflict"] == 0.0  # there before it happens
    with UnityCatalog(served.url, TOKEN) as catalog:
        table = catalog.create_table("main.secret.orders", pa.schema({"id": pa.int64()}))
        append(table, 1)
        append(catalog.table("main.secret.orders"), 2, commit_properties=SHARED)
        append(catalog.table("main.secret.orders"), 3, commit_properties=SHARED)
        catalog.create_table("main.secret.returns", pa.schema({"id": pa.int64()}))
        with catalog.transaction() as both:
            for name in ("main.secret.orders", "main.secret.returns"):
                both[name].append(pa.table({"id": [4]}))
    status, kind, text = asked(served, "/metrics")
    assert (status, kind.split(";")[0]) == (200, "text/plain")
    after = values(text)

    def more(name):
        return after[name] - before.get(name, 0.0)

    assert more("refdelta_commits_total outcome=committed") == 4
    assert more("refdelta_versions_total") == 5
    assert more("refdelta_ratification_duration_seconds_count") >= 4
    assert (more("refdelta_version_members_count"), more("refdelta_version_members_sum")) == (2, 2)
    for operation, count in {"stage": 2, "create": 2, "transact": 2}.items():
        assert more(f"refdelta_requests_total operation={operation} status=200") == count
        assert more(f"refdelta_request_duration_seconds_count operation={operation}") == count
    # Three versions waited to be published, so it was refused first.
    assert [more(f"refdelta_requests_total operation=ratify status={status}") for status in (429, 200)] == [1, 1]
    assert more("refdelta_commits_total outcome=refused") == 1
    assert more("refdelta_requests_total operation=load status=200") > 0
    assert after["refdelta_requests_in_progress"] == 1  # this one
    assert after["process_resident_memory_bytes"] > 0
    assert not any(word in text for word in ("orders", "returns", "secret", TOKEN, str(served.folder)))


def test_what_is_refused_is_counted_too(served):
    before = values(asked(served, "/metrics")[2])
    place = "/delta/v1/catalogs/main/schemas/secret/tables/none"
    assert served.request("GET", place)[0] == 404
    assert served.request("GET", place, token="wrong-token-of-the-tests")[0] == 401
    assert served.request("POST", f"{place}/transactions", b"{}", headers={"If-Match": "*"})[0] == 400
    assert asked(served, "/nowhere", method="PUT")[0] == 404
    after = values(asked(served, "/metrics")[2])
    for name in (
        "refdelta_requests_total operation=load status=404",
        "refdelta_requests_total operation=other status=401",
        "refdelta_requests_total operation=other status=404",
        "refdelta_requests_total operation=transact status=400",
        "refdelta_commits_total outcome=refused",
    ):
        assert after[name] - before.get(name, 0.0) == 1, name


def test_a_token_of_prometheus_opens_nothing_else(served):
    assert asked(served, "/metrics", FOR_METRICS)[0] == 200
    assert asked(served, "/metrics", None)[0] == 401
    assert asked(served, "/metrics", FOR_METRICS[:-1])[0] == 401
    for path in ("/delta/v1/config", "/catalogs", "/metrics"):
        assert served.request("GET", path, token=FOR_METRICS)[0] == 401
    assert asked(served, "/metrics/", FOR_METRICS)[0] == 401


def test_prometheus_chooses_the_format(served):
    kind = asked(served, "/metrics", Accept="application/openmetrics-text;version=1.0.0,text/plain")[1]
    assert kind.startswith("application/openmetrics-text; version=1.0.0")


def test_health_needs_no_token(served):
    assert asked(served, "/health", None) == (200, "application/json", '{"status":"ok"}')
    assert asked(served, "/health", "a-wrong-token-0123456789")[0] == 200
    assert asked(served, "/health", None, method="HEAD")[0] == 200
    assert asked(served, "/health", None, method="POST")[0] == 405
    assert asked(served, "/healthy", None)[0] == 401


def endpoints(catalog, measured=None):
    return server._Endpoints(TogetherService(catalog), 5.0, measured or metrics.Metrics())


def test_health_says_that_the_database_does_not_answer(tmp_path, monkeypatch):
    """And it is asked once a second, however many ask the server."""
    asks = []

    def check(_):
        asks.append(None)
        if len(asks) > 1:
            raise StorageError("the password SECRET is wrong")

    with open_served(f"sqlite:///{tmp_path}/c.db", None, None) as catalog:
        monkeypatch.setattr(DeltaService, "check", check)
        monkeypatch.setattr(server, "_HEALTH_AGE", 600.0)
        one = endpoints(catalog)

        async def ask():
            first = await asyncio.gather(*(one._health(None) for _ in range(5)))
            one._looked_at -= 600.0
            return first, await asyncio.gather(*(one._health(None) for _ in range(5)))

        first, second = asyncio.run(ask())
        assert {reply.status_code for reply in first} == {200}
        refused = (503, b'{"status":"the database does not answer"}')
        assert {(reply.status_code, reply.body) for reply in second} == {refused}
        assert len(asks) == 2


def test_health_does_not_wait_for_a_database_that_hangs(tmp_path, monkeypatch):
    go_on = threading.Event()
    with open_served(f"sqlite:///{tmp_path}/c.db", None, None) as catalog:
        monkeypatch.setattr(DeltaService, "check", lambda _: go_on.wait(120))
        monkeypatch.setattr(server, "_HEALTH_SECONDS", 0.05)

        async def ask():
            reply = await endpoints(catalog)._health(None)
            go_on.set()
            return reply

        assert asyncio.run(ask()).status_code == 503


def test_the_database_is_asked(tmp_path):
    with open_served(f"sqlite:///{tmp_path}/c.db", None, None) as catalog:
        DeltaService(catalog).check()
        catalog.close()
        (tmp_path / "c.db").write_bytes(b"no database" * 1000)
        with pytest.raises(StorageError):
            DeltaService(catalog).check()


def test_without_the_package_nothing_is_counted_and_metrics_says_why(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    found = metrics.new_metrics()
    assert type(found) is metrics.Metrics
    found.began()
    found.ended("load", "200", 0.1)
    found.commit("committed")
    found.members(2)
    found.ratified(1, 0.1)
    with open_served(f"sqlite:///{tmp_path}/c.db", None, None) as catalog:
        request = Request({"type": "http", "method": "GET", "path": "/metrics", "headers": []})
        reply = asyncio.run(endpoints(catalog, found)._scrape(request))
    assert reply.status_code == 501
    assert "pip install 'refdelta[serve]'" in json.loads(reply.body)["error"]["message"]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ApiError(409, "CommitVersionConflictException", "taken"), "conflict"),
        (ApiError(500, "CommitStateUnknownException", "lost"), "unknown"),
        (ApiError(429, delta_api.TOO_MANY, "later"), "refused"),
        (CommitOutcomeUnknownError("lost", 3, "id"), "unknown"),
        (errors.InvalidArgumentError("no"), "refused"),
        (errors.TableNotFoundError("no"), "refused"),
        (StorageError("down"), "failed"),
        (ZeroDivisionError(), "failed"),
    ],
)
def test_each_end_of_a_commit_has_an_outcome(error, outcome):
    assert server._outcome(error) == outcome
    assert outcome in metrics.OUTCOMES


def test_members_of_a_version_are_counted(served):
    """Several clients at once: the sum of the members is the number of transactions."""
    before = values(asked(served, "/metrics")[2])
    with UnityCatalog(served.url, TOKEN) as catalog:
        catalog.create_table("main.secret.many", pa.schema({"id": pa.int64()}))
        threads = [
            threading.Thread(
                target=append, args=(catalog.table("main.secret.many"), number), kwargs={"commit_properties": SHARED}
            )
            for number in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        versions = catalog.table("main.secret.many").version()
    after = values(asked(served, "/metrics")[2])
    name = "refdelta_version_members"
    assert after[f"{name}_sum"] - before[f"{name}_sum"] == 6
    assert after[f"{name}_count"] - before[f"{name}_count"] == versions
