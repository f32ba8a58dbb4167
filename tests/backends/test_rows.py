"""DELETE, UPDATE and MERGE with maintenance between them: after each step the rows are those of SQLite."""

from __future__ import annotations

import random

import pytest

from backends.tables import NOW, VECTORS, files, held, opened, write
from row_judge import (
    COMPACT,
    PURGE,
    Z_ORDER,
    Judge,
    Statement,
    begun,
    delete,
    insert,
    merge_away,
    rows,
    update,
    upsert,
)

STEPS = 14


def some_statements(chance: random.Random) -> list[Statement | str]:
    """Statements and maintenance by turns; a seed gives the same ones on every backend."""

    def where() -> str:
        low = chance.randint(0, 12)
        return chance.choice(
            [f"id % {chance.randint(3, 5)} = {chance.randint(0, 2)}", f"id BETWEEN {low} AND {low + 5}"]
        )

    def keys() -> list[int]:
        return sorted(chance.sample(range(40), chance.randint(1, 5)))

    changes = (
        lambda: delete(where()),
        lambda: update(chance.choice(["v + 1", "id", "0"]), where()),
        lambda: upsert(*keys(), value=5),
        lambda: merge_away(*keys()),
    )
    rest = [COMPACT, PURGE, Z_ORDER, "checkpoint", "restore"]
    chance.shuffle(rest)
    steps: list[Statement | str] = [insert(*range(100, 104))]
    for number in range(STEPS):
        steps.append(rest[number // 3] if number % 3 == 2 else chance.choice(changes)())
    return steps


@pytest.mark.tier("test")
@pytest.mark.sample(check=1, test=4)
@pytest.mark.parametrize(
    ("vectors", "partition_by", "seed"),
    [(VECTORS, None, 1), ({}, ["p"], 2)],
    ids=["vectors", "files-partitions"],
)
def test_statements_and_maintenance_leave_the_rows_that_sqlite_has(place, vectors, partition_by, seed):
    judge = Judge()
    for start in range(0, 20, 7):
        part = rows(range(start, min(20, start + 7)), 0)
        write(place, part, mode="append", partition_by=partition_by, configuration=vectors)
    table = opened(place)
    past = {table.version(): judge.rows()}
    for step in some_statements(random.Random(seed)):
        if isinstance(step, Statement):
            begun(table, step).commit()
            judge.run(step)
        elif step == "checkpoint":
            table.create_checkpoint()
        else:
            version = sorted(past)[len(past) // 2]
            table.restore(version)
            judge.put_back(past[version])
        assert held(place) == judge.rows(), step
        assert opened(place).count() == len(judge.rows())
        past[table.version()] = judge.rows()
    for version, wanted in past.items():
        assert held(place, version) == wanted, version
    table.vacuum(dry_run=False, full=True, **NOW)
    assert held(place) == judge.rows()
    live = set(table.files()["path"].to_pylist())
    assert {name for name in files(place) if name.endswith(".parquet")} == live
