"""Options as users of fsspec and of deltalake write them, from the environment too, tried on real servers."""

import pytest

from refdelta_storage import Committed, InvalidOptionError, StorageError, clients, open_store, protocols
from servers.running import AZURE_ACCOUNT, AZURE_KEY, BUCKET, S3_KEY, S3_SECRET

VARIABLES = {
    *protocols.S3.environment,
    *protocols.AZURE.environment,
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"),
    *("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_CONNECTION_STRING"),
    *("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_ANON"),
}


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch, tmp_path):
    """No credentials of this machine, and no client of another test."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    clients._made.renew()


def works(place, options):
    store = open_store(place.uri, options)
    assert isinstance(store.put_if_absent("a", b"1"), Committed)
    assert store.get("a") == b"1"
    return store


class TestS3:
    def test_as_s3fs_has_it(self, s3_server):
        works(
            s3_server.place(),
            {
                "key": S3_KEY,
                "secret": S3_SECRET,
                "client_kwargs": {"endpoint_url": s3_server.endpoint, "region_name": "us-east-1"},
                "config_kwargs": {"s3": {"addressing_style": "path"}, "retries": {"max_attempts": 2}},
            },
        )

    @pytest.mark.parametrize("prefix", ["AWS_", "aws_", ""])
    def test_as_deltalake_has_it(self, s3_server, prefix):
        names = {
            "access_key_id": S3_KEY,
            "secret_access_key": S3_SECRET,
            "endpoint_url": s3_server.endpoint,
            "region": "us-east-1",
            "allow_http": "true",
            "virtual_hosted_style_request": "false",
        }
        options = {prefix + (name.upper() if prefix.isupper() else name): value for name, value in names.items()}
        works(s3_server.place(), {**options, "conditional_put": "etag", "timeout": "30s", "connect_timeout": "5s"})

    def test_all_from_the_environment(self, s3_server, monkeypatch):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", S3_KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", S3_SECRET)
        monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        store = works(s3_server.place(), {})
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        works(s3_server.place(), {"endpoint_url": s3_server.endpoint})  # what is said here counts
        works(s3_server.place(), {"client_kwargs": {"endpoint_url": s3_server.endpoint, "region_name": "us-east-1"}})
        assert S3_SECRET not in repr(store)

    def test_a_profile(self, s3_server, tmp_path):
        (tmp_path / "credentials").write_text(
            f"[mine]\naws_access_key_id = {S3_KEY}\naws_secret_access_key = {S3_SECRET}\n"
        )
        (tmp_path / "config").write_text(f"[profile mine]\nendpoint_url = {s3_server.endpoint}\nregion = us-east-1\n")
        works(s3_server.place(), {"profile": "mine"})

    @pytest.mark.parametrize("option", ["anon", "AWS_SKIP_SIGNATURE", "skip_signature"])
    def test_nobody(self, s3_server, option):
        store = open_store(s3_server.place().uri, {option: "true", "endpoint_url": s3_server.endpoint})
        with pytest.raises(StorageError, match="AccessDenied"):
            store.get("a")

    def test_no_credentials_at_all_is_certain(self, s3_server):
        options = {"endpoint_url": s3_server.endpoint, "put_if_absent": "true"}
        store = open_store(s3_server.place().uri, options)
        with pytest.raises(StorageError, match=r"cannot create 'a' .*: Unable to locate credentials"):
            store.put_if_absent("a", b"")

    def test_http_may_be_forbidden(self, s3_server, monkeypatch):
        place = s3_server.place()
        with pytest.raises(InvalidOptionError, match="http, and the option allow_http is false"):
            open_store(place.uri, {**place.options, "allow_http": "false"})
        monkeypatch.setenv("AWS_ALLOW_HTTP", "0")
        with pytest.raises(InvalidOptionError, match="allow_http"):
            open_store(place.uri, place.options)


class TestAzure:
    def endpoint(self, server):
        return f"{server.endpoint}/{AZURE_ACCOUNT}"

    def test_as_adlfs_has_it(self, azure_server):
        works(azure_server.place(), {"connection_string": azure_server.connection_string()})

    @pytest.mark.parametrize("scheme", ["abfs", "abfss", "az"])
    def test_as_deltalake_has_it(self, azure_server, scheme):
        place = azure_server.place()
        store = open_store(
            place.uri.replace("abfs:", f"{scheme}:"),
            {
                "AZURE_STORAGE_ACCOUNT_NAME": AZURE_ACCOUNT,
                "azure_storage_account_key": AZURE_KEY,
                "endpoint": self.endpoint(azure_server),
                "allow_http": "true",
                "timeout": "30s",
            },
        )
        assert isinstance(store.put_if_absent("a", b"1"), Committed)
        assert works(place.__class__(f"{place.uri}/b", {}), place.options).get("a") == b"1"

    @pytest.mark.parametrize("names", [("ACCOUNT_KEY", "ENDPOINT"), ("ACCESS_KEY", "ENDPOINT"), ("CONNECTION_STRING",)])
    def test_all_from_the_environment(self, azure_server, monkeypatch, names):
        values = {
            "ACCOUNT_KEY": AZURE_KEY,
            "ACCESS_KEY": AZURE_KEY,
            "ENDPOINT": self.endpoint(azure_server),
            "CONNECTION_STRING": azure_server.connection_string(),
        }
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", AZURE_ACCOUNT)
        for name in names:
            monkeypatch.setenv(f"AZURE_STORAGE_{name}", values[name])
        store = works(azure_server.place(), {})
        assert AZURE_KEY not in repr(store)

    def sas(self, **permissions):
        from datetime import UTC, datetime, timedelta

        from azure.storage.blob import ContainerSasPermissions, generate_container_sas

        return generate_container_sas(
            AZURE_ACCOUNT,
            BUCKET,
            account_key=AZURE_KEY,
            permission=ContainerSasPermissions(**permissions),
            expiry=datetime.now(UTC) + timedelta(hours=1),
        )

    @pytest.mark.parametrize("option", ["sas_token", "AZURE_STORAGE_SAS_KEY", "azure_storage_sas_token"])
    def test_a_signature(self, azure_server, option):
        token = self.sas(read=True, write=True, create=True, list=True, delete=True)
        options = {option: token, "account_name": AZURE_ACCOUNT, "endpoint": self.endpoint(azure_server)}
        store = works(azure_server.place(), options)
        store.put("b", b"2")
        assert [info.key for info in store.list()] == ["a", "b"]
        store.delete(["a", "b"])
        assert list(store.list()) == []

    def test_a_signature_for_reading_is_told_at_once_and_not_shown(self, azure_server):
        token = self.sas(read=True, list=True)
        options = {"sas_token": token, "account_name": AZURE_ACCOUNT, "endpoint": self.endpoint(azure_server)}
        store = open_store(azure_server.place().uri, options)
        assert list(store.list()) == []
        signature = token.rpartition("sig=")[2]
        for call in (lambda: store.put_if_absent("a", b""), lambda: store.put("a", b"")):
            with pytest.raises(StorageError, match="AuthorizationPermissionMismatch") as caught:
                call()
            assert signature not in str(caught.value)

    def test_nobody(self, azure_server):
        options = {"anon": "true", "account_name": AZURE_ACCOUNT, "endpoint": self.endpoint(azure_server)}
        store = open_store(azure_server.place().uri, options)
        with pytest.raises(StorageError, match="cannot read 'a'"):
            store.get("a")

    def test_http_may_be_forbidden(self, azure_server):
        place = azure_server.place()
        with pytest.raises(InvalidOptionError, match="allow_http is false"):
            open_store(place.uri, {**place.options, "allow_http": "false"})
