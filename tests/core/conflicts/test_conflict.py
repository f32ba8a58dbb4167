"""The rules, one by one: what fires, in which order, and what the error says.

Tests of core.conflicts.state, core.errors.
"""

from __future__ import annotations

import pickle

import pytest

from refdelta import errors
from refdelta.core.conflicts.isolation import IsolationLevel
from refdelta.core.conflicts.reads import EVERY_ROW, ReadSet
from refdelta.core.conflicts.rules import RULES, Clear, Conflict, check
from refdelta.core.conflicts.state import TransactionState
from refdelta.core.log.actions import Add, AnyAction, Cdc, CommitInfo, DomainMetadata, Metadata, Protocol, Remove, Txn
from refdelta.core.log.codec import encode_commit
from refdelta.core.log.footprint import fold, fold_commit
from refdelta.core.rows.file_state import ReadFile

PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)
METADATA = Metadata(id="m", schema_string="{}", partition_columns=[])
INFO = CommitInfo(fields={"operation": "DELETE", "txnId": "theirs", "isBlindAppend": False})


def add(path: str, *, data_change: bool = True) -> Add:
    return Add(path=path, partition_values={}, size=1, modification_time=1, data_change=data_change)


def remove(path: str, *, data_change: bool | None = True) -> Remove:
    return Remove(path=path, deletion_timestamp=1, data_change=data_change)


def txn(app: str) -> Txn:
    return Txn(app_id=app, version=1)


def domain(name: str) -> DomainMetadata:
    return DomainMetadata(domain=name, configuration="", removed=False)


BLIND = ReadSet(version=4)
EVERYTHING = ReadSet(version=4).with_everything()
FILE_A = ReadSet(version=4, files={"a": ReadFile()})


def verdict(
    read: ReadSet,
    ours: list[AnyAction],
    theirs: list[AnyAction],
    level: IsolationLevel = IsolationLevel.SERIALIZABLE,
) -> str | None:
    """The id of the rule that fires. The winner goes through its bytes, as in the real loop."""
    moves = [one.data_change is False for one in theirs if isinstance(one, Add | Remove)]
    refreshes = moves and all(moves) and not any(isinstance(one, Remove) for one in theirs)
    operation = "COMPUTE STATS" if refreshes else "OPTIMIZE" if moves and all(moves) else "DELETE"
    info = CommitInfo(fields={**INFO.fields, "operation": operation, "engineInfo": "refdelta/1.0"})
    winner = fold_commit(5, encode_commit([info, *theirs]), "5.json")
    outcome = check(TransactionState(read, ours, level), winner)
    if isinstance(outcome, Clear):
        return None
    assert outcome.details.version == 5
    assert outcome.details.operation == operation
    return outcome.rule.id


@pytest.mark.parametrize(
    ("read", "ours", "theirs", "rule"),
    [
        # Blind appends never conflict with data.
        (BLIND, [add("n")], [add("b")], None),
        (BLIND, [add("n")], [remove("a"), add("b")], None),
        (BLIND, [add("n")], [remove("a", data_change=False), add("b", data_change=False)], None),
        (BLIND, [add("n")], [], None),
        # What everybody conflicts with.
        (BLIND, [add("n")], [PROTOCOL], "protocol"),
        (BLIND, [add("n")], [METADATA, add("b")], "metadata"),
        (BLIND, [add("n")], [METADATA, PROTOCOL], "protocol"),
        (ReadSet(version=-1), [add("n")], [PROTOCOL, METADATA], "table-created"),
        # Domains and applications.
        (BLIND, [domain("d")], [domain("d")], "domain"),
        (BLIND, [domain("d")], [domain("e")], None),
        (BLIND, [txn("app")], [txn("app")], "application"),
        (BLIND, [txn("app")], [txn("other")], None),
        (ReadSet(version=4, app_ids=frozenset({"app"})), [add("n")], [txn("app")], "application"),
        # Whoever reads the table conflicts with every change of data.
        (EVERYTHING, [add("n")], [add("b")], "files-added"),
        (ReadSet(version=4).with_predicate(EVERY_ROW), [add("n")], [add("b")], "files-added"),
        (FILE_A, [add("n")], [add("b"), remove("a")], "files-added"),
        (FILE_A, [add("n")], [remove("a")], "read-file-removed"),
        (FILE_A, [add("n")], [remove("b")], None),
        (FILE_A, [add("n")], [remove("a", data_change=None)], "read-file-removed"),
        (FILE_A, [add("n")], [remove("b", data_change=None)], None),
        # A compaction changes no data: it concerns those who read what it moved.
        (FILE_A, [add("n")], [remove("a", data_change=False), add("c", data_change=False)], "read-file-removed"),
        (FILE_A, [add("n")], [remove("b", data_change=False), add("c", data_change=False)], None),
        (EVERYTHING, [add("n")], [remove("b", data_change=False), add("c", data_change=False)], "read-file-removed"),
        # New statistics for a file move nothing.
        (EVERYTHING, [remove("a")], [add("a", data_change=False)], None),
        # A commit that changes no file at all.
        (EVERYTHING, [remove("a")], [txn("app")], None),
        # A compaction of ours reads nothing that data could conflict with; its inputs must be there.
        (FILE_A, [remove("a", data_change=False), add("n", data_change=False)], [add("b")], None),
        (FILE_A, [remove("a", data_change=False), add("n", data_change=False)], [remove("a")], "deleted-by-both"),
        (FILE_A, [remove("a", data_change=False), add("n", data_change=False)], [remove("b")], None),
    ],
)
def test_each_rule(read, ours, theirs, rule):
    assert verdict(read, ours, theirs) == rule


