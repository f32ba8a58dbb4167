"""Processes that transfer money at once, beside others that rearrange files, restore versions and remove files: the
rules of :mod:`concurrency.bank` hold in every version.
"""

from __future__ import annotations

import functools

import pytest

from concurrency.bank import FIRST_BALANCE, change, clean_up, create, follow, keep_in_shape, race, watch
from refdelta import DeltaTable, verify
from tiers import budget

PROCESSES = 3


@pytest.mark.tier("nightly")
@pytest.mark.sample(test=1)
@pytest.mark.parametrize("level", ["WriteSerializable", "Serializable"])
def test_no_money_is_made_or_lost(tmp_path, level):
    uri, transactions = str(tmp_path / "t"), budget(40, fewest=10)
    create(uri, level)
    work = [functools.partial(change, transactions, seed) for seed in range(1, PROCESSES + 1)]
    meanwhile = [functools.partial(keep_in_shape, 0), functools.partial(clean_up, 0), watch]
    *done, kept, removed, watched, replay = race(uri, work, meanwhile, functools.partial(follow, level))

    # Each version did what its transaction was to do, and no other version changed rows.
    promised = [item for effects, _ in done for item in effects.items()]
    assert len(promised) == PROCESSES * transactions
    assert set(replay.effects.pop(1).values()) == {FIRST_BALANCE}
    assert replay.effects == dict(promised)
    # And all of it did happen.
    assert sum(replay.operations.values()) == DeltaTable(uri).version() + 1
    assert {"UPDATE", "MERGE", "WRITE", "OPTIMIZE"} <= replay.operations.keys()
    assert kept["checkpoint"]
    assert "vacuum" in removed
    assert watched
    assert verify(uri, sample=None).sound
