"""Programs on machines whose clocks are hours or days off, beside writers and readers in flight: what is young, by the
clock of the store, must not be deleted. :data:`PATHS` has everything that deletes files for their age.

``PYTHONPATH=tests python -m backends.own_clock`` runs all of them on local disk, in memory and in a catalog.
"""

from __future__ import annotations

import sys
import tempfile
import time
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

from backends.tables import VECTORS, ids, numbers, opened, write
from refdelta import CommitProperties, DeltaTable, write_deltalake
from refdelta.catalog import SqlCatalog
from refdelta.core.log.paths import SIDECARS
from refdelta.engine.log.location import open_location
from refdelta.errors import DeltaError, InvalidArgumentError
from refdelta.operations.maintenance import vacuum
from refdelta.transaction import background
from servers.running import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOUR: Final = 3_600_000_000_000
WEEK: Final = {"delta.logRetentionDuration": "interval 7 days", "delta.setTransactionRetentionDuration": "7 days"}
SHIFTS: Final = (20, 8 * 24, 40 * 24, 4000 * 24, -20, -8 * 24, -40 * 24)
"""The hours by which a clock is ahead of the store's."""


@contextmanager
def shifted(hours: float) -> Iterator[None]:
    """Let this program's clock be ahead by so many hours; that of the store is what it was."""
    by = round(hours * HOUR)
    off = SimpleNamespace(**vars(time))
    off.time_ns, off.time = lambda: time.time_ns() + by, lambda: time.time() + by / 1e9
    with _all_clocks(off):
        yield


@contextmanager
def _all_clocks(off: Any) -> Iterator[None]:
    modules = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("refdelta.") and getattr(module, "time", None) is time
    ]
    for module in modules:
        module.time = off  # type: ignore[attr-defined]
    try:
        yield
    finally:
        background.settle()
        for module in modules:
            module.time = time  # type: ignore[attr-defined]


def _tried(statement: Callable[[], Any]) -> bool:
    """Whether a statement is done; a refusal deletes nothing."""
    try:
        statement()
    except DeltaError:
        return False
    return True


def _missing(read: Callable[[], Any]) -> bool:
    try:
        read()
    except DeltaError:
        return True
    return False


# --- the paths: each is given a fresh place and hours, and says whether something young is lost ---


def vacuum_beside_an_append(place: Place, hours: float, full: bool = True) -> bool:
    write(place, numbers(1, 2, 3))
    txn = opened(place).begin()
    txn.append(numbers(7))
    with shifted(hours):
        _tried(lambda: opened(place).vacuum(dry_run=False, full=full))
    return _tried(txn.commit) and _missing(lambda: ids(place))


def vacuum_beside_a_vector(place: Place, hours: float) -> bool:
    write(place, numbers(*range(9)), configuration=VECTORS)
    with mock.patch("refdelta.engine.parquet.dv.INLINE_BYTES", 0):
        txn = opened(place).begin()
        txn.delete("id = 3")
        with shifted(hours):
            _tried(lambda: opened(place).vacuum(dry_run=False))
        return _tried(txn.commit) and _missing(lambda: ids(place))


def vacuum_beside_changes(place: Place, hours: float) -> bool:
    write(place, numbers(*range(9)), configuration={"delta.enableChangeDataFeed": "true"})
    txn = opened(place).begin()
    txn.update({"v": "1"}, predicate="id = 3")
    with shifted(hours):
        _tried(lambda: opened(place).vacuum(dry_run=False))
    return _tried(txn.commit) and _missing(lambda: opened(place).load_cdf(starting_version=0).read_all())


def vacuum_beside_a_reader(place: Place, hours: float) -> bool:
    write(place, numbers(1, 2, 3))
    opened(place).delete("id = 1")
    with shifted(hours):
        _tried(lambda: opened(place).vacuum(dry_run=False))
    return _missing(lambda: ids(place, 0))


def vacuum_after_a_removal_by_a_clock_that_is_off(place: Place, hours: float) -> bool:
    write(place, numbers(1, 2, 3))
    with shifted(hours):
        opened(place).delete("id = 1")
        opened(place).create_checkpoint()
    # The data file has been there for a month, and was removed just now.
    store = open_location(place.uri, place.options)
    (old,) = list(opened(place, 0).files()["path"].to_pylist())
    aged = vacuum.list_objects
    with mock.patch.object(vacuum, "list_objects", lambda store: _aged(aged(store), old)):
        _tried(lambda: opened(place).vacuum(dry_run=False))
    return old not in set(store.list_keys())


def _aged(objects: Any, key: str) -> Any:
    keys, times = (objects.column(name).to_pylist() for name in ("key", "mtime"))
    aged = [1 if one == key else at for one, at in zip(keys, times, strict=True)]
    return objects.set_column(2, "mtime", pa.array(aged, pa.int64()))


