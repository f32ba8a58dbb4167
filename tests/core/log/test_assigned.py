"""Versions, row ids, timestamps and column ids have an end, and a commit that would pass it is refused."""

from __future__ import annotations

import json

import pytest

from refdelta.core.log.actions import Add, DomainMetadata
from refdelta.core.log.assigned import LAST, CommitClock, RowIds, assigned, mark_of
from refdelta.errors import InvalidLogError


def added(rows):
    stats = json.dumps({"numRecords": rows})
    return Add(path="a", partition_values={}, size=1, modification_time=1, data_change=True, stats=stats)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_the_last_row_ids_are_assigned_and_no_further_ones(rows):
    ids = RowIds(LAST - 2)
    if rows > 2:
        with pytest.raises(InvalidLogError, match=f"no row id left: the last one is {LAST}, and this needs {LAST + 1}"):
            ids.assigned([added(rows)], 1)
        return
    add, domain = ids.assigned([added(rows)], 1)
    assert add.base_row_id == LAST - 1
    assert mark_of(domain) == LAST - 2 + rows


def test_a_file_without_rows_needs_an_id_too():
    with pytest.raises(InvalidLogError, match="no row id left"):
        RowIds(LAST).assigned([added(0)], 1)


@pytest.mark.parametrize("mark", [LAST + 1, -2, 10**30, "9", 1.0, True])
def test_a_mark_that_is_no_row_id_is_refused(mark):
    text = json.dumps({"rowIdHighWaterMark": mark})
    with pytest.raises(InvalidLogError, match="has no rowIdHighWaterMark"):
        mark_of(DomainMetadata(domain="delta.rowTracking", configuration=text, removed=False))


def test_the_last_timestamp_has_none_after_it():
    assert CommitClock(now_ms=0, latest=LAST - 1).stamp(0) == LAST
    with pytest.raises(InvalidLogError, match="no in-commit timestamp left"):
        CommitClock(now_ms=0, latest=LAST).stamp(0)


def test_a_number_after_the_last_one_names_its_kind():
    assert assigned(LAST, "version") == LAST
    with pytest.raises(InvalidLogError, match=f"the table has no version left: the last one is {LAST}"):
        assigned(LAST + 1, "version")
