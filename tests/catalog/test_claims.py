"""A row of a catalog's database, and an answer of a server, is input like a log: whatever it claims, each verb ends in
a result or in one ``DeltaError``, in little memory, and changes nothing outside of the client's locations.

Tests of catalog.locations.
"""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from catalog import claims
from refdelta import errors, write_deltalake
from refdelta.catalog import SqlCatalog, UnityCatalog, base, open_catalog, unity
from refdelta.catalog.base import Entry
from refdelta.catalog.locations import Locations, place_of
from refdelta.transaction import background

ROWS = claims.ROWS
TESTS = Path(__file__).parents[1]


def searched(module, folder, first, step):
    """The wrong outcomes of a part of the cases, and how many cases there were."""
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", f"catalog.{module}", str(folder), str(first), str(step)],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=True,
    )  # fmt: skip
    *wrong, last = map(json.loads, done.stdout.splitlines())
    return wrong, last["cases"]


# --- the search ---


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("first", [3, 61])
def test_rows_with_any_value_in_any_column(tmp_path, first):
    wrong, count = searched("claims", tmp_path, first, 110)
    assert (wrong, count > 5) == ([], True)


@pytest.mark.tier("nightly")
def test_all_rows_with_any_value_in_any_column(tmp_path):
    wrong, count = searched("claims", tmp_path, 0, 1)
    assert (wrong, count) == ([], len([*claims.cases()]))


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("first", [7, 60])
def test_answers_with_any_value_in_any_field(tmp_path, first):
    wrong, count = searched("served_claims", tmp_path, first, 83)
    assert (wrong, count > 3) == ([], True)


@pytest.mark.tier("nightly")
def test_all_answers_with_any_value_in_any_field(tmp_path):
    wrong, count = searched("served_claims", tmp_path, 0, 1)
    assert wrong == []
    assert count > 300


def test_the_search_finds_a_client_that_believes_locations(tmp_path, monkeypatch):
    """Without the rule, rows and folders elsewhere are changed."""
    claims.make(made := tmp_path / "made")
    case = ("refdelta_tables", "location = '{root}/outside'", "staged")
    monkeypatch.setattr(claims, "READS", {})
    monkeypatch.setattr(claims, "WRITES", {"append": claims.WRITES["append"]})
    assert [*claims.tried(made, tmp_path / "now", *case)] == []
    monkeypatch.setattr(Locations, "cover", lambda *_: True)
    assert [*claims.tried(made, tmp_path / "now", *case)] == [("append", "a folder elsewhere was changed")]


def test_the_search_finds_a_client_that_believes_types(tmp_path, monkeypatch):
    claims.make(made := tmp_path / "made")
    case = ("refdelta_tables", "latest = 'x'", "inline")
    monkeypatch.setattr(claims, "WRITES", {})
    assert [*claims.tried(made, tmp_path / "now", *case)] == []
    monkeypatch.setattr("refdelta.catalog.sql._is_latest", lambda _: True)
    assert {verb for verb, _ in claims.tried(made, tmp_path / "now", *case)} >= {"count", "history"}


# --- locations ---


@pytest.mark.parametrize(
    ("given", "location"),
    [
        ("/srv/tables", "/srv/tables"),
        ("/srv/tables", "/srv/tables/"),
        ("/srv/tables/", "/srv/tables/a/b"),
        ("file:///srv/tables", "/srv/tables/a"),
        ("/srv/a b", "file:///srv/a%20b/t"),
        ("/", "/srv/x"),
        ("s3://bucket/tables", "s3://bucket/tables/t"),
        ("s3a://bucket/tables", "S3://bucket/tables/t"),
        ("s3://", "s3://bucket/tables"),
        ("memory://", "memory://x/y"),
        ("abfss://c@a.dfs.core.windows.net/t", "abfss://c@a.dfs.core.windows.net/t/u"),
    ],
)
def test_a_location_below_a_prefix(given, location):
    assert Locations([given]).cover(location)


