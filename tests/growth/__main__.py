"""``make search NAME=growth``: inputs that grow, and what they cost those who read them.

    python -m growth [--texts 200] [--commits 100] [--tables 300] [--seed 1] [--only NAME] [--longest 65536]

Each shape is made of some 1,000 characters, then of four times as many, and so on. It is a finding where the cost grows
faster than the length, where one input takes more than 40 times the processor time of a plain one or 3 GiB, and where
anything but a ``DeltaError`` is raised. Shapes run in a child, which may die; the next one goes on with the next shape.
"""

from __future__ import annotations

import argparse
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

TESTS = Path(__file__).resolve().parents[1]
MEMORY = 3 << 30
SMALLEST, FACTOR = 1_024, 4
NOTICED = 0.4
"""Seconds below which a cost is no finding, however it grew: what a first time takes, and a look at the clock."""
FASTER = 2.5
"""How much more than its length an input may cost when it becomes four times as long; twice it is quadratic."""
FOUND = 3
PLAIN, TIMES_PLAIN = 65_536, 40
"""An input may take so many times what a plain list of so many characters takes on the same machine."""


Costs = Callable[[int], dict[str, float]]
"""Makes an input of about so many characters and gives the seconds that each of its readers took."""


def shapes(given: argparse.Namespace) -> Iterator[tuple[str, Costs]]:
    """The shapes of a run, by name."""
    from growth import commits, tables, texts, victims

    for number in range(given.texts):
        name, shape = texts.shape(Random(f"{given.seed} {number}"))
        yield f"text {number}: {name}", lambda size, shape=shape: victims.text(shape(size))
    with tempfile.TemporaryDirectory(prefix="growth-") as folder:
        if given.commits:
            victim = victims.Tables(Path(folder))
            every = list(commits.shapes())
            Random(given.seed).shuffle(every)
            for name, shape in every[: given.commits]:
                yield f"commit: {name}", lambda size, shape=shape: victims.commit(victim, shape(size))
        of_tables = list(tables.shapes(Path(folder) / "tables"))
        Random(given.seed).shuffle(of_tables)
        for name, costs in of_tables[: given.tables]:
            yield f"table with many {name}", costs


def judged(costs: Costs, longest: int) -> str | None:
    """What is wrong with a shape; None where its costs grow with its length."""
    before: dict[str, float] = {}
    size = SMALLEST
    while size <= longest:
        now = costs(size)
        for what, seconds in now.items():
            if seconds > NOTICED and what in before and seconds > FACTOR * FASTER * max(before[what], 0.002):
                # Once more, since something else may have been the reason.
                again = costs(size)[what], costs(size // FACTOR)[what]
                if again[0] > FACTOR * FASTER * max(again[1], 0.002):
                    return (
                        f"{what}: {size // FACTOR:,} characters {again[1]:.3f} s, {size:,} characters {again[0]:.3f} s"
                    )
        before, size = now, size * FACTOR
    return None


def longest_time() -> float:
    """The seconds of processor time that one input may take: a multiple of what a plain one takes."""
    from growth import victims

    plain = "n IN (" + ", ".join(map(str, range(10_000, 10_000 + PLAIN // len("10000, ")))) + ")"
    victims.text(plain)  # what only a first time costs
    start = time.process_time()
    victims.text(plain)
    return TIMES_PLAIN * (time.process_time() - start)


def child(given: argparse.Namespace) -> int:
    """Judge shapes from one on; the one that is judged is noted, so that the parent knows it if this process dies."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    limit = longest_time()
    for number, (name, costs) in enumerate(shapes(given)):
        if number < given.start or (given.only and given.only not in name):
            continue
        Path(given.note).write_text(f"{number}\n{name}")

        def limited(size: int, costs: Costs = costs) -> dict[str, float]:
            signal.setitimer(signal.ITIMER_PROF, limit)
            return costs(size)

        try:
            wrong = judged(limited, given.longest)
        except BaseException as error:
            wrong = "".join(traceback.format_exception(error, limit=-6))[-1500:]
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(f"{name[:300]}\n    {wrong}" if wrong else ".", flush=True)
    return 0


def run(arguments: Sequence[str]) -> list[str]:
    """Judge shapes in children. Returns the findings."""
    found: list[str] = []
    with tempfile.TemporaryDirectory(prefix="growth-") as folder:
        note, start = Path(folder) / "note", 0
        while True:
            note.write_text("-1\n")
            command = [sys.executable, "-m", "growth", *arguments, "--note", str(note), "--start", str(start)]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=TESTS, check=False)
            found += [line for line in done.stdout.split("\n.\n") if line.strip(".\n")]
            number, _, name = note.read_text().partition("\n")
            if done.returncode == 0:
                return found
            found.append(f"{name[:300]}\n    ended the process ({done.returncode}): {done.stderr[-500:]}")
            if int(number) < start:
                return found
            start = int(number) + 1


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="growth", description=__doc__)
    found.add_argument("--texts", type=int, default=2_000, help="how many shapes of texts are drawn")
    found.add_argument("--commits", type=int, default=10_000, help="of how many shapes of commits, of all there are")
    found.add_argument("--tables", type=int, default=1_000, help="how many statements on tables with many things")
    found.add_argument("--seed", type=int, default=1)
    found.add_argument("--only", help="shapes with this in their names")
    found.add_argument("--longest", type=int, default=65_536, help="characters")
    found.add_argument("--note", help=argparse.SUPPRESS)
    found.add_argument("--start", type=int, default=0, help=argparse.SUPPRESS)
    return found


def main() -> int:
    given = parser().parse_args()
    if given.note:
        return child(given)
    found = run(sys.argv[1:])
    print(*found, sep="\n")
    print(f"{len(found)} findings")
    return FOUND if found else 0


if __name__ == "__main__":
    sys.exit(main())
