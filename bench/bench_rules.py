"""The conflict rules alone: no file is read, no log file decoded; the summaries of the winners are at hand.

One transaction with two predicates, on the partitions of a table and on a column of which files have statistics, and a
thousand files that it read; a thousand winners with a hundred actions each: fifty files in the place of fifty others.
Of a winner's actions one is a candidate: its partition leaves it open whether a row of it answers to a predicate, so
that its statistics must be looked at, which clear it. All winners are asked one after the other, as the commit loop
asks them, and each is stepped over. And once more with each add a candidate, as in a table without partitions.

The floor looks at each action once: whether the transaction knows the path.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import winners as log_files
from contest import Engine

from refdelta.core.conflicts.isolation import IsolationLevel
from refdelta.core.conflicts.reads import ReadSet, ReadTable, RowPredicate
from refdelta.core.conflicts.rules import Clear, check
from refdelta.core.conflicts.state import TransactionState
from refdelta.core.log.actions import Add, Remove
from refdelta.core.log.footprint import Footprint, fold_commit
from refdelta.expressions.sql import parse_predicate
from refdelta.pruning.row_predicate import row_predicate
from refdelta.table.types import DOUBLE, LONG, STRING, StructField, StructType

SCHEMA = StructType((StructField("part", STRING), StructField("id", LONG), StructField("value", DOUBLE)))


def where(sql: str) -> RowPredicate:
    return row_predicate(parse_predicate(sql, SCHEMA), SCHEMA, ("part",))


TABLE = ReadTable(parse=where)
PREDICATES = ("part = 'mine' AND id BETWEEN 5000000 AND 5000999", "part = 'also mine' AND id = 7000000")
FILES_READ = 1_000
ACTIONS = 100


def transaction() -> TransactionState:
    """It read a thousand files, and deletes ten of them."""
    files = [
        Add(path=f"part=mine/{number:06}.parquet", partition_values={"part": "mine"}, size=1, modification_time=1,
            data_change=True)
        for number in range(FILES_READ)
    ]  # fmt: skip
    gone = [Remove(path=add.path, data_change=True, partition_values=add.partition_values) for add in files[:10]]
    read = ReadSet(version=0).with_files(files)
    for text in PREDICATES:
        read = read.with_predicate(where(text))
    return TransactionState(read, gone, IsolationLevel.SERIALIZABLE, TABLE)


def winner(version: int, candidates: int = 1) -> Footprint:
    """As from its log file."""
    half = ACTIONS // 2
    actions: list[dict[str, Any]] = [{"commitInfo": {"operation": "UPDATE", "txnId": str(version)}}]
    for number in range(half):
        part = f"p{number}"
        actions.append(log_files.remove(f"part={part}/{version - 1:08}-{number:06}.snappy.parquet", part))
    for number in range(half):
        part = f"p{number}" if number >= candidates else "mine"
        actions.append(log_files.add(f"part={part}/{version:08}-{number:06}.snappy.parquet", part, number))
    return fold_commit(version, "".join(json.dumps(one) + "\n" for one in actions).encode(), f"{version}.json")


@pytest.mark.parametrize("candidates", [1, ACTIONS // 2])
def bench_rules_alone(contest, size, candidates):
    count = size(smoke=10, default=1_000 if candidates == 1 else 100)

    def before() -> tuple[TransactionState, list[Footprint]]:
        return transaction(), [winner(version, candidates) for version in range(1, count + 1)]

    def rules(given: tuple[TransactionState, list[Footprint]]) -> None:
        ours, summaries = given
        for summary in summaries:
            verdict = check(ours, summary)
            assert isinstance(verdict, Clear)
            if verdict.passed is not None:
                ours.advance(verdict.passed)

    def floor(given: tuple[TransactionState, list[Footprint]]) -> None:
        ours, summaries = given
        known = ours.files.states
        for summary in summaries:
            assert not any(add.path in known for add in summary.adds)
            assert not any(remove.path in known for remove in summary.removes)

    def conflicts() -> None:
        """It does its work: a file that answers to a predicate is found, and so is one that was read and removed."""
        lines = [
            {"commitInfo": {"operation": "UPDATE"}},
            log_files.add("part=mine/new.parquet", "mine", 5_000_500),
            log_files.remove("part=mine/000500.parquet", "mine"),
        ]
        for line in lines[1:]:
            data = "".join(json.dumps(one) + "\n" for one in (lines[0], line)).encode()
            assert not isinstance(check(transaction(), fold_commit(1, data, "1.json")), Clear)

    conflicts()
    goal = ". Goal: under 1 us an action" if candidates == 1 else ""
    found = contest.run(
        [Engine("refdelta", rules, before), Engine("floor", floor, before, settings="one pass over the actions")],
        rounds=5,
        units=count * ACTIONS,
        unit="action",
        note=f"two predicates, 1,000 files read; of a hundred actions {candidates} are candidates{goal}",
        winners=count,
        actions=ACTIONS,
        candidates=candidates,
    )
    assert found["refdelta"].seconds
