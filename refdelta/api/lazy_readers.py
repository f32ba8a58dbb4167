"""Lazy readers: a table as a Polars ``LazyFrame``, a DuckDB relation, a pyarrow ``Dataset``.

The table's plan leaves files out. The other library reads the files itself where it reads them right; it applies its
own conditions to the rows again, so that a condition that is not understood here costs time and never rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pt

from refdelta.api.polars_conditions import condition_of
from refdelta.arguments import missing_package
from refdelta.engine.parquet.dv import to_positions
from refdelta.engine.scan.filters import BoundFilter, informed
from refdelta.engine.scan.foreign import POLARS, ForeignFiles, grouped
from refdelta.engine.scan.origin import mark, note
from refdelta.engine.scan.reader import deleted_rows
from refdelta.engine.scan.scan import check_whole, missing_files, plan_scan, scan_files
from refdelta.engine.work.executor import at_most
from refdelta.expressions.sql import parse_predicate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import duckdb
    import polars as pl

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.engine.scan.foreign import ForeignFile
    from refdelta.engine.scan.scan import Scan

_ROW = "row\n"
_BATCH_ROWS = 2**16
_TOGETHER_BYTES = 2**27  # of the files of several plans, which Polars reads as a whole, beside each other
_AT_ONCE = 64  # plans at most
_FEW = 50_000  # deleted rows, of which Polars compares each batch with a list


def _foreign(scan: Scan) -> ForeignFiles:
    return ForeignFiles(scan.store, scan.plan, scan_files(scan))


# --- Polars ------------------------------------------------------------------------------------------------------


def lazy_frame(snapshot: Snapshot, columns: Sequence[str] | None, filters: Any) -> pl.LazyFrame:
    """A ``LazyFrame`` over a version. Arguments and errors as for ``scan.plan_scan``."""
    try:
        import polars as pl
        from polars.io.plugins import register_io_source
    except ImportError:
        raise missing_package("to_polars", "polars") from None
    planned = plan_scan(snapshot, columns, filters)
    check_whole(planned, "Polars")
    empty = pl.DataFrame(_no_rows(planned.schema))

    def source(
        wanted: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, _batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        chosen = planned.schema.names if wanted is None else wanted
        left = n_rows
        for frame in _frames(snapshot, planned, chosen, filters, predicate, n_rows, empty.schema):
            if left is not None:
                yield frame.head(left)
                left -= frame.height
                if left <= 0:
                    return
            else:
                yield frame

    # The plan of a frame that is made of this one has the function, and by it the version.
    return register_io_source(mark(source, [snapshot]), schema=empty.schema, is_pure=True)


def _no_rows(schema: pa.Schema) -> pa.Table:
    """A table without rows; ``Schema.empty_table`` does not know variants."""
    return pa.Table.from_batches([], schema)


def _frames(
    snapshot: Snapshot,
    planned: Scan,
    columns: Sequence[str],
    filters: Any,
    predicate: pl.Expr | None,
    n_rows: int | None,
    kinds: Any,
) -> Iterator[pl.DataFrame]:
    """The rows of columns that meet a condition, at least ``n_rows`` of them if there are so many."""
    import polars as pl

    sql = None if predicate is None else condition_of(predicate, snapshot.schema, planned.schema.names)
    scan = plan_scan(snapshot, columns, filters)
    pruned = scan if sql is None else _pruned(scan, sql)
    foreign = _foreign(pruned)
    with missing_files(scan.store, snapshot.version):
        read_by_polars = bool(columns and foreign.files) and foreign.problem(POLARS) is None
    if read_by_polars:
        planned_files = _plans(pruned, foreign.found, kinds)
        for chunk in at_most(planned_files, lambda one: max(one[1], _TOGETHER_BYTES // _AT_ONCE), _TOGETHER_BYTES):
            plans = [plan if predicate is None else plan.filter(predicate) for plan, _ in chunk]
            if len(plans) > 1 and n_rows is None:
                # Polars reads a plan after the other of a concatenation, and these beside each other.
                yield from pl.collect_all(plans, engine="streaming")
                continue
            read = pl.concat(plans) if len(plans) > 1 else plans[0]
            read = read if n_rows is None else read.head(n_rows)
            yield from read.collect_batches(chunk_size=_BATCH_ROWS)
        return
    # The scan applies what is understood of the condition, too, unless that is another kind of filter.
    if sql is not None and (filters is None or isinstance(filters, str)):
        pruned = plan_scan(snapshot, columns, sql if filters is None else f"({filters}) AND ({sql})")
    for batch in pruned.to_batches():
        rows = pa.table(batch)
        frame = pl.DataFrame(rows) if rows.num_columns else pl.DataFrame(height=rows.num_rows)
        yield frame if predicate is None else frame.filter(predicate)


def _pruned(scan: Scan, sql: str) -> Scan:
    """The same rows, without files that cannot meet a condition."""
    snapshot = scan.snapshot
    condition = informed(BoundFilter(parse_predicate(sql, snapshot.schema)), snapshot)
    found = condition.prune(scan.files, snapshot.schema, snapshot.partition_columns)
    return replace(scan, files=scan.files.filter(found.keep))


def _plans(scan: Scan, found: Sequence[ForeignFile], kinds: Any) -> Iterator[tuple[pl.LazyFrame, int]]:
    """The live rows of files, each read once by Polars, and the size of the files in bytes.

    A file with deleted rows has a plan of its own, since rows are numbered through all files of a plan: the numbers of
    its rows do not depend on any count of another file's rows.
    """
    for group in grouped(found):
        for files in [group] if group[0].file.deletion_vector is None else [[one] for one in group]:
            yield _plan(scan, files, kinds), sum(one.file.size or _TOGETHER_BYTES for one in files)


def _plan(scan: Scan, group: Sequence[ForeignFile], kinds: Any) -> pl.LazyFrame:
    """The live rows of files of one kind, or of a file with deleted rows, read by Polars."""
    import polars as pl

    first, deleted = group[0], group[0].file.deletion_vector is not None
    stored, chosen = {}, []
    for item, name in zip(scan.plan.read, first.names, strict=True):
        kind = kinds[item.name]
        if name is not None:
            stored[name] = kind
            chosen.append(pl.col(name).alias(item.name))
        else:
            value = first.file.partition_values.get(item.name)
            one = pa.nulls(1, scan.schema.field(item.name).type) if value is None else pa.array([value], value.type)
            chosen.append(pl.lit(pl.Series(one)).first().cast(kind).alias(item.name))
    files = pl.scan_parquet(
        [str(one.path) for one in group],
        schema=stored or None,
        extra_columns="ignore",
        missing_columns="insert",
        glob=False,
        hive_partitioning=False,
        row_index_name=_ROW if deleted or not stored else None,
    )
    if deleted:
        files = _without(files, to_positions(deleted_rows(scan.store, first.file)))
    return files.with_columns(chosen).select(item.name for item in scan.plan.read)  # constants alone have one row


def _without(files: pl.LazyFrame, positions: pa.Array) -> pl.LazyFrame:
    import polars as pl

    deleted = pl.Series(_ROW, positions).cast(pl.get_index_type())
    if len(deleted) <= _FEW:
        return files.filter(~pl.col(_ROW).is_in(deleted.implode()))
    return files.join(deleted.to_frame().lazy(), on=_ROW, how="anti", maintain_order="left")


# --- DuckDB ------------------------------------------------------------------------------------------------------


def relation(snapshot: Snapshot, connection: Any, name: str | None) -> duckdb.DuckDBPyRelation:
    """A DuckDB relation over a version: of the files, or of a dataset, or else of a stream."""
    try:
        import duckdb
    except ImportError:
        raise missing_package("to_duckdb", "duckdb") from None
    chosen = duckdb.default_connection() if connection is None else connection
    scan = plan_scan(snapshot)
    foreign = _foreign(scan)
    with missing_files(scan.store, snapshot.version):
        reads = foreign.duckdb_reads
    if reads == "files" and foreign.files:
        source: Any = _read_parquet(chosen, scan, foreign.found)
    else:
        source = chosen.from_arrow(scan if reads == "stream" else _dataset(scan, foreign))
    # DuckDB reads in threads of its own, but it plans a query in the thread that asks for it. It finds that nothing
    # joins, so that the plan has no trace of this.
    origin = chosen.from_arrow(_Origin(snapshot)).filter("false").set_alias("origin")
    source = source.join(origin, "false", how="anti")
    if name is not None:
        chosen.register(name, source)
        source = chosen.table(name)
    return source  # type: ignore[no-any-return]


class _Origin:
    """A stream without rows, by whose schema DuckDB tells that it plans a query with rows of a version. It plans one in
    the thread that begins to read the result.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __arrow_c_schema__(self) -> object:
        note(self._snapshot)
        return pa.schema({"origin": pa.null()}).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        note(self._snapshot)
        return _no_rows(pa.schema({"origin": pa.null()})).__arrow_c_stream__(requested_schema)


