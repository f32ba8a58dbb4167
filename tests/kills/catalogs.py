"""Kill writers, maintainers and publishers of catalog-managed tables, and restart PostgreSQL under their load; then
programs that drop and recreate tables of one name, and databases that are restored from copies (:mod:`kills.lives`):
``python -m kills.catalogs [KILLS] [SEED]``, or ``make search NAME=kills-catalogs``.

What is ratified is read from the tables of the database and what is published from the folder, both without the engine.
Prints what was killed at what, and fails where anything was lost, doubled or torn.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from kills.campaign import LAYOUTS, Campaign, _user_metadata
from kills.lives import Lives, Restores
from kills.places import CatalogPlace
from kills.steps import SCHEMA, maintain, rows
from refdelta import write_deltalake
from refdelta.transaction import background
from servers.postgres import PostgresServer

KILLS, SEED = 300, 20261123
_IN_A_TABLE = 25
_DATABASES = ("sqlite", "postgres")


@dataclass
class CatalogCampaign(Campaign):
    """One table of a catalog.

    Attributes:
        server: the server that is restarted now and then; None for SQLite.
        restarts: how often it was.
    """

    place: Any
    server: PostgresServer | None = None
    restarts: int = 0
    contents: dict[int, bytes] = field(default_factory=dict)

    def _create(self) -> None:
        self._database = sa.create_engine(self.place.url, poolclass=sa.NullPool)
        write_deltalake(self.place.create(SCHEMA, **LAYOUTS[self.layout]), rows(-1, range(3), 0), mode="append")
        background.settle()

    def _role(self) -> str:
        return "publish" if self.random.random() < 0.15 else super()._role()

    def _disturb(self) -> None:
        if self.server is not None and self.random.random() < 0.3:
            self.server.restart()
            self.restarts += 1
            time.sleep(self.random.uniform(0, self.pause))

    def _read_log(self) -> None:
        """First what the catalog holds, then the files: what is published in between is in both."""
        latest, held = self._held()
        found = {}
        for version, name, data, size in held:
            content = data
            if content is None:
                staged = self.folder / "_delta_log" / "_staged_commits" / name
                if not staged.exists():
                    continue  # published and cleaned up in this moment
                content = staged.read_bytes()
            assert len(content) == size, f"the commit of version {version} is torn"
            found[version] = bytes(content)
        for file in sorted(self.folder.glob("_delta_log/*.json")):
            try:
                content = file.read_bytes()
            except FileNotFoundError:
                continue  # the log was cleaned up in this moment
            assert found.setdefault(int(file.stem), content) == content, f"{file.name} is not what was ratified"
        now, _ = self._held()
        assert all(version <= now for version in found), "a version is published that is not ratified"
        for version, content in found.items():
            assert self.contents.setdefault(version, content) == content, f"version {version} has changed"
            self.log.setdefault(version, _user_metadata(content.decode()))
        assert sorted(self.log)[: latest + 1] == [*range(latest + 1)], "a version is missing"

    def _held(self) -> tuple[int, list[Any]]:
        statement = (
            "select t.latest, c.version, c.file_name, c.data, c.size from refdelta_tables t "
            "left join refdelta_commits c on c.table_id = t.id order by c.version"
        )
        with self._database.connect() as connection:
            found = connection.execute(sa.text(statement)).all()
        return found[0].latest, [tuple(row)[1:] for row in found if row.version is not None]

    def finish(self) -> None:
        super().finish()
        background.settle()
        maintain(self.place.open(), "publish")
        self.check()
        latest, held = self._held()
        assert held == [], "all is published, and the catalog holds some"
        assert (self.folder / "_delta_log" / f"{latest:020d}.json").exists()
        self._database.dispose()


def campaign(folder: Path, database: str, commits: str, layout: str, seed: int, server: Any) -> CatalogCampaign:
    """A campaign in a new folder, with a new catalog."""
    folder.mkdir(parents=True)
    url = f"sqlite:///{folder}/catalog.db" if database == "sqlite" else server.database()
    place = CatalogPlace(url, str(folder / "t"), commits)
    return CatalogCampaign(place, folder / "t", layout, seed, server=None if database == "sqlite" else server)


def main(kills: int = KILLS, seed: int = SEED) -> None:
    """Run it."""
    began = time.monotonic()
    kinds = itertools.cycle(itertools.product(LAYOUTS, _DATABASES, ("staged", "inline")))
    done = []
    server = PostgresServer()
    try:
        server.start()
        with tempfile.TemporaryDirectory(prefix="refdelta-kills-") as folder:
            for number in range(-(-kills // _IN_A_TABLE)):
                layout, database, commits = next(kinds)
                started = time.monotonic()
                one = campaign(Path(folder) / str(number), database, commits, layout, seed + number, server)
                one.run(min(_IN_A_TABLE, kills - number * _IN_A_TABLE)).finish()
                done.append(one)
                print(
                    f"{database:8} {commits:6} {layout:10} seed {one.seed}: {one.killed.total()} killed, "
                    f"{one.restarts} restarts, {len(one.log)} versions, {time.monotonic() - started:.1f} s",
                    flush=True,
                )
            lives = list(_lives(Path(folder), kills // 6, seed, server))
            restores = list(_restores(Path(folder), max(kills // 100, 1), seed, server))
    finally:
        server.stop()
    killed = sum((one.killed for one in done), Counter())
    print(f"{killed.total()} processes killed: {', '.join(f'{n} in {what}' for what, n in killed.most_common())}")
    print(
        f"{len(done)} tables, {sum(one.restarts for one in done)} restarts of PostgreSQL; "
        f"{sum(one.committed for one in done)} commits acknowledged, all there; of those not acknowledged "
        f"{sum(one.whole for one in done)} there, whole; {time.monotonic() - began:.0f} s, seed {seed}"
    )
    did = sum((one.did for one in lives), Counter())
    print(
        f"two programs, two names: {sum(one.killed for one in lives)} processes killed; acknowledged: "
        f"{', '.join(f'{count} {what}' for what, count in did.most_common())}; no table of the other touched"
    )
    print(
        f"{sum(one.restored for one in restores)} databases restored from copies under load: "
        f"{sum(one.noticed for one in restores)} commits refused, {sum(one.adopted for one in restores)} adopted; of "
        f"{sum(one.acknowledged for one in restores)} acknowledged commits "
        f"{sum(one.with_the_database for one in restores)} were in the lost database only, all others are there; "
        f"{time.monotonic() - began:.0f} s"
    )


def _lives(folder: Path, kills: int, seed: int, server: PostgresServer) -> Iterator[Lives]:
    for number, database in enumerate(_DATABASES):
        own = folder / f"lives-{database}"
        own.mkdir()
        url = f"sqlite:///{own}/catalog.db" if database == "sqlite" else server.database()
        one = Lives(url, own / "tables", seed + number).run(kills)
        one.finish()
        print(
            f"{database:8} two programs, seed {one.seed}: {one.killed} killed, {one.did.total()} statements", flush=True
        )
        yield one


def _restores(folder: Path, times: int, seed: int, server: PostgresServer) -> Iterator[Restores]:
    for number, (database, commits) in enumerate(itertools.product(_DATABASES, ("staged", "inline"))):
        own = folder / f"restores-{database}-{commits}"
        one = Restores(own, commits, seed + number, None if database == "sqlite" else server).run(times)
        print(
            f"{database:8} {commits:6} restored {one.restored} times, seed {one.seed}: "
            f"{one.acknowledged} acknowledged, {one.noticed} refused, {one.adopted} adopted",
            flush=True,
        )
        yield one


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
