"""What reaches the servers: how many requests each operation is, what is sent again, and what is told when it fails.

Tests of refdelta_storage.azure, refdelta_storage.gcs, refdelta_storage.remote, refdelta_storage.s3.
"""

import threading
import traceback
from collections import Counter

import pytest

from refdelta_storage import (
    Committed,
    CountingStore,
    Exists,
    ObjectNotFoundError,
    StorageError,
    Unknown,
    clients,
    open_store,
    remote,
)
from servers.proxies import ServerProxy
from servers.running import AZURE_KEY, S3_SECRET

IN_PARTS = ["s3", "azure", "gcs", "s3 by obstore", "azure by obstore"]
"""fake-gcs-server has no uploads in parts by the XML interface, which obstore speaks."""


class Network:
    """A server behind a proxy whose next replies may be decided: ``network.next("503-before")``."""

    def __init__(self, server, **options):
        self.faults = []
        self.options = options
        self.proxy = ServerProxy(server, self.plan)

    def plan(self, seen):
        return self.faults.pop(0) if self.faults else None

    def next(self, *faults):
        self.faults[:] = faults
        self.proxy.reset()

    def store(self, **options):
        place = self.proxy.place()
        return open_store(place.uri, {**place.options, "put_if_absent": "true", **self.options, **options})

    def asked(self, call):
        """The requests of a call: how many of each method. Those that a busy server let down are sent again."""
        self.proxy.reset()
        call()
        return Counter(seen.method for seen in self.proxy.seen if 0 < seen.status < 500)


@pytest.fixture(scope="module", params=[*IN_PARTS, "gcs by obstore"])
def service(request):
    name, _, client = request.param.partition(" by ")
    network = Network(request.getfixturevalue(f"{name}_server"), **({"client": client} if client else {}))
    network.name = name
    with network.proxy:
        yield network


@pytest.fixture
def network(service):
    service.next()
    yield service
    service.next()