def _dataset(scan: Scan, foreign: ForeignFiles) -> Any:
    from refdelta.api.datasets import dataset_over  # with pyarrow.dataset, which the other readers do not need

    return dataset_over(scan, foreign)


def _read_parquet(connection: Any, scan: Scan, found: Sequence[ForeignFile]) -> Any:
    """The live rows of files, read by DuckDB."""
    kinds = [str(kind) for kind in connection.from_arrow(_no_rows(scan.schema)).types]
    names = ", ".join(_name(name) for name in scan.schema.names)
    groups = grouped(found)
    whole = [_select(scan, group, kinds, "") for group in groups if group[0].file.deletion_vector is None]
    parts = [connection.sql(" UNION ALL ".join(whole))] if whole else []
    hidden = [group for group in groups if group[0].file.deletion_vector is not None]
    if hidden:
        own = ", filename, file_row_number"
        rows = connection.sql(" UNION ALL ".join(_select(scan, group, kinds, own) for group in hidden))
        deleted = connection.from_arrow(_deleted(scan, [one for group in hidden for one in group]))
        met = "live.filename = gone.path AND live.file_row_number = gone.position"
        live = rows.set_alias("live").join(deleted.set_alias("gone"), met, how="anti")
        parts.append(live.project(names))
    return parts[0] if len(parts) == 1 else parts[0].union(parts[1])


