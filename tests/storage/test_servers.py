"""The stores of S3 and Azure against real servers: the contract, and the requests that each operation costs."""

import pytest

from refdelta_storage import open_store
from refdelta_storage.testing import StoreContract


class TestS3(StoreContract):
    flat = False  # versitygw keeps its objects in folders

    @pytest.fixture
    def store(self, s3_server):
        place = s3_server.place()
        return open_store(place.uri, place.options)


class TestAzure(StoreContract):
    flat = True

    @pytest.fixture
    def store(self, azure_server):
        place = azure_server.place()
        return open_store(place.uri, place.options)
