"""The tail of a log, in a store that lists from any key, and in one that only knows prefixes."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta.core.log.paths import LOG, checkpoint_key, checksum_key, commit_key
from refdelta.engine.log.listing import find_segment, has_log, list_log, newest_version
from refdelta.errors import InvalidLogError
from refdelta_storage import MemoryStore


class Prefixes(MemoryStore):
    """A remote store whose listings start at a prefix and no later. It notes down which were asked for."""

    def __init__(self):
        super().__init__()
        self.asked = []

    @property
    def capabilities(self):
        return dataclasses.replace(super().capabilities, list_after=False, remote=True)

    def list(self, prefix="", after=None):
        self.asked.append(prefix)
        return super().list(prefix, after)


def log(versions, checkpoints=()):
    store = Prefixes()
    for version in versions:
        store.put(commit_key(version), b"x")
        store.put(checksum_key(version), b"x")
    for version in checkpoints:
        store.put(checkpoint_key(version), b"x")
    store.put(f"{LOG}/_last_checkpoint", b"x")
    store.put(f"{LOG}/_sidecars/0.parquet", b"x")
    return store


def whole(store, start):
    return [(i.key, i.size, i.mtime_ms) for i in store.list(f"{LOG}/0", f"{LOG}/{start:020d}" if start else None)]


@pytest.mark.tier("test")
@given(first=st.integers(0, 320), count=st.integers(1, 330), data=st.data())
def test_by_prefixes_comes_what_a_whole_listing_has(first, count, data):
    """Whether or not the beginning of the log, or what is asked for, was cleaned up."""
    versions = range(first, first + count)
    store = log(versions, data.draw(st.sets(st.sampled_from(versions), max_size=2)))
    start = data.draw(st.integers(0, first + count + 120))
    assert list_log(store, start) == whole(store, start)
    assert newest_version(store, start) == max(start, versions[-1])


def test_a_foreign_name_of_a_version_that_was_cleaned_up_hides_no_later_one():
    store = log(range(250, 303), [250])
    store.put(f"{commit_key(5)}.tmp", b"x")
    assert newest_version(store, 5) == 302
    assert find_segment(store, hinted=False).version == 302


@pytest.mark.parametrize(
    ("newest", "start", "asked"),
    [
        (57, 0, ["0"]),
        (57, 55, ["000000000000000000"]),
        (1234, 1230, ["000000000000000012"]),
        (1199, 1199, ["000000000000000011", "000000000000000012"]),
        (1234, 1170, ["000000000000000011", "000000000000000012"]),
        (1234, 1050, ["000000000000000010", "000000000000000011", "0"]),
    ],
)
def test_the_prefixes_that_are_asked_for(newest, start, asked):
    store = log(range(newest + 1))
    assert newest_version(store, start) == newest
    assert store.asked == [f"{LOG}/{prefix}" for prefix in asked]


def test_a_log_is_found_by_its_first_name():
    assert has_log(log([7]))
    assert has_log(log([], checkpoints=[7]))
    assert not has_log(log([]))
    taken = []

    class Pages(MemoryStore):
        def list(self, prefix="", after=None):
            for info in super().list(prefix, after):
                taken.append(info.key)
                yield info

    store = Pages()
    for version in range(100):
        store.put(commit_key(version), b"x")
    assert has_log(store)
    assert len(taken) == 1


class Hurried(MemoryStore):
    """Lists as a folder does while files come: each of its first listings lacks one version, and not those behind."""

    def __init__(self, missing):
        super().__init__()
        self.missing, self.listings = list(missing), 0

    def list(self, prefix="", after=None):
        self.listings += 1
        left_out = commit_key(self.missing.pop(0)) if self.missing else None
        return (info for info in super().list(prefix, after) if info.key != left_out)


@pytest.mark.parametrize("missing", [[], [3], [3, 5, 2]])
def test_a_folder_that_is_listed_while_files_come_is_listed_again(missing):
    store = Hurried(missing)
    for version in range(7):
        store.put(commit_key(version), b"x")
    assert find_segment(store).version == 6
    assert store.listings == 1 + len(missing)


def test_a_version_that_two_listings_lack_is_missing():
    store = Hurried([])
    for version in (0, 1, 3):
        store.put(commit_key(version), b"x")
    with pytest.raises(InvalidLogError, match="version 2 is missing"):
        find_segment(store)
    assert store.listings == 2
