"""All histories of a few transactions on wide tables: several calls a transaction, metadata domains, changes of the
schema, RESTORE, VACUUM, and the times of commits. See :mod:`model.program_cases`.

Beside what :mod:`model.test_exhaustive` asks of each version, the log says of domains, columns, rules and features what
the judge says, no version names a file that VACUUM has deleted, and each version is later than the one before it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

import tiers
from model import tables
from model.branches import Branches, Refusal, Version
from model.cases import BY_HAND, DELETE_0, INSERT_0, INSERT_ONCE
from model.core import Core
from model.engine import Engine
from model.entries import Wrong
from model.exhaustive import explore, pairs
from model.layouts import CLUSTERED, CLUSTERED_TRACKED, WIDE, WIDE_PARTITIONED, WIDE_ROWS, WIDER, Layout, each
from model.program_cases import STATEMENTS, named, of_rows_and_domains, programs
from refdelta.conformance.judge import LEVELS, SERIALIZABLE, WRITE_SERIALIZABLE
from refdelta.core.commit import member
from refdelta.core.commit.member import Member
from refdelta.core.conflicts import precedence, rules
from refdelta.core.conflicts.precedence import Precedence
from refdelta.core.conflicts.reads import Read, ReadSet
from refdelta.core.conflicts.state import TransactionState
from refdelta.core.log.assigned import CommitClock
from refdelta.core.log.footprint import Footprint
from refdelta.expressions.sql import parse_predicate
from refdelta.operations.write.source import TablesRead
from refdelta.transaction import prepared_commit
from refdelta.transaction.row_matching import RowMatching
from refdelta.transaction.transaction import Transaction
from rules_left_out import check_without

# --- the histories ------------------------------------------------------------------------------------------------


@pytest.mark.tier("test")
@pytest.mark.sample(check=1, test=2)
@each(*WIDER, CLUSTERED_TRACKED)
@pytest.mark.parametrize("level", LEVELS)
def test_pairs_through_the_engine(level, layout, say):
    """Changes of the table, RESTORE and VACUUM with each program, and with some statements of the other tables."""
    known = of_rows_and_domains(layout)
    some = tiers.some([case for case in programs(layout) if case not in known], check=5, test=8)
    cases = [*some, *tiers.some(known, check=5, test=8), *tiers.some(STATEMENTS[::2], check=2, test=3)]
    say(f"2 of {len(cases)}: {tables.explored(tables.engine(level, layout), cases, 2, among=some)}")


@pytest.mark.tier("test")
@pytest.mark.sample(test=2)
@each(WIDE_ROWS, CLUSTERED, WIDE, WIDE_PARTITIONED)
@pytest.mark.parametrize("level", LEVELS)
def test_pairs_through_the_rules(level, layout, say):
    known = tiers.some(of_rows_and_domains(layout), check=14, test=24)
    cases = [*known, *STATEMENTS]
    say(f"2 of {len(cases)}: {tables.explored(tables.core(level, layout), cases, 2, among=known)}")


@pytest.mark.tier("test")
@pytest.mark.sample(check=1, test=2)
@pytest.mark.parametrize("part", range(3))
@each(WIDE_ROWS, CLUSTERED, WIDE_PARTITIONED)
@pytest.mark.parametrize("level", LEVELS)
def test_triples_through_the_rules(level, layout, part, say):
    """A third of the programs at a time, beside an append and a deletion."""
    cases = [*tiers.some(of_rows_and_domains(layout)[part::3], check=4, test=6), INSERT_0, DELETE_0]
    say(f"3 of {len(cases)}: {tables.explored(tables.core(level, layout), cases, 3)}")


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("level", LEVELS)
def test_triples_of_changes_of_the_table_through_the_engine(level, say):
    cases = named(CLUSTERED, "cluster by s", "drop s", "restore", "vacuum", "enable times", "delete a = 0")
    say(f"3 of {len(cases)}: {tables.explored(tables.engine(level, CLUSTERED), cases, 3)}")


@pytest.mark.tier("test")
@pytest.mark.sample(test=1)
@each(*WIDER)
@pytest.mark.parametrize("level", LEVELS)
def test_the_rules_alone_decide_as_in_the_engine(level, layout):
    cases = tiers.some([*of_rows_and_domains(layout), *STATEMENTS], check=8, test=12)

    def outcomes(table):
        for first, second, winner, staged in pairs(table, cases):
            outcome = table.commit(winner, staged)
            yield first.name, second.name, outcome.rule if isinstance(outcome, Refusal) else "committed"

    rules, engine = (outcomes(kind(level, layout)) for kind in (tables.core, tables.engine))
    assert not [pair for pair in zip(rules, engine, strict=True) if pair[0] != pair[1]]


@pytest.mark.tier("test")
@pytest.mark.sample(test=1)
@each(WIDE, WIDE_ROWS)
def test_vacuum_between_changes_of_one_file(layout):
    """Those who pass over changes whose deletion vectors VACUUM has deleted."""
    cases = named(layout, "vacuum", "delete k=null", "delete a = 0", "count twice")
    tables.explored(tables.engine(SERIALIZABLE, layout), cases, 3, among=cases[:1])


@pytest.mark.tier("test")
@pytest.mark.sample(test=1)
@pytest.mark.parametrize("level", LEVELS)
def test_clustering_and_changes_of_rows_do_not_conflict(level):
    """Where rows have ids, as on clustered tables by default, each is followed to where the other one has put it."""
    table, (cluster,) = tables.engine(level, CLUSTERED_TRACKED), named(CLUSTERED_TRACKED, "cluster")
    changes = [
        case for case in (*programs(CLUSTERED_TRACKED), *STATEMENTS) if case.kind in {"UPDATE", "DELETE", "MERGE"}
    ]
    assert len(changes) > 12
    for change in changes:
        for first, second in ((cluster, change), (change, cluster)):
            winner = table.commit(table.root, table.begin(table.root, first))
            assert isinstance(table.commit(winner, table.begin(table.root, second)), Version), change.name


# --- they would show it -------------------------------------------------------------------------------------------

Patch = tuple[Any, str, Any]
Make = Callable[[str, Layout], Branches]


@dataclass(frozen=True)
class Needed:
    """A few transactions of which a history goes wrong where something is missing.

    Attributes:
        names: the transactions.
        symptom: what is wrong.
        patches: what is missing: owners, names and values.
        layout: of the table.
        level: of the table.
        make: the table.
        count: how many of the transactions make a history.
    """

    names: Sequence[str]
    symptom: str
    patches: Sequence[Patch] = ()
    layout: Layout = WIDE_ROWS
    level: str = SERIALIZABLE
    make: Make = Engine
    count: int = 2

    def explore(self) -> None:
        """Run all histories of the transactions. Raises ``Wrong``."""
        others = {case.name: case for case in (BY_HAND, INSERT_ONCE)}
        cases = [others.get(name) or named(self.layout, name)[0] for name in self.names]
        explore(self.make(self.level, self.layout), cases, self.count)


NO_ORDER = "no serial order explains it: "

OF_RULES = {
    "protocol": [Needed(["add a feature", "insert a=0"], NO_ORDER + "V1 add a feature")],
    "metadata": [
        Needed(["set property", "insert a=0"], NO_ORDER + "V1 set property"),
        Needed(["drop s", "insert a=0"], NO_ORDER + "V1 drop s"),
        Needed(["rename s", "drop s"], NO_ORDER + "V1 rename s"),
        Needed(["retype s", "rename s"], NO_ORDER + "V1 re"),
        Needed(["require a", "insert a=null"], NO_ORDER + "V1 require a"),
        Needed(["restore", "set x"], NO_ORDER + "V1 restore"),
    ],
    "domain": [
        Needed(["count in x"], NO_ORDER + "V1 count in x", make=Core, level=WRITE_SERIALIZABLE),
        Needed(["x to y", "y to x"], NO_ORDER + "V1 x to y", make=Core, level=WRITE_SERIALIZABLE),
        Needed(["set x", "x to a row"], NO_ORDER + "V1 set x", make=Core),
        Needed(["x to y", "drop a feature"], NO_ORDER + "V1 x to y"),
        Needed(["cluster by s", "drop s"], NO_ORDER + "V1 cluster by s", layout=CLUSTERED, level=WRITE_SERIALIZABLE),
        Needed(["cluster by s", "restore"], NO_ORDER + "V1 cluster by s", layout=CLUSTERED),
    ],
    "application": [Needed(["insert once"], NO_ORDER + "V1 insert once")],
    "files-deleted": [Needed(["vacuum", "restore"], "names files that VACUUM has deleted", layout=WIDE)],
    "files-added": [
        Needed(["insert k=null", "merge <=>"], NO_ORDER + "V1", make=Core),
        Needed(["insert itself"], NO_ORDER + "V1 insert itself", make=Core, level=WRITE_SERIALIZABLE),
        Needed(["merge above inserts", "merge <=> inserts"], NO_ORDER + "V1", make=Core, level=WRITE_SERIALIZABLE),
        Needed(["insert a=7", "require a < 7"], NO_ORDER + "V1 insert a=7", level=WRITE_SERIALIZABLE),
    ],
    "read-file-removed": [
        Needed([f"a {call} fails", "delete k = 2"], NO_ORDER + "V1", make=Core) for call in ("read", "delete")
    ],
    "deleted-by-both": [Needed(["compact by hand", "update k=null to 3"], "is removed, and was not live", make=Core)],
    "append-skipped": [
        Needed(
            ["insert a=0", "count a=0 in y", "delete a = 0"],
            NO_ORDER + "V1 insert a=0",
            level=WRITE_SERIALIZABLE,
            make=Core,
            count=3,
        )
    ],
}
"""By rule, histories that are wrong without it."""

NOT_FOUND = {"table-created", "table-replaced", "identity"}
"""Rules about tables that are made, replaced, or numbered. Where one of them fires, others do, too, so none of them is
missed alone: see ``tests/core/conflicts/test_needed_rules.py``.
"""


def flat(needed: dict[str, list[Needed]]) -> pytest.MarkDecorator:
    every = [(what, one) for what, several in needed.items() for one in several]
    names = [f"{what}: {', '.join(one.names)}" for what, one in every]
    return pytest.mark.parametrize(("what", "needed"), every, ids=names)


@pytest.mark.tier("test")
@pytest.mark.sample(check=2, test=16)
@flat(OF_RULES)
def test_without_a_rule_a_history_is_wrong(monkeypatch, what, needed):
    needed.explore()
    monkeypatch.setattr(member, "check", check_without(what))
    with pytest.raises(Wrong, match=needed.symptom):
        needed.explore()


def test_histories_are_found_for_all_rules_but_those_about_whole_tables():
    assert OF_RULES.keys() | NOT_FOUND == {rule.id for rule in rules.RULES}


# --- what protects them, and what happens without it --------------------------------------------------------------


def some_reads(chosen: Callable[[Sequence[Read]], Sequence[Read]], asked: Callable[[list], list]) -> list[Patch]:
    """Of several reads of rows, only some count."""

    def with_predicate(self: ReadSet, predicate: Any, *, finer: bool = False) -> ReadSet:
        reads = (*self.reads, Read(predicate, finer))
        return dataclasses.replace(self, reads=tuple(chosen(reads)))

    def add(self: RowMatching, predicate: Any, matches: Any) -> None:
        self.asked = asked([*self.asked, (predicate, matches)])

    return [(ReadSet, "with_predicate", with_predicate), (RowMatching, "add", add)]


FINEST = some_reads(
    lambda reads: [one for one in reads if one.finer] or reads,
    lambda asked: [one for one in asked if one[1] is not None] or asked,
)
FIRST = some_reads(lambda reads: reads[:1], lambda asked: asked[:1])
LAST = some_reads(lambda reads: reads[-1:], lambda asked: asked[-1:])


@contextmanager
def forgets(txn: Transaction) -> Iterator[None]:
    """What is recorded in the block is forgotten where it raises."""
    before = txn._reads, dict(txn._rows_read), list(txn.row_matching.asked)
    try:
        yield
    except BaseException:
        txn._reads, txn._rows_read, txn.row_matching.asked = before
        raise


@contextmanager
def reading(txn: Transaction, predicate: Any, _: Callable[[], Iterable[Any]], matches: Any = None) -> Iterator[None]:
    """As ``Transaction.reading``, which forgets a read that fails."""
    with forgets(txn):
        txn.read_predicate(predicate, matches)
        yield


def forgetting(all_or_nothing: Callable) -> Callable:
    """``Transaction.all_or_nothing``, which forgets the reads of a statement that fails."""

    @contextmanager
    def wrong(txn: Transaction) -> Iterator[None]:
        with forgets(txn), all_or_nothing(txn):
            yield

    return wrong


def clear_above_the_bound(append_in_the_way: Callable) -> Callable:
    def wrong(self: Precedence, winner: Footprint) -> Footprint | None:
        return None if self.files > precedence._FILES_KEPT else append_in_the_way(self, winner)

    return wrong


def reading_of(sql: str, *, finer: bool) -> Callable:
    """``Transaction.read_predicate``, which records another condition; with ``finer``, for a MERGE alone."""
    read_predicate = Transaction.read_predicate

    def wrong(txn: Transaction, predicate: Any, matches: Any = None) -> None:
        if matches is not None or not finer:
            predicate = parse_predicate(sql, txn.snapshot.schema)
        read_predicate(txn, predicate, matches)

    return wrong


NOTHING = staticmethod(lambda *_: None)
NO_DOMAINS_READ = (Transaction, "read_domains", NOTHING)
RESTS_ON_NOTHING = (prepared_commit, "_domains_of_columns", lambda *_: frozenset())
NO_ROWS_READ = (Transaction, "read_predicate", reading_of("FALSE", finer=False))
ONLY_KEYS_READ = (Transaction, "read_predicate", reading_of("k IS NOT NULL", finer=True))
CYCLE = ["insert a=0", "copy a=0 as 1", "delete a = 0"]

PROTECTIONS = {
    "each of several reads counts": [
        Needed(["insert a=0", "count and merge 50"], NO_ORDER + "V1 insert a=0", FINEST),
        Needed(
            ["count and merge 50", "count and merge 51"],
            NO_ORDER + "V1 count and merge 50",
            FINEST,
            level=WRITE_SERIALIZABLE,
        ),
        Needed(["insert a=0", "merge itself"], NO_ORDER + "V1 insert a=0", FINEST[:1]),
        Needed(["insert a=0", "count twice"], NO_ORDER + "V1 insert a=0", LAST),
        Needed(["insert k=null", "count twice"], NO_ORDER + "V1 insert k=null", FIRST),
        Needed(["insert a=0", "count and delete"], NO_ORDER + "V1 insert a=0", LAST),
    ],
    "a change of columns rests on the domain that names them": [
        Needed(["cluster by s", "drop s"], NO_ORDER + "V1 cluster by s", [RESTS_ON_NOTHING], CLUSTERED, level)
        for level in LEVELS
    ]
    + [
        Needed(
            ["cluster by a", "restore"], NO_ORDER + "V1 cluster by a", [RESTS_ON_NOTHING, NO_DOMAINS_READ], CLUSTERED
        ),
    ],
    "dropping a feature rests on all domains": [
        Needed(["x to y", "drop a feature"], NO_ORDER + "V1 x to y", [NO_DOMAINS_READ], level=level) for level in LEVELS
    ],
    "the first timestamp is later than the file before it": [
        Needed(["insert a=0", "enable times"], "was committed at", [(Member, "brings_timestamps", False)]),
        Needed(["enable times", "insert a=0"], "was committed at", [(CommitClock, "after", lambda clock, _: clock)]),
    ],
    "RESTORE rests on the files that it brings back": [
        Needed(
            ["vacuum", "restore"],
            "names files that VACUUM has deleted",
            [(Transaction, "rest_on_files", NOTHING)],
            WIDE,
            level,
        )
        for level in LEVELS
    ],
    "a source that is the table itself is read": [
        Needed(["insert itself"], NO_ORDER + "V1 insert itself", [(TablesRead, "each", NOTHING)], level=level)
        for level in LEVELS
    ]
    + [
        Needed(["insert a=0", f"insert itself as a {way}"], NO_ORDER, [(TablesRead, "add", NOTHING)])
        for way in ("list", "scan")
    ],
    "a compaction that writes what it read has read it": [
        Needed(
            ["insert a=0", "compact and count in y"],
            NO_ORDER + "V1 insert a=0",
            [(TransactionState, "_writes_what_it_read", lambda _: False)],
            make=make,
        )
        for make in (Core, Engine)
    ],
    "a transaction that writes domains only has a place in the order": [
        Needed(
            ["insert a=0", "count a=0 in y", "delete a = 0"],
            NO_ORDER + "V1 insert a=0",
            [(Footprint, "writes_values", Footprint.changes_data)],
            layout,
            WRITE_SERIALIZABLE,
            Core,
            3,
        )
        for layout in (WIDE_ROWS, WIDE_PARTITIONED)
    ],
    "a statement that fails has read": [
        Needed(["delete k = 2", "a read fails"], NO_ORDER + "V1 delete k = 2", [(Transaction, "reading", reading)]),
        *(
            Needed(
                ["delete k = 2", name],
                NO_ORDER + "V1 delete k = 2",
                [(Transaction, "all_or_nothing", forgetting(Transaction.all_or_nothing))],
                layout,
            )
            for name in ("a delete fails", "an update fails")
            for layout in (WIDE_ROWS, WIDE)
        ),
    ],
    "above a bound the answer is a conflict": [
        Needed(
            CYCLE,
            NO_ORDER + "V1 insert a=0",
            [
                (precedence, "_FILES_KEPT", 0),
                (Precedence, "append_in_the_way", clear_above_the_bound(Precedence.append_in_the_way)),
            ],
            level=WRITE_SERIALIZABLE,
            make=Core,
            count=3,
        )
    ],
    "nulls match nulls": [
        Needed(["insert k=null", "merge <=>"], NO_ORDER + "V", [ONLY_KEYS_READ]),
        Needed(["insert k=null", "delete k=null"], NO_ORDER + "V", [NO_ROWS_READ]),
    ],
    "a MERGE by a range reads": [
        Needed(["insert a=0", name], NO_ORDER + "V", [NO_ROWS_READ]) for name in ("merge above", "merge above inserts")
    ],
    "a rule rests on the rows": [
        Needed(["insert a=7", "require a < 7"], NO_ORDER + "V1 insert a=7", [NO_ROWS_READ], level=level)
        for level in LEVELS
    ]
    + [Needed(["insert a=null", "require a"], NO_ORDER + "V1 insert a=null", [NO_ROWS_READ])],
    "who reads a domain rests on it": [
        Needed(["set x", "x to a row"], NO_ORDER + "V1 set x", [NO_DOMAINS_READ]),
        Needed(["x to y", "y to x"], NO_ORDER + "V1 x to y", [NO_DOMAINS_READ], level=WRITE_SERIALIZABLE),
    ],
}
"""By what protects them, histories that are wrong without it."""


@pytest.mark.tier("test")
@pytest.mark.sample(check=2, test=8)
@flat(PROTECTIONS)
def test_without_a_protection_a_history_is_wrong(monkeypatch, what, needed):
    needed.explore()
    for owner, name, wrong in needed.patches:
        assert hasattr(owner, name), what
        monkeypatch.setattr(owner, name, wrong)
    with pytest.raises(Wrong, match=needed.symptom):
        needed.explore()


@pytest.mark.tier("test")
def test_a_bound_of_no_files_is_sound(monkeypatch):
    monkeypatch.setattr(precedence, "_FILES_KEPT", 0)
    Needed(CYCLE, "", level=WRITE_SERIALIZABLE, make=Core, count=3).explore()
