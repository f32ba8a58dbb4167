"""One fault at a time, each aimed at a certain request of a certain step: which fault, and where, is no accident."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from faults.judge import judge
from faults.report import Result
from faults.steps import Step, begin
from faults.writers import Read, Told, impatient, read, write
from refdelta.proxy.faults import KINDS, FaultRule, FaultRules
from servers.proxies import ServerProxy
from servers.running import Place, Server


@dataclass(frozen=True)
class Aim:
    """A fault for the requests of a step; ``times`` of them, one after the other."""

    step: str
    method: str
    kind: str
    fault: str
    times: int = 1

    def __str__(self) -> str:
        return f"{self.step}, {self.times} x {self.fault} of {self.method} {self.kind}"


# Which requests each step makes. What is aimed at may be any one of several requests.
_TARGETS = (
    ("append", "PUT", "data"),
    ("delete", "PUT", "vectors"),
    ("read", "GET", "commit"),
    ("merge", "PUT", "data"),
    ("append", "LIST", "log"),
    ("checkpoint", "PUT", "checkpoint"),
    ("checkpoint", "PUT", "hint"),
    ("append", "PUT", "checksum"),
    ("read", "GET", "data"),
    ("compact", "PUT", "data"),
    ("update", "GET", "data"),
    ("read", "GET", "checkpoint"),
)
_LASTING = 40
"""More often than any client tries."""


def aims() -> Iterator[Aim]:
    """Every fault at the commit itself, once and until the client gives up; every fault at some of the others."""
    for fault in KINDS:
        yield Aim("append", "PUT", "commit", fault)
        yield Aim("delete", "PUT", "commit", fault, 2)
    for fault in KINDS:
        if not fault.startswith(("slow", "hang")):
            yield Aim("append", "PUT", "commit", fault, _LASTING)
    places = itertools.cycle(_TARGETS)
    for fault in KINDS:
        for step, method, kind in itertools.islice(places, 5):
            if method == "PUT" or not fault.startswith(("409", "cut-before")):
                yield Aim(step, method, kind, fault)


@dataclass
class Flown:
    """What came of a lane: what was told of each aim, which aims no request has met, and all the rest."""

    outcomes: dict[Aim, str]
    missed: list[Aim]
    result: Result


def fly(server: Server, course: Sequence[Aim], layout: str = "vectors") -> Flown:
    """Take a step for each aim, one after the other, in a table of its own. Each begins with rows to work on."""
    direct, rules = server.place(), FaultRules()
    begin(direct.uri, layout, direct.options)
    told: list[Told] = []
    reads: list[Read] = []
    outcomes, missed = {}, []
    with ServerProxy(server, rules) as proxy:
        behind = proxy.through(direct)
        for number, aim in enumerate(course):
            told += write(direct, [Step("append", 0, 2 * number)], number)
            rule = rules.add(FaultRule(aim.fault, aim.method, aim.kind, _folder(direct), times=aim.times))
            # Only where nobody answers a client should give up: a machine that has other work is slow, too.
            place = impatient(behind, seconds=2 if aim.fault.startswith("hang") else 20, retries=4)
            if aim.step == "read":
                reads += _read_once(place, number)
                outcomes[aim] = "failed" if reads[-1].error else "read"
            else:
                told += write(place, [Step(aim.step, 0, 2 * number + 1)], number)
                outcomes[aim] = told[-1].outcome
            rule.times = 0
            if not rule.met:
                missed.append(aim)
        proxy.settle()
        return Flown(outcomes, missed, Result.of(proxy, told, reads, judge(direct, told, reads)))


def fly_all(server: Server, course: Sequence[Aim], lanes: int = 6) -> Result:
    """All of a course on several lanes side by side."""
    started = time.monotonic()
    with ThreadPoolExecutor(lanes) as pool:
        flown = [*pool.map(lambda lane: fly(server, course[lane::lanes]), range(lanes))]
    total = Result()
    for one in flown:
        total.add(one.result)
        total.wrong += [text for aim, outcome in one.outcomes.items() if (text := surprise(aim, outcome))]
    missed = [aim for one in flown for aim in one.missed]
    if len(missed) > len(course) / 10:
        total.wrong.append(f"nobody asks for what these are aimed at: {'; '.join(map(str, missed))}")
    total.wrong = [f"{server.scheme}, one at a time: {text}" for text in total.wrong]
    total.seconds = time.monotonic() - started
    return total


def surprise(aim: Aim, outcome: str) -> str | None:
    """What is not to be expected of this outcome: one fault that passes is survived, and what never gets through cannot
    be told, while what did is found in the log.
    """
    if aim.times >= _LASTING:
        right = outcome == ("unknown" if aim.fault.endswith("before") else "committed")
    else:
        # A conflict that is none is not sent again on Azure, unless it is of a commit.
        right = outcome in ("committed", "nothing", "read") or aim.fault.startswith("409")
    return None if right else f"{aim}: {outcome}"


def _folder(place: Place) -> str:
    return place.uri.split("/", 3)[3]


def _read_once(place: Place, seed: int) -> list[Read]:
    done = iter([False, True])
    return read(place, seed, lambda: next(done))
