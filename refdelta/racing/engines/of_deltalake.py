"""deltalake in races. It writes no deletion vectors: a change of a row writes its file anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from refdelta.racing.engines import is_tuned
from refdelta.racing.engines.rivals import RivalEngine, RivalHands
from refdelta.racing.mixes import SCHEMA, Mix, Statement, first_pieces
from refdelta.racing.throughput import Acknowledged, do_merge


class DeltalakeHands(RivalHands):
    """One handle, which moves to the newest version before each change, as refdelta's does by itself."""

    def __init__(self, folder: str, mix: Mix, storage_options: Mapping[str, str], *, tuned: bool = False) -> None:
        import deltalake
        from deltalake.exceptions import CommitFailedError

        super().__init__(mix)
        self._how: dict[str, Any] = {}
        if tuned:
            self._how = {
                "commit_properties": deltalake.CommitProperties(max_commit_retries=100),
                "post_commithook_properties": deltalake.PostCommitHookProperties(
                    create_checkpoint=False, cleanup_expired_logs=False
                ),
            }
        self._deltalake = deltalake
        self.aborts = (CommitFailedError,)
        self._table = deltalake.DeltaTable(folder, storage_options=dict(storage_options))

    def append(self, rows: pa.Table) -> None:
        """Without looking for the newest version: deltalake's retries do. But they compare each commit since the
        handle's version, and one of them that deletes rows is a conflict again and again: the handle has to move.
        """
        try:
            self._deltalake.write_deltalake(self._table, rows, mode="append", **self._how)
        except self.aborts:
            self._table.update_incremental()
            raise

    def delete(self, predicate: str) -> None:
        """See :meth:`RivalHands.delete`."""
        self._table.update_incremental()
        self._table.delete(predicate, **self._how)

    def update(self, wanted: Statement) -> None:
        """See :meth:`RivalHands.update`."""
        self._table.update_incremental()
        self._table.update({"n": wanted.value}, predicate=wanted.predicate, **self._how)

    def merge(self, wanted: Statement) -> None:
        """See :meth:`RivalHands.merge`."""
        self._table.update_incremental()
        do_merge(self._table, wanted)

    def read(self, wanted: Statement) -> None:
        """See :meth:`RivalHands.read`."""
        self._table.update_incremental()
        self._table.to_pyarrow_table(filters=[("id", "in", list(wanted.ids))])

    def compact(self) -> Acknowledged | None:
        """See :meth:`RivalHands.compact`."""
        self._table.update_incremental()
        return Acknowledged(None) if self._table.optimize.compact()["numFilesAdded"] else None


class DeltalakeEngine(RivalEngine):
    """deltalake.

    Args:
        settings: ``defaults``, or ``tuned``: a hundred retries, and no checkpoint or cleanup after a commit, but for
            MERGE and OPTIMIZE.
    """

    name = module = "deltalake"
    packages = ("deltalake",)

    def __init__(self, settings: str = "defaults") -> None:
        super().__init__()
        self._tuned = is_tuned(settings)

    def prepare(self, folder: str, mix: Mix, storage_options: Mapping[str, str]) -> None:
        """See :meth:`RivalEngine.prepare`."""
        import deltalake

        schema, options = deltalake.Schema.from_arrow(SCHEMA), dict(storage_options)
        table = deltalake.DeltaTable.create(folder, schema, storage_options=options)
        for piece in first_pieces(mix):
            deltalake.write_deltalake(table, piece, mode="append")

    def open(self, folder: str, mix: Mix, storage_options: Mapping[str, str]) -> DeltalakeHands:
        """See :meth:`RivalEngine.open`."""
        return DeltalakeHands(folder, mix, storage_options, tuned=self._tuned)

    def rows(self, folder: str, storage_options: Mapping[str, str]) -> pa.Table:
        """See :meth:`RivalEngine.rows`."""
        import deltalake

        return deltalake.DeltaTable(folder, storage_options=dict(storage_options)).to_pyarrow_table()
