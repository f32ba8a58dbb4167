"""Spark on a cluster of this machine: a driver, a master and workers in one Java, executors in processes of their own.

All that Spark writes is in a folder of the caller's. A program that has such a session begins a session of the
operating system, too (:class:`Program`): executors and their Pythons belong to it, and are found and ended by it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from refdelta.crosscheck import oracle

TESTS = Path(__file__).resolve().parent.parent
HOOK = Path(__file__).resolve().parent / "hook"
MASTER = "local-cluster[1,1,1024]"
SECOND = "127.0.0.2"
CONF = {
    "spark.master": MASTER,
    "spark.executor.memory": "700m",
    "spark.jars.packages": "",
    "spark.sql.extensions": "",
    "spark.sql.catalog.spark_catalog": "builtin",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "3",
    # A killed executor is missed at once where its connection breaks; this is for the rest.
    "spark.executor.heartbeatInterval": "2s",
    "spark.network.timeout": "30s",
    "spark.network.timeoutInterval": "10s",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.task.maxFailures": "4",
    "spark.stage.maxConsecutiveAttempts": "10",
}
_NEEDED = 4 << 30


def missing() -> str | None:
    """What such a session lacks here, in one line; None if it can start."""
    if not Path("/proc/self/stat").exists():
        return "a Spark cluster on this machine needs Linux: its executors are found in /proc"
    if reason := oracle.availability():
        return reason
    free = int(Path("/proc/meminfo").read_text().split("MemAvailable:")[1].split()[0]) << 10
    if free < _NEEDED:
        return (
            f"a Spark cluster on this machine needs {_NEEDED >> 30} GiB of free memory, and {free >> 20} MiB are free"
        )
    return None


def home(folder: Path) -> Path:
    """A home of Spark whose workers leave their files below ``folder``: a master of this kind has no other setting."""
    import pyspark

    made = folder / "spark"
    if not made.exists():
        made.mkdir(parents=True)
        for part in Path(pyspark.__file__).parent.iterdir():
            if part.name not in {"work", "logs"}:
                (made / part.name).symlink_to(part)
    return made


@contextlib.contextmanager
def cluster(folder: Path, *, memory: str = "1g", conf: Mapping[str, str] | None = None) -> Iterator[Any]:
    """A session of two executors, each with one core, whose Pythons run the code in ``hook`` first.

    Spark starts no second attempt on a host that has the first one: the executors are on two addresses of this machine.
    """
    before = os.environ.get("SPARK_HOME")
    os.environ["SPARK_HOME"] = str(home(folder))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Each Java lives for minutes at most.
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    # Executors find the modules that this process has.
    path = os.pathsep.join([str(HOOK), *filter(None, sys.path)])
    own = {
        "spark.executorEnv.PYTHONPATH": path,
        "spark.executorEnv.REFDELTA_CHAOS": str(folder / "chaos"),
        "spark.local.dir": str(folder / "local"),
    }
    try:
        with oracle.session(memory=memory, conf={**CONF, **own, **(conf or {})}) as spark:
            if spark.sparkContext.master == MASTER:
                _second_worker(spark)
            yield spark
    finally:
        if before is None:
            del os.environ["SPARK_HOME"]
        else:
            os.environ["SPARK_HOME"] = before


def _second_worker(spark: Any) -> None:
    """Add a worker on another address, in the same Java."""
    context, jvm = spark.sparkContext, spark._jvm
    backend = context._jsc.sc().schedulerBackend()
    field = backend.getClass().getDeclaredField("masters")
    field.setAccessible(True)
    jvm.org.apache.spark.deploy.worker.Worker.startRpcEnvAndEndpoint(
        *(SECOND, 0, 0, 1, 1024, field.get(backend), None, jvm.scala.Option.empty()),
        *(context._jsc.sc().conf(), jvm.scala.Option.empty()),
    )


def processes(session: int) -> dict[int, str]:
    """The processes of a session of the operating system, with their command lines."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if os.getsid(int(entry.name)) == session:
                    found[int(entry.name)] = (
                        (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    )
    return found


def executors(session: int) -> list[int]:
    """The executors of the cluster whose driver is in a session of the operating system."""
    return sorted(pid for pid, command in processes(session).items() if "CoarseGrainedExecutorBackend" in command)


def peak(pid: int) -> int:
    """The most bytes of memory that a process had."""
    return int(Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0]) << 10


def kill(*pids: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Program:
    """A module that runs in a process, and in a session of the operating system, of its own; at the end of the block no
    process of it is left.

    Args:
        module: its name.
        folder: the folder in which it works; the rest of its output is added to the file ``output`` there.
        arguments: its further arguments.
        environment: its further variables.
    """

    def __init__(self, module: str, folder: Path, *arguments: str, environment: Mapping[str, str] | None = None):
        self.folder = folder
        command = [sys.executable, "-m", module, str(folder), *arguments]
        with (folder / "output").open("ab") as output:
            self.process = subprocess.Popen(
                command,
                cwd=TESTS,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        assert self.process.stdout
        self.process.stdout.close()

    @property
    def session(self) -> int:
        """The number of its session."""
        return self.process.pid

    def lines(self) -> Iterator[Any]:
        """The objects that it prints, one a line."""
        assert self.process.stdout
        for line in self.process.stdout:
            yield json.loads(line)

    def kill(self) -> None:
        """SIGKILL to all of its processes, until there is none."""
        kill(self.process.pid)
        self.process.wait()
        while alive := processes(self.session):
            kill(*alive)
            time.sleep(0.02)

    def said(self) -> str:
        """The end of what it said."""
        return (self.folder / "output").read_text()[-6000:]
