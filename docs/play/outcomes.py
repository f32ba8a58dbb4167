"""The outcomes that the page to play with shows, computed by the commit core: every choice that the page offers.

A history is a sequence of commits, and for each of them the version that it began at: when exactly a transaction began
between two versions changes nothing. So the outcomes are a tree. A node is a version, made by the commits that lead to
it; from it, each operation that began at one of the versions up to it commits, is refused, or has nothing to write. A
transaction that was refused changes nothing, so the others go on from the same node.

The core (``refdelta.core``) decides over files in memory, :mod:`model.core`; whether a serial order explains the result
is asked of the judge, :mod:`refdelta.conformance.judge`, which tries them all. The tables of ``tests/model`` are used:
version 0 here is their version 1, in which a deleted row has left a deletion vector or a rewritten file.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model import cases
from model.branches import Refusal, Staged, Version, supposed
from model.cases import Case
from model.core import Core, File
from model.layouts import FILES, PARTITIONED, PARTITIONED_FILES, PARTITIONED_ROWS, PLAIN, ROWS, Layout
from model.operations import METADATA, data_of, is_data, key, update
from refdelta.conformance.judge import LEVELS, SERIALIZABLE, History, State, Transaction, apply, play, serial_order
from refdelta.core.conflicts.rules import RULES

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("refdelta/core/**/*.py", "refdelta/errors.py", "refdelta/expressions/*.py", "tests/model/*.py")

MOST = 4
"""Transactions of a history."""


@dataclass(frozen=True)
class Operation:
    """An operation that the page offers.

    Attributes:
        id: its name in links.
        sql: its text.
        case: what it does.
        among_four: whether it is offered for four transactions.
    """

    id: str
    sql: str
    case: Case
    among_four: bool = False


def _update_key(k: int, a: int) -> Case:
    def call(txn: Any) -> None:
        txn.update(updates={"a": str(a)}, predicate=f"k = {k}")

    statement = update(key(k), lambda k, _: (k, a))
    return Case(f"update k={k} to {a}", "UPDATE", statement, call, f"k = {k}", {"k": (k,)})


def _named(name: str) -> Case:
    return next(case for case in cases.ALL if case.name == name)


OPERATIONS = (
    Operation("append", "INSERT (10, 0)", cases.INSERT_0, among_four=True),
    Operation("copy", "INSERT SELECT k + 20, 1 WHERE a = 0", cases.COPY_0_1, among_four=True),
    Operation("delete-row", "DELETE WHERE k = 2", cases.DELETE_K2),
    Operation("delete-group", "DELETE WHERE a = 0", cases.DELETE_0, among_four=True),
    Operation("update-row", "UPDATE SET a = 2 WHERE k = 1", _update_key(1, 2)),
    Operation("update-1-0", "UPDATE SET a = 0 WHERE a = 1", cases.PAINT_1_0),
    Operation("update-0-1", "UPDATE SET a = 1 WHERE a = 0", _named("update a=0 to 1")),
    Operation("merge", "MERGE (2, 0), (12, 0) BY k", cases.MERGE),
    Operation("replace", "INSERT REPLACE WHERE a = 1 (14, 1)", cases.REPLACE_1),
    Operation("compact", "OPTIMIZE", cases.COMPACT, among_four=True),
    Operation("property", "SET TBLPROPERTIES", cases.SET_PROPERTY),
)

LAYOUTS: dict[str, Layout] = {
    "files": PLAIN,
    "vectors": ROWS,
    "vectors-files": FILES,
    "partitions": PARTITIONED,
    "partitions-vectors": PARTITIONED_FILES,
    "partitions-vectors-rows": PARTITIONED_ROWS,
}
"""Partitions, vectors, and whether rows decide. With vectors they do by default, unless the table is partitioned."""


class PlayedCore(Core):
    """The core over files in memory; a compaction makes one file of all files of a partition, as the engine's does.

    One thing is simpler here: the engine leaves a partition alone whose only new file since a compaction was written
    before that compaction. That depends on clocks, and this table has none.
    """

    bin = compacted = 1000


@dataclass
class Table:
    """The outcomes at one level and layout, in the order of their numbers.

    Attributes:
        start: the files of version 0.
        outcomes: each with ``kind`` ``committed``, ``refused`` or ``nothing``.
        nodes: for each version the number of its first child, and the outcomes by the version at which an operation
            began, and by operation; None where the operation is not offered. Children follow each other in the order of
            the committed outcomes that have any.
    """

    start: list[Any]
    outcomes: list[dict[str, Any]]
    nodes: list[list[int | None]]


def table(level: str, layout: Layout, most: int = MOST) -> Table:
    """Compute all outcomes at one level and layout."""
    core = PlayedCore(level, layout)
    seen: dict[str, int] = {}
    outcomes: list[dict[str, Any]] = []
    nodes: list[list[int | None]] = []
    root = _Node((core.root,), (), _names({}, core.root.content, 0))
    waiting = [root]
    at = 0
    while at < len(waiting):
        node = waiting[at]
        row: list[int | None] = [len(waiting)]
        for began in range(len(node.versions)):
            for number, operation in enumerate(OPERATIONS):
                path = (*node.path, (number, began))
                if not _offered(path, most):
                    row.append(None)
                    continue
                outcome, child = _attempt(core, node, began, operation, path)
                text = json.dumps(outcome)
                if text not in seen:
                    seen[text] = len(outcomes)
                    outcomes.append(outcome)
                row.append(seen[text])
                if child is not None and _has_children(path, most):
                    waiting.append(child)
        nodes.append(row)
        waiting[at] = None  # type: ignore[call-overload]
        at += 1
    start = [[root.names[path], *_written(file)] for path, file in core.root.content.items()]
    return Table(start, outcomes, nodes)


Path_ = tuple[tuple[int, int], ...]
"""The commits that led to a version: the number of the operation, and the version at which it began."""


@dataclass(frozen=True)
class _Node:
    versions: tuple[Version, ...]
    path: Path_
    names: dict[str, str]


def _offered(path: Path_, most: int) -> bool:
    if len(path) <= min(most, MOST - 1):
        return True
    return len(path) <= most and all(OPERATIONS[number].among_four for number, _ in path)


def _has_children(path: Path_, most: int) -> bool:
    few = all(OPERATIONS[number].among_four for number, _ in path)
    return len(path) < min(most, MOST if few else MOST - 1)


def _attempt(
    core: Core, node: _Node, began: int, operation: Operation, path: Path_
) -> tuple[dict[str, Any], _Node | None]:
    newest, at = node.versions[-1], node.versions[began]
    staged = core.begin(at, operation.case, copy=node.path.count(path[-1]))
    made = core.commit(newest, staged)
    reads = _reads(operation.case, at)
    if isinstance(made, Refusal):
        return {"kind": "refused", **reads, **_refusal(made, node, newest, staged, core.level)}, None
    if made is newest:
        return {"kind": "nothing", **reads}, None
    names = _names(node.names, made.content, len(path))
    history = History(made.start, made.transactions)
    orders = {level: serial_order(history, level) for level in LEVELS}
    committed = {
        "kind": "committed",
        **reads,
        **_changes(newest.content, made.content, names),
        "order": _numbers(orders[core.level]),
        "strict": orders[SERIALIZABLE] is not None,
    }
    return committed, _Node((*node.versions, made), path, names)


def _names(known: dict[str, str], content: Iterable[str], number: int) -> dict[str, str]:
    """Names of files by the versions that made them: ``0a``, ``0b``, ``1a``."""
    new = [path for path in content if path not in known]
    return {**known, **{path: f"{number}{chr(ord('a') + at)}" for at, path in enumerate(new)}}


def _written(file: File) -> list[Any]:
    return [file.add.partition_values.get("a"), [list(row) for row in file.rows], list(file.hidden)]


def _changes(before: dict[str, File], after: dict[str, File], names: dict[str, str]) -> dict[str, Any]:
    """The files that go, those that come, and those that have other vectors."""
    return {
        "gone": [names[path] for path in before if path not in after],
        "new": [[names[path], *_written(file)] for path, file in after.items() if path not in before],
        "vectors": [
            [names[path], list(file.hidden)]
            for path, file in after.items()
            if path in before and file.hidden != before[path].hidden
        ],
    }


def _reads(case: Case, at: Version) -> dict[str, Any]:
    """The predicate of the reads, None if there are none; and the rows that were found."""
    found = [] if case.rearranges else data_of(case.statement.found(at.state))
    return {"reads": case.sql, "found": [list(row) for row in found], "moves": case.rearranges}


def _refusal(refusal: Refusal, node: _Node, newest: Version, staged: Staged, level: str) -> dict[str, Any]:
    conflict = refusal.conflict
    history = supposed(newest, staged)
    order = serial_order(history, level)
    rule = next(rule for rule in RULES if rule.id == conflict.rule)
    return {
        "error": refusal.error.__name__,
        "rule": rule.id,
        "contract": rule.number,
        "sentence": rule.sentence,
        "advice": conflict.advice,
        "winner": conflict.version - node.versions[0].in_log,
        "files": [node.names.get(path, path) for path in conflict.files],
        "rows": [[node.names.get(path, path), list(found)] for path, found in conflict.positions.items()],
        "fallbacks": [_renamed(text, node.names) for text in conflict.fallbacks],
        "order": _numbers(order),
        "why": [] if order else list(_why_not(history, level)),
    }


def _renamed(text: str, names: dict[str, str]) -> str:
    return re.sub(r"file-\d+", lambda found: names.get(found[0], found[0]), text)


def _numbers(order: Sequence[str] | None) -> list[int] | None:
    """Positions in the log, 1 for the first commit after version 0."""
    return None if order is None else [int(name[1:].split()[0]) for name in order]


def _why_not(history: History, level: str) -> Iterator[dict[str, Any]]:
    """The orders, up to the transaction that shows that they do not explain the history, and what it would have met."""
    versions, happened = play(history)
    every = history.writers

    def tried(before: tuple[Transaction, ...], state: State) -> Iterator[dict[str, Any]]:
        left = [one for one in every if one not in before]
        if not left and state != versions[-1]:
            yield {"order": [one.committed for one in before], "more": [], "fewer": [], "end": True}
        for one in left[:1] if level == SERIALIZABLE else left:
            effect = one.operation(one.name, state)
            order = (*before, one)
            if effect == happened[one.name]:
                yield from tried(order, apply(state, effect))
                continue
            then, now = (_met(one.operation, met) for met in (versions[one.began], state))
            yield {
                "order": [each.committed for each in order],
                "more": [list(row) for row in data_of(now - then)],
                "fewer": [list(row) for row in data_of(then - now)],
                "end": False,
            }

    found = list(tried((), history.start))
    return iter(found[:24])


def _met(operation: Callable[..., Any], state: State) -> State:
    """The rows that an operation acts on, the row of the metadata included."""
    rows = operation.found(state)  # type: ignore[attr-defined]
    return rows | frozenset(row for row in state if not is_data(row) and row.values[0] == METADATA)


# --- files ---


def write(folder: Path, most: int = MOST, only: Iterable[tuple[str, str]] | None = None) -> int:
    """Write the outcomes of each level and layout as a script, which a page that was opened as a file can load, too.

    Args:
        folder: of the scripts.
        most: transactions of a history.
        only: these levels and layouts; None: all.

    Returns:
        The number of outcomes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    every = [(level, name) for level in LEVELS for name in LAYOUTS]
    cache = Path(os.environ.get("REFDELTA_CACHE") or ROOT / ".cache") / "play" / _digest()
    jobs = [(*one, most, cache) for one in (every if only is None else only)]
    with ProcessPoolExecutor(max_workers=min(len(jobs), os.cpu_count() or 1)) as pool:
        texts = list(pool.map(_cached, jobs))
    for (level, name, *_), text in zip(jobs, texts, strict=True):
        (folder / f"{file_of(level, name)}.js").write_text(f"refdeltaOutcomes({text});\n")
    (folder / "offered.js").write_text(f"refdeltaOffered({json.dumps(offered(most))});\n")
    return sum(one is not None for text in texts for row in json.loads(text)["nodes"] for one in row[1:])


