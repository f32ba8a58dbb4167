"""The loop by hand: which effects it asks for, reply by reply.

Tests of core.commit.body, core.commit.effects, core.commit.loop, core.commit.transaction.
"""

from __future__ import annotations

import json

import msgspec
import pytest
from pyroaring import BitMap64

from refdelta import errors
from refdelta.core.commit.budget import Limits
from refdelta.core.commit.effects import (
    Commits,
    Committed,
    Descriptors,
    Elapsed,
    Exists,
    Failed,
    Newest,
    NewestVersion,
    No,
    Pause,
    ReadCommits,
    ReadVectors,
    Replaced,
    TryCommit,
    Unknown,
    Vectors,
    VersionExists,
    Withdraw,
    WriteVectors,
    Yes,
)
from refdelta.core.commit.loop import commit_loop
from refdelta.core.commit.transaction import CommitOutcome, PreparedCommit
from refdelta.core.conflicts.reads import ReadSet
from refdelta.core.conflicts.state import RowChanges
from refdelta.core.log.actions import Add, CommitInfo, DeletionVectorDescriptor, Metadata, Protocol, Remove
from refdelta.core.log.codec import encode_commit
from refdelta.core.rows.deletes import RowDelete

ADD = Add(path="p", partition_values={}, size=1, modification_time=1, data_change=True)
PREPARED = PreparedCommit(
    read_version=4,
    read_set=ReadSet(version=4),
    actions=[ADD],
    commit_info={"operation": "WRITE", "readVersion": 4},
    txn_id="our-id",
)
OURS = encode_commit([CommitInfo(fields={"operation": "WRITE", "readVersion": 4, "txnId": "our-id"}), ADD])
THEIRS = encode_commit([CommitInfo(fields={"operation": "WRITE", "txnId": "their-id"})])
TROUBLE = Failed(errors.StoreError("no connection"))


def run(*script: object, limits: Limits | None = None, prepared: PreparedCommit = PREPARED) -> CommitOutcome:
    """Run the loop against pairs of (expected effect, reply)."""
    loop = commit_loop(prepared, limits)
    effect = next(loop)
    pairs = list(zip(script[::2], script[1::2], strict=True))
    for number, (expected, reply) in enumerate(pairs):
        assert effect == expected, f"effect {number}"
        try:
            effect = loop.send(reply)
        except StopIteration as done:
            assert number == len(pairs) - 1, "it ended early"
            return done.value
    raise AssertionError(f"it asks for more: {effect}")


PUT5, PUT6 = TryCommit(5, OURS), TryCommit(6, OURS)


def test_a_commit_that_wins_at_once():
    outcome = run(VersionExists(4), Yes(), PUT5, Committed(), VersionExists(4), Yes())
    assert outcome == CommitOutcome(version=5, attempts=1, rebased_over=(), recovered=False, puts=1)


def test_the_file_says_who_wrote_it():
    first = json.loads(OURS.splitlines()[0])
    assert first == {"commitInfo": {"operation": "WRITE", "readVersion": 4, "txnId": "our-id"}}


@pytest.mark.parametrize("reply", [Exists(), Unknown()])
def test_a_lost_reply_is_recovered(reply):
    outcome = run(
        VersionExists(4), Yes(), PUT5, reply, ReadCommits(5, 5), Commits((OURS,)), VersionExists(4), Yes()
    )  # fmt: skip
    assert outcome == CommitOutcome(version=5, attempts=1, recovered=True, puts=1)


@pytest.mark.parametrize("reply", [Exists(), Unknown()])
def test_an_undecided_put_is_repeated_at_the_same_version_with_the_same_bytes(reply):
    outcome = run(
        VersionExists(4), Yes(), PUT5, reply, ReadCommits(5, 5), Commits((None,)), Pause(1, "undecided"), Elapsed(0.1),
        VersionExists(4), Yes(), PUT5, Committed(), VersionExists(4), Yes(),
    )  # fmt: skip
    assert (outcome.version, outcome.attempts, outcome.puts) == (5, 1, 2)


def test_a_loser_reads_all_winners_in_one_go_and_goes_behind_them():
    outcome = run(
        VersionExists(4), Yes(), PUT5, Exists(), ReadCommits(5, 5), Commits((THEIRS,)), VersionExists(4), Yes(),
        Pause(1, "lost"), Elapsed(0.1), NewestVersion(5), Newest(8), ReadCommits(6, 8), Commits((THEIRS,) * 3),
        VersionExists(8), Yes(), TryCommit(9, OURS), Committed(), VersionExists(8), Yes(),
    )  # fmt: skip
    assert outcome == CommitOutcome(version=9, attempts=2, rebased_over=(5, 6, 7, 8), puts=2)


