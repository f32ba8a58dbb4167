"""From URIs and options to stores.

Tests of refdelta_storage.clients, refdelta_storage.errors, refdelta_storage.options.
"""

import sys
from pathlib import Path
from typing import ClassVar

import fsspec
import pytest

from refdelta_storage import (
    FsspecStore,
    InvalidOptionError,
    LocalStore,
    MemoryStore,
    ReadOnlyStore,
    ReadOnlyStoreError,
    StorageError,
    clients,
    open_store,
    protocols,
)
from refdelta_storage.errors import holds_login, redact
from refdelta_storage.probe import Probed


class TestLocal:
    @pytest.mark.parametrize("create", [True, False])
    def test_paths(self, tmp_path, monkeypatch, create):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        expected = {
            "plain": tmp_path / "plain",
            "./a/../b": tmp_path / "b",
            "with space%20#?é": tmp_path / "with space%20#?é",
            str(tmp_path / "absolute"): tmp_path / "absolute",
            f"{tmp_path}/slash/": tmp_path / "slash",
            "~/t": tmp_path / "home" / "t",
            "c:odd": tmp_path / "c:odd",
            "file:odd": tmp_path / "file:odd",
            tmp_path / "path": tmp_path / "path",
            (tmp_path / "u r%i").as_uri(): tmp_path / "u r%i",
            f"file:{tmp_path}/spark": tmp_path / "spark",
            f"FILE://localhost{tmp_path}/host": tmp_path / "host",
            f"file://{tmp_path}/a%20b%25%C3%A9/": tmp_path / "a b%é",
            f"file://{tmp_path}/not#split?": tmp_path / "not#split?",
        }
        for uri, path in expected.items():
            store = open_store(uri, create=create)
            assert isinstance(store, LocalStore)
            assert store.uri == path.as_uri()
            assert store.local_path("x") == f"{path}/x"
            assert path.is_dir() is create
            assert open_store(store.uri).uri == store.uri

    def test_no_tilde_in_uris(self):
        assert open_store("file:///~/x").local_path("k") == "/~/x/k"

    @pytest.mark.parametrize("uri", ["", "a\0b", "file:///a%00b", "file://server/share", "file://", "file://x"])
    def test_nonsense(self, uri):
        with pytest.raises(InvalidOptionError):
            open_store(uri)

    def test_fsync(self, tmp_path):
        assert open_store(tmp_path).capabilities.durable
        for value in ("false", "False", "0", "no", False):
            assert not open_store(tmp_path, {"fsync": value}).capabilities.durable
        with pytest.raises(InvalidOptionError, match="'fsync' is true or false, not 'maybe'"):
            open_store(tmp_path, {"fsync": "maybe"})

    def test_unknown_options_are_named(self, tmp_path):
        with pytest.raises(InvalidOptionError, match="unknown option 'AWS_REGION' for the local file system"):
            open_store(tmp_path, {"AWS_REGION": "x"})
        with pytest.raises(InvalidOptionError, match="unknown option 'fsync' for the store in memory"):
            open_store("memory://x", {"fsync": "true"})

    def test_a_file_is_no_store(self, tmp_path):
        (tmp_path / "f").write_text("")
        with pytest.raises(StorageError, match="not a folder"):
            open_store(tmp_path / "f")

    def test_read_only(self, tmp_path):
        store = open_store(tmp_path, read_only=True)
        with pytest.raises(ReadOnlyStoreError, match="opened for reading"):
            store.put_if_absent("k", b"")
        assert list(tmp_path.iterdir()) == []


