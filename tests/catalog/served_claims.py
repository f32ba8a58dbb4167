"""Claims of a server of Unity Catalog's API: every field of its answers with values of every kind, for every verb.

``python -m catalog.served_claims FOLDER FIRST STEP`` tries each STEP-th case from FIRST on, as ``catalog.claims`` does.
The server is a thread of the same process that answers as an honest one over a :class:`DeltaService`, but for one field
of one kind of answers.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from catalog.claims import MEMORY, ROWS, _size, files, outcome
from refdelta import verify, write_deltalake
from refdelta.catalog import UnityCatalog, unity, unity_http
from refdelta.catalog import delta_api as api
from refdelta.catalog.service import ApiError, DeltaService, open_served
from refdelta.transaction import background

NAME = "main.sales.orders"
MISSING = "<missing>"
ENDLESS = "<endless>"

VALUES: tuple[Any, ...] = (
    MISSING, None, True, "x", "", "\x1b[2J", "\x00", "a\nb", "x" * 10_000, 0, 1, -1, 7, 10**9, 2**63 - 1, 2**63,
    10**30, 2.5, 1e300, [], {}, [None], [[[]]] * 1_000, {"a": {"b": []}},
)  # fmt: skip
PLACES = (
    "{root}/outside", "file://{root}/outside", "file:///elsewhere", "{root}/w/../outside",
    "file://{root}/w/%2e%2e/outside", "{root}/w/link", "outside", "~/outside", "memory://other", "s3://nowhere/x",
    "http://127.0.0.1:9/x", "gopher://x/y",
)  # fmt: skip
FILES = ("../../x", "00000000000000000001.json", "00000000000000000009.x.json", "a/b", "..")
FIELDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "config": {"endpoints": (), "protocol-version": ("2.0", "1.999")},
    "table": {
        "": ("[[[[",),
        "metadata": (),
        "metadata/etag": (),
        "metadata/table-type": ("EXTERNAL",),
        "metadata/table-uuid": ("../x", 'a"b'),
        "metadata/location": PLACES,
        "metadata/created-time": (),
        "metadata/columns": (),
        "metadata/properties": (),
        "metadata/partition-columns": (),
        "commits": (),
        "commits/0": (),
        "commits/0/version": (),
        "commits/0/timestamp": (),
        "commits/0/file-name": FILES,
        "commits/0/file-size": (),
        "commits/0/file-modification-timestamp": (),
        "latest-table-version": (),
    },
    "staging": {
        "table-id": ("../x",),
        "location": PLACES,
        "required-protocol": (),
        "required-protocol/reader-features": (["zzz"],),
        "required-properties": ({"a\x1b": "b"}, {"delta.columnMapping.mode": "no"}),
        "storage-credentials": (),
    },
    "list": {"": (), "tables": (), "tables/0/name": ("a.b", "a/b"), "next_page_token": ("same", ENDLESS)},
    "error": {"": (), "error/type": ("CommitVersionConflictException",), "error/message": (), "error/code": ()},
}
VERBS: dict[str, Callable[[UnityCatalog], Any]] = {
    "tables": lambda catalog: catalog.tables("main"),
    "count": lambda catalog: catalog.table(NAME).count(),
    "history": lambda catalog: catalog.table(NAME).history(),
    "verify": lambda catalog: verify(catalog.table(NAME)),
    "append": lambda catalog: write_deltalake(catalog.table(NAME), ROWS, mode="append"),
    "publish": lambda catalog: catalog.publish(NAME),
    "create": lambda catalog: catalog.create_table("main.sales.other", ROWS.schema),
    "rename": lambda catalog: catalog.rename_table(NAME, "main.sales.new"),
    "no table": lambda catalog: catalog.table("main.sales.ordes"),
    "drop": lambda catalog: catalog.drop_table(NAME),
}
OF = {"config": ("count",), "staging": ("create",), "list": ("tables", "no table"), "error": ("no table", "rename")}


def cases() -> Iterator[tuple[str, str, Any]]:
    """Each field of each kind of answers with each value."""
    for kind, fields in FIELDS.items():
        for field, more in fields.items():
            for value in (*VALUES, *more):
                yield kind, field, value


class Server:
    """An honest server, but for one field."""

    def __init__(self, root: Path, kind: str = "", field: str = "", value: Any = None) -> None:
        self.kind, self.field, self.value = kind, field, value
        self.served = open_served(f"sqlite:///{root}/c.db", str(root / "w"), None)
        self.service = DeltaService(self.served, most_unpublished=50)
        self.pages = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, data = outer.reply(self.command, self.path, body)
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.send_header("Retry-After", "1000000")
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = do_HEAD = answer

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.served.close()

    def reply(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        parts = urlsplit(path)
        query = {name: value[0] for name, value in parse_qs(parts.query).items()}
        try:
            kind, answer = self.honest(method, parts.path.removeprefix(api.ROOT), query, body)
            status = 200
        except ApiError as error:
            kind, status = "error", error.status
            answer = {"error": {"message": str(error), "type": error.kind, "code": error.status}}
        found = json.loads(msgspec.json.encode(answer))
        return status, json.dumps(self.changed(kind, found)).encode() if kind == self.kind else json.dumps(
            found
        ).encode()

    def honest(self, method: str, path: str, query: dict[str, str], body: bytes) -> tuple[str, Any]:
        if not path.startswith(api.DELTA):
            kind = path.strip("/")
            prefix = [query[name] for name in ("catalog_name", "schema_name") if name in query]
            if kind == "tables":
                return "list", {"tables": [{"name": name} for name, _ in self.service.names(prefix, 0, "")[0]]}
            return "groups", {kind: [{"name": name} for name in self.service.groups(prefix)]}
        match [method, *path.removeprefix(api.DELTA).strip("/").split("/")]:
            case [_, "config"]:
                return "config", self.service.config(query["catalog"], query["protocol-versions"], [])
            case ["POST", "catalogs", one, "schemas", two, "staging-tables"]:
                return "staging", self.service.stage(one, two, msgspec.json.decode(body, type=api.CreateStagingTable))
            case ["POST", "catalogs", one, "schemas", two, "tables"]:
                return "created", self.service.create(one, two, msgspec.json.decode(body, type=api.CreateTable))
            case ["GET", "catalogs", one, "schemas", two, "tables", name]:
                return "table", self.service.load(one, two, name)
            case ["POST", "catalogs", one, "schemas", two, "tables", name]:
                return "updated", self.service.update(one, two, name, msgspec.json.decode(body, type=api.UpdateTable))
            case ["DELETE", "catalogs", one, "schemas", two, "tables", name]:
                return "dropped", self.service.drop(one, two, name)
            case ["POST", "catalogs", one, "schemas", two, "tables", name, "rename"]:
                return "renamed", self.service.rename(one, two, name, msgspec.json.decode(body, type=api.RenameTable))
        return "credentials", {"storage-credentials": []}

    def changed(self, kind: str, answer: Any) -> Any:
        """The answer with the other value of the field."""
        value = self.value
        if value == ENDLESS:
            self.pages += 1
            value = str(self.pages)
        if not self.field:
            return value if value != MISSING else {}
        *above, last = self.field.split("/")
        place = answer
        for name in above:
            place = place[int(name)] if isinstance(place, list) and place else place.get(name) if place else None
            if not place:
                return answer
        if isinstance(place, list):
            place[int(last)] = None if value == MISSING else value
        elif value == MISSING:
            place.pop(last, None)
        else:
            place[last] = value
        return answer


def tried(made: Path, root: Path, kind: str, field: str, value: Any) -> Iterator[tuple[str, str]]:
    """Try the verbs on one case; those with a wrong outcome."""
    if isinstance(value, str):
        value = value.replace("{root}", str(root))
    for verb in OF.get(kind, tuple(VERBS)):
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(made, root)
        (root / "outside").mkdir()
        (root / "outside" / "precious.txt").write_text("precious")
        (root / "w" / "link").symlink_to(root / "outside")
        server = Server(root, kind, field, value)
        before = files(root / "outside")

        def act(server: Server = server, verb: str = verb) -> Any:
            with UnityCatalog(server.url, "x" * 20, locations=[root / "w"]) as catalog:
                try:
                    return VERBS[verb](catalog)
                finally:
                    background.settle()

        found = outcome(act)
        server.close()
        if found is None and files(root / "outside") != before:
            found = "a folder elsewhere was changed"
        if found is not None:
            yield verb, found[:150]


def make(root: Path) -> None:
    """An honest server's database and folder, with a table of which commits wait."""
    root.mkdir()
    server = Server(root)
    with UnityCatalog(server.url, "x" * 20, locations=[root / "w"]) as catalog:
        table = catalog.create_table(NAME, ROWS.schema)
        for _ in range(3):
            write_deltalake(table, ROWS, mode="append")
        background.settle()
    server.close()


def main(folder: str, first: str, step: str) -> None:
    """Try a part of the cases; a line of JSON for each wrong outcome."""
    unity_http.time = _Hasty  # type: ignore[attr-defined]
    unity._PAGES = 50
    root = Path(folder).resolve()
    # A folder has one name for both: locations in the database are absolute.
    make(root / "now")
    shutil.move(root / "now", root / "made")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY + 2 * _size(), -1))
    chosen = [*cases()][int(first) :: int(step)]
    for case in chosen:
        for verb, found in tried(root / "made", root / "now", *case):
            print(json.dumps([*case[:2], repr(case[2])[:60], verb, found]), flush=True)
    print(json.dumps({"cases": len(chosen)}), flush=True)


class _Hasty:
    """The clock, but pauses are short. A pause of more than the longest one is a fault."""

    monotonic = staticmethod(time.monotonic)

    @staticmethod
    def sleep(seconds: float) -> None:
        if seconds > 5:
            raise TimeoutError(f"a pause of {seconds} seconds")
        time.sleep(0.001)


if __name__ == "__main__":
    main(*sys.argv[1:])
