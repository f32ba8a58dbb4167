"""A process without Spark that changes the table of a cluster: ``python -m cluster.outside TABLE OWNER ROLE``.

It works from the line ``go`` on its input to the next line, and then prints how many steps of its own it has
committed, as JSON.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading

from kills.children import TRY_AGAIN
from kills.steps import maintain, take
from refdelta import DeltaTable
from refdelta.transaction import background

_WORK = ("compact", "dry", "checkpoint", "vacuum", "dry")


def main(uri: str, owner: int, role: str) -> None:
    number = lost = 0
    for line in sys.stdin:
        if line.strip() != "go":
            continue
        stop = threading.Event()
        reader = threading.Thread(target=lambda ended=stop: (sys.stdin.readline(), ended.set()), daemon=True)
        reader.start()
        while not stop.is_set():
            try:
                if role == "writer":
                    take(DeltaTable(uri), owner, number)
                else:
                    _keep(DeltaTable(uri), _WORK[number % len(_WORK)])
            except TRY_AGAIN:
                lost += 1
                continue
            number += 1
            stop.wait(0.3)
        reader.join()
        with contextlib.suppress(Exception):
            background.settle()
        print(json.dumps({"owner": owner, "steps": number, "lost": lost}), flush=True)


def _keep(table: DeltaTable, what: str) -> None:
    if what == "dry":
        table.vacuum(0, dry_run=True, enforce_retention_duration=False, full=True)
    else:
        maintain(table, what)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
