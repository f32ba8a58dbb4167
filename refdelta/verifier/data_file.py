"""One data file: what its footer says, its deletion vector, and its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from refdelta.core.log.paths import data_key
from refdelta.core.pruning.stats import load_stats
from refdelta.core.table.row_tracking import MATERIALIZED
from refdelta.core.table.types import VARIANT, field_id, physical_name
from refdelta.engine.arrow.arrays import take_rows
from refdelta.engine.expressions.partition import parse_partition_column
from refdelta.engine.parquet.columns import plan_columns
from refdelta.engine.parquet.dv import kept_rows
from refdelta.engine.parquet.files import data_errors, open_parquet
from refdelta.engine.scan.char_padding import padded_column
from refdelta.engine.scan.reader import ReadPlan, ScanFile, read_file
from refdelta.errors import DataFileError, DeltaError, UnsupportedTypeError
from refdelta.verifier.report import Report
from refdelta.verifier.rules import Identity, check_nulls, check_rules
from refdelta.verifier.stable_ids import StableIds
from refdelta.verifier.statistics import StatsCheck, file_leaves
from refdelta.verifier.tracking import ID_COLUMN, VERSION_COLUMN
from refdelta.verifier.variant_stats import VariantRows
from refdelta.verifier.variants import bare, check_stored, check_values
from refdelta.verifier.vectors import read_vector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from refdelta.core.log.actions import Add
    from refdelta.core.table.types import StructField
    from refdelta.verifier.data import DataCheck

_FIELD_ID = b"PARQUET:field_id"


class FileCheck:
    """Looks at a data file. Several do so side by side: what one finds is its own until :meth:`DataCheck.run` takes it.

    Args:
        table: what all files have in common.
        add: the file.

    Attributes:
        report: what was found.
        identities: the values of identity columns.
        ids: the ids of rows.
    """

    def __init__(self, table: DataCheck, add: Add):
        self.table, self.add = table, add
        self.key = data_key(add.path, table.store.uri)
        self.stats = load_stats(add.stats)
        self.report = Report(table.report.uri)
        self.identities = Identity.of(table.state, table.schema)
        self.ids = StableIds(table.state)

    def find(self, clause: str, message: str) -> None:
        """Note a finding of the file."""
        self.report.find(clause, message, version=self.table.state.version, file=self.key)

    def run(self) -> FileCheck:
        """Note what breaks a rule."""
        try:
            rows = self._footer()
            deleted = self._deleted(rows)
            if rows is not None and deleted is not None:
                self._rows(rows, deleted)
        except DataFileError as error:
            self.find("file-7", error.reason)
        except (DeltaError, pa.ArrowException) as error:
            self.report.skip(f"{self.key}: {error}")
        return self

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
            self.report.skip(f"the rows of files: {error}")
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
            # Where rows are tracked no longer, files keep the columns of the time when they were.
            strange = [
                name
                for name in file_schema.names
                if name.lower() not in names and name not in hidden and not name.startswith(MATERIALIZED)
            ]
            if strange:
                self.find("file-2", f"its columns {', '.join(strange[:5])} are not the table's")
        else:
            self._field_ids(file_schema, names)
        if not table.shreds:
            for item in table.schema:
                at = file_schema.get_field_index(physical_name(item))
                if item.type == VARIANT and at >= 0:
                    check_stored(item, file_schema.field(at).type, self.find)
        if table.materialized:
            lacking = [item.name for item in table.partitions if physical_name(item) not in file_schema.names]
            if lacking:
                self.find("iceberg-3", f"it does not hold the partition columns {', '.join(lacking)}")

    def _field_ids(self, file_schema: pa.Schema, names: Mapping[str, StructField]) -> None:
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
        self.report.checked["vectors"] += 1
        found = read_vector(self.table.store, self.add.deletion_vector, self.find)
        if found is not None and rows is not None and found and found.max() >= rows:
            self.find("dv-8", f"its deletion vector deletes row {found.max()}, and it has {rows} rows")
        return found

    # --- the rows --------------------------------------------------------------------------------------------------

    def _rows(self, rows: int, deleted: BitMap64) -> None:
        table = self.table
        leaves = file_leaves(table.schema, table.partition_names)
        stats = self.stats if isinstance(self.stats, dict) else {}
        variants = [VariantRows(leaf.path, leaf.physical, stats, self.find) for leaf in leaves if leaf.type == VARIANT]
        live_rows = 0
        start = 0
        for batch in map(bare, read_file(table.store, self._scan_file(), self._plan())):
            stop = start + batch.num_rows
            kept = kept_rows(start, stop, deleted)
            live = batch if kept is None else take_rows(batch, pc.subtract(kept, pa.scalar(start, pa.uint64())))
            start = stop
            live_rows += live.num_rows
            self.report.checked["rows"] += live.num_rows
            for leaf in leaves:
                leaf.take(batch, live)
            if live.num_rows:
                check_nulls(table.schema, live, self.find)
                check_values(table.schema, live, self.find)
                for variant in variants:
                    variant.take(live)
                check_rules(table.rules, live, self.find, self.report)
                for identity in self.identities:
                    identity.take(live, self.find)
        if isinstance(self.stats, dict):
            vector = self.add.deletion_vector is not None
            check = StatsCheck(self.stats, vector=vector, rows=rows, find=self.find)
            for leaf in leaves:
                check.run(leaf, live_rows)
        self.ids.take(table.store, self.key, self.add, rows, deleted, self.find)

    def _plan(self) -> ReadPlan:
        return ReadPlan(
            columns=tuple(self.table.schema),
            partition_columns=self.table.partition_names,
            by_id=self.table.mode == "id",
        )

    def _scan_file(self) -> ScanFile:
        values = {}
        for item in self.table.partitions:
            text = self.add.partition_values.get(physical_name(item))
            parsed = parse_partition_column(pa.array([text], pa.string()), item.type, column=item.name)
            values[item.name] = padded_column(parsed, item)[0]
        return ScanFile(self.key, self.add.size, values)
