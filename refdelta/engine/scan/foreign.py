"""Files that another engine may read itself: as they are stored, under which names, and with which rows left out.

A file is fit if its columns have the types of the table; else its rows must come through a scan. Which engine can do
what besides is said here too, so that a scan can explain it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.types as pt

from refdelta.arrow.char_padding import padder
from refdelta.engine.parquet.columns import plan_columns
from refdelta.engine.parquet.files import data_errors, open_parquet
from refdelta.engine.parquet.legacy_calendar import legacy_calendar
from refdelta.engine.parquet.metadata import FooterForm, read_footer
from refdelta.engine.work.executor import ThreadExecutor
from refdelta.errors import UnsupportedTypeError
from refdelta.table.row_tracking import kind_of
from refdelta.table.types import every_field, physical_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from refdelta.engine.scan.reader import ReadPlan, ScanFile
    from refdelta.table.types import StructField
    from refdelta_storage.base import Store

POLARS, DUCKDB, PYARROW = "polars", "duckdb", "pyarrow"
_MOST_GROUPS = 128
_MOST_FORMS = 16  # of footers
_OF_DUCKDB = {"filename", "file_row_number"}


@dataclass(frozen=True)
class FileColumns:
    """The columns of a file for those of a plan.

    Attributes:
        names: for each column of the plan, the file's column; None if the file lacks it, or for a partition column.
        cast: a column of another type, which pyarrow alone casts; None if there is none.
        uncast: a column that pyarrow cannot cast or filter, although Parquet has the table's type; None if there is
            none.
    """

    names: tuple[str | None, ...]
    cast: str | None = None
    uncast: str | None = None


@dataclass(frozen=True)
class ForeignFile:
    """A file that is fit.

    Attributes:
        file: the file, with its partition values and its deletion vector.
        path: its path on a local disk; None if it has none.
        columns: the file's columns for those of the plan.
    """

    file: ScanFile
    path: str | None
    columns: FileColumns

    @property
    def names(self) -> tuple[str | None, ...]:
        """The names of the file's columns."""
        return self.columns.names


@dataclass(frozen=True)
class ForeignFiles:
    """The files of a scan, for another engine. Footers are read, and no rows.

    The log cannot replace the footers: it says neither how a writer spelled a column, nor its type in the file, nor
    whether dates are in the old calendar. Most files of a table have footers of one form, which is worked out once.
    A pyarrow dataset has each footer read when its file is opened, by :attr:`footers`.

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
        return self.problem_in_log(engine) or self._problem_in_footers(engine)

    def problem_in_log(self, engine: str) -> str | None:
        """Same as :meth:`problem`, but no footer is read, so that None means only that the log shows no problem."""
        vectors = any(file.deletion_vector is not None for file in self.files)
        if engine == PYARROW and vectors:
            return "it has deletion vectors, which a dataset cannot apply"
        if engine != PYARROW and not self.local:
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
        if engine == PYARROW and self.files:
            return next(filter(None, map(_mapped_name, self._stored)), None)
        return None

    def _problem_in_footers(self, engine: str) -> str | None:
        found, problem = self._found
        if problem is not None:
            return problem
        if engine == PYARROW:
            problems = (_not_for_pyarrow(one.file.key, one.columns, self.plan) for one in found)
            return next(filter(None, problems), None)
        odd = next((f"column {one.columns.cast!r} of {one.file.key}" for one in found if one.columns.cast), None)
        if odd is not None:
            return f"{odd} is stored as another type"
        if engine == DUCKDB:
            return _not_for_duckdb(found)
        return None

    @cached_property
    def paths(self) -> list[str | None]:
        """The path of each file on a local disk; None if it has none."""
        return [self.store.local_path(file.key) for file in self.files]

    @property
    def local(self) -> bool:
        """Whether all files are on a local disk."""
        return None not in self.paths

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

    @property
    def _stored(self) -> list[StructField]:
        return [item for item in self.plan.read if item.name not in self.plan.partition_columns]

    @cached_property
    def footers(self) -> Footers:
        """What is known of the files' footers."""
        return Footers(self.store, self.plan)

    @cached_property
    def _found(self) -> tuple[list[ForeignFile], str | None]:
        """The files, and the reason for which one is not fit."""
        tasks = list(zip(self.files, self.paths, strict=True))
        executor = ThreadExecutor.for_store(self.store) if self.store.capabilities.remote else None
        run = map if executor is None or self.local else executor.map

        def look(task: tuple[ScanFile, str | None]) -> ForeignFile:
            file, path = task
            return ForeignFile(file, path, self.footers.look(file.key, file.size, path))

        try:
            return [*run(look, tasks)], None
        except _UnfitFileError as error:
            return [], str(error)


