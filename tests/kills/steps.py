"""What the writers that are killed do, step by step, each with rows of its own; and what the rows are after a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kills.places import CatalogPlace
from refdelta import CommitProperties, DeltaTable, write_deltalake
from refdelta.engine.log.managed_log import managed_by
from refdelta.engine.parquet.files import store_errors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from servers.running import Place

ROWS = 40
SCHEMA = pa.schema([("owner", pa.int64()), ("id", pa.int64()), ("value", pa.int64())])
STEPS = ("append", "update", "delete", "merge", "replace")

State = dict[int, int]
"""The rows of an owner: values by id."""


def rows(owner: int, ids: Iterable[int], value: int) -> pa.Table:
    ids = list(ids)
    return pa.table({"owner": [owner] * len(ids), "id": ids, "value": [value] * len(ids)}, schema=SCHEMA)


def step_of(number: int) -> str:
    return STEPS[number % len(STEPS)]


def after(state: State, number: int) -> State:
    """What the rows of an owner become by a step. The definition that the table is held to."""
    ids = range(number * ROWS, (number + 1) * ROWS)
    match step_of(number):
        case "append":
            return {**state, **dict.fromkeys(ids, number)}
        case "update":
            return {i: v + 1 if i % 2 else v for i, v in state.items()}
        case "delete":
            return {i: v for i, v in state.items() if i % 5}
        case "merge":
            return {**state, **dict.fromkeys(range(0, ROWS, 4), number)}
        case _:
            return dict.fromkeys(ids, number)


def take(table: DeltaTable, owner: int, number: int) -> int | None:
    """Take a step, in the table. Returns its version."""
    noted = CommitProperties(user_metadata=token(owner, number))
    ids = range(number * ROWS, (number + 1) * ROWS)
    match step_of(number):
        case "append":
            done = write_deltalake(table, rows(owner, ids, number), mode="append", commit_properties=noted)
        case "update":
            mine = f"owner = {owner} and id % 2 = 1"
            done = table.update({"value": "value + 1"}, predicate=mine, commit_properties=noted)
        case "delete":
            done = table.delete(f"owner = {owner} and id % 5 = 0", commit_properties=noted)
        case "merge":
            on = f"t.owner = {owner} and t.owner = s.owner and t.id = s.id"
            merger = table.merge(rows(owner, range(0, ROWS, 4), number), on, commit_properties=noted)
            done = merger.when_matched_update_all().when_not_matched_insert_all().execute()
        case _:
            mine = f"owner = {owner}"
            data = rows(owner, ids, number)
            done = write_deltalake(table, data, mode="overwrite", predicate=mine, commit_properties=noted)
    return done.version


def token(owner: int, number: int) -> str:
    """How the log names a step, in its ``userMetadata``."""
    return f"{owner}/{number}"


def maintain(table: DeltaTable, what: str) -> None:
    """Something that changes no row."""
    match what:
        case "compact":
            table.optimize.compact()
        case "z-order":
            table.optimize.z_order(["id"])
        case "purge":
            table.reorg_purge()
        case "checkpoint":
            table.update_incremental()
            table.create_checkpoint()
            table.cleanup_metadata()
        case "vacuum":
            # Files of writers that are at work are younger than an hour.
            table.vacuum(1, dry_run=False, enforce_retention_duration=False, full=True)
        case "sweep":
            table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
        case "publish":
            log = managed_by(table.store)
            assert log is not None
            with store_errors("publish"):
                log.publish()


MAINTENANCE = ("compact", "z-order", "purge", "checkpoint", "vacuum")


def open_table(place: Place | CatalogPlace) -> DeltaTable:
    if isinstance(place, CatalogPlace):
        return place.open()
    return DeltaTable(place.uri, storage_options=place.options)


def content(table: DeltaTable) -> dict[int, State]:
    """The rows of each owner."""
    found: dict[int, State] = {}
    columns: Any = table.to_pyarrow_table().select(SCHEMA.names).to_pydict()
    count = 0
    for owner, key, value in zip(*columns.values(), strict=True):
        found.setdefault(owner, {})[key] = value
        count += 1
    assert count == sum(map(len, found.values())), "a row is there twice"
    return found