@pytest.mark.parametrize(("read", "younger"), [(4, 0), (1, 3), (7, None), (-1, None), (None, None), ("4", None)])
def test_a_pause_tells_how_much_earlier_the_winner_began(read, younger):
    fields = {"operation": "WRITE", "txnId": "their-id", **({} if read is None else {"readVersion": read})}
    outcome = run(
        VersionExists(4), Yes(), PUT5, Exists((encode_commit([CommitInfo(fields=fields)]),)), VersionExists(4), Yes(),
        Pause(1, "lost", younger), Elapsed(0.1), NewestVersion(5), Newest(5),
        VersionExists(5), Yes(), PUT6, Committed(), VersionExists(5), Yes(),
    )  # fmt: skip
    assert outcome.version == 6


def test_many_winners_are_read_in_pieces():
    some, rest = (THEIRS,) * 256, (THEIRS,) * 44
    outcome = run(
        VersionExists(4), Yes(), PUT5, Exists(), ReadCommits(5, 5), Commits((THEIRS,)), VersionExists(4), Yes(),
        Pause(1, "lost"), Elapsed(0.1),
        NewestVersion(5), Newest(305), ReadCommits(6, 261), Commits(some), ReadCommits(262, 305), Commits(rest),
        VersionExists(305), Yes(), TryCommit(306, OURS), Committed(), VersionExists(305), Yes(),
    )  # fmt: skip
    assert outcome.rebased_over == tuple(range(5, 306))


def vector(name: str) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(
        storage_type="u", path_or_inline_dv=name, offset=1, size_in_bytes=40, cardinality=len(name)
    )


def revises(version: int) -> bytes:
    """A winner that deletes one more row of the file that our transaction deletes a row of."""
    before = None if version == 5 else vector(f"of-{version - 1}")
    add = msgspec.structs.replace(SHARED, deletion_vector=vector(f"of-{version}"))
    remove = Remove(path="shared", data_change=True, deletion_timestamp=1, deletion_vector=before)
    return encode_commit([CommitInfo(fields={"operation": "DELETE", "txnId": f"of-{version}"}), remove, add])


SHARED = Add(
    path="shared", partition_values={}, size=1, modification_time=1, data_change=True, stats='{"numRecords":100}'
)
DELETES = PreparedCommit(
    read_version=4,
    read_set=ReadSet(version=4).with_rows([(SHARED, BitMap64([50]))]),
    actions=[],
    commit_info={"operation": "DELETE"},
    txn_id="our-id",
    changes=RowChanges(deletes=(RowDelete(SHARED, BitMap64(), BitMap64([50])),), vectors=True, row_level=True),
)


@pytest.mark.parametrize("refused", [False, True])
def test_the_vectors_of_many_winners_of_one_file_are_read_in_one_go(refused):
    """Where that fails one that is not needed yet may be to blame, so those that are needed are asked for alone."""
    asked: list[list[str]] = []
    loop = commit_loop(DELETES)
    effect, puts = next(loop), 0
    while True:
        match effect:
            case WriteVectors(bitmaps):
                reply = Descriptors(tuple(vector(f"ours-{n}") for n in range(len(bitmaps))))
            case TryCommit(version, data):
                puts += 1
                if puts == 2:
                    break
                reply = Exists()
            case ReadCommits(first, last):
                reply = Commits(tuple(revises(version) for version in range(first, last + 1)))
            case NewestVersion():
                reply = Newest(9)
            case ReadVectors(descriptors):
                asked.append([one.path_or_inline_dv for one in descriptors])
                rows = [BitMap64(range(1, int(name[3:]))) for name in asked[-1]]
                reply = TROUBLE if refused and len(rows) > 1 else Vectors(tuple(rows))
            case Pause():
                reply = Elapsed(0.1)
            case VersionExists():
                reply = Yes()
        effect = loop.send(reply)
    later = ["of-6", "of-7", "of-8", "of-9"]
    alone = [[name] for name in later]
    assert asked == [["of-5"], later, *(alone if refused else [])]
    assert version == 10
    assert b'"pathOrInlineDv":"of-9"' in data


def test_our_own_commit_among_the_winners_is_found():
    outcome = run(
        VersionExists(4), Yes(), PUT5, Exists(), ReadCommits(5, 5), Commits((THEIRS,)), VersionExists(4), Yes(),
        Pause(1, "lost"), Elapsed(0),
        NewestVersion(5), Newest(7), ReadCommits(6, 7), Commits((OURS, THEIRS)),
    )  # fmt: skip
    assert (outcome.version, outcome.recovered, outcome.rebased_over) == (6, True, (5,))


