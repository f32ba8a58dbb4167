"""The cost model of groups: transactions a second of one table whose versions have several of them.

    python bench/group_model.py [--store s3 | --put 60 --get 25 --list 40] [--cpu 4.3] [--member 0.8] [--cores 2]
                                [--picture docs/pictures/groups.svg]

prints, by the number of writers, the rates of single commits (``cost_model.predict``), of the threads of one process in
a group, and of processes that share versions by intents, and from how many writers on each pays. ``--picture`` draws
them. bench/cost-model.md derives the formulas. Latencies are assumed; the processor time of a transaction, and the
part of it that the one who commits spends on each member, are this engine's on one machine: measure yours.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from charts import AXIS, LOOKS, TEXT, svg
from cost_model import PLACES, Place, add_latencies, own_place, predict, settled
from matplotlib.figure import Figure

WRITERS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
PAYS = 1.25
"""A way pays from where it has so many times the transactions of single commits."""
_FEW = 32


@dataclass(frozen=True)
class Machine:
    """The processor time of transactions.

    Attributes:
        cpu: seconds of a transaction, all told.
        member: seconds, of these, of the one who commits, for each transaction in its version.
        cores: of one process, or of all writers together.
    """

    cpu: float = 0.0043
    member: float = 0.0008
    cores: int = 2


@dataclass(frozen=True)
class Rate:
    """Of one table: transactions a second, seconds of one, and how many a version has."""

    rate: float
    seconds: float
    members: float


def single(place: Place, writers: int, _machine: Machine = Machine()) -> Rate:
    """Each writer commits its own transactions."""
    found = predict(place, writers)
    return Rate(found.rate, writers / found.rate, 1.0)


def threads(place: Place, writers: int, machine: Machine = Machine()) -> Rate:
    """The threads of one process in a group: a data file each, beside the put of the version before theirs."""

    def took(version: float, _members: float) -> float:
        others = (writers - 1) / writers  # whose put may be under way
        return place.work + others * version / 2 + version

    return _settled(place.put, took, writers, machine)


def intents(place: Place, writers: int, machine: Machine = Machine()) -> Rate:
    """Processes that share versions by intents, or go alone where that is faster: with few others they see none."""
    put, get, listing = place.put, place.get, place.list

    def took(version: float, members: float) -> float:
        intent = place.work + put  # the data file, then the intent
        seen = listing / 2 + get + version / 2  # the leader has listed and read it
        told = get + version / 8  # its writer has found the version
        return intent + seen + 2 * members * machine.member + told

    together = _settled(max(put, listing + 1.5 * get), took, writers, machine)
    return max(together, single(place, writers), key=lambda found: found.rate)


def _settled(least: float, took: Callable[[float, float], float], writers: int, machine: Machine) -> Rate:
    """The rate of so many writers.

    Args:
        least: seconds between two versions, without the work for members.
        took: seconds of a transaction, from those of a version and its members.
        writers: how many there are.
        machine: what computing costs.
    """
    most = min(1 / machine.member, machine.cores / machine.cpu)
    rate = settled(most, lambda rate: rate * _transaction(rate, least, took, machine)[1] < writers)
    version, seconds = _transaction(rate, least, took, machine)
    return Rate(rate, seconds, max(1.0, rate * version))


def _transaction(
    rate: float, least: float, took: Callable[[float, float], float], machine: Machine
) -> tuple[float, float]:
    """Seconds of a version and of a transaction at a rate: each version has the members that came during the last."""
    version = least / (1 - min(rate * machine.member, 0.999_999))
    # Transactions wait for the processor the longer, the more of it is in use.
    computing = machine.cpu / (1 - min(rate * machine.cpu / machine.cores, 0.999_999))
    return version, took(version, rate * version) + computing


WAYS: Mapping[str, Callable[[Place, int, Machine], Rate]] = {
    "single commits": single,
    "a group of threads": threads,
    "intents": intents,
}


def pays_from(place: Place, way: str, machine: Machine) -> int | None:
    """The least number of writers at which a way has :data:`PAYS` times the rate of single commits; None for many."""
    counts = range(1, _FEW + 1)
    more = (n for n in counts if WAYS[way](place, n, machine).rate >= PAYS * single(place, n).rate)
    return next(more, None)


# --- the program ---


def picture(place: Place, machine: Machine) -> Figure:
    """Transactions a second over writers, a line for each way, and the bound of one transaction a version."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    shown = WRITERS[: WRITERS.index(64) + 1]
    looks = dict(zip(WAYS, (LOOKS["refdelta, one writer"], LOOKS["refdelta"], LOOKS["delta-spark"]), strict=True))
    for name, way in WAYS.items():
        rates = [way(place, writers, machine).rate for writers in shown]
        axes.plot(shown, rates, marker=looks[name].marker, color=looks[name].light)
        axes.annotate(name, (shown[-1], rates[-1]), (6, 0), textcoords="offset points", va="center", color=TEXT)
    axes.axhline(1 / place.put, color=LOOKS["bound"].light, linestyle=":")
    axes.annotate(
        f"one transaction a version: at most {1 / place.put:.3g} a second",
        (shown[3], 1 / place.put),
        (0, 5),
        textcoords="offset points",
        color=TEXT,
    )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(shown, [str(count) for count in shown])
    ticks = (10, 20, 50, 100, 200, 500)
    axes.set_yticks(ticks, [str(count) for count in ticks])
    axes.minorticks_off()
    axes.set_xlim(0.9, shown[-1] * 2.2)
    axes.set_xlabel("writers")
    axes.set_ylabel("transactions a second")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=AXIS)
    return figure


def main(given: Sequence[str] | None = None) -> int:
    """Print the table, and draw the picture."""
    parser = argparse.ArgumentParser(
        prog="python bench/group_model.py", description="Transactions a second of one table, with groups."
    )
    parser.add_argument("--store", choices=[name for name, place in PLACES.items() if not place.nearby], default="s3")
    add_latencies(parser)
    parser.add_argument("--cpu", type=float, default=1000 * Machine.cpu, help="milliseconds of a transaction")
    parser.add_argument("--member", type=float, default=1000 * Machine.member, help="of these, of who commits it")
    parser.add_argument("--cores", type=int, default=Machine.cores)
    parser.add_argument("--picture", type=Path)
    asked = parser.parse_args(given)
    place = own_place(parser, asked) or PLACES[asked.store]
    if min(asked.cpu, asked.member, asked.cores) <= 0:
        parser.error("--cpu, --member and --cores are more than 0")
    machine = Machine(asked.cpu / 1000, asked.member / 1000, asked.cores)
    print(f"transactions a second of one table on {place.name}, by the formula; in brackets how many a version has")
    print("writers" + "".join(f"{name:>26}" for name in WAYS))
    for writers in WRITERS:
        found = [way(place, writers, machine) for way in WAYS.values()]
        print(f"{writers:7}" + "".join(f"{one.rate:17.1f} {f'({one.members:.1f})':>8}" for one in found), flush=True)
    for way in list(WAYS)[1:]:
        first = pays_from(place, way, machine)
        print(f"{way}: " + (f"{PAYS:g} times single commits from {first} writers on" if first else "does not pay"))
    if asked.picture is not None:
        title = f"Transactions a second over writers, {place.name}, by the cost model"
        asked.picture.write_text(svg(picture(place, machine), title))
    return 0


if __name__ == "__main__":
    sys.exit(main())
