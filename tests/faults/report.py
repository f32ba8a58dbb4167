"""What came of runs under faults, and how it is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from faults.judge import Verdict
from faults.writers import Read, Told
from refdelta.proxy import Proxy


@dataclass
class Result:
    """What came of one run, or of several.

    Attributes:
        wrong: what is wrong, each with the seed of its run.
        faults: how many requests met a fault, by its kind and by the request.
        requests: how many there were.
        outcomes: how many steps had which outcome.
        errors: how many errors callers saw, by class.
        versions: how many versions the tables have.
        reads: how many reads were right.
        failed_reads: how many raised.
        orphans: data files that no version names.
        ended: how often the server was ended.
        cut: how many requests it did not answer.
        slowest: seconds of the slowest step.
        seconds: how long it took.
    """

    wrong: list[str] = field(default_factory=list)
    faults: Counter[tuple[str, str]] = field(default_factory=Counter)
    requests: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    versions: int = 0
    reads: int = 0
    failed_reads: int = 0
    orphans: int = 0
    ended: int = 0
    cut: int = 0
    slowest: float = 0.0
    seconds: float = 0.0

    @classmethod
    def of(cls, proxy: Proxy, told: Sequence[Told], reads: Sequence[Read], verdict: Verdict) -> Result:
        """What came of a run by this proxy."""
        seen = proxy.seen
        return cls(
            wrong=verdict.wrong,
            faults=Counter((one.fault, str(one)) for one in seen if one.fault),
            requests=len(seen),
            outcomes=Counter(one.outcome for one in told),
            errors=Counter(one.error[0] for one in [*told, *reads] if one.error),
            versions=verdict.versions,
            reads=verdict.reads,
            failed_reads=verdict.failed_reads,
            orphans=verdict.orphans,
            cut=sum(not one.status and not one.fault for one in seen),
            slowest=max((one.seconds for one in told), default=0.0),
        )

    def add(self, other: Result) -> None:
        """Count another run too."""
        for name, value in vars(other).items():
            mine = getattr(self, name)
            if name == "slowest":
                self.slowest = max(mine, value)
            elif isinstance(mine, Counter):
                mine.update(value)
            else:
                setattr(self, name, mine + value)

    def lines(self) -> list[str]:
        """A report."""
        kinds: Counter[str] = Counter()
        hit: Counter[str] = Counter()
        for (kind, request), count in self.faults.items():
            kinds[kind] += count
            hit[request] += count
        steps = sum(self.outcomes.values())
        reads = f"{self.reads:,} right, {self.failed_reads:,} failed"
        ends = f"{self.ended}, cutting {self.cut:,} requests"
        return [
            f"{kinds.total():,} faults in {self.requests:,} requests, {self.seconds:.0f} s",
            f"  {self.versions:,} versions; {steps:,} steps, slowest {self.slowest:.1f} s: {_listed(self.outcomes)}",
            f"  faults: {_listed(kinds)}",
            f"  requests hit: {_listed(hit)}",
            f"  errors: {_listed(self.errors)}",
            f"  reads: {reads}; orphans, all vacuumed: {self.orphans}; ends of the server: {ends}",
        ]


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())) or "none"