class TestOthers:
    def test_memory(self):
        assert isinstance(open_store("memory://some"), MemoryStore)
        assert open_store("memory://").uri == open_store("MEMORY:///").uri

    def test_an_unknown_protocol_is_tried_unless_told_otherwise(self, honest):
        fsspec.register_implementation("honest", type(honest), clobber=True)
        store = open_store("honest://bucket/table")
        assert isinstance(store, Probed)
        assert store.capabilities.put_if_absent
        denied = open_store("honest://bucket/table", {"put_if_absent": "false"})
        assert isinstance(denied, ReadOnlyStore)
        assert not denied.capabilities.put_if_absent
        with pytest.raises(ReadOnlyStoreError, match="put_if_absent says that it has two winners"):
            denied.put("x", b"")
        told = open_store("honest://bucket/table/", {"put_if_absent": "true"})
        assert isinstance(told, FsspecStore)
        assert told.capabilities.put_if_absent
        told.put("x", b"1")
        assert (told.get("x"), told.uri) == (b"1", "honest://bucket/table")

    def test_a_protocol_that_nobody_knows(self):
        with pytest.raises(InvalidOptionError, match="nonsense"):
            open_store("nonsense://x/y")

    @pytest.mark.parametrize(
        ("uri", "package", "extra"),
        [
            ("s3://bucket/table", "s3fs", "s3"),
            ("abfss://box@account.dfs.core.windows.net/t", "adlfs", "adls"),
            ("gs://bucket/table", "gcsfs", "gcs"),
        ],
    )
    def test_a_package_that_is_missing_is_named_with_its_extra(self, monkeypatch, uri, package, extra):
        monkeypatch.setattr(fsspec, "get_filesystem_class", _import_error)
        with pytest.raises(InvalidOptionError, match=rf"needs the package {package}, .*'refdelta\[{extra}\]'$"):
            open_store(uri)

    def test_a_package_without_an_extra_is_named(self, monkeypatch):
        monkeypatch.setattr(fsspec, "get_filesystem_class", _import_error)
        with pytest.raises(InvalidOptionError, match=r"needs the package with fsspec's oss file system, which is not"):
            open_store("oss://bucket/table")

    @pytest.mark.parametrize("uri", ["local:///tmp/x", "simplecache::s3://b/t", "filecache::file:///tmp"])
    def test_ways_around_are_refused(self, uri):
        with pytest.raises(InvalidOptionError):
            open_store(uri)

    @pytest.mark.parametrize(
        "uri",
        [
            "s3://AKIA:hunter2secret@bucket/t",
            "abfss://c@a.dfs.core.windows.net/t?sv=1&sig=hunter2secret",
            "https://u:hunter2secret@host/t",
            "s3a://AKIA:x/hunter2secret@bucket/t",
            "s3a://AKIA:x/hunter2secret%40bucket/t",
            "s3://AKIA%3Ahunter2secret@bucket/t",
            "s3://AKIA:12/hunter2secret@bucket",
            "abfss://AKIA:a@b/hunter2secret@account.dfs.core.windows.net/t",
        ],
    )
    def test_credentials_in_uris_are_refused_and_not_shown(self, uri):
        with pytest.raises(InvalidOptionError, match="no credentials in a URI") as error:
            open_store(uri)
        assert "hunter2secret" not in str(error.value)


@pytest.mark.parametrize(
    "uri",
    [
        "s3://bucket/a:b@c/t",
        "s3://arn:aws:s3:eu-west-1:123456789012:accesspoint/name/x@y",
        "http://localhost:9000/bucket/x@y",
        "https://host.example:443/a@b",
        "abfss://c@account.dfs.core.windows.net:10000/t@x",
        "http://127.0.0.1:10000/devstoreaccount1/c@d",
        "http://[::1]:9000/b@c",
    ],
)
def test_a_port_or_an_at_in_a_path_is_no_login(uri):
    assert not holds_login(uri)
    assert redact(uri) == uri


def _import_error(_name):
    raise ImportError("no module")


class FakeS3:
    """Stands for s3fs: takes its arguments, makes no request."""

    protocol = "s3"
    made: ClassVar[list] = []

    def __init__(self, anon=False, endpoint_url=None, key=None, secret=None, token=None, use_ssl=True,
                 client_kwargs=None, config_kwargs=None, **kwargs):  # fmt: skip
        self.arguments = dict(
            anon=anon, endpoint_url=endpoint_url, key=key, secret=secret, token=token, use_ssl=use_ssl,
            client_kwargs=client_kwargs, config_kwargs=config_kwargs, **kwargs,
        )  # fmt: skip
        self.storage_options = self.arguments
        FakeS3.made.append(self)

    @classmethod
    def _get_kwargs_from_urls(cls, _uri):
        return {}

    @classmethod
    def _strip_protocol(cls, uri):
        return uri.partition("://")[2]


