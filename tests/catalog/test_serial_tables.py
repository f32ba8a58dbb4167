"""Random programs over two and three tables of a catalog, through the public API, held to an oracle of its own: plain
dictionaries, and every order of the transactions that committed.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from refdelta import errors, write_deltalake
from refdelta.catalog import SqlCatalog
from tiers import examples

SCHEMA = pa.schema({"id": pa.int64(), "v": pa.int64()})
TABLES = ("a", "b", "c")
START = {name: {1: 0, 2: 0} for name in TABLES}

State = dict[str, dict[int, int]]
"""By table, the values by id."""


@dataclass(frozen=True)
class Step:
    """One call: what it does to a table, with the ids and the value that it names."""

    table: str
    kind: str
    id: int
    value: int = 0


@dataclass
class Program:
    """A transaction: its steps, whether it uses the catalog's transaction, and what it saw and wrote."""

    steps: tuple[Step, ...]
    seen: tuple[Any, ...] = ()
    handle: Any = None
    fresh: int = 0


def of_oracle(program: Program, state: State) -> tuple[tuple[Any, ...], State]:
    """What the program sees, and leaves, in a state: its statements see what was there when it began."""
    after = {name: dict(rows) for name, rows in state.items()}
    seen, total = [], 0
    for step in program.steps:
        rows = state[step.table]
        match step.kind:
            case "read":
                found = rows.get(step.id)
                seen.append(found)
                total += 100 if found is None else found + 1
            case "update":
                if step.id in rows:
                    after[step.table][step.id] = step.value
            case "delete":
                after[step.table].pop(step.id, None)
            case "append":
                # What was read goes into what is written.
                after[step.table][program.fresh] = total
            case "merge":
                after[step.table][step.id] = step.value
    return tuple(seen), after


def of_engine(program: Program, parts: Any) -> tuple[Any, ...]:
    seen, total = [], 0
    for step in program.steps:
        txn = parts(step.table)
        match step.kind:
            case "read":
                found = txn.read(predicate=f"id = {step.id}")["v"].to_pylist()
                seen.append(found[0] if found else None)
                total += 100 if not found else found[0] + 1
            case "update":
                txn.update({"v": str(step.value)}, predicate=f"id = {step.id}")
            case "delete":
                txn.delete(f"id = {step.id}")
            case "append":
                txn.append(pa.table({"id": [program.fresh], "v": [total]}, SCHEMA))
            case "merge":
                source = pa.table({"id": [step.id], "v": [step.value]}, SCHEMA)
                txn.merge(source, "s.id = t.id").when_matched_update_all().when_not_matched_insert_all().execute()
    return tuple(seen)


@st.composite
def programs(draw, tables):
    """Reads of some tables, then a statement or an append in some."""
    reads = draw(st.lists(st.sampled_from(tables), max_size=2))
    writes = draw(st.lists(st.sampled_from(tables), min_size=1, max_size=2, unique=True))
    steps = [Step(name, "read", draw(st.integers(1, 3))) for name in reads]
    for name in writes:
        kind = draw(st.sampled_from(["update", "delete", "append", "append", "merge"]))
        steps.append(Step(name, kind, draw(st.integers(1, 3)), draw(st.integers(1, 3))))
    return tuple(steps)


@st.composite
def histories(draw):
    count, tables = draw(st.integers(2, 4)), TABLES[: draw(st.integers(2, 3))]
    waiting, running, events = list(range(count)), [], []
    while waiting or running:
        if waiting and (not running or draw(st.booleans())):
            running.append(waiting.pop(0))
            events.append(("begin", running[-1]))
        else:
            events.append(("commit", running.pop(draw(st.integers(0, len(running) - 1)))))
    levels = {name: draw(st.sampled_from(["Serializable", "WriteSerializable"])) for name in tables}
    return tables, levels, events, [draw(programs(tables)) for _ in range(count)]


@dataclass
class Played:
    committed: list[Program] = field(default_factory=list)
    refused: int = 0


def begun(catalog: SqlCatalog, program: Program) -> Any:
    """A transaction over one table is one of that table, as other writers have it."""
    names = {step.table for step in program.steps}
    if len(names) == 1:
        txn = catalog.table(*names).begin()
        program.seen = of_engine(program, lambda _: txn)
        return txn
    tx = catalog.transaction()
    program.seen = of_engine(program, lambda name: tx[name])
    return tx


@pytest.mark.tier("test")
@examples(60)
@given(histories())
def test_what_committed_equals_some_order_of_it(fresh_path, history):
    tables, levels, events, all_steps = history
    folder = fresh_path()
    folder.mkdir()
    played = Played()
    with SqlCatalog(f"sqlite:///{folder}/catalog.db", warehouse=folder / "tables") as catalog:
        for name in tables:
            configuration = {"delta.isolationLevel": levels[name]}
            table = catalog.create_table(name, SCHEMA, commits="inline", configuration=configuration)
            write_deltalake(table, pa.table({"id": [1, 2], "v": [0, 0]}, SCHEMA), mode="append")
        running: dict[int, Program] = {}
        for what, number in events:
            if what == "begin":
                running[number] = Program(all_steps[number], fresh=10 + number)
                running[number].handle = begun(catalog, running[number])
                continue
            try:
                done = running[number].handle.commit()
            except errors.ConcurrentModificationError:
                played.refused += 1
            else:
                # One that wrote nothing only read, at its snapshot.
                results = done.values() if isinstance(done, dict) else [done]
                if any(one.version is not None for one in results):
                    played.committed.append(running[number])
        end = {
            name: dict(sorted(zip(*(one.to_pyarrow_table()[c].to_pylist() for c in ("id", "v")), strict=True)))
            for name, one in catalog.snapshot(tables).items()
        }
    event(f"{len(played.committed)} committed, {played.refused} refused")
    strict = all(level == "Serializable" for level in levels.values())
    orders = [played.committed] if strict else itertools.permutations(played.committed)
    assert any(_explains(order, tables, end) for order in orders), f"no order explains {played.committed}: {end}"


def _explains(order: Any, tables: Any, end: State) -> bool:
    state: State = {name: dict(START[name]) for name in tables}
    for program in order:
        seen, state = of_oracle(program, state)
        if seen != program.seen:
            return False
    return {name: dict(sorted(rows.items())) for name, rows in state.items()} == end
