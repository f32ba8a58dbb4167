"""The tasks of writers in a race, by number and the same for every engine, and their expected results."""

from __future__ import annotations

import enum
import random
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from refdelta.errors import InvalidArgumentError, suggestion, unknown_name

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

    @property
    def compacts(self) -> bool:
        """Whether one more writer compacts."""
        return self is Mix.OPTIMIZE


KINDS = ("append", "delete", "update", "same-rows")
"""The kinds of statements of a weighted mix: ten new rows; another row deleted; another row updated; the same ten rows
updated, which only one writer at a time can do.
"""


@dataclass(frozen=True)
class WeightedMix:
    """A mix of several kinds of statements. A task is the same statement in every run with the same seed.

    Attributes:
        weights: by kind, one of :data:`KINDS`, how often it occurs, relative to the others.
        rows: the number of rows of the table before the race.
        files: the number of files that they are in.
        compacts: whether one more writer compacts.
        seed: chooses the kind of each task.
        name: the name in the results.
    """

    weights: Mapping[str, float]
    rows: int = ROWS
    files: int = 1
    compacts: bool = False
    seed: int = 0
    name: str = "weighted"

    def __post_init__(self) -> None:
        for kind, weight in self.weights.items():
            if kind not in KINDS:
                raise InvalidArgumentError(unknown_name("kind of statement", kind, KINDS))
            if type(weight) not in (int, float) or not 0 <= weight < float("inf"):
                raise InvalidArgumentError(f"the weight of {kind} is {weight!r}; it is a number, 0 or more")
        if not any(self.weights.values()):
            raise InvalidArgumentError(f"a mix needs a weight above 0: of {', '.join(KINDS)}")
        for name, value in (("rows", self.rows), ("files", self.files)):
            if type(value) is not int or not 1 <= value <= (10**7 if name == "rows" else 1_000):
                raise InvalidArgumentError(f"{name} of a mix is {value!r}; it is a whole number above 0")

    def __str__(self) -> str:
        return self.name

    @property
    def never_aborts(self) -> bool:
        """As :attr:`Mix.never_aborts`."""
        return not self.weights.get("same-rows")

    def kind(self, task: int) -> str:
        """The kind of a task, one of :data:`KINDS`."""
        drawn = random.Random(f"{self.seed}-{task}")  # noqa: S311 - no secret
        return drawn.choices(list(self.weights), list(self.weights.values()))[0]


AnyMix = Mix | WeightedMix


def mix_of(text: str, seed: int = 0) -> AnyMix:
    """A mix by its name, by its weights, as in ``append=6,update=3``, or by a file of TOML.

    The file has a number for each kind of statement, and perhaps ``rows``, ``files`` and ``optimize = true``::

        append = 6
        update = 3
        same-rows = 0.5
        rows = 50_000
        files = 4
        optimize = true

    Args:
        text: the name, the weights, or the path of the file.
        seed: the seed of a weighted mix.

    Raises:
        InvalidArgumentError: there is no such mix, or the file cannot be read.
    """
    if text in {*Mix}:
        return Mix(text)
    if "=" in text:
        return _mix_of_values(dict(_weight(part) for part in text.split(",")), text, seed)
    if not text.endswith(".toml"):
        raise InvalidArgumentError(
            f"{text!r} is not one of {', '.join(Mix)}{suggestion(text, Mix)}; weights are append=6,update=3, and a "
            "file of them ends with .toml"
        )
    try:
        values = tomllib.loads(Path(text).read_text())
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(f"the mix {text} cannot be read: {error}") from error
    return _mix_of_values(values, Path(text).stem, seed)


def _weight(part: str) -> tuple[str, float]:
    name, _, value = part.partition("=")
    try:
        return name.strip(), float(value)
    except ValueError:
        raise InvalidArgumentError(f"the weight of {name.strip()} is {value.strip()!r}; it is a number") from None


def _mix_of_values(values: dict[str, Any], name: str, seed: int) -> WeightedMix:
    compacts = values.pop("optimize", False)
    if compacts not in (True, False):
        raise InvalidArgumentError(f"optimize of a mix is true or false, not {compacts!r}")
    shape = {key: values.pop(key) for key in ("rows", "files") if key in values}
    for kind in values:
        if kind not in KINDS:
            raise InvalidArgumentError(unknown_name("setting of a mix", kind, [*KINDS, "rows", "files", "optimize"]))
    return WeightedMix(values, **shape, compacts=bool(compacts), seed=seed, name=name)


