"""Google Cloud Storage: options, answers that the server of the tests does not give, and a table from end to end.

Tests of refdelta_storage.gcs.
"""

import json
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from refdelta import DeltaTable, write_deltalake
from refdelta_storage import (
    Committed,
    Exists,
    GcsStore,
    InvalidOptionError,
    ObjectInfo,
    ObjectNotFoundError,
    StorageError,
    Unknown,
    clients,
    open_store,
    protocols,
)
from refdelta_storage.clients import Client, Patience
from refdelta_storage.gcs import PROMISES, ReplyError

NOWHERE = "http://127.0.0.1:9"
SECRET = "nobody-may-see-this"


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch):
    """No credentials of this machine, and no client of another test."""
    for name in (*protocols.GCS.environment, "GOOGLE_APPLICATION_CREDENTIALS", "STORAGE_EMULATOR_HOST"):
        monkeypatch.delenv(name, raising=False)
    clients._made.renew()


@pytest.fixture(scope="module")
def account():
    """A service account that nobody has made."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {
        "type": "service_account",
        "project_id": "p",
        "private_key_id": SECRET,
        "private_key": key.decode(),
        "client_email": "someone@p.iam.gserviceaccount.com",
        "token_uri": f"{NOWHERE}/token",
    }


def arguments(options, uri="gs://bucket/some/table/"):
    store = open_store(uri, options)
    assert (store._bucket, store._prefix, store.capabilities) == ("bucket", "some/table/", PROMISES)
    return store._client.arguments


class TestOptions:
    @pytest.mark.tier("test")
    @pytest.mark.parametrize("name", ["GOOGLE_SKIP_SIGNATURE", "google_skip_signature", "skip_signature", "anon"])
    def test_nobody(self, name):
        assert arguments({name: "true"}) == {"token": "anon"}
        assert arguments({"token": "anon", name: True}, "gcs://bucket/some/table") == {"token": "anon"}
        with pytest.raises(InvalidOptionError, match=f"'token' and '{name}' mean the same and differ"):
            arguments({"token": "cache", name: "true"})

    @pytest.mark.tier("test")
    def test_names_of_gcsfs(self):
        own = {"token": "anon", "project": "p", "endpoint_url": NOWHERE, "requester_pays": True}
        assert arguments(own) == own

    @pytest.mark.tier("test")
    @pytest.mark.parametrize("name", ["GOOGLE_BASE_URL", "google_endpoint_url", "endpoint"])
    def test_an_address(self, name):
        assert arguments({"token": "anon", name: f"{NOWHERE}/"}) == {"token": "anon", "endpoint_url": NOWHERE}
        with pytest.raises(InvalidOptionError, match="the endpoint is http, and the option allow_http is false"):
            arguments({"token": "anon", name: NOWHERE, "google_allow_http": "false"})

    @pytest.mark.parametrize(
        "name", ["google_service_account", "GOOGLE_SERVICE_ACCOUNT_PATH", "google_application_credentials"]
    )
    def test_a_file_of_an_account(self, name, account, tmp_path, monkeypatch):
        path = tmp_path / "account.json"
        path.write_text(json.dumps(account))
        assert arguments({name: str(path)}) == {"token": account}
        with pytest.raises(InvalidOptionError, match=f"option '{name}' names a file that cannot be read$"):
            arguments({name: str(tmp_path / SECRET)})
        if name.upper() in protocols.GCS.environment:
            monkeypatch.setenv(name.upper(), str(path))
            assert arguments({}) == {"token": account}
            assert arguments({"anon": "true"}) == {"token": "anon"}  # what is said here counts

    def test_an_account_as_text(self, account):
        store = open_store("gs://b/t", {"google_service_account_key": json.dumps(account)})
        credentials = store._client.file_system().credentials.credentials
        assert credentials.service_account_email == account["client_email"]
        assert {SECRET, account["private_key"]} <= store._client.secrets

    def test_the_account_of_an_emulator(self):
        """As deltalake's users write it."""
        text = json.dumps({"gcs_base_url": f"{NOWHERE}/", "disable_oauth": True, "client_email": "", "private_key": ""})
        assert arguments({"google_service_account_key": text}) == {"token": "anon", "endpoint_url": NOWHERE}

    def test_accounts_that_cannot_be_used(self):
        for text in (SECRET, "[1]", "7", f'{{"{SECRET}"'):
            with pytest.raises(InvalidOptionError, match="'service_account_key' is the JSON of a service acc") as error:
                arguments({"service_account_key": text})
            assert SECRET not in str(error.value)
        with pytest.raises(InvalidOptionError, match="'external_account': these are found without the option, by the"):
            arguments({"service_account_key": json.dumps({"type": "external_account", "audience": SECRET})})
        with pytest.raises(InvalidOptionError, match="cannot open gs: ") as error:
            arguments({"service_account_key": json.dumps({"private_key": SECRET, "client_email": "x"})})
        assert SECRET not in str(error.value)

    def test_what_cannot_be_understood(self):
        with pytest.raises(InvalidOptionError, match="unknown option 'google_servce_account' for gs; did you mean"):
            arguments({"google_servce_account": "x"})
        with pytest.raises(InvalidOptionError, match="unknown option 'aws_region' for gs"):
            arguments({"aws_region": "x"})

    def test_on_a_server(self, gcs_server, monkeypatch):
        place = gcs_server.place()
        monkeypatch.setenv("GOOGLE_BASE_URL", gcs_server.endpoint)
        monkeypatch.setenv("GOOGLE_SKIP_SIGNATURE", "true")
        store = open_store(place.uri, {"timeout": "30s", "connect_timeout": "5s", "max_retries": 2})
        assert isinstance(store, GcsStore)
        assert isinstance(store.put_if_absent("a", b"1"), Committed)
        assert open_store(place.uri.replace("gs:", "gcs:"), {}).get("a") == b"1"


