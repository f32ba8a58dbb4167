"""Followers that copy a table and are killed at random moments: ``python -m kills.following [KILLS] [SEED]``, or ``make
kills-follow``.

The source records its changes; beside the copy, its rows are appended, changed, deleted and compacted. Each follower
writes the changes as they are, divides versions by a limit of its own, stores the position after each change, and is
killed. At the end the copy must have each change once: none is missing, none is there twice.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from kills.children import _context
from refdelta import DeltaTable, write_deltalake

KILLS, SEED = 100, 20261127
LIMITS = (None, 1, 1500, 4000)
_COLUMNS = ["id", "value", "_change_type", "_commit_version"]


def _rows(first: int, count: int) -> pa.Table:
    return pa.table({"id": range(first, first + count), "value": pa.repeat(pa.scalar(0, pa.int64()), count)})


class Source:
    """The table that is followed, and what happens to it.

    Args:
        folder: the place of the table.
        seed: decides what happens.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.uri, self._dice, self._next = str(folder / "source"), random.Random(seed), 0
        for _ in range(3):
            self._append()

    def _append(self) -> None:
        configuration = {"delta.enableChangeDataFeed": "true", "delta.checkpointInterval": "5"}
        count = self._dice.randrange(1, 20)
        rows = _rows(self._next, count)
        write_deltalake(self.uri, rows, mode="append", configuration=None if self._next else configuration)
        self._next += count

    def step(self) -> None:
        """One statement."""
        one = self._dice.randrange(self._next)
        table = DeltaTable(self.uri)
        match self._dice.randrange(6):
            case 0:
                table.delete(f"id = {one}")
            case 1 | 2:
                table.update(updates={"value": "value + 1"}, predicate=f"id % 7 = {one % 7}")
            case 3:
                table.optimize.compact()
            case _:
                self._append()


def copy(uri: str, target: str, stored: Path, timeout: float, pause: float = 0.0, max_bytes: int | None = None) -> None:
    """Copy the changes of a table, from the stored position on, until there is none for so many seconds; ``pause``
    seconds are between a write and its position.
    """
    position = stored.read_text() if stored.exists() else None
    follower = DeltaTable(uri).follow(position, timeout, columns=_COLUMNS, max_bytes=max_bytes, interval=0.01)
    _store(stored, follower.position)  # the beginning, too: a later one would begin with a newer version
    for change in follower:
        once = {"app_id": change.app_id, "app_version": change.app_version}
        write_deltalake(target, change.rows, mode="append", **once)
        # A follower that is killed here writes the same change again, which its number makes nothing of.
        time.sleep(pause)
        _store(stored, change.position)


def _store(stored: Path, position: str) -> None:
    beside = stored.with_suffix(".new")
    beside.write_text(position)
    beside.replace(stored)


def run(folder: Path, kills: int, seed: int) -> tuple[int, int]:
    """Kill so many followers, let one come to the end, and compare.

    Returns:
        The number of kills that came between a write and its position, and of the changes that were copied.
    """
    source, target, stored = Source(folder, seed), str(folder / "target"), folder / "position"
    dice, between = random.Random(seed), 0
    for _ in range(kills):
        arguments = source.uri, target, stored, 60.0, 0.01, dice.choice(LIMITS)
        child = _context.Process(target=copy, args=arguments)
        child.start()
        until = time.monotonic() + dice.uniform(0.05, 0.6)
        # The first one lives until it has begun: otherwise, on a busy machine, the last could be the first to begin.
        while time.monotonic() < until or not stored.exists():
            source.step()
        child.kill()
        child.join()
        between += _ahead(target, stored)
    copy(source.uri, target, stored, 0.0)
    return between, _same(source.uri, target)


def _ahead(target: str, stored: Path) -> bool:
    """Whether the copy has a change whose position was not stored."""
    if not DeltaTable.is_deltatable(target):
        return False
    known = int(stored.read_text().partition('"reservoirVersion":')[2].partition(",")[0]) if stored.exists() else 0
    newest = pc.max(DeltaTable(target).to_pyarrow_table(columns=["_commit_version"]).column(0)).as_py()
    return bool(newest is not None and newest >= known)


def _same(uri: str, target: str) -> int:
    """Compare a copy with the changes of the table. Returns their number."""
    copied = DeltaTable(target).to_pyarrow_table().select(_COLUMNS)
    begun = pc.min(copied.column("_commit_version")).as_py()
    table = DeltaTable(uri)
    changed = table.load_cdf(starting_version=begun + 1, columns=_COLUMNS).read_all()
    first = copied.filter(pc.equal(copied.column("_commit_version"), begun))
    there = DeltaTable(uri, version=begun).to_pyarrow_table()
    order = [(name, "ascending") for name in _COLUMNS]
    later = copied.filter(pc.greater(copied.column("_commit_version"), begun))
    assert later.sort_by(order).equals(changed.cast(later.schema).sort_by(order)), "changes are missing, or there twice"
    rows = first.select(["id", "value"]).sort_by("id")
    assert rows.equals(there.select(["id", "value"]).cast(rows.schema).sort_by("id")), "the first rows differ"
    return int(copied.num_rows)


def main(kills: int = KILLS, seed: int = SEED) -> None:
    """Run it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="refdelta-following-") as folder:
        between, changes = run(Path(folder), kills, seed)
    print(
        f"{kills} followers killed, {between} of them between a write and its position; {changes:,} changes, each "
        f"there once; {time.monotonic() - began:.0f} s, seed {seed}"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
