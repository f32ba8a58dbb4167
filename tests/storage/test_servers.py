"""The stores of S3, Azure and GCS against real servers: the contract, and what it and the probe make of broken ones."""

import os
import subprocess
import sys

import pytest
from hypothesis.stateful import run_state_machine_as_test

from refdelta_storage import (
    AzureStore,
    Committed,
    Exists,
    GcsStore,
    ObjectInfo,
    ReadOnlyStoreError,
    S3Store,
    StorageError,
    Unknown,
    open_store,
    probe,
)
from refdelta_storage.probe import Probed
from refdelta_storage.testing import StoreContract, assert_same_objects, state_machine
from servers.running import S3_TEMPORARY
from tiers import examples


class TestS3(StoreContract):
    """versitygw keeps its objects in folders, so that "a" and "a/b" cannot both be there."""

    every = 7
    foreign = S3_TEMPORARY

    @pytest.fixture
    def store(self, s3_server):
        place = s3_server.place()
        return open_store(place.uri, place.options)


class TestAzure(StoreContract):
    flat = True
    every = 11

    @pytest.fixture
    def store(self, azure_server):
        place = azure_server.place()
        return open_store(place.uri, place.options)


class TestGcs(StoreContract):
    flat = True
    every = 7

    @pytest.fixture
    def store(self, gcs_server):
        place = gcs_server.place()
        return open_store(place.uri, place.options)


class IgnoresTheCondition:
    """The header never reaches the server: how one works that does not know it."""

    async def _create(self, name, data):
        await self._write(name, data)


class LooksAndWrites:
    """A look, then a write: how a gateway works that keeps its objects in something without conditions."""

    async def _create(self, name, data):
        try:
            await self._look(name)
        except Exception as error:
            if not self._is_absent(error):
                raise
            await self._write(name, data)
            return
        raise FileExistsError(name)

    def put_if_absent(self, key, data):
        outcome = super().put_if_absent(key, data)
        return Exists() if isinstance(outcome, Unknown) else outcome


def broken(kind, service, request):
    """A store over the real server whose conditional put is one of these."""
    server = request.getfixturevalue(f"{service}_server")
    place = server.place()
    good = open_store(place.uri, {**place.options, "put_if_absent": "true"})
    cls = type(kind.__name__, (kind, {"s3": S3Store, "azure": AzureStore, "gcs": GcsStore}[service]), {})
    return cls(good._client, good.uri, good._bucket, good._prefix, good.capabilities)


@pytest.mark.parametrize("service", ["s3", "azure", "gcs"])
class TestABrokenServer:
    @pytest.mark.parametrize("kind", [IgnoresTheCondition, LooksAndWrites])
    def test_fails_the_contract(self, service, kind, request):
        with pytest.raises(AssertionError, match=r"writers got Committed|the writer that got Committed"):
            StoreContract().test_one_of_many_writers_wins(broken(kind, service, request))

    @pytest.mark.parametrize("kind", [IgnoresTheCondition, LooksAndWrites])
    def test_fails_the_probe_and_is_not_written_to(self, service, kind, request):
        inner = broken(kind, service, request)
        store = Probed(inner, f"{service} {kind.__name__}", rounds=3)
        assert store.capabilities.put_if_absent
        for write in (
            lambda: store.put_if_absent("_delta_log/0.json", b"{}"),
            lambda: store.put("x", b""),
            lambda: store.open_output("x"),
            lambda: store.create_output("x"),
            lambda: store.delete(["x"]),
            lambda: store.delete_unchanged([ObjectInfo("x", 0, 0)]),
        ):
            with pytest.raises(ReadOnlyStoreError, match=r"writers got a success for the same object; if you know"):
                write()
        assert not store.capabilities.put_if_absent
        assert list(store.list()) == []


class TestProbe:
    @pytest.fixture
    def server(self, s3_server):
        probe._verdicts.found.clear()
        return s3_server

    def test_a_good_server_passes_and_nothing_is_left(self, server):
        place = server.place()
        store = open_store(place.uri, place.options)
        assert isinstance(store, Probed)
        assert list(store.list()) == []
        assert probe._verdicts.found == {}  # reading tries nothing
        assert isinstance(store.put_if_absent("a", b"1"), Committed)
        assert [info.key for info in store.list()] == ["a"]
        assert list(probe._verdicts.found.values()) == [None]

    def test_a_service_that_does_not_answer_leaves_the_question_open(self, server):
        place = server.place()
        options = {**place.options, "endpoint_url": "http://127.0.0.1:9", "max_retries": "0"}
        store = open_store(place.uri, options)
        with pytest.raises(
            StorageError, match=r"cannot try whether .* creates an object for one writer only: .*connect"
        ):
            store.put("a", b"")
        assert probe._verdicts.found == {}

    @pytest.mark.tier("test")
    def test_amazon_needs_none(self):
        store = open_store("s3://bucket/t", {"key": "a", "secret": "b", "region": "eu-west-1"})
        assert isinstance(store, Probed)
        assert store.exempt(store.inner)
        other = open_store("s3://bucket/t", {"key": "a", "secret": "b", "endpoint_url": "https://storage.example.com"})
        assert not other.exempt(other.inner)
        # Its interface like that of S3 is reported to ignore the condition.
        google = open_store(
            "s3://bucket/t", {"key": "a", "secret": "b", "endpoint_url": "https://storage.googleapis.com"}
        )
        assert isinstance(google, Probed)
        assert not google.exempt(google.inner)

    def test_the_user_may_know_better(self, server):
        place = server.place()
        told = open_store(place.uri, {**place.options, "put_if_absent": "true"})
        assert isinstance(told, S3Store)
        told.put("a", b"")
        assert probe._verdicts.found == {}
        denied = open_store(place.uri, {**place.options, "put_if_absent": "false"})
        with pytest.raises(ReadOnlyStoreError, match="two winners at times"):
            denied.put("a", b"")


