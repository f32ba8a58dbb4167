"""Clients of ``refdelta serve`` whose transactions share versions: each has its own outcome, once.

Tests of catalog.groups, transaction.served.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pyarrow as pa
import pytest
from starlette.requests import Request

from catalog.serving import TOKEN, Proxy, serving
from refdelta import CommitProperties, DeltaTable, observe_commits, verify, write_deltalake
from refdelta.catalog import SqlCatalog, UnityCatalog, delta_api, server, unity
from refdelta.catalog.service import ApiError, DeltaService, open_served
from refdelta.catalog.unity_http import RequestError
from refdelta.errors import (
    CommitOutcomeUnknownError,
    ConcurrentModificationError,
    ConcurrentTransactionException,
    DeltaError,
)
from refdelta.transaction import background
from refdelta.transaction.group import _GroupShell
from waiting import GENEROUS, until

pytestmark = pytest.mark.tier("test")

SCHEMA = pa.schema({"id": pa.int64()})
NAME = "main.sales.orders"
SHARED = CommitProperties(group="intents")
HERE = "/delta/v1/catalogs/main/schemas/sales/tables/orders/transactions"


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)}, SCHEMA)


def ids(table: DeltaTable) -> list[int]:
    return sorted(table.to_pyarrow_table()["id"].to_pylist())


def append(table: DeltaTable, *numbers: int, **options):
    return write_deltalake(table, rows(*numbers), mode="append", **{"commit_properties": SHARED, **options})


class Killed(BaseException):
    """The server's process ends at this moment."""


class Server:
    """The service of a server in this process, which can be killed at an effect of its groups and begins anew."""

    def __init__(self, url: str) -> None:
        self.url, self.kill = url, None
        self.replies: list[delta_api.TransactionReply] = []
        self.starts = 0
        self.start()

    def start(self) -> None:
        self.service, self.starts = DeltaService(open_served(self.url, None, None)), self.starts + 1

    def send(self, ratifier: unity.UnityRatifier, intent: bytes) -> delta_api.TransactionReply:
        """As the endpoint: everything goes through JSON."""
        try:
            reply = self.service.transact(*ratifier.entry.name.split("."), intent, ratifier.entry.table_id)
        except Killed:
            self.start()
            raise RequestError("no answer", status=None, certain=False) from None
        except ApiError as error:
            raise RequestError(str(error), status=error.status, kind=error.kind, certain=True) from error
        except CommitOutcomeUnknownError as error:
            raise RequestError(str(error), status=500, certain=False) from error
        self.replies.append(msgspec.json.decode(msgspec.json.encode(reply), type=delta_api.TransactionReply))
        return self.replies[-1]


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("served")) as served, UnityCatalog(served.url, TOKEN) as catalog:
        yield served, catalog


@pytest.fixture
def table(running):
    """A table of the server, with a name of its own each time."""
    _, catalog = running
    name = f"main.sales.t{time.time_ns()}"
    yield catalog.create_table(name, SCHEMA)
    background.settle()


@pytest.fixture
def near(running, monkeypatch):
    """The transactions of the tests go to a service in this process instead."""
    served, _ = running
    found = Server(served.database)

    def send(ratifier: unity.UnityRatifier, intent: bytes) -> delta_api.TransactionReply:  # a function, to be bound
        return found.send(ratifier, intent)

    monkeypatch.setattr(unity.UnityRatifier, "_send_intent", send)
    monkeypatch.setattr(unity, "pause", lambda *_: None)
    return found


def again(running, table: DeltaTable) -> DeltaTable:
    return running[1].table(table.store.ratifier.entry.name)


