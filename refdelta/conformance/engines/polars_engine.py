"""Polars, which writes Delta tables by deltalake: ``DataFrame.write_delta`` with the modes that it has.

A transaction is one call on a handle of deltalake that was opened at ``begin``. Polars has no DELETE, UPDATE and
compaction of Delta tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refdelta.conformance.cases import Case
from refdelta.conformance.engines import EngineUnavailableError, NotSupportedError, Session
from refdelta.conformance.engines.deltalake_engine import HandleSession
from refdelta.conformance.statements import COLUMNS

if TYPE_CHECKING:
    from refdelta.conformance.statements import Statement


class Polars:
    """Polars."""

    name = "polars"
    kinds: tuple[str, ...] = ("statements",)
    unknown: tuple[type[Exception], ...] = ()

    def version(self) -> str:
        """The versions of Polars and of deltalake."""
        try:
            import deltalake
            import polars as pl
        except ImportError as error:
            raise EngineUnavailableError(f"{error.name} is not installed: pip install polars deltalake") from None
        return f"{pl.__version__} with deltalake {deltalake.__version__}"

    def open(self, case: Case, folder: Path) -> Session:
        """Make the table."""
        return HandleSession(case, folder, _run)

    def open_in_store(self, case: Case, uri: str, storage_options: Mapping[str, Any]) -> Session:
        """Make the table in a store."""
        return HandleSession(case, uri, _run, storage_options)

    def close(self) -> None:
        """Nothing is open."""


def _run(table: Any, statement: Statement) -> None:
    import polars as pl

    if statement.verb not in ("insert", "overwrite", "upsert"):
        raise NotSupportedError(f"Polars has no {statement.verb} of Delta tables")
    rows = pl.DataFrame(statement.rows, schema=dict.fromkeys(COLUMNS, pl.Int64), orient="row")
    if statement.verb == "upsert":
        names = {"predicate": "s.k = t.k", "source_alias": "s", "target_alias": "t"}
        merging = rows.write_delta(table, mode="merge", delta_merge_options=names)
        merging.when_matched_update({"a": "s.a"}).when_not_matched_insert_all().execute()
    else:
        rows.write_delta(table, mode="append" if statement.verb == "insert" else "overwrite")
