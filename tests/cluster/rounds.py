"""Statements of refdelta on a cluster that suffers: ``python -m cluster.rounds FOLDER SEED ROUND...``.

A round is ``LAYOUT:STATEMENT:TROUBLE``. Beside its statement, two processes without Spark write to the same table, and
keep it. Afterwards the log, which is read without the engine, and the rows must be what the statement and the writers
were told, the folder must have no data file that no commit names, and a failed statement must have said so in one
sentence of a ``DeltaError``. Prints a JSON object for each round, and at the end how often delta-spark read the same.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

import pyarrow.parquet as pq

import refdelta.spark
from cluster import sessions
from kills.campaign import LAYOUTS, _user_metadata
from kills.steps import SCHEMA, State, after, content, rows
from refdelta import CommitProperties, DeltaTable, errors, write_deltalake
from refdelta.core.rows.deletion_vector import relative_key
from refdelta.crosscheck import oracle
from refdelta.spark import SparkExecutor, typed_errors

STATEMENTS = (
    *("append", "replace", "partitions", "source", "source-replace", "stream", "read", "source-read"),
    *("merge", "update", "delete", "compact", "purge"),
)
TROUBLES = ("none", "fail", "crash", "slow", "executor", "executors", "doom", "cancel", "interrupt")
WRITER, KEEPER = 1, 2
PARTS, EACH = 6, 20
_OURS = 0
# The statements that write through the data source, and the job in the names of files that Spark's tasks have written.
_BY_SOURCE = {"source", "source-replace", "stream"}
_OF_JOB = re.compile(r"part-\d+-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-\d+-c")


def all_rounds() -> list[str]:
    """Each statement in each trouble, in each layout in which it makes sense."""
    return [
        f"{layout}:{statement}:{trouble}"
        for layout in LAYOUTS
        for statement in STATEMENTS
        for trouble in TROUBLES
        if (statement != "partitions" or layout == "partitions") and (statement != "purge" or layout == "vectors")
    ]


@dataclass
class Table:
    """A table, its writers outside of Spark, and the rows that it must have.

    Attributes:
        path: the folder.
        mine: the rows of the statements on Spark.
        done: the notes of the statements that are committed, in their order.
        steps: how many steps its writer has committed.
        lost: how many statements of its other writers have lost to a conflict.
        left: the data files that no commit names, of the rounds so far.
        jobs: the jobs that have written files.
        sources: those of them whose statement wrote through the data source.
    """

    path: Path
    layout: str
    mine: State = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    steps: int = 0
    lost: int = 0
    left: set[str] = field(default_factory=set)
    jobs: set[str] = field(default_factory=set)
    sources: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        write_deltalake(str(self.path), rows(-1, range(3), 0), **LAYOUTS[self.layout])
        command = [sys.executable, "-m", "cluster.outside", str(self.path)]
        self._others = [
            subprocess.Popen(
                [*command, str(owner), role],
                cwd=sessions.TESTS,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                process_group=0,  # an interrupt is for the driver
            )
            for owner, role in ((WRITER, "writer"), (KEEPER, "keeper"))
        ]

    def go(self) -> None:
        for other in self._others:
            print("go", file=other.stdin, flush=True)

    def stop(self) -> None:
        for other in self._others:
            print("stop", file=other.stdin, flush=True)
        told = [json.loads(other.stdout.readline()) for other in self._others]
        self.steps, self.lost = told[0]["steps"], sum(one["lost"] for one in told)

    def close(self) -> None:
        for other in self._others:
            other.stdin.close()
            other.wait()
            other.stdout.close()

    def check(self) -> None:
        """Raise ``AssertionError`` where the table is not what its writers were told."""
        log = {int(file.stem): file.read_text() for file in (self.path / "_delta_log").glob("[0-9]*.json")}
        assert sorted(log) == [*range(len(log))]
        noted = [note for _, text in sorted(log.items()) if (note := _user_metadata(text)) is not None]
        assert [note for note in noted if note.startswith("s")] == self.done, (noted, self.done)
        theirs = [f"{WRITER}/{number}" for number in range(self.steps)]
        assert [note for note in noted if note.startswith(f"{WRITER}/")] == theirs, (noted, theirs)
        state: State = {}
        for number in range(self.steps):
            state = after(state, number)
        expected = {-1: dict.fromkeys(range(3), 0), _OURS: self.mine, WRITER: state}
        found = content(DeltaTable(str(self.path)))
        assert found == {owner: own for owner, own in expected.items() if own}, different(found, expected)

    def named(self) -> set[str]:
        """The data files that commits name."""
        named = set()
        for file in (self.path / "_delta_log").glob("[0-9]*.json"):
            for line in file.read_text().splitlines():
                for what, action in json.loads(line).items():
                    if what in {"add", "remove", "cdc"}:
                        named.add(unquote(action["path"]))
                        vector = action.get("deletionVector") or {}
                        if vector.get("storageType") == "u":
                            named.add(relative_key(vector["pathOrInlineDv"]))
        return named

    def unnamed(self, *, source: bool) -> set[str]:
        """The data files that no commit names and that no round before has left.

        Args:
            source: the statement wrote through the data source. Its commit cannot wait for tasks that do not count: a
                file that was ended after all of its job that count may stay for VACUUM, and be seen in a later round.
        """
        named = self.named()
        there = {
            str(path.relative_to(self.path))
            for kind in ("*.parquet", "*.bin")
            for path in self.path.rglob(kind)
            if "_delta_log" not in path.parts
        }
        jobs = {found[1] for name in there | named if (found := _OF_JOB.search(name))}
        if source:
            self.sources |= jobs - self.jobs
        self.jobs |= jobs
        left = there - named - self.left
        self.left |= left
        return {name for name in left if not self._late(name, named)}

    def _late(self, name: str, named: set[str]) -> bool:
        """Whether a data file was ended after all files of its job, a data source's, that a commit names."""
        job = _OF_JOB.search(name)
        if job is None or job[1] not in self.sources:
            return False
        ended = [self.path / file for file in named if job[1] in file and (self.path / file).exists()]
        return (self.path / name).stat().st_mtime_ns > max((file.stat().st_mtime_ns for file in ended), default=0)


