"""Names of log files, and the way from a path in an action to a key inside the table.

Tests of pruning.partition_folders.
"""

from __future__ import annotations

import string
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refdelta.core.log import paths
from refdelta.core.log.paths import (
    LogName,
    absolute_uri,
    data_key,
    encode_path,
    parse_log_name,
    same_path,
    sidecar_key,
)
from refdelta.errors import InvalidLogError, UnsafePathError
from refdelta.pruning.partition_folders import partition_prefix

TABLE = "file:///data/my%20table"
UUID = "3a0d65cd-4056-49b8-937b-95f9e3ee90e5"

versions = st.integers(0, paths.MAX_VERSION)
# Names that a file system can have: no NUL, no slash, not a dot segment, and encodable.
segments = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=12).filter(
    lambda s: s not in (".", "..")
)
keys = st.lists(segments, min_size=1, max_size=4).map("/".join)


@given(versions, versions)
def test_names_that_we_make_are_read_back(version, other):
    lo, hi = sorted((version, other))
    assert parse_log_name(paths.commit_key(version)) == LogName("commit", version, version)
    assert parse_log_name(paths.checksum_key(version)) == LogName("checksum", version, version)
    assert parse_log_name(paths.checkpoint_key(version)) == LogName("classic", version, version, format="parquet")
    if lo < hi:
        assert parse_log_name(paths.compacted_key(lo, hi)) == LogName("compacted", lo, hi)


@given(versions, versions)
def test_names_sort_as_versions_do(a, b):
    assert (paths.commit_key(a) < paths.commit_key(b)) == (a < b)


def test_other_checkpoint_names():
    v = f"{10:020d}"
    assert parse_log_name(f"{v}.checkpoint.{2:010d}.{3:010d}.parquet") == LogName("multipart", 10, 10, 2, 3, "parquet")
    assert parse_log_name(f"_delta_log/{v}.checkpoint.{UUID}.json") == LogName("uuid", 10, 10)
    assert parse_log_name(f"{v}.checkpoint.{UUID}.parquet") == LogName("uuid", 10, 10, format="parquet")
    assert parse_log_name(f"{v}.checkpoint.{UUID}.parquet").is_checkpoint
    assert not parse_log_name(f"{v}.json").is_checkpoint
    assert parse_log_name("_last_checkpoint").kind == "last_checkpoint"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "0.json",
        f"{1:021d}.json",
        f"{2**63:020d}.json",
        f"{1:020d}.json.tmp",
        f".{1:020d}.json.crc",
        f"{1:020d}.checkpoint.{0:010d}.{3:010d}.parquet",
        f"{1:020d}.checkpoint.{4:010d}.{3:010d}.parquet",
        f"{1:020d}.checkpoint.1.3.parquet",
        f"{1:020d}.checkpoint.{UUID}.orc",
        f"{1:020d}.checkpoint.json",
        f"{1:020d}.{1:020d}.compacted.json",
        f"{2:020d}.{1:020d}.compacted.json",
        f"_staged_commits/{1:020d}.{UUID}.json",
        f"_sidecars/{UUID}.parquet",
        f".tmp/{1:020d}.json",
        "\u0661" * 20 + ".json",
        f"{1:020d}.json\n",
    ],
)
def test_what_is_no_log_file(name):
    assert parse_log_name(name) is None


# --- paths in actions --------------------------------------------------------------------------------------------


@given(keys)
@example("a b/c%d/e#f/g?h/i+j/k=l/m&n")
@example("part=1969-01-01 00%3A00%3A00/x:y.parquet")
@example("ümläut/\u2028/\x7f")
def test_a_key_survives_the_log(key):
    encoded = encode_path(key)
    assert set(encoded) <= set(string.ascii_letters + string.digits + "/-_.~!*'()@&=+$,%")
    assert data_key(encoded, TABLE) == key
    assert data_key(f"file:///data/my%20table/{encoded}", TABLE) == key
    assert data_key(f"/data/my%20table/{encoded}", "/data/my table") == key


@given(keys)
def test_other_ways_to_encode_the_same(key):
    assert data_key(quote(key, safe="/"), TABLE) == key
    assert data_key("./" + quote(key, safe=""), TABLE) == key


@pytest.mark.parametrize(
    ("raw", "table", "key"),
    [
        ("a//b/./c", TABLE, "a/b/c"),
        ("part=2020-01-01%2008%253A09/x", TABLE, "part=2020-01-01 08%3A09/x"),
        ("file:/data/my%20table/x", TABLE, "x"),
        ("file://localhost/data/my%20table/x", TABLE, "x"),
        ("FILE:///data/my%20table/x", TABLE, "x"),
        ("s3a://Bucket/t/x", "s3://bucket/t", "x"),
        ("/t/x", "s3://bucket/t", "x"),
        ("memory://name/x", "memory://name", "x"),
        ("file:///data/t/x", "/data/t", "x"),
        ("file:///data/100%25/x", "/data/100%", "x"),
        ("..data/x", TABLE, "..data/x"),
        ("a/..b", TABLE, "a/..b"),
    ],
)
def test_paths_inside_the_table(raw, table, key):
    assert data_key(raw, table) == key


