"""Data files: that they are there, what their footers say, and their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from refdelta.engine.arrays import take_rows
from refdelta.engine.columns import plan_columns
from refdelta.engine.dv import kept_rows
from refdelta.engine.files import data_errors, open_parquet, store_errors
from refdelta.engine.partition import parse_partition_column
from refdelta.engine.reader import ReadPlan, ScanFile, read_file
from refdelta.errors import DataFileError, DeltaError, InvalidLogError, UnsupportedTypeError
from refdelta.protocol.paths import data_key
from refdelta.protocol.stats import load_stats
from refdelta.protocol.types import VARIANT, StructField, StructType, field_id, parse_schema, physical_name
from refdelta.verifier.rules import Identity, check_nulls, check_rules, rules_of
from refdelta.verifier.schemas import parts
from refdelta.verifier.stable_ids import StableIds
from refdelta.verifier.statistics import StatsCheck, file_leaves
from refdelta.verifier.tracking import ID_COLUMN, VERSION_COLUMN
from refdelta.verifier.vectors import read_vector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from refdelta.protocol.actions import Add, Cdc
    from refdelta.verifier.report import Report
    from refdelta.verifier.state import State
    from refdelta_storage.base import Store

_CHANGES = ("insert", "update_preimage", "update_postimage", "delete")
_FIELD_ID = b"PARQUET:field_id"


class DataCheck:
    """Looks at the data files of a version.

    Args:
        store: the table's folder.
        state: the version.
        report: takes the findings.
        progress: told after each file.
    """

    def __init__(self, store: Store, state: State, report: Report, progress: Callable[[str, int, int], None]):
        self.store, self.state, self.report, self.progress = store, state, report, progress
        metadata = state.metadata
        self.schema = parse_schema(metadata.schema_string if metadata else '{"type":"struct","fields":[]}')
        names = metadata.partition_columns if metadata else []
        self.partitions = [item for item in map(self.schema.find, names) if item is not None]
        self.partition_names = frozenset(item.name for item in self.partitions)
        mapped = state.supports("columnMapping")
        self.mode = str(state.property("delta.columnMapping.mode")) if mapped else "none"
        # Arrow takes no rows out of a column of variants.
        self.readable = StructType(
            tuple(item for item in self.schema if all(part.type != VARIANT for part in parts(StructType((item,)))))
        )
        self.rules = rules_of(state, self.schema, report)
        self.identities = Identity.of(state, self.schema)
        self.ids = StableIds(state)
        self.materialized = any(
            state.supports(f"icebergCompat{v}") and state.is_on(f"delta.enableIcebergCompat{v}") for v in ("V1", "V2")
        )

    def run(self, sample: int | None, changes: Iterable[Cdc]) -> None:
        """Look at all files' names and sizes, and into so many of them; into all where ``sample`` is None."""
        with store_errors("list the table"):
            sizes = {info.key: info.size for info in self.store.list()}
        there = [add for add in self.state.files.values() if self._is_there(add, sizes)]
        chosen = _chosen(there, sample)
        for number, add in enumerate(chosen, start=1):
            _File(self, add).run()
            self.progress("files", number, len(chosen))
        self._changes(_chosen(list(changes), sample), sizes)

    def _is_there(self, add: Add, sizes: dict[str, int]) -> bool:
        self.report.checked["files"] += 1
        try:
            key = data_key(add.path, self.store.uri)
        except InvalidLogError:
            return False  # a finding of the log already, or outside of the table
        size = sizes.get(key)
        if size is None:
            self.find("file-1", "the log names this file, but it does not exist", key)
            return False
        if size != add.size:
            self.find("file-1", f"it has {size} bytes, {add.size} by the log", key)
        return True

    def find(self, clause: str, message: str, file: str) -> None:
        """Note a finding of a file."""
        self.report.find(clause, message, version=self.state.version, file=file)

    def _changes(self, changes: list[Cdc], sizes: dict[str, int]) -> None:
        for cdc in changes:
            try:
                key = data_key(cdc.path, self.store.uri)
            except InvalidLogError:
                continue
            if key not in sizes:
                continue  # VACUUM takes them after a while
            try:
                with data_errors(key):
                    self._change_types(open_parquet(self.store, key), key)
            except DataFileError as error:
                self.find("cdf-4", error.reason, key)

    def _change_types(self, parquet: Any, key: str) -> None:
        self.report.checked["change files"] += 1
        if "_change_type" not in parquet.schema_arrow.names:
            self.find("cdf-4", "it has no column _change_type", key)
            return
        for batch in parquet.iter_batches(columns=["_change_type"]):
            kinds = set(pc.unique(batch.column(0).cast(pa.string())).to_pylist())
            if not kinds <= set(_CHANGES):
                self.find("cdf-4", f"its _change_type has {sorted(map(str, kinds - set(_CHANGES)))}", key)
                return


