"""What share of the histories that the judge accepts the engine accepts."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import product

import pytest

from model import delta_spark, tables
from model.branches import Refusal
from model.cases import ALL, MORE
from model.core import Core
from model.exhaustive import pairs
from model.layouts import FILES, LAYOUTS, PARTITIONED_ROWS, ROWS, START, TRACKED
from model.precision import NOTES, SECTIONS, in_groups, measure, report, whole
from refdelta import RowBudget
from refdelta.conformance.judge import LEVELS, SERIALIZABLE, WRITE_SERIALIZABLE, apply
from refdelta.core.commit.budget import Limits
from refdelta.core.log.footprint import Footprint

TABLES = list(product(LEVELS, LAYOUTS))

# What is measured for one of these tests is there for the others.
pytestmark = pytest.mark.xdist_group("precision")

UDM = ("UPDATE", "DELETE", "MERGE")


@cache
def measured(level, layout):
    return measure(tables.engine(level, layout))


@pytest.mark.tier("nightly")
@pytest.mark.sample(test=2)
@pytest.mark.parametrize(("level", "layout"), TABLES, ids=str)
def test_no_cell_is_below_plain_checking_of_files(level, layout):
    below = {pair: str(cell) for pair, cell in measured(level, layout).items() if cell.engine < cell.plain}
    assert not below
    assert whole(measured(level, layout)).engine > whole(measured(level, layout)).plain


@pytest.mark.tier("test")
@pytest.mark.sample(test=1)
@pytest.mark.parametrize(("level", "layout"), TABLES, ids=str)
def test_no_cell_is_below_delta_spark(level, layout):
    below = {pair: str(cell) for pair, cell in measured(level, layout).items() if cell.engine < cell.spark}
    assert not below
    assert whole(measured(level, layout)).engine > whole(measured(level, layout)).spark


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("level", LEVELS)
def test_no_cell_is_lower_by_rows_than_by_files(level):
    for files, rows in SECTIONS:
        if rows is not None:
            by_files, by_rows = measured(level, files), measured(level, rows)
            assert not {pair for pair in by_rows if by_rows[pair].engine < by_files[pair].engine}
            assert whole(by_rows).engine > whole(by_files).engine


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("level", LEVELS)
def test_no_cell_is_lower_where_rows_are_tracked(level):
    """Ids of rows take nothing away, and whoever changes rows goes after ZORDER."""
    tracked, usual = measured(level, TRACKED), measured(level, ROWS)
    assert not {pair for pair in usual if tracked[pair].engine < usual[pair].engine}
    behind = [("OPTIMIZE ZORDER", kind) for kind in UDM]
    assert all(tracked[pair].engine == tracked[pair].judge > usual[pair].engine for pair in behind)


@pytest.mark.tier("nightly")
@pytest.mark.spark
def test_delta_spark_does_what_is_written_down(spark, fresh_path):
    """A few of the histories once more; all of them are `make search NAME=precision-spark`."""
    asked = dict.fromkeys((level, layout.table) for level, layout in TABLES)
    every = [(table, pair) for table in asked for pair in delta_spark.histories(tables.engine(*table))]
    some = every[::221]
    assert {table for table, _ in some} == asked.keys()
    said = delta_spark.answers(spark, fresh_path, [pair for _, pair in some])
    assert said == [delta_spark.recorded(*table)[pair.names] for table, pair in some]


# --- what the documentation promises ------------------------------------------------------------------------------


def never(level, layout):
    """The pairs of kinds that must not conflict, as the two matrices say."""
    kinds = {case.kind for case in ALL} - {"SET PROPERTIES"}
    # REORG finds nothing to do where there are no deletion vectors.
    optimize = ["OPTIMIZE", "REORG PURGE"] if layout.vectors else ["OPTIMIZE"]
    kinds -= {"REORG PURGE"} - {*optimize}
    # A blind append reads nothing that another could have changed.
    yield from ((kind, "INSERT") for kind in kinds)
    yield from (("INSERT", kind) for kind in (*optimize, "OPTIMIZE ZORDER"))
    if level == WRITE_SERIALIZABLE:
        yield from (("INSERT", kind) for kind in kinds)
    # Not of the documentation: who only reads can follow rows, whether or not they can be hidden.
    yield from product(optimize, ["INSERT SELECT"])
    if layout.vectors:
        yield from product(UDM, optimize)
        yield from product(optimize, UDM)
        yield from product(optimize, optimize)


@pytest.mark.tier("nightly")
@pytest.mark.sample(test=1)
@pytest.mark.parametrize(("level", "layout"), TABLES, ids=str)
def test_what_the_documentation_says_never_conflicts(level, layout):
    table = measured(level, layout)
    # Of two appends by one application one is skipped.
    allowed = {("INSERT", "INSERT"): 1}
    cells = {pair: table[pair] for pair in never(level, layout)}
    assert not {pair: cell for pair, cell in cells.items() if cell.engine < cell.all - allowed.get(pair, 0)}


@pytest.mark.tier("test")
@pytest.mark.sample(test=2)
@pytest.mark.parametrize("layout", [ROWS, PARTITIONED_ROWS], ids=str)
@pytest.mark.parametrize("level", LEVELS)
def test_no_budget_applies_to_what_never_conflicts(level, layout):
    table = Core(level, layout, Limits(budget=RowBudget(size=0, attempts=0, seconds=0)))
    cells, refused = set(never(level, layout)), Counter()
    for first, second, winner, staged in pairs(table, ALL):
        if isinstance(table.commit(winner, staged), Refusal):
            refused[first.kind, second.kind] += 1
    assert {pair for pair in refused if pair in cells} == {("INSERT", "INSERT")}
    # Elsewhere it does: nobody looks at rows.
    usual = measured(level, layout)
    assert sum(refused.values()) > sum(cell.all - cell.engine for cell in usual.values())


@pytest.mark.tier("test")
@pytest.mark.sample(test=2)
@pytest.mark.parametrize("layout", [ROWS, PARTITIONED_ROWS], ids=str)
@pytest.mark.parametrize("level", LEVELS)
def test_changes_conflict_only_where_both_modify_the_same_row(level, layout):
    """A row that one of them modified is one that the other modified, or would have modified had it run afterwards. A
    MERGE that leaves a row alone has read it all the same.
    """
    engine = tables.engine(level, layout)
    changes = [case for case in ALL if case.kind in UDM]
    for first, second, winner, staged in pairs(engine, changes):
        if isinstance(engine.commit(winner, staged), Refusal):
            one, two = first.statement("1", START), second.statement("2", START)
            same = one.removed & (two.removed | second.statement.found(START))
            would = second.statement("2", apply(START, one)) != two or first.statement("1", apply(START, two)) != one
            assert same or would, (first.name, second.name)


@pytest.mark.tier("test")
def test_a_file_with_a_larger_vector_is_no_new_data(monkeypatch):
    """Who looks for a row of one file is not disturbed by those who delete rows of another one."""

    def accepted(table):
        return sum(not isinstance(table.commit(winner, staged), Refusal) for *_, winner, staged in pairs(table, MORE))

    usual = accepted(tables.core(SERIALIZABLE, FILES))
    monkeypatch.setattr(Footprint, "only_hides", lambda *_: False)
    assert accepted(Core(SERIALIZABLE, FILES)) < usual


@pytest.mark.tier("nightly")
def test_the_levels_differ_where_they_should():
    for layout in LAYOUTS:
        strict, weak = measured(SERIALIZABLE, layout), measured(WRITE_SERIALIZABLE, layout)
        assert all(weak[pair].engine >= strict[pair].engine for pair in strict)
        assert weak["INSERT", "DELETE"].engine > strict["INSERT", "DELETE"].engine


@pytest.mark.tier("nightly")
@pytest.mark.sample(test=4)
@pytest.mark.parametrize(("level", "layout"), TABLES, ids=str)
def test_a_group_fails_none_that_could_commit_alone(level, layout):
    """Every version with members is held to the rows of its members one after the other (:meth:`Core.together`)."""
    found = in_groups(Core(level, layout))
    assert not {pair: one for pair, one in found.items() if one.worse}
    shared = {pair for pair, one in found.items() if one.shared}
    assert {("INSERT", "INSERT"), ("INSERT", "INSERT SELECT")} <= shared
    # Readers of a version with both would pass over the appends. (A MERGE may insert only.)
    assert not {*product(("INSERT", "INSERT SELECT"), ("DELETE", "UPDATE"))} & shared
    alone = {"SET PROPERTIES", "OPTIMIZE", "OPTIMIZE ZORDER", "REORG PURGE", "RESTORE"}
    assert not {pair for pair in shared if alone & {*pair}}


@pytest.mark.tier("nightly")
def test_the_notes_are_those_of_this_engine():
    assert NOTES.read_text() == report(), "run make precision"