@pytest.mark.parametrize(
    "raw",
    [
        "",
        ".",
        "/",
        "..",
        "../other/x",
        "a/../../x",
        "a/../x",
        "%2e%2e/x",
        "a/%2E%2E/x",
        "a%2f..%2f..%2fx",
        "a%00b",
        "/elsewhere/f",
        "//host/share/x",
        "file:///elsewhere/f",
        "file:///data/my%20table2/x",
        "file:///data/my%20table",
        "file:///data/my%20table/../x",
        "file://host/data/my%20table/x",
        "s3://bucket/data/my%20table/x",
        "http://192.0.2.1/data/my%20table/x",
        "C:/x",
    ],
)
def test_paths_that_leave_the_table(raw):
    with pytest.raises(UnsafePathError, match="00000000000000000003"):
        data_key(raw, TABLE, file=paths.commit_key(3))


@pytest.mark.parametrize("raw", ["a%zz", "a%", "a%f", "%ff%fe/x"])
def test_broken_encoding(raw):
    with pytest.raises(InvalidLogError, match=r"x\.json"):
        data_key(raw, TABLE, file="x.json")


@given(st.text(max_size=40))
def test_no_path_reaches_outside(raw):
    try:
        key = data_key(raw, TABLE)
    except InvalidLogError:
        return
    assert key
    assert not key.startswith("/")
    assert not {"", ".", ".."} & set(key.split("/"))


@pytest.mark.parametrize(
    ("raw", "table", "uri"),
    [
        ("p=1/a%20b", "file:///data/t%25", "file:/data/t%25/p=1/a%20b"),
        ("a", "/data/t t", "file:/data/t%20t/a"),
        ("/other/a", "file:///data/t", "file:/other/a"),
        ("a", "s3://bucket/t/", "s3://bucket/t/a"),
        ("/u/a", "s3://bucket/t", "s3://bucket/u/a"),
        ("file:///x/a", "s3://bucket/t", "file:///x/a"),
    ],
)
def test_absolute_uris(raw, table, uri):
    assert absolute_uri(raw, table) == uri


def test_sidecars():
    assert sidecar_key(f"{UUID}.parquet") == f"_delta_log/_sidecars/{UUID}.parquet"
    assert sidecar_key(f"{TABLE}/_delta_log/_sidecars/a.parquet", TABLE) == "_delta_log/_sidecars/a.parquet"
    for bad in ("../x.parquet", "file:///elsewhere/x.parquet", f"{TABLE}/x.parquet", "/x"):
        with pytest.raises(UnsafePathError):
            sidecar_key(bad, TABLE)


# --- partition folders -------------------------------------------------------------------------------------------


def test_partition_folders_are_named_as_spark_names_them():
    values = {"a": "1", "b c": None, "d": "x/y=z:%\\'\"", "e": ""}
    assert partition_prefix(["a", "b c", "d", "e"], values) == (
        "a=1/b c=__HIVE_DEFAULT_PARTITION__/d=x%2Fy%3Dz%3A%25%5C%27%22/e=__HIVE_DEFAULT_PARTITION__"
    )
    assert partition_prefix([], {}) == ""


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_a_partition_value_is_one_segment_and_can_be_told_apart(value):
    prefix = partition_prefix(["p"], {"p": value})
    assert data_key(encode_path(f"{prefix}/f"), TABLE) == f"{prefix}/f"
    assert prefix.count("/") == 0
    assert prefix.count("=") == 1
    if value:
        escaped = prefix.removeprefix("p=")
        assert "".join(_unescape(escaped)) == value


def _unescape(text):
    position = 0
    while position < len(text):
        if text[position] == "%":
            yield chr(int(text[position + 1 : position + 3], 16))
            position += 3
        else:
            yield text[position]
            position += 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a b/c", "a%20b/c"),
        ("p=%C3%BC/x", "p=ü/x"),
        ("/some/place", "file:/some/place"),
        ("file:///some/place", "file:/some/place"),
        ("file:/with%20space/p%40h", "/with space/p@h"),
        ("s3a://bucket/x", "s3://bucket/x"),
        ("./a/b", "a/b"),
        ("a//b/./c", "a/b/c"),
        ("file:/some//./place", "/some/place"),
    ],
)
def test_spellings_of_one_path_are_the_same(one, other):
    assert same_path(one) == same_path(other)


def test_a_relative_path_is_never_the_absolute_one():
    assert same_path("x") != same_path("/x")
    assert same_path("s3://a/x") != same_path("s3://b/x")
    assert same_path("a/b") == "a/b"
