"""Requests to S3, Azure's blob service or GCS: the operation of each, and the kind of the object that it names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import unescape
from typing import Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from refdelta.proxy.messages import Message

_KINDS = (
    ("commit", re.compile(r"(?:^|/)_delta_log/(?:_staged_commits/)?\d{20}\.(?:[0-9a-f-]{36}\.)?json$")),
    ("checksum", re.compile(r"(?:^|/)_delta_log/\d{20}\.crc$")),
    ("checkpoint", re.compile(r"(?:^|/)_delta_log/\d{20}\.checkpoint\.")),
    ("sidecar", re.compile(r"(?:^|/)_delta_log/_sidecars/")),
    ("hint", re.compile(r"(?:^|/)_delta_log/_last_checkpoint$")),
    ("probe", re.compile(r"(?:^|/)\.refdelta-probe-")),
    ("log", re.compile(r"(?:^|/)_delta_log(?:/|$)")),
    ("vectors", re.compile(r"deletion_vector_[^/]*\.bin$")),
    ("data", re.compile(r"\.parquet$")),
    ("bucket", re.compile(r"^$")),
)


class Origin(Protocol):
    """The server that a proxy stands before."""

    @property
    def scheme(self) -> str:
        """``s3``, ``abfs`` or ``gs``."""

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port at which it listens."""

    def understood(self, request: Message) -> Message:
        """A request in the form that the server understands; the request itself where it needs no translation."""

    def answered(self, reply: Message) -> Message:
        """The reply to a request that was translated."""


@dataclass
class Request:
    """A request as it came.

    Attributes:
        method: GET, HEAD, PUT, DELETE or POST as the request has it, and LIST, DELETE-MANY, PART (of an upload) or
            FINISH (of an upload) for the operations with these meanings.
        key: the object's name, or the prefix of a listing; of several objects that are deleted the first.
        kind: commit, checksum, checkpoint, sidecar, hint (the last checkpoint), log (else of the log), vectors, data,
            probe, bucket, or other.
        range: the bytes that it asks for, such as ``bytes=0-99``, or an empty text.
        conditional: whether it creates an object only if there is none.
        body: bytes of its body.
        status: the status of the server's reply, or 0 without one.
        reply: bytes of the body of the server's reply.
        fault: the fault that it met, or None.

    Example:
        >>> from refdelta.proxy import Request
        >>> str(Request("PUT", "t/_delta_log/00000000000000000001.json", "commit", "", True, 100))
        'PUT commit'
    """

    method: str
    key: str
    kind: str
    range: str
    conditional: bool
    body: int
    status: int = 0
    reply: int = 0
    fault: str | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.kind}"


def kind_of(key: str) -> str:
    """The kind of the object with this name, as :attr:`Request.kind`."""
    return next((name for name, pattern in _KINDS if pattern.search(key)), "other")


def understand(message: Message, scheme: str) -> Request:
    """The operation and the object of a request.

    Args:
        message: the request. It names the bucket in its path and not in its host, and of Azure the account before it.
        scheme: ``s3``, ``abfs`` or ``gs``.
    """
    verb, target, _ = message.first_line
    parts = urlsplit(target)
    query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    path = unquote(parts.path).lstrip("/")
    if scheme == "gs" and "/storage/v1/b/" in parts.path:
        method, key = _of_google(message, verb, path, query)
    else:
        bucket, _, key = (path.partition("/")[2] if scheme == "abfs" else path).partition("/")
        method = _operation(verb, key, query)
        if method == "LIST":
            key = query.get("prefix", "")
        elif method == "DELETE-MANY":
            key = _first_deleted(message.body, bucket)
    return Request(
        method,
        key,
        kind_of(key),
        message.header("range") or message.header("x-ms-range"),
        message.header("if-none-match") == "*"
        or message.header("x-goog-if-generation-match") == "0"
        or query.get("ifGenerationMatch") == "0",
        len(message.body),
    )


def _of_google(message: Message, verb: str, path: str, query: Mapping[str, str]) -> tuple[str, str]:
    key = query.get("name") or path.partition("/b/")[2].partition("/")[2].removeprefix("o").removeprefix("/")
    match verb:
        case "POST" if query.get("uploadType") == "media":
            return "PUT", key
        case "POST" if "upload_id" in query:
            return ("PART" if message.header("content-range").endswith("/*") else "FINISH"), key
        case "GET" if not key:
            return "LIST", query.get("prefix", "")
        case "GET" if query.get("alt") != "media":
            return "HEAD", key
    return verb, key


def _operation(verb: str, key: str, query: Mapping[str, str]) -> str:
    comp = query.get("comp", "")
    match verb:
        case "GET" if not key and ("list-type" in query or comp == "list" or "prefix" in query or "delimiter" in query):
            return "LIST"
        case "POST" if "delete" in query or comp == "batch":
            return "DELETE-MANY"
        case "PUT" if "uploadId" in query or comp == "block":
            return "PART"
        case "POST" if "uploadId" in query:
            return "FINISH"
        case "PUT" if comp == "blocklist":
            return "FINISH"
    return verb


def _first_deleted(body: bytes, bucket: str) -> str:
    """The first key of a list of S3's, or of the requests that a batch of Azure's consists of."""
    _, found, rest = body.partition(b"<Key>")
    if found:
        return unescape(rest.partition(b"<")[0].decode())
    target = body.partition(b"\r\nDELETE ")[2].split(b" ")[0].split(b"?")[0]
    return unquote(target.partition(f"/{bucket}/".encode())[2].decode())
