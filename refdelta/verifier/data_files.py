"""Data files: existence and size, footer, deletion vector and rows; deletion vectors of older versions."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from refdelta.arrow.arrays import take_rows
from refdelta.arrow.char_padding import padded_column
from refdelta.arrow.partition import parse_partition_column
from refdelta.core.log.paths import ELSEWHERE, data_key
from refdelta.core.rows.deletion_vector import (
    FILE_VERSION,
    PORTABLE_MAGIC,
    AbsoluteUri,
    InlineBytes,
    RelativeKey,
    framed_range,
    locate,
    parse_bitmap,
    unframe,
)
from refdelta.engine.log.multi_root import uri_of
from refdelta.engine.parquet.columns import has_field_ids, plan_columns
from refdelta.engine.parquet.dv import kept_rows
from refdelta.engine.parquet.files import data_errors, open_parquet, store_errors
from refdelta.engine.scan.reader import ReadPlan, ScanFile, read_file
from refdelta.engine.work.executor import ThreadExecutor
from refdelta.errors import DataFileError, DeltaError, InvalidLogError, StoreError, UnsupportedTypeError
from refdelta.pruning.stats import load_stats
from refdelta.table.row_tracking import MATERIALIZED
from refdelta.table.types import VARIANT, field_id, parse_schema, physical_name
from refdelta.verifier.change_files import ChangesCheck, chosen
from refdelta.verifier.moved_rows import MovedRowsCheck
from refdelta.verifier.report import Report
from refdelta.verifier.row_rules import IdentityValues, check_nulls, check_rules, rules_of
from refdelta.verifier.row_tracking import ID_COLUMN, VERSION_COLUMN, StableIds
from refdelta.verifier.statistics import StatsCheck, file_leaves
from refdelta.verifier.variants import VariantRows, bare, check_stored, check_values
from refdelta_storage.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from refdelta.core.log.actions import Add, DeletionVectorDescriptor
    from refdelta.table.types import StructField
    from refdelta.verifier.change_files import VersionChange
    from refdelta.verifier.moved_rows import Compaction
    from refdelta.verifier.state import State
    from refdelta_storage.base import Store


@dataclass(frozen=True)
class OldVector:
    """A deletion vector that a version named, and the number of rows of its file by the log."""

    version: int
    path: str
    vector: DeletionVectorDescriptor
    rows: int | None


class DataCheck:
    """The check of the data files of a version.

    Args:
        store: the table's folder.
        state: the state of the version.
        report: takes the findings.
        progress: called after each file.
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
        self.rules = rules_of(state, self.schema, report)
        self.shreds = state.supports("variantShredding") or state.supports("variantShredding-preview")
        self.materialized = any(
            state.supports(f"icebergCompat{v}") and state.is_on(f"delta.enableIcebergCompat{v}") for v in ("V1", "V2")
        )

    def run(
        self,
        sample: int | None,
        vectors: Iterable[OldVector],
        changes: Iterable[VersionChange],
        compactions: Sequence[Compaction],
    ) -> None:
        """Check existence and size of all files, and the content of a sample of them.

        Args:
            sample: the number of files to read; None for all.
            vectors: the deletion vectors of all versions.
            changes: the versions with change files.
            compactions: the commits that record the places of rows.
        """
        changes = list(changes)
        live = self.state.files.vector_ids()
        old = [one for one in vectors if one.vector.unique_id not in live]
        sizes = self._sizes(old, [*changes, *compactions])
        files = self.state.files
        there = [row for row, path, size in files.named() if self._is_there(path, size, sizes)]
        self._files(files.actions(chosen(there, sample)))
        for one in chosen([one for one in old if self._is_left(one, sizes)], sample):
            self._vector(one)
        ChangesCheck(self.store, self.report, sizes).run(changes, sample)
        MovedRowsCheck(self.store, self.report, sizes).run(compactions, sample)

    def _sizes(self, old: Iterable[OldVector], changes: Iterable[VersionChange | Compaction]) -> dict[str, int]:
        """The sizes of the files that the log names and that exist, by key."""
        wanted = {self._key(path) for _, path, _ in self.state.files.named()}
        wanted |= {self._vector_key(one) for one in old}
        wanted |= {self._key(path) for changed in changes for path in changed.paths()}
        with store_errors("list the table"):
            return {info.key: info.size for info in self.store.list() if info.key in wanted}

    def _key(self, path: str) -> str | None:
        try:
            return data_key(path, self.store.uri)
        except InvalidLogError:
            return None  # a finding of the log already, or outside of the table

    def _is_there(self, path: str, logged: int, sizes: dict[str, int]) -> bool:
        self.report.checked["files"] += 1
        key = self._key(path)
        if key is None:
            return False
        size = sizes.get(key) if not key.startswith(ELSEWHERE) else self._elsewhere(key)
        if size is None:
            self.find("file-1", "the log names this file, and it does not exist", key)
            return False
        if size != logged:
            self.find("file-1", f"the file has {size} bytes, and the log says {logged}", key)
        return True

    def _elsewhere(self, key: str) -> int | None:
        """The size of a file in a folder that the caller named; None if it does not exist."""
        with store_errors("look for a file"):
            try:
                return self.store.head(key).size
            except ObjectNotFoundError:
                return None

    def find(self, clause: str, message: str, file: str) -> None:
        """Add a finding of a file."""
        if file.startswith(ELSEWHERE):
            file = uri_of(self.store, file)
        self.report.find(clause, message, version=self.state.version, file=file)

    def _files(self, files: list[Add]) -> None:
        """Check several files at a time. Each keeps its findings and, as bitmaps, its ids until they are merged."""
        identities, ids = IdentityValues.of(self.state, self.schema), StableIds(self.state)
        sizes = pa.chunked_array([pa.array([add.size for add in files], pa.int64())])
        looked = ThreadExecutor.for_store(self.store, sizes).map(lambda add: FileCheck(self, add).run(), files)
        for number, file in enumerate(looked, start=1):
            ids.unite(file.ids, file.find)
            for identity, own in zip(identities, file.identities, strict=True):
                identity.unite(own, file.find)
            self.report.take(file.report)
            self.progress("files", number, len(files))

    # --- vectors of older versions -----------------------------------------------------------------------------------

    def _vector_key(self, one: OldVector) -> str | None:
        try:
            place = locate(one.vector)
            if isinstance(place, RelativeKey):
                return place.key
            return data_key(place.uri, self.store.uri) if isinstance(place, AbsoluteUri) else None
        except InvalidLogError:
            return None  # a finding of the log already

    def _is_left(self, one: OldVector, sizes: dict[str, int]) -> bool:
        """True if the vector still exists: VACUUM removes vectors that no version in the log needs."""
        return one.vector.storage_type == "i" or self._vector_key(one) in sizes

    def _vector(self, one: OldVector) -> None:
        def find(clause: str, message: str) -> None:
            self.report.find(clause, message, version=one.version, file=one.path)

        self.report.checked["older vectors"] += 1
        try:
            found = read_vector(self.store, one.vector, find)
        except DeltaError as error:
            self.report.skip(f"a deletion vector of {one.path}: {error}")
            return
        if found and one.rows is not None and found.max() >= one.rows:
            find("dv-8", f"its deletion vector deletes row {found.max()}, and the file has {one.rows} rows")


