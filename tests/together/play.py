"""A program is played on a table: by refdelta alone, or with delta-spark in turns, and held to the model."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from comparison import assert_same_table
from refdelta import DeltaTable, errors, verify
from refdelta.crosscheck import oracle
from refdelta.verifier.report import Finding
from together.model import State
from together.programs import Program, Transactions
from together.statements import Statement
from together.upkeep import Optimize

IDS: Final = ["_metadata.row_id", "_metadata.row_commit_version"]
TOLD: Final = ("id", "a", "b", "part")  # of a row in the feed
Tracked = dict[int, list[int]]  # the id of a row and its commit version


class Play:
    """One program on one table.

    Attributes:
        said: what has happened, for whoever has to find out why it went wrong.
        ended: how many transactions conflicted, and how many committed.
    """

    def __init__(self, seed: int, path: Path, spark: Any = None) -> None:
        self.program, self.path, self.spark = Program(seed), path, spark
        self.dice = random.Random(f"checks of {seed}")
        self.said = [f"seed {seed}: {self.program}"]
        self.ended: Counter[str] = Counter()
        self.numbers: dict[int, int] = {}  # of the identity column
        self.known: Tracked = {}

    def play(self) -> None:
        try:
            self._play()
        except BaseException as error:
            error.add_note("\n".join(self.said))
            raise

    def _play(self) -> None:
        program = self.program
        program.create(self.spark, self.path)
        self.versions = {DeltaTable(self.path).version(): program.state.copy()}
        for step, statement in enumerate(program.statements()):
            self.said.append(f"{DeltaTable(self.path).version() + 1}: {statement}")
            before, version = program.state, DeltaTable(self.path).version()
            if isinstance(statement, Transactions):
                self.transactions(statement)
            else:
                program.state = before.copy()
                program.state.touched = set()
                statement.run(self.spark, self.path)
                statement.model(program.state)
            self.check(before, version, statement)
            now = DeltaTable(self.path).version()
            self.versions[now] = program.state.copy()
            if type(statement).__name__ == "Drop":
                program.past = []
            program.past.append((now, program.state.copy()))
            if self.spark is not None and step % 4 == 3:
                self.compare()
        self.end()

    @property
    def dropped(self) -> frozenset[str]:
        """The features that the table has no longer."""
        return self.program.features - self.program.state.features

    # --- statements at the same time ---

    def transactions(self, statement: Transactions) -> None:
        """Those that commit do so as if one after the other; the others conflict and leave nothing."""
        before = self.program.state
        begun = [(one, DeltaTable(self.path).begin()) for one in statement.begun]
        for one, txn in begun:
            one.stage(txn, self.path)
        statement.winner.run(self.spark, self.path)
        done: list[Statement] = [statement.winner]
        for one, txn in begun:
            try:
                result = txn.commit()
            except errors.ConcurrentModificationError as error:
                self.said.append(f"   conflict: {type(error).__name__} of {type(one).__name__}")
                self.ended[f"{type(one).__name__} lost"] += 1
            else:
                self.said.append(f"   {type(one).__name__} is version {result.version}")
                self.ended[f"{type(one).__name__} won"] += 1
                done.append(one)
        found = self.rows(DeltaTable(self.path), None)
        for order in itertools.permutations(done):
            state = before.copy()
            state.touched = set()
            for each in order:
                each.model(state)
            if _plain(state.rows) == found[0]:
                self.program.state = state
                return
        raise AssertionError(f"no order of {[type(one).__name__ for one in done]} gives these rows: {found[0]}")

    # --- what there should be ---

    def rows(self, table: DeltaTable, state: State | None) -> tuple[dict[int, Any], dict[int, int]]:
        """The rows by id, in the model's form, and the numbers of their identity column."""
        state = state or self._after_any(table)
        found = table.to_pyarrow_table()
        assert set(found.column_names) == {state.name(role) for role in state.columns}
        roles = {state.name(role): role for role in state.columns}
        rows, numbers = {}, {}
        for told in found.to_pylist():
            row = {roles[name]: value for name, value in told.items()}
            if row["s"] is not None:
                row["s"] = {"x": row["s"][state.name("x")], "y": row["s"]["y"]}
            number = row.pop("num", None)
            assert row["id"] not in rows, f"two rows of id {row['id']}"
            rows[row["id"]] = row
            if "num" in state.names:
                numbers[row["id"]] = number
        return rows, numbers

    def _after_any(self, table: DeltaTable) -> State:
        """The columns of a table behind transactions, of which one may have added a column."""
        state = self.program.state.copy()
        names = set(table.schema().to_arrow().names)
        state.extra = [name for name in names if name.startswith("e") and len(name) == 2]
        return state

    def check(self, before: State, version: int, statement: Statement) -> None:
        state, table = self.program.state, DeltaTable(self.path)
        rows, numbers = self.rows(table, state)
        assert rows == _plain(state.rows), _difference(rows, _plain(state.rows))
        assert len(set(numbers.values())) == len(numbers)
        for key, number in numbers.items():
            assert self.numbers.setdefault(key, number) == number, f"the number of row {key} has changed"
        if "tracking" in state.features:
            self.check_ids(before, version, statement, table)
        if "feed" in state.features:
            self.check_feed(before, version, statement, table)
        self.check_past(table)

    def check_ids(self, before: State, version: int, statement: Statement, table: DeltaTable) -> None:
        """A row keeps its id for ever, and its version until a statement touches it."""
        tracked = self.tracked(table)
        assert len({row_id for row_id, _ in tracked.values()}) == len(tracked)
        for key, (row_id, since) in tracked.items():
            known = self.known.get(key)
            if known is None:
                assert since > version
            else:
                assert row_id == known[0], f"row {key} had id {known[0]} and has {row_id}"
                if key in before.rows and key not in self.program.state.touched:
                    assert since == known[1], f"row {key} was of version {known[1]} and is of {since}"
                elif not statement.whole_rows:
                    assert since > version, f"row {key} was changed behind {version} and is of {since}"
        self.known |= tracked

    def tracked(self, table: DeltaTable) -> Tracked:
        found = table.to_pyarrow_table(columns=[self.program.state.name("id"), *IDS])
        return {key: told for key, *told in zip(*(column.to_pylist() for column in found.columns), strict=True)}

    def check_feed(self, before: State, version: int, statement: Statement, table: DeltaTable) -> None:
        state = self.program.state
        if table.version() == version:
            return
        if before.names != state.names:
            return  # no feed over a column that changed its name
        names = [state.name(role) for role in TOLD]
        told = table.load_cdf(version + 1).read_all().to_pylist()
        changes = Counter((row["_change_type"], *(row[name] for name in names)) for row in told)
        net: Counter[Any] = Counter()
        for (kind, *row), count in changes.items():
            net[tuple(row)] += count if kind in ("insert", "update_postimage") else -count
        old, new = _told(before), _told(state)
        assert {row: n for row, n in net.items() if n} == {
            row: n for row in old.keys() | new.keys() if (n := new[row] - old[row])
        }, f"the feed of versions behind {version} does not lead from one to the other: {changes}"
        if table.version() == version + 1 and not statement.whole_rows and not isinstance(statement, Optimize):
            assert changes == _changes(before, state), f"the feed of version {version + 1}"

    def check_past(self, table: DeltaTable) -> None:
        version, state = self.dice.choice(list(self.versions.items()))
        assert self.rows(DeltaTable(self.path, version=version), state)[0] == _plain(state.rows), f"version {version}"
        if "stamps" in self.program.features:
            stamp = next(entry["timestamp"] for entry in table.history() if entry["version"] == version)
            moment = datetime.fromtimestamp(stamp / 1000, UTC)
            assert DeltaTable(self.path, version=moment).version() == version

    # --- what delta-spark thinks ---

    def compare(self) -> None:
        """Both engines read the same: rows, ids of rows, and a version by its time."""
        spark, path, state, table = self.spark, self.path, self.program.state, DeltaTable(self.path)
        oracle.clear_cache(spark)
        assert_same_table(table.to_pyarrow_table(), oracle.read_table(spark, path))
        if "tracking" in state.features:
            theirs = oracle.frame(spark, path).select(state.sql("id"), *IDS).collect()
            ours, wanted = self.tracked(table), {key: told for key, *told in theirs}
            assert ours == wanted, _difference(ours, wanted)
        if "stamps" in state.features:
            entry = self.dice.choice(table.history())
            moment = datetime.fromtimestamp(entry["timestamp"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
            theirs = spark.read.format("delta").option("timestampAsOf", moment).load(str(path)).toArrow()
            assert_same_table(DeltaTable(path, version=entry["version"]).to_pyarrow_table(), theirs)
        if "clustering" in state.features and "mapping" not in self.dropped:
            assert table.detail()["clustering_columns"] == oracle.detail(spark, path)["clusteringColumns"]

    def compare_feeds(self) -> None:
        """The whole of the feed, and some of it: the same, or refused by both."""
        last = DeltaTable(self.path).version()
        ranges = [(0, last), *(tuple(sorted(self.dice.choices(range(last + 1), k=2))) for _ in range(3))]
        for first, end in ranges:
            reader = self.spark.read.format("delta").option("readChangeFeed", "true")
            reader = reader.options(startingVersion=first, endingVersion=end)
            try:
                ours = DeltaTable(self.path).load_cdf(first, end).read_all()
            except errors.SchemaMismatchError:
                with pytest.raises(Exception):  # noqa: B017, PT011 - of several classes of Java's
                    reader.load(str(self.path)).toArrow()
                continue
            theirs = reader.load(str(self.path)).toArrow()
            if "stamps" in self.program.features:  # delta-spark gives the times of files there
                ours, theirs = (table.drop_columns(["_commit_timestamp"]) for table in (ours, theirs))
            assert_same_table(ours, theirs)

    def end(self) -> None:
        if self.spark is not None:
            self.compare()
            # Of the time before the vectors of a table were dropped, delta-spark gives all rows of files that had them.
            if "feed" in self.program.features and "vectors" not in self.dropped:
                self.compare_feeds()
        findings = [str(finding) for finding in verify(self.path, sample=None).findings if not _of_spark(finding)]
        assert not findings, "\n".join(findings)


def _of_spark(finding: Finding) -> bool:
    """Whether delta-spark is known to leave this: spec_notes/other_writers.md."""
    return finding.clause in ("cdf-5", "cluster-1") or (finding.clause == "file-2" and "__is_cdc" in finding.message)


def _plain(rows: dict[int, Any]) -> dict[int, Any]:
    return {key: {name: value for name, value in row.items() if name != "num"} for key, row in rows.items()}


def _told(state: State) -> Counter[Any]:
    return Counter(tuple(row[role] for role in TOLD) for row in state.rows.values())


def _changes(before: State, after: State) -> Counter[Any]:
    """What a statement's feed has to say, from the rows that it touched."""
    found: Counter[Any] = Counter()
    for key in before.rows.keys() | after.rows.keys():
        old, new = ([*(row[role] for role in TOLD)] if (row := s.rows.get(key)) else None for s in (before, after))
        if old and new:
            if key in after.touched:
                found[("update_preimage", *old)] += 1
                found[("update_postimage", *new)] += 1
        elif old:
            found[("delete", *old)] += 1
        else:
            found[("insert", *new)] += 1
    return found


def _difference(found: dict[int, Any], wanted: dict[int, Any]) -> str:
    keys = [key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key)]
    return f"rows {keys[:5]}: {[(found.get(key), wanted.get(key)) for key in keys[:3]]}"
