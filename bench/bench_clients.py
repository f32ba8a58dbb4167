"""The clients of object stores: s3fs and adlfs, which are refdelta's default, next to obstore (``client: obstore``).

The servers are versitygw and Azurite on this machine, without latency, so what differs is the work of the client. The
figure ``CPU ms`` is the processor time of the process that does the work, all its threads included, and not that of the
server, which wall time has as well.

*Appends* are ten rows each, with a handle that is kept: the data file and the entry, one put each, and in the
background the checksum. The floor writes the same rows by pyarrow, and sends both puts, the second one conditional, by
``http.client`` over one connection. Their addresses are signed before the clock starts.

*Opening* is the first read of the log of 1,000 commits without a checkpoint, a file of a few hundred bytes each: a
listing, and a get of each commit. Every sample is a process that has imported all packages, and has sent no request.
The floor sends the same gets by ``http.client`` over one connection, one after the other, and decodes the JSON.

*Start* is a new process from its start to its end, the interpreter's included, which imports refdelta and opens a store
there. No request is sent. The floor imports refdelta and opens a local folder.
"""

from __future__ import annotations

import http.client
import io
import itertools
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import adlfs
import deltalake
import fresh
import obstore
import pyarrow.parquet as pq
import pytest
import s3fs
from azure.storage.blob import BlobSasPermissions, generate_blob_sas
from bench_appends import ROWS, append_deltalake, append_refdelta
from bench_log import RARELY, SCHEMA, STATS
from botocore.config import Config
from botocore.session import Session
from contest import Engine

import refdelta
import refdelta.api.writer  # where it is used, it is imported
import refdelta.engine.log.commits
import refdelta.engine.log.snapshot
import refdelta_storage.obstore_store  # noqa: F401 - likewise
from refdelta_storage import open_store
from servers.install import ServerUnavailableError
from servers.running import AZURE_ACCOUNT, AZURE_KEY, S3_KEY, S3_SECRET, AzureServer, GcsServer, Place, S3Server, Server

OBSTORE = "refdelta, obstore"
CLIENTS = {"S3": f"s3fs {s3fs.__version__}", "Azure": f"adlfs {adlfs.__version__}", "GCS": "gcsfs"}
NOWHERE = "http://127.0.0.1:9"
_LINE = b'{"commitInfo":{}}\n{"add":{"path":"part-0.parquet","partitionValues":{},"size":1,"dataChange":true}}\n'
_numbers = itertools.count()


@pytest.fixture(scope="module", params=["S3", "Azure"])
def server(request):
    try:
        server = (S3Server if request.param == "S3" else AzureServer)().start()
    except ServerUnavailableError as error:
        pytest.skip(str(error))
    yield server
    server.stop()


def service(server: Server) -> str:
    return "S3" if isinstance(server, S3Server) else "Azure"


def by_obstore(options: dict[str, Any]) -> dict[str, Any]:
    return {**options, "client": "obstore"}


class Bare:
    """Requests by ``http.client`` over one connection, to addresses that are signed beforehand."""

    def __init__(self, server: Server, uri: str) -> None:
        self._server, self._place = server, urlsplit(uri)
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port)
        self._headers = {} if isinstance(server, S3Server) else {"x-ms-blob-type": "BlockBlob"}
        self.close = self._connection.close

    @cached_property
    def _amazon(self) -> Any:
        return Session().create_client(
            "s3",
            region_name="us-east-1",
            endpoint_url=self._server.endpoint,
            aws_access_key_id=S3_KEY,
            aws_secret_access_key=S3_SECRET,
            config=Config(signature_version="s3v4"),
        )

    def signed(self, method: str, name: str) -> str:
        """The address of an object, which permits one request for an hour."""
        key, bucket = f"{self._place.path[1:]}/{name}", self._place.netloc
        if isinstance(self._server, S3Server):
            url = self._amazon.generate_presigned_url(f"{method}_object", {"Bucket": bucket, "Key": key}, 3600)
            return str(url).removeprefix(self._server.endpoint)
        query = generate_blob_sas(
            AZURE_ACCOUNT,
            bucket,
            key,
            account_key=AZURE_KEY,
            permission=BlobSasPermissions(read=True, write=True, create=True),
            expiry=datetime.now(UTC) + timedelta(hours=1),
        )
        return f"/{AZURE_ACCOUNT}/{bucket}/{key}?{query}"

    def put(self, address: str, data: bytes, **conditions: str) -> None:
        self._connection.request("PUT", address, data, {**self._headers, **conditions})
        reply = self._connection.getresponse()
        body = reply.read()
        assert reply.status in (200, 201), body


