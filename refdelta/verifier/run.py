"""``refdelta.verify``: a whole table against the clauses of PROTOCOL.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from refdelta.errors import DeltaError, InvalidArgumentError
from refdelta.transaction.location import open_location, with_others
from refdelta.verifier.data import DataCheck
from refdelta.verifier.log_files import list_log
from refdelta.verifier.report import Report
from refdelta.verifier.walk import Walk

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from refdelta_storage.base import Store

SAMPLE = 100
"""So many data files are read, unless another number is asked for."""


def verify(
    uri: str | os.PathLike[str],
    *,
    sample: int | None = SAMPLE,
    storage_options: Mapping[str, str] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    outside: Sequence[str | os.PathLike[str]] = (),
) -> Report:
    """Hold a whole table against PROTOCOL.md; nothing is written, and nothing of the table is believed.

    Every commit that is kept is checked by itself and against the state before it; checkpoints, checksums, compacted
    files and ``_last_checkpoint`` against that state; and of the newest version that its data files are there and as
    long as the log says, and of those that are read: columns, field ids, types, deletion vectors, statistics, row ids,
    and what the table asks of its rows. Of versions before, deletion vectors and change files that are still there are
    read, the latter against what the version has changed.

    Files are read side by side, on remote stores more than there are cores. Memory holds what the log says of the live
    and the removed files, a batch of rows for each file that is read, and the ids of rows as bitmaps.

    Args:
        uri: the table.
        sample: how many data files of the newest version are read, spread evenly over all, and likewise of older
            vectors and of change files; None for all of them, 0 to look at the log alone.
        storage_options: as for :class:`~refdelta.DeltaTable`.
        progress: called as it goes on with what is counted, how many of these are done, and how many there are.
        outside: as for :class:`~refdelta.DeltaTable`; without it, files of other folders are not looked at.

    Returns:
        The findings, each by the clause that is broken; ``report.sound`` says whether there is no error.

    Raises:
        TableNotFoundError: there is no log.
        StoreError: the store cannot be read.
        InvalidArgumentError: ``sample`` is negative.
    """
    if sample is not None and (isinstance(sample, bool) or not isinstance(sample, int) or sample < 0):
        raise InvalidArgumentError(f"sample is a number of files, or None for all, not {sample!r}")
    store = with_others(open_location(uri, storage_options), outside, storage_options)
    return verify_store(store, sample=sample, progress=progress)


def verify_store(
    store: Store, *, sample: int | None = SAMPLE, progress: Callable[[str, int, int], None] | None = None
) -> Report:
    """As :func:`verify`, of the table in a store."""
    report = Report(store.uri)
    log = list_log(store)
    report.newest = log.newest
    walk = Walk(store, log, report, progress or _silent)
    state = walk.run()
    if state is None or sample == 0:
        return report
    try:
        data = DataCheck(store, state, report, progress or _silent)
    except DeltaError as error:
        report.skip(f"the data files: {error}")
        return report
    data.run(sample, walk.vectors.values(), walk.changes)
    return report


def _silent(what: str, done: int, total: int) -> None:
    del what, done, total
