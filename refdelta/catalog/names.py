"""Names of the tables of a catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

from refdelta.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable


def spelled_name(name: str, known: Iterable[str]) -> str:
    """A name as the catalog spells it: case does not matter, as in Spark and Unity Catalog, unless several tables
    differ in it alone, which older versions permitted.

    Args:
        name: the name, in any case of letters.
        known: the names of the tables.

    Returns:
        The name of the table; ``name`` itself if there is none.

    Raises:
        InvalidArgumentError: several tables have it, and none in this case of letters.
    """
    twins = [other for other in known if other.lower() == name.lower()]
    if name in twins or not twins:
        return name
    if len(twins) > 1:
        raise InvalidArgumentError(f"{name} may be {' or '.join(sorted(twins))}: write the name in its case of letters")
    return twins[0]
