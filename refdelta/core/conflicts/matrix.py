"""The conflict matrices: both of the documentation, and the verdicts of the rules for each pair of operations.

The rules check small commits (:mod:`refdelta.core.conflicts.examples`): a pair that changes the same row, one that
changes the same file, and one that changes two files. A pair without a conflict on the same row never conflicts; a pair
with a conflict on two files always does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal as OneOf

from refdelta.core.conflicts.examples import QUERY, REARRANGING, UPDATING, TableKind, conflict
from refdelta.core.conflicts.isolation import IsolationLevel
from refdelta.core.errors import InvalidArgumentError, unknown_name

Verdict = OneOf["never", "can", "always"]

OPERATIONS = (
    "INSERT",
    *UPDATING,
    *REARRANGING,
    QUERY,
    "OVERWRITE",
    "SET PROPERTIES",
    "ADD COLUMNS",
    "UPGRADE PROTOCOL",
    "REPLACE TABLE",
)
"""The operations of :func:`explain`. INSERT is a blind append, INSERT FROM QUERY reads the table that it writes to,
REORG purges deletion vectors, ZORDER is OPTIMIZE with ZORDER BY.
"""

GROUPS = ("INSERT", "UPDATE, DELETE, MERGE", "OPTIMIZE")
"""The rows and columns of both matrices."""

_GROUP_OF = {name: group for group in GROUPS for name in group.split(", ")} | dict.fromkeys(REARRANGING, GROUPS[2])

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
"""The matrices of the documentation: with row-level concurrency and without it."""


@dataclass(frozen=True, slots=True)
class PairExplanation:
    """The verdict on an operation and a winner.

    Attributes:
        ours: the operation that commits second.
        winner: the operation that committed first, unseen by the other.
        isolation: the level.
        verdict: ``never``, ``can`` (it depends on files and rows) or ``always``.
        rules: the ids of the rules that find conflicts, see :data:`~refdelta.core.conflicts.rules.RULES`.
        sentence: the reason.
        documented: the cell of the documentation for this pair; None if it has none.
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
        documented: the cell in the documentation.
        verdicts: the verdicts of the rules, by the name of the level.
        with_zorder: the verdicts if OPTIMIZE has ZORDER BY; empty for a pair without OPTIMIZE.
    """

    one: str
    other: str
    documented: str
    verdicts: dict[str, Verdict]
    with_zorder: dict[str, Verdict] = field(default_factory=dict)


def matrix(*, row_level: bool, vectors: bool | None = None) -> list[Cell]:
    """The cells of one of the two matrices, row by row.

    Args:
        row_level: whether to give the matrix for tables with deletion vectors and without partition columns.
        vectors: whether deletion vectors are enabled; None means the same as ``row_level``, which requires them.
    """
    layout = _layout(row_level, vectors)
    cells = []
    for (one, other), documented in DOCUMENTED[row_level].items():
        zorder = {}
        if GROUPS[2] in (one, other):
            zorder = _verdicts(one.replace(*_AS_ZORDER), other.replace(*_AS_ZORDER), layout)
        cells.append(Cell(one, other, documented, _verdicts(one, other, layout), zorder))
    return cells


_AS_ZORDER = ("OPTIMIZE", "ZORDER")


def _layout(row_level: bool, vectors: bool | None) -> TableKind:
    if row_level and vectors is False:
        raise InvalidArgumentError("rows decide on tables with deletion vectors only")
    return TableKind(row_level if vectors is None else vectors, row_level)


def _verdicts(one: str, other: str, layout: TableKind) -> dict[str, Verdict]:
    """The verdicts on two groups of operations, in either order of commits, by level."""
    found: dict[str, Verdict] = {}
    for level in IsolationLevel:
        pairs = [(a, b) for a in one.split(", ") for b in other.split(", ")]
        each = {_verdict(*pair, level, layout)[0] for a, b in pairs for pair in ((a, b), (b, a))}
        found[level.value] = "never" if each == {"never"} else "can"
    return found


def explain(
    ours: str,
    winner: str,
    isolation: str = "WriteSerializable",
    *,
    row_level: bool = False,
    vectors: bool | None = None,
) -> PairExplanation:
    """The verdict on an operation and another one that committed first, with its reason.

    Args:
        ours: one of :data:`OPERATIONS`, in any case of letters.
        winner: likewise.
        isolation: the name of the level.
        row_level: whether conflicts are decided by rows, as with deletion vectors and without partition columns; also
            selects the matrix for ``documented``.
        vectors: whether deletion vectors are enabled; None means the same as ``row_level``.

    Raises:
        InvalidArgumentError: an operation or a level that does not exist.
    """
    mine, theirs = _known(ours), _known(winner)
    level, layout = IsolationLevel.parse(isolation), _layout(row_level, vectors)
    verdict, rules = _verdict(mine, theirs, level, layout)
    documented = None
    if mine in _GROUP_OF and theirs in _GROUP_OF:
        pair = sorted((_GROUP_OF[mine], _GROUP_OF[theirs]), key=GROUPS.index, reverse=True)
        documented = DOCUMENTED[row_level][pair[0], pair[1]]
    return PairExplanation(
        ours=mine,
        winner=theirs,
        isolation=level.value,
        verdict=verdict,
        rules=tuple(rules),
        sentence=_sentence(mine, theirs, verdict, rules, level, layout),
        documented=documented,
    )


def _known(operation: str) -> str:
    name = " ".join(operation.upper().replace("_", " ").split())
    if name not in OPERATIONS:
        raise InvalidArgumentError(unknown_name("operation", operation, OPERATIONS))
    return name


def _verdict(ours: str, winner: str, level: IsolationLevel, layout: TableKind) -> tuple[Verdict, dict[str, str]]:
    """The verdict, and the sentences of the rules that find conflicts, by their ids."""
    apart = conflict(ours, winner, level, layout, "table")
    together = conflict(ours, winner, level, layout, "row")
    fired = {found.rule.id: found.rule.sentence for found in (apart, together) if found is not None}
    return ("always" if apart else "can" if together else "never"), fired


def _sentence(
    ours: str, winner: str, verdict: Verdict, rules: dict[str, str], level: IsolationLevel, layout: TableKind
) -> str:
    if verdict == "never":
        return _why_never(ours, winner, level, layout)
    said = "; ".join(rules.values())
    if verdict == "always":
        return f"{said}: that fails every concurrent transaction"
    if conflict(ours, winner, level, layout, "file") is None:
        return f"{said}: that is a conflict where the two meet in a row; otherwise both commit"
    return f"{said}: that is a conflict where the files of the two meet; apart by partitions or statistics, both commit"


def _why_never(ours: str, winner: str, level: IsolationLevel, layout: TableKind) -> str:
    if ours == "INSERT":
        return "an INSERT that reads nothing of the table conflicts with no change of data"
    if ours in REARRANGING and layout.vectors and winner in {*UPDATING, *REARRANGING}:
        return (
            f"what the {winner} deletes of its inputs, the {ours} hides in its new files by deletion vectors; of files "
            "that are gone it leaves out the groups"
        )
    if ours in REARRANGING:
        return "a transaction that only rearranges data conflicts over its own input files alone"
    if winner in REARRANGING:
        return f"the {winner} changes no row, and says where the rows are that the {ours} knows: it goes after them"
    if winner == "INSERT" and level is IsolationLevel.WRITE_SERIALIZABLE:
        return (
            f"the {ours} takes its place before the INSERT, whose rows remain; only where a third transaction read "
            f"those rows, and others that the {ours} changes, is there no such place (rule append-skipped)"
        )
    return "neither touches what the other one read"
