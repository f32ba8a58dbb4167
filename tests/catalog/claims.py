"""Claims of a catalog: every column of its rows with values of every kind, for every verb of an honest client.

``python -m catalog.claims FOLDER FIRST STEP`` tries each STEP-th case from FIRST on, in limited memory, and prints a
line for each one that does not end in a result or in one ``DeltaError``, or that changes a file elsewhere.
"""

from __future__ import annotations

import json
import resource
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from refdelta import verify, write_deltalake
from refdelta.catalog import SqlCatalog
from refdelta.errors import DeltaError, InternalError, NotEnoughMemoryError
from refdelta.transaction import background

MEMORY = 1 << 30
SECONDS = 30
ROWS = pa.table({"a": pa.array([1], pa.int64())})
NAMES = {"staged": "s.staged", "inline": "s.inline"}

WHOLE = ("0", "1", "-1", "-2", "-5", "2", "4", "1000000000", str(10**15), str(-(10**15)), str(2**63 - 1), str(-(2**63)))
ODD = ("'x'", "''", "'9'", "2.5", "1e300", "x'ff'", "x''", "'' || char(27) || '[2J'", "zeroblob(30000000)", "NULL")
TEXTS = (
    *ODD, "5", "'a' || char(0) || 'b'", "char(10)", "char(8238) || 'x'", "'a..b'", "' a'", "'../x'",
    "printf('%.*c', 3000000, 'x')",
)  # fmt: skip
FILES = (
    "'../../../../outside/precious.txt'", "'.'", "'..'", "'a/b'", "'00000000000000000001.json'",
    "'00000000000000000009.' || substr(file_name, 22)", "upper(file_name)", "file_name || char(0)",
    "'1.' || substr(file_name, 22)", "file_name || 'x'",
)  # fmt: skip
OUTSIDE = (
    "'{root}/outside'", "'file://{root}/outside'", "'{root}/w/../outside'", "'file://{root}/w/%2e%2e/outside'",
    "'{root}/w/link'", "'{root}/w/link/../outside'", "'{root}/w2'", "'~/outside'", "'outside'", "'/'",
    "'FILE:{root}/outside'", "'file:///etc'", "'memory://other'", "'http://127.0.0.1:9/x'", "'s3://nowhere/x'",
    "'simplecache::file://{root}/outside'", "'local://{root}/outside'", "'file://{root}/outside/'", "'{root}/w'",
    "'{root}//outside'", "'{root}/w/%2e%2e/outside'",
)  # fmt: skip

COLUMNS: dict[str, dict[str, tuple[str, ...]]] = {
    "refdelta_tables": {
        "id": TEXTS,
        "name": TEXTS,
        "location": (*TEXTS, *OUTSIDE),
        "managed": (*ODD, *WHOLE, "7"),
        "commits": (*TEXTS, "'staged'", "'inline'", "'zzz'"),
        "latest": (*WHOLE, *ODD),
        "published": (*WHOLE, *ODD),
        "created_ms": (*WHOLE, *ODD),
    },
    "refdelta_commits": {
        "table_id": TEXTS,
        "version": (*WHOLE, *ODD),
        "file_name": (*TEXTS, *FILES),
        "size": (*WHOLE, *ODD),
        "timestamp_ms": (*WHOLE, *ODD),
        "data": (*ODD, "5", "1000000000", "10000000000", "'{{}}'", "x'7b7d'"),
    },
    "refdelta_schema": {"version": (*WHOLE, *ODD)},
}

Verb = Callable[[SqlCatalog, str], Any]
READS: dict[str, Verb] = {
    "tables": lambda catalog, name: catalog.tables(),
    "count": lambda catalog, name: catalog.table(name).count(),
    "rows": lambda catalog, name: catalog.table(name).to_pyarrow_table(),
    "history": lambda catalog, name: catalog.table(name).history(),
    "version 1": lambda catalog, name: catalog.table(name, 1).count(),
    "verify": lambda catalog, name: verify(catalog.table(name)),
}
WRITES: dict[str, Verb] = {
    "append": lambda catalog, name: write_deltalake(catalog.table(name), ROWS, mode="append"),
    "delete": lambda catalog, name: catalog.table(name).delete("a = 1"),
    "publish": lambda catalog, name: catalog.publish(name),
    "checkpoint": lambda catalog, name: catalog.table(name).create_checkpoint(),
    "adopt": lambda catalog, name: catalog.adopt(name, discard=True),
    "rename": lambda catalog, name: catalog.rename_table(name, "s.other"),
    "drop": lambda catalog, name: catalog.drop_table(name),
    "purge": lambda catalog, name: catalog.drop_table(name, purge=True),
    "create": lambda catalog, name: catalog.create_table("s.new", ROWS.schema),
}


