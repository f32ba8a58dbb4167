"""Data files: that they are there, and, side by side, what is in them; deletion vectors of older versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from refdelta.core.log.paths import ELSEWHERE, data_key
from refdelta.core.rows.deletion_vector import AbsoluteUri, RelativeKey, locate
from refdelta.core.table.types import parse_schema
from refdelta.engine.log.annexed import uri_of
from refdelta.engine.parquet.files import store_errors
from refdelta.engine.scan.executor import ThreadExecutor
from refdelta.errors import DeltaError, InvalidLogError
from refdelta.verifier.changes import ChangesCheck, chosen
from refdelta.verifier.data_file import FileCheck
from refdelta.verifier.report import Report
from refdelta.verifier.rules import Identity, rules_of
from refdelta.verifier.stable_ids import StableIds
from refdelta.verifier.vectors import read_vector
from refdelta_storage.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from refdelta.core.log.actions import Add, DeletionVectorDescriptor
    from refdelta.verifier.changes import Changed
    from refdelta.verifier.state import State
    from refdelta_storage.base import Store


@dataclass(frozen=True)
class OldVector:
    """A deletion vector that some version has named, and how many rows its file has by the log."""

    version: int
    path: str
    vector: DeletionVectorDescriptor
    rows: int | None


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
        self.rules = rules_of(state, self.schema, report)
        self.shreds = state.supports("variantShredding") or state.supports("variantShredding-preview")
        self.materialized = any(
            state.supports(f"icebergCompat{v}") and state.is_on(f"delta.enableIcebergCompat{v}") for v in ("V1", "V2")
        )

    def run(self, sample: int | None, vectors: Iterable[OldVector], changes: Iterable[Changed]) -> None:
        """Look at all files' names and sizes, and into so many of them; into all where ``sample`` is None.

        Args:
            sample: how many.
            vectors: those that versions before have named.
            changes: what versions with change files have changed.
        """
        changes = list(changes)
        live = {vector.unique_id for vector in (add.deletion_vector for add in self.state.files.values()) if vector}
        old = [one for one in vectors if one.vector.unique_id not in live]
        sizes = self._sizes(old, changes)
        there = [add for add in self.state.files.values() if self._is_there(add, sizes)]
        self._files(chosen(there, sample))
        for one in chosen([one for one in old if self._is_left(one, sizes)], sample):
            self._vector(one)
        ChangesCheck(self.store, self.report, sizes).run(changes, sample)

    def _sizes(self, old: Iterable[OldVector], changes: Iterable[Changed]) -> dict[str, int]:
        """The sizes of the files that the log names, as far as they are there."""
        wanted = {self._key(add.path) for add in self.state.files.values()}
        wanted |= {self._vector_key(one) for one in old}
        wanted |= {self._key(path) for changed in changes for path in changed.paths()}
        with store_errors("list the table"):
            return {info.key: info.size for info in self.store.list() if info.key in wanted}

    def _key(self, path: str) -> str | None:
        try:
            return data_key(path, self.store.uri)
        except InvalidLogError:
            return None  # a finding of the log already, or outside of the table

    def _is_there(self, add: Add, sizes: dict[str, int]) -> bool:
        self.report.checked["files"] += 1
        key = self._key(add.path)
        if key is None:
            return False
        size = sizes.get(key) if not key.startswith(ELSEWHERE) else self._elsewhere(key)
        if size is None:
            self.find("file-1", "the log names this file, but it does not exist", key)
            return False
        if size != add.size:
            self.find("file-1", f"it has {size} bytes, {add.size} by the log", key)
        return True

    def _elsewhere(self, key: str) -> int | None:
        """The size of a file in a folder that the caller named; None where it is not there."""
        with store_errors("look for a file"):
            try:
                return self.store.head(key).size
            except ObjectNotFoundError:
                return None

    def find(self, clause: str, message: str, file: str) -> None:
        """Note a finding of a file."""
        if file.startswith(ELSEWHERE):
            file = uri_of(self.store, file)
        self.report.find(clause, message, version=self.state.version, file=file)

    def _files(self, files: list[Add]) -> None:
        """Several at a time; what is kept of each until its turn are its findings and its ids, as bitmaps."""
        identities, ids = Identity.of(self.state, self.schema), StableIds(self.state)
        sizes = pa.chunked_array([pa.array([add.size for add in files], pa.int64())])
        looked = ThreadExecutor.for_store(self.store, sizes).map(lambda add: FileCheck(self, add).run(), files)
        for number, file in enumerate(looked, start=1):
            ids.unite(file.ids, file.find)
            for identity, own in zip(identities, file.identities, strict=True):
                identity.unite(own, file.find)
            self.report.take(file.report)
            self.progress("files", number, len(files))

    # --- vectors of older versions ---------------------------------------------------------------------------------

    def _vector_key(self, one: OldVector) -> str | None:
        try:
            place = locate(one.vector)
            if isinstance(place, RelativeKey):
                return place.key
            return data_key(place.uri, self.store.uri) if isinstance(place, AbsoluteUri) else None
        except InvalidLogError:
            return None  # a finding of the log already

    def _is_left(self, one: OldVector, sizes: dict[str, int]) -> bool:
        """Whether it can be read: VACUUM takes those that no version that is kept needs."""
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
            find("dv-8", f"its deletion vector deletes row {found.max()}, and it has {one.rows} rows")
