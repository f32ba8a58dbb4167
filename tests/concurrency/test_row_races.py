"""Processes that change rows of one file at once: no commit is refused, no row is lost, none is changed twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from concurrency.row_editor import ALL_SETS, ROWS, SETS, change, compact_until_over, create, grab, race
from refdelta import DeltaTable

PROCESSES = 8


def assert_each_row_was_changed_once(uri: str) -> None:
    """The rows of the even sets are gone, those of the odd ones were updated, and the rest is as it was."""
    rows = sorted((row["id"], row["times"]) for row in DeltaTable(uri).to_pyarrow_table().to_pylist())
    sets = ((i, i % ALL_SETS) for i in range(ROWS))
    assert rows == [(i, number % 2 if number < SETS else 0) for i, number in sets if number >= SETS or number % 2]


def shares() -> list[tuple[Any, range]]:
    """Fifty sets for each process."""
    return [(change, range(process, SETS, PROCESSES)) for process in range(PROCESSES)]


@pytest.mark.tier("nightly")
def test_eight_processes_change_rows_of_one_file_and_all_commit(tmp_path):
    uri = str(tmp_path / "t")
    create(uri)
    told = race(uri, shares())
    assert sorted(version for versions in told for version in versions) == list(range(1, SETS + 1))
    assert_each_row_was_changed_once(uri)
    # The rows went by vectors of the one file: nobody has copied it.
    (first,) = DeltaTable(uri, version=0).file_uris()
    assert first in DeltaTable(uri).file_uris()


@pytest.mark.tier("nightly")
def test_none_of_them_is_stopped_by_compactions_meanwhile(tmp_path):
    uri = str(tmp_path / "t")
    create(uri)

    *told, compacted = race(uri, shares(), compact_until_over)
    versions = [version for versions in told for version in versions]
    assert len(compacted) > 1
    assert sorted([*versions, *compacted]) == list(range(1, SETS + len(compacted) + 1))
    assert_each_row_was_changed_once(uri)


@pytest.mark.tier("nightly")
def test_of_those_that_want_the_same_rows_one_gets_them(tmp_path):
    uri, wanted = str(tmp_path / "t"), range(24)
    create(uri)
    told = race(uri, [(grab, (process, wanted)) for process in range(PROCESSES)])
    winners = {}
    for number in wanted:
        ended = [outcomes[number] for outcomes in told]
        (winners[number],) = (process for process, (version, _) in enumerate(ended) if version is not None)
        # All of them began before one committed, so that each of the others was told of a conflict.
        errors = Counter(error for version, error in ended if version is None)
        assert errors.total() == PROCESSES - 1
        assert errors.keys() <= {"ConcurrentDeleteReadException", "ConcurrentAppendException"}
    assert DeltaTable(uri).version() == len(wanted)
    rows = {row["id"]: row["times"] for row in DeltaTable(uri).to_pyarrow_table().to_pylist()}
    for number, process in winners.items():
        now = [rows.get(i) for i in range(number, ROWS, ALL_SETS)]
        assert now == [process if (number + process) % 2 else None] * len(now)
    assert all(rows[i] == 0 for i in range(ROWS) if i % ALL_SETS not in winners)
