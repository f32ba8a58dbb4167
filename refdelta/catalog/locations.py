"""The locations at which a client opens tables: those below the prefixes that it was given.

A location is a claim of the catalog. Tables are read and written with the permissions of the client, so a row of a
database, or an answer of a server, must not choose a folder that the client was not meant for.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from refdelta.errors import InvalidArgumentError
from refdelta_storage.errors import redact

if TYPE_CHECKING:
    from collections.abc import Iterable

_LONGEST = 4096
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://(.*)", re.DOTALL)
_FILE = re.compile(r"(?i)file:(?://(?:localhost(?=/))?)?(/.*)", re.DOTALL)
_SAME = {"s3a": "s3"}
_UP = {".", ".."}


class Locations:
    """The prefixes below which a client opens tables.

    Args:
        prefixes: paths or URIs: ``/srv/tables``, ``s3://bucket/tables``. One without a path stands for all of its
            scheme: ``memory://``.

    Raises:
        InvalidArgumentError: a prefix is no path and no URI.
    """

    def __init__(self, prefixes: Iterable[str | os.PathLike[str]] = ()) -> None:
        self.given: list[str] = []
        self._prefixes: set[tuple[str, str]] = set()
        for prefix in [prefixes] if isinstance(prefixes, (str, os.PathLike)) else prefixes:
            self.add(prefix)

    def add(self, prefix: str | os.PathLike[str]) -> None:
        """Add a prefix: a location that the user of this client has named."""
        if not isinstance(prefix, (str, os.PathLike)):
            raise InvalidArgumentError(f"locations are paths or URIs, not {prefix!r}")
        text = os.fspath(prefix)
        place = place_of(text)
        if place is None:
            raise InvalidArgumentError(
                f"not a location: {redact(text[:200])!r}: it is a path or a URI, without control characters, and a URI "
                "without '..', '?' and '#'"
            )
        if place not in self._prefixes:
            self._prefixes.add(place)
            self.given.append(text)

    def cover(self, location: str) -> bool:
        """Whether a location is one of the prefixes, or below one."""
        place = place_of(location)
        if place is None:
            return False
        scheme, path = place
        segments = path.split("/")
        above = ("/".join(segments[:count]) for count in range(len(segments) + 1))
        return any((scheme, one) in self._prefixes for one in above)


def is_location(location: str) -> bool:
    """Whether this may be a location: at most 4,096 characters that can be printed."""
    return 0 < len(location) <= _LONGEST and location.isprintable()


def place_of(location: str) -> tuple[str, str] | None:
    """The scheme and the path of a location, by which two spellings of one folder are the same; None if it has
    characters or segments by which stores and their services could understand different places.

    Paths of this machine are resolved, with their symbolic links: the result is the folder that the system opens.
    """
    if not is_location(location):
        return None
    if (found := _FILE.fullmatch(location)) is not None:
        return _local(unquote(found.group(1), errors="surrogateescape"))
    if (found := _URI.fullmatch(location)) is None:
        return _local(os.path.expanduser(location))  # noqa: PTH111 - a path stays as it was written
    scheme = found.group(1).lower()
    rest = found.group(2).rstrip("/")
    segments = rest.split("/")
    if scheme == "file" or any(unquote(one) in _UP for one in segments) or "" in segments[1:]:
        return None
    if set("?#\\").intersection(rest):
        return None
    return _SAME.get(scheme, scheme), rest


def uri_of(location: str) -> str:
    """The URI of a location, as its store names it, without opening the store."""
    return location.rstrip("/") if "://" in location else Path(location).expanduser().absolute().as_uri()


def _local(path: str) -> tuple[str, str] | None:
    if "\0" in path or (":" in path and path.partition(":")[0].isalnum() and "/" not in path.partition(":")[0]):
        return None  # it may be a URI with fewer slashes
    return "file", os.path.realpath(path).rstrip("/")


def refused(name: str, location: str, catalog: str, locations: Locations) -> InvalidArgumentError:
    """The error for a location that is not below a prefix."""
    shown = redact(location[:200])
    known = ", ".join(redact(one) for one in locations.given[:5]) or "none"
    return InvalidArgumentError(
        f"{catalog} has {name} at {shown!r}, which is not below a location that this client was given ({known}). If "
        f"the table belongs there, pass locations=[{shown!r}] or a folder above it to the catalog; on the command line "
        "--locations, on Spark the option locations"
    )
