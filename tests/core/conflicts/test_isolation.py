from __future__ import annotations

import pytest

from refdelta.core.conflicts.isolation import IsolationLevel, level_of
from refdelta.errors import InvalidArgumentError

WEAK, STRICT = IsolationLevel.WRITE_SERIALIZABLE, IsolationLevel.SERIALIZABLE


@pytest.mark.parametrize(
    ("table", "requested", "level"),
    [
        (None, None, WEAK),
        ("Serializable", None, STRICT),
        ("writeserializable", None, WEAK),
        (None, "Serializable", STRICT),
        (None, "WriteSerializable", WEAK),
        ("Serializable", "Serializable", STRICT),
        ("WriteSerializable", "serializable", STRICT),
    ],
)
def test_the_level_of_a_transaction(table, requested, level):
    assert level_of(table, requested) is level


def test_a_weaker_level_than_the_tables_is_refused():
    with pytest.raises(InvalidArgumentError, match="WriteSerializable is weaker than the table's, Serializable"):
        level_of("Serializable", "WriteSerializable")


@pytest.mark.parametrize("name", ["SnapshotIsolation", "", "strict"])
def test_another_name_is_refused(name):
    with pytest.raises(InvalidArgumentError, match="does not exist; isolation levels: WriteSerializable, Serializable"):
        level_of(name)
    with pytest.raises(InvalidArgumentError, match="isolation levels: WriteSerializable, Serializable"):
        level_of(None, name)
