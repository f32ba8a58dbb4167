"""Random histories by delta-spark: what it says of their versions is what is read here, and the tables are sound.

A history is given by its seed; ``REFDELTA_HISTORIES=100-200`` runs others. A failure prints the statements.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import spark_tables
from comparison import assert_same_table
from oracle.spark_coordinator import Coordinator, connect
from random_histories import CHECKPOINT, History
from refdelta import DeltaTable, errors, verify
from refdelta.catalog import SqlCatalog
from refdelta.crosscheck import oracle
from refdelta.crosscheck.published import by_path

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark

FIRST, LAST = map(int, os.environ.get("REFDELTA_HISTORIES", "3-7").split("-"))
STEPS = 12
IDS = ("_metadata.row_id", "_metadata.row_commit_version")
# Oddities of delta-spark: spec_notes/other_writers.md.
KNOWN = {"cdf-5", "cluster-2"}


@dataclass(frozen=True)
class Questions:
    """The questions to both engines about one version: its rows, and the rows that each predicate selects."""

    version: int
    columns: tuple[str, ...]
    tracked: bool
    selections: tuple[tuple[str, tuple[str, ...]], ...]

    def ask(self, spark: Any, path: Path) -> pa.Table:
        """The rows by delta-spark; after its columns, the ids of rows and the value of each predicate.

        It computes the predicates of every row, so that nothing is skipped by statistics.
        """
        wanted = ["*", *(f"{name} AS `{name}`" for name in IDS if self.tracked)]
        wanted += [f"({sql}) AS `?{number}`" for number, (sql, _) in enumerate(self.selections)]
        statement = f"SELECT {', '.join(wanted)} FROM {{t}} VERSION AS OF {self.version}"
        return spark_tables.sql(spark, path, statement).toArrow()

    def differences(self, table: DeltaTable, theirs: pa.Table) -> list[str]:
        """The differences of the rows as refdelta reads them."""
        said: list[str] = []
        ids = list(IDS) if self.tracked else []

        def compare(what: str, columns: list[str], mask: Any = None) -> None:
            want = theirs.select(columns)
            try:
                got = table.to_pyarrow_table(columns=columns, filters=None if mask is None else what)
                assert_same_table(got, want if mask is None else want.filter(mask))
            except (AssertionError, errors.DeltaError) as error:
                said.append(f"version {self.version}: {what}: {type(error).__name__}: {str(error)[:800]}")

        compare("all", [name for name in theirs.schema.names if not name.startswith(("?", "_metadata."))])
        if ids:
            compare("row ids", [*self.columns, *ids])
        for number, (sql, columns) in enumerate(self.selections):
            compare(sql, list(columns), theirs.column(f"?{number}"))
        return said


def questions(history: History, version: int) -> Questions:
    """Random ones of a version of a history."""
    state, dice = history.past[version], history.dice
    names = state.columns.names()
    some = lambda: tuple(dice.sample(names, dice.randint(1, len(names))))  # noqa: E731
    selections = tuple((history.make.predicate(state.columns), some()) for _ in range(16))
    return Questions(version, some(), state.is_on("enableRowTracking"), selections)


def feed_differences(
    spark: Any, path: Path, table: DeltaTable, first: int, last: int, in_commit_timestamps: bool
) -> list[str]:
    """Where the change feeds of both engines differ; either may refuse where columns changed."""
    reader = spark.read.format("delta").option("readChangeFeed", "true")
    theirs = refused = None
    try:
        theirs = reader.option("startingVersion", first).option("endingVersion", last).load(str(path)).toArrow()
    except Exception as error:
        refused = str(error)[:200]
    try:
        ours = table.load_cdf(first, last).read_all()
    except errors.DeltaError as error:
        return [] if theirs is None else [f"feed {first}-{last}: {type(error).__name__}: {error}"]
    if theirs is None:
        return [f"feed {first}-{last}: delta-spark refuses: {refused}"]
    if in_commit_timestamps:  # delta-spark gives the files' times here
        ours, theirs = (feed.drop_columns(["_commit_timestamp"]) for feed in (ours, theirs))
    try:
        assert_same_table(ours, theirs)
    except AssertionError as error:
        return [f"feed {first}-{last}: {str(error)[:800]}"]
    return []


class Run:
    """One history as delta-spark writes it.

    Attributes:
        said: the statements, with the reasons of those that it refused.
        differences: what was read otherwise on the way.
    """

    most_refused = STEPS

    def __init__(self, spark: Any, path: Path, seed: int) -> None:
        self.spark, self.path, self.history = spark, path, History(seed)
        self.said: list[str] = []
        self.refused = 0
        self.differences: list[str] = []

    def write(self, steps: int) -> None:
        """Create the table and run so many statements, looking at it now and then."""
        before = {name: self.spark.conf.get(name, None) for name in self.history.settings}
        self.said.append(f"settings {self.history.settings}")
        try:
            self._set(self.history.settings)
            while not self.history.past:  # some sorts of columns are not to cluster a table by
                self._run(self.history.create())
            for step in range(steps):
                self._run(self.history.next() if step else self.history.insert())
                if step % 4 == 3:
                    self._set({"spark.sql.session.timeZone": "UTC"})
                    self.look()
                    self._set(self.history.settings)
        finally:
            self._set(before)

    def _set(self, settings: dict[str, str | None]) -> None:
        for name, value in settings.items():
            if value is None:
                self.spark.conf.unset(name)
            else:
                self.spark.conf.set(name, value)

    def _run(self, statement: Any) -> None:
        self.said.append(statement.sql)
        try:
            if statement.sql == CHECKPOINT:
                oracle.checkpoint(self.spark, self.path)
            else:
                spark_tables.sql(self.spark, self.path, statement.sql)
        except Exception as error:  # of several classes of Java's
            self.refused += 1
            if self.refused == self.most_refused:
                raise
            self.said.append(f"-- refused: {str(error)[:300]}")
            return
        self.history.took(statement, self.table().version())

    def table(self, version: int | None = None) -> DeltaTable:
        """The table as refdelta opens it."""
        return DeltaTable(self.path, version=version)

    def look(self) -> None:
        """Compare the newest version, and one before it."""
        versions = sorted(self.history.past)
        for version in {versions[-1], self.history.dice.choice(versions)}:
            asked = questions(self.history, version)
            self.differences += asked.differences(self.table(version), asked.ask(self.spark, self.path))
        on = [v for v in versions if self.history.past[v].is_on("enableChangeDataFeed")]
        if on:
            first = self.history.dice.choice(on)
            timed = self.history.past[versions[-1]].is_on("enableInCommitTimestamps")
            self.differences += feed_differences(self.spark, self.path, self.table(), first, versions[-1], timed)

    def verify(self) -> None:
        """Verify all that was written."""
        found = verify(self.table(), sample=None).findings
        self.differences += [str(one) for one in found if one.clause not in KNOWN and "__is_cdc" not in one.message]


class ManagedRun(Run):
    """The same of a catalog-managed table: each commit of delta-spark goes through our catalog."""

    most_refused = 2 * STEPS  # several kinds of statements are forbidden there

    def __init__(self, spark: Any, path: Path, seed: int, catalog: SqlCatalog, coordinator: Coordinator) -> None:
        super().__init__(spark, path, seed)
        self.catalog, self.coordinator = catalog, coordinator
        self.history.settings["spark.databricks.delta.properties.defaults.feature.catalogManaged"] = "supported"

    def table(self, version: int | None = None) -> DeltaTable:
        if self.catalog.tables():
            return self.catalog.table("random", version)
        # delta-spark has written version 0, and asks a catalog for all others.
        entry = self.catalog._reserve("random", str(self.path), "staged")
        self.catalog._activate(entry)
        table = self.catalog.table("random")
        self.coordinator.serve(table)
        return table


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("seed", range(FIRST, LAST + 1))
def test_what_delta_spark_commits_to_a_catalog_at_random(quick_spark, tmp_path, seed):
    with SqlCatalog(f"sqlite:///{tmp_path}/catalog.db") as catalog, by_path(quick_spark):
        run = ManagedRun(quick_spark, tmp_path / "t", seed, catalog, connect(quick_spark))
        try:
            run.write(STEPS)
            run.verify()
            assert not run.differences
            assert len(run.history.past) > STEPS // 3, "delta-spark refused most of it"
            assert run.coordinator.ratified
        except BaseException:
            print("\n".join(run.said))
            raise


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("seed", range(FIRST, LAST + 1))
def test_what_delta_spark_writes_at_random(quick_spark, tmp_path, seed):
    run = Run(quick_spark, tmp_path / "t", seed)
    try:
        run.write(STEPS)
        run.verify()
        assert not run.differences
        assert len(run.history.past) > STEPS // 2, "delta-spark refused most of it"
    except BaseException:
        print("\n".join(run.said))
        raise
