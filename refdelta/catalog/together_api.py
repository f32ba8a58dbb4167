"""The requests for several tables at one moment of ``refdelta serve``, as values.

They are beside Unity Catalog's Delta API, which has none: version 1.0 of it (``api/delta.yaml`` of Unity Catalog) knows
one table a request, and so does the client of Unity Catalog in delta-spark. The forms are those of
:mod:`refdelta.catalog.delta_api`: names with hyphens, unknown fields are ignored, errors have its JSON form.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from refdelta.catalog.delta_api import ApiCommit, Int64, Wire

MOST_PARTS = 1000
"""The most tables of one transaction."""

VERSIONS = "/refdelta/v1/versions"
"""The path of ``GET``, with the latest version of each table at one moment: :class:`Versions`."""

RATIFICATIONS = "/refdelta/v1/ratifications"
"""The path of ``POST``, which ratifies versions of several tables at one moment: :class:`Ratification`."""


class TableVersion(Wire, frozen=True):
    """A table and its latest version.

    Attributes:
        name: its name, with three parts.
        table_id: its id.
        location: its folder.
        managed: whether the catalog ratifies its commits.
        commits: where they are before they are published; ``inline`` ones cannot be read through the server.
        latest: the latest version; 0 for tables that are not managed.
    """

    name: str
    table_id: str
    location: str
    managed: bool
    commits: Literal["staged", "inline"] = "staged"
    latest: Int64 = 0


class Versions(Wire, frozen=True):
    """The reply of ``GET``."""

    tables: list[TableVersion]


class RatifiedPart(Wire, frozen=True):
    """One table of a transaction.

    Attributes:
        table_id: its id, by which it is known also when it was renamed meanwhile.
        before: the version that has to be its latest one.
        commit: the staged commit of the next version; None if its version only has to stay.
        creates: the name that the table gets, if it is a staging table whose version 0 is at its location; None for a
            table that is there.
    """

    table_id: str
    before: Int64
    commit: ApiCommit | None = None
    creates: str | None = None


class Ratification(Wire, frozen=True):
    """The request of ``POST``. One that arrives twice is carried out once: staged files have names of their own."""

    parts: Annotated[list[RatifiedPart], msgspec.Meta(min_length=1, max_length=MOST_PARTS)]


class PartOutcome(Wire, frozen=True):
    """The outcome of a part.

    Attributes:
        outcome: ``committed``; ``exists`` if the table has a later version than the one before; ``untried`` if it has
            not, and another part has. All parts are committed, or none is.
        commits: with ``exists``, the ratified commits after the version before that the catalog holds.
    """

    outcome: Literal["committed", "exists", "untried"]
    commits: list[ApiCommit] = msgspec.field(default_factory=list)


class RatificationReply(Wire, frozen=True):
    """The reply of ``POST``: an outcome a part, in their order."""

    parts: list[PartOutcome]