def vacuum_beside_a_stream(place: Place, hours: float) -> bool:
    write(place, numbers(1))
    store = open_location(place.uri, place.options)
    try:
        with store.open_output("in-flight.parquet") as stream:
            stream.write(b"half")
            stream.flush()
            with shifted(hours):
                _tried(lambda: opened(place).vacuum(dry_run=False, full=True))
    except Exception:
        return True
    return "in-flight.parquet" not in set(store.list_keys())


def restore_beside_a_vacuum(place: Place, hours: float) -> bool:
    write(place, numbers(1, 2, 3))
    opened(place).delete("id = 1")
    restored = []

    def meanwhile(*_: Any) -> None:
        with shifted(hours):
            restored.append(_tried(lambda: opened(place).restore(0)))

    now = {"retention_hours": 0, "enforce_retention_duration": False}
    with mock.patch.object(vacuum._Run, "_delete", _after(meanwhile, vacuum._Run._delete)):
        opened(place).vacuum(dry_run=False, **now)
    return restored == [True] and _missing(lambda: ids(place))


def _after(first: Callable[..., Any], then: Callable[..., Any]) -> Callable[..., Any]:
    def both(*args: Any) -> Any:
        first()
        return then(*args)

    return both


def cleanup_of_the_log(place: Place, hours: float) -> bool:
    for number in range(4):
        write(place, numbers(number), mode="append", configuration=WEEK)
    opened(place).create_checkpoint()
    with shifted(hours):
        opened(place).cleanup_metadata()
    return _missing(lambda: ids(place, 0))


def cleanup_after_a_commit(place: Place, hours: float) -> bool:
    with shifted(hours):
        for number in range(4):
            write(place, numbers(number), mode="append", configuration=WEEK)
        after = CommitProperties(create_checkpoint=True, cleanup_expired_logs=True)
        write(place, numbers(9), mode="append", commit_properties=after)
    return _missing(lambda: ids(place, 0))


def cleanup_after_commits_of_one_handle(place: Place, hours: float) -> bool:
    with shifted(hours):
        interval = {**WEEK, "delta.checkpointInterval": "2"}
        write(place, numbers(0), configuration=interval)
        table = opened(place)
        for number in range(1, 5):
            write_deltalake(table, numbers(number), mode="append")
            background.settle()
    return _missing(lambda: ids(place, 0))


def cleanup_after_the_commits_of_a_creator(place: Place, hours: float) -> bool:
    with shifted(hours):
        interval = {**WEEK, "delta.checkpointInterval": "2"}
        schema = numbers(0).schema
        table = DeltaTable.create(place.uri, schema, storage_options=place.options, configuration=interval)
        for number in range(1, 5):
            write_deltalake(table, numbers(number), mode="append")
            background.settle()
    return _missing(lambda: ids(place, 0))


def tombstones_of_a_checkpoint(place: Place, hours: float) -> bool:
    write(place, numbers(1, 2, 3), app_id="app", app_version=3, configuration=WEEK)
    opened(place).delete("id = 1")
    with shifted(hours):
        opened(place).create_checkpoint()
    store = open_location(place.uri, place.options)
    (key,) = [key for key in store.list_keys("_delta_log/0") if key.endswith(".checkpoint.parquet")]
    rows = pq.read_table(pa.BufferReader(store.get(key)))
    return any(rows.column(name).null_count == rows.num_rows for name in ("remove", "txn"))


def sidecars_of_a_checkpoint_in_flight(place: Place, hours: float) -> bool:
    v2 = {"delta.checkpointPolicy": "v2", **WEEK}
    for number in range(3):
        write(place, numbers(number), mode="append", configuration=v2)
        opened(place).create_checkpoint(top_level="json")
    store, key = open_location(place.uri, place.options), f"{SIDECARS}/{uuid.uuid4()}.parquet"
    store.put(key, b"of a checkpoint in flight")
    with shifted(hours):
        _tried(lambda: opened(place).cleanup_metadata())
    return key not in set(store.list_keys(SIDECARS + "/"))


def truncated_history(place: Place, hours: float) -> bool:
    write(place, numbers(*range(5)), configuration=VECTORS)
    opened(place).delete("id = 1")
    for by in (0, hours):
        with shifted(by), suppress(InvalidArgumentError):
            opened(place).alter.drop_feature("deletionVectors", truncate_history=True)
    return _missing(lambda: ids(place, 0))


