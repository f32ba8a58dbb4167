"""Tables of ``refdelta serve`` on S3, by credentials that the server gives to its clients."""

import pickle
import time

import pyarrow as pa
import pytest

from catalog.serving import TOKEN, serving
from refdelta import DeltaTable, errors, write_deltalake
from refdelta.catalog import UnityCatalog
from refdelta.transaction import background
from servers.running import S3_KEY, S3_SECRET

NAME = "main.sales.orders"
SCHEMA = pa.schema({"id": pa.int64()})


@pytest.fixture
def without_keys(monkeypatch):
    """No credentials of the machine."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def options(s3_server, without_keys):
    return {"endpoint_url": s3_server.endpoint, "region": "us-east-1", "allow_http": "true"}


def opened(s3_server, folder, options, *more):
    given = {**options, "aws_access_key_id": S3_KEY, "aws_secret_access_key": S3_SECRET}
    flags = [part for name, value in given.items() for part in ("--storage-option", f"{name}={value}")]
    return serving(folder, "--warehouse", s3_server.place("tables").uri, *flags, *more)


def test_a_client_needs_no_keys_of_its_own(s3_server, options, tmp_path, capfd):
    with opened(s3_server, tmp_path, options, "--vend-credentials") as served:
        with UnityCatalog(served.url, TOKEN, options) as catalog:
            table = catalog.create_table(NAME, SCHEMA)
            for row in range(3):
                write_deltalake(table, pa.table({"id": [row]}, SCHEMA), mode="append")
            table.delete("id = 1")
            copy = DeltaTable.in_store(pickle.loads(pickle.dumps(table.store)))
            assert sorted(copy.to_pyarrow_table().column("id").to_pylist()) == [0, 2]
            background.settle()
            (given,) = served.request("GET", f"{path(NAME)}/credentials?operation=READ")[2]["storage-credentials"]
            assert given["operation"] == "READ"
            assert table.table_uri.startswith(given["prefix"].rstrip("/"))
            assert given["expiration-time-ms"] > time.time() * 1000
            shown = repr(table.store) + repr(catalog) + repr(catalog.credentials)
            catalog.drop_table(NAME, purge=True)
        assert (served.folder / "server.log").read_text() == ""
        assert S3_SECRET not in shown + "".join(capfd.readouterr())


def test_without_it_a_client_needs_its_own(s3_server, options, tmp_path):
    with opened(s3_server, tmp_path, options) as served:
        with UnityCatalog(served.url, TOKEN, options) as catalog, pytest.raises(errors.StoreError):
            catalog.create_table(NAME, SCHEMA)
        own = {**options, "aws_access_key_id": S3_KEY, "aws_secret_access_key": S3_SECRET}
        with UnityCatalog(served.url, TOKEN, own) as catalog:
            write_deltalake(catalog.create_table(NAME, SCHEMA), pa.table({"id": [1]}, SCHEMA), mode="append")
            assert catalog.table(NAME).count() == 1
            background.settle()


def path(name):
    catalog, schema, table = name.split(".")
    return f"/delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}"
