"""TPC-H as a pipeline on Spark: raw files to bronze, silver and gold, each layer tables of refdelta.

Raw files stream into bronze. From there changed and new orders and line items are merged into silver, and deleted
orders out of it, while OPTIMIZE and corrections run on silver's line items, too. Gold is six of TPC-H's queries.
Afterwards the same with delta-spark, in a session of its own. Then every table's rows are compared, and silver's with
what DuckDB makes of the raw files. Wrong rows make the exit status 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline import judge
from pipeline.engines import JAVA_OPTIONS, DeltaSpark, Engine, Refdelta
from pipeline.raw import MOST_REFRESHES, generate
from pipeline.report import Ran, Report, histories
from pipeline.stages import Pipeline
from pipeline.watch import Watch
from refdelta.crosscheck import oracle
from refdelta.errors import DeltaError

BENCH = Path(__file__).resolve().parents[1]


def main(given: Sequence[str] | None = None) -> int:
    """Run the pipeline; the exit status.

    It runs in a process of its own, and in a group of processes, so that whoever ends it leaves neither processes nor
    files: Spark itself cannot be interrupted without much ado.
    """
    arguments = _arguments(given)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    arguments.scratch.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="pipeline-", dir=arguments.scratch)).resolve()
    os.environ["TMPDIR"] = str(folder)
    process = multiprocessing.get_context("spawn").Process(target=_alone, args=(folder, arguments))
    try:
        process.start()
        process.join()
    except KeyboardInterrupt:
        print("\nstopped" if sys.stderr.isatty() else "stopped", file=sys.stderr)
        return 130
    finally:
        _end(process)
        shutil.rmtree(folder, ignore_errors=True)
    return process.exitcode or 0


def _end(process: Any) -> None:
    """End a process, if it runs, and all that it has started."""
    if process.pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()  # it may have no group yet
        process.join()


def _alone(folder: Path, arguments: argparse.Namespace) -> None:
    os.setsid()  # a terminal's Ctrl-C reaches the first process only
    sys.exit(work(folder, arguments))


def work(folder: Path, arguments: argparse.Namespace) -> int:
    """Run it in an empty folder, and tell what came of it; the exit status."""
    try:
        report = run(folder, arguments)
    except DeltaError as error:
        print(f"pipeline: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        arguments.json.write_text(json.dumps(report.as_json(), indent=1))
    report.show()
    return 1 if report.wrong else 0


def run(folder: Path, arguments: argparse.Namespace) -> Report:
    """The engines' runs, and how their tables compare."""
    refreshes = arguments.refreshes
    watch = Watch()
    with contextlib.ExitStack() as stack:
        stack.enter_context(watch.drawn())
        with watch.stage("", "raw files"):
            raw = generate(folder, arguments.scale, refreshes)
        root, options, where = str(folder / "refdelta"), {}, "on the local disk"
        if arguments.s3:
            root, options = stack.enter_context(_s3())
            where = f"in {root} of a versitygw"
        ours, theirs = Refdelta(root, options), DeltaSpark(str(folder / "delta-spark"))
        ran = {}

        def pipeline(engine: Engine, spark: Any) -> None:
            done = Pipeline(engine, spark, raw, folder / f"of-{engine.name}", refreshes, watch).run()
            watch.tell = str
            ran[engine.name] = Ran(done, histories(engine, spark))

        with _session(ours, arguments.memory, watch) as spark:
            pipeline(ours, spark)
        with watch.stage("", "comparison"):
            compared = list(judge.with_duckdb(ours, raw, refreshes))
        if not arguments.alone:
            with _session(theirs, arguments.memory, watch) as spark:
                pipeline(theirs, spark)
                with watch.stage("", "comparison"):
                    compared += judge.with_delta_spark(spark, ours, theirs, folder)
    return Report(arguments.scale, refreshes, raw, where, ran, compared)


@contextlib.contextmanager
def _session(engine: Engine, memory: str, watch: Watch) -> Iterator[Any]:
    """A Spark of its own for an engine, whose Java leaves its files where Python does."""
    conf = {**engine.conf, JAVA_OPTIONS: f'{engine.conf[JAVA_OPTIONS]} "-Djava.io.tmpdir={tempfile.gettempdir()}"'}
    with contextlib.ExitStack() as stack:
        with watch.stage(engine.name, "start of Spark"):
            spark = stack.enter_context(oracle.session(memory=memory, conf=conf))
        yield spark


@contextlib.contextmanager
def _s3() -> Iterator[tuple[str, Mapping[str, str]]]:
    """A fresh folder in a bucket of a versitygw that runs as long as the block, and what opens it."""
    sys.path.insert(0, str(BENCH.parent / "tests"))  # where the servers are started
    from servers.install import ServerUnavailableError
    from servers.running import S3Server

    try:
        server = S3Server().start()
    except ServerUnavailableError as error:
        raise SystemExit(f"pipeline: {error}") from None
    try:
        place = server.place("tables")
        yield place.uri, place.options
    finally:
        server.stop()


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("pipeline", description=__doc__)
    parser.add_argument("--scale", type=float, default=0.02, help="of TPC-H; 1 has 6 million line items (default 0.02)")
    parser.add_argument("--refreshes", type=int, default=2, help="how many refresh sets (default 2)")
    parser.add_argument("--alone", action="store_true", help="without delta-spark")
    parser.add_argument("--s3", action="store_true", help="refdelta's tables on S3: versitygw is started for it")
    parser.add_argument("--memory", default="2g", help="of Spark's Java process (default 2g)")
    parser.add_argument("--scratch", type=Path, default=BENCH / "data", help="where all files are for the time of it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there, too")
    arguments = parser.parse_args(given)
    if not 1 <= arguments.refreshes <= MOST_REFRESHES:
        parser.error(f"--refreshes is 1 to {MOST_REFRESHES}")
    if arguments.scale <= 0:
        parser.error("--scale is more than 0")
    return arguments