def test_what_stays_undecided_is_said_and_how_to_find_out():
    once = (VersionExists(4), Yes(), PUT5, Unknown(), ReadCommits(5, 5), Commits((None,)))
    with pytest.raises(errors.CommitOutcomeUnknownError) as caught:
        run(*once, Pause(1, "undecided"), Elapsed(0.1), *once, limits=Limits(max_repeats=2))
    assert '"txnId":"our-id"' in str(caught.value)
    assert "_delta_log/00000000000000000005.json" in str(caught.value)
    assert (caught.value.version, caught.value.txn_id) == (5, "our-id")
    assert not isinstance(caught.value, errors.CommitFailedError)


def test_an_undecided_put_ends_when_time_is_up():
    with pytest.raises(errors.CommitOutcomeUnknownError):
        run(
            VersionExists(4), Yes(), PUT5, Unknown(), ReadCommits(5, 5), TROUBLE, Pause(1, "undecided"), Elapsed(9.0),
            limits=Limits(max_seconds=8.0),
        )  # fmt: skip


def test_a_refused_put_is_the_stores_error_only_while_nothing_is_in_doubt():
    with pytest.raises(errors.StoreError, match="no connection"):
        run(VersionExists(4), Yes(), PUT5, TROUBLE)
    with pytest.raises(errors.CommitOutcomeUnknownError):
        run(
            VersionExists(4), Yes(), PUT5, Unknown(),
            ReadCommits(5, 5), Commits((None,)), Pause(1, "undecided"), Elapsed(0),
            VersionExists(4), Yes(), PUT5, TROUBLE, ReadCommits(5, 5), Commits((None,)),
            limits=Limits(max_repeats=2),
        )  # fmt: skip


def test_a_store_that_fails_behind_a_settled_loss_is_asked_again_and_then_is_the_error():
    lost = (
        VersionExists(4), Yes(), PUT5, Exists(), ReadCommits(5, 5), Commits((THEIRS,)), VersionExists(4), Yes(),
        Pause(1, "lost"), Elapsed(0),
    )  # fmt: skip
    again = (NewestVersion(5), TROUBLE)
    with pytest.raises(errors.StoreError, match="no connection"):
        run(*lost, *again, Pause(1, "undecided"), Elapsed(0.1), *again, limits=Limits(max_repeats=2))


def test_limits():
    lost = (VersionExists(4), Yes(), PUT5, Exists(), ReadCommits(5, 5), Commits((THEIRS,)), VersionExists(4), Yes())
    look = (NewestVersion(5), Newest(5))
    with pytest.raises(errors.CommitRetriesExhaustedError, match="More attempts"):
        run(*lost, *look, limits=Limits(max_attempts=1))
    with pytest.raises(errors.CommitRetriesExhaustedError, match="More time"):
        run(*lost, Pause(1, "lost"), Elapsed(9.0), *look, limits=Limits(max_seconds=8.0))
    for bad in ({"max_attempts": 0}, {"max_repeats": 0}):
        with pytest.raises(errors.InvalidArgumentError):
            Limits(**bad)


def test_a_gap_in_the_log_is_named():
    with pytest.raises(errors.InvalidLogError, match="version 6 is missing, though version 7 exists") as caught:
        run(
            VersionExists(4), Yes(), PUT5, Exists(),
            ReadCommits(5, 5), Commits((THEIRS,)), VersionExists(4), Yes(),
        Pause(1, "lost"), Elapsed(0),
            NewestVersion(5), Newest(7), ReadCommits(6, 7), Commits((None, THEIRS)), VersionExists(5), Yes(),
        )  # fmt: skip
    assert caught.value.file == "_delta_log/00000000000000000006.json"


def test_a_reply_to_something_else_is_a_bug_of_the_shell():
    with pytest.raises(TypeError, match="no reply to"):
        run(VersionExists(4), Committed())
    with pytest.raises(TypeError, match="no reply to a put"):
        run(VersionExists(4), Yes(), PUT5, Yes())


# --- a put at N+1 counts only where N exists ----------------------------------------------------------------------


def test_a_stale_handle_writes_nothing():
    with pytest.raises(
        errors.CommitFailedError, match="version 4, on which this commit builds, is no longer in the log"
    ):
        run(VersionExists(4), No())


def test_a_file_that_revived_a_version_is_withdrawn():
    with pytest.raises(errors.CommitFailedError, match="the file for version 5 was withdrawn"):
        run(
            VersionExists(4), Yes(), PUT5, Committed(), VersionExists(4), No(), NewestVersion(5), Newest(90),
            ReadCommits(6, 6), Commits((None,)), ReadCommits(5, 5), Commits((OURS,)), Withdraw(5), Yes(),
        )  # fmt: skip