def _mapped_name(item: StructField) -> str | None:
    """The reason for which pyarrow, which knows logical names only, does not find a column or a field of it."""
    if physical_name(item) != item.name:
        return f"column {item.name!r} is stored as {physical_name(item)!r} (column mapping)"
    return f"column {item.name!r} has fields by other names (column mapping)" if _has_mapped_fields(item) else None


def _not_for_pyarrow(key: str, columns: FileColumns, plan: ReadPlan) -> str | None:
    for item, name in zip(plan.read, columns.names, strict=True):
        if name not in (None, item.name):
            return f"column {item.name!r} of {key} is stored as {name!r} (column mapping or case)"
    if columns.uncast is None:
        return None
    return f"column {columns.uncast!r} of {key} is stored in a type that pyarrow cannot read as the table's"


class _UnfitFileError(Exception):
    """The reason for which a file is not fit."""


class Footers:
    """The columns of files by their footers. Footers of one form differ in their row groups only: the first one is
    parsed, and the bytes of the others are compared with it. Footers of local files are remembered; others are not,
    since each costs a request. Thread-safe.

    Args:
        store: the table's folder.
        plan: the columns that are wanted.
    """

    def __init__(self, store: Store, plan: ReadPlan):
        self._store, self._plan = store, plan
        self._stored = [item for item in plan.read if item.name not in plan.partition_columns]
        self._forms: list[tuple[FooterForm, FileColumns]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return Footers, (self._store, self._plan)  # the forms are found again

    def problem(self, key: str, size: int | None) -> str | None:
        """The reason for which pyarrow would read a file wrongly; None if it reads it right.

        Args:
            key: the file.
            size: its size in bytes by the log, or None.

        Raises:
            DataFileError: it cannot be read as Parquet.
            DataFileNotFoundError: it does not exist.
            StoreError: the store fails.
        """
        try:
            return _not_for_pyarrow(key, self.look(key, size, self._store.local_path(key)), self._plan)
        except _UnfitFileError as error:
            return str(error)

    def look(self, key: str, size: int | None, path: str | None) -> FileColumns:
        """Look at the footer of a file.

        Args:
            key: the file.
            size: its size in bytes by the log, or None.
            path: its path on a local disk, or None.

        Raises:
            _UnfitFileError: no engine but this one reads it right. Other errors as for :meth:`problem`.
        """
        if path is None:
            return self._columns(key, size, None)
        with data_errors(key):
            footer = read_footer(path)
        for form, columns in self._forms:
            if footer is not None and form.matches(footer):
                return columns
        return self._columns(key, size, footer)

    def _columns(self, key: str, size: int | None, footer: bytes | None) -> FileColumns:
        with data_errors(key), open_parquet(self._store, key, size, footer_only=True) as parquet:
            schema, metadata = parquet.schema_arrow, parquet.metadata
            if len({name.lower() for name in schema.names}) < len(schema.names):
                raise _UnfitFileError(f"{key} has columns whose names differ in case alone")
            try:
                calendar = legacy_calendar(metadata)
                sources = plan_columns(schema, self._stored, by_id=self._plan.by_id, calendar=calendar)
            except (UnsupportedTypeError, ValueError) as error:
                raise _UnfitFileError(f"{key}: {error}") from error
        cast = uncast = None
        for item, source in zip(self._stored, sources, strict=True):
            if source.convert is None or source.name is None:
                continue
            kind = schema.field(source.name).type
            if pt.is_nested(kind) and (self._plan.by_id or _has_mapped_fields(item)):
                # A field of this name may be one that was dropped.
                raise _UnfitFileError(f"column {item.name!r} of {key} has fields by other names (column mapping)")
            same = same_content(kind, source.type)
            castable = arrow_casts(kind, source.type) and not compares_views(kind)
            if calendar or padder(item) or not (same or castable):
                raise _UnfitFileError(f"column {item.name!r} of {key} is stored as another type")
            cast = cast or (None if same else item.name)
            uncast = uncast or (None if castable else item.name)
        by_name = {item.name: source.name for item, source in zip(self._stored, sources, strict=True)}
        columns = FileColumns(tuple(by_name.get(item.name) for item in self._plan.read), cast, uncast)
        form = None if footer is None or len(self._forms) >= _MOST_FORMS else FooterForm.of(footer, metadata)
        if form is not None:
            self._forms.append((form, columns))
        return columns


def _not_for_duckdb(found: Sequence[ForeignFile]) -> str | None:
    names = {name.lower() for one in found for name in one.names if name is not None}
    if names & _OF_DUCKDB:
        return f"DuckDB has a column {min(names & _OF_DUCKDB)!r} of its own"
    if any(set(one.path or "") & set("*?[]{}") for one in found):
        return "a path has a character that DuckDB would take for a pattern"
    if len(grouped(found)) > _MOST_GROUPS:
        return f"it has more than {_MOST_GROUPS} partitions"
    return None


def same_content(one: pa.DataType, other: pa.DataType) -> bool:
    """True if two types differ in the layout of strings, binaries and lists in memory, and not in Parquet."""
    known = not any(_has(kind, lambda part: isinstance(part, pa.BaseExtensionType)) for kind in (one, other))
    return known and str(_plain_layout(one)) == str(_plain_layout(other))


def arrow_casts(kind: pa.DataType, target: pa.DataType) -> bool:
    """True if a dataset of pyarrow reads a stored type as the scan does.

    A dataset casts a column, and gives null for a column or a field that a file lacks. Of fields it knows exact names
    only, and it refuses a null struct whose field may not be null. Digits below microseconds are an error there.

    Args:
        kind: the type in the file.
        target: the type of the table.
    """
    if any(isinstance(one, pa.BaseExtensionType) or pt.is_null(one) for one in (kind, target)):
        return bool(kind == target)
    if pt.is_struct(target):
        return pt.is_struct(kind) and all(_field_casts(kind, field) for field in target)
    if pt.is_map(target):
        pairs = ((kind.key_type, target.key_type), (kind.item_type, target.item_type)) if pt.is_map(kind) else ()
        return bool(pairs) and all(arrow_casts(*pair) for pair in pairs)
    if pt.is_list(target):
        return (pt.is_list(kind) or pt.is_large_list(kind)) and arrow_casts(kind.value_type, target.value_type)
    if pt.is_dictionary(kind):
        return arrow_casts(kind.value_type, target)
    return not (pt.is_nested(kind) or (pt.is_timestamp(kind) and kind.unit == "ns" and kind != target))


def _field_casts(kind: pa.StructType, wanted: pa.Field) -> bool:
    found = [field for field in kind if field.name.lower() == wanted.name.lower()]
    if not found:
        return bool(wanted.nullable)
    [field, *others] = found
    known = not others and field.name == wanted.name and (wanted.nullable or not field.nullable)
    return known and arrow_casts(field.type, wanted.type)


def _has_mapped_fields(column: StructField) -> bool:
    return any(physical_name(field) != field.name for field in every_field(column.type))


def compares_views(kind: pa.DataType) -> bool:
    """True if a filter may compare statistics of a column, or of its fields, as views, which pyarrow cannot do."""
    if pt.is_struct(kind):
        return any(compares_views(part) for part in _parts(kind))
    return bool(pt.is_string_view(kind) or pt.is_binary_view(kind))


def _plain_layout(kind: pa.DataType) -> pa.DataType:
    if pt.is_large_string(kind) or pt.is_string_view(kind):
        return pa.string()
    if pt.is_large_binary(kind) or pt.is_binary_view(kind):
        return pa.binary()
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_list_view(kind) or pt.is_large_list_view(kind):
        return pa.list_(_plain_layout(kind.value_type))
    if pt.is_struct(kind):
        return pa.struct([(part.name, _plain_layout(part.type)) for part in kind])
    return pa.map_(_plain_layout(kind.key_type), _plain_layout(kind.item_type)) if pt.is_map(kind) else kind


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
