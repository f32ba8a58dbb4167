"""The stores of S3, Azure and Google Cloud Storage through obstore.

Tests of refdelta_storage.obstore_store.
"""

import pytest

from refdelta_storage import open_store
from refdelta_storage.testing import StoreContract
from servers.proxy import Proxy


def by_obstore(server):
    place = server.place()
    return open_store(place.uri, {**place.options, "client": "obstore"})


class TestS3(StoreContract):
    every = 7

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
        with Proxy(gcs_server) as proxy:
            yield by_obstore(proxy)
