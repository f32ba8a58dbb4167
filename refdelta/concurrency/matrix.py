"""Which operations conflict: both matrices of the documentation, and what the rules themselves say of each pair.

The rules are asked about small commits: one pair that meets in every way it can (the same files, the same rows), and
one that keeps apart (other partitions). What passes even the first never conflicts; what fails even the second always
does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal as OneOf

from refdelta.concurrency.conflict import Conflict, check
from refdelta.concurrency.isolation import IsolationLevel
from refdelta.concurrency.read_set import ReadSet, ReadTable
from refdelta.concurrency.standing import Standing
from refdelta.concurrency.summary import CommitSummary, fold
from refdelta.errors import InvalidArgumentError
from refdelta.protocol.actions import Add, AnyAction, CommitInfo, Metadata, Protocol, Remove
from refdelta.protocol.predicate import Column, Comparison, Literal
from refdelta.protocol.types import LONG, StructField, StructType

Verdict = OneOf["never", "can", "always"]

UPDATING = ("UPDATE", "DELETE", "MERGE")
OPERATIONS = (
    "INSERT",
    *UPDATING,
    "OPTIMIZE",
    "INSERT FROM QUERY",
    "OVERWRITE",
    "SET PROPERTIES",
    "ADD COLUMNS",
    "UPGRADE PROTOCOL",
    "REPLACE TABLE",
)
"""What :func:`explain` knows. INSERT is a blind append; INSERT FROM QUERY reads the table that it writes to."""

GROUPS = ("INSERT", "UPDATE, DELETE, MERGE", "OPTIMIZE")
"""The rows and columns of both matrices."""

_ZORDER = "only when ZORDER BY is used"
DOCUMENTED: dict[bool, dict[tuple[str, str], str]] = {
    True: {
        (GROUPS[0], GROUPS[0]): "never",
        (GROUPS[1], GROUPS[0]): "WriteSerializable: never. Serializable: only when it touches the same rows",
        (GROUPS[1], GROUPS[1]): "only when both modify the same row",
        (GROUPS[2], GROUPS[0]): "never",
        (GROUPS[2], GROUPS[1]): _ZORDER,
        (GROUPS[2], GROUPS[2]): _ZORDER,
    },
    False: {
        (GROUPS[0], GROUPS[0]): "never",
        (GROUPS[1], GROUPS[0]): "WriteSerializable: never. Serializable: can",
        (GROUPS[1], GROUPS[1]): "can, at either level",
        (GROUPS[2], GROUPS[0]): "never",
        (GROUPS[2], GROUPS[1]): "with deletion vectors: never, unless ZORDER BY is used. Otherwise: can",
        (GROUPS[2], GROUPS[2]): "with deletion vectors: never, unless ZORDER BY is used. Otherwise: can",
    },
}
"""What the documentation says, with row-level concurrency and without it."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Whether one operation conflicts with another that won.

    Attributes:
        ours: the operation that commits second.
        winner: the operation that committed first, unseen by the other.
        isolation: the level.
        verdict: ``never``, ``can`` (it depends on files and rows) or ``always``.
        rules: the ids of the rules that decide, and see :data:`~refdelta.concurrency.conflict.RULES`.
        sentence: why.
        documented: the documentation's word on this pair; None where it has none.
    """

    ours: str
    winner: str
    isolation: str
    verdict: Verdict
    rules: tuple[str, ...]
    sentence: str
    documented: str | None


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a matrix: a pair of groups, whichever of the two commits first.

    Attributes:
        one: the row.
        other: the column.
        documented: what the documentation says.
        verdicts: what the rules say, by the name of the level.
    """

    one: str
    other: str
    documented: str
    verdicts: dict[str, Verdict]


def matrix(*, row_level: bool) -> list[Cell]:
    """The cells of one of the two matrices, row by row.

    Args:
        row_level: the one for tables with deletion vectors and without partition columns. The rules look at files in
            either case; what they say is the same.
    """
    cells = []
    for (one, other), documented in DOCUMENTED[row_level].items():
        verdicts: dict[str, Verdict] = {}
        for level in IsolationLevel:
            pairs = [(a, b) for a in one.split(", ") for b in other.split(", ")]
            found = [_verdict(*pair, level)[0] for a, b in pairs for pair in ((a, b), (b, a))]
            verdicts[level.value] = "never" if set(found) == {"never"} else "can"
        cells.append(Cell(one, other, documented, verdicts))
    return cells


