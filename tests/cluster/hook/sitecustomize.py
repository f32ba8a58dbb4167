"""Code that Python runs at the start of the workers of the cluster: tasks fail, die and linger.

The file ``$REFDELTA_CHAOS`` says how, as JSON: ``kind``, ``seed`` and ``share``, the part of the attempts that it
befalls. It is drawn by the seed, the number of the task and that of the attempt, before a task of refdelta begins and
after it has written.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any


def _befall(chaos: Path, task: int, attempt: int, moment: str) -> None:
    said = json.loads(chaos.read_text())
    happens = _drawn(said, task, attempt, moment)
    if happens is None:
        return
    with chaos.with_name("struck").open("a") as file:
        file.write(f"{happens} task {task}, attempt {attempt}, {moment} it has written, {time.time()}\n")
    if happens == "fail":
        if said["kind"] == "doom":
            from refdelta.errors import StoreError
            from refdelta.spark.failures import reported

            # A statement that fails for good is to say so in one sentence, which only errors of refdelta's can be.
            with reported():
                raise StoreError(f"struck {moment} in attempt {attempt}")
        raise RuntimeError(f"struck {moment} in attempt {attempt}")
    if happens == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(happens)


def _drawn(said: dict[str, Any], task: int, attempt: int, moment: str) -> str | float | None:
    """What happens to an attempt: it fails, its worker dies ("crash"), or it sleeps so many seconds."""
    dice = random.Random(f"{said['seed']}/{task}/{attempt}/{moment}")
    kind = said["kind"]
    if kind == "doom":
        return "fail" if task == said["seed"] % 2 and moment == "after" else None
    if kind == "slow":
        # Of two attempts at once either may come first.
        if task == said["seed"] % 3 and moment == ("after" if attempt else said["moment"]):
            return float(said["later" if attempt else "seconds"])
        return None
    # The last attempt succeeds.
    return kind if attempt < 3 and dice.random() < said["share"] else None


def _install(chaos: Path) -> None:
    from pyspark import TaskContext

    from refdelta.spark import executor, job, leftovers

    real, seen = leftovers.attempt, set()

    def attempt(token: str) -> str:
        found = real(token)
        context = TaskContext.get()
        moment = "after" if found in seen else "before"
        seen.add(found)
        with suppress(FileNotFoundError):  # no trouble
            if context is not None:
                _befall(chaos, context.partitionId(), context.attemptNumber(), moment)
        return found

    # A function that is pickled by its content takes it from its own module.
    leftovers.attempt = job.attempt = executor.attempt = attempt

    group = executor._TaskGroup.__call__

    def call(self: Any, tasks: Any) -> Any:
        ended = group(self, tasks)
        executor.attempt(self.token)
        return ended

    executor._TaskGroup.__call__ = call


if os.environ.get("REFDELTA_CHAOS"):
    _install(Path(os.environ["REFDELTA_CHAOS"]))
