"""What checkpoints say as structs, against what the log says as text (PROTOCOL.md, "Checkpoint Schema")."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from refdelta.core.expressions import partition_values
from refdelta.core.log.paths import same_path
from refdelta.core.pruning.stats import load_stats, lookup, statistic
from refdelta.core.table.types import (
    BOOLEAN,
    DATE,
    INTEGRAL,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    StructType,
    is_nested,
    leaves,
    parse_schema,
    physical_name,
)
from refdelta.engine.parquet.files import log_errors, open_parquet
from refdelta.errors import DeltaError
from refdelta_storage.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from refdelta.core.log.actions import Add
    from refdelta.verifier.state import State
    from refdelta_storage.base import Store

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND = 1000


class ParsedCheck:
    """Looks at the structs of a checkpoint.

    Args:
        store: the table's folder.
        state: the state of its version.
        find: takes what is wrong, and the file.
    """

    def __init__(self, store: Store, state: State, find: Callable[[str, str], None]):
        self.store, self.state, self.find = store, state, find
        try:
            schema = parse_schema(state.metadata.schema_string) if state.metadata else StructType()
        except DeltaError:
            schema = StructType()
        names = state.metadata.partition_columns if state.metadata else []
        self.partitions = [item for item in map(schema.find, names) if item is not None]
        partitioned = {physical_name(item) for item in self.partitions}
        self.leaves = [
            (path, item.type)
            for path, item in leaves(schema, physical=True)
            if path[0] not in partitioned and not is_nested(item.type)
        ]

    def run(self, keys: Iterable[str]) -> None:
        """Look at each Parquet file that lists files."""
        for key in keys:
            try:
                with log_errors(key):
                    self._file(key)
            except (DeltaError, ObjectNotFoundError):
                continue  # a finding of the checkpoint itself

    def _file(self, key: str) -> None:
        parquet = open_parquet(self.store, key)
        if "add" not in parquet.schema_arrow.names:
            return
        kind = parquet.schema_arrow.field("add").type
        names = {kind.field(i).name for i in range(kind.num_fields)}
        wanted = [name for name in ("path", "stats_parsed", "partitionValues_parsed") if name in names]
        for batch in parquet.iter_batches(4096, columns=[f"add.{name}" for name in wanted]):
            try:
                rows = batch.column("add").drop_null().to_pylist(maps_as_pydicts="lossy")
            except (ValueError, OverflowError):
                continue  # dates that Python has not
            for row in rows:
                if row.get("path") is not None:
                    self._row(row, names, key)

    def _row(self, row: dict[str, Any], names: set[str], key: str) -> None:
        live = self.state.live_at.get(same_path(row["path"]), set())
        if len(live) != 1:
            return
        add = self.state.files[next(iter(live))]
        if row.get("stats_parsed") is not None and add.stats:
            self._stats(row["stats_parsed"], add, key)
        elif "stats_parsed" not in names and add.stats and self.state.is_on("delta.checkpoint.writeStatsAsStruct"):
            self.find(f"{add.path!r} has statistics, and the checkpoint no stats_parsed", key)
        self._partitions(row.get("partitionValues_parsed"), add, key)

    def _stats(self, parsed: dict[str, Any], add: Add, key: str) -> None:
        stats = load_stats(add.stats)
        if not isinstance(stats, dict):
            return
        pairs: list[tuple[list[str], DataType]] = [(["numRecords"], _LONG)]
        pairs += [(["nullCount", *path], _LONG) for path, _ in self.leaves]
        pairs += [([part, *path], kind) for part in ("minValues", "maxValues") for path, kind in self.leaves]
        for path, kind in pairs:
            said, text = _internal(lookup(parsed, path)), lookup(stats, path)
            right = None if text is None else statistic(text, kind)
            if said is not None and right is not None and not _same(said, right, kind):
                self.find(f"{'.'.join(path)} of {add.path!r} is {said!r} in stats_parsed, {right!r} in stats", key)

    def _partitions(self, parsed: dict[str, Any] | None, add: Add, key: str) -> None:
        for item in self.partitions if parsed is not None else ():
            name = physical_name(item)
            try:
                right = partition_values.parse(add.partition_values.get(name), item.type, column=item.name)
            except DeltaError:
                continue  # a finding of the commit
            said = _internal((parsed or {}).get(name))
            if (said is None) != (right is None) or (said is not None and not _same(said, right, item.type)):
                self.find(f"{name} of {add.path!r} is {said!r} in partitionValues_parsed, by the log {right!r}", key)


_LONG = next(kind for kind, bits in INTEGRAL.items() if bits == 64)


def _internal(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
        return (moment - _EPOCH) // dt.timedelta(microseconds=1)
    if isinstance(value, dt.date):
        return (value - _EPOCH.date()).days
    return value


def _same(said: Any, right: Any, kind: DataType) -> bool:
    if kind in (TIMESTAMP, TIMESTAMP_NTZ):
        return bool(abs(said - right) < _MILLISECOND)
    if kind in INTEGRAL or kind in (STRING, DATE, BOOLEAN) or isinstance(kind, DecimalType):
        return bool(said == right)
    return True
