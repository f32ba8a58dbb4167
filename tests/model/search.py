"""The search of the model checkers: every schedule from a world, where worlds reached before are not explored again."""

from __future__ import annotations

import abc
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from model.contents import Violation

W = TypeVar("W", bound=Hashable)


@dataclass(slots=True)
class Report:
    worlds: int = 0
    schedules: int = 0
    ends: int = 0
    outcomes: set[str] = field(default_factory=set)


class Search(abc.ABC, Generic[W]):
    """Every schedule from ``start``. The number of schedules is counted along the way."""

    start: W

    def __init__(self) -> None:
        self.report = Report()

    @abc.abstractmethod
    def steps(self, world: W) -> Iterator[tuple[str, W]]:
        """Every step that is possible, with a name for it."""

    @abc.abstractmethod
    def is_over(self, world: W) -> bool:
        """Whether everybody who is alive has ended, so that each claim is a last one."""

    @abc.abstractmethod
    def check(self, world: W, *, at_end: bool) -> None:
        """Raise ``Violation`` unless the world is sound and every claim in it is true."""

    @abc.abstractmethod
    def results(self, world: W) -> Iterable[object]:
        """How those who are alive ended."""

    def run(self) -> Report:
        """Explore everything."""
        counts: dict[W, int] = {}
        trail: list[str] = []
        stack = [(self.start, iter(self._entered(self.start, trail)), [0])]
        while stack:
            world, rest, total = stack[-1]
            step = next(rest, None)
            if step is None:
                counts[world] = total[0] or 1
                stack.pop()
                if stack:
                    stack[-1][2][0] += counts[world]
                    trail.pop()
                continue
            name, after = step
            if after in counts:
                total[0] += counts[after]
                continue
            trail.append(name)
            stack.append((after, iter(self._entered(after, trail)), [0]))
        self.report.worlds, self.report.schedules = len(counts), counts[self.start]
        return self.report

    def walk(self, choose: Callable[[int], int]) -> None:
        """One schedule: ``choose`` gives the number of each step, of so many."""
        world, trail = self.start, []
        while steps := self._entered(world, trail):
            name, world = steps[choose(len(steps))]
            trail.append(name)

    def _entered(self, world: W, trail: list[str]) -> list[tuple[str, W]]:
        """The steps from a world, which is checked."""
        steps = [*self.steps(world)]
        try:
            self.check(world, at_end=self.is_over(world))
        except Violation as violation:
            raise Violation("\n  ".join([str(violation), *trail])) from None
        if not steps:
            self.report.ends += 1
            self.report.outcomes.update(type(result).__name__ for result in self.results(world))
        return steps
