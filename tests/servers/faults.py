"""What may go wrong with a request on its way, and when: by rule, or at random from a seed.

A fault comes before the server has acted, or after it. ``drop``: the connection is closed. ``cut``: half of the body
is passed on, then the connection is closed. ``hang``: nobody answers, until the client gives up. ``slow``: all is
right, but late. ``late``: the client is dropped, and the server gets the request afterwards. ``twice``: the server
gets it two times, and the client hears the second answer. All others are answers in place of the server's.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from servers.requests import Seen

if TYPE_CHECKING:
    from servers.exchange import Exchange

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

Plan = Callable[[Seen], "str | None"]
"""Says which fault, if any, a request meets."""


def applies(kind: str, seen: Seen) -> bool:
    """Whether a server or a network would do this to such a request."""
    if kind.startswith("409"):
        return seen.method in ("PUT", "FINISH", "DELETE")
    return kind != "cut-before" or seen.body > 1


def happen(kind: str, exchange: Exchange, scheme: str) -> bool:
    """Let a request meet a fault. Returns whether the client's connection stays open."""
    what, _, when = kind.partition("-")
    if when == "after":
        reply = exchange.ask()
    match kind:
        case "drop-before" | "drop-after":
            return exchange.drop()
        case "cut-before":
            return exchange.ask_half()
        case "cut-after":
            return exchange.answer_half(reply)
        case "hang-before" | "hang-after":
            return exchange.hang()
        case "slow-before" | "slow-after":
            exchange.wait()
            return exchange.answer(exchange.ask() if when == "before" else reply)
        case "late":
            return exchange.ask_later()
        case "twice":
            exchange.ask()
            return exchange.answer(exchange.ask())
        case _:
            return exchange.refuse(*REPLIES[scheme][what])


@dataclass
class Rule:
    """A fault for the requests that fit.

    Attributes:
        fault: one of :data:`KINDS`.
        method: as :attr:`Seen.method`, or ``*``.
        kind: as :attr:`Seen.kind`, or ``*``.
        under: what the key begins with.
        skip: how many that fit go well before.
        times: how many meet it.
        met: how many have.
    """

    fault: str
    method: str = "*"
    kind: str = "*"
    under: str = ""
    skip: int = 0
    times: int = 1
    met: int = 0
    _fitting: int = field(default=0, repr=False)

    def take(self, seen: Seen) -> bool:
        """Whether this request meets the fault; it counts."""
        if (
            self.method not in ("*", seen.method)
            or self.kind not in ("*", seen.kind)
            or not seen.key.startswith(self.under)
            or not applies(self.fault, seen)
        ):
            return False
        self._fitting += 1
        if not self.skip < self._fitting <= self.skip + self.times:
            return False
        self.met += 1
        return True


class Rules:
    """A plan of rules; the first that fits decides. May be added to while it is followed."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self._rules = [*rules]
        self._lock = threading.Lock()

    def add(self, rule: Rule) -> Rule:
        with self._lock:
            self._rules.append(rule)
        return rule

    def __call__(self, seen: Seen) -> str | None:
        with self._lock:
            return next((rule.fault for rule in self._rules if rule.take(seen)), None)


class RandomFaults:
    """A plan by dice. Faults come in bursts at times, so that a client's own retries are used up.

    Args:
        seed: of the dice. Which request meets which throw is up to the order in which they come.
        rate: how many of the requests that only read meet a fault, bursts not counted.
        kinds: the kinds to choose from.
        writes: how many of the requests that write do; as many as of the others if it is None.
        only: the kind of objects whose requests meet faults, as :attr:`Seen.kind`; None for all.
        most: how many faults in all; then all goes well.
        bursts: how often a fault meets the same request again, to choose from.
    """

    def __init__(
        self,
        seed: int,
        rate: float,
        *,
        kinds: Iterable[str] = KINDS,
        writes: float | None = None,
        only: str | None = None,
        most: int | None = None,
        bursts: Sequence[int] = (1, 1, 1, 1, 2, 3, 6, 12),
    ) -> None:
        self._dice = random.Random(seed)
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
        """How many requests have met a fault."""
        return sum(self.met.values())

    def __call__(self, seen: Seen) -> str | None:
        with self._lock:
            meets = self.active and self._left != 0 and self._only in (None, seen.kind)
            chosen = self._choose(seen) if meets else None
            if chosen is not None:
                self.met[chosen, str(seen)] += 1
                if self._left is not None:
                    self._left -= 1
            return chosen

    def _choose(self, seen: Seen) -> str | None:
        place = seen.method, seen.key
        kind, more = self._bursts.pop(place, ("", 0))
        if not more:
            reads = seen.method in ("GET", "HEAD", "LIST")
            if self._dice.random() >= (self._rate if reads else self._writes):
                return None
            kind = self._dice.choice([kind for kind in self._kinds if applies(kind, seen)])
            # Nobody waits for long: each of these costs the client its time-out.
            more = 1 if kind.startswith("hang") else self._dice.choice(self._lengths)
        if more > 1:
            self._bursts[place] = kind, more - 1
        return kind
