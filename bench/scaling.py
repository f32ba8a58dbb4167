"""How time and memory grow: work on logs of 1,000 to 1,000,000 files, and over up to 100,000 winners.

    python bench/scaling.py [--most 1000000] [--only scan --only append] [--rounds 3] [--scratch DIR] [--plot FILE]

Each measurement is a process of its own (:mod:`fresh`), as in :mod:`large_logs`, whose verbs these are. Seconds are of
the processor, the least of the rounds; MB are what the resident memory rose by. The slope is that of the last decade in
a log-log plot: 0 does not depend on the size, 1 is linear.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from math import log10
from pathlib import Path
from typing import Any

import charts
import fresh
import large_logs
import logs
import matplotlib as mpl
import pyarrow as pa
import winners
from matplotlib.figure import Figure

import refdelta

LARGEST = 1_000_000
FEWEST = 1_000
MOST_WINNERS = 100_000  # a file each


@dataclass
class Growth:
    """One kind of work.

    Attributes:
        name: for the table and the plot.
        function: what a process runs, with the table's path.
        make: writes the table: its folder, and the size.
        most: the largest size.
        seconds: by size.
        megabytes: by size.
    """

    name: str
    function: str
    make: Callable[[Path, int], Path]
    most: int = LARGEST
    seconds: dict[int, float] = field(default_factory=dict)
    megabytes: dict[int, float] = field(default_factory=dict)


def merge_nothing(table: str) -> dict[str, Any]:
    """A MERGE whose one source row is in no file."""
    source = pa.table({"id": [-1], "name": ["a"], "value": [0.5], "day": pa.array([0], pa.date32())})

    def run(handle: refdelta.DeltaTable) -> Any:
        merger = handle.merge(source, "t.id = s.id", source_alias="s", target_alias="t")
        return merger.when_matched_update_all().when_not_matched_insert_all().execute()["num_source_rows"]

    return large_logs.timed(table, run)


def stale_append(table: str) -> dict[str, Any]:
    """A commit that begins before all winners."""
    return _stale(table, lambda txn: txn.append(pa.table({"part": ["mine"], "id": [1], "value": [0.5]})))


def stale_delete(table: str) -> dict[str, Any]:
    """The same of a statement that has read a partition of which the winners change no file."""
    return _stale(table, lambda txn: txn.delete(winners.MINE))


def _stale(table: str, work: Callable[[Any], Any]) -> dict[str, Any]:
    txn = refdelta.DeltaTable(table).begin()
    work(txn)
    winners.link(Path(table, "won"), Path(table, "_delta_log"))
    return large_logs.timed(table, lambda _: len(txn.commit().rebased_over), opened=False)


def won(folder: Path, count: int) -> Path:
    """A table, and apart from its log the commits of others."""
    winners.write_table(folder / "_delta_log", 1_000)
    winners.write_winners(folder / "won", count, 2)
    return folder


def works() -> list[Growth]:
    verbs = ["opening", "scan_by_partition", "scan_by_statistics", "append", "delete_nothing", "optimize_plan"]
    verbs += ["vacuum_dry", "checkpoint"]
    return [
        *(Growth(verb.replace("_", " "), f"large_logs:{verb}", logs.checkpointed) for verb in verbs),
        Growth("merge nothing", "scaling:merge_nothing", logs.checkpointed),
        Growth("opening, JSON", "large_logs:opening", logs.json_log),
        Growth("stale append", "scaling:stale_append", won, MOST_WINNERS),
        Growth("stale delete", "scaling:stale_delete", won, MOST_WINNERS),
    ]


def slope(measured: dict[int, float]) -> float | None:
    """That of the two largest sizes; None where there is only one, or nothing was seen."""
    if len(measured) < 2:
        return None
    before, last = sorted(measured)[-2:]
    if min(measured[before], measured[last]) <= 0:
        return None
    return log10(measured[last] / measured[before]) / log10(last / before)


def lines(found: list[Growth]) -> list[str]:
    """A table in Markdown."""
    sizes = sorted({size for one in found for size in one.seconds})
    heads = [f"{size:,}" for size in sizes]
    text = [
        f"| work | {', '.join(heads)}: s | slope | MB | slope |",
        "|---|---|---|---|---|",
    ]
    for one in found:
        seconds = ", ".join(f"{one.seconds[size]:.3g}" if size in one.seconds else "-" for size in sizes)
        memory = ", ".join(f"{one.megabytes[size]:.0f}" if size in one.megabytes else "-" for size in sizes)
        slopes = ["-" if rise is None else f"{rise:.2f}" for rise in (slope(one.seconds), slope(one.megabytes))]
        text.append(f"| {one.name} | {seconds} | {slopes[0]} | {memory} | {slopes[1]} |")
    return text


def figure(found: list[Growth]) -> Figure:
    """A panel of seconds and one of memory, over the sizes."""
    steepest = max(found, key=lambda one: slope(one.seconds) or 0)
    rise = slope(steepest.seconds)
    title = f"Of {len(found)} kinds of work the steepest is {steepest.name}, with a slope of {rise or 0:.2f}"
    with mpl.rc_context(charts.SETTINGS):
        drawn = Figure(figsize=(9.6, 4.6))
        drawn.text(0.02, 0.97, title, va="top", color=charts.HEADING, weight="bold", fontsize=12)
        looks = [*charts.LOOKS.values(), *charts.OTHERS]
        for at, (what, unit) in enumerate((("seconds", "s"), ("megabytes", "MB"))):
            axes = drawn.add_axes((0.07 + 0.38 * at, 0.12, 0.31, 0.72))
            axes.set_title(
                f"{what} of the processor" if what == "seconds" else "resident memory", loc="left", fontsize=9
            )
            for one, look in zip(found, looks, strict=False):
                points = {size: value for size, value in getattr(one, what).items() if value > 0}
                axes.plot(
                    [*points], [*points.values()], color=look.light, marker=look.marker, markersize=4, label=one.name
                )
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xlabel("files, or winners")
            axes.set_ylabel(unit)
            if at:
                axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0), frameon=False, fontsize=8)
        return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=LARGEST, help="of files, and of winners up to 100,000")
    parser.add_argument("--only", action="append", help="work whose name begins so")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scratch", default="/dev/shm" if os.access("/dev/shm", os.W_OK) else "/var/tmp")
    parser.add_argument("--plot", type=Path, help="an SVG file")
    asked = parser.parse_args()
    chosen = [one for one in works() if not asked.only or one.name.startswith(tuple(asked.only))]
    folder = Path(tempfile.mkdtemp(prefix="scaling-", dir=asked.scratch))
    try:
        size = FEWEST
        while size <= asked.most:
            for one in chosen:
                if size > one.most:
                    continue
                rounds = []
                for number in range(asked.rounds):
                    table = one.make(folder / f"t{number}", size)
                    rounds.append(fresh.call(one.function, str(table)))
                    shutil.rmtree(table)
                one.seconds[size] = min(told.result["cpu"] for told in rounds)
                one.megabytes[size] = min(told.peak for told in rounds) / 1e6
                print(f"{size:>9,}  {one.name:22}{one.seconds[size]:9.4f} s{one.megabytes[size]:8.0f} MB", flush=True)
            size *= 10
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("\n".join(["", *lines(chosen)]))
    if asked.plot is not None:
        drawn = figure(chosen)
        asked.plot.write_text(charts.svg(drawn, charts.titled(drawn)))


if __name__ == "__main__":
    main()