PATHS: Final[dict[str, Callable[[Place, float], bool]]] = {
    path.__name__: path
    for path in (
        vacuum_beside_an_append,
        vacuum_beside_a_vector,
        vacuum_beside_changes,
        vacuum_beside_a_reader,
        vacuum_after_a_removal_by_a_clock_that_is_off,
        vacuum_beside_a_stream,
        restore_beside_a_vacuum,
        cleanup_of_the_log,
        cleanup_after_a_commit,
        cleanup_after_commits_of_one_handle,
        cleanup_after_the_commits_of_a_creator,
        tombstones_of_a_checkpoint,
        sidecars_of_a_checkpoint_in_flight,
        truncated_history,
    )
}


# --- the same of a catalog's table: the times of its commits are those of their writers' clocks ---


def _catalog(folder: Path, **options: Any) -> tuple[SqlCatalog, DeltaTable]:
    catalog = SqlCatalog(f"sqlite:///{folder}/catalog.db", str(folder))
    return catalog, catalog.create_table("t", numbers(0).schema, configuration=WEEK, **options)


def vacuum_of_a_catalogs_table(folder: Path, hours: float) -> bool:
    catalog, table = _catalog(folder)
    write_deltalake(table, numbers(1), mode="append")
    txn = catalog.table("t").begin()
    txn.append(numbers(7))
    with shifted(hours):
        _tried(lambda: catalog.table("t").vacuum(dry_run=False, full=True))
    return _tried(txn.commit) and _missing(lambda: catalog.table("t").to_pyarrow_table())


def vacuum_of_a_catalogs_table_beside_a_reader(folder: Path, hours: float) -> bool:
    catalog, table = _catalog(folder)
    write_deltalake(table, numbers(1, 2), mode="append")
    write_deltalake(table, numbers(3), mode="overwrite")
    with shifted(hours):
        _tried(lambda: catalog.table("t").vacuum(dry_run=False))
    return _missing(lambda: catalog.table("t", 1).to_pyarrow_table())


def cleanup_of_a_catalogs_log(folder: Path, hours: float) -> bool:
    catalog, table = _catalog(folder)
    for number in range(4):
        write_deltalake(table, numbers(number), mode="append")
    return _cleaned(catalog, catalog.table("t"), hours)


def _cleaned(catalog: SqlCatalog, table: DeltaTable, hours: float) -> bool:
    background.settle()
    catalog.publish("t")
    catalog.table("t").create_checkpoint()
    staged = f"_delta_log/_staged_commits/{2:020d}.{uuid.uuid4()}.json"
    table.store.inner.put(staged, b"{}")
    with shifted(hours):
        table.cleanup_metadata()
    lost = staged not in set(table.store.inner.list_keys("_delta_log/_staged_commits"))
    return lost or _missing(lambda: catalog.table("t", 1).to_pyarrow_table())


def cleanup_of_the_commits_of_a_clock_that_is_off(folder: Path, hours: float) -> bool:
    with shifted(hours):
        catalog, table = _catalog(folder)
        for number in range(4):
            write_deltalake(table, numbers(number), mode="append")
        background.settle()
    return _cleaned(catalog, table, 0)


def checkpoint_of_a_catalogs_table(folder: Path, hours: float) -> bool:
    catalog, table = _catalog(folder)
    write_deltalake(table, numbers(1, 2), mode="append", app_id="app", app_version=3)
    table.delete("id = 1")
    with shifted(hours):
        catalog.table("t").create_checkpoint()
    inner = table.store.inner
    (key,) = [key for key in inner.list_keys("_delta_log/0") if ".checkpoint." in key]
    rows = pq.read_table(pa.BufferReader(inner.get(key)))
    return any(rows.column(name).null_count == rows.num_rows for name in ("remove", "txn"))


OF_CATALOGS: Final[dict[str, Callable[[Path, float], bool]]] = {
    path.__name__: path
    for path in (
        vacuum_of_a_catalogs_table,
        vacuum_of_a_catalogs_table_beside_a_reader,
        cleanup_of_a_catalogs_log,
        cleanup_of_the_commits_of_a_clock_that_is_off,
        checkpoint_of_a_catalogs_table,
    )
}


def main() -> None:
    """Run everything; print what is lost."""
    lost, tried = [], 0
    with tempfile.TemporaryDirectory() as root:
        for hours in SHIFTS:
            for name, path in PATHS.items():
                for place in (Place(f"{root}/{uuid.uuid4()}", {}), Place(f"memory://{uuid.uuid4()}", {})):
                    tried += 1
                    if path(place, hours):
                        lost.append(f"{name} {place.uri[:6]} {hours:+} h")
            for name, in_catalog in OF_CATALOGS.items():
                tried += 1
                folder = Path(root, str(uuid.uuid4()))
                folder.mkdir()
                if in_catalog(folder, hours):
                    lost.append(f"{name} {hours:+} h")
    print(*lost, sep="\n")
    print(f"{tried} runs, {len(lost)} of which have lost something young")


if __name__ == "__main__":
    main()
