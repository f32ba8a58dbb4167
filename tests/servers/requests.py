"""What a request to S3, Azure's blob service or GCS is about: the operation, and the kind of object it names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import unescape
from urllib.parse import parse_qs, unquote, urlsplit

from servers.messages import Message
from servers.running import AZURE_ACCOUNT, BUCKET

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


@dataclass
class Seen:
    """A request as it came.

    Attributes:
        method: GET, HEAD, PUT, DELETE or POST as the request has it, and LIST, DELETE-MANY, PART (of an upload) or
            FINISH (of an upload) where that is what it asks for.
        key: the object's name, or the prefix of a listing; of several objects that are deleted the first.
        kind: commit, checksum, checkpoint, sidecar, hint (the last checkpoint), log (else of the log), vectors, data,
            probe, bucket, or other.
        range: the bytes that it asks for, such as ``bytes=0-99``, or an empty text.
        conditional: whether it creates an object only where none is.
        body: bytes sent.
        status: of the server's reply, or 0 where there was none.
        fault: what it met, or None.
    """

    method: str
    key: str
    kind: str
    range: str
    conditional: bool
    body: int
    status: int = 0
    fault: str | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.kind}"


def kind_of(key: str) -> str:
    """The kind of the object with this name."""
    return next((name for name, pattern in _KINDS if pattern.search(key)), "other")


def understand(request: Message) -> Seen:
    """What this request is about."""
    verb, target, _ = request.first_line
    parts = urlsplit(target)
    query = parse_qs(parts.query, keep_blank_values=True)
    if "/storage/v1/b/" in parts.path:
        return _of_google(request, verb, parts.path, {name: values[0] for name, values in query.items()})
    path = unquote(parts.path).lstrip("/").removeprefix(f"{AZURE_ACCOUNT}/")
    key = path.removeprefix(BUCKET).lstrip("/")
    method = _operation(verb, key, query)
    if method == "LIST":
        key = (query.get("prefix") or [""])[0]
    elif method == "DELETE-MANY":
        key = _first_deleted(request.body)
    return Seen(
        method,
        key,
        kind_of(key),
        request.header("range") or request.header("x-ms-range"),
        request.header("if-none-match") == "*" or request.header("x-goog-if-generation-match") == "0",
        len(request.body),
    )


def _of_google(request: Message, verb: str, path: str, query: dict[str, str]) -> Seen:
    key = query.get("name") or unquote(path.partition(f"/b/{BUCKET}/o")[2].removeprefix("/"))
    match verb:
        case "POST" if query.get("uploadType") == "media":
            method = "PUT"
        case "POST" if "upload_id" in query:
            method = "PART" if request.header("content-range").endswith("/*") else "FINISH"
        case "GET" if not key:
            method, key = "LIST", query.get("prefix", "")
        case "GET" if query.get("alt") != "media":
            method = "HEAD"
        case _:
            method = verb
    conditional = query.get("ifGenerationMatch") == "0"
    return Seen(method, key, kind_of(key), request.header("range"), conditional, len(request.body))


def _operation(verb: str, key: str, query: dict[str, list[str]]) -> str:
    comp = (query.get("comp") or [""])[0]
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
        case _:
            return verb


def _first_deleted(body: bytes) -> str:
    # S3 has a list of keys, Azure a request for each.
    found = re.search(rb"<Key>([^<]+)</Key>", body) or re.search(
        rb"DELETE [^ ?]*?/" + BUCKET.encode() + rb"/([^ ?]+)", body
    )
    return "" if found is None else unescape(unquote(found[1].decode()))
