"""Requests as clients of S3, Azure and GCS send them: their operation, their object, and their conditions."""

from __future__ import annotations

import pytest

from refdelta.proxy.messages import Message
from refdelta.proxy.requests import kind_of, understand

COMMIT = "_delta_log/00000000000000000007.json"


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("t/_delta_log/00000000000000000007.json", "commit"),
        ("t/_delta_log/00000000000000000007.crc", "checksum"),
        ("t/_delta_log/00000000000000000007.checkpoint.parquet", "checkpoint"),
        ("t/_delta_log/_sidecars/x.parquet", "sidecar"),
        ("t/_delta_log/_last_checkpoint", "hint"),
        ("t/_delta_log/", "log"),
        ("t/p=1/part-0-x.parquet", "data"),
        ("t/deletion_vector_61d16c75-6994-46b7-a15b-8b538852e50e.bin", "vectors"),
        ("t/.refdelta-probe-1", "probe"),
        ("", "bucket"),
        ("t/readme", "other"),
    ],
)
def test_kinds_of_objects(key, kind):
    assert kind_of(key) == kind


def understood(scheme, line, *headers, body=b""):
    return understand(Message("\r\n".join([f"{line} HTTP/1.1", *headers, "", ""]).encode(), body), scheme)


@pytest.mark.parametrize(
    ("scheme", "line", "method", "key"),
    [
        ("s3", f"PUT /any-bucket/a%20b/{COMMIT}", "PUT", f"a b/{COMMIT}"),
        ("s3", "GET /other?list-type=2&prefix=t%2F_delta_log%2F", "LIST", "t/_delta_log/"),
        ("s3", "GET /other/?delimiter=%2F", "LIST", ""),
        ("s3", "HEAD /b/t/x.parquet", "HEAD", "t/x.parquet"),
        ("s3", "POST /b/t/x.parquet?uploads", "POST", "t/x.parquet"),
        ("s3", "PUT /b/t/x.parquet?partNumber=1&uploadId=7", "PART", "t/x.parquet"),
        ("s3", "POST /b/t/x.parquet?uploadId=7", "FINISH", "t/x.parquet"),
        ("abfs", f"PUT /account/container/t/{COMMIT}", "PUT", f"t/{COMMIT}"),
        ("abfs", "GET /account/container?restype=container&comp=list&prefix=t/", "LIST", "t/"),
        ("abfs", "PUT /account/container/t/x.parquet?comp=block&blockid=MQ", "PART", "t/x.parquet"),
        ("abfs", "PUT /account/container/t/x.parquet?comp=blocklist", "FINISH", "t/x.parquet"),
        ("gs", f"POST /upload/storage/v1/b/any/o?uploadType=media&name=t%2F{COMMIT}", "PUT", f"t/{COMMIT}"),
        ("gs", "GET /storage/v1/b/any/o?prefix=t%2F", "LIST", "t/"),
        ("gs", "GET /storage/v1/b/any/o/t%2Fx.parquet", "HEAD", "t/x.parquet"),
        ("gs", "GET /download/storage/v1/b/any/o/t%2Fx.parquet?alt=media", "GET", "t/x.parquet"),
        ("gs", "PUT /upload/storage/v1/b/any/o?upload_id=7&name=t%2Fx", "PUT", "t/x"),
        ("gs", "PUT /any/t/x.parquet", "PUT", "t/x.parquet"),
        ("gs", "DELETE /storage/v1/b/any/o/t%2Fx.parquet", "DELETE", "t/x.parquet"),
    ],
)
def test_the_operation_and_its_object_whatever_the_bucket_is_called(scheme, line, method, key):
    found = understood(scheme, line)
    assert (found.method, found.key, found.kind) == (method, key, kind_of(key))


@pytest.mark.parametrize(
    ("scheme", "line", "body"),
    [
        (
            "s3",
            "POST /b?delete",
            b"<Delete><Object><Key>t/a&amp;b</Key></Object><Object><Key>u</Key></Object>",
        ),
        ("abfs", "POST /account/b?restype=container&comp=batch", b"--x\r\n\r\nDELETE /b/t/a%26b? HTTP/1.1\r\n\r\n"),
        ("abfs", "POST /account/b?comp=batch", b"--x\r\n\r\nDELETE /account/b/t/a%26b HTTP/1.1\r\n\r\n"),
    ],
)
def test_of_several_deleted_objects_the_first(scheme, line, body):
    found = understood(scheme, line, body=body)
    assert (found.method, found.key, found.body) == ("DELETE-MANY", "t/a&b", len(body))


@pytest.mark.parametrize(
    ("scheme", "line", "headers", "conditional"),
    [
        ("s3", "PUT /b/t/x", ["If-None-Match: *"], True),
        ("s3", "PUT /b/t/x", [], False),
        ("gs", "PUT /b/t/x", ["x-goog-if-generation-match: 0"], True),
        ("gs", "POST /upload/storage/v1/b/b/o?uploadType=media&name=t&ifGenerationMatch=0", [], True),
    ],
)
def test_conditions(scheme, line, headers, conditional):
    assert understood(scheme, line, *headers).conditional is conditional


def test_ranges():
    assert understood("s3", "GET /b/t/x", "Range: bytes=0-9").range == "bytes=0-9"
    assert understood("abfs", "GET /a/b/t/x", "x-ms-range: bytes=5-").range == "bytes=5-"
