"""One table of each kind, for all that asks the same of it: what two of them share is run once."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from model.core import Core
from model.engine import Engine
from model.exhaustive import Tally, explore
from model.layouts import Layout

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from model.branches import Branches
    from model.cases import Case


@cache
def engine(level: str, layout: Layout) -> Engine:
    return Engine(level, layout)


@cache
def core(level: str, layout: Layout) -> Core:
    return Core(level, layout)


def explored(table: Branches, cases: Sequence[Case], count: int, among: Collection[Case] = ()) -> Tally:
    """Explore a table of this module (:mod:`model.exhaustive`). It then forgets most of it, as it stays until the
    process ends.
    """
    tally = explore(table, cases, count, among)
    table.forget()
    return tally