# --- one file --------------------------------------------------------------------------------------------------------


_FIELD_ID = b"PARQUET:field_id"


class FileCheck:
    """The check of one data file. Several run concurrently; :meth:`DataCheck.run` merges their results.

    Args:
        table: the check of all files.
        add: the file.

    Attributes:
        report: the findings of this file.
        identities: the values of identity columns.
        ids: the ids of rows.
    """

    def __init__(self, table: DataCheck, add: Add):
        self.table, self.add = table, add
        self.key = data_key(add.path, table.store.uri)
        self.stats = load_stats(add.stats)
        self.report = Report(table.report.uri)
        self.identities = IdentityValues.of(table.state, table.schema)
        self.ids = StableIds(table.state)

    def find(self, clause: str, message: str) -> None:
        """Add a finding of this file."""
        self.report.find(clause, message, version=self.table.state.version, file=self.key)

    def run(self) -> FileCheck:
        """Report violations."""
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

    # --- footer ------------------------------------------------------------------------------------------------------

    def _footer(self) -> int | None:
        """Check the footer. Returns the number of rows, or None if the rows cannot be read."""
        with data_errors(self.key):
            parquet = open_parquet(self.table.store, self.key, footer_only=True, coerce_int96_timestamp_unit="us")
            file_schema, rows = parquet.schema_arrow, int(parquet.metadata.num_rows)
        said = self.stats.get("numRecords") if isinstance(self.stats, dict) else None
        if said is not None and said != rows:
            self.find("stats-4", f"numRecords is {said}, and the file has {rows} rows")
        self._columns(file_schema)
        if self.table.mode == "id" and file_schema.names and not has_field_ids(file_schema):
            self.find("map-4", "columns are mapped by id, and the file has no field ids")
            return None
        stored = [item for item in self.table.schema if item.name not in self.table.partition_names]
        try:
            plan_columns(file_schema, stored, by_id=self.table.mode == "id")
        except UnsupportedTypeError as error:
            self.report.skip(f"the rows of data files: {error}")
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
            # After row tracking was removed, files keep its materialized columns.
            strange = [
                name
                for name in file_schema.names
                if name.lower() not in names and name not in hidden and not name.startswith(MATERIALIZED)
            ]
            if strange:
                self.find("file-2", f"its columns {', '.join(strange[:5])} are not in the schema of the table")
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
                self.find(
                    "iceberg-3",
                    f"the file does not hold the partition columns {', '.join(lacking)}, which icebergCompat requires",
                )

    def _field_ids(self, file_schema: pa.Schema, names: Mapping[str, StructField]) -> None:
        ids = {item.name: int((item.metadata or {}).get(_FIELD_ID, -1)) for item in file_schema}
        if all(number < 0 for number in ids.values()):
            return  # written before column mapping was enabled, which is valid where columns are mapped by name
        for name, number in ids.items():
            item = names.get(name.lower())
            if item is not None and number != field_id(item):
                has = "no field id" if number < 0 else f"the field id {number}"
                self.find("map-4", f"its column {name} has {has}; the id in the schema is {field_id(item)}")

    # --- deletion vector ---------------------------------------------------------------------------------------------

    def _deleted(self, rows: int | None) -> BitMap64 | None:
        if self.add.deletion_vector is None:
            return BitMap64()
        self.report.checked["vectors"] += 1
        found = read_vector(self.table.store, self.add.deletion_vector, self.find)
        if found is not None and rows is not None and found and found.max() >= rows:
            self.find("dv-8", f"its deletion vector deletes row {found.max()}, and the file has {rows} rows")
        return found

    # --- rows --------------------------------------------------------------------------------------------------------

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