def timed(run: Callable[..., object], commits: int) -> Callable[..., dict[str, float]]:
    """The run, which returns the processor time of a commit."""

    def measured(*given: Any) -> dict[str, float]:
        begun = time.process_time()
        run(*given)
        return {"CPU ms": 1_000 * (time.process_time() - begun) / commits}

    return measured


def bench_clients_appends(contest, size, server):
    commits = size(smoke=2, default=40, full=200)

    def created(options: dict[str, Any]) -> refdelta.DeltaTable:
        place = server.place()
        return refdelta.DeltaTable.create(place.uri, SCHEMA, configuration=RARELY, storage_options=options)

    def opened() -> deltalake.DeltaTable:
        return deltalake.DeltaTable(created(server.options()).table_uri, storage_options=server.of_deltalake())

    def check(table: Any) -> None:
        table.update_incremental()
        assert table.to_pyarrow_table().num_rows == commits * ROWS.num_rows

    def signed() -> tuple[Bare, list[tuple[str, str]]]:
        bare = Bare(server, server.place().uri)
        names = [(f"part-{n}.parquet", f"_delta_log/{n:020}.json") for n in range(commits)]
        return bare, [(bare.signed("put", data), bare.signed("put", entry)) for data, entry in names]

    def floor(given: tuple[Bare, list[tuple[str, str]]]) -> None:
        bare, addresses = given
        for data, entry in addresses:
            pq.write_table(ROWS, buffer := io.BytesIO())
            bare.put(data, buffer.getvalue())
            bare.put(entry, _LINE, **{"If-None-Match": "*"})

    kept, puts = "handle kept", "write_table, two puts by http.client"
    own = timed(lambda table: append_refdelta(table, commits), commits)
    theirs = timed(lambda table: append_deltalake(table, commits), commits)
    options = server.options()
    contest.run(
        [
            Engine("refdelta", own, partial(created, options), check, f"{CLIENTS[service(server)]}, {kept}"),
            Engine(OBSTORE, own, partial(created, by_obstore(options)), check, f"{obstore.__version__}, {kept}"),
            Engine("deltalake", theirs, opened, check, f"{deltalake.__version__}, {kept}"),
            Engine("floor", timed(floor, commits), signed, lambda given: given[0].close(), puts),
        ],
        units=commits,
        unit="append",
        store=service(server),
        rows=ROWS.num_rows,
    )


def written(server: Server, commits: int) -> Place:
    """A table with a log of commits that add a file each, which does not exist, and without a checkpoint."""
    place = server.place()
    refdelta.DeltaTable.create(place.uri, SCHEMA, storage_options=place.options)
    store = open_store(place.uri, place.options)

    def put(version: int) -> None:
        add = {"path": f"part-{version:012}.parquet", "partitionValues": {}, "size": 1_000, "dataChange": True}
        actions = [
            {"commitInfo": {"timestamp": 1_760_000_000_000 + version, "operation": "WRITE"}},
            {"add": {**add, "modificationTime": 1_760_000_000_000, "stats": STATS}},
        ]
        store.put(f"_delta_log/{version:020}.json", "".join(f"{json.dumps(one)}\n" for one in actions).encode())

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put, range(1, commits)))
    return place