class TestTables:
    """The options of deltalake and of fsspec's classes; against real servers in their own tests."""

    @pytest.fixture
    def s3(self, monkeypatch):
        monkeypatch.setattr(fsspec, "get_filesystem_class", lambda _name: FakeS3)

        for name in protocols.S3.environment:
            monkeypatch.delenv(name, raising=False)

        def arguments(options):
            clients._made.renew()
            store = open_store("s3a://bucket/some/table/", options)
            assert (store.uri, store.capabilities.put_if_absent) == ("s3a://bucket/some/table", True)
            made = FakeS3.made.pop().arguments
            default = {"anon": False, "use_ssl": True, "use_listings_cache": False, "skip_instance_cache": True}
            usual = {"connect_timeout": 5, "read_timeout": 15, "max_pool_connections": 32}
            usual["retries"] = {"total_max_attempts": 1}
            made["config_kwargs"] = {
                name: value for name, value in made["config_kwargs"].items() if value != usual.get(name)
            } or None
            return {name: value for name, value in made.items() if value != default.get(name)}

        yield arguments
        clients._made.renew()

    def test_names_of_deltalake(self, s3):
        assert s3(
            {
                "AWS_ACCESS_KEY_ID": "id",
                "aws_secret_access_key": "s",
                "AWS_SESSION_TOKEN": "t",
                "AWS_REGION": "eu-1",
                "AWS_ENDPOINT_URL": "http://127.0.0.1:7070",
                "AWS_ALLOW_HTTP": "true",
                "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
                "timeout": "500ms",
                "connect_timeout": "2m",
                "conditional_put": "etag",
                "AWS_S3_ALLOW_UNSAFE_RENAME": "true",
            }
        ) == {
            "key": "id",
            "secret": "s",
            "token": "t",
            "endpoint_url": "http://127.0.0.1:7070",
            "client_kwargs": {"region_name": "eu-1"},
            "config_kwargs": {
                "s3": {"addressing_style": "path"},
                "read_timeout": 0.5,
                "connect_timeout": 120.0,
                "request_checksum_calculation": "when_required",
                "response_checksum_validation": "when_required",
            },
        }

    @pytest.mark.parametrize("uri", ["s3://b/t", "az://b/t", "gs://b/t"])
    @pytest.mark.parametrize("client", ["fsspec", "obstore"])
    def test_certificates_are_checked(self, uri, client):
        given = {"anon": "true", "client": client, **({"account_name": "a"} if uri.startswith("az") else {})}
        assert open_store(uri, {**given, "allow_invalid_certificates": "false"}).uri == uri
        with pytest.raises(InvalidOptionError, match="'allow_invalid_certificates': the certificate of a server is"):
            open_store(uri, {**given, "allow_invalid_certificates": "true"})

    def test_checksums_are_for_services_that_know_them(self, s3, monkeypatch):
        rare = {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}
        endpoint = {"endpoint_url": "https://storage.example.com"}
        assert s3(endpoint)["config_kwargs"] == rare
        assert s3({"client_kwargs": endpoint})["config_kwargs"] == rare
        assert "config_kwargs" not in s3({"endpoint_url": "https://s3.eu-1.amazonaws.com"})
        own = {"request_checksum_calculation": "when_supported"}
        assert s3({**endpoint, "config_kwargs": own})["config_kwargs"] == {**rare, **own}
        monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "WHEN_SUPPORTED")
        assert list(s3(endpoint)["config_kwargs"]) == ["response_checksum_validation"]

    def test_waiting(self, s3):
        store = open_store("s3://b/t", {"max_retries": "7", "retry_timeout": "1m", "read_timeout": 3})
        assert (store.inner._patience.retries, store.inner._patience.total) == (7, 60.0)
        assert FakeS3.made.pop().arguments["config_kwargs"]["read_timeout"] == 3.0
        with pytest.raises(InvalidOptionError, match="'max_retries' is a number, not 'many'"):
            s3({"max_retries": "many"})
        with pytest.raises(InvalidOptionError, match="mean the same and differ"):
            s3({"timeout": "1s", "read_timeout": "2s"})

    def test_names_of_fsspec(self, s3):
        own = {"key": "id", "secret": "s", "client_kwargs": {"verify": "x"}, "anon": True}
        assert s3({**own, "region": "eu-1"}) == {**own, "client_kwargs": {"verify": "x", "region_name": "eu-1"}}
        assert s3({"region": "eu-1", **own}) == {**own, "client_kwargs": {"verify": "x", "region_name": "eu-1"}}
        assert own["client_kwargs"] == {"verify": "x"}

    def test_what_cannot_be_understood(self, s3):
        for options, message in (
            ({"acess_key_id": "x"}, "unknown option 'acess_key_id' for s3"),
            ({"AWS_S3_LOCKING_PROVIDER": "dynamodb"}, "under a lock"),
            ({"conditional_put": "dynamo:table"}, "conditional puts"),
            ({"aws_allow_http": "perhaps"}, "true or false"),
            ({"timeout": "soon"}, "a time such as"),
            ({"AWS_REGION": "a", "region": "b"}, "'AWS_REGION' and 'region' mean the same and differ"),
            ({"key": "a", "AWS_ACCESS_KEY_ID": "b"}, "mean the same and differ"),
        ):
            with pytest.raises(InvalidOptionError, match=message):
                s3(options)
        assert s3({"AWS_REGION": "a", "region": "a"}) == {"client_kwargs": {"region_name": "a"}}

    def test_secrets_are_not_in_the_messages_about_options(self, s3):
        with pytest.raises(InvalidOptionError) as error:
            s3({"AWS_SECRET_ACCESS_KEY": "hunter2", "secret": "hunter3"})
        assert "hunter" not in str(error.value)

    def test_no_name_stands_for_two_things(self):
        for protocol in protocols.PROTOCOLS.values():
            names = [name for option in protocol.options for name in option.names]
            assert len(names) == len(set(names))
            assert all(name == name.lower() for name in names)

    def test_a_folder_may_be_called_like_a_secret(self, s3):
        assert open_store("s3://bucket/token=x/t", {}).uri == "s3://bucket/token=x/t"

    def test_s3_through_its_real_class(self):
        pytest.importorskip("s3fs")
        store = open_store("s3://bucket/a/table", {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "hidden"})
        assert (store.uri, repr(store)) == ("s3://bucket/a/table", "S3Store('s3://bucket/a/table')")

    def test_azure_through_its_real_class(self):
        pytest.importorskip("adlfs")
        uri = "abfss://container@account.dfs.core.windows.net/a/table"
        store = open_store(uri, {"AZURE_STORAGE_ACCOUNT_KEY": "a2V5a2V5", "timeout": "30s"})
        assert (store.uri, store.capabilities.put_if_absent) == (uri, True)
        with pytest.raises(InvalidOptionError, match="unknown option 'acount_key' for abfs"):
            open_store(uri, {"acount_key": "x"})


