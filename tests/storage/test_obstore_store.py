"""The stores of S3, Azure and Google Cloud Storage through obstore.

Tests of refdelta_storage.obstore_store.
"""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest
from obstore import exceptions

from refdelta import DeltaTable, write_deltalake
from refdelta_storage import Exists, InvalidOptionError, ObstoreStore, StorageError, Unknown, open_store, protocols
from refdelta_storage.obstore_store import FSSPEC_NAMES
from refdelta_storage.testing import StoreContract
from servers.proxies import ServerProxy
from servers.running import S3_TEMPORARY


def by_obstore(server):
    place = server.place()
    return open_store(place.uri, {**place.options, "client": "obstore"})


class TestS3(StoreContract):
    every = 7
    foreign = S3_TEMPORARY

    @pytest.fixture
    def store(self, s3_server):
        return by_obstore(s3_server)


class TestAzure(StoreContract):
    flat = True
    every = 11

    @pytest.fixture
    def store(self, azure_server):
        return by_obstore(azure_server)


class TestGcs(StoreContract):
    flat = True
    every = 7

    @pytest.fixture
    def store(self, gcs_server):
        with ServerProxy(gcs_server) as proxy:
            yield by_obstore(proxy)


NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch):
    """No credentials of this machine."""
    for name in [*os.environ]:
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)


def config(uri, options):
    store = open_store(uri, {"client": "obstore", **options})
    store = getattr(store, "inner", store)
    assert isinstance(store, ObstoreStore)
    assert (store.uri, store._prefix) == (uri, "t/")
    return store._client.bucket, store._client.config


