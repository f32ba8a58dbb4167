"""The tasks of writers in a race, by number and the same for every engine, and their expected results.

A task is a statement of one kind, and every kind but ``put`` commutes with the others: so the rows at the end follow
from the set of tasks that were committed, in whatever order, and an engine that loses or doubles one is found.
"""

from __future__ import annotations

import functools
import random
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from refdelta.errors import InvalidArgumentError, suggestion, unknown_name

ROWS = 100_000
"""The number of rows of tables whose rows are changed, and the greatest number of tasks."""

APPENDED, SAME, PIECES = 10, 10, 8
BATCH, CORRECTED, UPSERTED = 20_000, 50, 10
"""Rows of a large append; rows that a late correction changes; rows of an upsert, half of them new."""
SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])
_ZIPF = 0.99
"""The exponent of the Zipf distribution of hot keys, as in YCSB."""

KINDS: Mapping[str, str] = {
    "append": "ten new rows",
    "batch": f"{BATCH:,} new rows",
    "delete": "another row deleted",
    "update": "another row updated",
    "same-rows": "the same ten rows updated, which only one writer at a time can do",
    "read": "a hot row read, which commits nothing",
    "put": "a hot row given a new value",
    "add": "a hot row read and written, n = n + 1",
    "pay": "1 moved from one account to another",
    "correct": f"{CORRECTED} rows anywhere updated",
    "upsert": f"a MERGE of {UPSERTED} rows, half of them new",
}
"""The kinds of statements of a mix. Hot rows are drawn by Zipf's law."""

_ANYWHERE = ("put", "add", "pay", "correct", "upsert")
_ALONE = {"delete": _ANYWHERE, "put": ("update", "same-rows", *_ANYWHERE[1:])}
"""By kind, those that do not commute with it."""


@dataclass(frozen=True)
class Mix:
    """A mix of kinds of statements. A task is the same statement in every run with the same seed.

    Attributes:
        weights: by kind, one of :data:`KINDS`, how often it occurs, relative to the others.
        rows: the number of rows of the table before the race.
        files: the number of files that they are in.
        compacts: whether one more writer compacts.
        seed: chooses the kind and the rows of each task.
        name: the name in the results.
        text: what its writers do, in some words.
    """

    weights: Mapping[str, float]
    rows: int = ROWS
    files: int = 1
    compacts: bool = False
    seed: int = 0
    name: str = "weighted"
    text: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        for kind, weight in self.weights.items():
            if kind not in KINDS:
                raise InvalidArgumentError(unknown_name("kind of statement", kind, KINDS))
            if type(weight) not in (int, float) or not 0 <= weight < float("inf"):
                raise InvalidArgumentError(f"the weight of {kind} is {weight!r}; it is a number, 0 or more")
        used = [kind for kind, weight in self.weights.items() if weight]
        if not used:
            raise InvalidArgumentError(f"a mix needs a weight above 0: of {', '.join(KINDS)}")
        if used == ["read"]:
            raise InvalidArgumentError("a mix of reads alone commits nothing: give another kind a weight, too")
        for kind, others in _ALONE.items():
            if kind in used and (beside := [other for other in used if other in others]):
                raise InvalidArgumentError(
                    f"{kind} and {beside[0]} may meet in a row, where their order matters: no check would find a loss"
                )
        least = 0 if {*used} <= {"append", "batch"} else CORRECTED
        for name, value, low, high in (("rows", self.rows, least, 10**7), ("files", self.files, 1, 1_000)):
            if type(value) is not int or not low <= value <= high:
                raise InvalidArgumentError(f"{name} of a mix is {value!r}; it is a whole number from {low} to {high:,}")

    def __str__(self) -> str:
        return self.name

    @property
    def never_aborts(self) -> bool:
        """Whether all must commit according to the conflict matrix, with row-level concurrency."""
        return not any(self.weights.get(kind) for kind in ("same-rows", *_ANYWHERE))

    @property
    def most_tasks(self) -> int:
        """The greatest number of tasks of a race: each of another row of the table needs one."""
        return min(ROWS, self.rows - SAME) if self.weights.get("delete") or self.weights.get("update") else ROWS

    def kind(self, task: int) -> str:
        """The kind of a task, one of :data:`KINDS`."""
        if len(self.weights) == 1:
            return next(iter(self.weights))
        return self.drawn(task, "").choices(list(self.weights), list(self.weights.values()))[0]

    def drawn(self, task: int, what: str) -> random.Random:
        """The source of the numbers that a task draws."""
        return random.Random(f"{self.seed}-{task}{what}")  # noqa: S311 - no secret