def test_a_client_that_does_not_know_the_condition_does_not_drop_it(s3_server):
    """As botocore did not before August 2024; s3fs leaves out what it does not know."""
    place = s3_server.place()
    store = open_store(place.uri, {**place.options, "put_if_absent": "true", "connect_timeout": "7s"})
    model = store._client.file_system().s3.meta.service_model
    del model.operation_model("PutObject").input_shape.members["IfNoneMatch"]
    with pytest.raises(StorageError, match="IfNoneMatch"):
        store.put_if_absent("a", b"1")
    store.put("b", b"")
    assert [info.key for info in store.list()] == ["b"]


class TestListings:
    @pytest.mark.parametrize("service", ["s3", "azure", "gcs"])
    def test_many_pages(self, service, request, monkeypatch):
        server = request.getfixturevalue(f"{service}_server")
        place = server.place()
        store = open_store(place.uri, {**place.options, "put_if_absent": "true"})
        monkeypatch.setattr(type(store), "page", 7)
        keys = sorted(f"{folder}/{number:03d}" for folder in ("a", "a-b") for number in range(20))
        for key in keys:
            store.put(key, b"12")
        assert [info.key for info in store.list()] == keys
        assert [info.key for info in store.list("a/", after="a/004")] == [f"a/{number:03d}" for number in range(5, 20)]
        assert_same_objects(store.list("a-b/01"), [store.head(f"a-b/01{number}") for number in range(10)])

    def test_an_order_of_its_own(self, s3_server, monkeypatch):
        """Directory buckets: no start, prefixes that end with a folder, and no order."""
        place = s3_server.place()
        store = open_store(place.uri, {**place.options, "put_if_absent": "true"})
        monkeypatch.setattr(S3Store, "ordered", False)
        asked = []
        call = S3Store._call

        async def shuffled(self, method, **arguments):
            reply = await call(self, method, **arguments)
            if method == "list_objects_v2":
                asked.append(arguments)
                reply["Contents"].reverse()
            return reply

        monkeypatch.setattr(S3Store, "_call", shuffled)
        for number in (3, 1, 2, 5, 4):
            store.put(f"_delta_log/0{number}", b"")
        assert [info.key for info in store.list("_delta_log/0", "_delta_log/02")] == [
            f"_delta_log/0{n}" for n in (3, 4, 5)
        ]
        assert all("StartAfter" not in arguments and arguments["Prefix"].endswith("/") for arguments in asked)

    def test_folders_of_a_hierarchical_namespace_are_no_objects(self, azure_server):
        place = azure_server.place()
        store = open_store(place.uri, place.options)
        client = store._client

        async def make():
            await store._blob(store._prefix + "p=1").upload_blob(b"", metadata={"hdi_isfolder": "true"})

        client.run(make)
        store.put("p=1/x", b"1")
        assert [info.key for info in store.list()] == ["p=1/x"]
        with pytest.raises(FileNotFoundError):
            store.head("p=1")


@pytest.mark.parametrize("service", ["s3", "azure", "gcs"])
def test_does_the_same_as_the_store_in_memory(service, request):
    server = request.getfixturevalue(f"{service}_server")

    def make():
        place = server.place()
        return open_store(place.uri, {**place.options, "put_if_absent": "true"})

    settings = examples(6, stateful_step_count=25)
    run_state_machine_as_test(state_machine(make), settings=settings)


FORKED = """
import os, sys
from refdelta_storage import open_store
uri, options = {uri!r}, {options!r}
store = open_store(uri, options)
store.put_if_absent("before", b"parent")
child = os.fork()
if not child:
    ok = store.get("before") == b"parent" and type(store.put_if_absent("of the child", b"1")).__name__ == "Committed"
    sys.exit(0 if ok else 1)  # an orderly end, which closes what there is to close
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), store.get("of the child"))
"""


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("service", ["s3", "azure", "gcs"])
def test_a_store_goes_on_in_a_forked_child(service, request):
    place = request.getfixturevalue(f"{service}_server").place()
    code = FORKED.format(uri=place.uri, options=place.options)
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ},
    )
    assert (done.stdout, done.stderr, done.returncode) == ("0 b'1'\n", "", 0)
