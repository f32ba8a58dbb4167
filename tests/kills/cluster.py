"""Statements and streams on a Spark cluster of this machine whose executors, tasks, jobs and drivers are killed:
``python -m kills.cluster [KILLS] [SEED]``, or ``make search NAME=kills-cluster``.

Of each kind of statement in each kind of trouble so many rounds are drawn (:mod:`cluster.rounds`), beside writers
outside of Spark; and a sixth as many drivers of a stream of MERGEs are killed (:mod:`cluster.killed_merges`). Prints
what came of each round and the sum, and fails where a row was lost or doubled, something of a failed statement is
visible, a file is left that no commit names, or an error is not one sentence.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from cluster import sessions
from cluster.killed_merges import KilledMerges
from cluster.rounds import all_rounds

KILLS, SEED = 300, 20261126
# Rounds of one session.
_TOGETHER = 30


def main(kills: int = KILLS, seed: int = SEED) -> None:
    """Run it."""
    if reason := sessions.missing():
        raise SystemExit(f"kills.cluster: {reason}")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="refdelta-cluster-") as folder:
        ended = _rounds(Path(folder), kills, seed)
        merges = KilledMerges(Path(folder) / "merges", seed)
        while merges.kills < kills // 6:
            merges.come(2)
            merges.kill()
            merges.disturb()
            print(f"merges: {merges.kills} drivers killed, {dict(merges.moments)}", flush=True)
        merges.finish()
    wrong = [told for told in ended if "wrong" in told]
    results = Counter(
        told["ended"].split(":")[0] + (", not of refdelta" if ": RAW " in told["ended"] else "")
        for told in ended
        if "ended" in told
    )
    left = [told for told in ended if told.get("left")]
    struck: Counter[str] = Counter()
    for told in ended:
        struck[told.get("round", "::none").split(":")[2]] += told.get("struck", 0)
    print(f"{len(ended)} rounds: {', '.join(f'{count} {what}' for what, count in results.most_common())}")
    print(f"struck: {', '.join(f'{count} by {what}' for what, count in struck.most_common())}")
    print(
        f"{len(wrong)} wrong, {len(left)} after which a file was left; {merges.batches} batches merged once each, "
        f"{merges.kills} drivers killed: {dict(merges.moments)}; {time.monotonic() - began:.0f} s, seed {seed}"
    )
    if wrong or left:
        raise SystemExit(1)


def _rounds(folder: Path, count: int, seed: int) -> list[dict]:
    dice = random.Random(seed)
    names: list[str] = []
    while len(names) < count:
        names += dice.sample(all_rounds(), len(all_rounds()))
    told = []
    for first in range(0, count, _TOGETHER):
        own = folder / f"rounds{first}"
        own.mkdir()
        some = names[first : min(first + _TOGETHER, count)]
        with sessions.Program("cluster.rounds", own, str(seed + first), *some) as program:
            for one in program.lines():
                if "round" not in one:  # delta-spark has read the same
                    continue
                ended = one.get("ended", "").split("\n")[0] or one.get("wrong", "")
                print(one["round"], ended, one.get("left") or "", flush=True)
                told.append(one)
            if program.process.wait():
                told.append({"wrong": program.said()})
                print(program.said(), flush=True)
    return told


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