def together(running, table: DeltaTable, near: Server, monkeypatch, *works):
    """Let a first append hold the group, until all of these transactions wait for the next version; their results."""
    entered, go_on = threading.Event(), threading.Event()
    perform = _GroupShell.perform

    def held(shell, effect):
        if type(effect).__name__ == "TryCommit" and not entered.is_set():
            entered.set()
            assert go_on.wait(120)
        return perform(shell, effect)

    monkeypatch.setattr(_GroupShell, "perform", held)
    handles = [again(running, table) for _ in works]
    with ThreadPoolExecutor(len(works) + 1) as pool:
        first = pool.submit(append, again(running, table), 1000)
        assert entered.wait(120)
        others = [pool.submit(work, handle) for work, handle in zip(works, handles, strict=True)]
        group = next(held.group for held in near.service._tables.values() if held.group is not None)
        until(lambda: len(group._queue) > len(works))
        go_on.set()
        first.result()
        return [one.exception() or one.result() for one in others]


# --- outcomes ---


def test_transactions_that_wait_for_a_version_share_the_next_one(running, table, near, monkeypatch):
    append(table, 1, 2, 3)
    found = together(
        running,
        table,
        near,
        monkeypatch,
        lambda t: append(t, 4, app_id="shop", app_version=1),
        lambda t: append(t, 5),
        lambda t: append(t, 6),
    )
    assert {one.version for one in found} == {3}
    assert sorted(one.member for one in found) == [0, 1, 2]
    table = again(running, table)
    assert ids(table) == [1, 2, 3, 4, 5, 6, 1000]
    assert len(table.history(1)[0]["members"]) == 3
    assert not verify(table).findings
    assert append(table, 7, app_id="shop", app_version=1).version is None


def test_appends_share_no_version_with_changes_of_rows(running, table, near, monkeypatch):
    append(table, 1, 2, 3)
    remove = [lambda t, n=n: t.delete(f"id = {n}", commit_properties=SHARED) for n in (1, 2)]
    appends = [lambda t, n=n: append(t, n) for n in (4, 5)]
    found = together(running, table, near, monkeypatch, remove[0], appends[0], remove[1], appends[1])
    assert sorted((one.version, one.member) for one in found) == [(3, 0), (3, 1), (4, 0), (4, 1)]
    assert found[0].version == found[2].version
    assert found[1].version == found[3].version
    followed = again(running, table).follow(2, 0, skip_change_commits=True)
    assert sorted(number for change in followed for number in change.rows["id"].to_pylist()) == [4, 5]


def test_a_conflict_has_class_rule_version_and_member(running, table, near, monkeypatch):
    append(table, 1, 2, 3)
    late = again(running, table).begin(commit_properties=SHARED)
    twice = again(running, table).begin(commit_properties=SHARED, app_id="a", app_version=2)
    late.delete("id = 2")
    twice.append(rows(9))
    together(
        running,
        table,
        near,
        monkeypatch,
        lambda t: t.delete("id = 3", commit_properties=SHARED, app_id="a", app_version=1),
        lambda t: t.delete("id = 2", commit_properties=SHARED),
    )
    with pytest.raises(ConcurrentModificationError) as caught:
        late.commit()
    assert near.replies[-1].outcome == "conflict"
    conflict = caught.value.conflict
    members = [one["operation"] for one in again(running, table).history(1)[0]["members"]]
    assert (conflict.version, conflict.winner.version) == (3, 3)
    assert members[conflict.member] == conflict.winner.operation == "DELETE"
    assert conflict.rows == 1
    assert conflict.own.predicate == "id = 2L"
    with pytest.raises(ConcurrentTransactionException) as caught:
        twice.commit()
    assert caught.value.conflict.winner.predicate == "id = 3L"
    assert ids(again(running, table)) == [1, 1000]


def test_the_error_is_the_one_of_a_commit_alone(running, table):
    append(table, 1, 2, 3)
    found = []
    for properties in (SHARED, None):
        late = again(running, table).begin(commit_properties=properties)
        late.delete("id = 2")
        again(running, table).delete("id = 2")
        with pytest.raises(ConcurrentModificationError) as caught:
            late.commit()
        conflict = caught.value.conflict
        text = str(caught.value).partition(" (version")[0]
        same = (conflict.rule, conflict.rows, conflict.advice, conflict.operation, conflict.own)
        found.append((type(caught.value), text, same))
        append(again(running, table), 2)
    assert found[0] == found[1]


