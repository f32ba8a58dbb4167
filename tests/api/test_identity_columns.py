"""Identity columns: numbers that no row has had, on every path that writes rows, and one writer at a time.

Tests of operations.shared.identity.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import refdelta
from handmade import Handmade, field, struct
from refdelta import DeltaTable, Identity, errors, write_deltalake
from refdelta.operations.shared.identity import Numbering
from refdelta.operations.shared.row_rules import RowRules
from refdelta.operations.write.prepared_files import AddAction
from refdelta.table.types import LONG, StructField, physical_name
from refdelta_storage import LocalStore

SCHEMA = pa.schema([("id", pa.int64()), ("down", pa.int64()), ("a", pa.int64())])
IDENTITY = {"id": Identity(10, 5), "down": Identity(-1, -1, always=False)}


@pytest.fixture(params=["false", "true"], ids=["copies", "vectors"])
def table(request, tmp_path):
    configuration = {"delta.enableDeletionVectors": request.param, "delta.checkpointInterval": "3"}
    return DeltaTable.create(tmp_path / "t", SCHEMA, identity=IDENTITY, configuration=configuration)


def rows(table):
    return [tuple(row.values()) for row in table.to_pyarrow_table().select(SCHEMA.names).sort_by("id").to_pylist()]


def marks(table):
    return [item.metadata.get("delta.identity.highWaterMark") for item in table.schema().fields[:2]]


def of(*values, **more):
    return pa.table({"a": pa.array(values, pa.int64())} | more)


def test_rows_are_numbered_behind_those_that_were_there(table):
    assert marks(table) == [None, None]
    write_deltalake(table, of(), mode="append")
    assert marks(table) == [None, None]
    batches = [of(1, 2).to_batches()[0], of(3).to_batches()[0]]
    write_deltalake(table, batches, mode="append")
    assert rows(table) == [(10, -1, 1), (15, -2, 2), (20, -3, 3)]
    write_deltalake(str(table.table_uri), of(4), mode="append")
    write_deltalake(table, of(5, down=[77]), mode="append")  # a number of the writer's own leaves the mark
    write_deltalake(table, of(6), mode="append")
    assert rows(table)[3:] == [(25, -4, 4), (30, 77, 5), (35, -5, 6)]
    assert marks(table) == [35, -5]
    write_deltalake(table, of(8), mode="overwrite")
    assert rows(table) == [(40, -6, 8)]
    write_deltalake(table, of(9), mode="overwrite", predicate="a = 9")
    assert rows(table)[1:] == [(45, -7, 9)]
    assert DeltaTable(table.table_uri).schema() == table.schema()


def test_merges_number_what_they_insert(table):
    write_deltalake(table, of(1, 2), mode="append")
    source = of(1, 7, 8, 9)
    merger = table.merge(source, "s.a = t.a").when_matched_update({"a": "s.a + 100"})
    merger.when_not_matched_insert({"a": "s.a"}).execute()
    assert rows(table) == [(10, -1, 101), (15, -2, 2), (20, -3, 7), (25, -4, 8), (30, -5, 9)]
    assert marks(table) == [30, -5]
    merger = table.merge(of(20, 21, 22), "s.a = t.a").when_not_matched_insert({"a": "s.a"}, predicate="s.a = 21")
    merger.when_not_matched_insert({"a": "s.a", "down": "5"}, predicate="s.a = 22").execute()
    new = rows(table)[5:]
    assert [row[1:] for row in new if row[2] == 22] == [(5, 22)]
    assert len({row[0] for row in new}) == 2
    assert all(30 < row[0] <= marks(table)[0] and row[0] % 5 == 0 for row in new)
    write_deltalake(table, of(50), mode="append")
    assert len({row[0] for row in rows(table)}) == 8
    version = table.version()
    table.merge(of(50), "s.a = t.a").when_not_matched_insert({"a": "s.a"}).execute()
    assert table.version() == version


def test_numbers_are_not_for_everybody_to_give(table):
    write_deltalake(table, of(1), mode="append")
    for change in (
        lambda: write_deltalake(table, of(1, ID=[3]), mode="append"),
        lambda: write_deltalake(table, of(1, id=[3]), mode="overwrite"),
        lambda: table.merge(of(5), "s.a = t.a").when_not_matched_insert({"a": "s.a", "id": "1"}).execute(),
    ):
        with pytest.raises(errors.ConstraintViolationError, match=r"'id' is an identity column.*leave it out"):
            change()
    for change in (
        lambda: table.update({"down": "1"}),
        lambda: table.update(new_values={"down": 1}, predicate="a = 1"),
        lambda: table.merge(of(1), "s.a = t.a").when_matched_update({"down": "1"}).execute(),
    ):
        with pytest.raises(
            errors.ConstraintViolationError, match=r"'down' is an identity column: its values cannot change"
        ):
            change()
    given = AddAction(path="x.parquet", size=1, partition_values={}, modification_time=1)
    with pytest.raises(errors.UnsupportedFeatureError, match="identityColumns"):
        table.create_write_transaction([given], "append", refdelta.Schema.from_arrow(SCHEMA))
    assert table.version() == 1


def test_one_writer_at_a_time(table):
    first, second, third = table.begin(), DeltaTable(table.table_uri).begin(), table.begin()
    first.append(of(1))
    second.append(of(2))
    third.delete("a = 9")
    with pytest.raises(errors.InvalidArgumentError, match=r"numbered rows .* already"):
        first.append(of(3))
    with pytest.raises(errors.InvalidArgumentError, match=r"numbered rows .* already"):
        first.merge(of(1), "s.a = t.a").when_not_matched_insert({"a": "s.a"}).execute()
    first.commit()
    with pytest.raises(errors.MetadataChangedException):
        second.commit()
    assert rows(table) == [(10, -1, 1)]


def test_numbers_stay_with_their_rows_and_are_not_given_again(table):
    write_deltalake(table, of(1, 2, 3), mode="append")
    write_deltalake(table, of(4), mode="append")
    table.update({"a": "a + 10"}, predicate="a > 2")
    table.delete("a = 1")
    table.optimize.compact()
    table.optimize.z_order(["a"])
    assert rows(table) == [(15, -2, 2), (20, -3, 13), (25, -4, 14)]
    table.restore(1)
    assert marks(table) == [25, -4]
    write_deltalake(table, of(9), mode="append")
    assert rows(table) == [(10, -1, 1), (15, -2, 2), (20, -3, 3), (30, -5, 9)]


def test_the_last_numbers(tmp_path):
    last = 2**63 - 1
    table = DeltaTable.create(
        tmp_path / "t", SCHEMA, identity={"id": Identity(last - 2**62, 2**62), "down": Identity(-(2**63), -1)}
    )
    write_deltalake(table, of(1), mode="append")
    assert rows(table) == [(last - 2**62, -(2**63), 1)]
    with pytest.raises(errors.ConstraintViolationError, match="'down' has no numbers left"):
        write_deltalake(table, of(2), mode="append")
    table = DeltaTable.create(tmp_path / "u", SCHEMA, identity={"id": Identity(-(2**62), 2**61)})
    write_deltalake(table, of(*range(6)), mode="append")
    assert [row[0] for row in rows(table)] == [-(2**62) + n * 2**61 for n in range(6)]
    with pytest.raises(errors.ConstraintViolationError, match="'id' has no numbers left"):
        write_deltalake(table, of(2), mode="append")


def test_numbers_go_on_behind_those_that_writers_gave(tmp_path):
    schema = SCHEMA.append(pa.field("x", pa.int64()))
    ways = {
        "id": Identity(10, 5, always=False),
        "down": Identity(-1, -3, always=False),
        "x": Identity(100, 1, always=False),
    }
    table = DeltaTable.create(tmp_path / "t", schema, identity=ways)
    for column in ways:
        assert table.alter.sync_identity(column).version is None
    write_deltalake(table, of(1, 2, id=[36, 12], down=[-2, -20], x=[5, None]), mode="append")
    for column in ways:
        table.alter.sync_identity(column)
    assert [item.metadata.get("delta.identity.highWaterMark") for item in table.schema()] == [40, -22, None, None]
    assert table.history(1)[0]["operation"] == "CHANGE COLUMN"
    write_deltalake(table, of(3), mode="append")
    assert table.to_pyarrow_table(filters="a = 3").to_pylist() == [{"id": 45, "down": -25, "a": 3, "x": 100}]
    table.delete("a = 3")
    assert table.alter.sync_identity("id").version is None  # it never goes back
    with pytest.raises(errors.InvalidArgumentError, match="'a' is not an identity column"):
        table.alter.sync_identity("a")


@pytest.mark.parametrize("step", [1, 3, -1, -4])
def test_the_next_number_of_a_column(step):
    numbering = Numbering(StructField("id", LONG), 5, step, None, explicit=False)
    numbers = [5 + n * step for n in range(40)]
    for number in range(-20, 30):
        behind = [one for one in numbers if (one - number) * step >= 0]
        assert numbering.at_or_behind(number) == (behind[0] if (number - 5) * step >= 0 else None)


def test_a_generated_column_may_follow_a_number(tmp_path):
    table = DeltaTable.create(
        tmp_path / "t", SCHEMA, identity={"id": Identity()}, generated={"down": "-id"}, defaults={"a": "3"}
    )
    write_deltalake(table, pa.table({"a": [1, 2]}), mode="append")
    table.merge(of(9), "false").when_not_matched_insert({"a": "DEFAULT"}).execute()
    assert rows(table) == [(1, -1, 1), (2, -2, 2), (3, -3, 3)]


@pytest.mark.parametrize(
    "declared",
    [
        lambda: {"identity": {"id": Identity(step=0)}},
        lambda: {"identity": {"id": Identity(start=2**63)}},
        lambda: {"identity": {"id": Identity(start=None)}},
        lambda: {"identity": {"nope": Identity()}},
        lambda: {"identity": {"id": 1}},
        lambda: {"identity": ["id"]},
        lambda: {"identity": {"id": Identity()}, "defaults": {"id": "1"}},
        lambda: {"identity": {"s": Identity()}},
    ],
)
def test_what_cannot_be_declared_is_refused(tmp_path, declared):
    with pytest.raises(errors.InvalidArgumentError):
        DeltaTable.create(tmp_path / "t", SCHEMA.append(pa.field("s", pa.string())), **declared())
    assert not DeltaTable.is_deltatable(tmp_path / "t")


@pytest.mark.breaks_tables
def test_a_column_with_half_a_declaration_is_a_broken_log(tmp_path):
    for number, marks_ in enumerate(
        (
            {"delta.identity.start": 1},
            {"delta.identity.start": 1, "delta.identity.step": 0, "delta.identity.allowExplicitInsert": True},
        )
    ):
        store = LocalStore(tmp_path / str(number))
        protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 6}}
        Handmade(struct(field("id", "long", **marks_), field("a", "long")), store=store, protocol=protocol)
        with pytest.raises(errors.InvalidLogError, match="'id', a long, has invalid metadata for an identity column"):
            write_deltalake(tmp_path / str(number), of(1), mode="append")
        assert DeltaTable(tmp_path / str(number)).count() == 0


@given(
    st.lists(st.lists(st.integers(0, 10_000), max_size=4), max_size=6),
    st.integers(-9, 9).filter(bool),
    st.none() | st.integers(-50, 50),
)
def test_tasks_that_know_nothing_of_each_other_give_no_number_twice(tasks, step, mark):
    field = StructField("id", LONG, nullable=True)
    rules = RowRules(numbered=(Numbering(field, 3, step, mark, explicit=False),))
    given_numbers, marks = [], []
    for number, batches in enumerate(tasks):
        one, rows = rules.of_task(number).numbered[0], 0
        own = []
        for count in batches:
            own += one.numbers(rows, count).to_pylist()
            rows += count
        assert own == sorted(own, reverse=step < 0)
        assert [own[row] for row in range(0, rows, 997)] == [one.number(row) for row in range(0, rows, 997)]
        given_numbers += own
        marks.append(rules.of_task(number).marks({"id"}, rows))
    assert len(set(given_numbers)) == len(given_numbers)
    first = 3 if mark is None else mark + step
    assert all((number - first) * step >= 0 == (number - first) % step for number in given_numbers)
    last = rules.furthest(marks)
    assert last == ({physical_name(field): max(given_numbers, key=lambda n: n * step)} if given_numbers else {})


def test_a_task_whose_numbers_do_not_fit_says_so():
    full = Numbering(StructField("id", LONG, nullable=True), 2**63 - 10_000, 1, None, explicit=False)
    assert full.numbers(0, 10_000)[-1].as_py() == 2**63 - 1
    task = RowRules(numbered=(full,)).of_task(1).numbered[0]
    assert task.number(0) == 2**63 - 10_000 + 4096
    with pytest.raises(errors.ConstraintViolationError, match="'id' has no numbers left"):
        task.numbers(4096, 1)
