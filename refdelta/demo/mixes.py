"""The tasks of writers in a race, by number and the same for every engine, and their expected results."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

ROWS = 100_000
"""The number of rows of tables whose rows are changed, and the greatest number of tasks."""

APPENDED, SAME, PIECES = 10, 10, 8
SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])


class Mix(enum.StrEnum):
    """The kinds of concurrent writers."""

    APPENDS = "appends"
    """Each commit appends ten rows."""
    ROWS = "rows"
    """Each deletes another row of the one file that there is."""
    SAME_ROWS = "same-rows"
    """All update the same ten rows of one file: only one can be first, the others do it again."""
    OPTIMIZE = "optimize"
    """Each updates another row, while one more puts all files together over and over."""

    @property
    def never_aborts(self) -> bool:
        """Whether all must commit according to the conflict matrix, with row-level concurrency."""
        return self is not Mix.SAME_ROWS


@dataclass(frozen=True)
class Statement:
    """The statement of a task: appends ``rows``, deletes the rows of ``predicate``, or adds 1 to their n."""

    what: str
    rows: pa.Table | None = None
    predicate: str = ""


def first_pieces(mix: Mix) -> list[pa.Table]:
    """The rows of the table before the race, one table a file; none for appends."""
    ids = range({Mix.APPENDS: 0, Mix.SAME_ROWS: 1_000}.get(mix, ROWS))
    rows = pa.table({"id": pa.array(ids, pa.int64()), "n": pa.array(np.zeros(len(ids), np.int64))}, schema=SCHEMA)
    size = -(-rows.num_rows // (PIECES if mix is Mix.OPTIMIZE else 1))
    return [rows.slice(start, size) for start in range(0, rows.num_rows, size or 1)]


def statement(mix: Mix, task: int) -> Statement:
    """The statement of a task."""
    match mix:
        case Mix.APPENDS:
            columns = [np.full(APPENDED, task, np.int64), np.arange(APPENDED, dtype=np.int64)]
            return Statement("append", pa.table(columns, schema=SCHEMA))
        case Mix.ROWS:
            return Statement("delete", predicate=f"id = {task}")
        case Mix.SAME_ROWS:
            return Statement("update", predicate=f"id < {SAME}")
        case Mix.OPTIMIZE:
            return Statement("update", predicate=f"id = {task}")


def expected(mix: Mix, tasks: Sequence[int]) -> pa.Table:
    """The rows of the table, sorted by id and n, after each of these tasks was committed once."""
    done = np.sort(np.asarray(tasks, np.int64))
    if mix is Mix.APPENDS:
        columns = [np.repeat(done, APPENDED), np.tile(np.arange(APPENDED, dtype=np.int64), len(done))]
        return pa.table(columns, schema=SCHEMA)
    before = pa.concat_tables(first_pieces(mix))
    ids = before["id"].to_numpy()
    if mix is Mix.ROWS:
        return before.filter(pa.array(~np.isin(ids, done)))
    n = np.where(ids < SAME, len(done), 0) if mix is Mix.SAME_ROWS else np.bincount(done, minlength=len(ids))
    return pa.table([ids, n.astype(np.int64)], schema=SCHEMA)


def check_rows(rows: pa.Table, mix: Mix, tasks: Sequence[int]) -> list[str]:
    """The differences between the rows of a table and those after each of these tasks was committed once."""
    wanted = expected(mix, tasks)
    got = rows.select(SCHEMA.names).cast(SCHEMA).sort_by([(name, "ascending") for name in SCHEMA.names])
    if got.equals(wanted):
        return []
    return [
        f"other rows than the commits explain: {got.num_rows:,}, and not {wanted.num_rows:,}"
        if got.num_rows != wanted.num_rows
        else "other values than the commits explain"
    ]
