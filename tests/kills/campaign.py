"""A table whose writers and maintainers are killed one after the other, at random moments; it is looked at after each.

What the log says is read from its files, without the engine: which step of which owner each version is. What the rows
are by the engine. Both must agree exactly, at every moment, with what the killed were told and with
:func:`kills.steps.after`.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kills.children import Child
from kills.steps import MAINTENANCE, State, after, content, open_table, rows, take, token
from refdelta import write_deltalake

if TYPE_CHECKING:
    from pathlib import Path

    from servers.running import Place

LAYOUTS: dict[str, dict[str, Any]] = {
    "vectors": {"configuration": {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "4"}},
    "files": {"configuration": {"delta.checkpointInterval": "3"}},
    "partitions": {"partition_by": "owner", "configuration": {"delta.checkpointInterval": "5"}},
}
AT_ONCE = 3
_HOUR, _DAY = 3600.0, 86_400.0


@dataclass
class Campaign:
    """One table, and all that became of it.

    Attributes:
        place: where the table is.
        folder: the same as a folder of this machine.
        layout: one of :data:`LAYOUTS`.
        seed: of the kills' moments and victims.
        pause: the longest wait in seconds between what a victim tells and its death.
        killed: how many were killed, by what they were at.
        whole: how many of those were killed in a step of theirs that is there nevertheless.
        committed: how many steps were acknowledged.
    """

    place: Place
    folder: Path
    layout: str
    seed: int
    pause: float = 0.05
    killed: Counter[str] = field(default_factory=Counter)
    whole: int = 0
    committed: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.dead: list[Child] = []
        self.log: dict[int, str | None] = {}
        self.identities: dict[str, tuple[int, int]] = {}
        self.states: dict[int, list[State]] = {}
        self.owners = 0
        self._create()

    def _create(self) -> None:
        options = LAYOUTS[self.layout]
        write_deltalake(self.place.uri, rows(-1, range(3), 0), storage_options=self.place.options, **options)

    def run(self, kills: int) -> Campaign:
        """Kill so many processes, some at once after the other, and look after each."""
        while (left := kills - self.killed.total()) > 0:
            self._round(min(left, AT_ONCE))
        return self

    def _round(self, count: int) -> None:
        # A vacuum that keeps nothing for anybody needs the table for itself.
        roles = ["sweep"] if self.random.random() < 0.1 else [self._role() for _ in range(count)]
        alive = []
        for role in roles:
            alive.append(Child(self.place, role, self.owners).start())
            self.owners += role == "writer"
        try:
            while alive:
                victim = alive.pop(self.random.randrange(len(alive)))
                # In the midst of the first thing that it does, or of one that follows some others.
                victim.listen(self.random.randint(1, 6), seconds=5.0)
                time.sleep(self.random.uniform(0, self.pause))
                self._disturb()
                victim.kill()
                self._count(victim)
                self.check()
        finally:
            for child in alive:
                child.kill()
        self._age()

    def _disturb(self) -> None:
        """Something else that happens before a kill."""

    def _role(self) -> str:
        return "writer" if self.random.random() < 0.55 else self.random.choice(MAINTENANCE)

    def _count(self, victim: Child) -> None:
        self.killed[victim.at_work] += 1
        if victim.role == "writer":
            self.dead.append(victim)
            self.committed += len(victim.committed)

    def _age(self) -> None:
        """Let all that is there look old, so that vacuums take what nobody needs, and checkpoints clean the log up."""
        now = time.time()
        for file in self.folder.rglob("*"):
            then = now - 60 * _DAY if file.parent.name == "_delta_log" else now - 2 * _HOUR
            if file.is_file():
                os.utime(file, (then, then))
        self.identities = {}

    # --- looking ---

    def check(self) -> None:
        """Raise ``AssertionError`` where the table is not what its writers were told."""
        table = open_table(self.place)
        self._read_log()  # which may have more than the table by now
        for child in self.dead:
            for step, version in child.committed.items():
                assert self.log[version] == token(child.owner, step), f"{child.owner}/{step} at version {version}"
        steps: Counter[int] = Counter()
        for version, found in sorted(self.log.items()):
            if found is not None and version <= table.version():
                owner, step = map(int, found.split("/"))
                assert step == steps[owner], f"version {version} is step {found} of its owner, out of turn"
                steps[owner] += 1
        expected = {owner: self._state(owner, count) for owner, count in steps.items()}
        assert content(table) == {-1: dict.fromkeys(range(3), 0), **expected}, f"the rows of version {table.version()}"

    def _read_log(self) -> None:
        for file in sorted(self.folder.glob("_delta_log/*.json")):
            try:
                status, text = file.stat(), file.read_text()
            except FileNotFoundError:
                continue  # the log was cleaned up in this moment
            identity = status.st_size, status.st_mtime_ns
            assert self.identities.setdefault(file.name, identity) == identity, f"{file.name} has changed"
            self.log.setdefault(int(file.stem), _user_metadata(text))
        assert sorted(self.log) == list(range(len(self.log)))

    def _state(self, owner: int, steps: int) -> State:
        states = self.states.setdefault(owner, [{}])
        while len(states) <= steps:
            states.append(after(states[-1], len(states) - 1))
        return states[steps]

    def finish(self) -> None:
        """Look once more; VACUUM takes all that the killed left; who comes next can write and read."""
        self.check()
        done = Counter(found.split("/")[0] for found in self.log.values() if found)
        self.whole = sum(done[str(child.owner)] - len(child.committed) for child in self.dead)
        assert all(0 <= done[str(child.owner)] - len(child.committed) <= 1 for child in self.dead)
        table = open_table(self.place)
        for _ in range(2):
            left = table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
        assert left == [], left
        self.check()
        take(open_table(self.place), self.owners, 0)
        self.check()


def _user_metadata(commit: str) -> str | None:
    first: dict[str, str] = json.loads(commit.splitlines()[0])["commitInfo"]
    return first.get("userMetadata")
