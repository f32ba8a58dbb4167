"""The endpoint that storage options name, by the names of refdelta, of fsspec and of deltalake."""

from __future__ import annotations

import json

import pytest

from refdelta import errors
from refdelta.proxy.endpoint import Endpoint

STORE, PROXY = "http://127.0.0.1:9000", "http://127.0.0.1:5000"
CONNECTION = "DefaultEndpointsProtocol=http;AccountName=me;AccountKey=a/b==;BlobEndpoint={}/me;"
ACCOUNT = json.dumps({"gcs_base_url": "{}", "token_uri": "https://oauth2.example/token"})


@pytest.mark.parametrize(
    ("uri", "scheme", "options"),
    [
        ("s3://b/t", "s3", {"key": "me", "endpoint_url": "{}"}),
        ("S3A://b/t", "s3", {"AWS_ENDPOINT_URL": "{}", "AWS_ALLOW_HTTP": "true"}),
        ("s3://b/t", "s3", {"endpoint_url": "{}", "AWS_ENDPOINT_URL": "{}", "proxy_url": "http://10.0.0.1:3128"}),
        ("s3://b/t", "s3", {"client_kwargs": {"endpoint_url": "{}", "verify": False}}),
        ("abfss://b@me.dfs/t", "abfs", {"connection_string": CONNECTION}),
        ("az://b/t", "abfs", {"azure_storage_endpoint": "{}/me"}),
        ("gs://b/t", "gs", {"google_service_account_key": ACCOUNT}),
    ],
)
def test_the_address_is_found_and_replaced_in_whichever_option_has_it(uri, scheme, options):
    def by(url):
        return {name: filled(value, url) for name, value in options.items()}

    store = Endpoint.of(uri, by(STORE))
    assert (store.scheme, store.url, store.address) == (scheme, STORE, ("127.0.0.1", 9000))
    assert store.through(PROXY) == by(PROXY)


def filled(value, url):
    if isinstance(value, dict):
        return {name: filled(part, url) for name, part in value.items()}
    return value.replace("{}", url) if isinstance(value, str) else value


def test_the_port_of_plain_http():
    assert Endpoint.of("s3://b/t", {"endpoint_url": "http://localhost"}).address == ("localhost", 80)


@pytest.mark.parametrize(
    ("uri", "options", "words"),
    [
        ("/mnt/scratch", {"endpoint_url": STORE}, "--latency needs a store with an endpoint, such as s3://"),
        ("memory://x", {}, "'memory://x' has none"),
        ("s3://b/t", {}, "the storage options have none"),
        ("s3://b/t", None, "the storage options have none"),
        ("s3://b/t", {"endpoint_url": "https://s3.example"}, "https://s3.example is not plain HTTP"),
        ("s3://b/t", {"endpoint_url": STORE, "endpoint": PROXY}, f"{STORE} and {PROXY}"),
        ("s3://b/t", {"endpoint_url": "http://127.0.0.1:x"}, "a host and a port, not 'http://127.0.0.1:x'"),
    ],
)
def test_clear_errors(uri, options, words):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        Endpoint.of(uri, options, "--latency")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