@pytest.mark.parametrize(
    ("given", "location"),
    [
        ("/srv/tables", "/srv/tables2"),
        ("/srv/tables", "/srv"),
        ("/srv/tables", "/srv/tables/../other"),
        ("/srv/tables", "file:///srv/tables/%2e%2e/other"),
        ("/srv/tables", "file://other/srv/tables"),
        ("/srv/tables", "local:///srv/tables"),
        ("/srv/tables", "s3://srv/tables"),
        ("s3://bucket/tables", "s3://bucket/tables2"),
        ("s3://bucket/tables", "s3://bucket/tables/../other"),
        ("s3://bucket/tables", "s3://bucket/tables/%2E%2e/other"),
        ("s3://bucket/tables", "s3://bucket/tables/..\\other"),
        ("s3://bucket/tables", "s3://bucket/tables//x"),
        ("s3://bucket/tables", "s3://bucket/tables?x"),
        ("s3://bucket/tables", "s3://bucket/tables#x"),
        ("s3://bucket", "s3://me:secret@bucket/x"),
        ("s3://bucket", "gs://bucket/x"),
        ("/", "simplecache::file:///srv"),
        ("/", ""),
        ("/", "/srv/\x1b[2J"),
        ("/", "/srv/\x00"),
        ("/", "/srv/" + "x" * 5000),
        ("/srv", "~/x"),
    ],
)
def test_a_location_that_is_below_no_prefix(given, location):
    assert not Locations([given]).cover(location)


def test_links_are_followed_before_a_location_is_compared(tmp_path):
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "link").symlink_to(tmp_path)
    (tmp_path / "same").symlink_to(tmp_path / "w")
    given = Locations([tmp_path / "w"])
    assert not given.cover(f"{tmp_path}/w/link")
    assert not given.cover(f"{tmp_path}/w/link/other")
    assert given.cover(f"{tmp_path}/same/t")
    assert place_of(f"{tmp_path}/same/t") == place_of(f"file://{tmp_path}/w/t")


@pytest.mark.parametrize("location", [5, None, "a\nb", "s3://a/../b", ""])
def test_what_is_no_location(location, tmp_path):
    with pytest.raises(errors.InvalidArgumentError, match="location"):
        SqlCatalog(f"sqlite:///{tmp_path}/c.db", locations=[location])


def moved(folder):
    """A catalog whose table was created elsewhere."""
    url = f"sqlite:///{folder}/db/c.db"
    (folder / "db").mkdir()
    with SqlCatalog(url) as catalog:
        table = catalog.create_table("s.t", ROWS.schema, location=folder / "elsewhere")
        write_deltalake(table, ROWS, mode="append")
        assert catalog.table("s.t").count() == 1  # this client has named it
        background.settle()
    return url, folder / "elsewhere"


def test_a_client_names_the_locations_of_others(tmp_path):
    url, place = moved(tmp_path)
    with (
        SqlCatalog(url) as catalog,
        pytest.raises(errors.InvalidArgumentError, match="not below a location that this client was given") as raised,
    ):
        catalog.table("s.t")
    assert f"locations=['{place}']" in str(raised.value)
    assert "--locations" in str(raised.value)
    for locations in ([place], [tmp_path], str(tmp_path), iter([place.as_uri()])):
        with SqlCatalog(url, locations=locations) as catalog:
            assert catalog.table("s.t").count() == 1
            assert pickle.loads(pickle.dumps(catalog)).table("s.t").count() == 1
    assert open_catalog(url, locations=[place]).table("s.t").count() == 1


def test_the_default_is_the_warehouse_and_else_the_folder_of_the_file(tmp_path):
    url, _ = moved(tmp_path)
    for place in ("db/t", "w/t"):
        with SqlCatalog(url) as catalog:
            catalog.create_table(place.replace("/", "."), ROWS.schema, location=tmp_path / place)
    assert SqlCatalog(url).table("db.t").count() == 0
    assert SqlCatalog(url, warehouse=tmp_path / "w").table("w.t").count() == 0
    for catalog, name in ((SqlCatalog(url), "w.t"), (SqlCatalog(url, warehouse=tmp_path / "w"), "db.t"),
                          (SqlCatalog(url, locations=[]), "db.t")):  # fmt: skip
        with pytest.raises(errors.InvalidArgumentError, match="not below"):
            catalog.table(name)


