"""Both transactions of a conflict in ``error.conflict``: what the winner's commit says of itself, and one's own."""

import datetime as dt
import json
import pickle

import msgspec
import pyarrow as pa
import pytest

from refdelta import CommitProperties, DeltaTable, errors, write_deltalake
from refdelta.core.log.codec import commit_info_of
from refdelta.transaction.parties import any_of_texts, party, stated_predicate


@pytest.fixture
def table(tmp_path):
    rows = pa.table({"id": [1, 2, 3, 4]})
    write_deltalake(tmp_path, rows, configuration={"delta.enableDeletionVectors": "true"})
    return DeltaTable(tmp_path)


def lost(table, first, second, **options):
    """The conflict of ``second`` with ``first``, which commits before it."""
    note = CommitProperties(user_metadata="nightly", custom_metadata={"userName": "Ada"})
    winner, loser = table.begin(commit_properties=note), table.begin(**options)
    first(winner)
    second(loser)
    winner.commit()
    with pytest.raises(errors.ConcurrentModificationError) as caught:
        loser.commit()
    return caught.value


def test_a_conflict_names_both_transactions(table):
    before = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=1)
    error = lost(table, lambda t: t.delete("id = 1"), lambda t: t.delete("id <= 2"))
    winner, own = error.conflict.winner, error.conflict.own
    assert (winner.version, winner.operation, winner.predicate) == (1, "DELETE", "id = 1L")
    assert (winner.user, winner.note, winner.isolation_level) == ("Ada", "nightly", "WriteSerializable")
    assert before <= winner.time <= dt.datetime.now(dt.UTC)
    assert (own.version, own.operation, own.predicate) == (None, "DELETE", "id <= 2L")
    assert error.conflict.rows == 1


def test_a_blind_append_has_no_predicate(table):
    error = lost(
        table, lambda t: t.append(pa.table({"id": [9]})), lambda t: t.delete("id > 3"), isolation="Serializable"
    )
    assert error.conflict.winner.predicate is None
    assert error.conflict.own.isolation_level == "Serializable"


def test_the_rows_of_an_append_that_decide_are_named(table):
    news = pa.table({"id": [7, 1, 2, 8, 3]})
    error = lost(
        table, lambda t: t.append(news), lambda t: t.update({"id": "0"}, predicate="id < 3"), isolation="Serializable"
    )
    (path,) = error.conflict.files
    assert (error.conflict.rule, error.conflict.rows) == ("files-added", 2)
    assert error.conflict.positions == {path: (1, 2)}
    assert f"Rows: 2, at 1, 2 in {path}." in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize(
    ("new", "predicate", "by_rows"),
    [(1, "id < 3", False), (0, "10 / id > 9", True)],
    ids=["nobody looked at rows", "the statement fails on the row"],
)
def test_an_append_over_which_no_row_decides(table, new, predicate, by_rows):
    news, properties = pa.table({"id": [new]}), CommitProperties(row_level=by_rows)
    error = lost(
        table,
        lambda t: t.append(news),
        lambda t: t.delete(predicate),
        isolation="Serializable",
        commit_properties=properties,
    )
    assert (error.conflict.rule, error.conflict.rows, error.conflict.positions) == ("files-added", None, {})


def test_the_details_are_json_and_survive_a_pickle(table):
    error = lost(table, lambda t: t.delete("id = 1"), lambda t: t.delete("id = 1"))
    assert pickle.loads(pickle.dumps(error)).conflict == error.conflict
    found = json.loads(json.dumps(error.conflict.as_dict()))
    assert found["winner"]["user"] == "Ada"
    assert found["own"]["predicate"] == "id = 1L"
    assert dt.datetime.fromisoformat(found["winner"]["time"]) == error.conflict.winner.time


@pytest.mark.parametrize(
    ("parameters", "predicate"),
    [
        ({"predicate": '["(id#481L = 3)"]'}, "(id = 3)"),
        ({"predicate": "id = 1"}, "id = 1"),
        ({"mergePredicate": "t.id = s.id"}, "t.id = s.id"),
        ({"predicate": "[]"}, None),
        ({"predicate": "[1"}, None),
        ({"predicate": 7}, None),
        ("x", None),
    ],
)
def test_the_predicate_that_an_engine_states(parameters, predicate):
    assert stated_predicate({"operationParameters": parameters}) == predicate


def test_fields_of_other_types_count_as_missing():
    found = party(3, {"operation": ["x"], "userName": 7, "userId": "u", "timestamp": 10**30, "readPredicates": "TRUE"})
    assert (found.version, found.operation, found.user, found.time, found.predicate) == (3, None, "u", None, None)


def test_several_predicates_are_one():
    assert any_of_texts(["a = 1", "a = 1"]) == "a = 1"
    assert any_of_texts(["a = 1", "b = 2"]) == "(a = 1) OR (b = 2)"
    assert any_of_texts(["a = 1", "TRUE"]) == "TRUE"
    assert any_of_texts([]) is None


def test_damaged_lines_have_no_commit_info():
    line = msgspec.json.encode({"commitInfo": {"operation": "WRITE"}})
    assert commit_info_of(b"{\n" + line) == {"operation": "WRITE"}
    assert commit_info_of(b'{"add": 1}\n\xff') == {}