APPENDS = Mix({"append": 1}, 0, name="appends", text="each commit appends 10 rows")
DELETES = Mix({"delete": 1}, name="rows", text="each deletes another row of one file")
SAME_ROWS = Mix({"same-rows": 1}, 1_000, name="same-rows", text="all update the same rows; a loser begins anew")
OPTIMIZED = Mix({"update": 1}, ROWS, PIECES, True, name="optimize", text="each updates another row, beside OPTIMIZE")
_MORE = (
    Mix({"batch": 1}, 0, name="batches", text=f"each commit appends {BATCH:,} rows"),
    Mix({"read": 1, "put": 1}, 10_000, 4, name="ycsb-a", text="half reads, half new values of hot rows"),
    Mix({"read": 19, "put": 1}, 10_000, 4, name="ycsb-b", text="reads, and one new value of a hot row in twenty"),
    Mix({"read": 1, "add": 1}, 10_000, 4, name="ycsb-f", text="half reads, half increments of hot rows"),
    Mix({"pay": 1}, 1_000, name="payments", text="each moves 1 between two of a thousand accounts"),
    Mix({"append": 9, "correct": 1}, ROWS, PIECES, name="late", text="appends, and late corrections of 50 rows"),
    Mix({"upsert": 1}, ROWS, PIECES, True, name="upserts", text="each merges 10 rows, beside OPTIMIZE"),
)
MIXES: Mapping[str, Mix] = {mix.name: mix for mix in (APPENDS, DELETES, SAME_ROWS, OPTIMIZED, *_MORE)}
"""The mixes that have a name."""


def mix_of(text: str, seed: int = 0) -> Mix:
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
        seed: chooses the kind and the rows of each task.

    Raises:
        InvalidArgumentError: there is no such mix, or the file cannot be read.
    """
    if named := MIXES.get(text):
        return replace(named, seed=seed)
    if "=" in text:
        return _mix_of_values(dict(_weight(part) for part in text.split(",")), text, seed)
    if not text.endswith(".toml"):
        raise InvalidArgumentError(
            f"{text!r} is not one of {', '.join(MIXES)}{suggestion(text, MIXES)}; weights are append=6,update=3, and a "
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


def _mix_of_values(values: dict[str, Any], name: str, seed: int) -> Mix:
    compacts = values.pop("optimize", False)
    if compacts not in (True, False):
        raise InvalidArgumentError(f"optimize of a mix is true or false, not {compacts!r}")
    shape = {key: values.pop(key) for key in ("rows", "files") if key in values}
    for kind in values:
        if kind not in KINDS:
            raise InvalidArgumentError(unknown_name("setting of a mix", kind, [*KINDS, "rows", "files", "optimize"]))
    return Mix(values, **shape, compacts=bool(compacts), seed=seed, name=name)


# --- statements ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Statement:
    """The statement of a task.

    Attributes:
        what: appends ``rows``; deletes, updates or reads the rows of ``ids``; or merges ``rows`` by id: n + 1 where the
            id is there, else the row is new.
        rows: the rows of an append or a merge.
        ids: the rows of the others, and of a merge those that it names.
        add: what an update adds to the ``n`` of each.
        put: the new ``n`` instead.
    """

    what: Literal["append", "delete", "update", "read", "merge"]
    rows: Any = None
    ids: tuple[int, ...] = ()
    add: tuple[int, ...] = ()
    put: int | None = None

    @property
    def predicate(self) -> str:
        """SQL of the rows, the same for all engines."""
        if len(self.ids) == 1:
            return f"id = {self.ids[0]}"
        if self.ids == _SAME:
            return f"id < {SAME}"
        return f"id IN ({', '.join(map(str, self.ids))})"

    @property
    def value(self) -> str:
        """SQL of the new ``n`` of an update."""
        if self.put is not None:
            return str(self.put)
        if len(set(self.add)) == 1:
            return f"n + {self.add[0]}"
        return f"CASE WHEN id = {self.ids[0]} THEN n - 1 ELSE n + 1 END"

    def updated(self, rows: pa.Table) -> pa.Table:
        """The rows after the update.

        Args:
            rows: those of this statement's ids, in any order.
        """
        if self.put is not None:
            n = np.full(rows.num_rows, self.put, np.int64)
        else:
            added = dict(zip(self.ids, self.add, strict=True))
            n = rows["n"].to_numpy() + np.array([added[one] for one in rows["id"].to_pylist()], np.int64)
        return pa.table([rows["id"], pa.array(n)], schema=SCHEMA)

    def merged(self, there: pa.Table) -> pa.Table:
        """The rows of a merge with the values that they get, for engines whose merges take no expressions.

        Args:
            there: the rows of the table that have ids of this statement.
        """
        n = dict(zip(there["id"].to_pylist(), there["n"].to_pylist(), strict=True))
        values = np.array([n.get(id_, -1) + 1 for id_ in self.rows["id"].to_pylist()], np.int64)
        return pa.table([self.rows["id"], values], schema=SCHEMA)


_SAME = tuple(range(SAME))


def first_pieces(mix: Mix) -> list[pa.Table]:
    """The rows of the table before the race, one table a file; none for appends."""
    rows = pa.table([np.arange(mix.rows), np.zeros(mix.rows, np.int64)], schema=SCHEMA)
    size = -(-mix.rows // mix.files)
    return [rows.slice(start, size) for start in range(0, mix.rows, size or 1)]


def statement(mix: Mix, task: int) -> Statement:
    """The statement of a task. The first ten rows are those of ``same-rows``; appended rows come after all others."""
    match mix.kind(task):
        case "append":
            return Statement("append", _new(mix, task, APPENDED))
        case "batch":
            return Statement("append", _new(mix, task, BATCH))
        case "delete":
            return Statement("delete", ids=(SAME + task,))
        case "update":
            return Statement("update", ids=(SAME + task,), add=(1,))
        case "same-rows":
            return Statement("update", ids=_SAME, add=(1,) * SAME)
        case "read":
            return Statement("read", ids=(_hot(mix, task),))
        case "put":
            return Statement("update", ids=(_hot(mix, task),), put=task + 1)
        case "add":
            return Statement("update", ids=(_hot(mix, task),), add=(1,))
        case "pay":
            return Statement("update", ids=_several(mix, task, 2), add=(-1, 1))
        case "correct":
            return Statement("update", ids=_several(mix, task, CORRECTED), add=(1,) * CORRECTED)
        case _:
            there = np.array(_several(mix, task, UPSERTED // 2))
            new = _upserted(mix, np.array([task]))
            ids = np.concatenate([there, new])
            rows = pa.table([ids, np.zeros(len(ids), np.int64)], schema=SCHEMA)
            return Statement("merge", rows, tuple(ids.tolist()))


def _new(mix: Mix, task: int, count: int) -> pa.Table:
    return pa.table([np.full(count, mix.rows + task), np.arange(count)], schema=SCHEMA)


def _upserted(mix: Mix, tasks: np.ndarray) -> np.ndarray:
    """The new ids of these upserts: after those of all appends."""
    half = UPSERTED // 2
    return (mix.rows + ROWS + np.repeat(tasks * half, half) + np.tile(np.arange(half), len(tasks))).astype(np.int64)


def _several(mix: Mix, task: int, count: int) -> tuple[int, ...]:
    return tuple(mix.drawn(task, "-rows").sample(range(mix.rows), count))


def _hot(mix: Mix, task: int) -> int:
    shares, places = _zipf(mix.rows)
    rank = int(np.searchsorted(shares, mix.drawn(task, "-rows").random()))
    return int(places[min(rank, mix.rows - 1)])


@functools.cache
def _zipf(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The distribution of hot keys, and where they are: spread over the table, as YCSB scatters them."""
    weights = 1 / np.arange(1, rows + 1) ** _ZIPF
    return np.cumsum(weights) / weights.sum(), np.random.default_rng(rows).permutation(rows)


