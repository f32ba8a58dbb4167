"""What came of a run: for people as text, for programs as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click

from pipeline.engines import Engine
from pipeline.judge import Compared
from pipeline.raw import RawFiles
from pipeline.stages import STAGES, STATEMENTS, TABLES, Done
from refdelta.cli.render import echo_table
from refdelta.wording import counted, size


@dataclass(frozen=True)
class History:
    """A table's rows, its commits, and how many of these were moved over others that their writers had not read."""

    rows: int
    commits: int
    rebased: int


@dataclass(frozen=True)
class Ran:
    """One engine's run: what it did, and by table what its log says."""

    done: Done
    histories: dict[str, History]


def histories(engine: Engine, spark: Any) -> dict[str, History]:
    """What the logs of all tables say."""
    found = {}
    for table in TABLES:
        commits = engine.history(spark, table)
        found[table] = History(engine.count(spark, table), len(commits), sum(commit.rebased for commit in commits))
    return found


@dataclass(frozen=True)
class Report:
    """All of it.

    Attributes:
        scale: of TPC-H.
        refreshes: how many refresh sets there were.
        raw: the raw files.
        where: where refdelta's tables were, for people.
        ran: by engine.
        compared: tables next to what they should hold.
    """

    scale: float
    refreshes: int
    raw: RawFiles
    where: str
    ran: dict[str, Ran]
    compared: list[Compared]

    @property
    def wrong(self) -> list[Compared]:
        """The tables that do not hold what they should."""
        return [one for one in self.compared if not one.alike]

    def show(self) -> None:
        """Print it."""
        files = sum(map(len, (*self.raw.loads.values(), *self.raw.refreshes.values())))
        click.echo(
            f"TPC-H at scale {self.scale:g}, {counted(self.refreshes, 'refresh set')}: "
            f"{self.raw.rows:,} rows in {files} raw files of {size(self.raw.bytes)}; refdelta's tables {self.where}\n"
        )
        self._show_seconds()
        self._show_statements()
        self._show_tables()
        for one in self.wrong:
            click.echo("\n  ".join((f"{one.table}, by {one.judge}:", *one.examples)))

    def _show_seconds(self) -> None:
        rows = [(name, [ran.done.seconds[name] for ran in self.ran.values()]) for name in STAGES]
        rows.append(("all", [sum(column) for column in zip(*(seconds for _, seconds in rows), strict=True)]))
        names = [*self.ran, *(["ratio"] if len(self.ran) > 1 else [])]
        shown = [(name, *(f"{one:.1f} s" for one in seconds), *_ratio(seconds)) for name, seconds in rows]
        echo_table(["stage", *names], shown, right=names)

    def _show_statements(self) -> None:
        shown = [
            (
                what,
                self._both(ran.done.statements[what] for ran in self.ran.values()),
                *(_repeated(ran.done, what) for ran in self.ran.values()),
            )
            for what in STATEMENTS
        ]
        click.echo()
        echo_table(
            ["into silver", "committed", *(f"repeated, {name}" for name in self.ran)], shown, right=["committed"]
        )

    def _show_tables(self) -> None:
        shown = [
            (
                table,
                *(
                    self._both(getattr(ran.histories[table], what) for ran in self.ran.values())
                    for what in ("rows", "commits", "rebased")
                ),
                ", ".join(_verdict(one) for one in self.compared if one.table == table),
            )
            for table in TABLES
        ]
        click.echo()
        if len(self.ran) > 1:
            click.echo(f"{' / '.join(self.ran)}, where they differ")
        echo_table(["table", "rows", "commits", "rebased", "same rows as"], shown, right=["rows", "commits", "rebased"])

    @staticmethod
    def _both(figures: Iterable[int]) -> str:
        """A figure of each engine, or one where they are the same."""
        shown = [f"{figure:,}" for figure in figures]
        return shown[0] if len(set(shown)) == 1 else " / ".join(shown)

    def as_json(self) -> dict[str, Any]:
        """It as JSON's values."""
        return {
            "scale": self.scale,
            "refreshes": self.refreshes,
            "raw": {"rows": self.raw.rows, "bytes": self.raw.bytes},
            "tables": self.where,
            "engines": {
                name: {
                    "seconds": ran.done.seconds,
                    "statements": dict(ran.done.statements),
                    "repeated": [
                        {"statement": what, "conflict": kind, "count": count}
                        for (what, kind), count in ran.done.conflicts.items()
                    ],
                    "tables": {table: asdict(history) for table, history in ran.histories.items()},
                }
                for name, ran in self.ran.items()
            },
            "compared": [{**asdict(one), "alike": one.alike} for one in self.compared],
        }


def _ratio(seconds: Sequence[float]) -> tuple[str, ...]:
    return (f"{seconds[0] / seconds[1]:.2f} x",) if len(seconds) > 1 else ()


def _repeated(done: Done, name: str) -> str:
    kinds: Mapping[str, int] = {kind: count for (what, kind), count in done.conflicts.items() if what == name}
    return ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "0"


def _verdict(one: Compared) -> str:
    if one.alike:
        return one.judge
    return f"NOT {one.judge}: {one.missing:,} missing, {one.surplus:,} too many"