def cases() -> Iterator[tuple[str, str, str]]:
    """Each column with each value, for both kinds of commits."""
    for table, columns in COLUMNS.items():
        for column, values in columns.items():
            for value in dict.fromkeys(values):
                for kind in NAMES:
                    yield table, f"{column} = {value}", kind


def make(folder: Path) -> None:
    """An honest catalog with a table of each kind, whose newest commits wait; and a copy of its folders elsewhere."""
    folder.mkdir()
    with SqlCatalog(f"sqlite:///{folder}/c.db", warehouse=folder / "w") as catalog:
        for kind, name in NAMES.items():
            location = folder / "w" / kind
            table = catalog.create_table(name, ROWS.schema, location=location, commits=kind)  # type: ignore[arg-type]
            for _ in range(3):
                write_deltalake(table, ROWS, mode="append")
        background.settle()
    checkpoint(folder / "c.db")


def checkpoint(database: Path) -> None:
    """Have the file of a database hold all of it."""
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def laid_out(made: Path, root: Path, table: str, change: str, kind: str) -> None:
    """A copy of the honest catalog with one changed column, and a folder elsewhere with a table of another program."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(made, root)
    shutil.copytree(root / "w" / kind, root / "outside")
    (root / "outside" / "precious.txt").write_text("precious")
    (root / "w" / "link").symlink_to(root / "outside")
    connection = sqlite3.connect(root / "c.db")
    change = change.replace("{root}", str(root)).replace("{{", "{").replace("}}", "}")
    connection.execute(f"UPDATE refdelta_tables SET location = replace(location, '{made}', '{root}')")
    where = {
        "refdelta_tables": f" WHERE name = '{NAMES[kind]}'",
        "refdelta_commits": " WHERE rowid = (SELECT max(c.rowid) FROM refdelta_commits c JOIN refdelta_tables t "
        f"ON t.id = c.table_id WHERE t.name = '{NAMES[kind]}')",
    }.get(table, "")
    try:
        connection.execute(f"UPDATE {table} SET {change}{where}")
        connection.commit()
    except (sqlite3.IntegrityError, sqlite3.DataError):
        connection.rollback()  # the database itself refuses this value
    connection.close()


def files(folder: Path) -> dict[str, bytes]:
    """The names and contents of all files."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def outcome(act: Callable[[], Any]) -> str | None:
    """None for a result or one ``DeltaError``; otherwise a description."""

    def late(*_: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        act()
    except (InternalError, NotEnoughMemoryError) as error:
        return f"{type(error).__name__}: {error}"
    except DeltaError as error:
        return None if "\x1b" not in str(error) else f"an escape in the message {str(error)!r}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    return None


def tried(made: Path, root: Path, table: str, change: str, kind: str) -> Iterator[tuple[str, str]]:
    """Try every verb on one case; the verbs with a wrong outcome."""
    for group in (READS, *({verb: act} for verb, act in WRITES.items())):
        laid_out(made, root, table, change, kind)
        before = files(root / "outside")

        for verb, step in group.items():
            found = outcome(partial(_act, root, step, NAMES[kind]))
            if found is None and files(root / "outside") != before:
                found = "a folder elsewhere was changed"
            if found is not None:
                yield verb, found[:150]


def _act(root: Path, verb: Verb, name: str) -> Any:
    with SqlCatalog(f"sqlite:///{root}/c.db", warehouse=root / "w") as catalog:
        try:
            return verb(catalog, name)
        finally:
            background.settle()


def main(folder: str, first: str, step: str) -> None:
    """Try a part of the cases; a line of JSON for each wrong outcome."""
    root = Path(folder).resolve()
    make(made := root / "made")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY + 2 * _size(), -1))
    chosen = [*cases()][int(first) :: int(step)]
    for case in chosen:
        for verb, found in tried(made, root / "now", *case):
            print(json.dumps([*case, verb, found]), flush=True)
    print(json.dumps({"cases": len(chosen), "verbs": len(READS) + len(WRITES)}), flush=True)


def _size() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    main(*sys.argv[1:])
