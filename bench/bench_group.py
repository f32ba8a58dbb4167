"""Group commit: the threads of one process that commit to one table together, beside the same threads each by itself.

On S3 it is versitygw on this machine behind a proxy that makes each request late, as in bench_s3.py. The threads run in
a process of their own, since the proxy's would share their interpreter. A version cannot be put more often than
1/latency, whoever writes, and a thread cannot commit more often than 1/(2 latency), since its data file comes first.
"""

from __future__ import annotations

import io
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import fresh
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bench_log import RARELY
from contest import Engine, Goal, ahead

import refdelta
from catalog.serving import TOKEN, Served, start
from refdelta.racing.crew import Crew, Shift
from refdelta_storage import open_store
from servers.install import ServerUnavailableError
from servers.proxies import ServerProxy
from servers.running import S3Server

ROWS = 10
_SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
VECTORS = {"delta.enableDeletionVectors": "true", **RARELY}
SINGLE = "single commits"
OBSTORE = "refdelta, obstore"
TOOK = "ms a transaction"
"""Without opening the table."""


LONER = Goal("at most 1.1 x single commits", 1.1, figure=TOOK, rival=SINGLE)


def _rows(number: int) -> pa.Table:
    return pa.table({"id": np.arange(number * ROWS, (number + 1) * ROWS), "v": np.zeros(ROWS, np.int64)})


def work(uri: str, options: dict[str, str] | None, verb: str, threads: int, each: int, grouped: bool) -> dict:
    """What the threads do, in a process of its own. Tells how long the transactions took, and their CPU."""
    table = refdelta.DeltaTable(uri, storage_options=options)
    group = table.group_commit() if grouped else None
    handles = [refdelta.DeltaTable(uri, storage_options=options) for _ in range(0 if grouped else threads)]
    took: list[float] = []

    def statement(number: int):
        return lambda txn: txn.append(_rows(number)) if verb == "append" else txn.delete(f"id = {number * ROWS}")

    def run(thread: int) -> None:
        for turn in range(each):
            number = thread * each + turn
            began = time.perf_counter()
            if group and verb == "append":
                group.append(_rows(number))
            elif group:
                group.transact(statement(number))
            elif verb == "append":
                refdelta.write_deltalake(handles[thread], _rows(number), mode="append")
            else:
                handles[thread].transact(statement(number))
            took.append(time.perf_counter() - began)

    running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    cpu, began = time.process_time(), time.perf_counter()
    for one in running:
        one.start()
    for one in running:
        one.join()
    if group:
        group.close()
    seconds, used = time.perf_counter() - began, time.process_time() - cpu
    count = threads * each
    versions = refdelta.DeltaTable(uri, storage_options=options).version()
    encoding, putting = parts(uri, options)
    return {
        "transactions/s": count / seconds,
        TOOK: seconds * 1000 / count,
        "p50 ms": float(np.percentile(took, 50)) * 1000,
        "p99 ms": float(np.percentile(took, 99)) * 1000,
        "CPU ms a transaction": used * 1000 / count,
        "CPU ms of Parquet": encoding,
        "CPU ms of puts": putting * (1 + versions / count),
        "versions": float(versions),
    }


def parts(uri: str, options: dict[str, str] | None, count: int = 20) -> tuple[float, float]:
    """Milliseconds of CPU of two parts of a transaction, each done alone: a data file is encoded, and put."""
    store, rows = open_store(uri, options), _rows(0)
    began = time.process_time()
    for _ in range(count):
        out = io.BytesIO()
        pq.write_table(rows, out)
    encoded, data = time.process_time(), out.getvalue()
    for number in range(count):
        store.put_if_absent(f"_scratch/{number}", data)
    ended = time.process_time()
    store.delete([f"_scratch/{number}" for number in range(count)])
    return (encoded - began) * 1000 / count, (ended - encoded) * 1000 / count


@pytest.fixture(scope="module")
def process():
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool


@pytest.fixture(scope="module")
def slow_store():
    try:
        server = S3Server().start()
    except ServerUnavailableError as error:
        pytest.skip(str(error))
    with ServerProxy(server, delay=lambda _: 0.06) as proxy:
        yield proxy, server
    server.stop()


def _engines(process, verb, threads, each, place, options, direct, alone=1.0):
    """The group, on S3 by both clients, and single commits, of which a run may do a part only, since many threads take
    minutes: each run has a table of its own.
    """
    whole = each

    def engine(name: str, *, grouped: bool, client: str | None = None) -> Engine:
        each = whole if grouped else max(1, round(whole * alone))
        used = options if client is None else {**options, "client": client}

        def before() -> str:
            uri = place()
            made = refdelta.DeltaTable.create(uri, _SCHEMA, configuration=VECTORS, storage_options=direct)
            if verb == "delete":
                rows = pa.concat_tables([_rows(number) for number in range(threads * each)])
                refdelta.write_deltalake(made, rows, mode="append")
            return uri

        def run(uri: str) -> dict:
            return process.submit(work, uri, used, verb, threads, each, grouped).result()

        def after(uri: str) -> None:
            count = refdelta.DeltaTable(uri, storage_options=direct).count()
            assert count == threads * each * (ROWS if verb == "append" else ROWS - 1)
            if options is None:
                shutil.rmtree(uri)

        settings = "one process, a thread each"
        return Engine(name, run, before, after, settings=settings, share=each / whole)

    engines = [engine("refdelta", grouped=True), engine(SINGLE, grouped=False)]
    if options is not None and verb == "append":
        engines.append(engine(OBSTORE, grouped=True, client="obstore"))
    return engines


