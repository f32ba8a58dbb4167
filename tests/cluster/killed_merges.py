"""A stream of MERGEs on a cluster whose driver is killed again and again, while others write to its table."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cluster import sessions
from refdelta import DeltaTable, write_deltalake

KEYS, IN_A_BATCH, OTHERS = 60, 40, 1_000_000
APPLICATION = "merging"
FIRST = 1_790_000_000


@dataclass
class KilledMerges:
    """A stream, its table, and what became of it.

    Attributes:
        folder: where all of it is.
        seed: of the rows, and of the moments of the kills.
        kills: how many drivers were killed.
        moments: in how many of those a batch was merged whose end the checkpoint did not know, in how many a batch was
            begun and not merged, and in how many there was none.
        merged: how many batches were merged by drivers that were killed.
    """

    folder: Path
    seed: int
    kills: int = 0
    moments: Counter[str] = field(default_factory=Counter)
    others: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.batches = 0
        self.programs = 0
        (self.folder / "in").mkdir(parents=True)
        write_deltalake(
            str(self.folder / "t"),
            pa.schema([("key", pa.int64()), ("amount", pa.int64()), ("times", pa.int64())]).empty_table(),
            configuration={"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "7"},
        )

    def come(self, count: int) -> None:
        """Let so many batches more arrive."""
        for _ in range(count):
            file = self.folder / "in" / f"{self.batches:05}.parquet"
            rows = self._rows(self.batches)
            pq.write_table(pa.table({"key": [*rows], "amount": [*rows.values()]}), file.with_suffix(".new"))
            # Spark takes files in the order of their times, which it has in milliseconds.
            os.utime(file.with_suffix(".new"), (FIRST + self.batches,) * 2)
            file.with_suffix(".new").rename(file)
            self.batches += 1

    def _rows(self, batch: int) -> dict[int, int]:
        dice = random.Random(f"{self.seed}/{batch}")
        return {key: dice.randrange(1, 1000) for key in sorted(dice.sample(range(KEYS), IN_A_BATCH))}

    def expected(self, batches: int) -> dict[int, tuple[int, int]]:
        """The rows after so many batches: by keys, the sum of their amounts, and how many they were."""
        found: dict[int, tuple[int, int]] = {}
        for batch in range(batches):
            for key, amount in self._rows(batch).items():
                total, times = found.get(key, (0, 0))
                found[key] = total + amount, times + 1
        return found

    def kill(self) -> None:
        """Start the stream, and kill its driver at some moment: mostly soon after a commit, before the checkpoint knows
        it. Now and then it is that of a cluster, whose executors and their Pythons live on, and end by themselves.
        """
        alone = self.random.random() < 0.25
        with self._program(sessions.MASTER if alone else "local[2]") as program:
            next(program.lines(), None)
            count = self._merges if self.random.random() < 0.5 else self._steps
            until = len(count()) + self.random.randint(1, 2 if count == self._merges else 12)
            while program.process.poll() is None and len(count()) < until:
                time.sleep(0.005)
            time.sleep(self.random.choice([0, self.random.uniform(0, 0.05), self.random.uniform(0, 0.5)]))
            if program.process.poll() is not None:  # it came to its end before
                assert program.process.returncode == 0, program.said()
                self.check()
                return
            if alone:
                drivers = [pid for pid, command in sessions.processes(program.session).items() if _is_driver(command)]
                sessions.kill(*drivers)
                give_up = time.monotonic() + 120
                while sessions.processes(program.session).keys() - {program.session}:
                    assert time.monotonic() < give_up, sessions.processes(program.session)
                    time.sleep(0.05)
        self.kills += 1
        self._note()
        self.check()

    def _program(self, master: str) -> sessions.Program:
        self.programs += 1
        return sessions.Program("cluster.merging_stream", self.folder, str(self.programs), master)

    def _steps(self) -> list[Path]:
        """Things of which each step of the stream makes one."""
        places = ("t", "t/_delta_log", "checkpoint/offsets", "checkpoint/commits")
        return [path for place in places for path in (self.folder / place).glob("*")]

    def _note(self) -> None:
        begun, done = (
            {int(path.name) for path in (self.folder / "checkpoint" / kind).glob("[0-9]*")}
            for kind in ("offsets", "commits")
        )
        merged = len(self._merges())
        if not begun - done:
            self.moments["between batches"] += 1
        elif max(begun) < merged:
            self.moments["merged, and not known to be"] += 1
        else:
            self.moments["begun"] += 1

    def _merges(self) -> list[int]:
        """The batches that the log has, in its order."""
        found = []
        for file in sorted((self.folder / "t" / "_delta_log").glob("[0-9]*.json")):
            actions = [json.loads(line) for line in file.read_text().splitlines()]
            found += [
                action["txn"]["version"] for action in actions if action.get("txn", {}).get("appId") == APPLICATION
            ]
        return found

    def disturb(self) -> None:
        """Commits of others while no driver runs: rows of their own, changes of them, and new files for all rows."""
        table = DeltaTable(str(self.folder / "t"))
        match self.random.choice(["append", "update", "compact", "none"]):
            case "append":
                rows = {"key": [OTHERS + self.others], "amount": [1], "times": [0]}
                write_deltalake(table, pa.table(rows), mode="append")
                self.others += 1
            case "update":
                table.update({"amount": "amount"}, predicate=f"key >= {OTHERS}")
            case "compact":
                table.optimize.compact()

    def check(self) -> None:
        """Raise ``AssertionError`` where the rows are not those of the batches that the log has, each once."""
        table = DeltaTable(str(self.folder / "t"))
        merged = self._merges()
        assert merged == [*range(len(merged))], merged
        columns = table.to_pyarrow_table().to_pydict()
        listed = [*zip(columns["key"], columns["amount"], columns["times"], strict=True)]
        found = {key: (amount, times) for key, amount, times in listed if key < OTHERS}
        assert len(listed) == len({key for key, _, _ in listed}), "a row is there twice"
        assert found == self.expected(len(merged)), len(merged)
        assert {key for key, _, _ in listed if key >= OTHERS} == {OTHERS + number for number in range(self.others)}

    def finish(self) -> None:
        """Let the stream come to its end, and look once more."""
        with self._program("local[2]") as program:
            list(program.lines())
            assert program.process.wait() == 0, program.said()
        self.check()
        assert len(self._merges()) == self.batches


def _is_driver(command: str) -> bool:
    return "SparkSubmit" in command or "cluster.merging_stream" in command
