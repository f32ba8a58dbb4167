"""A transaction that commits over others which won while it was open.

It deletes a partition, so it looks at no data file. The winners update other partitions; each of them has to be read
and checked, since any might have brought rows into that partition. The table's and the winners' log files are the same
for all engines, linked into a fresh folder each time: the transaction begins on version 0, then the winners appear.

* The statement: delete and commit, as a user says it, with what follows a commit in either engine (the handle then
  stands on the newest version).
* The commit alone: the loop of put, read and check, up to the file of its own version; there is no rival of which that
  part could be told apart. The floor is what any engine has to do for it: read the bytes of the winners' files, and
  decode of each action the fields that a rule looks at into structs, with the quickest decoder that Python has. It
  writes nothing, checks nothing, and does not ask for the newest version.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import deltalake
import msgspec
import pytest
import winners as log_files
from contest import Engine, ahead, within

import refdelta
from refdelta.transaction.driver import commit

COUNTS = (10, 100, 1_000, 10_000)
ACTIONS = 10
LIVE = 100


# --- a fresh table each time -------------------------------------------------------------------------------------


class Stage:
    """Log files of a table and of the winners, and folders in which a transaction meets them."""

    def __init__(self, folder: Path, *, winners: int, actions: int = ACTIONS, live: int = LIVE):
        self.folder, self.winners = folder, winners
        self.table, self.won = folder / "table", folder / "won"
        log_files.write_table(self.table, live)
        log_files.write_winners(self.won, winners, actions)

    def open(self) -> Path:
        """A table at version 0."""
        path = Path(tempfile.mkdtemp(dir=self.folder))
        (path / "_delta_log").mkdir()
        log_files.link(self.table, path / "_delta_log")
        return path

    def let_win(self, path: Path) -> None:
        log_files.link(self.won, path / "_delta_log")

    def close(self, path: Path) -> None:
        """See that the partition was deleted by the version behind the winners."""
        lines = (path / "_delta_log" / log_files.name_of(self.winners + 1)).read_text().splitlines()
        gone = [line for line in map(json.loads, lines) if "remove" in line]
        assert len(gone) == log_files.OWN_FILES
        shutil.rmtree(path)


# --- the engines -------------------------------------------------------------------------------------------------


def refdelta_statement(stage: Stage) -> Engine:
    def before() -> tuple[Path, refdelta.WriteTransaction]:
        path = stage.open()
        txn = refdelta.DeltaTable(path, storage_options={"fsync": "false"}).begin()
        stage.let_win(path)
        return path, txn

    def run(begun: tuple[Path, refdelta.WriteTransaction]) -> None:
        begun[1].delete(log_files.MINE)
        begun[1].commit()

    return Engine("refdelta", run, before, lambda begun: stage.close(begun[0]), "no fsync")


def refdelta_commit(stage: Stage) -> Engine:
    def before() -> tuple[Path, Any, Any]:
        path = stage.open()
        txn = refdelta.DeltaTable(path, storage_options={"fsync": "false"}).begin()
        txn.delete(log_files.MINE)
        stage.let_win(path)
        held = txn._transaction  # noqa: SLF001
        return path, held.store, held._prepared(held.description)  # noqa: SLF001

    def run(begun: tuple[Path, Any, Any]) -> None:
        commit(begun[1], begun[2])

    return Engine("refdelta", run, before, lambda begun: stage.close(begun[0]), "no fsync; log files in page cache")


def deltalake_statement(stage: Stage) -> Engine:
    def before() -> tuple[Path, deltalake.DeltaTable]:
        path = stage.open()
        table = deltalake.DeltaTable(path)
        stage.let_win(path)
        return path, table

    def run(begun: tuple[Path, deltalake.DeltaTable]) -> None:
        begun[1].delete(log_files.MINE)

    return Engine("deltalake", run, before, lambda begun: stage.close(begun[0]), "no fsync")


def spark_commit(stage: Stage, spark: Any) -> Engine:
    """Its own ``OptimisticTransaction``, begun and read beforehand; what is timed is its commit."""
    from refdelta.conformance.cases import CaseTransaction
    from refdelta.conformance.core_transactions import SparkTransaction

    tombstones = [log_files.remove(f"part=mine/{number:06}.parquet", "mine") for number in range(log_files.OWN_FILES)]

    def before() -> tuple[Path, SparkTransaction]:
        path = stage.open()
        begun = SparkTransaction(spark, path, CaseTransaction("stale", (log_files.MINE,), ()), first=False)
        stage.let_win(path)
        return path, begun

    def run(begun: tuple[Path, SparkTransaction]) -> None:
        failure = begun[1].commit(tombstones)
        assert failure is None, failure

    return Engine("delta-spark", run, before, lambda begun: stage.close(begun[0]), "commit alone, no fsync", every=2)


class _File(msgspec.Struct, rename="camel", gc=False):
    path: str
    data_change: bool = True
    partition_values: dict[str, str | None] | None = None
    deletion_vector: dict[str, Any] | None = None


class _Info(msgspec.Struct, rename="camel", gc=False):
    operation: str | None = None
    txn_id: str | None = None
    is_blind_append: bool = False


class _Line(msgspec.Struct, rename="camel", gc=False):
    commit_info: _Info | None = None
    add: _File | None = None
    remove: _File | None = None
    meta_data: dict[str, Any] | None = None
    protocol: dict[str, Any] | None = None
    txn: dict[str, Any] | None = None
    domain_metadata: dict[str, Any] | None = None


_DECODER = msgspec.json.Decoder(_Line)


def floor(stage: Stage) -> Engine:
    names = [str(stage.won / log_files.name_of(version)) for version in range(1, stage.winners + 1)]

    def run() -> None:
        for name in names:
            with open(name, "rb", buffering=0) as stream:  # noqa: PTH123 - the quickest way
                _DECODER.decode_lines(stream.read())

    return Engine("floor", run, settings="read the winners' files, lean decode")


# --- the benchmarks ----------------------------------------------------------------------------------------------


def _only(size: Any, winners: int, *, smoke: int = 10, default: int, full: int) -> None:
    if winners > size(smoke=smoke, default=default, full=full):
        pytest.skip("in larger runs")


@pytest.mark.parametrize("winners", COUNTS)
def bench_stale_statement(contest, size, folder, winners):
    _only(size, winners, default=1_000, full=10_000)
    stage = Stage(folder, winners=winners)
    engines = [refdelta_statement(stage), deltalake_statement(stage), floor(stage)]
    goals = [ahead("deltalake", 10)] if winners == 1_000 else []
    contest.run(
        engines,
        rounds=5,
        units=winners,
        unit="winner",
        goals=goals,
        note=f"DELETE of a partition; {ACTIONS} files a winner, in other partitions",
        winners=winners,
    )


@pytest.mark.parametrize("winners", COUNTS)
def bench_stale_commit(contest, size, folder, winners):
    _only(size, winners, default=10_000, full=10_000)
    stage = Stage(folder, winners=winners)
    contest.run(
        [refdelta_commit(stage), floor(stage)],
        rounds=7,
        units=winners,
        unit="winner",
        goals=[within("floor", 1.5)] if winners >= 100 else [],
        note=f"the commit alone; {ACTIONS} files a winner",
        winners=winners,
    )


@pytest.mark.parametrize("winners", [10, 100])
def bench_stale_commit_beside_spark(contest, size, folder, spark, winners):
    _only(size, winners, default=0, full=100)
    if spark is None:
        pytest.skip("delta-spark is left out")
    stage = Stage(folder, winners=winners)
    contest.run(
        [refdelta_commit(stage), spark_commit(stage, spark)],
        rounds=5,
        units=winners,
        unit="winner",
        goals=[ahead("delta-spark", 10)],
        note="the commit alone",
        winners=winners,
    )


@pytest.mark.parametrize("live", [10, 1_000, 100_000])
def bench_stale_commit_by_table(contest, size, folder, live):
    """Flat: what a commit over winners costs does not depend on how many files the table has."""
    _only(size, live, default=100_000, full=100_000)
    winners = 100
    stage = Stage(folder, winners=winners, live=live)
    contest.run(
        [refdelta_commit(stage), floor(stage)],
        rounds=size(smoke=1, default=5),
        units=winners,
        unit="winner",
        note="the commit alone, by how many files the table has",
        winners=winners,
        files=live,
    )


@pytest.mark.parametrize("actions", [2, 10, 100, 1_000])
def bench_stale_commit_by_actions(contest, size, folder, actions):
    """Linear: in the actions of the winners together."""
    _only(size, actions, default=1_000, full=1_000)
    winners = 100
    stage = Stage(folder, winners=winners, actions=actions)
    contest.run(
        [refdelta_commit(stage), floor(stage)],
        units=winners * actions,
        unit="action",
        goals=[within("floor", 1.5)],
        note="the commit alone, by how many files each of 100 winners adds and removes",
        winners=winners,
        actions=actions,
    )
