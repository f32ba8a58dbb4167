"""versitygw, Azurite and fake-gcs-server as processes of this test run: started on a free port, stopped."""

from __future__ import annotations

import abc
import contextlib
import ctypes
import http.client
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from refdelta.proxy.messages import Message
from servers.install import azurite, fake_gcs, versitygw

BUCKET = "tables"
"""The bucket, or container, that every server starts with."""

# Azurite knows one account, whose key stands in its documentation.
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
S3_TEMPORARY = r"(?:.*/)?\.[^/]*\.sgwtmp\.[0-9]+"
"""Matches the keys that versitygw lists for a moment while it replaces an object: the new content, by a hidden name."""
S3_KEY, S3_SECRET = "refdelta-test-id", "refdelta-test-secret"

_STARTS_WITHIN = 120.0
_numbers = itertools.count()


@dataclass(frozen=True)
class Place:
    """Where a table may be: its URI, and the storage options that open it."""

    uri: str
    options: dict[str, Any]


class Server(abc.ABC):
    """One server process. It may be killed and started again, and keeps its port and its folder."""

    scheme: str

    def __init__(self, folder: Path | None = None) -> None:
        self._own_folder = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="refdelta-server-")) if folder is None else folder
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._started = False

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port, for a proxy before it."""
        return "127.0.0.1", self.port

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Server:
        """Start it and wait until it answers.

        The first start tries another port where its own has been taken.
        """
        if self._started:
            self._launch()
        else:
            launch_on_a_free_port(self, self._launch, self.kill)
        self._started = True
        self._prepare()
        return self

    def _launch(self) -> None:
        log = (self.folder / "log").open("ab")
        with log:
            self._process = subprocess.Popen(
                self._command(),
                stdout=log,
                stderr=log,
                env={**os.environ, **self._environment()},
                preexec_fn=_die_with_us,  # noqa: PLW1509 - one system call, of a library that is loaded already
            )
        self._wait()

    def kill(self) -> None:
        """SIGKILL: requests in flight are cut."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def restart(self) -> None:
        """Kill it and start it again, with all that it has acknowledged."""
        self.kill()
        self.start()

    def stop(self) -> None:
        """Stop it and remove its folder, if it made it."""
        if self._process is not None:
            self.kill()
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def place(self, name: str = "t", *, endpoint: str | None = None) -> Place:
        """A fresh place for a table, which no other call gets; ``endpoint`` leads there another way, as by a proxy."""
        return Place(f"{self.scheme}://{BUCKET}/{os.getpid()}-{next(_numbers)}/{name}", self.options(endpoint))

    def understood(self, request: Message) -> Message:
        """A request as the server understands it, where a proxy has to translate."""
        return request

    def answered(self, reply: Message) -> Message:
        """The reply to a request that was translated."""
        return reply

    @abc.abstractmethod
    def options(self, endpoint: str | None = None) -> dict[str, Any]:
        """Storage options, as users of fsspec's file system write them."""

    @abc.abstractmethod
    def of_deltalake(self, endpoint: str | None = None) -> dict[str, str]:
        """Storage options by deltalake's names."""

    @abc.abstractmethod
    def _command(self) -> list[str]:
        """What starts it."""

    def _environment(self) -> dict[str, str]:
        return {}

    def _prepare(self) -> None:  # noqa: B027 - a server may need nothing
        """What has to be there before the first test."""

    def _wait(self) -> None:
        assert self._process is not None
        until = time.monotonic() + _STARTS_WITHIN
        while time.monotonic() < until:
            if self._process.poll() is not None:
                break
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_STARTS_WITHIN)
                connection.request("GET", "/")
                connection.getresponse().read()
                connection.close()
                return
            time.sleep(0.02)
        raise RuntimeError(f"{self._command()[0]} did not start: {(self.folder / 'log').read_text()[-2000:]}")


class S3Server(Server):
    """versitygw over a folder: an object is a file of :attr:`objects`, so that any program can read what is there."""

    scheme = "s3"

    @property
    def objects(self) -> Path:
        """The folder that is the bucket."""
        return self.folder / "buckets" / BUCKET

    def path(self, uri: str) -> Path:
        """The folder behind a URI of this server."""
        return self.objects / uri.removeprefix(f"s3://{BUCKET}/")

    def options(self, endpoint: str | None = None) -> dict[str, Any]:
        return {"key": S3_KEY, "secret": S3_SECRET, "endpoint_url": endpoint or self.endpoint}

    def of_deltalake(self, endpoint: str | None = None) -> dict[str, str]:
        login = {"AWS_ACCESS_KEY_ID": S3_KEY, "AWS_SECRET_ACCESS_KEY": S3_SECRET, "AWS_REGION": "us-east-1"}
        return {**login, "AWS_ENDPOINT_URL": endpoint or self.endpoint, "AWS_ALLOW_HTTP": "true"}

    def _environment(self) -> dict[str, str]:
        return {"ROOT_ACCESS_KEY": S3_KEY, "ROOT_SECRET_KEY": S3_SECRET}

    def _command(self) -> list[str]:
        self.objects.mkdir(parents=True, exist_ok=True)
        command = [str(versitygw()), "--port", f"127.0.0.1:{self.port}", "--quiet", "posix"]
        if not _has_attributes(self.folder):
            # The second best: a kill between an object and the file that describes it leaves a name at which nothing
            # can be read, and nothing created.
            (self.folder / "metadata").mkdir(exist_ok=True)
            command += ["--sidecar", str(self.folder / "metadata")]
        return [*command, str(self.objects.parent)]