def explain(ours: str, winner: str, isolation: str = "WriteSerializable", *, row_level: bool = False) -> Explanation:
    """Whether an operation conflicts with another one that committed first, and why.

    Args:
        ours: one of :data:`OPERATIONS`, in any case of letters.
        winner: likewise.
        isolation: the level's name.
        row_level: which matrix to quote.

    Raises:
        InvalidArgumentError: an operation or a level that does not exist.
    """
    mine, theirs = _known(ours), _known(winner)
    level = IsolationLevel.parse(isolation)
    verdict, rules = _verdict(mine, theirs, level)
    groups = {operation: group for group in GROUPS for operation in group.split(", ")}
    documented = None
    if mine in groups and theirs in groups:
        pair = sorted((groups[mine], groups[theirs]), key=GROUPS.index, reverse=True)
        documented = DOCUMENTED[row_level][pair[0], pair[1]]
    return Explanation(
        ours=mine,
        winner=theirs,
        isolation=level.value,
        verdict=verdict,
        rules=tuple(rules),
        sentence=_sentence(mine, theirs, verdict, rules, level),
        documented=documented,
    )


def _known(operation: str) -> str:
    name = " ".join(operation.upper().replace("_", " ").split())
    if name not in OPERATIONS:
        raise InvalidArgumentError(f"operation {operation!r} is none of {', '.join(OPERATIONS)}")
    return name


def _verdict(ours: str, winner: str, level: IsolationLevel) -> tuple[Verdict, dict[str, str]]:
    """The verdict, and of the rules that fire what each says."""
    fired: dict[str, str] = {}
    apart = _meet(ours, winner, level, apart=True, fired=fired)
    together = _meet(ours, winner, level, apart=False, fired=fired)
    return ("always" if apart else "can" if together else "never"), fired


def _meet(ours: str, winner: str, level: IsolationLevel, *, apart: bool, fired: dict[str, str]) -> bool:
    found = check(_standing(ours, level), _winner(winner, 2 if apart else 1))
    if isinstance(found, Conflict):
        fired[found.rule.id] = found.rule.sentence
    return isinstance(found, Conflict)


def _sentence(ours: str, winner: str, verdict: Verdict, rules: dict[str, str], level: IsolationLevel) -> str:
    if verdict == "always":
        return f"{'; '.join(rules.values())}: that fails every concurrent transaction"
    if verdict == "can":
        return (
            f"{'; '.join(rules.values())}: that is a conflict where the files of the two meet; apart by partitions or "
            "statistics, both commit"
        )
    if ours == "INSERT":
        return "an INSERT that reads nothing of the table conflicts with no change of data"
    if ours == "OPTIMIZE":
        return "a transaction that only rearranges data conflicts over its own input files alone"
    if winner == "INSERT" and level is IsolationLevel.WRITE_SERIALIZABLE:
        return (
            f"the {ours} takes its place before the INSERT, whose rows remain; only where a third transaction read "
            f"those rows, and others that the {ours} changes, is there no such place (rule append-skipped)"
        )
    return "neither touches what the other one read"


# --- the commits that are asked about ---------------------------------------------------------------------------

_TABLE = ReadTable(schema=StructType((StructField("p", LONG),)), partition_columns=("p",))
_METADATA = Metadata(id="m", schema_string="{}", partition_columns=["p"])


def _actions(operation: str, p: int, name: str) -> list[AnyAction]:
    rearranges = operation == "OPTIMIZE"
    values: dict[str, str | None] = {"p": str(p)}
    new = Add(path=name, partition_values=values, size=1, modification_time=0, data_change=not rearranges)
    old = Remove(path=f"old-{p}", data_change=not rearranges, partition_values=values)
    match operation:
        case "INSERT" | "INSERT FROM QUERY":
            return [new]
        case "SET PROPERTIES" | "ADD COLUMNS":
            return [_METADATA]
        case "UPGRADE PROTOCOL":
            return [Protocol(min_reader_version=1, min_writer_version=2)]
        case "REPLACE TABLE":
            return [_METADATA, old, new]
    return [old, new]


def _standing(operation: str, level: IsolationLevel) -> Standing:
    where = Comparison("=", Column(("p",), LONG), Literal(1, LONG))
    actions = _actions(operation, 1, "ours")
    read = ReadSet(version=0)
    if operation in {*UPDATING, "INSERT FROM QUERY"}:
        read = read.with_predicate(where).with_files([Remove(path="old-1")])
    elif operation in {"OVERWRITE", "REPLACE TABLE"}:
        read = read.with_everything()
    return Standing(read, [CommitInfo({"operation": operation}), *actions], level, _TABLE)


def _winner(operation: str, p: int) -> CommitSummary:
    info = CommitInfo({"operation": operation, "isBlindAppend": operation == "INSERT"})
    return fold(1, [info, *_actions(operation, p, "theirs")])
