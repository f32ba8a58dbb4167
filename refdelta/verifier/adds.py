"""Add actions against the metadata: partition values, names in statistics, and the requirements of features."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.text_maps import TextMaps
from refdelta.core.log.actions import Add
from refdelta.engine.log.state import adds_table, to_adds
from refdelta.errors import DeltaError, InvalidLogError
from refdelta.pruning.stats import load_stats, lookup
from refdelta.table import partition_values
from refdelta.table.clustering import DOMAIN as CLUSTERING
from refdelta.table.types import VARIANT, StructField, StructType, is_nested, leaves, parse_schema, physical_name
from refdelta.verifier.metadata import clustering_paths
from refdelta.verifier.state import physical_rows
from refdelta.verifier.variants import check_form

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from refdelta.verifier.log_files import ActionLine
    from refdelta.verifier.report import Report
    from refdelta.verifier.state import State

    _Find = Callable[[str, str], None]


_MANY = 100  # adds of a commit; fewer are not worth columns


@lru_cache(maxsize=8)
def _schema(text: str) -> StructType | None:
    try:
        return parse_schema(text)
    except DeltaError:
        return None


def _is_looked_up(item: StructField) -> bool:
    """True if names or values in the statistics of a column have to be checked."""
    return physical_name(item) != item.name or any(leaf.type == VARIANT for _, leaf in leaves(StructType((item,))))


def _parses(text: str, item: StructField) -> bool:
    try:
        partition_values.parse(text, item.type, column=item.name)
    except InvalidLogError:
        return False
    return True


class AddCheck:
    """The check of adds against the metadata in force.

    Args:
        state: the state of their version.
        report: takes the findings.
    """

    def __init__(self, state: State, report: Report):
        self.state, self.report = state, report
        metadata = state.metadata
        schema = None if metadata is None else _schema(metadata.schema_string)
        self.schema = schema if schema is not None else StructType()
        names = [] if metadata is None or schema is None else metadata.partition_columns
        self.partitions = [item for item in map(self.schema.find, names) if item is not None]
        domain = state.domains.get(CLUSTERING)
        self.clustered = clustering_paths(domain) if domain is not None and state.supports("clustering") else []
        self.counted = any(
            state.supports(f"icebergCompat{v}") and state.is_on(f"delta.enableIcebergCompat{v}") for v in ("V1", "V2")
        )

    def all_files(self, where: str) -> None:
        """Check all live files: those of the checkpoint from which a walk begins."""
        for batch in self.state.files.batches():
            files = pa.Table.from_batches([batch])
            for add in to_adds(files.filter(pa.array(self._perhaps_wrong(batch)))):
                self.run(add, where, None)

    def of_commit(self, lines: Sequence[ActionLine], where: str) -> None:
        """Check the adds among the actions of a commit."""
        found = [(line.number, line.action) for line in lines if isinstance(line.action, Add)]
        if len(found) >= _MANY:
            (batch,) = adds_table([add for _, add in found]).to_batches()
            found = [found[at] for at in np.flatnonzero(self._perhaps_wrong(batch))]
        for number, add in found:
            self.run(add, where, number)

    def _perhaps_wrong(self, files: pa.RecordBatch) -> NDArray[np.bool_]:
        """For each file, False if the columns show that :meth:`run` finds nothing."""
        of_statistics = self.counted or self.clustered or any(_is_looked_up(item) for item in self.schema)
        if of_statistics:
            return np.ones(files.num_rows, bool)
        values = TextMaps.of(files["partitionValues"])
        if not self.partitions:
            return np.asarray(values.lengths > 0)
        found: NDArray[np.bool_] = values.lengths != len(self.partitions)
        for item in self.partitions:
            entries = np.asarray(pc.equal(values.keys, physical_name(item)))
            has = np.zeros(files.num_rows, bool)
            has[values.rows[entries]] = True
            found |= ~has
            texts = values.items.filter(pa.array(entries)).dictionary_encode()
            bad = [at for at, text in enumerate(texts.dictionary.to_pylist()) if not _parses(text, item)]
            if bad:
                found[values.rows[entries][np.isin(np.asarray(texts.indices.fill_null(-1)), bad)]] = True
        return found

    def run(self, add: Add, where: str, line: int | None) -> None:
        """Report violations of an add."""

        def find(clause: str, message: str) -> None:
            self.report.find(clause, message, version=self.state.version, file=where, line=line)

        for item in self.partitions:
            self._partition(add, item, find)
        known = {physical_name(item) for item in self.partitions}
        for name in add.partition_values.keys() - known:
            if self.schema.fields and not any(item.name == name for item in self.partitions):
                find("file-3", f"{add.path!r} has a partition value of {name!r}, which is not a partition column")
        self._statistics(add, find)
        if self.counted and physical_rows(add) is None:
            find("iceberg-2", f"icebergCompat is active, and {add.path!r} has no numRecords")

    def _partition(self, add: Add, item: StructField, find: _Find) -> None:
        name = physical_name(item)
        if name not in add.partition_values:
            if item.name in add.partition_values:
                find(
                    "map-5", f"the partition values of {add.path!r} have {item.name!r}, not the physical name {name!r}"
                )
            else:
                find("file-3", f"{add.path!r} has no value of the partition column {item.name!r}")
            return
        try:
            partition_values.parse(add.partition_values[name], item.type, column=item.name)
        except InvalidLogError as error:
            find("part-3", f"{add.path!r}: {error.reason}")

    def _statistics(self, add: Add, find: _Find) -> None:
        stats = load_stats(add.stats)
        if isinstance(stats, dict):
            physical = {physical_name(item) for item in self.schema}
            for part in ("minValues", "maxValues", "nullCount"):
                found = stats.get(part)
                for name in found if isinstance(found, dict) else ():
                    logical = self.schema.find(name)
                    if name not in physical and logical is not None and physical_name(logical) != logical.name:
                        find("map-5", f"{part} of {add.path!r} has {name!r}, which is not a physical name")
            check_form(stats, self.schema, find)
        for path in self.clustered:
            leaf = self._leaf(path)
            if physical_rows(add) != 0 and leaf is not None and lookup(stats, ["nullCount", *path]) is None:
                find("cluster-2", f"{add.path!r} has no statistics of the clustering column {'.'.join(path)}")

    def _leaf(self, path: tuple[str, ...]) -> StructField | None:
        here: object = self.schema
        found = None
        for name in path:
            struct = here if isinstance(here, StructType) else StructType()
            found = next((item for item in struct if physical_name(item) == name), None)
            here = None if found is None else found.type
        return None if found is None or is_nested(found.type) else found
