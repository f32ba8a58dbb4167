"""VACUUM as a span beside transactions and other VACUUMs: whatever the order of their requests, no version names a file
that does not exist. See :mod:`model.spans`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pytest

import tiers
from model.spans import TRANSACTIONS, WEEK, Actor, a_week, foreign_vacuum, play, schedules, vacuums
from refdelta.core.conflicts.reads import ReadSet
from refdelta.core.conflicts.state import TransactionState
from refdelta.core.log import vacuums as vacuums_in_log
from refdelta.core.log.vacuums import VACUUM_END, VACUUM_START, Vacuum, in_progress
from refdelta.transaction import deleted_files
from refdelta.transaction.transaction import Transaction
from rules_left_out import check_without

KINDS: Mapping[str, Actor] = {
    "lite": vacuums(0),
    "full": vacuums(0, full=True),
    "lite after a week": vacuums(None),
    "full after a week": vacuums(None, full=True),
    "foreign": foreign_vacuum(0),
    "foreign after a week": foreign_vacuum(None),
}
PAIRS = [(one, other) for at, one in enumerate(KINDS) for other in [None, *list(KINDS)[at:]]]
TABLES: Mapping[str, dict[str, bool]] = {"plain": {}, "vectors": {"vectors": True}, "feed": {"feed": True}}
CASES = [
    (name, table)
    for name in TRANSACTIONS
    for table in TABLES
    if table == "plain" or name in ("update", "delete")
]  # fmt: skip


@pytest.mark.tier("test")
@pytest.mark.sample(check=2, test=2)
@pytest.mark.parametrize(("name", "table"), CASES)
def test_no_version_names_a_file_that_is_gone(name, table, say):
    played = refused = 0
    for one, other in tiers.some(PAIRS, check=4, test=14):
        actors = {"V1": KINDS[one], "T": TRANSACTIONS[name]}
        if other is not None:
            actors["V2"] = KINDS[other]
        if "week" in f"{one} {other}":
            actors["W"] = a_week
        for outcome in schedules(actors, tiers.budget(25, fewest=3), 7, **TABLES[table]):
            assert not outcome.missing, (one, other, outcome)
            played, refused = played + 1, refused + outcome.refused
    say(f"{played} schedules, {refused} refused")


# --- each part of the rule is needed ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """A part of the rule, and a schedule that goes wrong without it.

    Attributes:
        patches: remove it.
        transaction: the transaction, in the schedule ``T``.
        first: the VACUUM ``1``.
        steps: the schedule; ``W`` lets a week pass.
        second: the VACUUM ``2``.
        table: as for :func:`model.spans.make`.
    """

    patches: list[Any]
    transaction: str
    first: str
    steps: str
    second: str = "lite"
    table: dict[str, bool] = field(default_factory=dict)

    def play(self) -> Any:
        actors = {"T": TRANSACTIONS[self.transaction], "1": KINDS[self.first], "2": KINDS[self.second], "W": a_week}
        steps = iter(self.steps.split())
        return play(actors, lambda left: next((name for name in steps if name in left), None), **self.table)


def newest_end_hides_all(commits: Any, _now_ms: int) -> list[Vacuum]:
    """What is in progress if each END ends all STARTs before it."""
    listed = list(commits)
    ends = [at for at, (_, _, info) in enumerate(listed) if info.get("operation") == VACUUM_END]
    return in_progress(listed[ends[-1] + 1 if ends else 0 :], _now_ms)


_WITHOUT_RULE = mock.patch("refdelta.core.commit.member.check", check_without("files-deleted"))
_NOTHING_LOOKED_UP = mock.patch.object(deleted_files, "vacuums_in_progress", return_value=[])
_OWN_FILES_UNKNOWN = mock.patch.object(
    Transaction, "_with_own_files", lambda _, reads: dataclasses.replace(reads, written_since=None)
)
_NO_FILES_OF_OTHERS = mock.patch.object(Transaction, "rest_on_files")
_deletable_since = TransactionState.deletable_since


def _no_vectors(state: TransactionState, *, removed_only: bool) -> int | None:
    changes = dataclasses.replace(state.changes, vectors=False)
    with mock.patch.object(state, "changes", changes):
        return _deletable_since(state, removed_only=removed_only)


PARTS: Mapping[str, Part] = {
    "a winner's START": Part([_WITHOUT_RULE], "restore", "lite", "T 1 1 T T 1"),
    "a START at the snapshot": Part([_NOTHING_LOOKED_UP], "restore", "lite", "1 1 T T 1"),
    "a START of another engine at the snapshot": Part([_NOTHING_LOOKED_UP], "restore", "foreign", "1 1 T T 1"),
    "an END ends one START": Part(
        [mock.patch.object(deleted_files, "in_progress", newest_end_hides_all)],
        "restore",
        "foreign after a week",
        "1 1 2 2 1 1 T T 2",
        "foreign",
    ),
    "an END names its START": Part(
        [mock.patch.object(vacuums_in_log, "ended_by", return_value=None)],
        "restore",
        "lite",
        "2 2 1 1 1 1 T T 2",
        "lite",
    ),
    "files of the transaction": Part([_OWN_FILES_UNKNOWN], "append", "full", "T 1 1 1 1 T T T"),
    "files of a transaction that sleeps for a week": Part(
        [_OWN_FILES_UNKNOWN], "append", "full after a week", "T W 1 1 1 1 T T T"
    ),
    "files of the change data feed": Part(
        [_OWN_FILES_UNKNOWN], "update", "lite", "T 1 1 1 1 T T T", table={"feed": True}
    ),
    "vectors of the transaction": Part(
        [mock.patch.object(TransactionState, "deletable_since", _no_vectors)],
        "delete",
        "lite",
        "T T 1 1 1 1 T T T",
        table={"vectors": True},
    ),
    "files of another program": Part([_NO_FILES_OF_OTHERS], "prepared", "full", "T 1 T 1 T T 1 1"),
    "files of another program, and a START at the snapshot": Part(
        [_NO_FILES_OF_OTHERS], "prepared", "foreign", "T 1 1 T T 1 1"
    ),
    "a VACUUM of all files takes those that the log does not name": Part(
        [mock.patch("refdelta.core.log.footprint.deletes_removed_only", return_value=True)],
        "append",
        "foreign",
        "T 1 1 1 1 T T T",
    ),
}


@pytest.mark.parametrize("part", PARTS)
def test_each_part_of_the_rule_is_needed(part):
    assert not PARTS[part].play().missing
    with contextlib.ExitStack() as stack:
        for patch in PARTS[part].patches:
            stack.enter_context(patch)
        if part == "an END names its START":
            assert PARTS[part].play().refused == 1
        else:
            assert PARTS[part].play().missing, part


@pytest.mark.parametrize(
    ("name", "first", "steps", "table"),
    [
        ("append", "lite", "T 1 1 1 1 T T T", {}),
        ("append", "full after a week", "T 1 1 1 1 T T T", {}),
        ("update", "lite", "T 1 1 1 1 T T T", {}),
        ("restore", "lite after a week", "1 1 T T", {}),
        ("restore", "full after a week", "T 1 1 1 T T T", {}),
        ("delete", "lite", "1 1 T 1 1 T T T T", {"vectors": True}),
        ("prepared", "foreign after a week", "T 1 1 T 1 1 T T", {}),
    ],
)
def test_a_vacuum_that_cannot_delete_its_files_is_no_conflict(name, first, steps, table):
    outcome = Part([], name, first, steps, table=table).play()
    assert (outcome.committed, outcome.refused, outcome.missing) == (1, 0, ())


# --- which VACUUMs are in progress -----------------------------------------------------------------------------------

HOUR = 3_600_000
NOW = 100 * HOUR


def start(version, hours_ago, retention_hours=0, **more):
    parameters = {"specifiedRetentionMillis": str(retention_hours * HOUR), **more}
    return version, NOW - hours_ago * HOUR, {"operation": VACUUM_START, "operationParameters": parameters}


def end(version, hours_ago, starts=None):
    parameters = {} if starts is None else {"startVersions": str(starts)}
    return version, NOW - hours_ago * HOUR, {"operation": VACUUM_END, "operationParameters": parameters}


@pytest.mark.parametrize(
    ("commits", "left"),
    [
        ([start(1, 2)], [1]),
        ([start(1, 2), end(2, 1)], []),
        ([start(1, 2), end(2, 1, [1])], []),
        # It ends one of them, and it is not known which.
        ([start(1, 3), start(2, 2), end(3, 1)], [1, 2]),
        ([start(1, 4), start(2, 3), end(3, 2), end(4, 1)], []),
        ([start(1, 4), end(2, 3), start(3, 2)], [3]),
        ([start(1, 4), start(2, 3), end(3, 2), start(4, 1)], [1, 2, 4]),
        ([start(1, 3), start(2, 2), end(3, 1, [1])], [2]),
        ([start(1, 3), start(2, 2), end(3, 1, [2, 1])], []),
        ([start(1, 4), start(2, 3), end(3, 2, [2]), end(4, 1)], []),
        # A named END of an earlier START ends no other one.
        ([start(5, 2), end(6, 1, [3])], [5]),
        # One that began long ago was interrupted, and no END can be its.
        ([start(1, 25)], []),
        ([start(1, 40), start(2, 3), end(3, 2)], []),
        # The END may be that of the first, which has become too old since.
        ([start(1, 25), start(2, 20), end(3, 19)], [2]),
        ([end(1, 3), start(2, 2)], [2]),
        # What cannot be understood names nothing.
        ([start(1, 2), (2, NOW, {"operation": VACUUM_END, "operationParameters": {"startVersions": "[x"}})], []),
        ([start(1, 2), (2, NOW, {"operation": VACUUM_END, "operationParameters": 7})], []),
    ],
)
def test_which_vacuums_are_in_progress(commits, left):
    assert [one.version for one in in_progress(commits, NOW)] == left


@pytest.mark.parametrize(
    "info",
    [
        {"timestamp": 5},
        {"timestamp": 5, "operationParameters": {}},
        {"timestamp": 5, "operationParameters": {"specifiedRetentionMillis": "soon"}},
        {"operationParameters": {"specifiedRetentionMillis": "0"}},
        {"timestamp": [], "operationParameters": {"specifiedRetentionMillis": "0"}},
    ],
)
def test_a_start_that_does_not_say_may_delete_any_file(info):
    assert vacuums_in_log.deletes_before(info) == vacuums_in_log.ANY_TIME
    assert not vacuums_in_log.deletes_removed_only(info)


def test_the_later_time_of_a_start_counts():
    info = {"timestamp": 50 * WEEK, "operationParameters": {"defaultRetentionMillis": WEEK}}
    assert vacuums_in_log.deletes_before(info) == 49 * WEEK
    assert vacuums_in_log.deletes_before(info, 51 * WEEK) == 50 * WEEK


def test_reads_rest_on_the_earliest_time():
    assert ReadSet(version=0).resting_on(5).resting_on(3).resting_on(4).unowned_since == 3
