"""Many races of many writers in several processes for one object each: ``make search NAME=puts``.

Prints a row for each kind of place: how many races there were, how many writers in each, and how many races exactly one
writer won, which is all of them or the run fails.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from refdelta_storage import Committed, Exists, Unknown, open_store
from refdelta_storage.testing import assert_one_winner
from servers.running import AzureServer, GcsServer, Place, S3Server, Server

PROCESSES, THREADS = 5, 10
OUTCOMES = {"Committed": Committed, "Exists": Exists, "Unknown": Unknown}


def key_of(number: int) -> str:
    return f"_delta_log/{number:020d}.json"


def data_of(process: int, thread: int) -> bytes:
    return f"process {process}, thread {thread}\n".encode() * 100


def compete(place: Place, rounds: int, process: int, start: Any, told: Any) -> None:
    """One process: its threads meet those of the others before each race."""
    store = open_store(place.uri, place.options)
    store.put(f"warm/{process}", b"")

    def race(thread: int, number: int) -> str:
        start.wait(120)
        return type(store.put_if_absent(key_of(number), data_of(process, thread))).__name__

    with ThreadPoolExecutor(THREADS) as pool:
        for number in range(rounds):
            outcomes = pool.map(race, range(THREADS), [number] * THREADS)
            told.put([(number, process, thread, outcome) for thread, outcome in enumerate(outcomes)])


def run(place: Place, rounds: int) -> int:
    """The number of races that one writer won; raises AssertionError at the first of another kind."""
    context = multiprocessing.get_context("spawn")
    start, told = context.Barrier(PROCESSES * THREADS), context.Queue()
    workers = [context.Process(target=compete, args=(place, rounds, n, start, told)) for n in range(PROCESSES)]
    for worker in workers:
        worker.start()
    outcomes: dict[int, list[tuple[bytes, Any]]] = {number: [] for number in range(rounds)}
    for _ in range(rounds * PROCESSES):
        for number, process, thread, outcome in told.get(timeout=300):
            outcomes[number].append((data_of(process, thread), OUTCOMES[outcome]()))
    for worker in workers:
        worker.join()
    store = open_store(place.uri, place.options)
    for number, race in outcomes.items():
        assert len(race) == PROCESSES * THREADS
        assert_one_winner(store, key_of(number), race)
    return sum(sum(isinstance(outcome, Committed) for _, outcome in race) == 1 for race in outcomes.values())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=100)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        servers: list[tuple[str, Callable[[], Server] | None]] = [
            ("local, with fsync", None),
            ("S3: versitygw", S3Server),
            ("Azure: Azurite", AzureServer),
            ("GCS: fake-gcs-server", GcsServer),
        ]
        print("| place | races | writers in each | won by exactly one | seconds |\n| --- | --- | --- | --- | --- |")
        for name, make in servers:
            server = make().start() if make else None
            begun = time.monotonic()
            try:
                won = run(server.place() if server else Place(folder, {}), rounds)
            finally:
                if server:
                    server.stop()
            assert won == rounds
            print(f"| {name} | {rounds} | {PROCESSES * THREADS} | {won} | {time.monotonic() - begun:.0f} |", flush=True)


if __name__ == "__main__":
    threading.stack_size(1 << 20)
    main()
