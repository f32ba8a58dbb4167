"""Two sessions on one PostgreSQL, one of which is stopped before each of its statements and before its COMMIT while the
other one runs: what both were told, and the rows that are left, are those of one after the other, in some order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from refdelta.catalog import SqlCatalog
from refdelta.catalog.base import Entry
from refdelta.catalog.sql import COMMITS, TABLES
from refdelta.engine.log.managed_log import Ratified, RatifiedCommit

LEVELS = ("read committed", "repeatable read", "serializable")
ORDERS, OTHERS, SEALED, NEW = "sales.orders", "sales.others", "sales.sealed", "archive.orders"
_ID = "00000000-0000-4000-8000-00000000000"
ENTRIES = {
    name: Entry(name, f"memory://{name}", True, f"{_ID}{at}", "inline")
    for at, name in enumerate((ORDERS, OTHERS, SEALED))
}


@dataclass
class Session:
    """One program: a catalog, and the ratifier of the table that it has opened."""

    url: str
    catalog: SqlCatalog = field(init=False)

    def __post_init__(self) -> None:
        self.catalog = SqlCatalog(self.url, timeout=120)

    def open(self) -> None:
        self.ratifier: Any = self.catalog._ratifier(ENTRIES[ORDERS])
        self.ratifier.confirm(self.ratifier.ratified().session)
        # Outside of the tables, so that no two of them are the same.
        self.mark = "first" if self.url.endswith("1") else "second"


def _propose(version: int) -> Callable[[Session], Any]:
    def run(session: Session) -> Any:
        data = f"{version} by {session.mark}".encode()
        return type(session.ratifier.propose(RatifiedCommit(version, len(data), 7, data=data))).__name__

    return run


def _change(do: Callable[[SqlCatalog, Entry], Any], name: str = ORDERS) -> Callable[[Session], Any]:
    return lambda session: do(session.catalog, ENTRIES[name])


def _adopt(catalog: SqlCatalog, entry: Entry) -> bool:
    return catalog._set_versions(entry, Ratified(1), 5, 5, drops=False)


def _adopt_less(catalog: SqlCatalog, entry: Entry) -> bool:
    return catalog._set_versions(entry, Ratified(1), 0, 0, drops=True)


STATEMENTS: dict[str, Callable[[Session], Any]] = {
    "propose 2": _propose(2),
    "propose 3": _propose(3),
    "note 1": lambda session: session.ratifier.published(1),
    "ask": lambda session: session.ratifier.ratified().latest,
    "rename": _change(lambda catalog, entry: catalog._rename(entry, NEW)),
    "rename another": _change(lambda catalog, entry: catalog._rename(entry, NEW), OTHERS),
    "swap": _change(lambda catalog, entry: catalog._rename(entry, ORDERS), OTHERS),
    "register": lambda session: session.catalog._register(NEW, "memory://new"),
    "seal": _change(lambda catalog, entry: catalog._seal(entry, purge=False)),
    "purge": _change(lambda catalog, entry: catalog._seal(entry, purge=True)),
    "drop": _change(lambda catalog, entry: catalog._drop(entry), SEALED),
    "drop what is not sealed": _change(lambda catalog, entry: catalog._drop(entry)),
    # It answers by a look of its own afterwards.
    "unseal": _change(lambda catalog, entry: str(catalog._unseal(entry))[:0], SEALED),
    "seal again": _change(lambda catalog, entry: catalog._seal(entry, purge=True), SEALED),
    "adopt": _change(_adopt),
    "adopt less": _change(_adopt_less),
}
"""The statements of a catalog: what each one runs, and returns."""

Outcome = tuple[str, str, tuple[Any, ...]]


class Pair:
    """Two sessions.

    Args:
        server: the server.
        url: its database, with settings.
    """

    def __init__(self, server: Any, url: str) -> None:
        self.server = server
        self.first, self.second = Session(f"{url}%20-capplication_name=1"), Session(f"{url}%20-capplication_name=2")
        self._stop_at = -1
        self._count = 0
        self._stopped, self._go = threading.Event(), threading.Event()
        sa.event.listen(self.first.catalog._database, "before_cursor_execute", self._before)
        sa.event.listen(self.first.catalog._database, "commit", self._before)

    def close(self) -> None:
        for one in (self.first, self.second):
            one.catalog.close()

    def _before(self, *_: Any) -> None:
        if self._count == self._stop_at:
            self._stopped.set()
            assert self._go.wait(120)
        self._count += 1

    def _reset(self) -> None:
        with self.second.catalog._database.begin() as connection:
            for table in (TABLES, COMMITS):
                connection.execute(sa.delete(table))
            for entry in ENTRIES.values():
                row = {"id": entry.table_id, "name": entry.name, "location": entry.location, "managed": True}
                latest = -4 if entry.name == SEALED else 1
                row |= {"commits": "inline", "latest": latest, "published": 0, "created_ms": 1}
                connection.execute(sa.insert(TABLES).values(row))
            commit = {"table_id": ENTRIES[ORDERS].table_id, "version": 1, "size": 1, "timestamp_ms": 1, "data": b"1"}
            connection.execute(sa.insert(COMMITS).values(commit))
        self._stop_at = -1
        for one in (self.first, self.second):
            one.open()
        self._count = 0
        self._stopped.clear()
        self._go.clear()

    def _rows(self) -> tuple[Any, ...]:
        with self.second.catalog._database.connect() as connection:
            tables = connection.execute(sa.select(TABLES).order_by(TABLES.c.name)).all()
            commits = connection.execute(sa.select(COMMITS).order_by(COMMITS.c.version)).all()
        return (
            tuple((row.name, row.latest, row.published, row.created_ms == 1) for row in tables),
            tuple((row.version, row.data) for row in commits),
        )

    def serial(self, first: str, second: str, *, first_is_first: bool) -> Outcome:
        """One after the other."""
        self._reset()
        told = {}
        order = ((first, self.first), (second, self.second))
        for name, session in order if first_is_first else reversed(order):
            told[session.mark] = run(name, session)
        return told["first"], told["second"], self._rows()

    def interleaved(self, first: str, second: str) -> Iterator[tuple[int, Outcome]]:
        """The second one runs, as far as it can, while the first one is stopped before each of its steps in turn."""
        for at in range(20):
            self._reset()
            self._stop_at = at
            told: dict[str, str] = {}
            stopped = threading.Thread(target=self._run, args=(first, self.first, told))
            other = threading.Thread(target=self._run, args=(second, self.second, told))
            stopped.start()
            while stopped.is_alive() and not self._stopped.wait(0.002):
                pass
            if not self._stopped.is_set():
                stopped.join()
                return
            other.start()
            while other.is_alive() and not self._waits():
                other.join(0.002)
            self._go.set()
            stopped.join()
            other.join()
            yield at, (told["first"], told["second"], self._rows())
        raise AssertionError("a statement of more than twenty steps")

    @staticmethod
    def _run(name: str, session: Session, told: dict[str, str]) -> None:
        told[session.mark] = run(name, session)

    @staticmethod
    def _run(name: str, session: Session, told: dict[str, str]) -> None:
        told[session.mark] = run(name, session)

    def _waits(self) -> bool:
        asked = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        if not hasattr(self, "_watching"):
            self._watching = self.server.session()
            self._watch = self._watching.__enter__()
        return bool(self._watch.execute(asked).fetchone()[0])


def run(name: str, session: Session) -> str:
    """Run a statement; returns what it was told, without ids."""
    try:
        return f"{STATEMENTS[name](session)}"
    except Exception as error:
        return f"{type(error).__name__}"


def differences(pair: Pair, first: str) -> list[str]:
    """The interleavings of a statement with each that are not as one after the other."""
    found = []
    for second in STATEMENTS:
        allowed = [pair.serial(first, second, first_is_first=order) for order in (True, False)]
        for at, outcome in pair.interleaved(first, second):
            if outcome not in allowed:
                found.append(f"{first!r}, stopped at {at}, and {second!r}: {outcome}, allowed {allowed}")
    return found
