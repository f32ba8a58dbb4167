"""One table of each kind, for all that asks the same of it: what two of them share is run once."""

from __future__ import annotations

from functools import cache

from model.core import Core
from model.engine import Engine
from model.layouts import Layout


@cache
def engine(level: str, layout: Layout) -> Engine:
    return Engine(level, layout)


@cache
def core(level: str, layout: Layout) -> Core:
    return Core(level, layout)