def open_refdelta(uri: str, options: dict[str, Any]) -> tuple[int, float]:
    """The number of files, and the processor time of the process, in seconds."""
    begun = time.process_time()
    return len(refdelta.DeltaTable(uri, storage_options=options).file_uris()), time.process_time() - begun


def open_deltalake(uri: str, options: dict[str, str]) -> tuple[int, float]:
    begun = time.process_time()
    return len(deltalake.DeltaTable(uri, storage_options=options).file_uris()), time.process_time() - begun


def open_floor(port: int, addresses: str) -> tuple[int, float]:
    begun, files = time.process_time(), 0
    connection = http.client.HTTPConnection("127.0.0.1", port)
    for address in Path(addresses).read_text().splitlines():
        connection.request("GET", address)
        lines = connection.getresponse().read().splitlines()
        files += sum("add" in json.loads(line) for line in lines)
    connection.close()
    return files, time.process_time() - begun


def bench_clients_opening(contest, size, folder, server):
    commits = size(smoke=12, default=1_000)
    place = written(server, commits)
    bare = Bare(server, place.uri)
    addresses = folder / "addresses"
    names = [f"_delta_log/{version:020}.json" for version in range(commits)]
    addresses.write_text("\n".join(bare.signed("get", name) for name in names))

    def engine(name: str, function: str, *arguments: Any, settings: str) -> Engine:
        def run(process: fresh.Ready) -> dict[str, float]:
            told = process.go()
            files, processor = told.result
            assert files == commits - 1
            return {"CPU ms": 1_000 * processor, "peak MB": told.peak / 1e6}

        before = partial(fresh.ready, f"bench_clients:{function}", *arguments)
        return Engine(name, run, before, fresh.Ready.end, settings)

    options, uri = place.options, place.uri
    contest.run(
        [
            engine("refdelta", "open_refdelta", uri, options, settings=CLIENTS[service(server)]),
            engine(OBSTORE, "open_refdelta", uri, by_obstore(options), settings=obstore.__version__),
            engine("deltalake", "open_deltalake", uri, server.of_deltalake(), settings=deltalake.__version__),
            engine("floor", "open_floor", server.port, str(addresses), settings="gets by http.client, json"),
        ],
        store=service(server),
        commits=commits,
    )


_START = """
import json, sys
from refdelta import DeltaTable
from refdelta_storage import open_store
open_store(sys.argv[1], json.loads(sys.argv[2]))
print(open("/proc/self/status").read())
"""
_OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "S3": ("s3://bucket/t", {"key": S3_KEY, "secret": S3_SECRET, "endpoint_url": NOWHERE, "put_if_absent": True}),
    "Azure": ("az://bucket/t", {"account_name": "a", "account_key": AZURE_KEY, "endpoint": f"{NOWHERE}/a"}),
    "GCS": ("gs://bucket/t", GcsServer.options(None, NOWHERE)),
}


def _of_children() -> float:
    """Processor time of the processes that have ended, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@pytest.mark.parametrize("service", list(_OPTIONS))
def bench_clients_start(contest, folder, service):
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": os.fspath(folder / "compiled")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    uri, options = _OPTIONS[service]

    def engine(name: str, uri: str | Path, options: dict[str, Any], settings: str) -> Engine:
        command = [sys.executable, "-c", _START, os.fspath(uri), json.dumps(options)]

        def run() -> dict[str, float]:
            begun = _of_children()
            done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
            processor = _of_children() - begun
            (peak,) = re.findall(r"VmHWM:\s*(\d+) kB", done.stdout)
            return {"CPU ms": 1_000 * processor, "peak MB": int(peak) / 1e3}

        return Engine(name, run, settings=settings)

    contest.run(
        [
            engine("refdelta", uri, options, CLIENTS[service]),
            engine(OBSTORE, uri, by_obstore(options), obstore.__version__),
            engine("floor", folder, {}, "refdelta and a local folder"),
        ]
    )
