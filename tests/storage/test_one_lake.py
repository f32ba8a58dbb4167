"""OneLake, and logins of Azure without keys: what is derived of URIs and options. No host is asked."""

import asyncio
import pickle

import pytest

from refdelta_storage import InvalidOptionError, open_store, protocols
from refdelta_storage.azure import AzureCli, BearerToken

ONE_LAKE = "onelake.blob.fabric.microsoft.com"
URI = "abfss://workspace@onelake.dfs.fabric.microsoft.com/lake.Lakehouse/Tables/t"


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch):
    for name in (*protocols.AZURE.environment, "AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCOUNT_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("client", ["fsspec", "obstore"])
@pytest.mark.parametrize("name", ["bearer_token", "azure_storage_token", "AZURE_STORAGE_BEARER_TOKEN"])
def test_a_token(name, client):
    options = {name: "nobody-may-see-this", "use_fabric_endpoint": "true", "client": client}
    for uri in (URI, URI.replace("abfss://workspace@onelake.dfs.fabric.microsoft.com", _https("workspace"))):
        store = open_store(uri, options)
        assert (store.uri, store._bucket, store._prefix) == (URI, "workspace", "lake.Lakehouse/Tables/t/")
        assert "nobody-may-see-this" in store._client.secrets
        if client == "obstore":
            token = {"account_name": "onelake", "endpoint": f"https://{ONE_LAKE}", "token": "nobody-may-see-this"}
            assert store._client.config == token
            continue
        assert store._client.file_system().service_client.primary_hostname == ONE_LAKE
        credential = store._client.arguments["credential"]
        assert asyncio.run(credential.get_token("scope")).token == "nobody-may-see-this"
        assert "nobody-may-see-this" not in repr(credential)
        assert pickle.loads(pickle.dumps(credential)) == credential
        assert open_store(uri, options)._client.name == store._client.name
        assert open_store(uri, {**options, name: "another"})._client.name != store._client.name


def _https(workspace):
    return f"https://onelake.dfs.fabric.microsoft.com/{workspace}"


def test_the_command_line_of_azure():
    assert open_store(URI, {"use_azure_cli": "true"})._client.arguments["credential"] == AzureCli()
    by_obstore = open_store(URI, {"use_azure_cli": "true", "client": "obstore"})
    assert by_obstore._client.config["use_azure_cli"] is True
    with pytest.raises(InvalidOptionError, match="mean the same and differ") as error:
        open_store(URI, {"use_azure_cli": "true", "bearer_token": "nobody-may-see-this"})
    assert "nobody" not in str(error.value)


@pytest.mark.parametrize(
    ("uri", "fabric", "host"),
    [
        ("az://workspace/t", "true", ONE_LAKE),
        ("az://workspace/t", "false", "onelake.blob.core.windows.net"),
        ("abfss://c@acc.dfs.core.chinacloudapi.cn/t", "true", "acc.blob.core.chinacloudapi.cn"),
    ],
)
def test_fabric_is_asked_where_the_uri_has_no_host(uri, fabric, host):
    account = {} if "@" in uri else {"account_name": "onelake"}
    store = open_store(uri, {**account, "bearer_token": "x", "use_fabric_endpoint": fabric})
    assert store._client.file_system().service_client.primary_hostname == host


def test_two_tokens_are_not_the_same():
    assert BearerToken("a") != BearerToken("b")
    assert len({BearerToken("a"), BearerToken("a"), AzureCli(), AzureCli()}) == 2