class AzureServer(Server):
    """Azurite with its blobs on disk, so that they outlive a restart; not a kill: it notes down its blobs by and by."""

    scheme = "abfs"

    def restart(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(_STARTS_WITHIN)
        self.start()

    def options(self, endpoint: str | None = None) -> dict[str, Any]:
        return {"connection_string": self.connection_string(endpoint)}

    def of_deltalake(self, endpoint: str | None = None) -> dict[str, str]:
        login = {"azure_storage_account_name": AZURE_ACCOUNT, "azure_storage_account_key": AZURE_KEY}
        where = f"{endpoint or self.endpoint}/{AZURE_ACCOUNT}"
        return {**login, "azure_storage_endpoint": where, "allow_http": "true"}

    def connection_string(self, endpoint: str | None = None) -> str:
        return (
            f"DefaultEndpointsProtocol=http;AccountName={AZURE_ACCOUNT};AccountKey={AZURE_KEY};"
            f"BlobEndpoint={endpoint or self.endpoint}/{AZURE_ACCOUNT};"
        )

    def _command(self) -> list[str]:
        node = shutil.which("node") or "node"
        return [
            *(node, str(azurite()), "--location", str(self.folder), "--skipApiVersionCheck", "--silent"),
            *("--blobHost", "127.0.0.1", "--blobPort", str(self.port), "--disableTelemetry"),
        ]

    def _prepare(self) -> None:
        from azure.core.exceptions import ResourceExistsError
        from azure.storage.blob import BlobServiceClient

        with (
            BlobServiceClient.from_connection_string(self.connection_string()) as client,
            contextlib.suppress(ResourceExistsError),
        ):
            client.create_container(BUCKET)


class GcsServer(Server):
    """fake-gcs-server with its objects in memory: what it has is gone when it ends."""

    scheme = "gs"

    def options(self, endpoint: str | None = None) -> dict[str, Any]:
        return {"token": "anon", "endpoint_url": endpoint or self.endpoint}

    def of_deltalake(self, endpoint: str | None = None) -> dict[str, str]:
        account = {"gcs_base_url": endpoint or self.endpoint, "disable_oauth": True}
        nobody = {"client_email": "", "private_key": "", "private_key_id": ""}
        return {"google_service_account_key": json.dumps({**account, **nobody})}

    def understood(self, request: Message) -> Message:
        """Of Google's XML interface, which obstore speaks, it has no PUT: that is an upload by the JSON interface."""
        verb, target, version = request.first_line
        name = target.partition(f"/{BUCKET}/")[2]
        if verb != "PUT" or not target.startswith(f"/{BUCKET}/"):
            return request
        condition = request.header("x-goog-if-generation-match")
        query = f"uploadType=media&name={quote(unquote(name), safe='')}"
        query += f"&ifGenerationMatch={condition}" if condition else ""
        line = f"POST /upload/storage/v1/b/{BUCKET}/o?{query} {version}"
        return Message(line.encode() + request.head[request.head.index(b"\r\n") :], request.body)

    def answered(self, reply: Message) -> Message:
        """With the tag of the object as a header, as the XML interface has it."""
        found = re.search(rb'"etag":\s*"([^"]*)"', reply.body)
        if found is None or reply.header("etag"):
            return reply
        return Message(reply.head[:-2] + b'ETag: "' + found[1] + b'"\r\n\r\n', reply.body)

    def _command(self) -> list[str]:
        host = ["-host", "127.0.0.1", "-port", str(self.port), "-public-host", "127.0.0.1"]
        return [str(fake_gcs()), "-scheme", "http", "-backend", "memory", "-log-level", "error", *host]

    def _prepare(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_STARTS_WITHIN)
        body = f'{{"name": "{BUCKET}"}}'
        connection.request("POST", "/storage/v1/b?project=test", body, {"Content-Type": "application/json"})
        if (status := connection.getresponse().status) != 200:
            raise RuntimeError(f"fake-gcs-server made no bucket: {status}")
        connection.close()


def launch_on_a_free_port(server: Any, launch: Callable[[], None], end: Callable[[], None]) -> None:
    """Start a server for the first time, on one of three ports.

    Between the look for a free port and the start, another run of the tests may have taken it.

    Args:
        server: its attribute ``port`` is the port of the next start.
        launch: starts it and waits until it answers. Raises ``RuntimeError`` if it does not.
        end: ends the process of a start that failed.
    """
    for attempts_left in (2, 1, 0):
        try:
            launch()
            return
        except RuntimeError:
            if not attempts_left:
                raise
            end()
            server.port = _free_port()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _has_attributes(folder: Path) -> bool:
    """Whether files there can have attributes of users, in which the server describes its objects."""
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        try:
            os.setxattr(file.name, "user.refdelta", b"1")
        except (OSError, AttributeError):
            return False
    return True


_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def _die_with_us() -> None:
    """A test run that is killed takes its servers with it."""
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