def file_of(level: str, layout: str) -> str:
    """The name of a script, without its ending."""
    return f"{level}-{layout}"


def offered(most: int = MOST) -> dict[str, Any]:
    """The operations, the most transactions, and the presets."""
    return {
        "operations": [{"id": one.id, "sql": one.sql, "amongFour": one.among_four} for one in OPERATIONS],
        "most": most,
        "presets": [one for one in presets() if one["state"].count(",") < most],
    }


def presets() -> list[dict[str, str]]:
    """The examples of the documentation: title, text, page, and the choices as an address has them."""
    return json.loads(Path(__file__).with_name("presets.json").read_text())


def _cached(job: tuple[str, str, int, Path]) -> str:
    level, name, most, cache = job
    file = cache / f"{file_of(level, name)}-{most}.json"
    if not file.exists():
        computed = table(level, LAYOUTS[name], most)
        text = json.dumps(
            {"id": file_of(level, name), "most": most, **dataclasses.asdict(computed)}, separators=(",", ":")
        )
        cache.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(f".{os.getpid()}")
        new.write_text(text)
        new.rename(file)
    return file.read_text()


def _digest() -> str:
    """Of everything that decides over the outcomes."""
    found = hashlib.sha256()
    for path in sorted({Path(__file__), *(path for pattern in SOURCES for path in ROOT.glob(pattern))}):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]
