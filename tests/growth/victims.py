"""Who suffers from a text or a commit: what each does with it, and how much processor time that takes."""

from __future__ import annotations

import contextlib
import io
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from growth.texts import COLUMNS
from refdelta import DeltaTable, verify, write_deltalake
from refdelta.api.transaction import WriteTransaction
from refdelta.arrow.schema import to_arrow
from refdelta.cli import main
from refdelta.core.conflicts.reads import EVERY_ROW
from refdelta.core.log.actions import Add
from refdelta.engine.scan.skipping import prune
from refdelta.errors import DeltaError
from refdelta.expressions.evaluate import row_mask
from refdelta.expressions.expression import to_sql
from refdelta.expressions.sql import parse_predicate
from refdelta.pruning.row_predicate import row_predicate

Costs = dict[str, float]
"""Seconds of processor time, by what was done."""

_ROWS = 200


class _Clock:
    def __init__(self) -> None:
        self.costs: Costs = {}

    @contextlib.contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Time what is done; a ``DeltaError`` is an answer, anything else is a finding."""
        start = time.process_time()
        try:
            with contextlib.suppress(DeltaError):
                yield
        finally:
            self.costs[name] = time.process_time() - start


def text(sql: str) -> Costs:
    """Read, evaluate, prune and compare a text, as a predicate of a statement, or of another's commit."""
    clock = _Clock()
    predicate = None
    with clock.of("read"):
        predicate = parse_predicate(sql, COLUMNS)
    if predicate is None:
        return clock.costs
    batch = pa.RecordBatch.from_pydict({item.name: pa.nulls(_ROWS, item.type) for item in to_arrow(COLUMNS)})
    numbers = pa.array(range(_ROWS), pa.int64())
    batch = batch.set_column(0, "n", numbers).set_column(3, "s", numbers.cast(pa.string()))
    with clock.of("evaluate"):
        row_mask(predicate, batch)
    add = Add(path="x", partition_values={"s": "7"}, size=1, modification_time=1, data_change=True,
              stats='{"numRecords":9,"minValues":{"n":3},"maxValues":{"n":9},"nullCount":{"n":0}}')  # fmt: skip
    ours = row_predicate(predicate, COLUMNS, ("s",))
    with clock.of("look at a file"):
        ours.may_match(add)
    with clock.of("prune"):
        stats = [add.stats] * 3
        values = pa.array([[("s", "7")]] * 3, pa.map_(pa.string(), pa.string()))
        files = pa.table({"path": ["a", "b", "c"], "partitionValues": values, "stats": stats})
        prune(files, COLUMNS, ("s",), predicate)
    with clock.of("compare with itself"):
        ours.is_disjoint(ours)
    with clock.of("compare with another"):
        one = row_predicate(parse_predicate("n > 3 AND (s = 'a' OR x < 2)", COLUMNS), COLUMNS, ("s",))
        assert not one.is_disjoint(EVERY_ROW)
        ours.is_disjoint(one)
        one.is_disjoint(ours)
    with clock.of("write"):
        to_sql(predicate)
    return clock.costs


class Tables:
    """Makes copies of a small table, with deletion vectors and domains, that a hostile writer commits to."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._made = folder, folder / "made"
        write_deltalake(
            self._made,
            pa.table({"n": pa.array([1, 2, 3], pa.int64())}),
            configuration={"delta.enableDeletionVectors": "true", "delta.feature.domainMetadata": "supported"},
        )
        (file,) = (path.name for path in self._made.glob("*.parquet"))
        # Hostile commits name it so, and copies of it.
        (self._made / file).rename(self._made / "x.parquet")
        for name in ("out.parquet", "new.parquet", "appended.parquet"):
            shutil.copy(self._made / "x.parquet", self._made / name)
        log = self._made / "_delta_log" / f"{0:020d}.json"
        log.write_text(log.read_text().replace(file, "x.parquet"))
        for checksum in log.parent.glob("*.crc"):
            checksum.unlink()

    @contextlib.contextmanager
    def copy(self) -> Iterator[Path]:
        """A table at version 0."""
        path = Path(tempfile.mkdtemp(dir=self.folder))
        shutil.copytree(self._made, path, dirs_exist_ok=True)
        try:
            yield path
        finally:
            shutil.rmtree(path)


def commit(tables: Tables, contents: Sequence[str]) -> Costs:
    """Meet hostile versions from 1 on: honest writers that began before them, a reader, the verifier, and the command
    line.
    """
    clock = _Clock()
    with tables.copy() as path, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        changes: dict[str, Callable[[WriteTransaction], object]] = {
            "DELETE that began before": lambda begun: begun.delete("n = 2"),
            "UPDATE that began before": lambda begun: begun.update({"n": "n + 1"}, predicate="n > 1"),
            "append that began before": lambda begun: begun.append(pa.table({"n": [4]})),
        }
        for name, change in changes.items():
            begun = DeltaTable(path).begin()
            change(begun)
            _put(path, contents)
            with clock.of(name):
                begun.commit()
            for file in (path / "_delta_log").glob("*"):
                if file.is_file() and not file.name.endswith(f"{0}.json"):
                    file.unlink()
        _put(path, contents)
        with clock.of("read"):
            DeltaTable(path).to_pyarrow_table()
        with clock.of("read by a predicate"):
            list(DeltaTable(path).scan(predicate="n > 1").to_reader())
        with clock.of("verify"):
            verify(path)
        for words in ("log", "history", "detail", "files"):
            said = io.StringIO()
            with (
                clock.of(f"refdelta {words}"),
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(said),
            ):
                main([words, str(path)])
            assert "REFDELTA_DEBUG" not in said.getvalue(), said.getvalue()[-3000:]
    return clock.costs


def _put(path: Path, contents: Sequence[str]) -> None:
    for version, content in enumerate(contents, 1):
        (path / "_delta_log" / f"{version:020d}.json").write_text(content)
