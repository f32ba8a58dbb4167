"""Connections of strangers do not shut out a client with a token, whatever they do and however many they are."""

import contextlib
import http.client
import socket
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from catalog.serving import TOKEN, serving
from refdelta import write_deltalake
from refdelta.catalog import UnityCatalog, listener
from refdelta.transaction import background

SCHEMA = pa.schema({"id": pa.int64()})
CATALOGS = "/catalogs"


@contextlib.contextmanager
def strangers(served, count, sends=b""):
    """So many connections to a server that have sent this, and stay open."""
    place = urlsplit(served.url)
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(count):
            found.append(stack.enter_context(socket.create_connection((place.hostname, place.port), timeout=120)))
            with contextlib.suppress(OSError):
                found[-1].sendall(sends)
        yield found


REQUESTS = {
    "nothing": b"",
    "half a request": b"POST / HTTP/1.1\r\nHost: x\r\nX: ",
    "a wrong token": b"GET /x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer wrong\r\n\r\n",
    "no request": b"\x16\x03\x01\x00\xa5\x01\x00\x00",
}


@pytest.mark.tier("test")
@pytest.mark.sample(test=2)
@pytest.mark.parametrize("files", [None, 256])
@pytest.mark.parametrize("sends", REQUESTS.values(), ids=REQUESTS)
def test_600_connections_of_strangers(tmp_path, files, sends):
    # None of them is closed for being slow.
    before = "from refdelta.catalog import listener; listener.HEADER_SECONDS = 3600.0"
    with serving(tmp_path, files=files, before=before) as served, UnityCatalog(served.url, TOKEN) as catalog:
        table = catalog.create_table("main.sales.orders", SCHEMA)
        with strangers(served, 600, sends):
            for row in range(3):
                assert served.request("GET", CATALOGS)[0] == 200
                write_deltalake(table, pa.table({"id": [row]}, SCHEMA), mode="append")
                with strangers(served, 100, sends):
                    assert catalog.table("main.sales.orders").count() == row + 1
        background.settle()
    assert len((tmp_path / "server.log").read_text()) < 1000


@pytest.mark.tier("test")
def test_a_connection_with_a_token_is_kept(tmp_path):
    with serving(tmp_path, files=256) as served:
        place = urlsplit(served.url)
        known = http.client.HTTPConnection(place.hostname, place.port, timeout=120)
        with contextlib.closing(known):
            for _ in range(4):
                known.request("GET", f"{place.path}{CATALOGS}", headers={"Authorization": f"Bearer {TOKEN}"})
                reply = known.getresponse()
                assert reply.read()
                assert reply.status == 200
                known.auto_open = 0  # a connection that is closed is not opened again
                with strangers(served, 200):
                    pass


@pytest.mark.tier("test")
def test_a_wrong_token_ends_the_connection(tmp_path):
    with serving(tmp_path) as served, strangers(served, 1, REQUESTS["a wrong token"]) as (connection,):
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 401 ")


@contextlib.contextmanager
def listening(most):
    with listener.Listener(socket.AF_INET, most) as found:
        found.bind(("127.0.0.1", 0))
        found.listen()
        found.setblocking(False)
        yield found


class Protocol:
    """What a listener asks of a connection."""

    def __init__(self, accepted, *, known=True, idle=True):
        self.accepted, self.known, self.idle = accepted, known, idle
        self.transport = self

    def get_extra_info(self, _):
        return self.accepted


def ended(connection):
    connection.settimeout(0.05)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False


def test_the_oldest_stranger_goes_first_and_then_the_oldest_that_rests():
    with listening(4) as found, contextlib.ExitStack() as stack:
        clients, accepted = [], []
        for known, idle in ((True, True), (True, False), (False, True), (True, True), (None, None), (None, None)):
            clients.append(stack.enter_context(socket.create_connection(found.getsockname())))
            accepted.append(stack.enter_context(found.accept()[0]))
            if known is not None:
                found.note(Protocol(accepted[-1], known=known, idle=idle))
        assert [ended(one) for one in clients] == [False, False, True, False, True, False]
        found.note(Protocol(accepted[5], known=True, idle=False))
        clients.append(stack.enter_context(socket.create_connection(found.getsockname())))
        accepted.append(stack.enter_context(found.accept()[0]))
        assert ended(clients[0])


def test_where_all_are_at_work_a_new_connection_is_refused():
    with listening(2) as found, contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(socket.create_connection(found.getsockname()))
            accepted = stack.enter_context(found.accept()[0])
            found.note(Protocol(accepted, idle=False))
        late = stack.enter_context(socket.create_connection(found.getsockname()))
        with pytest.raises(BlockingIOError):
            found.accept()
        assert ended(late)


def test_no_descriptor_is_one_line_of_the_log(monkeypatch, caplog):
    def none(_):
        raise OSError(24, "Too many open files")

    with listening(100) as found, contextlib.ExitStack() as stack:
        stack.enter_context(socket.create_connection(found.getsockname()))
        accepted = stack.enter_context(found.accept()[0])
        monkeypatch.setattr(socket.socket, "accept", none)
        monkeypatch.setattr(listener, "_PAUSE", 0)
        for _ in range(1000):
            with pytest.raises(BlockingIOError):
                found.accept()
        monkeypatch.undo()
        assert accepted.recv(1) == b"", "what rests is closed first"
    assert len(caplog.records) == 1
    assert "Too many open files" in caplog.text


def test_the_bound_follows_the_limit_of_open_files(monkeypatch):
    resource = pytest.importorskip("resource")
    for files, most in ((256, 80), (1024, 464), (65536, 512), (resource.RLIM_INFINITY, 512), (64, 8)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        assert listener.most_connections() == most