def test_a_conflict_that_rows_refute_goes_alone(running, table, near):
    append(table, 10, 20)
    late = again(running, table).begin(commit_properties=SHARED, isolation="Serializable")
    late.delete("id = 15 or id = 20")
    append(again(running, table), 12, 18)  # by its statistics it may have the row
    assert late.commit().version == 3
    assert near.replies[-1].outcome == "alone"
    assert ids(again(running, table)) == [10, 12, 18]


def test_each_transaction_has_one_event(running, table):
    """Also one that the server sends back, and its client commits alone."""
    append(table, 10, 20)
    seen = []
    late = again(running, table).begin(commit_properties=SHARED, isolation="Serializable")
    late.delete("id = 15 or id = 20")
    with observe_commits(seen.append):
        result = append(again(running, table), 12, 18)  # by its statistics it may have the row
        assert late.commit().version == result.version + 1
    first, second = seen
    for event, version in ((first, result.version), (second, result.version + 1)):
        assert (event.outcome, event.version, event.attempts > 0) == ("committed", version, True)
    assert first.effects == {}  # its requests are the server's
    assert second.effects["TryCommit"].count >= 1


def test_changes_of_the_table_go_alone(running, table, near):
    with table.begin(commit_properties=SHARED) as txn:
        txn.set_table_properties({"delta.appendOnly": "false"})
        txn.commit()
    assert again(running, table).version() == 1
    assert not near.replies


def test_a_server_without_the_endpoint_is_not_asked(running, table, monkeypatch):
    _, catalog = running
    known = {name: found - {delta_api.TRANSACTIONS} for name, found in catalog._negotiated.items()}
    monkeypatch.setattr(catalog, "_negotiated", known)
    assert append(table, 1).version == 1
    assert append(table, 2).version == 2


# --- lost replies, and killed servers ---


@pytest.mark.parametrize("fault", ["lose-reply", "lose-request", "twice"])
def test_a_lost_reply_is_settled_by_the_id(running, table, fault):
    served, _ = running
    faults = [fault] if fault == "twice" else [fault] * 2

    def plan(method, path, _body):
        return faults.pop() if path.endswith("/transactions") and faults else None

    name = table.store.ratifier.entry.name
    with Proxy(served.url, plan) as proxy, UnityCatalog(proxy.url, TOKEN) as catalog:
        through = catalog.table(name)
        found = append(through, 1)
        assert not faults
        assert [append(through, 2).version, found.version] == [2, 1]
    assert ids(again(running, table)) == [1, 2]


def test_a_server_that_never_answers_again_is_settled_by_the_log(running, table):
    """The server has committed, and its answers are lost: the client finds its id in the log."""
    served, _ = running

    def plan(method, path, _body):
        return "lose-reply" if path.endswith("/transactions") else None

    name = table.store.ratifier.entry.name
    with Proxy(served.url, plan) as proxy, UnityCatalog(proxy.url, TOKEN) as catalog, pytest.MonkeyPatch.context() as m:
        m.setattr(unity, "pause", lambda *_: None)
        assert append(catalog.table(name), 1).version == 1
    assert ids(again(running, table)) == [1]


