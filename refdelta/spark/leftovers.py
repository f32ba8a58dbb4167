"""Data files that Spark's tasks leave behind where an attempt does not count: of a worker that was killed, of a task
that was tried again, of one that Spark ran twice at a time.

The names of all files of a job hold its token and the attempt that wrote them. Which attempts count is known where the
results arrive, before anything is committed: no commit names a file of another one. They are looked for only where
Spark has seen an attempt that does not count, for a table's folder may be long.
"""

from __future__ import annotations

import logging
import time
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from refdelta.errors import StoreError
from refdelta_storage import StorageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from refdelta_storage import Store

log = logging.getLogger("refdelta")

# How long a job's tasks that do not count any more are waited for, in seconds: Spark kills them, which takes a moment.
_PATIENCE = 5.0


class JobWatch:
    """A job while it runs.

    Attributes:
        token: what the names of its files hold.
        counting: the attempts whose results arrived, as :func:`attempt` names them.
    """

    def __init__(self) -> None:
        self.token = str(uuid.uuid4())
        self.counting: set[str] = set()


@contextmanager
def watched(spark: Any, store: Store) -> Iterator[JobWatch]:
    """Run a job whose tasks write data files, and remove those that none of the results tells of.

    Args:
        spark: the session.
        store: the folder in which they write.

    Yields:
        The watch: tasks give their files names by its token, and whoever has the results notes their attempts.
    """
    watch = JobWatch()
    context = spark.sparkContext
    context.addJobTag(watch.token)
    try:
        yield watch
    except BaseException:
        with suppress(Exception):
            context.cancelJobsWithTag(watch.token)
        _ended(context, watch.token)
        remove_leftovers(store, watch.token)
        raise
    else:
        if _ended(context, watch.token):
            remove_leftovers(store, watch.token, watch.counting)
    finally:
        with suppress(Exception):  # of a session that has ended
            context.removeJobTag(watch.token)


def attempt(token: str) -> str:
    """On a worker: what names the files of this attempt at a task, unlike those of all others."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return f"{token}-{context.taskAttemptId() if context else 0}"


def remove_leftovers(store: Store, token: str, counting: Collection[str] = ()) -> None:
    """Remove the data files that a job has left behind, as far as the store lets us.

    Args:
        store: the table's folder.
        token: what their names hold. No commit may name such a file, but for those of ``counting``.
        counting: the attempts whose files stay.
    """
    kept = [f"{name}-" for name in counting]
    try:
        keys = [
            item.key
            for item in store.list()
            if token in item.key
            and not item.key.startswith("_delta_log/")
            and not any(name in item.key for name in kept)
        ]
        if keys:
            store.delete(keys)
    except (StorageError, StoreError) as error:  # invisible, and vacuum takes them
        log.warning("data files whose names hold %s may be left behind: %s", token, error)


def _ended(context: Any, token: str) -> bool:
    """Wait until no task of a job runs any more, and say whether any was tried more than once."""
    deadline = time.monotonic() + _PATIENCE
    with suppress(Exception):  # a session that has ended runs nothing
        while _running(context, token) and time.monotonic() < deadline:
            time.sleep(0.02)
        return any(
            stage.attemptId() or stage.numFailedTasks() or stage.numKilledTasks() or stage.numActiveTasks()
            for stage in _stages(context, token)
        )
    return True


def _running(context: Any, token: str) -> bool:
    jobs = [context.statusTracker().getJobInfo(job) for job in _jobs(context, token)]
    # What is known of stages is whole once the end of the job is.
    unended = any(job is not None and job.status == "RUNNING" for job in jobs)
    return unended or any(stage.numActiveTasks() for stage in _stages(context, token))


def _jobs(context: Any, token: str) -> list[int]:
    return list(context._jsc.sc().statusTracker().getJobIdsForTag(token))  # noqa: SLF001


def _stages(context: Any, token: str) -> list[Any]:
    """What Spark knows of the last attempt at each stage of a job; of those that were left out, nothing."""
    tracker, known = context.statusTracker(), context._jsc.sc().statusStore()  # noqa: SLF001
    jobs = (tracker.getJobInfo(job) for job in _jobs(context, token))
    stages = {stage for job in jobs if job is not None for stage in job.stageIds}
    return [known.lastStageAttempt(stage) for stage in sorted(stages) if tracker.getStageInfo(stage) is not None]
