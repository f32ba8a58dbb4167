"""Transactions over several tables: the parts of which their programs are made."""

from __future__ import annotations

from model.cases import (
    COPY_0_1,
    DELETE_0,
    DELETE_K2,
    INSERT_0,
    MERGE,
    OVERWRITE,
    PAINT_1_0,
    Case,
    values_of,
)
from model.operations import Where, colour, everything, show
from model.several import Program


def _look(name: str, sql: str, where: Where) -> Case:
    def call(txn):
        return values_of(txn.read(predicate=sql or None))

    return Case(name, "INSERT SELECT", show(where), call, sql, {})


LOOK_0 = _look("look a=0", "a = 0", colour(0))
LOOK = _look("look", "", everything)

SINGLE = [
    *(Program({0: case}) for case in (INSERT_0, DELETE_0, PAINT_1_0, COPY_0_1)),
    *(Program({1: case}) for case in (INSERT_0, DELETE_0)),
]
"""Over one table, as other writers make them."""

DOUBLE = [
    Program({0: LOOK_0, 1: INSERT_0}),
    Program({1: LOOK_0, 0: INSERT_0}),
    Program({0: LOOK_0, 1: DELETE_0}),
    Program({0: DELETE_0, 1: INSERT_0}),
    Program({0: PAINT_1_0, 1: COPY_0_1}),
    Program({0: INSERT_0, 1: INSERT_0}),
    Program({0: LOOK, 1: LOOK}),
]
"""Over two tables."""

CASES = (INSERT_0, DELETE_0, DELETE_K2, PAINT_1_0, COPY_0_1, MERGE, OVERWRITE, LOOK_0, LOOK)


def random_program(draw, tables: int) -> Program:
    """A program over one to all of the tables."""
    from hypothesis import strategies as st

    chosen = draw(st.lists(st.integers(0, tables - 1), min_size=1, max_size=tables, unique=True))
    alone = [case for case in CASES if case not in (LOOK_0, LOOK)]
    return Program({table: draw(st.sampled_from(CASES if len(chosen) > 1 else alone)) for table in chosen})