def test_the_same_file_in_another_spelling_is_the_same_file():
    read = ReadSet(version=4).with_files([add("d=a%20b/x")])
    assert verdict(read, [add("n")], [remove("d=a b/x", data_change=False)]) == "read-file-removed"
    assert verdict(read, [add("n")], [remove("d=a%2520b/x", data_change=False)]) is None


def test_every_rule_can_be_told_apart_and_says_what_to_do():
    assert len({rule.id for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.advice.endswith(".")
        assert not rule.sentence.endswith(".")
        assert issubclass(rule.error, errors.ConcurrentModificationError)


def test_the_error_names_rule_winner_files_and_advice_and_survives_a_process_boundary():
    winner = fold(5, [INFO, *(add(f"part-{number}") for number in range(1000))])
    outcome = check(TransactionState(EVERYTHING, [add("n")]), winner)
    assert isinstance(outcome, Conflict)
    error = pickle.loads(pickle.dumps(outcome.error()))
    assert isinstance(error, errors.ConcurrentAppendException)
    assert (error.conflict.rule, error.conflict.version, error.conflict.operation) == ("files-added", 5, "DELETE")
    assert error.conflict.files[:2] == ("part-0", "part-1")
    assert len(error.conflict.files) == 20
    assert "version 5, DELETE" in str(error)
    assert "Repeat the operation" in str(error)


# --- folding ------------------------------------------------------------------------------------------------------


def test_a_commit_is_folded_to_what_the_rules_need():
    actions = [INFO, PROTOCOL, METADATA, txn("app"), domain("d"), add("a"), add("b", data_change=False), remove("c")]
    summary = fold_commit(
        7, encode_commit([*actions, Cdc(path="x", partition_values={}, size=1, data_change=False)]), "7"
    )
    assert (summary.version, summary.operation, summary.txn_id) == (7, "DELETE", "theirs")
    assert summary.changes_protocol
    assert summary.changes_metadata
    assert not summary.says_blind_append
    assert (summary.app_ids, summary.domains) == ({"app"}, {"d"})
    assert [action.path for action in summary.added_data] == ["a"]
    assert [action.path for action in summary.removed_data] == ["c"]
    assert not summary.rearranges


def test_a_foreign_commit_info_of_other_types_is_no_error():
    fields = {"operation": 5, "txnId": None, "isBlindAppend": "true"}
    summary = fold_commit(1, encode_commit([CommitInfo(fields=fields), add("a")]), "1.json")
    assert (summary.operation, summary.txn_id, summary.says_blind_append) == (None, None, False)


def test_a_broken_winner_is_named():
    with pytest.raises(errors.InvalidLogError, match=r"5\.json"):
        fold_commit(5, b'{"add":{"path":1}}\n', "5.json")


@pytest.mark.parametrize(
    ("read", "blind"),
    [
        (ReadSet(version=1), True),
        (ReadSet(version=1, app_ids=frozenset({"a"})), True),
        (ReadSet(version=1).with_everything(), False),
        (ReadSet(version=1).with_predicate(EVERY_ROW, finer=True), False),
        (ReadSet(version=1).with_files([add("a")]), False),
        (ReadSet(version=1).with_files([]), True),
    ],
)
def test_what_blind_means(read, blind):
    assert read.blind is blind