class TestRequests:
    def test_opening_asks_nothing(self, network):
        assert network.asked(network.store) == {}

    def test_a_write_is_one_request(self, network):
        store = network.store()
        outcomes = []
        assert network.asked(lambda: outcomes.append(store.put_if_absent("a", b"1"))) == {"PUT": 1}
        assert network.asked(lambda: outcomes.append(store.put_if_absent("a", b"2"))) == {"PUT": 1}
        assert outcomes == [Committed(), Exists()]
        assert network.asked(lambda: store.put("b", b"1")) == {"PUT": 1}

        def stream():
            with store.open_output("p=1/c") as output:
                output.write(b"x" * 3_000_000)

        assert network.asked(stream) == {"PUT": 1}
        assert all(seen.conditional == (seen.key.endswith("/a")) for seen in network.proxy.seen)

    @pytest.mark.parametrize("service", IN_PARTS, indirect=True)
    def test_a_large_output_goes_in_parts(self, network, monkeypatch):
        monkeypatch.setattr(remote, "PART", 5 << 20)
        store, data = network.store(), bytes(range(256)) * (12 << 12)

        def stream():
            with store.open_output("large") as output:
                output.write(data)

        expected = {
            "s3": {"POST": 1, "PART": 3, "FINISH": 1},
            "azure": {"PART": 3, "FINISH": 1},
            "gcs": {"POST": 1, "PART": 2, "FINISH": 1},  # the last part ends the upload
        }
        assert network.asked(stream) == expected[network.name]
        assert store.get("large") == data

    @pytest.mark.parametrize("service", IN_PARTS, indirect=True)
    def test_a_large_output_that_fails_leaves_nothing(self, network, monkeypatch):
        monkeypatch.setattr(remote, "PART", 5 << 20)
        store = network.store(max_retries="0")

        def stream():
            with store.open_output("large") as output:
                output.write(bytes(12 << 20))
                network.next(*([] if network.name == "azure" else [None]), "503-before")

        with pytest.raises(StorageError, match="cannot write 'large'"):
            stream()
        assert list(store.list()) == []
        if network.name == "s3":
            assert Counter(seen.method for seen in network.proxy.seen)["DELETE"] == 1

    def test_a_read_is_one_request(self, network):
        store = network.store()
        store.put("a", b"0123456789")
        seen = network.proxy
        assert network.asked(lambda: store.get("a")) == {"GET": 1}
        assert network.asked(lambda: store.get_range("a", 2, 3)) == {"GET": 1}
        assert "bytes=2-4" in [one.range for one in seen.seen]
        assert network.asked(lambda: store.get_range("a", 50, 3)) == {"GET": 1}
        assert network.asked(lambda: store.get_ranges("a", [(0, 2), (4, 2), (7, 0)])) == {"GET": 2}
        assert network.asked(lambda: store.get_many(["a", "a", "a"])) == {"GET": 3}
        assert network.asked(lambda: store.head("a")) == {"HEAD": 1}
        for call in (store.get, store.head, lambda key: store.get_range(key, 0, 5)):

            def find_out(call=call):
                with pytest.raises(ObjectNotFoundError):
                    call("missing")

            assert network.asked(find_out).total() == 1

    def test_a_stream_of_known_size_asks_when_it_is_read(self, network):
        store = network.store()
        store.put("a", bytes(1000))
        streams = []
        assert network.asked(lambda: streams.append(store.open_input("a", 1000))) == {}
        assert network.asked(lambda: (streams[0].read(4), streams[0].seek(-8, 2), streams[0].read())) == {"GET": 1}
        assert network.asked(lambda: streams.append(store.open_input("a"))) == {"HEAD": 1}
        missing = []
        assert network.asked(lambda: missing.append(store.open_input("gone", 10))) == {}
        with pytest.raises(ObjectNotFoundError, match="gone"):
            missing[0].read(1)

    def test_reads_that_belong_together_are_of_one_content(self, network):
        store = network.store()
        store.put("a", b"0123456789")
        store.put("b", b"0123456789")
        view = CountingStore(store).steady()
        assert view.get_ranges("a", [(8, 2), (0, 2)]) == [b"89", b"01"]
        assert view.get("b") == b"0123456789"
        store.put("a", b"abcdefghij")
        for read in (lambda: view.get_range("a", 0, 2), lambda: view.get("a"), lambda: view.open_input("a", 10).read()):
            with pytest.raises(StorageError, match=r"'a' in .* was replaced while it was read"):
                read()
        assert view.get_range("b", 0, 2) == b"01"
        assert store.get_range("a", 0, 2) == store.steady().get_range("a", 0, 2) == b"ab"

    def test_a_listing_is_a_request_a_page(self, network, monkeypatch):
        store = network.store()
        for number in range(10):
            store.put(f"log/{number}", b"")
        monkeypatch.setattr(type(store), "page", 4)
        pages = 1 if network.name == "azure" and network.options else 3  # obstore has the pages of Azure as one
        assert network.asked(lambda: list(store.list("log/"))) == {"LIST": pages}
        first, tail = (pages, pages) if network.name == "azure" else (1, 1)
        assert network.asked(lambda: next(store.list("log/"))) == {"LIST": first}
        assert network.asked(lambda: list(store.list("log/", after="log/6"))) == {"LIST": tail}
        assert network.asked(lambda: list(store.list("log/", after="log/9"))) == {"LIST": first if tail == 1 else tail}
        assert network.asked(lambda: list(store.list("log/9"))) == {"LIST": 1}

    def test_deleting_is_a_request_for_many(self, network):
        store = network.store()
        keys = [f"d/{number}" for number in range(300)]
        for key in keys[:3]:
            store.put(key, b"")
        expected = {"s3": {"DELETE-MANY": 1}, "azure": {"DELETE-MANY": 2}, "gcs": {"DELETE": 300}}
        if network.options:  # obstore has one at a time where one of many is missing on Azure
            expected = {"s3": {"DELETE-MANY": 2}, "azure": {"DELETE-MANY": 302}, "gcs": {"DELETE": 300}}
        else:
            assert network.asked(lambda: store.delete(keys[:1])) == {"DELETE": 1}
        assert network.asked(lambda: store.delete(keys)) == expected[network.name]
        assert network.asked(lambda: store.delete([])) == {}
        assert list(store.list()) == []

    def test_the_probe_is_thirteen_requests_before_the_first_write(self, network):
        from refdelta_storage import probe

        probe._verdicts.found.clear()
        places = [network.proxy.place() for _ in range(2)]
        stores = [open_store(place.uri, place.options) for place in places]
        first = {"PUT": 11, "GET": 2, "DELETE-MANY": 1} if network.name == "s3" else {"PUT": 1}
        assert network.asked(lambda: stores[0].put("a", b"")) == first
        assert network.asked(lambda: stores[0].put("a", b"")) == {"PUT": 1}
        assert network.asked(lambda: stores[1].put("a", b"")) == {"PUT": 1}

    def test_the_probe_has_patience_with_a_bad_network(self, network):
        from refdelta_storage.probe import probe

        store = network.store()
        # A reply is lost, a put fails, and then of those at once one is dropped and one fails.
        network.next("drop-after", "503-before", None, None, None, None, "drop-before", None, "500-after")
        assert probe(store, 1) is None
        assert not network.faults
        assert list(store.list()) == []


