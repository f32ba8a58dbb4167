"""Every schedule of writers, publishers and readers of a catalog-managed table, with faults; and that wrong committers
are found out.
"""

from __future__ import annotations

import copy
import dataclasses
from unittest import mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.catalog_explorer import FAULTS, CatalogExplorer, publishes, reads, writes
from model.contents import Violation
from model.test_schedules import transaction
from refdelta.core.commit import loop as commit_loop
from refdelta.core.commit.transaction import PreparedCommit
from refdelta.core.log.actions import CommitInfo
from refdelta.core.log.assigned import CommitClock, Enablement
from refdelta.core.log.codec import encode_commit
from refdelta.engine.log.managed_committer import ManagedCommitter
from refdelta.engine.log.managed_log import ManagedStore, RatifiedCommit
from refdelta_storage import Committed, StorageError
from tiers import examples

FIRST = encode_commit([CommitInfo(fields={"txnId": "origin", "inCommitTimestamp": 0})])
NOT_REFUSED = tuple(kind for kind in FAULTS if kind != "refused")
MODES = pytest.mark.parametrize(("inline", "winners"), [(False, False), (False, True), (True, True)])


def append(name: str, *, reads: bool = False) -> PreparedCommit:
    """A transaction on version 0, of a table with in-commit timestamps."""
    clock = CommitClock(now_ms=1, latest=0, since=Enablement(0, None))
    return msgspec.structs.replace(transaction(name, 0, reads=reads), clock=clock)


def explorer(
    writers: str = "ab",
    publishers: int = 1,
    readers: int = 0,
    *,
    repeats: int = 2,
    writers_publish: bool = False,
    some_read: str = "",
    inline: bool = False,
    **options,
) -> CatalogExplorer:
    prepared = {name: append(name, reads=name in some_read) for name in writers}
    programs = {name: writes(one, publishes=writers_publish, max_repeats=repeats) for name, one in prepared.items()}
    # The first one does not stop where it meets another one.
    programs |= {f"publisher {number}": publishes(yields=number > 0) for number in range(publishers)}
    programs |= {f"reader {number}": reads for number in range(readers)}
    return CatalogExplorer(programs, prepared, FIRST, inline=inline, **options)


def explore(*given, **options):
    report = explorer(*given, **options).run()
    print(f"{report.schedules:,} schedules through {report.worlds:,} worlds: {sorted(report.outcomes)}")
    return report


@pytest.mark.tier("test")
@MODES
def test_two_writers_and_a_publisher_with_one_fault(inline, winners):
    report = explore("ab", 1, inline=inline, winners=winners, in_all=1)
    assert report.outcomes == {"CommitOutcome", "StoreError"}


@pytest.mark.tier("nightly")
@MODES
def test_two_writers_and_a_publisher_with_a_fault_each(inline, winners):
    report = explore("ab", 1, inline=inline, winners=winners, kinds=NOT_REFUSED)
    assert report.outcomes == {"CommitOutcome"}


@pytest.mark.tier("nightly")
@MODES
def test_three_writers_and_a_publisher_with_one_fault(inline, winners):
    report = explore("abc", 1, inline=inline, winners=winners, in_all=1)
    assert report.outcomes == {"CommitOutcome", "StoreError"}
    assert report.schedules > 1_000_000


@pytest.mark.tier("test")
@pytest.mark.parametrize("inline", [False, True])
def test_three_writers_and_a_publisher_without_faults(inline):
    report = explore("abc", 1, inline=inline, faults=0)
    assert report.outcomes == {"CommitOutcome"}


@pytest.mark.tier("test")
@pytest.mark.parametrize("inline", [False, True])
def test_writers_that_publish(inline):
    report = explore("ab", 0, inline=inline, writers_publish=True, kinds=("lost reply", "late", "crash after"))
    assert report.outcomes == {"CommitOutcome"}


@pytest.mark.tier("test")
@pytest.mark.parametrize("inline", [False, True])
def test_a_reader_beside_a_writer_and_two_publishers(inline):
    report = explore("a", 2, 1, inline=inline, kinds=("crash", "crash after", "lost reply"), cleanup=True)
    assert report.outcomes == {"CommitOutcome"}


@pytest.mark.tier("test")
def test_staged_files_are_cleaned_up_at_any_moment():
    report = explore("ab", 1, inline=False, in_all=1, kinds=("late", "lost reply", "crash after"), cleanup=True)
    assert report.outcomes == {"CommitOutcome"}


@pytest.mark.tier("test")
@pytest.mark.parametrize("inline", [False, True])
def test_a_conflict_with_a_commit_that_is_not_published(inline):
    report = explore("ab", 1, inline=inline, some_read="b", kinds=("lost reply", "late"), must_commit=False)
    assert report.outcomes == {"CommitOutcome", "ConcurrentAppendException"}


@pytest.mark.tier("test")
@pytest.mark.parametrize("inline", [False, True])
def test_a_writer_that_gives_up_in_doubt_says_so(inline):
    report = explore("ab", 0, repeats=1, inline=inline, must_commit=False)
    assert report.outcomes == {"CommitOutcome", "StoreError", "CommitOutcomeUnknownError"}


