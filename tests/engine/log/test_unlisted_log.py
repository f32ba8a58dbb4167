"""Tables on a web server: read by the names of their files, with servers that can little, and one that lies.

Tests of refdelta_storage.http.
"""

from __future__ import annotations

import functools
import http.server
import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import refdelta
from refdelta import DeltaTable, errors, write_deltalake
from refdelta_storage import StorageError, open_store


class Server(http.server.SimpleHTTPRequestHandler):
    """A folder; what it can do less than a web server is for each test to say."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[tuple[str, str]]] = []
    no_head = busy = lies = False

    def log_message(self, *_: Any) -> None:
        pass

    def _asked(self, method: str) -> bool:
        cls = type(self)
        cls.asked.append((method, self.path))
        if cls.busy:
            cls.busy = False
            self.send_error(503)
        elif method == "HEAD" and cls.no_head:
            self.send_error(405)
        elif cls.lies and not Path(self.translate_path(self.path)).exists():
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            if method == "GET":
                self.wfile.write(b"{}")
        else:
            return True
        return False

    def do_GET(self) -> None:
        if self._asked("GET"):
            super().do_GET()

    def do_HEAD(self) -> None:
        if self._asked("HEAD"):
            super().do_HEAD()


class WithRanges(Server):
    """A server that knows ranges, as most do."""

    def do_GET(self) -> None:
        path, wanted = Path(self.translate_path(self.path)), self.headers.get("Range")
        if wanted is None or not path.is_file():
            super().do_GET()
            return
        if not self._asked("GET"):
            return
        first, last = (int(one) for one in wanted.removeprefix("bytes=").split("-"))
        data = path.read_bytes()
        part = data[first : last + 1]
        self.send_response(206 if part else 416)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(data)}")
        self.end_headers()
        self.wfile.write(part)


@pytest.fixture(params=[Server, WithRanges], ids=["whole", "ranges"])
def web(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, type[Server]]]:
    handler = type("Handler", (request.param,), {"asked": []})
    with socketserver.ThreadingTCPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=str(tmp_path))
    ) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", handler
        server.shutdown()
        thread.join()


@pytest.fixture
def versions(tmp_path: Path) -> Callable[..., Path]:
    """Makes a table of so many versions, in a folder whose name has a space."""

    def made(count: int, **configuration: str) -> Path:
        path = tmp_path / "a table"
        for number in range(count):
            write_deltalake(
                path,
                pa.table({"id": [number, number + 100], "p": [f"x/y {number % 2}"] * 2}),
                mode="append",
                partition_by="p",
                configuration={"delta.enableDeletionVectors": "true", **configuration} if number == 0 else None,
            )
        DeltaTable(path).delete("id = 1")
        refdelta.settle()
        return path

    return made


@pytest.mark.tier("test")
def test_a_table_is_read_as_from_its_folder(web: Any, versions: Any) -> None:
    path, url = versions(13, **{"delta.checkpointInterval": "5"}), f"{web[0]}/a table"
    table, here = DeltaTable(url), DeltaTable(path)
    assert table.version() == here.version()
    found = table.to_pyarrow_table(filters="id < 105").sort_by("id")
    assert found.equals(here.to_pyarrow_table(filters="id < 105").sort_by("id"))
    assert [one["version"] for one in table.history()] == [one["version"] for one in here.history()]
    assert DeltaTable(url, version=3).count() == 8
    assert DeltaTable.is_deltatable(url)
    assert not DeltaTable.is_deltatable(f"{web[0]}/other")


def test_new_versions_are_seen(web: Any, versions: Any) -> None:
    path, url = versions(3), f"{web[0]}/a table"
    table = DeltaTable(url)
    write_deltalake(path, pa.table({"id": [7], "p": ["q"]}), mode="append")
    table.update_incremental()
    assert (table.version(), table.count()) == (4, 6)
    assert [change.version for change in table.follow(since=3, timeout=0)] == [4]


@pytest.mark.tier("test")
def test_a_log_that_was_cleaned_up_begins_at_its_checkpoint(web: Any, versions: Any) -> None:
    path = versions(8, **{"delta.checkpointInterval": "5"})
    for number in range(5):
        (path / "_delta_log" / f"{number:020d}.json").unlink()
    table = DeltaTable(f"{web[0]}/a table")
    assert (table.version(), table.count()) == (8, 15)
    with pytest.raises(errors.VersionNotFoundError):
        DeltaTable(f"{web[0]}/a table", version=2)


def test_a_checkpoint_with_a_name_of_its_own(web: Any, versions: Any) -> None:
    path = versions(4, **{"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "100"})
    DeltaTable(path).create_checkpoint()
    hint = path / "_delta_log" / "_last_checkpoint"
    (named,) = (path / "_delta_log").glob("*.checkpoint.*")
    told = {"version": 4, "size": 1, **({} if named.stem.count(".") == 1 else {"v2Checkpoint": {"path": named.name}})}
    hint.write_text(json.dumps(told))
    for number in range(4):
        (path / "_delta_log" / f"{number:020d}.json").unlink()
    assert DeltaTable(f"{web[0]}/a table").count() == 7


def test_a_server_without_head(web: Any, versions: Any) -> None:
    versions(3)
    web[1].no_head = True
    assert DeltaTable(f"{web[0]}/a table").count() == 5


def test_a_server_that_is_busy_for_a_moment_is_asked_again(web: Any, versions: Any) -> None:
    versions(2)
    table = DeltaTable(f"{web[0]}/a table")
    web[1].busy = True
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == [0, 100, 101]


def test_a_server_that_answers_for_every_name_is_refused(web: Any, versions: Any) -> None:
    versions(2)
    web[1].lies = True
    with pytest.raises(errors.StoreError, match="answers for objects that do not exist"):
        DeltaTable(f"{web[0]}/a table")


@pytest.mark.tier("test")
def test_nothing_is_written(web: Any, versions: Any) -> None:
    path, url = versions(2), f"{web[0]}/a table"
    table = DeltaTable(url)
    for write in (
        lambda: write_deltalake(url, pa.table({"id": [1], "p": ["q"]}), mode="append"),
        lambda: table.delete("id = 0"),
        table.optimize.compact,
        lambda: table.vacuum(retention_hours=200, dry_run=False),
        table.create_checkpoint,
        lambda: DeltaTable.create(f"{web[0]}/new", pa.schema({"id": pa.int64()})),
    ):
        with pytest.raises(errors.StoreError):
            write()
    assert not [asked for asked in web[1].asked if asked[0] not in ("GET", "HEAD")]
    assert DeltaTable(path).version() == 2


def test_a_server_that_is_not_there_is_no_missing_table() -> None:
    with pytest.raises(errors.StoreError, match="Cannot connect"):
        DeltaTable("http://127.0.0.1:9/t", storage_options={"max_retries": "0"})


@pytest.mark.tier("test")
def test_a_version_costs_few_requests(web: Any, versions: Any) -> None:
    versions(30, **{"delta.checkpointInterval": "10"})
    web[1].asked.clear()
    DeltaTable(f"{web[0]}/a table").version()
    assert len(web[1].asked) < 20


def test_the_store_has_no_listing_and_reads_ranges(web: Any, tmp_path: Path) -> None:
    (tmp_path / "o").write_bytes(b"0123456789")
    store = open_store(web[0])
    assert (store.capabilities.lists, store.capabilities.put_if_absent) == (False, False)
    assert store.get("o") == b"0123456789"
    assert [store.get_range("o", *part) for part in ((2, 3), (8, 9), (10, 1), (0, 0))] == [b"234", b"89", b"", b""]
    assert (store.head("o").size, store.head("o").mtime_ms > 0) == (10, True)
    with pytest.raises(StorageError, match="lists no objects"):
        list(store.list())
    for write in (lambda: store.put("o", b""), lambda: store.put_if_absent("x", b""), lambda: store.delete(["o"])):
        with pytest.raises(StorageError, match="read only"):
            write()
    assert (tmp_path / "o").read_bytes() == b"0123456789"
