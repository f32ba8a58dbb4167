"""refdelta and delta-spark write to one table in turns: statements, maintenance, checkpoints, RESTORE and VACUUM.

After each turn both read the rows that SQLite has after the same statements.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import spark_tables
from refdelta import DeltaTable, write_deltalake
from refdelta.crosscheck import oracle
from row_judge import (
    COMPACT,
    PURGE,
    Z_ORDER,
    Judge,
    Rows,
    Statement,
    begun,
    delete,
    held,
    listed,
    merge_away,
    rows,
    update,
    upsert,
)
from spark_tables import tries

pytestmark = pytest.mark.spark

VECTORS = {"delta.enableDeletionVectors": "true"}
SETTINGS = {
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    # The number of tasks that list the folders, 10,000 by default.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
}

some_rows = st.builds("id % {} = {}".format, st.integers(3, 6), st.integers(0, 2)) | st.builds(
    "id BETWEEN {} AND {}".format, st.integers(0, 9), st.integers(8, 19)
)
keys = st.sets(st.integers(0, 40), min_size=1, max_size=5)
changes = st.one_of(
    st.builds(delete, some_rows),
    st.builds(update, st.sampled_from(["v + 1", "id", "0"]), some_rows),
    keys.map(lambda ids: upsert(*ids, value=5)),
    keys.map(lambda ids: merge_away(*ids)),
)
maintenance = st.sampled_from([COMPACT, PURGE, Z_ORDER, "checkpoint", "restore", "vacuum"])
pairs = st.tuples(changes, changes | maintenance)
turns = st.lists(st.tuples(pairs, st.booleans()), min_size=4, max_size=4).map(
    lambda drawn: [(statement, one == ours_first) for pair, ours_first in drawn for one, statement in enumerate(pair)]
)


class Turns:
    """One table that both write to. ``past`` are the rows of the versions whose files are still there.

    delta-spark cannot vacuum a table with small vectors that stand in the log: there, all vacuuming is refdelta's.
    """

    def __init__(self, spark: Any, path: Path, partition_by: list[str] | None, *, inline: bool) -> None:
        self.spark, self.path, self.judge, self.inline = spark, path, Judge(), inline
        properties = VECTORS | {"refdelta.inlineDeletionVectors": str(inline).lower()}
        for start in range(0, 20, 7):
            part = rows(range(start, min(20, start + 7)), 0)
            write_deltalake(path, part, mode="append", partition_by=partition_by, configuration=properties)
        self.past: dict[int, Rows] = {self.version: self.judge.rows()}

    @property
    def version(self) -> int:
        return DeltaTable(self.path).version()

    def take(self, what: Statement | str, *, ours: bool) -> None:
        if isinstance(what, Statement):
            self._run(what, ours=ours)
        else:
            getattr(self, what)(ours=ours)
        self.past[self.version] = self.judge.rows()
        assert held(self.path) == self.judge.rows()
        assert listed(oracle.read_table(self.spark, self.path)) == self.judge.rows()
        assert DeltaTable(self.path).count() == len(self.judge.rows())

    def _run(self, statement: Statement, *, ours: bool) -> None:
        if ours:
            begun(DeltaTable(self.path), statement).commit()
        else:
            spark_tables.sql(self.spark, self.path, statement.spark)
        self.judge.run(statement)

    def checkpoint(self, *, ours: bool) -> None:
        if ours:
            DeltaTable(self.path).create_checkpoint()
        else:
            oracle.checkpoint(self.spark, self.path)
        oracle.clear_cache(self.spark)

    def restore(self, *, ours: bool) -> None:
        version = sorted(self.past)[len(self.past) // 2]
        if version == self.version:
            return  # delta-spark calls that an error
        if ours:
            DeltaTable(self.path).restore(version)
        else:
            spark_tables.sql(self.spark, self.path, f"RESTORE {{t}} TO VERSION AS OF {version}")
        self.judge.put_back(self.past[version])

    def vacuum(self, *, ours: bool) -> None:
        if ours or self.inline:
            table = DeltaTable(self.path)
            table.vacuum(retention_hours=0, dry_run=False, full=True, enforce_retention_duration=False)
        else:
            spark_tables.sql(self.spark, self.path, "VACUUM {t} RETAIN 0 HOURS")
        self.past = {}


@tries(2)
@given(turns=turns, partition_by=st.sampled_from([None, ["p"]]), inline=st.booleans())
def test_each_goes_on_from_what_the_other_left(quick_spark, fresh_path, turns, partition_by, inline):
    for name, value in SETTINGS.items():
        quick_spark.conf.set(name, value)
    try:
        table = Turns(quick_spark, fresh_path(), partition_by, inline=inline)
        for what, ours in turns:
            table.take(what, ours=ours)
    finally:
        for name in SETTINGS:
            quick_spark.conf.unset(name)