class TestSendingAgain:
    @pytest.mark.sample(test=6)
    @pytest.mark.parametrize(
        "fault", ["503-before", "busy-after", "500-after", "drop-before", "cut-after", "timeout-before"]
    )
    def test_what_may_be_repeated_is(self, network, fault, monkeypatch):
        monkeypatch.setattr(remote, "FIRST_PAUSE", 0.01)
        store = network.store()
        store.put("a", b"0123456789" * 100)
        for call, expected in (
            (lambda: store.get("a"), b"0123456789" * 100),
            (lambda: store.get_many(["a", "a"]), [b"0123456789" * 100] * 2),
            (lambda: store.head("a").size, 1000),
            (lambda: [info.key for info in store.list()], ["a"]),
            (lambda: store.put("a", b"0123456789" * 100), None),
            (lambda: store.delete(["b"]), None),
        ):
            if fault == "timeout-before" and isinstance(expected, int):
                continue  # an answer to HEAD has no body, so no code
            if fault == "cut-after" and network.name == "gcs" and network.options and expected is None:
                continue  # of an answer to a write, obstore needs the headers alone
            network.next(fault, fault)
            assert call() == expected
            assert not network.faults
            assert len(network.proxy.seen) >= 3

    @pytest.mark.parametrize("fault", ["503-before", "busy-after", "500-after", "409-before", "409-after"])
    def test_a_conditional_put_is_not(self, network, fault):
        store = network.store()
        network.next(fault)
        assert isinstance(store.put_if_absent("a", b"ours"), Unknown)
        assert [seen.method for seen in network.proxy.seen] == ["PUT"]
        assert [info.key for info in store.list()] == (["a"] if fault.endswith("after") else [])

    def test_a_conditional_put_whose_reply_is_lost_is_never_created_by_another(self, network):
        store = network.store()
        network.next("drop-after")
        assert isinstance(store.put_if_absent("a", b"ours"), Unknown | Exists)
        assert store.get("a") == b"ours"

    def test_it_ends(self, network):
        store = network.store(max_retries="2")
        network.next(*["503-before"] * 50)
        with pytest.raises(StorageError, match="cannot read 'a'"):
            store.get("a")
        assert len(network.proxy.seen) == 3
        network.next(*["500-before"] * 50)
        eager = network.store(retry_timeout="0s")
        with pytest.raises(StorageError, match="cannot read 'a'"):
            eager.get("a")
        assert len(network.proxy.seen) == 1

    def test_a_server_that_does_not_answer_is_waited_for_as_long_as_was_said(self, network):
        store = network.store(timeout="200ms", max_retries="0")
        network.next("hang-before")
        assert isinstance(store.put_if_absent("a", b""), Unknown)
        network.next("hang-before")
        with pytest.raises(StorageError, match="cannot read 'a'"):
            store.get("a")

    def test_a_server_that_is_gone(self, network):
        options = {"endpoint_url": "http://127.0.0.1:9"}
        if network.name == "azure":
            options = {"connection_string": network.proxy.server.connection_string("http://127.0.0.1:9")}
        store = network.store(max_retries="1", **options)
        assert isinstance(store.put_if_absent("a", b""), Unknown)
        with pytest.raises(StorageError, match="cannot list '' in"):
            list(store.list())


