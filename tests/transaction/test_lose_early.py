"""A statement whose conflict is in the log already fails before it writes data files; a transaction only at its end."""

import pyarrow as pa
import pytest

import refdelta
from refdelta import DeltaTable, observe_commits
from refdelta.engine.parquet import write
from refdelta.errors import ConcurrentModificationError, InvalidLogError
from refdelta.operations.dml import update
from refdelta.operations.merge.execution import MergeExecution
from refdelta.operations.shared import rewrite

ROWS = pa.table({"id": pa.array(range(100)), "n": pa.array([0] * 100)})


@pytest.fixture(params=[True, False], ids=["vectors", "files"])
def table(request, tmp_path):
    configuration = {"delta.enableDeletionVectors": str(request.param).lower()}
    return refdelta.write_deltalake(tmp_path, ROWS, configuration=configuration) and DeltaTable(tmp_path)


@pytest.fixture
def between(monkeypatch, table):
    """Lets another handle do some work once a statement has found its rows. Afterwards ``between.written`` has an item
    for each time that data files were begun.
    """

    class Between:
        def __init__(self):
            self.written = []

        def __call__(self, work):
            waiting = [work]

            def after(found):
                if waiting:
                    waiting.pop()(DeltaTable(table.table_uri))
                    self.written.clear()
                return found

            for module in (update, rewrite):
                own = module.find_matches
                monkeypatch.setattr(module, "find_matches", lambda *args, own=own: after(own(*args)))
            find = MergeExecution.find
            monkeypatch.setattr(MergeExecution, "find", lambda self: after(find(self)))

    both, encoder = Between(), write.Encoder
    monkeypatch.setattr(write, "Encoder", lambda *args: both.written.append(args) or encoder(*args))
    return both


def change(table, predicate="id < 10"):
    return table.update({"n": "n + 1"}, predicate=predicate)


def merge(table):
    source = pa.table({"id": [3, 200], "n": [5, 5]})
    merger = table.merge(source, "t.id = s.id", source_alias="s", target_alias="t")
    return merger.when_matched_update_all().when_not_matched_insert_all().execute()


def delete(table):
    return table.delete("id < 10")


@pytest.mark.parametrize("statement", [change, merge, delete])
def test_a_statement_that_has_lost_writes_no_data_files(table, between, statement):
    between(change)
    events = []
    with (
        observe_commits(lambda event: events.append((event.operation, event.outcome, event.winner))),
        pytest.raises(ConcurrentModificationError) as lost,
    ):
        statement(table)
    assert not between.written
    assert lost.value.conflict.version == 1
    assert (events[0][1], events[1][1:]) == ("committed", ("conflict", 1))
    assert DeltaTable(table.table_uri).version() == 1
    assert statement(table).version == 2  # by the same handle, over the winner


def test_the_error_is_that_of_the_commit(table, between):
    between(change)
    with pytest.raises(ConcurrentModificationError) as early:
        change(table)
    late = DeltaTable(table.table_uri)
    with late.begin() as txn:
        change(DeltaTable(table.table_uri))
        change(txn)
        with pytest.raises(ConcurrentModificationError) as at_end:
            txn.commit()
    assert type(early.value) is type(at_end.value)
    told = [
        str(error.value).replace("version 1", "version N").replace("version 2", "version N")
        for error in (early, at_end)
    ]
    assert told[0].split(" (")[0] == told[1].split(" (")[0]
    assert early.value.conflict.rule == at_end.value.conflict.rule
    assert early.value.conflict.own == at_end.value.conflict.own


def test_what_does_not_conflict_goes_on(table, between):
    more = pa.table({"id": [300, 301], "n": [0, 0]})
    between(lambda other: refdelta.write_deltalake(other, more, mode="append"))
    assert change(table).rebased_over == (1,)
    assert between.written


def test_other_rows_of_the_same_file_conflict_only_if_files_decide(table, between):
    between(lambda other: change(other, "id > 50"))
    if table.metadata().configuration["delta.enableDeletionVectors"] == "true":
        assert change(table).rebased_over == (1,)
        assert between.written
    else:
        with pytest.raises(ConcurrentModificationError):
            change(table)
        assert not between.written


def test_a_winner_that_cannot_be_read_is_left_to_the_commit(table, between, tmp_path):
    between(lambda other: (tmp_path / "_delta_log" / f"{1:020}.json").write_text("{"))
    with pytest.raises(InvalidLogError):
        change(table)
    assert between.written
