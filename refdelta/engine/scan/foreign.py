"""Files that another engine may read itself: as they are stored, under which names, and with which rows left out.

A file is fit if its columns have the types of the table; else its rows must come through a scan. Which engine can do
what besides is said here too, so that a scan can explain it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.types as pt

from refdelta.core.table.row_tracking import kind_of
from refdelta.engine.parquet.columns import plan_columns
from refdelta.engine.parquet.files import data_errors, open_parquet
from refdelta.engine.parquet.legacy_calendar import legacy_calendar
from refdelta.engine.scan.executor import ThreadExecutor
from refdelta.errors import UnsupportedTypeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from refdelta.engine.scan.reader import ReadPlan, ScanFile
    from refdelta_storage.base import Store

POLARS, DUCKDB, PYARROW = "polars", "duckdb", "pyarrow"
_MOST_GROUPS = 128
_MOST_ROWS = 2**32 - 2
_OF_DUCKDB = {"filename", "file_row_number"}


@dataclass(frozen=True)
class ForeignFile:
    """A file that is fit.

    Attributes:
        file: the file, with its partition values and its deletion vector.
        path: its path on a local disk; None if it has none.
        rows: the number of its rows, deleted ones included.
        names: for each column of the plan, the file's column; None if the file lacks it, or for a partition column.
    """

    file: ScanFile
    path: str | None
    rows: int
    names: tuple[str | None, ...]


@dataclass(frozen=True)
class ForeignFiles:
    """The files of a scan, for another engine. Footers are read, and no rows.

    Attributes:
        store: the table's folder.
        plan: the columns that are wanted.
        files: the files.
    """

    store: Store
    plan: ReadPlan
    files: Sequence[ScanFile]

    def problem(self, engine: str) -> str | None:
        """The reason for which an engine would read these files wrongly, or not at all; None if it reads them right."""
        vectors = any(file.deletion_vector is not None for file in self.files)
        local = all(self.store.local_path(file.key) is not None for file in self.files)
        if engine == PYARROW and vectors:
            return "it has deletion vectors, which a dataset cannot apply"
        if engine != PYARROW and not local:
            return "its files are not on a local disk"
        if self.plan.row_filter is not None and engine != PYARROW:
            return "the scan has a filter on rows"
        odd = next((item.name for item in self.plan.read if kind_of(item) is not None), None)
        if odd is not None:
            return f"column {odd!r} is kept by row tracking"
        fields = self.plan.schema
        void = next((field.name for field in fields if pt.is_null(field.type)), None)
        if void is not None:
            return f"column {void!r} is void"
        if engine == POLARS and (odd := next((field.name for field in fields if _has(field.type, pt.is_map)), None)):
            return f"column {odd!r} has a map"
        if engine == DUCKDB and has_inner_floats(fields):
            return "a struct has floating-point numbers, of which DuckDB would lose NaN"
        found, problem = self._found
        if problem is not None:
            return problem
        if engine == PYARROW:
            return self._renamed(found)
        if engine == DUCKDB:
            return _not_for_duckdb(found)
        return None if sum(one.rows for one in found) < _MOST_ROWS else "it has more rows than Polars can number"

    @property
    def duckdb_reads(self) -> Literal["files", "dataset", "stream"]:
        """The source of DuckDB's rows: the files, else a pyarrow dataset, else a stream of refdelta's scan."""
        if self.problem(DUCKDB) is None:
            return "files"
        return "stream" if self.problem(PYARROW) is not None or has_inner_floats(self.plan.schema) else "dataset"

    @property
    def found(self) -> list[ForeignFile]:
        """The files, if they are fit for some engine."""
        return self._found[0]

    @cached_property
    def _found(self) -> tuple[list[ForeignFile], str | None]:
        """The files, and the reason for which one is not fit."""
        found: list[ForeignFile] = []
        executor = ThreadExecutor.for_store(self.store) if self.store.capabilities.remote else None
        looked = map(self._look, self.files) if executor is None else executor.map(self._look, list(self.files))
        for one in looked:
            if isinstance(one, str):
                return [], one
            found.append(one)
        return found, None

    def _look(self, file: ScanFile) -> ForeignFile | str:
        """One file, or the reason for which it is not fit."""
        stored = [item for item in self.plan.read if item.name not in self.plan.partition_columns]
        with data_errors(file.key), open_parquet(self.store, file.key, file.size, footer_only=True) as parquet:
            schema, rows = parquet.schema_arrow, int(parquet.metadata.num_rows)
            if len({name.lower() for name in schema.names}) < len(schema.names):
                return f"{file.key} has columns whose names differ in case alone"
            try:
                calendar = legacy_calendar(parquet.metadata)
                sources = plan_columns(schema, stored, by_id=self.plan.by_id, calendar=calendar)
            except (UnsupportedTypeError, ValueError) as error:
                return f"{file.key}: {error}"
        for item, source in zip(stored, sources, strict=True):
            if source.convert is not None:
                return f"column {item.name!r} of {file.key} is stored as another type"
        names = {item.name: source.name for item, source in zip(stored, sources, strict=True)}
        path = self.store.local_path(file.key)
        return ForeignFile(file, path, rows, tuple(names.get(item.name) for item in self.plan.read))

    def _renamed(self, found: Sequence[ForeignFile]) -> str | None:
        for one in found:
            for item, name in zip(self.plan.read, one.names, strict=True):
                if name not in (None, item.name):
                    return f"column {item.name!r} of {one.file.key} is stored as {name!r} (column mapping or case)"
        return None


def _not_for_duckdb(found: Sequence[ForeignFile]) -> str | None:
    names = {name.lower() for one in found for name in one.names if name is not None}
    if names & _OF_DUCKDB:
        return f"DuckDB has a column {min(names & _OF_DUCKDB)!r} of its own"
    if any(set(one.path or "") & set("*?[]{}") for one in found):
        return "a path has a character that DuckDB would take for a pattern"
    if len(grouped(found)) > _MOST_GROUPS:
        return f"it has more than {_MOST_GROUPS} partitions"
    return None


def has_inner_floats(schema: pa.Schema) -> bool:
    """True if a part of a nested column has floating-point numbers."""
    return any(_has(part, pt.is_floating) for field in schema for part in _parts(field.type))


def _has(kind: pa.DataType, test: Callable[[pa.DataType], bool]) -> bool:
    """True if a type, or a part of it at any depth, passes a test."""
    return test(kind) or any(_has(part, test) for part in _parts(kind))


def _parts(kind: pa.DataType) -> list[pa.DataType]:
    return [kind.field(index).type for index in range(kind.num_fields)]


def grouped(found: Sequence[ForeignFile]) -> list[list[ForeignFile]]:
    """Files that are read in one way: the same partition values and columns, and with or without deleted rows."""
    groups: dict[object, list[ForeignFile]] = {}
    for one in found:
        values = tuple(str(value) if value.is_valid else None for value in one.file.partition_values.values())
        groups.setdefault((one.names, values, one.file.deletion_vector is None), []).append(one)
    return list(groups.values())


def readers(files: ForeignFiles) -> dict[str, str]:
    """The readers of the files in ``to_polars``, ``to_duckdb`` and ``to_pyarrow_dataset``, with reasons."""
    problems = {engine: files.problem(engine) for engine in (POLARS, DUCKDB, PYARROW)}
    deleted = any(file.deletion_vector is not None for file in files.files)
    rows = ", without the rows of deletion vectors" if deleted else ""
    by_duckdb = f"read_parquet of DuckDB{rows}"
    if files.duckdb_reads != "files":
        other = "a stream of refdelta's scan" if files.duckdb_reads == "stream" else "a pyarrow dataset"
        by_duckdb = f"{other}: {problems[DUCKDB]}"
    return {
        POLARS: f"scan_parquet of Polars{rows}" if problems[POLARS] is None else f"refdelta's scan: {problems[POLARS]}",
        DUCKDB: by_duckdb,
        PYARROW: "a pyarrow dataset" if problems[PYARROW] is None else f"refused: {problems[PYARROW]}",
    }
