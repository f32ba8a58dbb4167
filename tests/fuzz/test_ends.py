"""A short run of :mod:`fuzz.ends`: integers at the ends of 31, 32, 53 and 63 bits, and each rule left out."""

from __future__ import annotations

from unittest import mock

import pyarrow.compute as pc
import pytest

from fuzz import ends
from refdelta import DeltaTable
from refdelta.core.commit import body
from refdelta.core.log import assigned
from refdelta.engine.log import state
from refdelta.errors import InvalidLogError
from tiers import budget

EVERY = max(1, len(ends.cases()) // budget(120))
"""Of so many cases one is tried."""


@pytest.mark.tier("nightly")
def test_no_integer_has_another_end_than_an_answer_or_an_error_of_ours():
    assert list(ends.search(EVERY, 7)) == []


@pytest.mark.tier("test")
@pytest.mark.parametrize("case", [case for case in ends.cases() if case.place.startswith("name: ")], ids=str)
@pytest.mark.sample(check=2, test=2)
def test_versions_at_the_end(case):
    assert list(ends.judged(case)) == []


def faults(place, number):
    (case,) = [case for case in ends.cases() if case.place == place and case.number == number]
    return {fault for _, fault in ends.judged(case)}


MARK = "rich: json domainMetadata.configuration.rowIdHighWaterMark"
VECTOR = "rich: json add.deletionVector.cardinality"


def _any(number, *_):
    return number


@pytest.mark.tier("test")
@pytest.mark.parametrize(
    ("module", "place"), [(assigned, MARK), (body, "name: with_commit")], ids=["row ids", "versions"]
)
def test_a_number_after_the_last_one_is_acknowledged_without_the_rule(module, place):
    assert faults(place, assigned.LAST) == set()
    with mock.patch.object(module, "assigned", _any):
        assert any("acknowledged" in fault for fault in faults(place, assigned.LAST))


@pytest.mark.parametrize("number", [-1, 2**31, 2**63 - 1, -(2**63)])
def test_no_count_is_negative(number):
    (case,) = [case for case in ends.cases() if case.place == VECTOR and case.number == number]
    ends.place(case.objects(number))
    with pytest.raises(InvalidLogError, match=rf"hides {number} rows, but the file has \d"):
        DeltaTable(ends.URI).count()


def test_a_column_after_the_last_id_is_refused():
    where, last = "rich: json metaData.configuration.delta.columnMapping.maxColumnId", assigned.LAST_COLUMN_ID
    (case,) = [case for case in ends.cases() if case.place == where and case.number == last]
    ends.place(case.objects(last))
    with pytest.raises(InvalidLogError, match=f"no column id left: the last one is {last}"):
        ends.WRITES["add column"](DeltaTable(ends.URI))
    assert DeltaTable(ends.URI).version() == 3


def test_a_sum_that_64_bits_do_not_hold_is_exact():
    import pyarrow as pa

    from refdelta.arrow.arrays import exact_sum

    sizes = pa.chunked_array([pa.array([2**63 - 1, None]), pa.array([2**63 - 1])])
    assert pc.sum(sizes).as_py() == -2
    assert exact_sum(sizes) == 2**64 - 2
    assert exact_sum(pa.array([-(2**63), -1], pa.int64())) == -(2**63) - 1
    assert exact_sum(pa.array([], pa.int64())) == 0
    _, sums = state._by_size(sizes)
    assert sum(sums) == 2**64 - 2
