"""A clock that is days off deletes nothing young, whatever deletes files for their age, on every backend.

Tests of engine.log.store_clock.
"""

from __future__ import annotations

from unittest import mock

import pytest

from backends import own_clock
from backends.own_clock import OF_CATALOGS, PATHS, SHIFTS
from backends.tables import numbers, opened, write
from refdelta.engine.log import references, store_clock
from refdelta.engine.log.location import open_location
from refdelta.engine.log.store_clock import SAME_MS, earlier, store_time
from refdelta.transaction import background
from servers.running import Place

WEEK_AND_DAY = 8 * 24


@pytest.mark.sample(check=14)
@pytest.mark.parametrize("hours", [WEEK_AND_DAY, -WEEK_AND_DAY])
@pytest.mark.parametrize("path", PATHS)
def test_nothing_young_is_lost(path, hours, place):
    assert not PATHS[path](place, hours)


@pytest.mark.sample(check=4)
@pytest.mark.parametrize("hours", SHIFTS)
@pytest.mark.parametrize("path", OF_CATALOGS)
def test_nothing_young_of_a_catalog_is_lost(path, hours, tmp_path):
    assert not OF_CATALOGS[path](tmp_path, hours)


def _own(own_ms, store_ms):
    return own_ms


def _as_logged(remove, file_ms):
    return remove


LEFT_OUT = {
    "cleanup_of_the_log": (store_clock, "earlier", _own, WEEK_AND_DAY),
    "tombstones_of_a_checkpoint": (store_clock, "earlier", _own, WEEK_AND_DAY),
    "sidecars_of_a_checkpoint_in_flight": (store_clock, "earlier", _own, WEEK_AND_DAY),
    "truncated_history": (store_clock, "earlier", _own, WEEK_AND_DAY),
    "restore_beside_a_vacuum": (store_clock, "earlier", _own, WEEK_AND_DAY),
    "vacuum_beside_a_reader": (own_clock.vacuum, "earlier", _own, WEEK_AND_DAY),
    "vacuum_after_a_removal_by_a_clock_that_is_off": (references, "_removed_at", _as_logged, -WEEK_AND_DAY),
}


@pytest.mark.parametrize("path", LEFT_OUT)
def test_each_is_lost_without_the_clock_of_the_store(path, fresh_path):
    module, name, instead, hours = LEFT_OUT[path]
    with mock.patch.object(module, name, instead):
        assert PATHS[path](Place(f"memory://{fresh_path()}", {}), hours)


def test_the_time_of_the_store_leaves_nothing_behind(place):
    write(place, numbers(1))
    background.settle()
    store = open_location(place.uri, place.options)
    before = set(store.list_keys())
    made = store.head("_delta_log/" + "0" * 20 + ".json").mtime_ms
    assert abs(store_time(store) - made) < 2 * 3_600_000
    assert store_time(store, made - 1000) == made - 1000
    assert abs(store_time(store, made + 10**12) - made) < 2 * 3_600_000
    assert set(store.list_keys()) == before
    assert opened(place).version() == 0


def test_clocks_that_differ_by_rounding_are_the_same():
    assert earlier(SAME_MS, 0) == SAME_MS
    assert earlier(SAME_MS + 1, 0) == 0
    assert earlier(0, 10**12) == 0