def gcs():
    client = Client("gs", {"token": "anon", "endpoint_url": NOWHERE})
    return GcsStore(client, "gs://b/t", "b", "t", PROMISES, Patience(retries=0))


def telling(error, monkeypatch, found=None):
    """Let every request end with an error, but for a look at an object if one is there."""

    async def ask(self, method, path, data=None, headers=None, **query):
        if found is not None and "fields" in query:
            return None, json.dumps(found).encode()
        raise error

    monkeypatch.setattr(GcsStore, "_ask_for", ask)
    return gcs()


class TestAnswers:
    @pytest.mark.parametrize(
        ("status", "expected"), [(412, Exists), (408, Unknown), (409, Unknown), (429, Unknown), (503, Unknown)]
    )
    def test_a_conditional_put(self, status, expected, monkeypatch):
        assert isinstance(telling(ReplyError(status, "x"), monkeypatch).put_if_absent("k", b""), expected)

    @pytest.mark.parametrize("error", [ConnectionResetError("peer"), TimeoutError(), ValueError("odd")])
    def test_without_a_reply_nobody_knows(self, error, monkeypatch):
        assert isinstance(telling(error, monkeypatch).put_if_absent("k", b""), Unknown)

    def test_what_is_refused_was_not_created(self, monkeypatch):
        store = telling(ReplyError(403, "someone does not have storage.objects.create access"), monkeypatch)
        for call in (lambda: store.put_if_absent("k", b""), lambda: store.put("k", b""), lambda: store.get("k")):
            with pytest.raises(StorageError, match=r"cannot (create|write|read) 'k' in gs://b/t: 403: someone does"):
                call()

    def test_unless_it_was_created_by_a_request_whose_reply_was_lost(self, monkeypatch):
        there = {"size": "3", "timeCreated": "2026-01-01T00:00:00Z", "generation": "7"}
        store = telling(ReplyError(401, "Invalid Credentials"), monkeypatch, found=there)
        assert isinstance(store.put_if_absent("k", b"abc"), Exists)

    def test_a_login_that_cannot_be_renewed_is_certain(self, monkeypatch):
        from gcsfs.retry import HttpError
        from google.auth.exceptions import RefreshError

        for error in (HttpError({"code": 401, "message": "Invalid Credentials"}), RefreshError("no token")):
            with pytest.raises(StorageError, match=r"cannot create 'k' in gs://b/t: (Invalid Credentials|no token)"):
                telling(error, monkeypatch).put_if_absent("k", b"")

    def test_a_bucket_that_is_not_there(self, monkeypatch):
        store = telling(ReplyError(404, "The specified bucket does not exist."), monkeypatch)
        for call in (
            lambda: store.put_if_absent("k", b""),
            lambda: store.get("k"),
            lambda: store.delete(["k"]),
            lambda: list(store.list()),
        ):
            with pytest.raises(StorageError, match="404: The specified bucket does not exist") as caught:
                call()
            assert not isinstance(caught.value, ObjectNotFoundError)

    def test_an_object_that_is_not_there(self, monkeypatch):
        store = telling(ReplyError(404, "No such object: b/t/k"), monkeypatch)
        with pytest.raises(ObjectNotFoundError):
            store.get("k")
        store.delete(["k"])

    def test_deleting_under_the_condition_of_a_generation(self, monkeypatch):
        asked = []
        there = {"size": "3", "timeCreated": "2026-01-01T00:00:00Z", "generation": "7"}

        async def ask(self, method, path, data=None, headers=None, **query):
            asked.append((method, path, query.get("ifGenerationMatch")))
            if method == "DELETE":
                raise ReplyError(412, "conditionNotMet")
            return None, json.dumps(there).encode()

        monkeypatch.setattr(GcsStore, "_ask_for", ask)
        gcs().delete_unchanged([ObjectInfo("a b", 3, 1767225600000, "7"), ObjectInfo("k", 3, 0, "6")])
        assert [one for one in asked if one[0] == "DELETE"] == [("DELETE", "storage/v1/b/b/o/t%2Fa%20b", "7")]

    def test_a_part_of_which_the_service_takes_less(self, gcs_server, monkeypatch):
        """As the service may; then the upload begins anew."""
        monkeypatch.setattr("refdelta_storage.remote.PART", 256 << 10)
        monkeypatch.setattr("refdelta_storage.remote.FIRST_PAUSE", 0.01)
        ask, parts = GcsStore._ask_for, []

        async def less(self, method, path, data=None, headers=None, **query):
            reply, content = await ask(self, method, path, data, headers, **query)
            if "Content-Range" in (headers or {}):
                parts.append(headers["Content-Range"])
                if len(parts) == 2:
                    reply = type("Reply", (), {"status": 308, "headers": {"Range": "bytes=0-300000"}})
            return reply, content

        monkeypatch.setattr(GcsStore, "_ask_for", less)
        place = gcs_server.place()
        store = open_store(place.uri, place.options)
        data = bytes(range(256)) * 3000
        with store.open_output("large") as stream:
            stream.write(data)
        assert store.get("large") == data
        assert parts[:2] == parts[2:4] == ["bytes 0-262143/*", "bytes 262144-524287/*"]
        assert parts[4:] == ["bytes 524288-767999/768000"]


