"""Rows picked from batches: the same whichever way is taken for how many there are."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refdelta.engine.arrays import filter_rows, take_rows
from refdelta.engine.reader import rows_only

ROWS = 20


def batch_of(columns):
    every = {
        "i": pa.array([None if i % 5 == 0 else i for i in range(ROWS)], pa.int64()),
        "s": pa.array([f"text {i}" for i in range(ROWS)]),
        "l": pa.array([[i] * (i % 3) for i in range(ROWS)]),
        "r": pa.array([None if i % 4 == 0 else {"x": i} for i in range(ROWS)]),
    }
    return pa.record_batch({name: every[name] for name in columns}) if columns else rows_only(ROWS)


@pytest.mark.parametrize("columns", [["i", "s", "l", "r"], []])
@given(few=st.sets(st.integers(0, ROWS - 1), max_size=ROWS), invert=st.booleans(), unknown=st.sets(st.integers(0, 19)))
@settings(max_examples=40, deadline=None)
def test_rows_of_a_batch(columns, few, invert, unknown):
    batch = batch_of(columns)
    kept = [i for i in range(ROWS) if (i in few) != invert]
    mask = pa.array([None if i in unknown else i in kept for i in range(ROWS)], pa.bool_())
    for found, wanted in (
        (take_rows(batch, pa.array(kept, pa.uint64())), kept),
        (filter_rows(batch, mask), [i for i in kept if i not in unknown]),
    ):
        found.validate(full=True)
        assert found.num_rows == len(wanted)
        assert found.schema == batch.schema
        assert found.to_pylist() == [batch.slice(i, 1).to_pylist()[0] for i in wanted]
