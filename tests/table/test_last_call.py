"""A function that keeps its last result gives each value its own."""

from __future__ import annotations

import pytest

from refdelta.core.log.actions import Protocol
from refdelta.table.features import features_of
from refdelta.table.last_call import LastCall


def test_it_is_called_for_another_object_only_and_keeps_no_error():
    calls = []

    @LastCall
    def size(value: list[int]) -> int:
        """The size."""
        calls.append(value)
        if not value:
            raise ValueError("empty")
        return len(value)

    one, two = [1], [1, 2]
    assert [size(one), size(one), size(two), size(one), size([1])] == [1, 1, 2, 1, 1]
    assert len(calls) == 4
    for _ in range(2):
        with pytest.raises(ValueError, match="empty"):
            size([])
    assert size(one) == 1
    assert (size.__doc__, size.__name__) == ("The size.", "size")


def test_each_protocol_has_its_features():
    old, new = (
        Protocol(min_reader_version=1, min_writer_version=2),
        Protocol(
            min_reader_version=3,
            min_writer_version=7,
            reader_features=["deletionVectors"],
            writer_features=["deletionVectors"],
        ),
    )
    for _ in range(2):
        assert features_of(old) == {"appendOnly", "invariants"}
        assert features_of(new) == {"deletionVectors"}