@pytest.mark.parametrize(
    ("uri", "host", "account"),
    [
        ("abfss://c@acc.dfs.core.windows.net/t", "acc.blob.core.windows.net", "acc"),
        ("wasbs://c@acc.blob.core.windows.net/t", "acc.blob.core.windows.net", "acc"),
        ("az://c@acc.blob.core.windows.net/t", "acc.blob.core.windows.net", "acc"),
        ("abfss://c@acc.dfs.core.chinacloudapi.cn/t", "acc.blob.core.chinacloudapi.cn", "acc"),
        ("abfss://c@acc.dfs.core.usgovcloudapi.net/t", "acc.blob.core.usgovcloudapi.net", "acc"),
        ("abfss://c@acc.z12.dfs.storage.azure.net/t", "acc.z12.blob.storage.azure.net", "acc"),
        ("abfss://c@onelake.dfs.fabric.microsoft.com/l.Lakehouse/t", "onelake.blob.fabric.microsoft.com", "onelake"),
        ("abfs://c@storage.example.org:8443/t", "storage.example.org:8443", "storage"),
    ],
)
@pytest.mark.parametrize("login", [{"account_key": "a2V5a2V5"}, {"sas_token": "sv=1&sig=x"}, {"anon": "true"}])
def test_the_host_that_the_user_wrote_is_asked(uri, host, account, login):
    pytest.importorskip("adlfs")
    store = open_store(uri, login)
    client = store._client.file_system().service_client
    assert (client.primary_hostname, client.account_name or account) == (host, account)
    assert store._bucket == "c"
    assert open_store(uri, {**login, "account_name": account})._client.file_system().service_client.url == client.url
    with pytest.raises(InvalidOptionError, match=f"the URI names the account name '{account}', and the option"):
        open_store(uri, {**login, "account_name": "other"})


@pytest.mark.parametrize("scheme", ["az", "azure", "abfs", "abfss", "wasbs"])
def test_without_a_host_it_is_the_public_one(scheme):
    pytest.importorskip("adlfs")
    store = open_store(f"{scheme}://c/a/t", {"account_name": "acc", "account_key": "a2V5a2V5"})
    assert store._client.file_system().service_client.primary_hostname == "acc.blob.core.windows.net"


def test_a_connection_string_of_another_account_is_refused(monkeypatch):
    pytest.importorskip("adlfs")
    uri = "abfss://c@acc.dfs.core.windows.net/t"
    text = "DefaultEndpointsProtocol=https;AccountName={};AccountKey=a2V5a2V5;EndpointSuffix=core.windows.net"
    store = open_store(uri, {"connection_string": text.format("acc")})
    assert store._client.file_system().service_client.primary_hostname == "acc.blob.core.windows.net"
    with pytest.raises(InvalidOptionError, match="is of the storage account 'other', and the table of 'acc'"):
        open_store(uri, {"connection_string": text.format("other")})
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text.format("other"))
    with pytest.raises(InvalidOptionError, match="is of the storage account 'other', and the table of 'acc'"):
        open_store(uri)


def test_opening_needs_no_client_library():
    """None of the clients is imported before a URI asks for it."""
    import subprocess

    code = "import sys, refdelta_storage as s; s.open_store('x'); s.open_store('memory://x');"
    code += "print([m for m in ('fsspec', 's3fs', 'adlfs', 'pytest', 'hypothesis') if m in sys.modules])"
    code += "; import refdelta_storage.testing; print([m for m in ('pytest', 'hypothesis') if m in sys.modules])"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120)
    assert output.stdout == "[]\n[]\n"
    assert not Path("x").exists()