def test_while_the_server_may_commit_it_a_failure_is_no_certain_one(running, table, near, monkeypatch):
    """The request is lost on its way, and the client cannot commit either: the files stay, and so does the doubt."""

    def lost(*_):
        raise RequestError("no answer", status=None, certain=False)

    def fails(*_):
        raise RequestError("the server is gone", status=None, certain=True)

    monkeypatch.setattr(unity.UnityRatifier, "_send_intent", lost)
    monkeypatch.setattr(unity.UnityRatifier, "propose", fails)
    before = sum(1 for _ in table.store.inner.list("part-"))
    with pytest.raises(CommitOutcomeUnknownError, match="the server of the catalog may commit it"):
        append(table, 1)
    assert sum(1 for _ in table.store.inner.list("part-")) == before + 1


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("number", range(4))
def test_a_server_that_is_killed_between_two_effects_loses_and_doubles_nothing(
    running, table, near, monkeypatch, number, after
):
    append(table, 1, 2, 3)
    left = [number]
    perform = _GroupShell.perform

    def killed(shell, effect):
        mine = left[0] == 0
        left[0] -= 1
        if mine and not after:
            raise Killed
        reply = perform(shell, effect)
        if mine:
            raise Killed
        return reply

    monkeypatch.setattr(_GroupShell, "perform", killed)
    assert table.delete("id = 2", commit_properties=SHARED).version == 2
    assert near.starts == 2  # the first effects are: the version before, the vectors, the put, the version before
    assert append(table, 4).version == 3
    found = again(running, table)
    assert ids(found) == [1, 3, 4]
    assert found.version() == 3
    assert not verify(found).findings


def test_a_killed_server_loses_and_doubles_nothing(tmp_path):
    """Processes are killed while four clients append: what was acknowledged is there once, all others at most once."""
    stop, acknowledged, doubtful = threading.Event(), [], []
    with serving(tmp_path) as served, UnityCatalog(served.url, TOKEN) as catalog:
        catalog.create_table(NAME, SCHEMA)
        url, port = served.url, served.url.split(":")[2].split("/")[0]

    def client(number: int) -> None:
        with UnityCatalog(url, TOKEN) as catalog:
            value = number * 10_000
            while not stop.is_set():
                value += 1
                try:
                    append(catalog.table(NAME), value)
                    acknowledged.append(value)
                except CommitOutcomeUnknownError:
                    doubtful.append(value)
                except DeltaError:
                    stop.wait(0.05)

    with ThreadPoolExecutor(4) as pool:
        clients = [pool.submit(client, number) for number in range(1, 5)]
        for _ in range(3):
            with serving(tmp_path, "--port", port) as served:
                had = len(acknowledged)
                until(lambda had=had: len(acknowledged) >= had + 8)
                served.process.kill()
        with serving(tmp_path, "--port", port):
            had = len(acknowledged)
            until(lambda: len(acknowledged) > had)
            stop.set()
            for one in clients:
                one.result()
    with SqlCatalog(f"sqlite:///{tmp_path}/catalog.db") as behind:
        found = Counter(ids(behind.table(NAME)))
    assert len(acknowledged) >= 24
    assert set(found.values()) == {1}
    assert set(acknowledged) <= set(found) <= set(acknowledged) | set(doubtful)


def test_a_server_that_is_asked_to_stop_answers_what_it_has_accepted(tmp_path):
    with serving(tmp_path) as served, UnityCatalog(served.url, TOKEN) as catalog:
        table = catalog.create_table(NAME, SCHEMA)
        acknowledged = []

        def client(number: int) -> None:
            for value in range(number * 100, number * 100 + 50):
                try:
                    append(catalog.table(NAME), value)
                    acknowledged.append(value)
                except DeltaError:  # also in doubt: the server closed the connection while a request was on its way
                    return

        with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(4) as pool:
            patch.setattr("refdelta.catalog.unity_http.pause", lambda *_: None)
            patch.setattr(unity, "pause", lambda *_: None)
            clients = [pool.submit(client, number) for number in range(1, 5)]
            until(lambda: len(acknowledged) >= 8)
            served.process.send_signal(signal.SIGTERM)
            for one in clients:
                one.result()
        assert served.process.wait(120) in (0, -signal.SIGTERM)
        del table
    with SqlCatalog(f"sqlite:///{tmp_path}/catalog.db") as behind:
        assert ids(behind.table(NAME)) == sorted(acknowledged)  # so nothing was accepted without an answer


# --- limits ---


def refusal(reply) -> tuple[int, str, str | None]:
    body = msgspec.json.decode(reply.body)
    return reply.status_code, body["error"]["type"], reply.headers.get("Retry-After")


