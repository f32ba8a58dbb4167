"""The rows of a DataFrame on the workers' disks, while a statement looks at them."""

from __future__ import annotations

import weakref
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from refdelta.core.expressions.sql_text import quoted
from refdelta.spark.buckets import ID
from refdelta.spark.failures import SparkUnavailableError, raise_again

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_LOST = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"


class Kept:
    """The rows of a DataFrame, computed once and kept on the workers' disks, each with a number. A MERGE looks at them
    several times, and what it finds must be what it found.
    """

    def __init__(self, frame: Any):
        from pyspark.sql import functions as f
        from pyspark.storagelevel import StorageLevel

        numbered = frame.select("*", f.monotonically_increasing_id().alias(ID))
        with running():
            # Before anything is found out of them: a worker that is gone meanwhile has its rows computed once more.
            self.frame = numbered.localCheckpoint(eager=True, storageLevel=StorageLevel.DISK_ONLY)
        ended = weakref.finalize(self, _release, self.frame)
        ended.atexit = False

    def columns(self, names: Iterable[str]) -> Any:
        """Some of the columns, and the numbers."""
        wanted = set(names)
        columns = [name for name in self.frame.columns if name in wanted]
        return self.frame.select(*map(quoted, columns), quoted(ID))


def _release(frame: Any) -> None:
    with suppress(Exception):  # of a session that has ended, for one
        frame._jdf.queryExecution().logical().rdd().unpersist(False)  # noqa: SLF001


@contextmanager
def running() -> Iterator[None]:
    """Around Spark's actions: errors of ours come out as what they are."""
    try:
        with raise_again():
            yield
    except Exception as error:
        if _LOST not in str(error):
            raise
        raise SparkUnavailableError(
            "a worker is gone that held rows of the MERGE's source; nothing is committed, run it again"
        ) from None
