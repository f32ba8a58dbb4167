"""What writers do to a table under faults, and what each step makes of its rows, which is what the table is held to.

Every row belongs to an owner, the writer that wrote it. A writer changes its own rows only, unless it replaces the
whole table; so the steps that a log has committed, applied one after the other in the order of their versions, give
the rows of each version, whatever the writers met on their way.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from refdelta import CommitProperties, DeltaTable, write_deltalake

ROWS = 20
SCHEMA = pa.schema([("owner", pa.int64()), ("id", pa.int64()), ("value", pa.int64())])
MARK = "step"
"""The field of commitInfo that tells which step a version is."""

State = Mapping[tuple[int, int], int]
"""The rows of a table: the value of each, by its owner and its id."""

START: State = {(-1, number): 0 for number in range(ROWS)}
"""The rows of the first version."""

_WEIGHTS = {"append": 6, "update": 3, "delete": 3, "merge": 3, "compact": 3, "checkpoint": 2} | dict.fromkeys(
    ("replace", "overwrite", "restore", "alter"), 1
)


@dataclass(frozen=True)
class Step:
    """One step of a writer; its number tells it from all others of this writer. RESTORE goes to version ``target``."""

    kind: str
    owner: int
    number: int
    target: int = -1

    def __str__(self) -> str:
        return f"{self.kind}/{self.owner}/{self.number}/{self.target}"

    @classmethod
    def parse(cls, text: str) -> Step:
        kind, *numbers = text.split("/")
        return cls(kind, *map(int, numbers))

    @property
    def name(self) -> tuple[int, int]:
        """Which step it is, of those of all writers."""
        return self.owner, self.number


def some_steps(owner: int, count: int, seed: int, kinds: Mapping[str, int] | None = None) -> list[Step]:
    """Steps of a writer by the dice; ``kinds`` are their weights. The first one gives it rows."""
    dice, weights = random.Random(f"{seed}/{owner}"), kinds or _WEIGHTS
    chosen = ["append", *dice.choices([*weights], [*weights.values()], k=count - 1)]
    return [Step(kind, owner, number) for number, kind in enumerate(chosen)]


def after(state: State, step: Step, at: Sequence[State]) -> State:
    """The rows after a step.

    Args:
        state: the rows before it.
        step: the step.
        at: the rows of all versions so far.
    """
    mine = step.owner
    match step.kind:
        case "append" | "create" | "once":
            return {**state, **_new(step)}
        case "update":
            return {key: value + 1 if key[0] == mine and key[1] % 2 else value for key, value in state.items()}
        case "delete":
            return {key: value for key, value in state.items() if key[0] != mine or key[1] % 5 != step.number % 5}
        case "merge":
            return {**state, **_merged(step)}
        case "replace":
            return {**{key: value for key, value in state.items() if key[0] != mine}, **_new(step)}
        case "overwrite":
            return _new(step)
        case "restore":
            return at[step.target]
        case "compact" | "alter" | "checkpoint" | "vacuum":
            return state
        case _:
            raise ValueError(step.kind)


def begin(uri: str, layout: str, options: Mapping[str, Any]) -> None:
    """Create the table: with deletion vectors, or with a partition for each owner, or neither."""
    configuration = {"delta.checkpointInterval": "7"}
    if layout == "vectors":
        configuration["delta.enableDeletionVectors"] = "true"
    by = "owner" if layout == "partitions" else None
    write_deltalake(uri, _rows_of(START), partition_by=by, configuration=configuration, storage_options=options)


def create(step: Step, uri: str, options: Mapping[str, Any]) -> int | None:
    """Take the step "create": append to a table that need not exist yet. Returns as :func:`take`."""
    noted = CommitProperties(custom_metadata={MARK: str(step)})
    return write_deltalake(
        uri, _rows_of(_new(step)), mode="append", commit_properties=noted, storage_options=options
    ).version


def take(step: Step, table: DeltaTable) -> int | None:
    """Take a step. Returns the version that it became, if it says that it became one."""
    mine, noted = f"owner = {step.owner}", CommitProperties(custom_metadata={MARK: str(step)})
    match step.kind:
        case "append":
            result = write_deltalake(table, _rows_of(_new(step)), mode="append", commit_properties=noted)
        case "once":
            # Whoever was told of an unknown outcome, or of a failure, repeats it: it is there once for all that.
            result = write_deltalake(
                table,
                _rows_of(_new(step)),
                mode="append",
                app_id=f"writer {step.owner}",
                app_version=step.number,
                commit_properties=noted,
            )
        case "update":
            result = table.update({"value": "value + 1"}, predicate=f"{mine} and id % 2 = 1", commit_properties=noted)
        case "delete":
            result = table.delete(f"{mine} and id % 5 = {step.number % 5}", commit_properties=noted)
        case "merge":
            on = f"t.{mine} and t.owner = s.owner and t.id = s.id"
            merge = table.merge(_rows_of(_merged(step)), on, commit_properties=noted)
            result = merge.when_matched_update_all().when_not_matched_insert_all().execute()
        case "replace":
            new = _rows_of(_new(step))
            result = write_deltalake(table, new, mode="overwrite", predicate=mine, commit_properties=noted)
        case "overwrite":
            new = _rows_of(_new(step))
            result = write_deltalake(table, new, mode="overwrite", isolation="Serializable", commit_properties=noted)
        case "restore":
            result = table.restore(step.target, isolation="Serializable", commit_properties=noted)
        case "compact":
            result = table.optimize.compact(commit_properties=noted)
        case "alter":
            result = table.alter.set_table_properties(
                {f"writer{step.owner}": str(step.number)}, commit_properties=noted
            )
        case "checkpoint":
            return table.create_checkpoint()
        case "vacuum":
            table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
            return None
        case _:
            raise ValueError(step.kind)
    return result.version


def _new(step: Step) -> dict[tuple[int, int], int]:
    return {(step.owner, step.number * ROWS + row): step.number for row in range(ROWS)}


def _merged(step: Step) -> dict[tuple[int, int], int]:
    # Some of the rows of the first append, which may be there, and some that nobody else writes.
    ids = [*range(0, ROWS, 4), *range(10_000 + 10 * step.number, 10_005 + 10 * step.number)]
    return dict.fromkeys([(step.owner, number) for number in ids], 1000 + step.number)


def _rows_of(state: State) -> pa.Table:
    return pa.table([[key[0] for key in state], [key[1] for key in state], [*state.values()]], schema=SCHEMA)