def _select(scan: Scan, group: Sequence[ForeignFile], kinds: Sequence[str], more: str) -> str:
    first, chosen = group[0], []
    for item, name, kind in zip(scan.plan.read, first.names, kinds, strict=True):
        value = _name(name) if name is not None else _literal(first.file.partition_values.get(item.name))
        if pt.is_floating(scan.schema.field(item.name).type) and name is not None:
            # Statistics of Parquet do not cover NaN, by which DuckDB would leave out row groups that have it.
            value = f"CASE WHEN isnan({value}) THEN 'nan' ELSE {value} END"
        chosen.append(f"CAST({value} AS {kind}) AS {_name(item.name)}")
    paths = ", ".join(_quoted(str(one.path)) for one in group)
    options = "hive_partitioning=false" + (", filename=true, file_row_number=true" if more else "")
    return f"SELECT {', '.join(chosen)}{more} FROM read_parquet([{paths}], {options})"  # noqa: S608 - all is quoted


def _deleted(scan: Scan, files: Sequence[ForeignFile]) -> pa.Table:
    positions = [to_positions(deleted_rows(scan.store, one.file)).cast(pa.int64()) for one in files]
    numbers = [pa.repeat(pa.scalar(index, pa.int32()), len(part)) for index, part in enumerate(positions)]
    paths = pa.array([one.path for one in files])
    chunks = [pa.DictionaryArray.from_arrays(part, paths) for part in numbers]
    return pa.table({"path": pa.chunked_array(chunks), "position": pa.chunked_array(positions)})


def _name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _literal(value: pa.Scalar | None) -> str:
    """A partition value, in a form that DuckDB casts to the column's type."""
    if value is None or not value.is_valid:
        return "NULL"
    if pt.is_binary(value.type):
        return f"from_hex('{value.as_py().hex()}')"
    if pt.is_floating(value.type):
        return _quoted(repr(value.as_py()))
    return _quoted(str(value.cast(pa.string()).as_py()))