@dataclass(frozen=True)
class Statement:
    """The statement of a task: appends ``rows``, deletes the rows of ``predicate``, or adds 1 to their n."""

    what: str
    rows: pa.Table | None = None
    predicate: str = ""


def most_tasks(mix: AnyMix) -> int:
    """The greatest number of tasks of a race: each of another row of the table needs one."""
    if isinstance(mix, WeightedMix) and (mix.weights.get("delete") or mix.weights.get("update")):
        return min(ROWS, mix.rows - SAME)
    return ROWS


def first_pieces(mix: AnyMix) -> list[pa.Table]:
    """The rows of the table before the race, one table a file; none for appends."""
    if isinstance(mix, WeightedMix):
        count, files = mix.rows, mix.files
    else:
        count = {Mix.APPENDS: 0, Mix.SAME_ROWS: 1_000}.get(mix, ROWS)
        files = PIECES if mix is Mix.OPTIMIZE else 1
    ids = range(count)
    rows = pa.table({"id": pa.array(ids, pa.int64()), "n": pa.array(np.zeros(len(ids), np.int64))}, schema=SCHEMA)
    size = -(-rows.num_rows // files)
    return [rows.slice(start, size) for start in range(0, rows.num_rows, size or 1)]


def statement(mix: AnyMix, task: int) -> Statement:
    """The statement of a task."""
    if isinstance(mix, WeightedMix):
        return _weighted_statement(mix, task)
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


def _weighted_statement(mix: WeightedMix, task: int) -> Statement:
    """The first ten rows are those of ``same-rows``; appended rows come after all others."""
    match mix.kind(task):
        case "append":
            columns = [np.full(APPENDED, mix.rows + task, np.int64), np.arange(APPENDED, dtype=np.int64)]
            return Statement("append", pa.table(columns, schema=SCHEMA))
        case "same-rows":
            return Statement("update", predicate=f"id < {SAME}")
        case kind:
            return Statement(kind, predicate=f"id = {SAME + task}")


def expected(mix: AnyMix, tasks: Sequence[int]) -> pa.Table:
    """The rows of the table, sorted by id and n, after each of these tasks was committed once."""
    done = np.sort(np.asarray(tasks, np.int64))
    if isinstance(mix, WeightedMix):
        return _expected_weighted(mix, done)
    if mix is Mix.APPENDS:
        columns = [np.repeat(done, APPENDED), np.tile(np.arange(APPENDED, dtype=np.int64), len(done))]
        return pa.table(columns, schema=SCHEMA)
    before = pa.concat_tables(first_pieces(mix))
    ids = before["id"].to_numpy()
    if mix is Mix.ROWS:
        return before.filter(pa.array(~np.isin(ids, done)))
    n = np.where(ids < SAME, len(done), 0) if mix is Mix.SAME_ROWS else np.bincount(done, minlength=len(ids))
    return pa.table([ids, n.astype(np.int64)], schema=SCHEMA)


def _expected_weighted(mix: WeightedMix, done: np.ndarray) -> pa.Table:
    kinds = np.array([mix.kind(task) for task in done.tolist()], dtype=object)
    by_kind = {kind: done[kinds == kind] for kind in KINDS}
    n = np.zeros(mix.rows, np.int64)
    n[:SAME] = len(by_kind["same-rows"])
    n[SAME + by_kind["update"]] += 1
    kept = np.ones(mix.rows, bool)
    kept[SAME + by_kind["delete"]] = False
    appended = by_kind["append"]
    ids = np.concatenate([np.flatnonzero(kept), np.repeat(mix.rows + appended, APPENDED)])
    values = np.concatenate([n[kept], np.tile(np.arange(APPENDED, dtype=np.int64), len(appended))])
    return pa.table([ids, values], schema=SCHEMA)


def check_rows(rows: pa.Table, mix: AnyMix, tasks: Sequence[int]) -> list[str]:
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