def different(found: dict[int, State], expected: dict[int, State]) -> str:
    """The first differences."""
    said = []
    for owner in sorted({*found, *expected}):
        one, other = found.get(owner, {}), expected.get(owner, {})
        wrong = sorted(key for key in {*one, *other} if one.get(key) != other.get(key))
        if wrong:
            said.append(
                f"owner {owner}: {len(wrong)} rows: {[(key, one.get(key), other.get(key)) for key in wrong[:5]]}"
            )
    return "; ".join(said)


# --- the statements on Spark ------------------------------------------------------------------------------------------


class Statements:
    """The statements of a round: each with its effect on the rows, which is what the table is held to."""

    def __init__(self, spark: Any, folder: Path, table: Table, number: int):
        self.spark, self.folder, self.table, self.number = spark, folder, table, number
        self.uri, self.note = str(table.path), f"s{number}"
        self.ids = range(number * PARTS * EACH, (number + 1) * PARTS * EACH)
        self.executor = SparkExecutor(spark, group_bytes=1, broadcast_bytes=0)
        self.noted = CommitProperties(user_metadata=self.note)
        self.effect: Callable[[State], State] | None = None

    def run(self, statement: str) -> None:
        """Run it. Before it may be committed, ``effect`` is set: what it does to the rows, None for a read."""
        getattr(self, f"_{statement.replace('-', '_')}")()

    def _frame(self) -> Any:
        frame = self.spark.range(self.ids.start, self.ids.stop, 1, PARTS)
        return frame.selectExpr(f"{_OURS}L as owner", "id", f"{self.number}L as value")

    def _adds(self) -> None:
        self.effect = lambda state: state | dict.fromkeys(self.ids, self.number)

    def _replaces(self) -> None:
        self.effect = lambda state: dict.fromkeys(self.ids, self.number)

    def _append(self) -> None:
        self._adds()
        refdelta.spark.write(self._frame(), self.uri, mode="append", commit_properties=self.noted)

    def _replace(self) -> None:
        self._replaces()
        mine = f"owner = {_OURS}"
        # Repartitioned by a shuffle, whose files are lost with an executor.
        frame = self._frame().repartition(PARTS)
        refdelta.spark.write(frame, self.uri, mode="overwrite", predicate=mine, commit_properties=self.noted)

    def _partitions(self) -> None:
        self._replaces()
        frame = self._frame().repartition(PARTS)
        refdelta.spark.write(
            frame, self.uri, mode="overwrite", partition_overwrite="dynamic", commit_properties=self.noted
        )

    def _source(self) -> None:
        self._adds()
        with typed_errors():
            writer = self._frame().write.format("refdelta").mode("append").option("userMetadata", self.note)
            writer.save(self.uri)

    def _source_replace(self) -> None:
        self._replaces()
        with typed_errors():
            writer = self._frame().repartition(PARTS).write.format("refdelta").mode("overwrite")
            writer.option("userMetadata", self.note).option("replaceWhere", f"owner = {_OURS}").save(self.uri)

    def _stream(self) -> None:
        """A stream of two batches, which goes on where the last one with its number has ended."""
        self._adds()
        came, checkpoint = self.folder / f"in{self.number}", self.folder / f"checkpoint{self.number}"
        if not came.exists():
            came.mkdir()
            for name, ids in (("a", self.ids[: len(self.ids) // 2]), ("b", self.ids[len(self.ids) // 2 :])):
                pq.write_table(rows(_OURS, ids, self.number), came / f"{name}.parquet")
        with typed_errors():
            frame = self.spark.readStream.schema("owner long, id long, value long").option("maxFilesPerTrigger", 1)
            stream = frame.parquet(str(came)).repartition(PARTS).writeStream.format("refdelta")
            stream = stream.option("checkpointLocation", str(checkpoint)).option("userMetadata", self.note)
            query = stream.trigger(availableNow=True).start(self.uri)
            try:
                query.awaitTermination()
            finally:
                query.stop()

    def _read(self) -> None:
        version = DeltaTable(self.uri).version()
        with typed_errors():
            found = refdelta.spark.read(self.spark, self.uri, version=version).repartition(PARTS).toArrow()
        self._same(found, version)

    def _source_read(self) -> None:
        version = DeltaTable(self.uri).version()
        with typed_errors():
            reader = self.spark.read.format("refdelta").option("versionAsOf", version)
            found = reader.load(self.uri).repartition(PARTS).toArrow()
        self._same(found, version)

    def _same(self, found: Any, version: int) -> None:
        order = [(name, "ascending") for name in SCHEMA.names]
        ours = DeltaTable(self.uri, version=version).to_pyarrow_table().select(SCHEMA.names).sort_by(order)
        assert found.select(SCHEMA.names).sort_by(order).to_pydict() == ours.to_pydict(), version

    def _merge(self) -> None:
        """Some of the rows that are there, and new ones."""
        known = set(sorted(self.table.mine)[::3])
        gone = {key for key in known if key % 2 == 0}

        def effect(state: State) -> State:
            changed = {key: state[key] + self.number for key in known - gone}
            merged = state | changed | dict.fromkeys(self.ids, self.number)
            return {key: value for key, value in merged.items() if key not in gone}

        self.effect = effect
        listed = [(_OURS, key, self.number) for key in sorted(known)]
        some = self.spark.createDataFrame(listed, "owner long, id long, value long")
        source = self._frame().union(some).repartition(PARTS)
        on = f"t.owner = {_OURS} and t.owner = s.owner and t.id = s.id"
        merger = DeltaTable(self.uri).merge(source, on, executor=self.executor, commit_properties=self.noted)
        merger = merger.when_matched_delete("t.id % 2 = 0").when_matched_update({"value": "t.value + s.value"})
        merger.when_not_matched_insert_all().execute()

    def _update(self) -> None:
        self.effect = lambda state: {key: value + 1000 if key % 3 == 1 else value for key, value in state.items()}
        mine = f"owner = {_OURS} and id % 3 = 1"
        DeltaTable(self.uri).update(
            {"value": "value + 1000"}, predicate=mine, executor=self.executor, commit_properties=self.noted
        )

    def _delete(self) -> None:
        self.effect = lambda state: {key: value for key, value in state.items() if key % 7 != 2}
        mine = f"owner = {_OURS} and id % 7 = 2"
        DeltaTable(self.uri).delete(mine, executor=self.executor, commit_properties=self.noted)

    def _compact(self) -> None:
        self.effect = dict
        DeltaTable(self.uri).optimize.compact(executor=self.executor, commit_properties=self.noted)

    def _purge(self) -> None:
        self.effect = dict
        DeltaTable(self.uri).reorg_purge(executor=self.executor, commit_properties=self.noted)


# --- a round ----------------------------------------------------------------------------------------------------------


class Rounds:
    """Rounds on one session.

    Args:
        spark: the session.
        folder: where tables and the rest are.
        seed: of the moments, tasks and executors.
    """

    def __init__(self, spark: Any, folder: Path, seed: int):
        self.spark, self.folder, self.random = spark, folder, random.Random(seed)
        self.chaos = folder / "chaos"
        self.tables: dict[str, Table] = {}
        self.number = self.strikes = 0

    def run(self, name: str) -> dict[str, Any]:
        """Run a round, and return what came of it. Raises ``AssertionError``."""
        layout, statement, trouble = name.split(":")
        if layout not in self.tables:
            self.tables[layout] = table = Table(self.folder / layout, layout)
            self.number += 1
            self._told(table, "append")  # rows for the first statement, without trouble
        table = self.tables[layout]
        self.number += 1
        began = time.monotonic()
        self._all_executors()
        ready = time.monotonic()
        table.go()
        try:
            ended = self._in_trouble(table, statement, trouble)
        finally:
            self.chaos.unlink(missing_ok=True)
            table.stop()
        table.check()
        left = sorted(table.unnamed(source=statement in _BY_SOURCE))
        seconds = {"executors": round(ready - began, 1), "all": round(time.monotonic() - began, 1)}
        told = {"round": name, "number": self.number, "ended": ended, "left": left}
        return {**told, "struck": self._struck(), "seconds": seconds}

    def _struck(self) -> int:
        """How many times something happened, to executors and jobs or to attempts at tasks."""
        noted = self.chaos.with_name("struck")
        lines = noted.read_text().splitlines() if noted.exists() else []
        noted.unlink(missing_ok=True)
        return self.strikes + len(lines)

    def _in_trouble(self, table: Table, statement: str, trouble: str) -> str:
        dice = self.random
        kind = {"fail": "fail", "crash": "crash", "slow": "slow", "doom": "doom"}.get(trouble)
        if kind:
            said = {"kind": kind, "seed": dice.randrange(1000), "share": 0.4, "seconds": 3 + 3 * dice.random()}
            said |= {"moment": dice.choice(["before", "after"]), "later": dice.choice([0, 15])}
            self.chaos.write_text(json.dumps(said))
        wait = dice.uniform(0.05, 1.5)
        with Striking(self.spark, trouble, wait, dice.randrange(2)) as striking:
            try:
                return self._told(table, statement, striking)
            finally:
                self.strikes = int(striking.struck)

    def _told(self, table: Table, statement: str, striking: Striking | None = None) -> str:
        """Run a statement; how it ended. What it told is added to what the table must have."""
        run = Statements(self.spark, self.folder, table, self.number)
        raised: BaseException | None = None
        try:
            try:
                run.run(statement)
            finally:
                if striking is not None:
                    striking.over()
        except BaseException as error:
            raised = error
        if isinstance(raised, KeyboardInterrupt):
            # Spark goes on with what it has begun: a commit by the format may come after the interrupt.
            self._all_ended()
            refdelta.spark.register(self.spark)
        times = _noted(table.path).count(run.note)
        if statement == "stream":
            return self._streamed(table, raised)
        if raised is None:
            # A statement that has nothing to do commits nothing.
            idle = run.effect is None or statement in {"compact", "purge"} or run.effect(table.mine) == table.mine
            assert times == 1 or (not times and idle), times
        else:
            unknown = isinstance(raised, (KeyboardInterrupt, errors.CommitOutcomeUnknownError))
            assert not times or (unknown and times == 1), f"it failed, and is committed {times} times: {raised!r}"
        if run.effect is not None and times:
            table.done.append(run.note)
            table.mine = run.effect(table.mine)
        return "committed" if raised is None else f"{type(raised).__name__}{', committed' * times}: {_sentence(raised)}"

    def _streamed(self, table: Table, raised: BaseException | None) -> str:
        """Start a stream that was stopped again, without trouble: all of its rows are there then, once."""
        run = Statements(self.spark, self.folder, table, self.number)
        before = _noted(table.path).count(run.note)
        if raised is not None:
            self.chaos.unlink(missing_ok=True)
            run.run("stream")
        else:
            run._adds()
        assert _noted(table.path).count(run.note) == 2
        table.done += [run.note] * 2
        table.mine = run.effect(table.mine)
        return (
            "committed" if raised is None else f"{type(raised).__name__}, {before} of 2 committed: {_sentence(raised)}"
        )

    def _all_executors(self) -> None:
        """Wait for the executors that take the place of those that were killed."""
        known = self.spark.sparkContext._jsc.sc()
        give_up = time.monotonic() + 120
        while len(known.statusTracker().getExecutorInfos()) < 3 and time.monotonic() < give_up:
            time.sleep(0.05)

    def _all_ended(self) -> None:
        """Wait for the statements that Spark has begun."""
        store = self.spark._jsparkSession.sharedState().statusStore()
        give_up = time.monotonic() + 120
        while time.monotonic() < give_up:
            begun = store.executionsList()
            if all(begun.apply(at).completionTime().isDefined() for at in range(begun.size())):
                return
            time.sleep(0.1)

    def finish(self) -> None:
        for table in self.tables.values():
            table.close()
            table.check()


def _noted(path: Path) -> list[str | None]:
    log = sorted((path / "_delta_log").glob("[0-9]*.json"))
    return [_user_metadata(file.read_text()) for file in log]


def _sentence(raised: BaseException) -> str:
    """The text of an error, after ``RAW`` if it is not one sentence of a ``DeltaError``."""
    if isinstance(raised, KeyboardInterrupt):
        return ""
    text = str(raised)
    ours = isinstance(raised, errors.DeltaError)
    if ours and not any(part in text for part in ("\n", "Py4J", "org.apache")):
        return text
    return f"RAW {text}"


class Striking:
    """Something that happens to the session in the midst of the block."""

    def __init__(self, spark: Any, trouble: str, wait: float, which: int):
        self.spark, self.trouble, self.which = spark, trouble, which
        self._lock, self._over = threading.Lock(), trouble not in {"executor", "executors", "cancel", "interrupt"}
        self._timer = threading.Timer(wait, self._strike)
        self.struck = False

    def __enter__(self) -> Self:
        self.spark.sparkContext.setJobGroup("round", "a statement")
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over()
        self._timer.join()
        self.spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)

    def over(self) -> None:
        """Nothing more happens."""
        self._timer.cancel()
        with self._lock:
            self._over = True

    def _strike(self) -> None:
        with self._lock:
            if self._over:
                return
            self.struck = True
            match self.trouble:
                case "executor":
                    alive = sessions.executors(os.getsid(0))
                    sessions.kill(*alive[self.which : self.which + 1])
                case "executors":
                    sessions.kill(*sessions.executors(os.getsid(0)))
                case "cancel":
                    self.spark.sparkContext.cancelJobGroup("round")
                    self.spark.sparkContext.cancelAllJobs()
                case "interrupt":
                    os.kill(os.getpid(), signal.SIGINT)


def main(folder: Path, seed: int, names: list[str]) -> None:
    conf = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.5",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "200ms",
    }
    with sessions.cluster(folder, conf=conf) as spark:
        refdelta.spark.register(spark)
        rounds = Rounds(spark, folder, seed)
        try:
            for name in names:
                try:
                    told = rounds.run(name)
                except Exception:
                    told = {"round": name, "wrong": traceback.format_exc()}
                print(json.dumps(told), flush=True)
                if "wrong" in told:
                    for table in rounds.tables.values():
                        with suppress(Exception):
                            table.close()
                    rounds.tables = {}
                    rounds.folder = folder / f"after{rounds.number}"
                    rounds.folder.mkdir()
        finally:
            rounds.finish()
    with oracle.session(conf=oracle.QUICK) as spark:
        for table in rounds.tables.values():
            found = oracle.read_table(spark, table.path).select(SCHEMA.names).to_pydict()
            ours = content(DeltaTable(str(table.path)))
            listed = [(owner, key, value) for owner, state in ours.items() for key, value in state.items()]
            assert sorted(zip(*found.values(), strict=True)) == sorted(listed), table.path
    print(json.dumps({"rounds": len(names), "tables": len(rounds.tables)}), flush=True)


if __name__ == "__main__":
    _, where, seeded, *asked = sys.argv
    main(Path(where), int(seeded), asked)
