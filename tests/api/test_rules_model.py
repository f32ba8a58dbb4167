"""Any statements in any order, on tables with constraints, generated columns, defaults and identity columns, beside
other features: the rows are those of a model, each rule holds for them, and no number is given twice.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta import DeltaTable, Identity, errors, verify, write_deltalake
from tiers import examples

SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("g", pa.int64()), ("p", pa.string()), ("d", pa.int32())])
Rows = dict[int, tuple[int, int]]  # a and d by id

CONFIGURATIONS = st.fixed_dictionaries(
    {"delta.constraints.c": st.just("a < 1000")},
    optional={
        "delta.enableDeletionVectors": st.just("true"),
        "delta.columnMapping.mode": st.sampled_from(["name", "id"]),
        "delta.enableRowTracking": st.just("true"),
        "delta.enableChangeDataFeed": st.just("true"),
        "delta.checkpointInterval": st.just("2"),
    },
)
STATEMENTS = ["append", "append", "update", "merge", "delete", "compact", "overwrite", "replace", "restore", "broken"]


@dataclass
class Model:
    """A table and what it should hold. A statement returns the rows that stay, and ``(a, d)`` of those that are new."""

    table: DeltaTable
    rows: Rows = field(default_factory=dict)
    versions: dict[int, Rows] = field(default_factory=dict)
    given: set[int] = field(default_factory=set)
    values: Any = field(default_factory=lambda: itertools.count(1))

    def fresh(self, count: int) -> list[int]:
        return list(itertools.islice(self.values, count))

    def append(self, count: int) -> tuple[Rows, list[tuple[int, int]]]:
        new = self.fresh(count)
        more = {"d": pa.array([5] * count, pa.int32())} if count == 2 else {}
        write_deltalake(self.table, pa.table({"a": new} | more), mode="append")
        return self.rows, [(a, 5 if more else 7) for a in new]

    def overwrite(self, count: int) -> tuple[Rows, list[tuple[int, int]]]:
        new = self.fresh(count)
        write_deltalake(self.table, pa.table({"a": new}), mode="overwrite")
        return {}, [(a, 7) for a in new]

    def replace(self, count: int) -> tuple[Rows, list[tuple[int, int]]]:
        new = [2 * a for a in self.fresh(count)]
        write_deltalake(self.table, pa.table({"a": new}), mode="overwrite", predicate="p = 'even'")
        return {number: row for number, row in self.rows.items() if row[0] % 2}, [(a, 7) for a in new]

    def update(self, count: int) -> tuple[Rows, list[tuple[int, int]]]:
        self.table.update({"a": f"a + {count}", "d": "DEFAULT"}, predicate="a % 3 = 0")
        return {n: (a + count, 7) if a % 3 == 0 else (a, d) for n, (a, d) in self.rows.items()}, []

    def merge(self, count: int) -> tuple[Rows, list[tuple[int, int]]]:
        known = {a for a, _ in self.rows.values()}
        keys = {*self.fresh(count), *sorted(known)[:2]}
        merger = self.table.merge(pa.table({"k": sorted(keys)}), "s.k = t.a").when_matched_update({"d": "9"})
        merger = merger.when_not_matched_insert({"a": "s.k"}, predicate="s.k % 2 = 0")
        merger.when_not_matched_insert({"a": "s.k", "d": "3"}).execute()
        kept = {n: (a, 9 if a in keys else d) for n, (a, d) in self.rows.items()}
        return kept, [(a, 3 if a % 2 else 7) for a in keys - known]

    def delete(self, _: int) -> tuple[Rows, list[tuple[int, int]]]:
        self.table.delete("a % 5 = 0")
        return {number: row for number, row in self.rows.items() if row[0] % 5}, []

    def compact(self, _: int) -> tuple[Rows, list[tuple[int, int]]]:
        self.table.optimize.compact()
        return self.rows, []

    def restore(self, count: int) -> tuple[Rows, list[tuple[int, int]]]:
        version = sorted(self.versions)[-count:][0]
        self.table.restore(version)
        return self.versions[version], []

    def broken(self, _: int) -> tuple[Rows, list[tuple[int, int]]]:
        for change in (
            lambda: write_deltalake(self.table, pa.table({"a": [5000]}), mode="append"),
            lambda: write_deltalake(self.table, pa.table({"a": [1], "g": [11]}), mode="append"),
            lambda: write_deltalake(self.table, pa.table({"a": [1], "id": [11]}), mode="overwrite"),
        ):
            with pytest.raises(errors.ConstraintViolationError):
                change()
        return self.rows, []

    def check(self, kept: Rows, new: list[tuple[int, int]]) -> None:
        found = self.table.to_pyarrow_table().to_pylist()
        for row in found:
            assert (row["g"], row["p"]) == (row["a"] * 10, "odd" if row["a"] % 2 else "even")
        now = {row["id"]: (row["a"], row["d"]) for row in found}
        assert len(now) == len(found)
        numbered = {number: row for number, row in now.items() if number not in kept}
        assert {number: row for number, row in now.items() if number in kept} == kept
        assert sorted(numbered.values()) == sorted(new)
        assert not numbered.keys() & self.given
        self.given |= now.keys()
        self.rows = self.versions[self.table.version()] = now


@pytest.mark.tier("test")
@examples(6)
@given(
    configuration=CONFIGURATIONS,
    partitioned=st.booleans(),
    statements=st.lists(st.tuples(st.sampled_from(STATEMENTS), st.integers(1, 4)), min_size=6, max_size=10),
)
def test_rules_hold_whatever_is_done(fresh_path, configuration, partitioned, statements):
    table = DeltaTable.create(
        fresh_path(),
        SCHEMA,
        partition_by="p" if partitioned else None,
        configuration=configuration,
        identity={"id": Identity(1, 2)},
        generated={"g": "a * 10", "p": "CASE WHEN a % 2 = 0 THEN 'even' ELSE 'odd' END"},
        defaults={"d": "7"},
    )
    model = Model(table, versions={0: {}})
    for statement, count in statements:
        model.check(*getattr(model, statement)(count))
    assert not verify(table.table_uri).errors
