"""``python -m serial --seed N`` or ``--seeds A-B``: play programs, and print those that go wrong.

``--words wider`` and ``--words orders`` take programs of other vocabularies, ``--without NAME`` removes a part of the
engine first.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict

from serial.check import judged, serially, smaller
from serial.play import Outcome, play
from serial.programs import Program
from serial.removals import REMOVALS, without
from serial.wider import DRAWS


def main(arguments: list[str] | None = None) -> int:
    """Play programs. The exit status is 1 where anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m serial", description=__doc__)
    parser.add_argument("--seed", type=int, help="the program of one seed")
    parser.add_argument("--seeds", help="the programs of seeds A-B")
    parser.add_argument("--words", choices=DRAWS, default="first", help="the vocabulary of which programs are drawn")
    parser.add_argument("--without", choices=REMOVALS, action="append", default=[], help="what the engine is to lack")
    parser.add_argument("--theme", help="only the programs of these themes, by commas")
    parser.add_argument("--smaller", action="store_true", help="print also a smaller program that goes wrong likewise")
    parser.add_argument("--brief", action="store_true", help="one line for each program that goes wrong")
    asked = parser.parse_args(arguments)
    with without(*asked.without):
        return _play(asked)


def _play(asked: argparse.Namespace) -> int:
    first, _, last = (asked.seeds or str(asked.seed if asked.seed is not None else "0-99")).partition("-")
    seeds = range(int(first), int(last or first) + 1)
    played, wrong, outcomes, began = 0, 0, Counter(), time.monotonic()
    kinds: dict[str, list[int]] = defaultdict(list)
    for seed in seeds:
        program = DRAWS[asked.words](seed)
        if asked.theme and program.theme not in asked.theme.split(","):
            continue
        played += 1
        outcome = play(program)
        outcomes.update(one.outcome for one in outcome.running)
        found = judged(outcome)
        if len(seeds) == 1:
            print(described(program, outcome))
        if not found:
            continue
        wrong += 1
        kinds[" + ".join(sorted({finding.kind for finding in found}))].append(seed)
        if asked.brief:
            print(f"{seed} {program.theme} {found[0]}"[:240], flush=True)
            continue
        if len(seeds) > 1:
            print(described(program, outcome))
        print(*found, sep="\n")
        print(f"to replay: PYTHONPATH=tests python -m serial --words {asked.words} --seed {seed}")
        print(f"one after the other: {alone(program, outcome)}")
        if asked.smaller:
            less = smaller(program, {finding.kind for finding in found})
            outcome = play(less)
            print("\nsmaller:", described(less, outcome), *judged(outcome), sep="\n")
        print(flush=True)
    seconds = time.monotonic() - began
    print(f"{played} programs, {played / seconds:.1f} a second, {wrong} wrong; transactions: {dict(outcomes)}")
    for kind, several in sorted(kinds.items()):
        print(f"  {kind}: {len(several)}, the first by seed {several[0]}")
    return min(wrong, 1)


def described(program: Program, outcome: Outcome) -> str:
    """A program, and what became of its transactions."""
    told = [str(program)]
    for one in outcome.running:
        error = f" ({type(one.error).__name__}: {one.error})".splitlines()[0] if one.error else ""
        version = "" if one.version is None else f" version {one.version}"
        told.append(f"T{one.number} began at {one.began}: {one.outcome}{version}{error}")
    if outcome.end is not None:
        told.append(f"rows at the end: {sorted(outcome.end.rows, key=str)}")
    return "\n".join(told)


def alone(program: Program, outcome: Outcome) -> str:
    """Whether the engine and the oracle agree when the same transactions run one after the other."""
    order = sorted(outcome.history, key=lambda one: one.place)
    found = judged(play(serially(program, [int(one.name[1:]) for one in order])))
    return "; ".join(map(str, found)) or "the engine and the oracle agree"


if __name__ == "__main__":
    sys.exit(main())
