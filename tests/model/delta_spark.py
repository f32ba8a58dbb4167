"""delta-spark's own optimistic transactions on the histories of the precision table.

The second operation begins in delta-spark, at the root of the table; then the log gets the first one's commit, as the
engine made it; then delta-spark commits what the engine has staged for the second. ``make search NAME=precision-spark``
asks it about every history that the judge accepts and writes the answers down, so that the table itself needs no Java.
"""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count, product
from pathlib import Path
from typing import Any

from model.branches import supposed
from model.cases import ALL, Case
from model.engine import Engine
from model.exhaustive import pairs
from model.layouts import LAYOUTS, Layout
from refdelta.conformance.cases import CaseTransaction
from refdelta.conformance.core_transactions import SparkTransaction
from refdelta.conformance.judge import LEVELS, accepts
from refdelta.core.log.paths import commit_key
from refdelta.crosscheck import oracle

ANSWERS = Path(__file__).with_suffix(".toml")

COMMITS, UNASKED = "c", "."
LETTERS = {
    None: COMMITS,
    "ConcurrentAppend": "A",
    "ConcurrentDeleteRead": "R",
    "ConcurrentDeleteDelete": "D",
    "ConcurrentTransaction": "T",
    "MetadataChanged": "M",
    "ProtocolChanged": "P",
}

HEAD = """\
# What delta-spark makes of the histories of the precision table. Written by `make search NAME=precision-spark`.
# A row is the operation that has committed; its letters are those that want to commit behind it, in the order of the
# rows: c commits, . was not asked since the judge rejects it or nothing is written, the others are exceptions:
# """ + ", ".join(f"{letter} {error}" for error, letter in LETTERS.items() if error)  # fmt: skip

CONF = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
}
"""For many tiny tables."""


@dataclass(frozen=True)
class Pair:
    """A history of two operations that began together.

    Attributes:
        names: of both.
        log: of the table, behind the first one.
        second: the second one.
        actions: what it commits.
    """

    names: tuple[str, str]
    log: tuple[bytes, ...]
    second: Case
    actions: list[dict[str, Any]]


def histories(engine: Engine) -> list[Pair]:
    """Those that the judge accepts."""
    return [
        Pair((first.name, second.name), winner.log, second, engine.undisturbed(staged))
        for first, second, winner, staged in pairs(engine, ALL)
        if accepts(supposed(winner, staged), engine.level)
    ]


def answers(spark: Any, fresh: Callable[[], Path], asked: Iterable[Pair]) -> list[str]:
    """What becomes of the second operations in delta-spark, as letters.

    Args:
        spark: a session.
        fresh: gives a folder that does not exist yet, another one at every call.
        asked: the histories.
    """
    with ThreadPoolExecutor(4) as pool:  # most of a history is waiting for tiny jobs
        return list(pool.map(lambda pair: _answer(spark, fresh(), pair), asked))


def _answer(spark: Any, path: Path, pair: Pair) -> str:
    (path / "_delta_log").mkdir(parents=True)
    *seen, won = pair.log
    for version, data in enumerate(seen):
        (path / commit_key(version)).write_bytes(data)
    transaction = SparkTransaction(spark, path, CaseTransaction("second", _reads(pair.second), ()), first=False)
    (path / commit_key(len(seen))).write_bytes(won)
    failure = transaction.commit(pair.actions)
    return LETTERS[failure and failure.error]


def _reads(case: Case) -> tuple[str, ...]:
    """In the words of the scenarios. As delta-spark's own, OPTIMIZE and REORG read what they rewrite."""
    if case.application:
        return (f"app {case.application}",)
    if case.sql is None:
        return ("everything",) if case.rearranges else ()
    return (case.sql or "everything",)


def title(level: str, layout: Layout) -> str:
    """Of the answers about a table. What transactions of this engine ask for makes no difference to them."""
    return f"{level}, {layout.table}"


def recorded(level: str, layout: Layout) -> dict[tuple[str, str], str]:
    """The letters that are written down for one table, by the names of both operations."""
    rows = tomllib.loads(ANSWERS.read_text())[title(level, layout)]
    return {(first, second): letter for first in rows for second, letter in zip(rows, rows[first], strict=True)}


def _tables(spark: Any, folder: Path) -> Iterator[str]:
    names = [case.name for case in ALL]
    numbers = count()
    for level, layout in product(LEVELS, dict.fromkeys(layout.table for layout in LAYOUTS)):
        asked = histories(Engine(level, layout))
        letters = answers(spark, lambda: folder / str(next(numbers)), asked)
        said = dict(zip((pair.names for pair in asked), letters, strict=True))
        oracle.clear_cache(spark)
        yield f'\n["{title(level, layout)}"]'
        for first in names:
            yield f'"{first}" = "{"".join(said.get((first, second), UNASKED) for second in names)}"'


if __name__ == "__main__":
    with oracle.session(conf=CONF) as session, tempfile.TemporaryDirectory() as scratch:
        ANSWERS.write_text("\n".join([HEAD, *_tables(session, Path(scratch))]) + "\n")
