"""Lazy readers: a table as a Polars ``LazyFrame``, a DuckDB relation, a pyarrow ``Dataset``.

The table's plan leaves files out; the other library applies its own conditions to the rows again, so that a condition
that is not understood here costs time and never rows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from refdelta.core.table.char_varchar import NOTE
from refdelta.core.table.types import BYTE, INTEGER, LONG, SHORT, STRING
from refdelta.engine.parquet.columns import plan_columns
from refdelta.engine.parquet.files import data_errors, open_parquet
from refdelta.engine.parquet.legacy_calendar import legacy_calendar
from refdelta.engine.scan.scan import plan_scan, scan_files
from refdelta.errors import InvalidArgumentError, UnsupportedTypeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import duckdb
    import polars as pl

    from refdelta.core.table.types import StructType
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.engine.scan.scan import Scan

_OPERATORS = {"Eq": "=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_TURNED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_WHOLE = (BYTE, SHORT, INTEGER, LONG)
_HIGHEST = 2**63 - 1


def missing_extra(method: str, extra: str) -> InvalidArgumentError:
    """The error for a method whose optional package is not installed."""
    return InvalidArgumentError(f"{method} needs the package {extra}: pip install 'refdelta[{extra}]'")


# --- Polars ------------------------------------------------------------------------------------------------------


def lazy_frame(snapshot: Snapshot, columns: Sequence[str] | None, filters: Any) -> pl.LazyFrame:
    """A ``LazyFrame`` over a version. Arguments and errors as for ``scan.plan_scan``."""
    try:
        import polars as pl
        from polars.io.plugins import register_io_source
    except ImportError:
        raise missing_extra("to_polars", "polars") from None
    planned = plan_scan(snapshot, columns, filters)
    empty = pl.DataFrame(planned.schema.empty_table())

    def source(
        wanted: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, _batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        chosen = planned.schema.names if wanted is None else wanted
        left = n_rows
        for batch in _narrowed(snapshot, planned, chosen, filters, predicate).to_batches():
            if left is not None and left <= 0:
                return
            frame = pl.DataFrame(pa.table(batch)) if batch.num_columns else pl.DataFrame(height=batch.num_rows)
            if predicate is not None:
                frame = frame.filter(predicate)
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            yield frame

    return register_io_source(source, schema=empty.schema, is_pure=True)


def _narrowed(
    snapshot: Snapshot, planned: Scan, columns: Sequence[str], filters: Any, predicate: pl.Expr | None
) -> Scan:
    """The same rows, without the columns that are not wanted and without files that cannot meet a condition."""
    scan = plan_scan(snapshot, columns, filters)
    sql = None if predicate is None else _sql(predicate, snapshot.schema, planned.schema.names)
    if sql is None:
        return scan
    kept = set(plan_scan(snapshot, [], sql).files.column("path").to_pylist())
    keep = pa.array([path in kept for path in scan.files.column("path").to_pylist()], pa.bool_())
    return type(scan)(snapshot, scan.plan, scan.files.filter(keep), scan.predicate, scan.pruned, scan.executor)


def _sql(predicate: pl.Expr, schema: StructType, names: Sequence[str]) -> str | None:
    """A condition in SQL that follows from an expression of Polars; None if none is known."""
    try:
        tree = json.loads(predicate.meta.serialize(format="json"))
    except Exception:  # noqa: BLE001 - an expression that Polars cannot write down prunes nothing
        return None
    return _Condition(schema, frozenset(names)).of(tree)


@dataclass(frozen=True)
class _Condition:
    """Conditions in SQL from the JSON of expressions, of integers and strings; other parts may have any value."""

    schema: StructType
    names: frozenset[str]

    def of(self, node: Any) -> str | None:
        binary = node.get("BinaryExpr") if isinstance(node, dict) else None
        if not isinstance(binary, dict):
            return None
        operator, left, right = binary["op"], binary["left"], binary["right"]
        if operator in ("And", "Or"):
            parts = [self.of(left), self.of(right)]
            known = [part for part in parts if part is not None]
            if operator == "And":
                return f"({' AND '.join(known)})" if known else None
            return f"({' OR '.join(known)})" if len(known) == len(parts) else None
        if operator not in _OPERATORS:
            return None
        sign = _OPERATORS[operator]
        return self._comparison(left, sign, right) or self._comparison(right, _TURNED[sign], left)

    def _comparison(self, column: Any, sign: str, literal: Any) -> str | None:
        name = column.get("Column") if isinstance(column, dict) else None
        value = _constant(literal)
        if name not in self.names or value is None:
            return None
        found = self.schema.find(name)
        quoted = "`" + str(name).replace("`", "``") + "`"
        if found is None or NOTE in found.metadata:  # strings of char(n) are padded
            return None
        if found.type in _WHOLE and isinstance(value, int) and -_HIGHEST <= value <= _HIGHEST:
            return f"{quoted} {sign} {value}"
        if found.type == STRING and isinstance(value, str) and "\\" not in value and value.isprintable():
            text = value.replace("'", "''")
            return f"{quoted} {sign} '{text}'" if "'" not in value else None
        return None


def _constant(node: Any) -> int | str | None:
    literal = node.get("Literal") if isinstance(node, dict) else None
    for kind in ("Dyn", "Scalar"):
        value = literal.get(kind) if isinstance(literal, dict) else None
        if isinstance(value, dict) and len(value) == 1:
            ((name, constant),) = value.items()
            whole = name.startswith(("Int", "UInt")) and isinstance(constant, int) and not isinstance(constant, bool)
            if whole or (name in ("String", "Str") and isinstance(constant, str)):
                return constant  # type: ignore[no-any-return]
    return None


# --- pyarrow -----------------------------------------------------------------------------------------------------


def dataset(snapshot: Snapshot, partitions: Any = None) -> Any:
    """A pyarrow ``Dataset`` whose fragments are the live files.

    Raises:
        InvalidArgumentError: pyarrow cannot read some file of this version right; the message says why.
    """
    import pyarrow.dataset as ds
    import pyarrow.fs as pa_fs

    scan = plan_scan(snapshot, None, partitions)
    if scan.plan.row_filter is not None:
        raise InvalidArgumentError("partitions must be a condition on partition columns alone")
    problem = _unfit(snapshot, scan)
    if problem is not None:
        raise InvalidArgumentError(
            f"a pyarrow dataset cannot read this table: {problem}; use to_polars(), to_duckdb() or scan()"
        )
    read_format, files = ds.ParquetFileFormat(), pa_fs.LocalFileSystem()
    fragments = []
    for file in scan_files(scan):
        values = [
            ds.field(name) == value if value.is_valid else ds.field(name).is_null()
            for name, value in file.partition_values.items()
        ]
        condition = ds.scalar(True)
        for value in values:
            condition = condition & value
        path = scan.store.local_path(file.key)
        fragments.append(read_format.make_fragment(path, files, partition_expression=condition))
    return ds.FileSystemDataset(fragments, scan.schema, read_format, files)


def _unfit(snapshot: Snapshot, scan: Scan) -> str | None:
    """The reason for which pyarrow's dataset would read a version wrongly; None if there is none."""
    vectors = scan.files.column("deletionVector")
    if len(vectors) > vectors.null_count:
        return "it has deletion vectors, which a dataset cannot apply"
    if snapshot.column_mapping_mode != "none":
        return "it maps column names (delta.columnMapping.mode)"
    stored = [item for item in scan.plan.read if item.name not in scan.plan.partition_columns]
    for file in scan_files(scan):
        if scan.store.local_path(file.key) is None:
            return "its files are not on a local disk"
        with data_errors(file.key), open_parquet(scan.store, file.key, file.size, footer_only=True) as parquet:
            try:
                calendar = legacy_calendar(parquet.metadata)
                sources = plan_columns(parquet.schema_arrow, stored, by_id=False, calendar=calendar)
            except (UnsupportedTypeError, ValueError) as error:
                return f"{file.key}: {error}"
        for item, source in zip(stored, sources, strict=True):
            if source.convert is not None or source.name not in (None, item.name):
                return f"column {item.name!r} of {file.key} is stored under another name or type"
    return None


# --- DuckDB ------------------------------------------------------------------------------------------------------


def relation(snapshot: Snapshot, connection: Any, name: str | None) -> duckdb.DuckDBPyRelation:
    """A DuckDB relation over a version: of a dataset, into which DuckDB pushes conditions, or else of a stream."""
    try:
        import duckdb
    except ImportError:
        raise missing_extra("to_duckdb", "duckdb") from None
    chosen = duckdb.default_connection() if connection is None else connection
    scan = plan_scan(snapshot)
    source: Any = scan if _unfit(snapshot, scan) is not None else dataset(snapshot)
    if name is None:
        return chosen.from_arrow(source)
    chosen.register(name, source)
    return chosen.table(name)