@pytest.mark.parametrize("name", ["a\x1b[2J", "a\nb", "\u202ea", "a\x00", "x" * 1025, "a..b", ""])
def test_names_have_no_control_characters(name, tmp_path):
    catalog = SqlCatalog(f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "w")
    with pytest.raises(errors.InvalidArgumentError, match="the name of a table") as raised:
        catalog.create_table(name, ROWS.schema)
    assert str(raised.value).isprintable()
    assert not base.is_name(name)


# --- the locations of a server ---


def at(url, location, credentials=(), options=None, **given):
    """Open the store of a table, as a server with these credentials names its location."""

    class Granting(UnityCatalog):
        def _of_table(self, name):
            return unity.api.Credentials(storage_credentials=[*credentials])

    with Granting(url, "x" * 20, options, **given) as catalog:
        return catalog._store(Entry("a.b.c", location, True, "id")).uri


def key(prefix, **config):
    return unity.api.StorageCredential(prefix=prefix, operation="READ_WRITE", config=config)


S3 = {"s3.access-key-id": "a", "s3.secret-access-key": "b"}
ENDPOINT = {"endpoint_url": "http://localhost:1", "allow_http": "true"}


def test_a_server_elsewhere_names_no_folder_of_this_machine(tmp_path):
    with pytest.raises(errors.InvalidArgumentError, match="not below"):
        at("https://example.org", str(tmp_path / "t"))
    with pytest.raises(errors.InvalidArgumentError, match="not below"):
        at("https://example.org", f"file://{tmp_path}/t", [key(f"file://{tmp_path}", **S3)])
    assert at("https://example.org", str(tmp_path / "t"), locations=[tmp_path]).endswith("/t")
    assert at("http://localhost:1", str(tmp_path / "t")).endswith("/t")
    with pytest.raises(errors.InvalidArgumentError, match="not below"):
        at("http://localhost:1", str(tmp_path / "t"), locations=[tmp_path / "w"])


@pytest.mark.tier("test")
def test_the_keys_of_the_client_are_used_where_it_says():
    remote, place = "https://example.org", "s3://bucket/t"
    assert at(remote, place, [key("s3://bucket", **S3)], ENDPOINT) == place
    own = {**ENDPOINT, "aws_access_key_id": "mine", "aws_secret_access_key": "mine"}
    for credentials, options in (
        ([], own),
        ([], ENDPOINT),
        ([key("s3://bucket", **S3)], own),  # the client's own take precedence
        ([key("s3://other", **S3)], ENDPOINT),
        ([key("s3://bucket", **{"s3.access-key-id": "a"})], ENDPOINT),
    ):
        with pytest.raises(errors.InvalidArgumentError, match="not below"):
            at(remote, place, credentials, options)
        assert at(remote, place, credentials, {**own, **options}, locations=["s3://bucket"]) == place
    of_another_kind = [key("s3://bucket", **{"azure.sas-token": "a"})]
    for credentials, given in ((of_another_kind, {}), ([key("s3://bucket", **S3)], {"locations": ["s3://other"]})):
        with pytest.raises(errors.InvalidArgumentError, match="not below"):
            at(remote, place, credentials, ENDPOINT, **given)


def test_a_list_of_prefixes_travels_with_a_catalog(tmp_path):
    catalog = UnityCatalog("http://localhost:1", "x" * 20, locations=[tmp_path])
    again = pickle.loads(pickle.dumps(catalog))
    assert again._trusts(Entry("a.b.c", str(tmp_path / "t"), True, "id"))
    assert not again._trusts(Entry("a.b.c", "/etc", True, "id"))
    assert pickle.loads(pickle.dumps(UnityCatalog("http://localhost:1")))._trusts(Entry("a.b.c", "/etc", True, "id"))
