"""A proxy that counts what this process sends behind its commits, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from refdelta.transaction import background
from servers.proxy import Proxy

if TYPE_CHECKING:
    from collections import Counter


class Counting(Proxy):
    """Waits for what is under way before it counts, and before it forgets."""

    @property
    def counts(self) -> Counter[str]:
        background.settle()
        return super().counts

    def reset(self) -> None:
        background.settle()
        super().reset()
