"""The endpoint that storage options name, and the same options by way of a proxy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from refdelta.errors import InvalidArgumentError
from refdelta.proxy.messages import Message
from refdelta_storage.protocols import PROTOCOLS

_ADDRESS = re.compile(r"https?://[^/;,\"'\\\s]+", re.IGNORECASE)
_SCHEMES = ("s3", "abfs", "gs")
_HOW = "such as s3://bucket/scratch with the storage option endpoint_url=http://127.0.0.1:9000"


@dataclass(frozen=True)
class Endpoint:
    """The :class:`refdelta.proxy.Origin` that storage options name.

    Attributes:
        scheme: ``s3``, ``abfs`` or ``gs``.
        url: its address, such as ``http://127.0.0.1:9000``.
        options: the storage options.

    Example:
        >>> from refdelta.proxy.endpoint import Endpoint
        >>> store = Endpoint.of("s3://tables/t", {"key": "me", "endpoint_url": "http://127.0.0.1:9000"})
        >>> store.address, store.through("http://127.0.0.1:5000")
        (('127.0.0.1', 9000), {'key': 'me', 'endpoint_url': 'http://127.0.0.1:5000'})
    """

    scheme: str
    url: str
    options: Mapping[str, Any]

    @classmethod
    def of(cls, uri: str, options: Mapping[str, Any] | None, what: str = "a proxy") -> Endpoint:
        """The endpoint of a place in a store.

        The address is found in whichever option has it: an endpoint, a connection string of Azure, or the JSON of a
        service account of Google's, by the names of any library.

        Args:
            uri: the place.
            options: the storage options.
            what: what needs it, for the messages of errors.

        Raises:
            InvalidArgumentError: the place is in no such store, no option has an address, or one has HTTPS.
        """
        scheme = uri.partition("://")[0].lower() if "://" in uri else ""
        known = PROTOCOLS.get(scheme)
        if known is None or known.name not in _SCHEMES:
            raise InvalidArgumentError(f"{what} needs a store with an endpoint, {_HOW}; {uri!r} has none")
        # A proxy between the client and the store is no endpoint of the store.
        values = [value for name, value in (options or {}).items() if "proxy" not in name.lower()]
        found = dict.fromkeys(address for value in values for address in _addresses(value))
        plain = [address for address in found if address.lower().startswith("http://")]
        if len(plain) > 1:
            raise InvalidArgumentError(f"{what} needs one endpoint; the storage options have {' and '.join(plain)}")
        if not plain:
            why = f"{next(iter(found))} is not plain HTTP" if found else "the storage options have none"
            raise InvalidArgumentError(f"{what} needs a store with an endpoint of plain HTTP, {_HOW}; {why}")
        endpoint = cls(known.name, plain[0], options or {})
        try:
            host, _ = endpoint.address
        except ValueError:
            host = ""
        if not host:
            raise InvalidArgumentError(f"{what} needs an endpoint with a host and a port, not {plain[0]!r}")
        return endpoint

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port."""
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or 80

    def through(self, url: str) -> dict[str, Any]:
        """The storage options with another address.

        Args:
            url: the other address, such as that of a proxy.
        """
        return {name: _replaced(value, self.url, url) for name, value in self.options.items()}

    def understood(self, request: Message) -> Message:
        """See :meth:`Origin.understood`: clients speak its language."""
        return request

    def answered(self, reply: Message) -> Message:
        """See :meth:`Origin.answered`."""
        return reply


def _addresses(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from _ADDRESS.findall(value)
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _addresses(part)


def _replaced(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        return _ADDRESS.sub(lambda found: new if found[0] == old else found[0], value)
    if isinstance(value, Mapping):
        return {name: _replaced(part, old, new) for name, part in value.items()}
    return value
