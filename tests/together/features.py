"""Which features meet in a program: chosen by its seed, so that of any six programs in a row each pair has one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

VERBS: Final[dict[str, tuple[str, ...]]] = {
    # What the table has.
    "mapping": ("rename", "columns"),
    "vectors": ("delete",),
    "widening": ("widen",),
    "tracking": ("update",),
    "partitions": (),
    "clustering": ("optimize",),
    "feed": ("update",),
    "constraints": ("constrain", "violate"),
    "generated": ("update", "violate"),
    "defaults": ("insert",),
    "identity": ("insert",),
    "stamps": (),
    "v2": ("checkpoint",),
    # What is done with it.
    "compacted logs": ("compact_log",),
    "optimize": ("optimize",),
    "merge": ("merge",),
    "replace": ("replace",),
    "restore": ("restore",),
    "transactions": ("transactions", "more transactions"),
    "drop": ("drop",),
}
"""Each feature, and the verbs that a program with it has in any case."""

ALWAYS: Final = ("insert", "update", "delete")

APART: Final = (("partitions", "clustering"), ("identity", "transactions"))
"""Pairs that do not meet: a table has one layout, and with identity columns it admits no concurrent transactions."""

SEEDS: Final = range(9, 15)
"""Programs that have all other pairs."""


def chosen(seed: int) -> frozenset[str]:
    """The features of a program: all but a third of them, so that any two meet in one of three programs in a row, but
    where one has given way to a third that it does not go with.
    """
    turn, left_out = divmod(seed, 3)
    dice = random.Random(turn)
    names = sorted(VERBS)
    dice.shuffle(names)
    features = {name for place, name in enumerate(names) if place % 3 != left_out}
    for pair in APART:
        if features.issuperset(pair):
            features.remove(pair[dice.randrange(2)])
    return frozenset(features)


def verbs(features: frozenset[str], dice: random.Random, more: int) -> Sequence[str]:
    """The verbs of a program in their order: those that its features have in any case, and some more of them."""
    wanted = [*ALWAYS, *sorted({verb for feature in features for verb in VERBS[feature]} - {*ALWAYS, "drop"})]
    wanted += dice.choices(wanted, k=more)
    dice.shuffle(wanted)
    late = ["drop", *dice.choices(["insert", "update", "delete"], k=2)] if "drop" in features else []
    return ["insert", *wanted, *late]