class TestChoice:
    @pytest.mark.tier("test")
    @pytest.mark.parametrize(
        ("uri", "package"), [("s3://b/t", "s3fs"), ("abfss://b@a.dfs.x.y/t", "adlfs"), ("gs://b/t", "gcsfs")]
    )
    def test_it_is_the_client_where_it_alone_is_installed(self, uri, package, monkeypatch):
        options = {"anon": "true"}
        assert not isinstance(
            getattr(open_store(uri, options), "inner", None) or open_store(uri, options), ObstoreStore
        )
        monkeypatch.setattr(protocols, "_is_installed", lambda name: name != package)
        assert isinstance(getattr(open_store(uri, options), "inner", None) or open_store(uri, options), ObstoreStore)
        monkeypatch.setattr(protocols, "_is_installed", lambda name: False)
        monkeypatch.setattr(fsspec, "get_filesystem_class", _import_error)
        with pytest.raises(InvalidOptionError, match=f"needs the package {package}, which is not installed"):
            open_store(uri, options)

    def test_how_to_install_it(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "obstore", None)
        with pytest.raises(
            InvalidOptionError, match=r"needs the package obstore, .*: pip install 'refdelta\[obstore\]'$"
        ):
            open_store("s3://b/t", {"client": "obstore"})

    def test_another_client_is_refused_by_name(self):
        with pytest.raises(InvalidOptionError, match="option 'client' is 'fsspec' or 'obstore', not 'boto3'"):
            open_store("s3://b/t", {"client": "boto3"})
        with pytest.raises(InvalidOptionError, match=r"obstore is for s3://, abfss:// and gs://, not for http://"):
            open_store("https://host/t", {"client": "obstore"})
        assert open_store("https://host/t", {"client": "fsspec"}).uri == "https://host/t"

    def test_in_a_forked_child_it_is_refused(self, s3_server):
        place = s3_server.place()
        code = f"""
import os, sys
from refdelta_storage import open_store, StorageError
store = open_store({place.uri!r}, {{**{place.options!r}, "client": "obstore", "put_if_absent": "true"}})
store.put("a", b"1")
child = os.fork()
if not child:
    try:
        store.get("a")
    except StorageError as error:
        sys.exit(7 if "start processes by spawn" in str(error) else 8)
    sys.exit(9)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), store.get("a"))
"""
        done = subprocess.run(
            [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.stdout, done.stderr) == ("7 b'1'\n", "")


VALUES = {
    "use_fabric_endpoint": "true",
    "connection_string": "AccountName=a;AccountKey=a2V5a2V5",
    "service_account_key": json.dumps({"disable_oauth": True, "client_email": "", "private_key": ""}),
    **dict.fromkeys(("account_key", "access_key", "master_key"), "a2V5a2V5"),
    **dict.fromkeys(("sas_key", "sas_token"), "sv=1&sig=x"),
    **dict.fromkeys(("base_url", "endpoint_url", "endpoint", "endpoint_url_s3", "account_host"), NOWHERE),
}
"""Values of options that are checked when a store is opened."""


class TestOptions:
    def test_s3(self):
        expected = {"access_key_id": "id", "secret_access_key": "s", "session_token": "t", "endpoint": NOWHERE}
        expected |= {"region": "eu-1", "virtual_hosted_style_request": True}
        of_deltalake = {"AWS_ACCESS_KEY_ID": "id", "aws_secret_access_key": "s", "AWS_SESSION_TOKEN": "t"}
        of_deltalake |= {"AWS_ENDPOINT_URL": NOWHERE, "region": "eu-1", "aws_virtual_hosted_style_request": "true"}
        assert config("s3://b/t", {**of_deltalake, "allow_http": "true", "conditional_put": "etag"}) == ("b", expected)
        inner = {"endpoint_url": NOWHERE, "region_name": "eu-1"}
        style = {"s3": {"addressing_style": "virtual"}}
        of_s3fs = {"key": "id", "secret": "s", "token": "t", "client_kwargs": inner, "config_kwargs": style}
        assert config("s3://b/t", of_s3fs) == ("b", expected)
        assert config("s3a://b/t", {"anon": "true", "server_side_encryption": "AES256"}) == (
            "b",
            {"skip_signature": True, "server_side_encryption": "AES256"},
        )

    def test_amazon_needs_no_probe(self):
        login = {"key": "a", "secret": "b", "client": "obstore"}
        store = open_store("s3://b/t", login)
        assert store.exempt(store.inner)
        other = open_store("s3://b/t", {**login, "endpoint_url": "https://storage.example.com"})
        assert not other.exempt(other.inner)

    @pytest.mark.parametrize(
        ("uri", "host"),
        [
            ("abfss://b@acc.dfs.core.windows.net/t", "acc.blob.core.windows.net"),
            ("abfss://b@acc.dfs.core.chinacloudapi.cn/t", "acc.blob.core.chinacloudapi.cn"),
            ("wasbs://b@acc.blob.core.usgovcloudapi.net/t", "acc.blob.core.usgovcloudapi.net"),
            ("abfss://b@acc.z12.dfs.storage.azure.net/t", "acc.z12.blob.storage.azure.net"),
        ],
    )
    def test_the_host_of_azure_is_that_of_the_uri(self, uri, host):
        assert config(uri, {"account_key": "a2V5a2V5"}) == (
            "b",
            {"account_name": "acc", "account_key": "a2V5a2V5", "endpoint": f"https://{host}"},
        )

    def test_azure(self):
        text = "DefaultEndpointsProtocol=http;AccountName=acc;AccountKey=a2V5a2V5;BlobEndpoint=http://127.0.0.1:9/acc;"
        expected = {"account_name": "acc", "account_key": "a2V5a2V5", "endpoint": f"{NOWHERE}/acc"}
        assert config("abfs://b/t", {"connection_string": text}) == ("b", expected)
        parts = {"account_name": "acc", "azure_storage_account_key": "a2V5a2V5", "endpoint": f"{NOWHERE}/acc"}
        assert config("az://b/t", parts) == ("b", expected)
        signed = {"account_name": "acc", "sas_token": "?sv=1&sig=x"}
        assert config("az://b/t", signed) == ("b", {"account_name": "acc", "sas_key": "sv=1&sig=x"})
        with pytest.raises(InvalidOptionError, match="of the storage account 'acc', and the table of 'other'"):
            config("abfss://b@other.dfs.core.windows.net/t", {"connection_string": text})

    def test_google(self, tmp_path):
        nobody = json.loads(config("gs://b/t", {"token": "anon", "endpoint_url": NOWHERE})[1]["service_account_key"])
        assert (nobody["disable_oauth"], nobody["gcs_base_url"]) == (True, NOWHERE)
        assert config("gs://b/t", {"token": "ya29.x", "project": "p"}) == ("b", {"bearer_token": "ya29.x"})
        with pytest.raises(InvalidOptionError, match="this way to log in is gcsfs's own, use client='fsspec'"):
            config("gs://b/t", {"token": "browser"})
        with pytest.raises(InvalidOptionError, match="the credentials of a user by the environment variable"):
            config("gs://b/t", {"service_account_key": json.dumps({"type": "authorized_user"})})

    @pytest.mark.tier("test")
    @pytest.mark.parametrize(
        ("uri", "scheme", "column"),
        [("s3://b/t", protocols.S3, 2), ("az://b/t", protocols.AZURE, 3), ("gs://b/t", protocols.GCS, 4)],
        ids=["S3", "Azure", "GCS"],
    )
    def test_the_table_of_names(self, uri, scheme, column):
        text = (Path(__file__).parents[2] / "docs" / "stores.md").read_text()
        (row,) = re.findall(r"^\| arguments of s3fs, adlfs and gcsfs .*$", text, re.MULTILINE)
        told = set(re.findall(r"`(\w+)`", row.split("|")[column]))
        assert told == FSSPEC_NAMES[scheme.service]
        login = {"s3": {"key": "1", "secret": "a2V5a2V5"}, "abfs": {"account_name": "a"}}.get(scheme.name, {})
        base = {"client": "obstore", **login}
        for name in sorted(name for option in scheme.options if option.target for name in option.names):
            value = next((value for end, value in VALUES.items() if name.endswith(end)), "1")
            if name.endswith("profile"):
                with pytest.raises(InvalidOptionError, match="obstore reads no profiles"):
                    open_store(uri, {**base, name: value})
            elif not name.endswith(("account_name", "service_account", "account_path", "credentials")):
                open_store(uri, {**base, name: value})
        by_fsspec = protocols._parameters(fsspec.get_filesystem_class(scheme.name))
        ours = {name for option in scheme.options for name in option.names} | {
            "self",
            "args",
            "kwargs",
            "loop",
            "asynchronous",
        }
        for name in sorted(by_fsspec - told - ours):
            with pytest.raises(InvalidOptionError, match=f"option '{name}'"):
                open_store(uri, {**base, name: "1"})

    def test_what_cannot_be_understood(self):
        for options, message in (
            ({"acess_key_id": "hidden-secret"}, "unknown option 'acess_key_id' for s3; did you mean 'access_key_id'"),
            ({"key": "a", "AWS_ACCESS_KEY_ID": "hidden-secret"}, "mean the same and differ"),
            ({"client_kwargs": {"verify": False}}, "option 'verify' of botocore has no meaning for obstore"),
            ({"profile": "mine"}, "obstore reads no profiles"),
            ({"endpoint_url": NOWHERE, "allow_http": "false"}, "allow_http is false"),
            ({"conditional_put": "dynamo:t"}, "commits are conditional puts"),
        ):
            with pytest.raises(InvalidOptionError, match=message) as error:
                config("s3://b/t", options)
            assert "hidden-secret" not in str(error.value)


def _import_error(_name):
    raise ImportError("no module")


def telling(error, monkeypatch):
    """Let every request end with an error."""

    class Broken:
        def __getattr__(self, _name):
            async def fail(*_arguments, **_options):
                raise error

            return fail

    store = open_store(
        "s3://b/t",
        {"client": "obstore", "key": "id", "secret": "hidden-secret", "put_if_absent": "true", "max_retries": 0},
    )
    monkeypatch.setattr(store, "_store", lambda **_: Broken())
    return store


class TestAnswers:
    @pytest.mark.parametrize(
        ("kind", "status", "code", "expected"),
        [
            ("AlreadyExistsError", "412 Precondition Failed", "PreconditionFailed", Exists),
            ("AlreadyExistsError", "409 Conflict", "BlobAlreadyExists", Exists),
            ("AlreadyExistsError", "409 Conflict", "ConditionalRequestConflict", Unknown),
            ("AlreadyExistsError", "409 Conflict", "ContainerBeingDeleted", Unknown),
            ("GenericError", "503 Service Unavailable", "SlowDown", Unknown),
        ],
    )
    def test_a_conditional_put(self, kind, status, code, expected, monkeypatch):
        text = f"Object at k - Server returned non-2xx status code: {status}: <Code>{code}</Code><Message>m</Message>"
        error = getattr(exceptions, kind)(text)
        assert isinstance(telling(error, monkeypatch).put_if_absent("k", b""), expected)

    @pytest.mark.parametrize(
        "error", [exceptions.GenericError("HTTP error: error sending"), TimeoutError(), KeyError("x")]
    )
    def test_without_a_reply_nobody_knows(self, error, monkeypatch):
        assert isinstance(telling(error, monkeypatch).put_if_absent("k", b""), Unknown)

    def test_what_is_refused_was_not_created_and_shows_no_secret(self, monkeypatch):
        text = "status code: 403 Forbidden: <Code>AccessDenied</Code><Message>of hidden-secret</Message>"
        text += "\n\nDebug source: x"
        store = telling(exceptions.PermissionDeniedError(text), monkeypatch)
        with pytest.raises(StorageError, match=r"cannot create 'k' in s3://b/t: AccessDenied: of \*\*\*$"):
            store.put_if_absent("k", b"")

    def test_names_before_a_prefix(self, s3_server):
        store = by_obstore(s3_server)
        keys = [f"{first}/{last}" for first in ("a", "b0", "z") for last in ("/x"[1:], "00", "01", "1", "A", "a", "é")]
        for key in keys:
            store.put(key, b"")
        for prefix in ("a/0", "a/00", "a/1", "a/A", "a/a", "a/é", "b", "b0", "z", "0", ""):
            assert [info.key for info in store.list(prefix)] == sorted(key for key in keys if key.startswith(prefix))


@pytest.mark.parametrize("service", ["s3", "azure", "gcs"])
def test_a_table_from_end_to_end(service, request):
    with ServerProxy(request.getfixturevalue(f"{service}_server")) as proxy:
        place = proxy.place()
        options = {**place.options, "client": "obstore"}
        write_deltalake(place.uri, pa.table({"id": range(10)}), storage_options=options)

        def append(number):
            write_deltalake(place.uri, pa.table({"id": [number]}), mode="append", storage_options=options)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(append, range(10, 22)))
        table = DeltaTable(place.uri, storage_options=options)
        table.delete("id < 4")
        table.create_checkpoint()
        assert len(table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=True)) >= 1
        seen = DeltaTable(place.uri, storage_options=place.options)
        assert seen.version() == 13
        assert sorted(seen.to_pyarrow_table()["id"].to_pylist()) == [*range(4, 22)]
