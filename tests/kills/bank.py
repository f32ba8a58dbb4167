"""A bank whose accounts are in two tables: transfers between them by transactions over both, with compaction, VACUUM,
checkpoints and publication beside; their processes are killed at random moments, and PostgreSQL, or the ``refdelta
serve`` through which they go, is killed and started anew. ``python -m kills.bank [KILLS] [SEED]``.

After each kill the sum of all accounts is what it was, in every snapshot of the catalog; each acknowledged transfer is
in both logs; and one that was not acknowledged is in both or in none.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa

from catalog.serving import TOKEN, start
from kills.children import OUTAGE, TRY_AGAIN, Child, _context, _telling
from kills.steps import MAINTENANCE, maintain
from refdelta import CommitProperties, errors, verify, write_deltalake
from refdelta.catalog import Catalog, SqlCatalog, UnityCatalog
from refdelta.core.commit.together import GROUP
from refdelta.transaction import background
from servers.postgres import PostgresServer

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

KILLS, SEED = 120, 20261127
SCHEMA = pa.schema({"id": pa.int64(), "amount": pa.int64()})
NAMES = ("main.bank.checking", "main.bank.savings")
ACCOUNTS, AMOUNT = 8, 1000
TOTAL = len(NAMES) * ACCOUNTS * AMOUNT
_ROLES = (*MAINTENANCE, "publish")
_SERVED = ("--max-unpublished", "5")


class KilledServer:
    """``refdelta serve``, on one port, whatever happens to it.

    Args:
        folder: that of the database and of the warehouse.
    """

    def __init__(self, folder: Path) -> None:
        self._served = start(folder, *_SERVED)

    @property
    def url(self) -> str:
        return self._served.url

    def restart(self) -> None:
        """SIGKILL, and a start."""
        self.stop()
        port = str(urlsplit(self.url).port)
        self._served = start(self._served.folder, *_SERVED, "--port", port)

    def stop(self) -> None:
        self._served.kill()


def _opened(url: str) -> Catalog:
    return UnityCatalog(url, TOKEN) if url.startswith("http:") else SqlCatalog(url, locations=["/"])


def _transfer(catalog: Catalog, dice: random.Random, note: str) -> None:
    source, target = dice.sample(NAMES, 2)
    one, other, amount = dice.randrange(ACCOUNTS), dice.randrange(ACCOUNTS), dice.randint(1, 9)

    def move(tx: Any) -> None:
        tx[source].update({"amount": f"amount - {amount}"}, predicate=f"id = {one}")
        tx[target].update({"amount": f"amount + {amount}"}, predicate=f"id = {other}")

    catalog.transact(move, attempts=100, commit_properties=CommitProperties(user_metadata=note))


def _work(told: Connection, url: str, role: str, owner: int) -> None:
    with _telling(told):
        catalog, dice = _opened(url), random.Random(owner)
        for number in itertools.count():
            told.send(("begins", role, number))
            note = f"{owner}/{number}"
            with contextlib.suppress(*TRY_AGAIN, *OUTAGE):
                if role == "transfer":
                    _transfer(catalog, dice, note)
                    told.send(("committed", note, number))
                else:
                    maintain(catalog.table(dice.choice(NAMES)), role)


@dataclass
class _Teller(Child):
    """A process that transfers, or maintains a table."""

    def start(self) -> _Teller:
        self._pipe, theirs = _context.Pipe(duplex=False)
        self._process = _context.Process(target=_work, args=(theirs, self.place, self.role, self.owner), daemon=True)
        self._process.start()
        theirs.close()
        return self


@dataclass
class Bank:
    """The two tables, and what became of them.

    Attributes:
        url: of the catalog's database.
        folder: the warehouse.
        commits: ``staged`` or ``inline``.
        seed: of the kills' moments and victims.
        server: the server that is restarted now and then: of the database, or of the catalog, by which its clients go
            then; None for SQLite.
    """

    url: str
    folder: Path
    commits: Any
    seed: int
    server: PostgresServer | KilledServer | None = None
    killed: Counter[str] = field(default_factory=Counter)
    acknowledged: set[str] = field(default_factory=set)
    restarts: int = 0
    transfers: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.catalog = SqlCatalog(self.url, warehouse=self.folder)
        self.owners = 0
        for name in NAMES:
            configuration = {"delta.checkpointInterval": "4"}
            table = self.catalog.create_table(name, SCHEMA, commits=self.commits, configuration=configuration)
            accounts = {"id": [*range(ACCOUNTS)], "amount": [AMOUNT] * ACCOUNTS}
            write_deltalake(table, pa.table(accounts, SCHEMA), mode="append")
        background.settle()

    def run(self, kills: int) -> Bank:
        """Kill so many processes, and look after each."""
        while self.killed.total() < kills:
            alive = []
            for _ in range(3):
                role = "transfer" if self.random.random() < 0.7 else self.random.choice(_ROLES)
                # Unity Catalog lets no client maintain a table: that is done beside its server.
                served = isinstance(self.server, KilledServer) and role == "transfer"
                place: Any = self.server.url if served else self.url
                alive.append(_Teller(place, role, self.owners).start())
                self.owners += 1
            try:
                while alive:
                    victim = alive.pop(self.random.randrange(len(alive)))
                    victim.listen(self.random.randint(1, 14), seconds=20.0)
                    time.sleep(self.random.uniform(0, 0.05))
                    if self.server is not None and self.random.random() < 0.2:
                        self.server.restart()
                        self.restarts += 1
                    victim.kill()
                    self.killed[victim.at_work] += 1
                    self.acknowledged.update(told[1] for told in victim.heard if told[0] == "committed")
                    self.check()
            finally:
                for child in alive:
                    child.kill()
        return self

    def check(self) -> None:
        """Look at both tables, at one moment."""
        while True:
            try:
                tables = self.catalog.snapshot(NAMES)
                found = {name: table.to_pyarrow_table() for name, table in tables.items()}
                logs = {name: table.history() for name, table in tables.items()}
                break
            except errors.StoreError:
                if self.server is None:
                    raise
        total = sum(sum(rows["amount"].to_pylist()) for rows in found.values())
        assert total == TOTAL, f"{total} of {TOTAL} are there"
        for name, rows in found.items():
            assert sorted(rows["id"].to_pylist()) == [*range(ACCOUNTS)], f"accounts of {name}"
        notes = {name: {one["userMetadata"] for one in log if "userMetadata" in one} for name, log in logs.items()}
        assert notes[NAMES[0]] == notes[NAMES[1]], "a transfer is in one of the two logs"
        assert self.acknowledged <= notes[NAMES[0]], "an acknowledged transfer is gone"
        for name, log in logs.items():
            for one in log:
                for other in one.get(GROUP, {}).get("participants", ()):
                    versions = {entry["version"]: entry for entry in logs[other["tableName"]]}
                    named = versions[other["proposedVersion"]]
                    assert named[GROUP] == one[GROUP], f"version {one['version']} of {name} names another transaction"
        self.transfers = len(notes[NAMES[0]])

    def finish(self) -> None:
        """Look once more, with all published, and verify both logs."""
        for name in NAMES:
            self.catalog.publish(name)
        self.check()
        background.settle()
        for name in NAMES:
            assert verify(self.catalog.table(name)).sound, f"{name} breaks the protocol"
        self.catalog.close()


def main(kills: int = KILLS, seed: int = SEED) -> None:
    """Run it."""
    began, done = time.monotonic(), []
    server = PostgresServer().start()
    try:
        with tempfile.TemporaryDirectory(prefix="refdelta-bank-") as folder:
            for number, (database, commits) in enumerate(
                (*itertools.product(("sqlite", "postgres"), ("staged", "inline")), ("serve", "staged"))
            ):
                own = Path(folder) / f"{database}-{commits}"
                own.mkdir()
                url = server.database() if database == "postgres" else f"sqlite:///{own}/catalog.db"
                with contextlib.ExitStack() as running:
                    of_bank: PostgresServer | KilledServer | None = server if database == "postgres" else None
                    if database == "serve":
                        of_bank = KilledServer(own)
                        running.callback(of_bank.stop)
                    one = Bank(url, own / "warehouse", commits, seed + number, of_bank).run(kills // 5)
                    one.finish()
                done.append(one)
                print(
                    f"{database:8} {commits:6} seed {one.seed}: {one.killed.total()} killed, {one.restarts} restarts, "
                    f"{one.transfers} transfers, {len(one.acknowledged)} acknowledged",
                    flush=True,
                )
    finally:
        server.stop()
    killed = sum((one.killed for one in done), Counter())
    print(f"{killed.total()} processes killed: {', '.join(f'{n} in {what}' for what, n in killed.most_common())}")
    print(f"every sum held; {time.monotonic() - began:.0f} s, seed {seed}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