# --- deletion vectors ------------------------------------------------------------------------------------------------


def read_vector(
    store: Store, descriptor: DeletionVectorDescriptor, find: Callable[[str, str], None]
) -> BitMap64 | None:
    """The rows that a vector deletes; None, with a finding, if it cannot be read."""
    try:
        place = locate(descriptor)
        if isinstance(place, InlineBytes):
            body, name = place.data, "the inline deletion vector"
        else:
            name = data_key(place.uri, store.uri) if isinstance(place, AbsoluteUri) else place.key
            body = _framed(store, name, descriptor, find)
        if body[:4] != struct.pack("<i", PORTABLE_MAGIC):
            find("dv-3", f"{name} is not a bitmap in the portable format")
        return parse_bitmap(body, file=name, cardinality=descriptor.cardinality)
    except (DataFileError, InvalidLogError) as error:
        find("dv-2", f"{error.file or 'the descriptor'}: {error.reason}")
        return None


def _framed(store: Store, key: str, descriptor: DeletionVectorDescriptor, find: Callable[[str, str], None]) -> bytes:
    try:
        with store_errors(f"read {key}"):
            version = store.get_range(key, 0, 1)
            framed = store.get_range(key, *framed_range(descriptor))
    except StoreError as error:
        if isinstance(error.__cause__, ObjectNotFoundError):
            raise DataFileError("the log names this deletion vector, and it does not exist", file=key) from error
        raise
    if version != bytes([FILE_VERSION]):
        find("dv-3", f"{key} begins with the version byte {version.hex()}, not with {FILE_VERSION:02x}")
    return unframe(framed, descriptor.size_in_bytes, key)
