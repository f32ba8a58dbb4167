"""What share of the histories that the judge accepts the engine accepts."""

from __future__ import annotations

from functools import cache

import pytest

from model import delta_spark
from model.cases import ALL
from model.engine import Engine
from model.judge import LEVELS, SERIALIZABLE, WRITE_SERIALIZABLE
from model.precision import NOTES, measure, report, whole

TABLES = [(level, partitioned) for level in LEVELS for partitioned in (False, True)]


@cache
def engine(level, partitioned):
    return Engine(level, partitioned=partitioned)


@cache
def measured(level, partitioned):
    return measure(engine(level, partitioned))


@pytest.mark.parametrize(("level", "partitioned"), TABLES)
def test_no_cell_is_below_plain_checking_of_files(level, partitioned):
    below = {pair: str(cell) for pair, cell in measured(level, partitioned).items() if cell.engine < cell.plain}
    assert not below
    assert whole(measured(level, partitioned)).engine > whole(measured(level, partitioned)).plain


@pytest.mark.parametrize(("level", "partitioned"), TABLES)
def test_no_cell_is_below_delta_spark(level, partitioned):
    below = {pair: str(cell) for pair, cell in measured(level, partitioned).items() if cell.engine < cell.spark}
    assert not below
    assert whole(measured(level, partitioned)).engine > whole(measured(level, partitioned)).spark


@pytest.mark.spark
def test_delta_spark_does_what_is_written_down(spark, fresh_path):
    """A few of the histories once more; all of them are `make precision-spark`."""
    every = [(engine(*table).title, pair) for table in TABLES for pair in delta_spark.histories(engine(*table))]
    some = every[::71]
    assert len({title for title, _ in some}) == len(TABLES)
    said = delta_spark.answers(spark, fresh_path, [pair for _, pair in some])
    assert said == [delta_spark.recorded(title)[pair.names] for title, pair in some]


@pytest.mark.parametrize(("level", "partitioned"), TABLES)
def test_what_the_documentation_says_never_conflicts(level, partitioned):
    table, kinds = measured(level, partitioned), {case.kind for case in ALL}
    never = {("INSERT", "compaction"), ("compaction", "INSERT"), ("INSERT", "INSERT")}
    if level == WRITE_SERIALIZABLE:
        never |= {("INSERT", kind) for kind in kinds - {"SET PROPERTIES"}}
    # A blind append reads nothing that another could have changed.
    never |= {(kind, "INSERT") for kind in kinds - {"SET PROPERTIES"}}
    for pair in never:
        assert table[pair].engine == table[pair].judge > 0, pair


def test_the_levels_differ_where_they_should():
    for partitioned in (False, True):
        strict, weak = measured(SERIALIZABLE, partitioned), measured(WRITE_SERIALIZABLE, partitioned)
        assert all(weak[pair].engine >= strict[pair].engine for pair in strict)
        assert weak["INSERT", "DELETE"].engine > strict["INSERT", "DELETE"].engine


def test_the_notes_are_those_of_this_engine():
    assert NOTES.read_text() == report(), "run make precision"
