"""``make generate NAME=commit-protocol``: the tables and the diagram in ``docs/commit-protocol.md``, from the code.

What stands between ``<!-- generated: NAME -->`` and ``<!-- end -->`` is written anew; ``test_core.py`` fails where the
document differs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from formatting import formatted

from refdelta.core.commit import CommitOutcome, Limits, PreparedCommit, commit_loop, effects
from refdelta.core.conflicts.matrix import GROUPS, Cell, matrix
from refdelta.core.conflicts.reads import ReadSet
from refdelta.core.conflicts.resources import RESOURCES
from refdelta.core.conflicts.rules import RULES
from refdelta.core.log.actions import Add, CommitInfo
from refdelta.core.log.codec import encode_commit
from refdelta.errors import (
    CommitFailedError,
    CommitOutcomeUnknownError,
    CommitRetriesExhaustedError,
    ConcurrentModificationError,
    InvalidLogError,
    StoreError,
)

DOCUMENT = Path(__file__).parents[2] / "docs" / "commit-protocol.md"
_BLOCK = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def document(text: str) -> str:
    """The document, its blocks written anew."""
    blocks = {
        "loop": diagram,
        "resources": resources,
        "rules": rules,
        "matrix-rows": lambda: table(matrix(row_level=True)),
        "matrix-files": lambda: table(matrix(row_level=False)),
    }
    return formatted(_BLOCK.sub(lambda found: f"{found[1]}\n{blocks[found[2]]()}\n{found[3]}", text))


def resources() -> str:
    """The table of resources."""
    lines = ["| resource | a commit writes it by | a transaction reads it | rules |", "|---|---|---|---|"]
    for one in RESOURCES.values():
        deciding = ", ".join(f"`{rule.id}`" for rule in RULES if rule.resource == one.name)
        lines.append(f"| {one.name} | {one.written} | {one.read} | {deciding or f'none: {one.unruled}'} |")
    return "\n".join(lines) + "\n"


def rules() -> str:
    """The table of rules."""
    lines = ["| | rule | resource | fires where | exception |", "|---|---|---|---|---|"]
    lines += [
        f"| {rule.number} | `{rule.id}` | {rule.resource} | {rule.sentence} | `{rule.error.__name__}` |"
        for rule in RULES
    ]
    return "\n".join(lines) + "\n"


def table(cells: list[Cell]) -> str:
    """One of the two matrices."""
    levels = list(cells[0].verdicts)
    lines = [f"| one | the other | documented | {' | '.join(levels)} |", f"|---|---|---|{'---|' * len(levels)}"]
    for cell in sorted(cells, key=lambda cell: (GROUPS.index(cell.other), GROUPS.index(cell.one))):
        said = [
            cell.verdicts[level] + (f"; with ZORDER BY: {cell.with_zorder[level]}" if cell.with_zorder else "")
            for level in levels
        ]
        lines.append(f"| {cell.one} | {cell.other} | {cell.documented} | {' | '.join(said)} |")
    return "\n".join(lines) + "\n"


# --- the state machine ----------------------------------------------------------------------------------------------

_OURS, _THEIRS = "ours", "theirs"
_ENDS = {
    ConcurrentModificationError: "conflict",
    CommitRetriesExhaustedError: "given up",
    CommitFailedError: "failed",
    CommitOutcomeUnknownError: "outcome unknown",
    StoreError: "failed",
    InvalidLogError: "failed",
}


def diagram() -> str:
    """The transitions of the loop, as a diagram: every reply that is possible, at each point that they lead to."""
    found = sorted(dict.fromkeys(_transitions()))
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> VersionExists"]
    merged: dict[tuple[str, str], list[str]] = {}
    for at, reply, to in found:
        merged.setdefault((at, to), []).append(reply)
    for (at, to), replies in merged.items():
        end = to.replace(" ", "_")
        lines.append(f"    {at} --> {end}: {' / '.join(replies)}")
    ends = sorted({to for _, _, to in found} - {at for at, _, _ in found})
    lines += [f"    {end.replace(' ', '_')} --> [*]" for end in ends]
    return "\n".join([*lines, "```"]) + "\n"


def _commit(txn: str) -> bytes:
    return encode_commit([CommitInfo({"operation": "WRITE", "txnId": txn})])


def _transitions() -> Iterator[tuple[str, str, str]]:
    """(effect, reply, what follows), by trying out all replies in turn, to some depth."""
    todo: list[tuple[str, ...]] = [()]
    while todo:
        path = todo.pop()
        steps, replies = _follow(path)
        yield from steps
        todo += [(*path, reply) for reply in replies if len(path) < _DEPTH]


_DEPTH = 11


def _follow(path: tuple[str, ...]) -> tuple[list[tuple[str, str, str]], list[str]]:
    """The last step of a path, and the replies that are possible next."""
    add = Add(path="new", partition_values={}, size=1, modification_time=1, data_change=True)
    prepared = PreparedCommit(
        read_version=0, read_set=ReadSet(version=0), actions=[add], commit_info={"operation": "WRITE"}, txn_id=_OURS
    )
    loop = commit_loop(prepared, Limits(max_attempts=2, max_repeats=2))
    effect = next(loop)
    before = ""
    for reply in path:
        before = type(effect).__name__
        try:
            effect = loop.send(_reply(effect, reply))
        except StopIteration as done:
            outcome: CommitOutcome = done.value
            return [(before, path[-1], "committed" if outcome.version is not None else "nothing to commit")], []
        except Exception as error:
            end = next((name for kind, name in _ENDS.items() if isinstance(error, kind)), type(error).__name__)
            return [(before, path[-1], end)], []
    step = [(before, path[-1], type(effect).__name__)] if path else []
    return step, _possible(effect)


def _possible(effect: effects.Effect) -> list[str]:
    match effect:
        case effects.TryCommit():
            return ["Committed", "Exists", "Unknown", "Failed"]
        case effects.VersionExists():
            return ["yes", "no", "replaced"]
        case effects.ReadCommits():
            return ["ours", "a winner", "nothing"]
        case effects.NewestVersion():
            return ["the same", "a later one"]
    return ["elapsed" if isinstance(effect, effects.Pause) else "done"]


def _reply(effect: effects.Effect, reply: str) -> effects.Reply:
    count = effect.last - effect.first + 1 if isinstance(effect, effects.ReadCommits) else 1
    after = effect.after if isinstance(effect, effects.NewestVersion) else 0
    return {
        "Committed": effects.Committed(),
        "Exists": effects.Exists(),
        "Unknown": effects.Unknown(),
        "Failed": effects.Failed(StoreError("the store failed")),
        "yes": effects.Yes(),
        "no": effects.No(),
        "replaced": effects.Replaced(),
        "ours": effects.Commits((_commit(_OURS),) * count),
        "a winner": effects.Commits((_commit(_THEIRS),) * count),
        "nothing": effects.Commits((None,) * count),
        "the same": effects.Newest(after),
        "a later one": effects.Newest(after + 1),
        "elapsed": effects.Elapsed(0.0),
        "done": effects.Yes(),
    }[reply]


if __name__ == "__main__":
    DOCUMENT.write_text(document(DOCUMENT.read_text()))