class TestATable:
    def test_from_end_to_end(self, gcs_server):
        place = gcs_server.place()
        rows = pa.table({"id": range(10), "town": ["a", "b"] * 5})
        write_deltalake(place.uri, rows, partition_by=["town"], storage_options=place.options)
        write_deltalake(
            place.uri, pa.table({"id": [10], "town": ["c d/é"]}), mode="append", storage_options=place.options
        )
        table = DeltaTable(place.uri, storage_options=place.options)
        assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == [*range(11)]
        table.delete("id < 4")
        table.delete("town = 'c d/é'")
        assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == [*range(4, 10)]
        table.create_checkpoint()
        log = [info.key for info in table.store.list("_delta_log/")]
        assert "_delta_log/00000000000000000003.checkpoint.parquet" in log
        assert "_delta_log/_last_checkpoint" in log
        gone = table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=True)
        assert len(gone) >= 3
        assert all(name.endswith((".parquet", ".bin")) for name in gone)
        assert len(DeltaTable(place.uri, 1, storage_options=place.options).to_pyarrow_table()) == 11
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        assert sorted(DeltaTable(place.uri, storage_options=place.options).to_pyarrow_table()["id"].to_pylist()) == [
            *range(4, 10)
        ]

    def test_appends_at_once(self, gcs_server):
        place = gcs_server.place()
        write_deltalake(place.uri, pa.table({"id": [-1]}), storage_options=place.options)

        def append(number):
            write_deltalake(place.uri, pa.table({"id": [number]}), mode="append", storage_options=place.options)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(append, range(24)))
        table = DeltaTable(place.uri, storage_options=place.options)
        assert table.version() == 24
        assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == [*range(-1, 24)]