# --- results -------------------------------------------------------------------------------------------------------


def expected(mix: Mix, tasks: Sequence[int]) -> pa.Table:
    """The rows of the table, sorted by id and n, after each of these tasks was committed once. Where a ``put`` was the
    last to change a row, that of the greatest task counts.
    """
    return _after(mix, tasks)[0]


def _after(mix: Mix, tasks: Sequence[int]) -> tuple[pa.Table, dict[int, set[int]]]:
    """The rows, and by id the values that puts may have left: the last of several, which only the engine knows."""
    n, kept = np.zeros(mix.rows, np.int64), np.ones(mix.rows, bool)
    more: list[pa.Table] = []
    puts: dict[int, set[int]] = {}
    merged: list[int] = []
    for task in sorted(tasks):
        done = statement(mix, task)
        match done.what:
            case "append":
                more.append(done.rows)
            case "delete":
                kept[list(done.ids)] = False
            case "update" if done.put is not None:
                n[done.ids[0]] = done.put
                puts.setdefault(done.ids[0], set()).add(done.put)
            case "update":
                n[list(done.ids)] += done.add
            case "merge":
                n[_ids(done.rows)[: UPSERTED // 2]] += 1
                merged.append(task)
    new = _upserted(mix, np.array(merged, np.int64))
    more.append(pa.table([new, np.zeros(len(new), np.int64)], schema=SCHEMA))
    return pa.concat_tables([pa.table([np.flatnonzero(kept), n[kept]], schema=SCHEMA), *more]), puts


def _ids(rows: pa.Table) -> np.ndarray:
    found: np.ndarray = rows["id"].to_numpy()
    return found


def check_rows(rows: pa.Table, mix: Mix, tasks: Sequence[int]) -> list[str]:
    """The differences between the rows of a table and those after each of these tasks was committed once."""
    wanted, puts = _after(mix, tasks)
    got = rows.select(SCHEMA.names).cast(SCHEMA).sort_by([(name, "ascending") for name in SCHEMA.names])
    if got.num_rows != wanted.num_rows:
        return [f"other rows than the commits explain: {got.num_rows:,}, and not {wanted.num_rows:,}"]
    if puts:  # a mix with puts deletes nothing: an id is its place
        found, n = got["n"].to_numpy(), wanted["n"].to_numpy().copy()
        for id_, values in puts.items():
            n[id_] = found[id_] if found[id_] in values else n[id_]
        wanted = pa.table([wanted["id"], n], schema=SCHEMA)
    return [] if got.equals(wanted) else ["other values than the commits explain"]
