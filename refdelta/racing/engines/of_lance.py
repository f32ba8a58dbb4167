"""Lance in races (the package ``pylance``): one manifest a version, put where none is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from refdelta.racing.engines.rivals import RivalEngine, RivalHands
from refdelta.racing.mixes import SCHEMA, Mix, Statement, first_pieces
from refdelta.racing.throughput import Acknowledged


class LanceConflictError(Exception):
    """Lance raises OSError for a conflict as for a broken disk; this is the former."""


class LanceHands(RivalHands):
    """One dataset, which moves to the newest version before each change."""

    aborts = (LanceConflictError,)

    def __init__(self, folder: str, mix: Mix, storage_options: Mapping[str, str]) -> None:
        import lance

        super().__init__(mix)
        self._lance, self._folder, self._options = lance, folder, dict(storage_options)
        self._set = lance.dataset(folder, storage_options=self._options)

    def append(self, rows: pa.Table) -> None:
        """See :meth:`RivalHands.append`."""
        self._do(lambda: self._lance.write_dataset(rows, self._set, mode="append"))

    def delete(self, predicate: str) -> None:
        """See :meth:`RivalHands.delete`."""
        self._do(lambda: self._newest().delete(predicate))

    def update(self, wanted: Statement) -> None:
        """An expression, or, since Lance's SQL has no CASE here, values: then the rows are read at the same version."""
        newest = self._newest()
        if len({*wanted.add}) < 2:
            self._do(lambda: newest.update({"n": wanted.value}, where=wanted.predicate))
            return
        rows = wanted.updated(newest.to_table(filter=wanted.predicate))
        self._do(lambda: newest.merge_insert("id").when_matched_update_all().conflict_retries(0).execute(rows))

    def merge(self, wanted: Statement) -> None:
        """A merge takes values and no expressions: the rows that are there are read first, at the merge's version."""
        newest = self._newest()
        merged = wanted.merged(newest.to_table(filter=wanted.predicate))
        builder = newest.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        self._do(lambda: builder.conflict_retries(0).execute(merged))

    def read(self, wanted: Statement) -> None:
        """See :meth:`RivalHands.read`."""
        self._newest().to_table(filter=wanted.predicate)

    def compact(self) -> Acknowledged | None:
        """See :meth:`RivalHands.compact`."""
        told = self._do(self._newest().optimize.compact_files)
        return Acknowledged(None) if told.files_added else None

    def _newest(self) -> Any:
        self._set.checkout_latest()  # type: ignore[no-untyped-call]
        return self._set

    def _do(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except OSError as error:
            if any(word in str(error).lower() for word in ("conflict", "contention", "concurrent writers")):
                raise LanceConflictError(str(error).partition(", /")[0]) from error
            raise


class LanceEngine(RivalEngine):
    """Lance, at its defaults."""

    name = module = "lance"
    packages = ("pylance",)

    def prepare(self, folder: str, mix: Mix, storage_options: Mapping[str, str]) -> None:
        """See :meth:`RivalEngine.prepare`."""
        import lance

        for piece in [SCHEMA.empty_table(), *first_pieces(mix)]:
            mode = "append" if piece.num_rows else "create"
            lance.write_dataset(piece, folder, mode=mode, storage_options=dict(storage_options))

    def open(self, folder: str, mix: Mix, storage_options: Mapping[str, str]) -> LanceHands:
        """See :meth:`RivalEngine.open`."""
        return LanceHands(folder, mix, storage_options)

    def rows(self, folder: str, storage_options: Mapping[str, str]) -> pa.Table:
        """See :meth:`RivalEngine.rows`."""
        import lance

        return lance.dataset(folder, storage_options=dict(storage_options)).to_table()
