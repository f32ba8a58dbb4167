"""When a version was committed, and which version a time means.

Tests of core.log.timestamps.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta.core.log.actions import CommitInfo, Metadata, Protocol, Txn
from refdelta.core.log.assigned import Enablement
from refdelta.core.log.codec import encode_commit
from refdelta.core.log.timestamps import commit_timestamps, in_commit_timestamp, rising, version_at
from refdelta.errors import InvalidLogError, VersionNotFoundError
from refdelta.table.in_commit_timestamp import enablement

FILE = "_delta_log/00000000000000000003.json"
WITH_ICT = Protocol(min_reader_version=1, min_writer_version=7, writer_features=["inCommitTimestamp"])
ENABLED = {"delta.enableInCommitTimestamps": "true"}
VERSION, TIMESTAMP = "delta.inCommitTimestampEnablementVersion", "delta.inCommitTimestampEnablementTimestamp"


def table(configuration):
    return Metadata(id="i", schema_string="{}", partition_columns=[], configuration=configuration)


def no_read(version):
    raise AssertionError(f"version {version} was read, which has no in-commit timestamp")


def test_enablement():
    assert enablement(WITH_ICT, table({})) is None
    assert enablement(Protocol(min_reader_version=1, min_writer_version=2), table(ENABLED)) is None
    assert enablement(WITH_ICT, table(ENABLED)) == Enablement(0, None)
    assert enablement(WITH_ICT, table({**ENABLED, VERSION: "5", TIMESTAMP: "99"})) == Enablement(5, 99)
    assert enablement(WITH_ICT, table({VERSION: "5", TIMESTAMP: "99"})) is None
    for broken in ({VERSION: "5"}, {TIMESTAMP: "5"}, {VERSION: "five", TIMESTAMP: "5"}):
        with pytest.raises(InvalidLogError, match="imestamp"):
            enablement(WITH_ICT, table({**ENABLED, **broken}))


def test_reading_one():
    actions = [CommitInfo({"operation": "WRITE", "inCommitTimestamp": 1234}), Txn(app_id="a", version=1)]
    assert in_commit_timestamp(encode_commit(actions), FILE) == 1234
    assert in_commit_timestamp(b"\n" + encode_commit(actions), FILE) == 1234
    assert in_commit_timestamp(actions, FILE) == 1234
    for broken in (
        actions[::-1],
        [],
        [CommitInfo({})],
        *([CommitInfo({"inCommitTimestamp": v})] for v in ("1", True, 1.5, 2**63)),
    ):
        with pytest.raises(InvalidLogError, match="inCommitTimestamp") as caught:
            in_commit_timestamp(broken, FILE)
        assert (caught.value.file, caught.value.line) == (FILE, 1)
    for data in (b"", b"{", b'{"txn":{"appId":"a","version":1}}'):
        with pytest.raises(InvalidLogError):
            in_commit_timestamp(data, FILE)


def test_modification_times_are_made_to_rise():
    assert rising([(0, 10), (1, 10), (2, 5), (3, 100)]) == [(0, 10), (1, 11), (2, 12), (3, 100)]
    assert rising([]) == []


mtimes = st.lists(st.integers(0, 20), min_size=1, max_size=8)


@given(mtimes)
def test_rising_changes_as_little_as_it_can(times):
    adjusted = [time for _, time in rising(enumerate(times))]
    assert all(a < b for a, b in pairwise(adjusted))
    assert all(a >= t for a, t in zip(adjusted, times, strict=True))
    assert adjusted[0] == times[0]
    if all(a < b for a, b in pairwise(times)):
        assert adjusted == times


@given(mtimes, st.integers(-2, 40))
def test_a_time_means_the_newest_version_until_then(times, timestamp):
    commits = list(enumerate(times, start=3))
    until = [version for version, time in rising(commits) if time <= timestamp]
    if until:
        assert version_at(timestamp, commits, None, no_read) == until[-1]
    else:
        with pytest.raises(VersionNotFoundError):
            version_at(timestamp, commits, None, no_read)


@st.composite
def mixed_tables(draw):
    """Commits of which the later have in-commit timestamps, those above all times before, as the protocol asks."""
    first = draw(st.integers(0, 3))
    early, late = (
        draw(st.lists(st.integers(0, 20), max_size=5)),
        draw(st.lists(st.integers(1, 9), min_size=1, max_size=5)),
    )
    commits = list(enumerate(early, start=first))
    since, time = first + len(early), max([0, *(t for _, t in rising(commits))])
    told = {}
    for offset, step in enumerate(late):
        time += step
        told[since + offset] = time
    # What the file system says of these versions is of no account.
    commits += [(version, draw(st.integers(0, 99))) for version in told]
    return commits, Enablement(since, told[since]), told


@given(mixed_tables(), st.integers(-2, 80))
def test_both_kinds_in_one_table(mixed, timestamp):
    commits, since, told = mixed
    times = commit_timestamps(commits, since, told.__getitem__)
    assert [version for version, _ in times] == [version for version, _ in commits]
    assert all(time == told[version] for version, time in times if version in told)
    until = [version for version, time in times if time <= timestamp]
    if until:
        assert version_at(timestamp, commits, since, told.__getitem__) == until[-1]
    else:
        with pytest.raises(VersionNotFoundError):
            version_at(timestamp, commits, since, told.__getitem__)


def test_the_very_time_of_the_enablement_is_after_it():
    commits, since = [(0, 10), (1, 20), (2, 0), (3, 0)], Enablement(2, 50)
    told = {2: 50, 3: 60}
    found = [version_at(time, commits, since, told.__getitem__) for time in (49, 50, 59, 60)]
    assert found == [1, 2, 2, 3]


def test_from_creation_and_after_cleanup():
    told = {0: 5, 1: 7, 2: 30}
    commits = [(0, 1000), (1, 0), (2, 0)]
    assert version_at(8, commits, Enablement(0, None), told.__getitem__) == 1
    with pytest.raises(VersionNotFoundError):
        version_at(4, commits, Enablement(0, None), told.__getitem__)
    # The version at which they were turned on is gone.
    assert version_at(29, commits[1:], Enablement(0, 5), told.__getitem__) == 1
    with pytest.raises(VersionNotFoundError):
        version_at(6, commits[1:], Enablement(0, 5), told.__getitem__)


def test_a_search_reads_few_commits():
    reads = []

    def read(version):
        reads.append(version)
        return version * 10

    assert version_at(5005, [(v, 0) for v in range(1000)], Enablement(0, None), read) == 500
    assert len(reads) <= 11