@pytest.mark.tier("test")
@examples(60)
@given(data=st.data())
def test_long_schedules_with_many_faults(data):
    writers = "abcdef"[: data.draw(st.integers(2, 6), label="writers")]
    search = explorer(
        writers,
        data.draw(st.integers(0, 3), label="publishers"),
        data.draw(st.integers(0, 2), label="readers"),
        repeats=3,
        some_read="".join(name for name in writers if data.draw(st.booleans())),
        writers_publish=data.draw(st.booleans()),
        inline=data.draw(st.booleans()),
        winners=data.draw(st.booleans()),
        faults=data.draw(st.integers(0, 3)),
        cleanup=data.draw(st.booleans()),
        must_commit=False,
    )
    search.walk(lambda count: data.draw(st.integers(0, count - 1)))


@pytest.mark.parametrize("kind", FAULTS)
def test_every_kind_of_fault_is_explored(kind):
    alone = explore("a", 1, kinds=(kind,))
    assert alone.worlds > explore("a", 1, kinds=()).worlds


# --- the checker itself ---


def proposes_the_staged_file_again(log: ManagedStore, version: int, data: bytes):
    """A committer that stages once, and proposes the same file for each version that it tries."""
    found = log._known.get(-1) or RatifiedCommit(version, len(data), 1, file_name=log._stage(version, data))
    log._known[-1] = found
    again = copy.copy(found)
    object.__setattr__(again, "version", version)  # not what can be made
    return log.ratifier.propose(again)


def takes_a_lost_reply_for_a_loss(committer: ManagedCommitter, version: int, data: bytes):
    outcome = committer._log_of.propose(version, data)
    if not isinstance(outcome, Committed):
        raise StorageError("lost")
    return commit_loop.effects.Committed()


def notes_first(log: ManagedStore, most=None, *, yields=False):
    commits = log.unpublished()
    if commits:
        log.ratifier.published(commits[-1].version)
    return sum(log._publish(commit) for commit in commits)


def publishes_the_newest_first(log: ManagedStore, most=None, *, yields=False):
    commits = log.unpublished()
    count = sum(log._publish(commit) for commit in reversed(commits))
    if commits:
        log.ratifier.published(commits[-1].version)
    return count


def notes_the_latest(log: ManagedStore, most=None, *, yields=False):
    """What was ratified while it published counts as published, too."""
    count = sum(log._publish(commit) for commit in log.unpublished())
    log.ratifier.published(log.ask().latest)
    return count


def looks_into_the_folder_first(log: ManagedStore, prefix: str = "", after=None):
    there = [*log.inner.list(prefix, after)]
    answer = log.ask()
    keys = {info.key for info in there}
    held = [one for one in answer.commits if f"_delta_log/{one.version:020d}.json" not in keys]
    from refdelta.engine.log.managed_log import _info

    return iter(sorted([*there, *map(_info, held)], key=lambda info: info.key))


def trusts_the_folder(log: ManagedStore, key: str) -> bytes:
    return log.inner.get(key)


@pytest.mark.parametrize(
    ("wrong", "given", "options", "symptom"),
    [
        (("propose", proposes_the_staged_file_again), ("ab", 0), {}, "of another version"),
        (("publish", notes_first), ("ab", 1), {"kinds": ("crash",)}, "is said to be published"),
        (("publish", publishes_the_newest_first), ("ab", 1), {}, "published out of order"),
        (("publish", notes_the_latest), ("ab", 1), {"faults": 0}, "is said to be published"),
        (("list", looks_into_the_folder_first), ("ab", 1, 1), {"faults": 0}, "has read what is no version"),
        (("get", trusts_the_folder), ("ab", 1), {"faults": 0}, "a reader fails"),
    ],
    ids=lambda value: value[1].__name__ if isinstance(value, tuple) and callable(value[-1]) else "",
)
def test_a_wrong_log_is_found_out(wrong, given, options, symptom):
    name, replacement = wrong
    with mock.patch.object(ManagedStore, name, replacement), pytest.raises(Violation, match=symptom):
        explore(*given, must_commit=False, **options)


def test_a_committer_that_takes_a_lost_reply_for_a_loss_is_found_out():
    wrong = mock.patch.object(ManagedCommitter, "commit", takes_a_lost_reply_for_a_loss)
    with wrong, pytest.raises(Violation, match="was told StoreError"):
        explore("ab", 0, kinds=("lost reply",), must_commit=False)


def test_a_catalog_that_ratifies_twice_is_found_out():
    def ratifies_anything(search, world, commit):
        return dataclasses.replace(world, ratified=(*world.ratified, commit)), Committed()

    wrong = mock.patch.object(CatalogExplorer, "_proposed", ratifies_anything)
    with wrong, pytest.raises(Violation, match="the catalog has ratified"):
        explore("ab", 0, faults=0)
