"""The faults of requests on their way, and which requests meet them: by rule, or at random from a seed.

A fault comes before the server has acted, or after it. ``drop``: the connection is closed. ``cut``: half of the body
is passed on, then the connection is closed. ``hang``: there is no answer until the client gives up. ``slow``: the
answer is right, and late. ``late``: the client is dropped, and the server gets the request afterwards. ``twice``: the
server gets it two times, and the client the second answer. All others are answers in place of the server's.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from refdelta.proxy.requests import Request

REPLIES = {
    "s3": {
        "500": (500, "InternalError"),
        "503": (503, "ServiceUnavailable"),
        "busy": (503, "SlowDown"),
        "timeout": (400, "RequestTimeout"),
        "409": (409, "ConditionalRequestConflict"),
    },
    "abfs": {
        "500": (500, "InternalError"),
        "503": (503, "ServiceUnavailable"),
        "busy": (503, "ServerBusy"),
        "timeout": (500, "OperationTimedOut"),
        "409": (409, "ContainerBeingDeleted"),
    },
    "gs": {
        "500": (500, "backendError"),
        "503": (503, "backendError"),
        "busy": (429, "rateLimitExceeded"),
        "timeout": (408, "uploadBrokenConnection"),
        "409": (409, "conflict"),
    },
}
"""The status and the code of each answer that a fault gives, by the scheme of the server."""

KINDS = (
    *("drop-before", "drop-after", "cut-before", "cut-after", "hang-before", "hang-after"),
    *("slow-before", "slow-after", "late", "twice"),
    *(f"{name}-{when}" for name in REPLIES["s3"] for when in ("before", "after")),
)
"""All kinds of faults."""

Plan = Callable[[Request], "str | None"]
"""Says which fault, if any, a request meets."""


def applies(kind: str, request: Request) -> bool:
    """Whether a server or a network would do this to such a request."""
    if kind.startswith("409"):
        return request.method in ("PUT", "FINISH", "DELETE")
    return kind != "cut-before" or request.body > 1


@dataclass
class FaultRule:
    """A fault for the requests that fit.

    Attributes:
        fault: one of :data:`KINDS`.
        method: as :attr:`Request.method`, or ``*``.
        kind: as :attr:`Request.kind`, or ``*``.
        under: the beginning of the key.
        skip: the number of requests that fit and do not meet it, at first.
        times: the number of requests that meet it then.
        met: the number that have met it.

    Example:
        >>> from refdelta.proxy import FaultRule, Request
        >>> rule = FaultRule("500-before", "GET", times=1)
        >>> rule.take(Request("GET", "t/x.parquet", "data", "", False, 0))
        True
    """

    fault: str
    method: str = "*"
    kind: str = "*"
    under: str = ""
    skip: int = 0
    times: int = 1
    met: int = 0
    _fitting: int = field(default=0, repr=False)

    def take(self, request: Request) -> bool:
        """Whether this request meets the fault; it counts."""
        if (
            self.method not in ("*", request.method)
            or self.kind not in ("*", request.kind)
            or not request.key.startswith(self.under)
            or not applies(self.fault, request)
        ):
            return False
        self._fitting += 1
        if not self.skip < self._fitting <= self.skip + self.times:
            return False
        self.met += 1
        return True


class FaultRules:
    """A plan of rules; the first that fits decides. Rules may be added while it is in use.

    Args:
        rules: the first rules.

    Example:
        >>> from refdelta.proxy import FaultRule, FaultRules, Request
        >>> plan = FaultRules([FaultRule("drop-after", "PUT", "commit")])
        >>> commit = Request("PUT", "t/_delta_log/00000000000000000001.json", "commit", "", True, 100)
        >>> plan(commit), plan(commit)
        ('drop-after', None)
    """

    def __init__(self, rules: Iterable[FaultRule] = ()) -> None:
        self._rules = [*rules]
        self._lock = threading.Lock()

    def add(self, rule: FaultRule) -> FaultRule:
        """Add a rule after all others, and return it."""
        with self._lock:
            self._rules.append(rule)
        return rule

    def __call__(self, request: Request) -> str | None:
        """The fault of the first rule that this request meets, or None."""
        with self._lock:
            return next((rule.fault for rule in self._rules if rule.take(request)), None)


class RandomFaults:
    """A plan at random. Some faults come in bursts, so that a client's own retries are used up.

    Args:
        seed: the seed of the numbers drawn. The order in which requests come decides which of them meets which number.
        rate: the part of the requests that only read which meets a fault, from 0 to 1, bursts not counted.
        kinds: the kinds to choose from.
        writes: the part of the requests that write; None: the same.
        only: the kind of objects whose requests meet faults, as :attr:`Request.kind`; None for all.
        most: the greatest number of faults; None for no limit.
        bursts: the numbers of times that a fault meets the same request, to choose from.

    Attributes:
        active: whether requests meet faults now.
        met: the number of faults by kind and request.

    Example:
        >>> from refdelta.proxy import RandomFaults, Request
        >>> plan = RandomFaults(5, 1.0, kinds=["500-before"], most=2)
        >>> [plan(Request("GET", "t/x.parquet", "data", "", False, 0)) for _ in range(3)]
        ['500-before', '500-before', None]
    """

    def __init__(
        self,
        seed: int | str,
        rate: float,
        *,
        kinds: Iterable[str] = KINDS,
        writes: float | None = None,
        only: str | None = None,
        most: int | None = None,
        bursts: Sequence[int] = (1, 1, 1, 1, 2, 3, 6, 12),
    ) -> None:
        self._dice = random.Random(seed)  # noqa: S311 - no secret
        self._rate, self._writes = rate, rate if writes is None else writes
        self._kinds = [*kinds]
        self._only = only
        self._left = most
        self._lengths = bursts
        self._bursts: dict[tuple[str, str], tuple[str, int]] = {}
        self._lock = threading.Lock()
        self.active = True
        self.met: Counter[tuple[str, str]] = Counter()

    @property
    def total(self) -> int:
        """The number of requests that met a fault."""
        return sum(self.met.values())

    def __call__(self, request: Request) -> str | None:
        """The fault that this request meets, or None."""
        with self._lock:
            meets = self.active and self._left != 0 and self._only in (None, request.kind)
            chosen = self._choose(request) if meets else None
            if chosen is not None:
                self.met[chosen, str(request)] += 1
                if self._left is not None:
                    self._left -= 1
            return chosen

    def _choose(self, request: Request) -> str | None:
        place = request.method, request.key
        kind, more = self._bursts.pop(place, ("", 0))
        if not more:
            reads = request.method in ("GET", "HEAD", "LIST")
            if self._dice.random() >= (self._rate if reads else self._writes):
                return None
            kind = self._dice.choice([kind for kind in self._kinds if applies(kind, request)])
            # Each of these costs the client its time-out.
            more = 1 if kind.startswith("hang") else self._dice.choice(self._lengths)
        if more > 1:
            self._bursts[place] = kind, more - 1
        return kind
