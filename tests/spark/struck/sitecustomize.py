"""Code that Python runs at the start of Spark's workers in the tests of tasks that run more than once.

Where ``$REFDELTA_STRUCK/armed`` is, the first worker that has written data files is killed. These are noted in
``$REFDELTA_STRUCK/left``.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path


def _struck(folder: Path, paths: list[str]) -> None:
    try:
        (folder / "armed").rename(folder / "taken")  # of several tasks one
    except FileNotFoundError:
        return
    (folder / "left").write_text("\n".join(paths))
    os.kill(os.getpid(), signal.SIGKILL)


def _install(folder: Path) -> None:
    from pyspark import TaskContext

    from refdelta.engine.parquet import write
    from refdelta.operations.layout import compaction

    real = write.write_files

    def write_files(*arguments, **options):
        adds = real(*arguments, **options)
        context = TaskContext.get()
        if adds and context is not None:
            _struck(folder, [add.path for add in adds])
        return adds

    # Appends and statements call it there, by write_changes.
    write.write_files = compaction.write_files = write_files


if os.environ.get("REFDELTA_STRUCK"):
    _install(Path(os.environ["REFDELTA_STRUCK"]))
