"""Random histories through the rules, against the definition: what was accepted is equivalent to a serial order.

Tables are partitioned and small. Each operation is two functions that share no code: on files, as an engine does it,
and on rows, as it is meant.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from concurrency.commits import LEVELS, SERIALIZABLE, WRITE_SERIALIZABLE, add, commit, ours, remove, run
from refdelta.core.conflicts.rules import RULES
from tiers import examples

Row = tuple[int, int]  # p, a
VALUES = st.integers(0, 2)


@dataclass(frozen=True)
class Operation:
    """``insert`` brings rows; the others look at the rows with this p and this a, None for any: ``delete`` takes them
    away, ``update`` sets a or p to ``to``, ``copy`` inserts them anew with another a or p, ``compact`` moves them.
    """

    kind: str
    p: int | None = None
    a: int | None = None
    sets: str = "a"
    to: int = 0
    rows: tuple[Row, ...] = ()

    def selects(self, row: Row) -> bool:
        return self.p in {None, row[0]} and self.a in {None, row[1]}

    def image(self, row: Row) -> Row:
        return (self.to, row[1]) if self.sets == "p" else (row[0], self.to)

    @property
    def sql(self) -> str:
        parts = [f"{name} = {value}" for name, value in (("p", self.p), ("a", self.a)) if value is not None]
        return " AND ".join(parts) or "true"

    def meant(self, rows: Counter) -> tuple[Counter, Counter]:
        """What it takes away and what it brings."""
        hit = Counter({row: count for row, count in rows.items() if self.selects(row)})
        images = Counter([self.image(row) for row in hit.elements()])
        return {
            "insert": (Counter(), Counter(self.rows)),
            "delete": (hit, Counter()),
            "update": (hit, images),
            "copy": (Counter(), images),
            "compact": (Counter(), Counter()),
        }[self.kind]


CONDITIONS = {"p": st.none() | VALUES, "a": st.none() | VALUES, "sets": st.sampled_from("ap"), "to": VALUES}
OPERATIONS = st.one_of(
    st.builds(
        Operation,
        kind=st.just("insert"),
        rows=st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=2).map(tuple),
    ),
    st.builds(Operation, kind=st.sampled_from(["delete", "update", "copy", "compact"]), **CONDITIONS),
)
HISTORIES = st.lists(st.tuples(OPERATIONS, st.integers(0, 3)), min_size=2, max_size=4)


@dataclass
class Table:
    """Its versions: which file holds which rows."""

    versions: list[dict[str, tuple[Row, ...]]]
    names: itertools.count = field(default_factory=itertools.count)

    def write(self, rows: list[Row], *, changes: bool = True) -> tuple[list, dict[str, tuple[Row, ...]]]:
        adds, files = [], {}
        for p, group in itertools.groupby(sorted(rows), key=lambda row: row[0]):
            name, held = f"f{next(self.names)}", tuple(group)
            bounds = (min(a for _, a in held), max(a for _, a in held))
            adds.append(add(name, p, a=bounds, changes=changes))
            files[name] = held
        return adds, files


@dataclass
class Transaction:
    """An operation that has done its reading and writing, and is to commit."""

    operation: Operation
    saw: int
    actions: list
    files: dict[str, tuple[Row, ...]]
    read: list

    @property
    def effect(self) -> tuple[Counter, Counter]:
        return self.operation.meant(self.snapshot)

    snapshot: Counter = field(default_factory=Counter)


def begin(table: Table, operation: Operation, version: int) -> Transaction:
    """Copy on write."""
    seen = table.versions[version]
    rows = Counter(row for held in seen.values() for row in held)
    hit = {name: held for name, held in seen.items() if any(map(operation.selects, held))}
    changes = operation.kind != "compact"
    if operation.kind == "insert":
        hit, written = {}, list(operation.rows)
    elif operation.kind == "copy":
        written = [operation.image(row) for held in hit.values() for row in held if operation.selects(row)]
    else:
        written = [
            operation.image(row) if operation.kind == "update" and operation.selects(row) else row
            for held in hit.values()
            for row in held
            if operation.kind != "delete" or not operation.selects(row)
        ]
    gone = {} if operation.kind == "copy" else hit
    adds, files = table.write(written, changes=changes)
    removes = [remove(name, held[0][0], changes=changes) for name, held in gone.items()]
    read = [remove(name, held[0][0]) for name, held in hit.items()]
    return Transaction(operation, version, [*removes, *adds], files, read, rows)


def play(history, level, rules=RULES) -> tuple[Table, list[Transaction]]:
    """Commit one after the other; each began at some earlier version. Returns those that were accepted."""
    table = Table([{}])
    _, first = table.write([(0, 0), (0, 1), (1, 0), (1, 1)])
    table.versions[0] = first
    winners, accepted = [], []
    for operation, age in history:
        txn = begin(table, operation, max(0, len(table.versions) - 1 - age))
        reads = [] if operation.kind == "insert" else [operation.sql]
        state = ours(*txn.actions, reads=reads, files=txn.read, level=level, version=txn.saw)
        if run(state, *winners[txn.saw :], rules=rules) is not None:
            continue
        version = len(table.versions)
        recorded = [one.text for one in state.predicates]
        winners.append(commit(version, *txn.actions, reads=recorded, saw=txn.saw, blind=state.blind))
        removed = {action.path for action in txn.actions if type(action).__name__ == "Remove"}
        table.versions.append({n: h for n, h in table.versions[-1].items() if n not in removed} | txn.files)
        accepted.append(txn)
    return table, accepted


def rows_of(files) -> Counter:
    return Counter(row for held in files.values() for row in held)


def is_serial(table: Table, order) -> bool:
    rows = rows_of(table.versions[0])
    for txn in order:
        if txn.operation.meant(rows) != txn.effect:
            return False
        taken, brought = txn.effect
        rows = rows - taken + brought
    return rows == rows_of(table.versions[-1])


@examples(400)
@given(HISTORIES)
def test_serializable_means_the_order_of_the_log(history):
    table, accepted = play(history, SERIALIZABLE)
    assert is_serial(table, accepted)


@examples(600)
@given(HISTORIES)
def test_write_serializable_means_some_order(history):
    table, accepted = play(history, WRITE_SERIALIZABLE)
    assert any(is_serial(table, order) for order in itertools.permutations(accepted))


@examples(200)
@given(HISTORIES, st.sampled_from(LEVELS))
def test_one_after_the_other_never_conflicts(history, level):
    _, accepted = play([(operation, 0) for operation, _ in history], level)
    assert len(accepted) == len(history)


@examples(200)
@given(HISTORIES)
def test_the_weaker_level_lets_the_first_meeting_pass_where_the_stricter_one_does(history):
    first, second = history[:2]
    pair = [first, (second[0], 3)]
    counts = [len(play(pair, level)[1]) for level in (SERIALIZABLE, WRITE_SERIALIZABLE)]
    assert counts[0] <= counts[1]


def test_without_the_rule_for_skipped_appends_histories_break():
    insert = Operation("insert", rows=((0, 2),))
    copies = Operation("copy", p=0, sets="p", to=2)
    delete = Operation("delete", p=0)
    history = [(insert, 0), (copies, 0), (delete, 3)]
    without = [rule for rule in RULES if rule.number != 10]
    for rules, accepted_count, sound in ((without, 3, False), (RULES, 2, True)):
        table, accepted = play(history, WRITE_SERIALIZABLE, rules)
        assert len(accepted) == accepted_count
        assert any(is_serial(table, order) for order in itertools.permutations(accepted)) is sound
