"""Many requests that meet a fault, on S3, Azure and GCS, and what came of it. ``make search NAME=faults`` is this
program.

    python -m faults.campaign [--faults 1200] [--kills 20] [--seed N] [--server s3|azure|gcs|all]

It prints the seed of each run, and exits with 1 if anything was lost, doubled, or told wrongly.
"""

from __future__ import annotations

import argparse
import itertools
import secrets
import sys

from faults.lanes import aims, fly_all
from faults.report import Result
from faults.runs import SHAPES, Shape, run
from servers.running import AzureServer, GcsServer, S3Server, Server

SERVERS: dict[str, list[type[Server]]] = {"s3": [S3Server], "azure": [AzureServer], "gcs": [GcsServer]}
SERVERS["all"] = [kind for kinds in SERVERS.values() for kind in kinds]
ENDS_WITH_ITS_OBJECTS = (GcsServer,)
ENDING = Shape("server ends", rate=0.0, writes=0.0, writers=4, steps=12, kills=1.0)


def campaign(server: Server, seed: int, faults: int, kills: int) -> Result:
    """Every fault by itself, then each kind of run at least once and until so many requests have met a fault, then runs
    in which the server ends so many times.
    """
    total = fly_all(server, [*aims()])
    print(f"{server.scheme}, one at a time: {total.lines()[0]}", flush=True)
    for number in itertools.count():
        if number >= len(SHAPES) and total.faults.total() >= faults:
            break
        total.add(_told(server, seed + number, SHAPES[number % len(SHAPES)]))
    while total.ended < kills:
        total.add(_told(server, seed + total.ended, ENDING))
    return total


def _told(server: Server, seed: int, shape: Shape) -> Result:
    result = run(server, seed, shape)
    print("\n".join([f"{server.scheme}, seed {seed}, {shape.name}: {result.lines()[0]}", *result.wrong]), flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description="Writers and readers before a bad network, judged.")
    parser.add_argument("--faults", type=int, default=1200, help="requests that meet a fault, over all servers")
    parser.add_argument("--kills", type=int, default=20, help="ends of each server under load")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--server", choices=[*SERVERS], default="all")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    wrong: list[str] = []
    for kind in SERVERS[given.server]:
        server = kind().start()
        try:
            kills = 0 if kind in ENDS_WITH_ITS_OBJECTS else given.kills
            result = campaign(server, given.seed, -(-given.faults // len(SERVERS[given.server])), kills)
        finally:
            server.stop()
        print("\n".join([f"{kind.__name__}:", *result.lines()]), flush=True)
        wrong += result.wrong
    print("\n".join(wrong) or "nothing lost, nothing doubled, every caller was told what happened")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
