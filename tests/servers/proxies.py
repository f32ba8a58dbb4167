"""Proxies before the servers of the tests: with places for tables, and one that counts background work, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from refdelta.proxy import Proxy
from refdelta.transaction import background
from servers.running import Place, Server

if TYPE_CHECKING:
    from collections import Counter


class ServerProxy(Proxy):
    """Knows the places of its server."""

    server: Server

    def place(self, name: str = "t") -> Place:
        """A fresh place for a table, by way of this proxy."""
        return self.server.place(name, endpoint=self.endpoint)

    def through(self, place: Place) -> Place:
        """A place of the server, by way of this proxy."""
        return Place(place.uri, self.server.options(self.endpoint))


class CountingProxy(ServerProxy):
    """Waits for what is under way before it counts, and before it forgets."""

    @property
    def counts(self) -> Counter[str]:
        background.settle()
        return super().counts

    def reset(self) -> None:
        background.settle()
        super().reset()