@pytest.mark.parametrize("gone", [None, THEIRS])
def test_a_file_that_log_cleanup_removes_meanwhile_was_a_version(gone):
    """Cleanup begins with the oldest: the next version was removed after ours was."""
    with pytest.raises(errors.CommitOutcomeUnknownError):
        run(
            VersionExists(4), Yes(), PUT5, Committed(), VersionExists(4), No(), NewestVersion(5), Newest(90),
            ReadCommits(6, 6), Commits((None,)), ReadCommits(5, 5), Commits((gone,)),
        )  # fmt: skip


def test_a_repeated_put_that_revived_a_version_may_be_one_by_its_first_put():
    with pytest.raises(errors.CommitOutcomeUnknownError, match="its put was repeated"):
        run(
            VersionExists(4), Yes(), PUT5, Unknown(), ReadCommits(5, 5), Commits((None,)),
            Pause(1, "undecided"), Elapsed(0),
            VersionExists(4), Yes(), PUT5, Committed(), VersionExists(4), No(), NewestVersion(5), Newest(90),
            ReadCommits(6, 6), Commits((None,)), ReadCommits(5, 5), Commits((OURS,)), Withdraw(5), Yes(),
        )  # fmt: skip


@pytest.mark.parametrize("reply", [Exists(), Unknown()])
def test_a_winner_counts_only_where_the_version_before_it_exists(reply):
    """Log cleanup may have removed our commit, and a late put of another writer created the file anew."""
    with pytest.raises(errors.CommitOutcomeUnknownError, match="version 4 is no longer in the log"):
        run(VersionExists(4), Yes(), PUT5, reply, ReadCommits(5, 5), Commits((THEIRS,)), VersionExists(4), No())


@pytest.mark.parametrize(("newest", "following"), [(5, None), (90, THEIRS)])
def test_a_file_that_may_be_part_of_the_table_stays(newest, following):
    with pytest.raises(errors.CommitOutcomeUnknownError):
        run(
            VersionExists(4), Yes(), PUT5, Committed(), VersionExists(4), No(), NewestVersion(5), Newest(newest),
            ReadCommits(6, 6), Commits((following,)),
        )  # fmt: skip


def test_a_new_table_where_one_is_whose_beginning_was_cleaned_up():
    actions = [
        Protocol(min_reader_version=1, min_writer_version=2),
        Metadata(id="t", schema_string="{}", partition_columns=[]),
    ]
    creation = PreparedCommit(
        read_version=-1, read_set=ReadSet(version=-1), actions=actions, commit_info={}, txn_id="our-id"
    )
    with pytest.raises(errors.CommitFailedError, match="there is a table at this place already"):
        run(VersionExists(-1), No(), ReadCommits(0, 0), Commits((None,)), prepared=creation)


def test_what_breaks_the_rules_of_a_commit_is_never_put():
    twice = [Add(path="x", partition_values={}, size=1, modification_time=1, data_change=True)] * 2
    prepared = PreparedCommit(
        read_version=4, read_set=ReadSet(version=4), actions=twice, commit_info={}, txn_id="our-id"
    )
    with pytest.raises(errors.InvalidLogError, match="more than one add"):
        next(commit_loop(prepared))


def test_a_base_that_is_another_commit_by_now_fails_before_the_put():
    with pytest.raises(errors.CommitFailedError, match="removed or replaced"):
        run(VersionExists(4), Replaced())


def test_a_commit_that_was_put_into_another_table_is_withdrawn():
    put = (VersionExists(4), Yes(), PUT5, Committed(), VersionExists(4), Replaced(), ReadCommits(5, 6))
    with pytest.raises(errors.CommitFailedError, match="made anew"):
        run(*put, Commits((OURS, None)), Withdraw(5), Yes())
    # It is not there, or the table has grown on top of it.
    for found in ((None, None), (THEIRS, None), (OURS, THEIRS)):
        with pytest.raises(errors.CommitOutcomeUnknownError):
            run(*put, Commits(found))


def test_a_put_in_doubt_is_withdrawn_from_another_table_and_stays_in_doubt():
    with pytest.raises(errors.CommitOutcomeUnknownError):
        run(
            VersionExists(4), Yes(), PUT5, Unknown(), ReadCommits(5, 5), Commits((None,)), Pause(1, "undecided"),
            Elapsed(0.1), VersionExists(4), Replaced(), ReadCommits(5, 6), Commits((OURS, None)), Withdraw(5), Yes(),
        )  # fmt: skip