@pytest.mark.parametrize("threads", [1, 8])
def bench_group_appends(contest, size, process, folder, threads):
    """Appends of ten rows on the local disk."""
    each = size(smoke=3, default=60 // threads, full=400 // threads)

    def place() -> str:
        return tempfile.mkdtemp(dir=folder)

    contest.run(
        _engines(process, "append", threads, each, place, None, None),
        rounds=size(smoke=1, default=5),
        units=threads * each,
        unit="transaction",
        goals=[LONER] if threads == 1 else [ahead(SINGLE, 3, figure=TOOK)],
        writers=threads,
    )


@pytest.mark.parametrize("threads", [1, 16, 64])
def bench_group_s3_appends(contest, size, process, slow_store, threads):
    """Appends of ten rows at 60 ms a request."""
    if threads > size(smoke=16, default=64):
        pytest.skip("as many threads as a longer run has")
    proxy, server = slow_store
    each = size(smoke=2, default=8, full=30)
    alone = 1 if threads == 1 else size(smoke=1, default=4 / threads)
    goals = {
        1: [LONER],
        16: [ahead(SINGLE, 4, figure=TOOK)],
        64: [Goal("300 transactions/s", 1000 / 300, figure=TOOK), Goal("p99 under 400 ms", 400, figure="p99 ms")],
    }
    place = proxy.place()
    contest.run(
        _engines(process, "append", threads, each, lambda: proxy.place().uri, place.options, server.options(), alone),
        rounds=size(smoke=1, default=2),
        warm=size(smoke=0, default=1),
        units=threads * each,
        unit="transaction",
        goals=goals[threads],
        writers=threads,
        latency_ms=60,
    )


CLIENTS = 16


def client(url: str, grouped: bool) -> Callable[[Shift], list[tuple[int, float, float]]]:
    """One client of a server: appends ten rows at a time with one handle; the task, seconds and end of each."""
    from refdelta.catalog import UnityCatalog

    table = UnityCatalog(url, TOKEN).table("main.sales.orders")
    properties = refdelta.CommitProperties(group="intents" if grouped else None, max_commit_seconds=300)

    def work(shift: Shift) -> list[tuple[int, float, float]]:
        done = []
        while (task := shift.next()) is not None:
            began = time.monotonic()
            refdelta.write_deltalake(table, _rows(task), mode="append", commit_properties=properties)
            done.append((task, time.monotonic() - began, time.monotonic()))
        return done

    return work


def _served(crew: Crew, folder, appends: int, name: str, *, grouped: bool) -> Engine:
    """Clients of a server that was started for one run."""
    running: list[Served] = []

    def before() -> str:
        from refdelta.catalog import UnityCatalog

        running.append(start(Path(tempfile.mkdtemp(dir=folder))))
        url = running[-1].url
        with UnityCatalog(url, TOKEN) as catalog:
            catalog.create_table("main.sales.orders", _SCHEMA, configuration=RARELY)
        crew.ready([partial(client, url, grouped)] * CLIENTS)
        return url

    def run(url: str) -> dict:
        from refdelta.catalog import UnityCatalog

        pid = running[-1].process.pid
        began, cpu = time.monotonic(), sum(fresh.times(pid)[:2])
        done = [one for found in crew.go(tasks=appends) for one in found]
        seconds = max(end for _, _, end in done) - began
        took = [one for _, one, _ in done]
        with UnityCatalog(url, TOKEN) as catalog:
            table = catalog.table("main.sales.orders")
            assert table.count() == appends * ROWS, "an append is lost, or there twice"
            versions = table.version()
        return {
            "transactions/s": len(done) / seconds,
            TOOK: seconds * 1000 / len(done),
            "p50 ms": float(np.percentile(took, 50)) * 1000,
            "p99 ms": float(np.percentile(took, 99)) * 1000,
            "CPU ms of the server a transaction": (sum(fresh.times(pid)[:2]) - cpu) * 1000 / len(done),
            "versions": float(versions),
        }

    def after(_: str) -> None:
        served = running.pop()
        served.stop()
        shutil.rmtree(served.folder)

    return Engine(name, run, before, after, settings="SQLite, staged commits on the local disk, a process each")


def bench_group_served_appends(contest, size, folder):
    """Appends of ten rows by sixteen processes through ``refdelta serve``, all on this machine."""
    appends = size(smoke=32, default=160, full=1600)
    with Crew(CLIENTS) as crew:
        contest.run(
            [
                _served(crew, folder, appends, "refdelta", grouped=True),
                _served(crew, folder, appends, SINGLE, grouped=False),
            ],
            rounds=size(smoke=1, default=2),
            units=appends,
            unit="transaction",
            goals=[Goal("300 transactions/s", 1000 / 300, figure=TOOK)],
            writers=CLIENTS,
        )


def bench_group_s3_deletes(contest, size, process, slow_store):
    """DELETEs of different rows of one file, by sixteen threads at 60 ms a request."""
    proxy, server = slow_store
    threads, each = size(smoke=4, default=16), size(smoke=1, default=3, full=10)
    place = proxy.place()
    contest.run(
        _engines(process, "delete", threads, each, lambda: proxy.place().uri, place.options, server.options(), 1 / 3),
        rounds=size(smoke=1, default=2),
        warm=size(smoke=0, default=1),
        units=threads * each,
        unit="transaction",
        goals=[ahead(SINGLE, 10, figure=TOOK)],
        writers=threads,
        latency_ms=60,
    )
