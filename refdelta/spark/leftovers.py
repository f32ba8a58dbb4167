"""Removal of data files of attempts that do not count: of killed workers, and of tasks that ran more than once.

The names of all files of a job contain its token and the attempt that wrote them. The attempts that count are known
when the results arrive, before anything is committed: no commit names a file of another attempt. The folder is searched
only where Spark reports an attempt that does not count, since listing a table may be slow.
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

# The time in seconds to wait until Spark has killed the tasks of a job that do not count any more.
_PATIENCE = 5.0


class JobWatch:
    """A running job whose tasks write data files.

    Attributes:
        token: the text that the names of its files contain.
        counting: the attempts whose results arrived, by the names of :func:`attempt`.
    """

    def __init__(self) -> None:
        self.token = str(uuid.uuid4())
        self.counting: set[str] = set()


@contextmanager
def watched(spark: Any, store: Store) -> Iterator[JobWatch]:
    """Run a job whose tasks write data files, and remove the files of attempts whose result did not arrive.

    Args:
        spark: the session.
        store: the folder of the table.

    Yields:
        The watch: its token goes into the names of files, and the caller adds the attempts of the results to it.
    """
    watch = JobWatch()
    context = spark.sparkContext
    context.addJobTag(watch.token)
    try:
        yield watch
        if _ended(context, watch.token):
            remove_leftovers(store, watch.token, watch.counting)
    except BaseException as error:
        _cancel(context, watch.token, 0.0 if isinstance(error, Exception) else _PATIENCE)
        _ended(context, watch.token)
        remove_leftovers(store, watch.token)
        raise
    finally:
        with suppress(Exception):  # of a session that has ended
            context.removeJobTag(watch.token)


def attempt(token: str) -> str:
    """On a worker: a string for the names of the files of this attempt at a task, unique among all attempts."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return f"{token}-{context.taskAttemptId() if context else 0}"


def remove_leftovers(store: Store, token: str, counting: Collection[str] = ()) -> None:
    """Remove the data files of a job that no commit names. A failure of the store is logged.

    Args:
        store: the folder of the table.
        token: the token of the job. Only files of ``counting`` may be named by a commit.
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
    except (StorageError, StoreError) as error:  # no reader sees them, and VACUUM removes them
        log.warning("data files whose names contain %s may be left for VACUUM: %s", token, error)


def _cancel(context: Any, token: str, seconds: float) -> None:
    """Cancel a job, again and again for so many seconds.

    Java continues a call whose caller was interrupted: it may begin the job, or the next stage of it, only afterwards.
    """
    deadline = time.monotonic() + seconds
    while True:
        with suppress(Exception):
            context.cancelJobsWithTag(token)
        if time.monotonic() >= deadline:
            return
        time.sleep(0.1)


def _ended(context: Any, token: str) -> bool:
    """Wait until no task of a job runs any more. Returns True if a task was tried more than once."""
    deadline = time.monotonic() + _PATIENCE
    with suppress(Exception):  # the session has ended
        while _running(context, token) and time.monotonic() < deadline:
            time.sleep(0.02)
        return any(
            stage.attemptId() or stage.numFailedTasks() or stage.numKilledTasks() or stage.numActiveTasks()
            for stage in _stages(context, token)
        )
    return True


def _running(context: Any, token: str) -> bool:
    jobs = [context.statusTracker().getJobInfo(job) for job in _jobs(context, token)]
    # The information on stages is complete once that on the end of the job is.
    unended = any(job is not None and job.status == "RUNNING" for job in jobs)
    return unended or any(stage.numActiveTasks() for stage in _stages(context, token))


def _jobs(context: Any, token: str) -> list[int]:
    return list(context._jsc.sc().statusTracker().getJobIdsForTag(token))  # noqa: SLF001


def _stages(context: Any, token: str) -> list[Any]:
    """Spark's information on the last attempt at each stage of a job, without skipped stages."""
    tracker, known = context.statusTracker(), context._jsc.sc().statusStore()  # noqa: SLF001
    jobs = (tracker.getJobInfo(job) for job in _jobs(context, token))
    stages = {stage for job in jobs if job is not None for stage in job.stageIds}
    return [known.lastStageAttempt(stage) for stage in sorted(stages) if tracker.getStageInfo(stage) is not None]
