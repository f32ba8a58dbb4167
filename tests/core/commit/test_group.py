"""Several transactions in one version: it is what they leave one after the other, and each has its own outcome.

Tests of core.commit.member.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from concurrency.commits import TABLE, add, remove, where
from concurrency.rows_table import Change, Table, Transaction, justified
from core.conflicts.test_row_histories import CHANGE, COLOUR, COMPACT, FILES, OPERATIONS, SMALL, begin
from grouped import mixing
from refdelta.core.commit import effects
from refdelta.core.commit.group import united
from refdelta.core.commit.loop import group_loop
from refdelta.core.commit.member import Member
from refdelta.core.commit.transaction import CommitOutcome, PreparedCommit
from refdelta.core.conflicts.isolation import IsolationLevel
from refdelta.core.conflicts.reads import ReadSet
from refdelta.core.log.actions import Cdc, CommitInfo, DomainMetadata, Txn
from refdelta.core.log.codec import decode_commit, encode_commit
from refdelta.core.log.footprint import fold_commit
from refdelta.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteReadException,
    ConcurrentModificationError,
    InvalidArgumentError,
)
from tiers import examples

BATCHES = st.lists(st.lists(st.tuples(OPERATIONS, st.integers(0, 3)), min_size=1, max_size=4), min_size=1, max_size=4)
INSERT = st.tuples(st.just("insert"), st.lists(COLOUR, min_size=1, max_size=3), st.just({}))
COPY = st.tuples(st.just("copy"), COLOUR | st.none(), st.just({}))
SERIALIZABLE, WRITE_SERIALIZABLE = IsolationLevel.SERIALIZABLE, IsolationLevel.WRITE_SERIALIZABLE


def play(table: Table, batches, level=SERIALIZABLE) -> None:
    """Commit batch after batch; at Serializable rows decide exactly which members conflict."""
    versions: list[list[Change]] = []
    for batch in batches:
        txns = [begin(table, operation, age) for operation, age in batch]
        txns = [txn for txn in txns if txn.actions or txn.work.deletes or txn.work.groups]
        if not txns:
            continue
        first = len(table.versions)
        outcomes = table.commit_together(txns, level)
        placed = [(one.version, one.member or 0, txn) for one, txn in zip(outcomes, txns, strict=True) if made(one)]
        for version in range(first, len(table.versions)):
            sharing = sorted((one for one in placed if one[0] == version), key=lambda one: one[1])
            event(f"{len(sharing)} members")
            changes: list[Change] = []
            for _, _, txn in sharing:
                winners = [one for some in versions[txn.saw :] for one in some] + changes
                if level is SERIALIZABLE and not txn.rearranges:
                    assert not justified(txn, winners), f"{txn.name} should have conflicted"
                changes.append(Change(txn, txn.deletes, txn.adds))
            versions.append(changes)
        for outcome, txn in zip(outcomes, txns, strict=True):
            if isinstance(outcome, Exception):
                winners = [one for some in versions[txn.saw :] for one in some]
                coarse = txn.rearranges or any(one.txn.rearranges or one.txn.restores for one in winners)
                assert coarse or txn.restores or justified(txn, winners), f"needless: {txn.name}, {outcome}"


def made(outcome: CommitOutcome | Exception) -> bool:
    return isinstance(outcome, CommitOutcome) and outcome.version is not None


@examples(400)
@given(st.sampled_from([FILES, SMALL]), BATCHES, st.sampled_from([SERIALIZABLE, WRITE_SERIALIZABLE]))
def test_a_version_is_what_its_members_leave_one_after_the_other(files, batches, level):
    play(Table(*files), batches, level)


@examples(300)
@given(
    st.sampled_from([FILES, SMALL]),
    st.lists(st.tuples(CHANGE, st.integers(0, 2)), min_size=2, max_size=5),
    st.lists(st.tuples(CHANGE, st.just(0)), max_size=3),
)
def test_members_are_checked_anew_after_a_winner(files, batch, winners):
    table = Table(*files)
    others = iter(winners)

    def before_put() -> None:
        for operation, age in others:
            other = begin(table, operation, age)
            if other.actions or other.work.deletes:
                table.commit(other)
                return

    txns = [begin(table, operation, age) for operation, age in batch]
    txns = [txn for txn in txns if txn.actions or txn.work.deletes]
    if txns:
        table.commit_together(txns, before_put=before_put)


# --- one version ----------------------------------------------------------------------------------------------------


def together(table: Table, *txns: Transaction, level=SERIALIZABLE) -> list:
    return table.commit_together(txns, level)


def test_deletes_of_the_same_file_are_one_vector():
    table = Table([(1, 0), (2, 1), (3, 2), (4, 3)])
    outcomes = together(table, table.change(0), table.change(1), table.change(2))
    assert [(one.version, one.member) for one in outcomes] == [(1, 0), (1, 1), (1, 2)]
    info, *files = decode_commit(table.log[-1], "1")
    assert [type(one).__name__ for one in files] == ["Remove", "Add"]
    assert files[0].deletion_vector is None
    assert files[1].deletion_vector.cardinality == 3
    assert [one["lines"] for one in info.fields["members"]] == [[[1, 3]]] * 3
    assert len(table.vectors) == 1  # none but that of the version was written


def test_a_file_without_a_row_left_is_removed_only():
    table = Table([(1, 0), (2, 1)])
    together(table, table.change(0), table.change(1))
    info, *files = decode_commit(table.log[-1], "1")
    assert [type(one).__name__ for one in files] == ["Remove"]
    assert [one["lines"] for one in info.fields["members"]] == [[[1, 2]]] * 2


def test_who_loses_against_an_earlier_member_fails_alone():
    table = Table([(1, 0), (2, 1)])
    first, second, third = together(table, table.change(0), table.change(0), table.change(1))
    assert (first.version, third.version) == (1, 1)
    assert isinstance(second, ConcurrentDeleteReadException)
    assert second.conflict.version == 1


def test_appends_come_after_what_may_have_read_them():
    table = Table([(1, 0), (2, 1)])
    inserted, copied = together(table, table.insert([0]), table.copy(0))
    assert (copied.version, copied.member, inserted.version, inserted.member) == (1, 0, 1, 1)


def test_a_compaction_has_a_version_for_itself():
    table = Table([(1, 0)], [(2, 1)])
    compacted, first, second = together(table, table.compact(), table.change(1), table.change(0))
    assert compacted.member is None
    assert {first.version, second.version} == {compacted.version + 1}


def test_those_that_only_append_share_with_their_like():
    """A stream passes over a version that removes rows, with all that it adds."""
    table = Table([(1, 0), (2, 1), (3, 2)])
    outcomes = together(
        table, table.insert([5]), table.change(0), table.insert([6]), table.change(1, to=4), table.copy(2)
    )
    assert {(one.version, one.member) for one in outcomes[::2]} == {(1, 0), (1, 1), (1, 2)}
    assert [(one.version, one.member) for one in outcomes[1::2]] == [(2, 0), (2, 1)]
    assert [fold_commit(at, table.log[at], str(at)).removed_data == () for at in (1, 2)] == [True, False]


def test_later_transactions_see_each_member_by_itself():
    """As one commit, the version read what the UPDATE read, and is no blind append: a stale DELETE of the appended
    colour would conflict.
    """
    table = Table([(1, 0), (2, 1)], [(3, 2)])
    stale = table.change(5)
    with mixing():
        together(table, table.insert([5]), table.change(0, to=4), level=WRITE_SERIALIZABLE)
    winner = fold_commit(1, table.log[1], "1")
    assert [part.blind for part in winner.parts] == [False, True]
    assert not winner.blind
    outcome = table.commit(table.change(2), WRITE_SERIALIZABLE)
    assert outcome.version == 2
    assert not stale.work.deletes


def test_an_append_among_members_may_be_passed_over():
    table = Table([(1, 5), (2, 1)], [(3, 2)])
    stale = table.change(5)
    with mixing():
        together(table, table.insert([5]), table.change(2, to=4), level=WRITE_SERIALIZABLE)
    assert table.commit(stale, WRITE_SERIALIZABLE).version == 2


# --- the log --------------------------------------------------------------------------------------------------------


def staged(*actions, name="a", operation="WRITE", read=0, blind=True, reads=None, info=None, **more) -> Member:
    fields = {"operation": operation, "readVersion": read, "isBlindAppend": blind, "engineInfo": "refdelta/1.0"}
    fields |= {"isolationLevel": "WriteSerializable", "operationMetrics": {"numFiles": "1", "writeMs": "7"}}
    return Member(
        PreparedCommit(
            read_version=read,
            read_set=reads or ReadSet(version=read),
            actions=list(actions),
            commit_info=fields | (info or {}),
            txn_id=name,
            level=WRITE_SERIALIZABLE,
            table=TABLE,
            **more,
        )
    )


class Log:
    """A log in memory; ``lost``: the puts whose replies are lost, though they are carried out."""

    def __init__(self, *commits: bytes, lost: int = 0):
        self.commits = list(commits) or [b"{}\n"]
        self.lost = lost

    def run(self, *members: Member) -> None:
        loop, reply = group_loop(members), None
        while True:
            try:
                reply = self.answer(loop.send(reply))
            except StopIteration:
                return

    def answer(self, effect):
        match effect:
            case effects.TryCommit(version, data):
                if version < len(self.commits):
                    return effects.Exists()
                self.commits.append(data)
                self.lost -= 1
                return effects.Unknown() if self.lost >= 0 else effects.Committed()
            case effects.ReadCommits(first, last):
                found = self.commits[first : last + 1]
                return effects.Commits((*found, *[None] * (last - first + 1 - len(found))))
            case effects.NewestVersion():
                return effects.Newest(len(self.commits) - 1)
            case effects.Pause():
                return effects.Elapsed(0.0)
            case effects.MatchRows(rows):
                return effects.Matches((True,) * len(rows), 0.0)
        return effects.Yes()

    def info(self, version: int = -1) -> dict:
        return json.loads(self.commits[version].split(b"\n")[0])["commitInfo"]


def test_commit_info_says_what_readers_without_members_need():
    log = Log()
    reading = ReadSet(version=0).with_predicate(where("a = 1"))
    with mixing():
        log.run(
            staged(add("f1"), name="one"),
            staged(remove("f0"), name="two", operation="DELETE", blind=False, reads=reading),
        )
    info = log.info()
    assert info["operation"] == "GROUP"
    assert info["isBlindAppend"] is False
    assert info["readPredicates"] == ["a = 1L"]
    assert info["operationMetrics"] == {"numFiles": "2"}
    assert [(one["txnId"], one["operation"], one["lines"]) for one in info["members"]] == [
        ("two", "DELETE", [[1, 2]]),
        ("one", "WRITE", [[2, 3]]),
    ]
    assert "engineInfo" not in info["members"][0]


def test_one_alone_has_no_members():
    log = Log()
    member = staged(add("f1"))
    log.run(member)
    assert member.outcome.member is None
    assert "members" not in log.info()


def test_of_the_same_blind_appends_the_version_is_one():
    log = Log()
    log.run(staged(add("f1"), name="one"), staged(add("f2"), name="two"))
    info = log.info()
    assert (info["operation"], info["isBlindAppend"], info["txnId"]) == ("WRITE", True, "one")
    assert "readPredicates" not in info


def test_a_lost_reply_is_settled_for_all():
    log = Log(lost=1)
    members = [staged(add("f1"), name="one"), staged(add("f2"), name="two")]
    log.run(*members)
    assert [(one.outcome.version, one.outcome.member, one.outcome.recovered) for one in members] == [
        (1, 0, True),
        (1, 1, True),
    ]
    assert len(log.commits) == 2


def test_who_is_in_a_version_already_is_not_committed_again():
    """The version was put by another loop, with one of them among its members."""
    log = Log()
    log.run(staged(add("f0"), name="zero"), staged(add("f1"), name="one"))
    members = [staged(add("f1"), name="one"), staged(add("f2"), name="two")]
    log.run(*members)
    assert (members[0].outcome.version, members[0].outcome.member) == (1, 1)
    assert members[1].outcome is None
    log.run(*members)
    assert members[1].outcome.version == 2


def test_members_of_different_snapshots():
    log = Log(b"{}\n", encode_commit([CommitInfo(fields={"operation": "WRITE"}), add("w1")]))
    members = [staged(add("f1"), name="one"), staged(add("f2"), name="two", read=1)]
    log.run(*members)
    assert [one.outcome.version for one in members] == [2, 2]
    assert [one.outcome.rebased_over for one in members] == [(1,), ()]
    assert log.info()["readVersion"] == 0


def test_versions_of_applications_are_recorded_each():
    log = Log()
    app = [staged(add(f"f{n}"), Txn(app_id=f"app{n % 2}", version=n), name=str(n)) for n in range(3)]
    log.run(*app)
    assert [one.outcome and one.outcome.member for one in app] == [0, 1, None]
    parts = fold_commit(1, log.commits[1], "1").parts
    assert [part.app_ids for part in parts] == [{"app0"}, {"app1"}]
    log.run(*app)
    assert app[2].outcome.conflict.rule == "application"


def test_changes_with_cdc_have_no_version_with_changes_without():
    cdc = Cdc(path="_change_data/c", partition_values={}, size=1, data_change=False)
    log = Log()
    members = [staged(remove("f0"), cdc, name="a", operation="DELETE", blind=False), staged(add("f1"), name="b")]
    log.run(*members)
    assert [one.outcome is None for one in members] == [False, True]
    log.run(*members)
    assert [one.outcome.version for one in members] == [1, 2]


@pytest.mark.parametrize("operation", ["RESTORE", "VACUUM START", "CLONE", "OPTIMIZE"])
def test_an_operation_that_must_be_seen_by_name_goes_alone(operation):
    log = Log()
    members = [staged(add("f1"), name="a", operation=operation), staged(add("f2"), name="b")]
    log.run(*members)
    assert [one.outcome is None for one in members] == [False, True]
    assert log.info()["operation"] == operation


def test_one_that_cannot_be_encoded_fails_alone():
    from refdelta.core.log.assigned import RowIds

    log = Log()
    bad = add("f2")
    members = [staged(add("f1", a=(1, 2)), name="a", row_ids=RowIds()), staged(bad, name="b", row_ids=RowIds())]
    log.run(*members)
    assert members[0].outcome.version == 1
    log.run(*members)
    assert isinstance(members[1].outcome, InvalidArgumentError)
    assert "numRecords" in str(members[1].outcome)
    assert len(log.commits) == 2


def test_row_ids_rise_in_the_order_of_members():
    from refdelta.core.log.assigned import RowIds

    log = Log()
    log.run(*(staged(add(f"f{n}", a=(1, 2)), name=str(n), row_ids=RowIds(9)) for n in range(3)))
    _, *actions = decode_commit(log.commits[1], "1")
    adds = [one for one in actions if not isinstance(one, DomainMetadata)]
    bases = [one.base_row_id for one in adds]
    assert bases[0] == 10
    assert bases == sorted(set(bases))
    assert {one.default_row_commit_version for one in adds} == {1}
    assert len(fold_commit(1, log.commits[1], "1").parts) == 3


# --- claims about members -------------------------------------------------------------------------------------------


def commit(*members: dict, engine="refdelta/1.0") -> bytes:
    info = {"operation": "GROUP", "engineInfo": engine, "members": list(members)}
    return encode_commit([CommitInfo(fields=info), add("f1"), add("f2")])


ONE, TWO = {"txnId": "a", "lines": [[1, 2]]}, {"txnId": "b", "lines": [[2, 3]]}


def test_each_member_has_its_lines():
    parts = fold_commit(3, commit(ONE, TWO), "3").parts
    assert [(part.txn_id, [one.path for one in part.adds]) for part in parts] == [("a", ["f1"]), ("b", ["f2"])]


@pytest.mark.parametrize(
    "members",
    [
        [ONE],
        [ONE, {"txnId": "b"}],
        [ONE, {"txnId": "b", "lines": [[2, 9]]}],
        [ONE, {"txnId": "b", "lines": [[0, 3]]}],
        [ONE, {"txnId": "b", "lines": [[2, 3], [1, 2]]}],
        [ONE, {"txnId": "b", "lines": [[True, 3]]}],
        [ONE, {"txnId": "b", "lines": "all"}],
        [ONE, 7],
    ],
)
def test_claims_that_contradict_the_file_are_not_believed(members):
    whole = fold_commit(3, commit(*members), "3")
    assert whole.parts == (whole,)


def test_members_of_another_engine_are_not_believed():
    whole = fold_commit(3, commit(ONE, TWO, engine="other/1"), "3")
    assert whole.parts == (whole,)
    assert whole.txn_ids == ("a", "b")


def test_lines_are_ranges():
    actions, lines = united([[remove("f0"), add("a"), add("b")], [add("c")], [remove("f9"), add("d")]])
    assert lines == [[[1, 4]], [[4, 5]], [[5, 7]]]
    assert len(actions) == 6


def test_rows_that_are_added_after_a_member_read_conflict_in_the_next_version():
    log = Log()
    reading = ReadSet(version=0).with_predicate(where("a = 1"))
    first = staged(remove("f0"), name="a", operation="DELETE", blind=False, reads=reading)
    second = staged(remove("f5"), add("f6"), name="b", operation="UPDATE", blind=False, reads=reading)
    log.run(first, second)
    assert second.outcome is None or isinstance(second.outcome, CommitOutcome | ConcurrentAppendException)


# --- a version with members, and the same transactions as versions of their own -------------------------------------


def verdict(table: Table, txn: Transaction, level: IsolationLevel) -> str:
    try:
        return "commits" if table.commit(txn, level).version is not None else "nothing left"
    except ConcurrentModificationError as error:
        return error.conflict.rule


@pytest.mark.tier("test")
@examples(400)
@given(
    st.sampled_from([FILES, SMALL]),
    st.lists(CHANGE | INSERT | COPY, min_size=2, max_size=5),
    st.lists(CHANGE | INSERT | COPY | COMPACT, min_size=1, max_size=3),
    st.sampled_from([SERIALIZABLE, WRITE_SERIALIZABLE]),
)
def test_later_transactions_are_told_the_same_of_members_as_of_versions(files, batch, stale, level):
    shared, apart = Table(*files), Table(*files)
    late = {table: [begin(table, operation, 0) for operation in stale] for table in (shared, apart)}
    staged = {table: [begin(table, operation, 0) for operation in batch] for table in (shared, apart)}
    outcomes = shared.commit_together(staged[shared], level)
    placed = [(one.version, one.member or 0, at) for at, one in enumerate(outcomes) if made(one)]
    for _, _, at in sorted(placed):
        # Each would have been committed alone, too, in this order.
        apart.commit(staged[apart][at], level)
    assert shared.rows(-1) == apart.rows(-1)
    for one, other in zip(late[shared], late[apart], strict=True):
        together, alone = verdict(shared, one, level), verdict(apart, other, level)
        event(f"{level.value}: {alone}")
        # Which rule it is may differ: of a file that several members changed, the first one is taken to have done it.
        if level is SERIALIZABLE or alone != "commits":
            assert (together == "commits") == (alone == "commits")
        if together != alone:
            event(f"{alone}: {together}")
            return
        assert shared.rows(-1) == apart.rows(-1)
