"""The latency of a store far away: milliseconds for each kind of request, and the rate beyond which it refuses them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Final

from refdelta.errors import InvalidArgumentError, unknown_name
from refdelta.proxy.requests import Request

_KIND_OF: Final = {"GET": "get", "HEAD": "get", "LIST": "list", "DELETE": "delete", "DELETE-MANY": "delete"}
_LONGEST = 60_000.0
_FASTEST = 1_000_000.0


@dataclass(frozen=True)
class Latency:
    """The time that requests take longer, and the rate of a prefix.

    Attributes:
        put: milliseconds of a request that writes an object or a part of one.
        get: milliseconds of a request that reads an object, or asks for its size.
        list: milliseconds of a request for a page of a listing.
        delete: milliseconds of a request that deletes objects.
        jitter: the greatest deviation of a time, as a fraction of it, from 0 to 1; each deviation is as likely.
        rate: the number of requests a second to a prefix beyond which they are refused; None for no limit. A prefix is
            a folder: the keys that are equal up to the last slash.

    Example:
        >>> from refdelta.proxy.latency import Latency
        >>> Latency.parse("put=60,get=25,jitter=0.2")
        Latency(put=60.0, get=25.0, list=0.0, delete=0.0, jitter=0.2, rate=None)
    """

    put: float = 0.0
    get: float = 0.0
    list: float = 0.0
    delete: float = 0.0
    jitter: float = 0.0
    rate: float | None = None

    @classmethod
    def parse(cls, text: str) -> Latency:
        """Read a latency from a string.

        Args:
            text: pairs of a name and a number, such as ``put=60,get=25,list=40,jitter=0.2,rate=3500``; what is not said
                takes no time, or has no limit.

        Raises:
            InvalidArgumentError: a name is unknown or occurs twice, or a number is none or out of range.
        """
        names = [one.name for one in fields(cls)]
        found: dict[str, float] = {}
        for part in text.split(","):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if name not in names:
                raise InvalidArgumentError(f"--latency {text}: {unknown_name('part', name, names)}")
            if name in found:
                raise InvalidArgumentError(f"--latency {text}: {name} occurs twice")
            low, high = {"jitter": (0.0, 1.0), "rate": (1.0, _FASTEST)}.get(name, (0.0, _LONGEST))
            try:
                found[name] = float(value)
            except ValueError:
                found[name] = float("nan")
            if not equals or not low <= found[name] <= high:
                unit = {"jitter": "a fraction", "rate": "requests a second"}.get(name, "milliseconds")
                raise InvalidArgumentError(
                    f"--latency {text}: {name} is {value!r}; it is a number from {low:g} to {high:,.0f} ({unit})"
                )
        return cls(**found)

    def delay(self, seed: int) -> Callable[[Request], float]:
        """The seconds that each request takes longer.

        Args:
            seed: of the jitter. The order in which requests come decides which of them has which deviation.
        """
        drawn = random.Random(seed)  # noqa: S311 - no secret

        def seconds(request: Request) -> float:
            milliseconds: float = getattr(self, _KIND_OF.get(request.method, "put"))
            return milliseconds * (1 + self.jitter * drawn.uniform(-1, 1)) / 1_000

        return seconds


class RateLimit:
    """The plan of a store that answers "slow down" beyond a rate: to S3's clients a 503.

    Each prefix has an allowance of one second's requests, which grows again by the rate; a refused request takes none.

    Args:
        rate: the number of requests a second to a prefix, as :attr:`Latency.rate`.
        clock: tells the time in seconds.

    Example:
        >>> from refdelta.proxy import Request
        >>> from refdelta.proxy.latency import RateLimit
        >>> limit = RateLimit(2, clock=lambda: 0.0)
        >>> [limit(Request("GET", "t/x.parquet", "data", "", False, 0)) for _ in range(3)]
        [None, None, 'busy-before']
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = rate, clock
        self._left: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def __call__(self, request: Request) -> str | None:
        """The fault of a request, or None."""
        prefix = request.key.rpartition("/")[0]
        with self._lock:
            now = self._clock()
            left, since = self._left.get(prefix, (self._rate, now))
            left = min(self._rate, left + (now - since) * self._rate)
            taken = left >= 1
            self._left[prefix] = (left - taken, now)
        return None if taken else "busy-before"
