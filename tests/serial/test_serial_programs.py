"""Programs by seed, played through the public API: what was committed has a serial order, and the table is sound."""

import dataclasses

import pytest

import tiers
from serial.__main__ import alone, described
from serial.check import judged
from serial.expressions import All, Column, Compare, Compute, Literal
from serial.play import play
from serial.programs import COLUMNS, MAPPED, Program
from serial.wider import DRAWS
from serial.world import (
    AddConstraint,
    AddFeature,
    Append,
    Attempt,
    Backfill,
    Clause,
    ClusterBy,
    Copy,
    Count,
    Create,
    Delete,
    DropColumn,
    DropFeature,
    Merge,
    Read,
    Rearrange,
    Restore,
    SetDomain,
    SetProperty,
    Tally,
    TallyDomain,
    TallyDomains,
    Transaction,
    Update,
    Vacuum,
    Write,
)
from tiers import budget

S, W = "Serializable", "WriteSerializable"
SEEDS = 600
LATE_MS = 60_000


@pytest.mark.tier("test")
@pytest.mark.parametrize("words", DRAWS)
def test_programs_by_seed(words):
    wrong = []
    first = tiers.seed(0)
    for seed in range(first, first + budget(SEEDS if words == "first" else SEEDS // 3)):
        program = DRAWS[words](seed)
        outcome = play(program)
        if found := judged(outcome):
            told = [described(program, outcome), *map(str, found), f"one after the other: {alone(program, outcome)}"]
            wrong.append(
                "\n".join([*told, f"to replay: PYTHONPATH=tests python -m serial --words {words} --seed {seed}"])
            )
    assert not wrong, f"{len(wrong)} programs went wrong\n\n" + "\n\n".join(wrong)


# --- by hand: one program for each history that an engine is known to have accepted -----------------------------------


def row(id_, k=0, v=0, p=0):
    return {"id": id_, "k": k, "v": v, "p": p}


def program(level, setup, transactions, schedule, **options):
    properties = {"delta.isolationLevel": level, **options.pop("properties", {})}
    several = tuple(Transaction(one) if isinstance(one, tuple) else one for one in transactions)
    turns = tuple(int(turn) for turn in schedule.split())
    return Program(0, "by hand", level, properties, setup=setup, transactions=several, schedule=turns,
                   **{"lags": (0,) * len(several), **options})  # fmt: skip


T, SOURCE = Column("t.k"), Column("s.k")
INSERT = Clause("not matched", {name: Column(f"s.{name}") for name in COLUMNS})
SIX = Compute("div", Literal(6), Column("v"))
FAILS = Compare(">", SIX, Literal(2))
K_IS_0 = Compare("=", Column("k"), Literal(0))
NULL_SAFE = Merge((row(20, 7),), Compare("<=>", T, SOURCE), (INSERT,))
OTHER = Merge((row(21, 8),), Compare("<=>", T, SOURCE), (INSERT,))
RANGE = Merge((row(20, 7, 9),), All((Compare(">=", T, SOURCE), Compare("<=", T, Column("s.v")))), (INSERT,))
ONE = (Append((row(1),)),)
TWO = (Append((row(1),)), Append((row(2, 1),)))
DOMAINS = ("domainMetadata",)
VECTORS = {"delta.enableDeletionVectors": "true"}

HISTORIES = {
    "1: a whole-table read, then a null-safe merge": program(
        S, TWO, [(Tally(10), NULL_SAFE), (Append((row(3, 1),)),)], "0 0 0 1 1 1 0", properties=VECTORS
    ),
    "1: a whole-table read, then a merge by a range": program(
        S, TWO, [(Tally(10), RANGE), (Append((row(3, 1),)),)], "0 0 0 1 1 1 0", properties=VECTORS
    ),
    "1: a merge of the table into itself, with no plain key": program(
        S,
        TWO,
        [(Merge(Copy("scan"), Compare("<", T, SOURCE), (INSERT,)),), (Append((row(3, None),)),)],
        "0 0 1 1 1 0",
        properties=VECTORS,
    ),
    "1: write skew by two of them": program(
        W, TWO, [(Tally(10), NULL_SAFE), (Tally(11), OTHER)], "0 1 0 0 1 1 0 1", properties=VECTORS
    ),
    "2: clustering by a column that goes": program(
        W,
        ONE,
        [(ClusterBy(("v",)),), (DropColumn("v"),)],
        "0 0 1 1 1 0",
        properties=MAPPED,
        clustering=("k",),
    ),
    "2: a column goes by which the table is clustered": program(
        W,
        ONE,
        [(ClusterBy(("v",)),), (DropColumn("v"),)],
        "0 1 1 0 0 1",
        properties=MAPPED,
        clustering=("k",),
    ),
    "2: a schema is overwritten without a clustering column": program(
        W,
        ONE,
        [(ClusterBy(("v",)),), (Write((row(5), row(6)), ("id", "k", "p"), "overwrite", "overwrite"),)],
        "1 0 0 0 1 1 1 1",
        clustering=("k",),
    ),
    "3: domainMetadata is dropped beside a domain": program(
        W, ONE, [(DropFeature("domainMetadata"),), (TallyDomain("a"),)], "0 1 1 1 0 0 0 0", features=DOMAINS
    ),
    "4: timestamps begin with a clock that is late": program(
        W,
        ONE,
        [(SetProperty("delta.enableInCommitTimestamps", "true"),), (Append((row(2),)),)],
        "0 0 1 1 1 0",
        lags=(LATE_MS, 0),
    ),
    "5: files that are restored go by vacuum": program(
        W, (*ONE, Delete(K_IS_0)), [(Restore(1),), (Vacuum(),)], "0 0 1 1 1 1 1 0"
    ),
    "6: a list of scans": program(S, ONE, [(Copy("list"),), (Append((row(2),)),)], "0 0 1 1 1 0"),
    "6: a generator of scans": program(S, ONE, [(Copy("generator"),), (Append((row(2),)),)], "0 0 1 1 1 0"),
    "6: a symbolic link": program(S, ONE, [(Copy("link"),), (Append((row(2),)),)], "0 0 1 1 1 0", linked=True),
    "7: a domain is counted beside a compaction": program(
        S,
        TWO,
        [(TallyDomain("a"), Rearrange("compact")), (Append((row(3),)),)],
        "0 0 0 1 1 1 0",
        features=DOMAINS,
    ),
    "7: a cycle through a transaction that writes a domain only": program(
        W,
        ONE,
        [(Delete(K_IS_0),), (Append((row(2),)),), (TallyDomain("a"),)],
        "0 0 1 1 1 2 2 2 0",
        features=DOMAINS,
        properties=VECTORS,
    ),
    "8: a statement fails over a row": program(
        S, ONE, [(Attempt(Delete(FAILS), (), (row(9, 1),)),), (Delete(K_IS_0),)], "0 0 1 1 1 0"
    ),
    "8: a read fails over a row": program(
        S, ONE, [(Attempt(Read(FAILS), (), (row(9, 1),)),), (Delete(K_IS_0),)], "0 0 1 1 1 0"
    ),
    "8: an update fails over a row": program(
        S, ONE, [(Attempt(Update({"v": SIX}, None), (), (row(9, 1),)),), (Delete(K_IS_0),)], "0 0 1 1 1 0"
    ),
    "9: what was skipped is forgotten": program(
        W,
        ONE,
        [(Delete(K_IS_0),), (Append((row(2),)), Append((row(3),))), (Tally(10, K_IS_0),)],
        "0 0 1 1 1 1 2 2 2 0",
        forgetful=True,
        properties=VECTORS,
    ),
    "a domain is set to what it says already": program(
        W,
        (*ONE, SetDomain("a", "0")),
        [(Append((row(2),)), SetDomain("a", "0")), (SetDomain("a", "1"),)],
        "0 0 0 1 1 1 0",
        features=DOMAINS,
    ),
    "a clustering is restored that is what it was already": program(
        W,
        (*ONE, AddConstraint("c", Compare("<", Column("id"), Literal(9)))),
        [(Restore(1),), (ClusterBy(("v",)),)],
        "0 0 1 1 1 0",
        clustering=("k",),
    ),
    "two count in one domain": program(
        W, ONE, [(Count("a", False),), (Count("a", False),)], "0 0 1 1 1 0", features=DOMAINS
    ),
    "one reads all domains, another sets one": program(
        W, ONE, [(TallyDomains(10),), (SetDomain("a", "1"),)], "0 0 1 1 1 0", features=DOMAINS
    ),
    "a file gets row ids that goes": program(
        W, (*TWO, AddFeature("rowTracking")), [(Backfill(),), (Delete(None),)], "0 0 1 1 1 0"
    ),
    "row tracking is added beside an append": program(
        W, ONE, [(Append((row(2),)),), (AddFeature("rowTracking"),)], "0 0 1 1 1 0"
    ),
    "files are rewritten without vectors beside a delete": program(
        W, TWO, [(Rearrange("compact"),), (Delete(K_IS_0),)], "0 0 1 1 1 0"
    ),
    "two create one table": program(
        S,
        (),
        [(Create(COLUMNS, "error"),), (Write((row(1), row(2)), COLUMNS, "append"),)],
        "0 1 1 1 1 1 0 0 0 0",
        absent=True,
    ),
    "two replace one table": program(
        S,
        (),
        [(Create(("id", "k"), "overwrite"),), (Create(COLUMNS, "overwrite"),), (Append((row(1),)),)],
        "0 1 1 1 1 1 2 2 2 0 0 0 0",
    ),
    "two number rows": program(W, (), [(Append((row(1),)),), (Append((row(2),)),)], "0 0 1 1 1 0", numbered=True),
    "a scan that is opened late": program(S, ONE, [(Copy("late"),), (Append((row(2),)),)], "0 0 1 1 1 0"),
}


@pytest.mark.sample(check=15)
@pytest.mark.parametrize("name", HISTORIES)
def test_histories_by_hand(name):
    one = HISTORIES[name]
    outcome = play(one)
    found = judged(outcome)
    assert not found, "\n".join([described(one, outcome), *map(str, found)])


@pytest.mark.sample(check=8)
@pytest.mark.parametrize("name", HISTORIES)
def test_histories_by_hand_one_after_the_other(name):
    """The same transactions, none beside another: the engine and the oracle agree."""
    one = HISTORIES[name]
    numbers = [0, 1, 2][: len(one.transactions)]
    turns = tuple(number for number in numbers for _ in range(one.schedule.count(number)))
    outcome = play(dataclasses.replace(one, schedule=turns))
    assert not judged(outcome), described(one, outcome)
    assert all(running.outcome in ("committed", "wrote nothing", "failed") for running in outcome.running)