def test_more_transactions_than_the_limit_wait(monkeypatch):
    """The server answers 429 with a time and has done nothing."""
    monkeypatch.setattr(server, "_MOST_TRANSACTIONS", 1)
    go_on, entered = threading.Event(), threading.Event()

    class Slow:
        def transact(self, *_):
            entered.set()
            assert go_on.wait(120)
            return delta_api.TransactionReply(outcome="alone")

    async def receive():
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def run():
        endpoints = server._Endpoints(Slow(), 30)
        names = {"catalog": "a", "schema": "b", "table": "c"}
        headers = [(b"content-length", b"2")]

        def request():
            scope = {"type": "http", "method": "POST", "path": "/", "headers": headers, "query_string": b""}
            return Request({**scope, "path_params": names}, receive)

        first = asyncio.ensure_future(endpoints._transact(request()))
        assert await asyncio.to_thread(entered.wait, GENEROUS)
        second = await endpoints._transact(request())
        go_on.set()
        return second, await first

    second, first = asyncio.run(run())
    assert refusal(second) == (429, delta_api.TOO_MANY, "1")
    assert first.status_code == 200


def test_a_client_waits_as_long_as_it_is_asked_to(running, table, monkeypatch):
    waited, answers = [], [RequestError("busy", status=429, kind=delta_api.TOO_MANY, retry_after=1, certain=True)] * 9
    send = unity.UnityRatifier._send_intent

    def busy(ratifier, intent):
        if answers:
            raise answers.pop()
        return send(ratifier, intent)

    monkeypatch.setattr(unity.UnityRatifier, "_send_intent", busy)
    monkeypatch.setattr(unity, "pause", lambda error, _: waited.append(error.retry_after))
    assert append(table, 1).version == 1
    assert waited == [1] * 9


def test_commits_that_are_not_published_are_published_first(running, table, near, monkeypatch):
    near.service._most = 2
    monkeypatch.setattr("refdelta.transaction.post_commit._publish", lambda *_: None)
    for number in range(5):
        append(again(running, table), number)
    assert ids(again(running, table)) == [0, 1, 2, 3, 4]
    assert [reply.outcome for reply in near.replies] == ["committed"] * 5


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{}", None, 400),
        (b"[[[[", None, 400),
        (b'{"format":2}', None, 400),
        (b" " * (2**20 + 1), None, 400),
        (b"{}", {}, 400),
        (b"{}", {"If-Match": '"00000000-0000-0000-0000-000000000000"'}, 404),
        (b"{}", {"If-Match": "abc"}, 400),
    ],
)
def test_what_is_no_transaction_is_refused(running, table, body, headers, status):
    served, _ = running
    entry = table.store.ratifier.entry
    catalog, schema, name = entry.name.split(".")
    path = f"/delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{name}/transactions"
    given = {"If-Match": f'"{entry.table_id}"'} if headers is None else headers
    if status == 404:
        body = intent_of(table)
    found, _, answer = served.request("POST", path, body, headers=given)
    assert found == status, answer
    assert table.version() == again(running, table).version()


def intent_of(table: DeltaTable) -> bytes:
    """The transaction that a client sends."""
    sent = []

    def keep(_ratifier, intent):
        sent.append(intent)
        raise RequestError("no", status=400, certain=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unity.UnityRatifier, "_send_intent", keep)
        append(table, 1)
    return sent[0]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"readVersion":0,"metadataHash"', b'"readVersion":7,"metadataHash"', "reads version 7, and the latest is"),
        (b"part-", b"../../part-", "readers would refuse"),
    ],
)
def test_a_transaction_that_readers_would_refuse_is_refused(running, table, near, old, new, message):
    wrong = intent_of(table).replace(old, new)
    before = again(running, table).version()
    with pytest.raises((RequestError, DeltaError), match=message):
        near.send(table.store.ratifier, wrong)
    assert again(running, table).version() == before