def _chosen(files: list[Any], sample: int | None) -> list[Any]:
    """So many files, spread evenly over all."""
    if sample is None or sample >= len(files):
        return files
    return [files[number * len(files) // sample] for number in range(sample)]


class _File:
    """One data file."""

    def __init__(self, table: DataCheck, add: Add):
        self.table, self.add = table, add
        self.key = data_key(add.path, table.store.uri)
        self.stats = load_stats(add.stats)

    def find(self, clause: str, message: str) -> None:
        self.table.find(clause, message, self.key)

    def run(self) -> None:
        try:
            rows = self._footer()
            deleted = self._deleted(rows)
            if rows is not None and deleted is not None:
                self._rows(rows, deleted)
        except DataFileError as error:
            self.find("file-7", error.reason)
        except (DeltaError, pa.ArrowException) as error:
            self.table.report.skip(f"{self.key}: {error}")

    # --- the footer ------------------------------------------------------------------------------------------------

    def _footer(self) -> int | None:
        """How many rows it has; None where its rows cannot be read."""
        with data_errors(self.key):
            parquet = open_parquet(self.table.store, self.key, footer_only=True, coerce_int96_timestamp_unit="us")
            file_schema, rows = parquet.schema_arrow, int(parquet.metadata.num_rows)
        said = self.stats.get("numRecords") if isinstance(self.stats, dict) else None
        if said is not None and said != rows:
            self.find("stats-4", f"numRecords is {said}, and it has {rows} rows")
        self._columns(file_schema)
        stored = [item for item in self.table.schema if item.name not in self.table.partition_names]
        try:
            plan_columns(file_schema, stored, by_id=self.table.mode == "id")
        except UnsupportedTypeError as error:
            self.table.report.skip(f"the rows of files: {error}")
            return None
        except ValueError as error:
            self.find("file-7", str(error))
            return None
        return rows

    def _columns(self, file_schema: pa.Schema) -> None:
        table = self.table
        names = {physical_name(item).lower(): item for item in table.schema}
        if table.mode == "none":
            configuration = (table.state.metadata.configuration if table.state.metadata else None) or {}
            hidden = {"_change_type", configuration.get(ID_COLUMN), configuration.get(VERSION_COLUMN)}
            strange = [name for name in file_schema.names if name.lower() not in names and name not in hidden]
            if strange:
                self.find("file-2", f"its columns {', '.join(strange[:5])} are not the table's")
        else:
            self._field_ids(file_schema, names)
        if table.materialized:
            lacking = [item.name for item in table.partitions if physical_name(item) not in file_schema.names]
            if lacking:
                self.find("iceberg-3", f"it does not hold the partition columns {', '.join(lacking)}")

    def _field_ids(self, file_schema: pa.Schema, names: dict[str, StructField]) -> None:
        ids = {item.name: int((item.metadata or {}).get(_FIELD_ID, -1)) for item in file_schema}
        if all(number < 0 for number in ids.values()):
            # Written before columns were mapped; by name that does no harm.
            if self.table.mode == "id" and ids:
                self.find("map-4", "columns are mapped by id, and it has no field ids")
            return
        for name, number in ids.items():
            item = names.get(name.lower())
            if item is not None and number != field_id(item):
                has = "no field id" if number < 0 else f"the field id {number}"
                self.find("map-4", f"its column {name} has {has}, and the table {field_id(item)}")

    # --- the vector ------------------------------------------------------------------------------------------------

    def _deleted(self, rows: int | None) -> BitMap64 | None:
        if self.add.deletion_vector is None:
            return BitMap64()
        self.table.report.checked["vectors"] += 1
        found = read_vector(self.table.store, self.add.deletion_vector, self.find)
        if found is not None and rows is not None and found and found.max() >= rows:
            self.find("dv-8", f"its deletion vector deletes row {found.max()}, and it has {rows} rows")
        return found

    # --- the rows --------------------------------------------------------------------------------------------------

    def _rows(self, rows: int, deleted: BitMap64) -> None:
        table = self.table
        leaves = file_leaves(table.readable, table.partition_names)
        live_rows = 0
        start = 0
        for batch in read_file(table.store, self._scan_file(), self._plan()):
            stop = start + batch.num_rows
            kept = kept_rows(start, stop, deleted)
            live = batch if kept is None else take_rows(batch, pc.subtract(kept, pa.scalar(start, pa.uint64())))
            start = stop
            live_rows += live.num_rows
            table.report.checked["rows"] += live.num_rows
            for leaf in leaves:
                leaf.take(batch, live)
            if live.num_rows:
                check_nulls(table.readable, live, self.find)
                check_rules(table.rules, live, self.find, table.report)
                for identity in table.identities:
                    identity.take(live, self.find)
        if isinstance(self.stats, dict):
            vector = self.add.deletion_vector is not None
            check = StatsCheck(self.stats, vector=vector, rows=rows, find=self.find)
            for leaf in leaves:
                check.run(leaf, live_rows)
        table.ids.take(table.store, self.key, self.add, rows, deleted, self.find)

    def _plan(self) -> ReadPlan:
        return ReadPlan(
            columns=tuple(self.table.readable),
            partition_columns=self.table.partition_names,
            by_id=self.table.mode == "id",
        )

    def _scan_file(self) -> ScanFile:
        values = {}
        for item in self.table.partitions:
            text = self.add.partition_values.get(physical_name(item))
            values[item.name] = parse_partition_column(pa.array([text], pa.string()), item.type, column=item.name)[0]
        return ScanFile(self.key, self.add.size, values)
