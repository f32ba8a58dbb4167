"""The two isolation levels (concurrency.md, "Levels").

Readers see one snapshot at either level. The levels differ in which serial order the transactions that write must be
equivalent to: the log's own, or some order in which a blind append may come after a transaction that did not see it.
"""

from __future__ import annotations

import enum

from refdelta.core.errors import InvalidArgumentError, unknown_name


class IsolationLevel(enum.Enum):
    """A level, by the name that ``delta.isolationLevel`` and ``commitInfo.isolationLevel`` know. The stricter one is
    greater.
    """

    WRITE_SERIALIZABLE = "WriteSerializable"
    SERIALIZABLE = "Serializable"

    @classmethod
    def parse(cls, name: str) -> IsolationLevel:
        """The level of that name, in any case of letters.

        Raises:
            InvalidArgumentError: no level has that name. ``SnapshotIsolation`` is none that a table or a caller may
            ask for.
        """
        for level in cls:
            if level.value.lower() == name.lower():
                return level
        raise InvalidArgumentError(unknown_name("isolation level", name, [level.value for level in cls]))

    def at_least(self, other: IsolationLevel) -> bool:
        """Whether this level promises all that the other does."""
        return self is IsolationLevel.SERIALIZABLE or other is IsolationLevel.WRITE_SERIALIZABLE


DEFAULT = IsolationLevel.WRITE_SERIALIZABLE
"""Where the table says nothing."""


def level_of(table: str | None, requested: str | None = None) -> IsolationLevel:
    """The level of one transaction: the table's, or a stricter one where the caller asks for it.

    Args:
        table: the value of ``delta.isolationLevel``, or None where the table has none.
        requested: what the caller asks for, or None.

    Raises:
        InvalidArgumentError: a name that is no level, or a level weaker than the table's.
    """
    floor = DEFAULT if table is None else IsolationLevel.parse(table)
    if requested is None:
        return floor
    level = IsolationLevel.parse(requested)
    if not level.at_least(floor):
        raise InvalidArgumentError(f"isolation level {level.value} is weaker than the table's, {floor.value}")
    return level