@pytest.mark.parametrize("service", ["s3", "azure"], indirect=True)  # fake-gcs-server lets anybody in
class TestRefusals:
    """What is certain is an error at once, with one line of text and no secret in it."""

    def wrong(self, network):
        secret = "d3Jvbmctc2VjcmV0LW9mLW5vYm9keQ=="
        if network.name == "s3":
            return network.store(secret=secret), secret
        good = network.proxy.server.connection_string(network.proxy.endpoint)
        return network.store(connection_string=good.replace(AZURE_KEY, secret)), secret

    def test_credentials_that_are_wrong(self, network):
        store, secret = self.wrong(network)
        for call in (
            lambda: store.put_if_absent("a", b""),
            lambda: store.put("a", b""),
            lambda: store.get("a"),
            lambda: store.get_many(["a", "b"]),
            lambda: store.head("a"),
            lambda: list(store.list()),
            lambda: store.delete(["a"]),
            lambda: store.delete(["a", "b"]),
        ):
            network.next()
            with pytest.raises(StorageError, match="cannot") as caught:
                call()
            assert not isinstance(caught.value, ObjectNotFoundError)
            text = "".join(traceback.format_exception(caught.value))
            assert "\n" not in str(caught.value)
            for hidden in (secret, S3_SECRET, AZURE_KEY, "Signature="):
                assert hidden not in text + repr(store)
            assert len(network.proxy.seen) <= 3

    def test_a_bucket_that_is_not_there(self, network):
        place = network.proxy.place()
        uri = place.uri.replace("://tables/", "://no-such-bucket/")
        store = open_store(uri, {**place.options, "put_if_absent": "true"})
        for call in (
            lambda: store.put_if_absent("a", b""),
            lambda: store.put("a", b""),
            lambda: store.get("a"),
            lambda: list(store.list()),
        ):
            with pytest.raises(StorageError, match=r"(?i)the specified (bucket|container) does not exist") as caught:
                call()
            assert not isinstance(caught.value, ObjectNotFoundError)


class TestOneClient:
    def test_many_stores_and_threads_share_connections(self, network):
        clients._made.renew()
        place = network.proxy.place()
        store = network.store()
        for number in range(8):
            store.put(f"k{number}", b"1")

        def work():
            mine = open_store(store.uri, {**place.options, "put_if_absent": "true"})
            assert mine.get_many([f"k{number}" for number in range(8)] * 10) == [b"1"] * 80

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(clients._made.clients) == 1
        assert network.asked(work) == {"GET": 80}

    def test_reads_of_many_are_bounded(self, network, monkeypatch):
        store = network.store()
        store.put("a", b"1")
        under_way = []
        most = []
        read = type(store)._read

        async def counted(self, *arguments):
            under_way.append(1)
            most.append(len(under_way))
            try:
                return await read(self, *arguments)
            finally:
                under_way.pop()

        monkeypatch.setattr(type(store), "_read", counted)
        assert store.get_many(["a"] * 200) == [b"1"] * 200
        assert 2 < max(most) <= clients.PARALLEL
