"""When a checkpoint is due: at each multiple of the property, or when reading the tail costs as much as writing one."""

from __future__ import annotations

import pytest

from refdelta.core.log.checkpoint_schedule import EVERY, FAR, MOST, NEAR, is_due
from refdelta.core.log.paths import checkpoint_key, commit_key
from refdelta.core.log.segment import CheckpointFiles, LogFile, LogSegment


def segment(version, base=None, size=800):
    """The commits after a checkpoint of version ``base``, each of so many bytes."""
    first = 0 if base is None else base + 1
    commits = tuple(LogFile(commit_key(v), size, 1, v, v) for v in range(first, version + 1))
    checkpoint = base is not None and CheckpointFiles(
        base, (LogFile(checkpoint_key(base), 1, 1, base, base),), "classic"
    )
    return LogSegment(version, checkpoint or None, commits, None, commits[-1] if commits else None, None)


def first_due(files, *, remote=False, base=0, size=800):
    tails = range(base + EVERY, base + 10**5, EVERY)
    return next(v for v in tails if is_due(segment(v, base, size), files, interval=None, remote=remote))


@pytest.mark.parametrize("remote", [False, True])
def test_a_property_is_followed_exactly(remote):
    due = [v for v in range(30) if is_due(segment(v, 0 if v else None), 10**6, interval=7, remote=remote)]
    assert due == [7, 14, 21, 28]
    assert not is_due(segment(14, 14), 1, interval=7, remote=remote)  # there is one


@pytest.mark.parametrize(("remote", "costs"), [(False, NEAR), (True, FAR)])
@pytest.mark.parametrize("files", [0, 2_000, 20_000])
@pytest.mark.parametrize("size", [500, 50_000])
def test_without_it_the_costs_are_equal_where_one_is_due(remote, costs, files, size):
    found = first_due(files, remote=remote, size=size)
    reading, writing = costs.commit + size * costs.byte, costs.checkpoint + files * costs.file
    assert found % EVERY == 0
    assert (found - EVERY) * reading < writing <= found * reading


def test_they_become_seldom_as_a_table_grows_up_to_a_limit():
    found = [first_due(files) for files in (0, 2_000, 20_000, 10**6)]
    assert found == sorted(found)
    assert found[0] <= 100 < 3 * found[0] < found[2]
    assert found[-1] == MOST


def test_one_large_commit_counts_for_many_small_ones():
    assert first_due(10, size=10**7) == EVERY


def test_one_that_failed_is_made_up_for_soon():
    """Nothing says that it failed: the next multiple finds the same tail, and somewhat more."""
    at = first_due(100)
    assert [v for v in range(at, at + 3 * EVERY) if is_due(segment(v, 0), 100, interval=None, remote=False)] == [
        at,
        at + EVERY,
        at + 2 * EVERY,
    ]


def test_the_writer_of_a_multiple_decides_if_others_have_committed_since():
    at = first_due(100)
    later = segment(at + 3, 0)
    assert is_due(later, 100, interval=None, remote=False, version=at)
    assert not is_due(later, 100, interval=None, remote=False)
    assert not is_due(segment(at + 3, at + 2), 100, interval=None, remote=False, version=at)


def test_a_new_table_has_none():
    assert not is_due(segment(0), 10, interval=1, remote=False)
    assert not is_due(segment(0), 10, interval=None, remote=False)
