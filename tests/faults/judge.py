"""Whether what the log holds, what callers were told, and what readers saw go together.

It reads the log by itself, past the engine that it judges.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from faults.steps import MARK, START, State, Step, after
from faults.writers import Read, Told, rows, rows_of
from refdelta import DeltaTable
from refdelta.errors import DeltaError
from refdelta_storage import Store, open_store
from servers.running import AZURE_KEY, S3_SECRET, Place

CLEAR = {
    "StoreError",
    "CommitOutcomeUnknownError",
    "CommitRetriesExhaustedError",
    "CommitFailedError",
    "ConcurrentAppendException",
    "ConcurrentDeleteReadException",
    "ConcurrentDeleteDeleteException",
    "MetadataChangedException",
    "ConcurrentTransactionException",
    "ProtocolChangedException",
}
"""The errors that a broken network or another writer may cause. Any other would put the blame elsewhere."""

_COMMIT = re.compile(r"_delta_log/(\d{20})\.json")
_CHECKPOINT = re.compile(r"_delta_log/(\d{20})\.checkpoint\.")


@dataclass
class Verdict:
    """What is wrong, and what there was to judge."""

    wrong: list[str] = field(default_factory=list)
    versions: int = 0
    steps: dict[str, int] = field(default_factory=dict)
    recovered: int = 0
    reads: int = 0
    failed_reads: int = 0
    orphans: int = 0

    def blame(self, text: str) -> None:
        self.wrong.append(text)


@dataclass
class History:
    """A log: its versions in their order, each a list of actions."""

    store: Store
    versions: list[list[dict[str, Any]]]
    sizes: dict[str, int]
    checkpoints: list[int]

    @classmethod
    def of(cls, place: Place) -> History:
        store = open_store(place.uri, place.options)
        sizes = {info.key: info.size for info in store.list()}
        numbers = sorted(int(match[1]) for key in sizes if (match := _COMMIT.fullmatch(key)))
        if numbers != [*range(len(numbers))]:
            raise AssertionError(f"the versions are not contiguous: {numbers}")
        texts = [store.get(f"_delta_log/{number:020}.json") for number in numbers]
        checkpoints = sorted({int(match[1]) for key in sizes if (match := _CHECKPOINT.match(key))})
        return cls(store, [[json.loads(line) for line in text.splitlines()] for text in texts], sizes, checkpoints)

    def steps(self) -> dict[int, Step]:
        """The step of each version that is one."""
        found = {}
        for version, actions in enumerate(self.versions):
            info = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
            if MARK in info:
                found[version] = Step.parse(info[MARK])
        return found

    def states(self) -> list[State]:
        """The rows that each version has to have."""
        steps, states = self.steps(), list[State]()
        for version in range(len(self.versions)):
            before = states[-1] if states else {} if version in steps else START
            states.append(after(before, steps[version], states) if version in steps else before)
        return states

    def named(self) -> Iterable[tuple[int, str, int]]:
        """Every file that a version adds: the version, the key, the size that the log gives."""
        for version, actions in enumerate(self.versions):
            for action in actions:
                if "add" in action:
                    yield version, unquote(action["add"]["path"]), action["add"]["size"]

    def live(self) -> set[str]:
        """The keys of the files of the newest version, by the commits alone."""
        found: set[str] = set()
        for actions in self.versions:
            found -= {unquote(action["remove"]["path"]) for action in actions if "remove" in action}
            found |= {unquote(action["add"]["path"]) for action in actions if "add" in action}
        return found


def judge(
    place: Place,
    told: Sequence[Told],
    reads: Sequence[Read] = (),
    *,
    vacuumed: bool = False,
    may_be_absent: bool = False,
) -> Verdict:
    """Look at a table that nobody writes to any more.

    Args:
        place: where it is, without any proxy.
        told: what all writers were told.
        reads: what readers saw.
        vacuumed: whether only the files of the newest version have to be there.
        may_be_absent: whether there need not be a table, and callers may have been told that there is none.
    """
    history, verdict = History.of(place), Verdict()
    verdict.versions = len(history.versions)
    _judge_told(history, told, verdict)
    _judge_errors([*told, *reads], verdict, CLEAR | ({"TableNotFoundError"} if may_be_absent else set()))
    _judge_files(history, verdict, vacuumed=vacuumed)
    states = history.states()
    for seen in reads:
        if seen.error:
            verdict.failed_reads += 1
            continue
        verdict.reads += 1
        if seen.version is None or seen.version >= len(states) or seen.rows != rows(states[seen.version]):
            verdict.blame(f"a reader saw other rows in version {seen.version} than it has")
        elif seen.version < seen.least:
            verdict.blame(f"a reader was given version {seen.version} after {seen.least}")
    if states or not may_be_absent:
        _judge_table(place, history, states, verdict, vacuumed=vacuumed)
    return verdict


def _judge_told(history: History, told: Sequence[Told], verdict: Verdict) -> None:
    found: dict[tuple[int, int], list[int]] = {}
    for version, step in history.steps().items():
        found.setdefault(step.name, []).append(version)
    tries: dict[tuple[int, int], list[Told]] = {}
    for one in told:
        verdict.steps[one.outcome] = verdict.steps.get(one.outcome, 0) + 1
        tries.setdefault(one.step.name, []).append(one)
    for name, mine in tries.items():
        versions = found.pop(name, [])
        if not _is_right(mine, versions):
            answers = ", ".join(f"{one.outcome} {one.version or ''} {one.error or ''}" for one in mine)
            verdict.blame(f"{mine[0].step}: told {answers}, but it is in versions {versions}")
    for name, versions in found.items():
        verdict.blame(f"versions {versions} are of a step that nobody took: {name}")


def _is_right(tries: Sequence[Told], versions: list[int]) -> bool:
    """Whether it is true what callers were told of a step that is in these versions."""
    outcomes = {one.outcome for one in tries}
    if len(versions) > 1 or any(one.outcome == "committed" and versions != [one.version] for one in tries):
        return False
    if tries[0].step.kind == "once" and "nothing" in outcomes:
        # It is recorded that the step was taken before.
        return len(versions) == 1
    return not versions or not outcomes.isdisjoint(("committed", "unknown"))


def _judge_errors(all_told: Iterable[Told | Read], verdict: Verdict, clear: set[str]) -> None:
    for one in all_told:
        if one.error is None:
            continue
        name, text = one.error
        if name not in clear or one.traceback:
            verdict.blame(f"{name} is no clear error: {text} {one.traceback}")
        if "\n" in text or not text:
            verdict.blame(f"an error is not one line: {text!r}")
        if S3_SECRET in text or AZURE_KEY in text or re.search(r"(?i)signature=\w|sig=\w", text):
            verdict.blame(f"an error shows credentials: {text}")


def _judge_files(history: History, verdict: Verdict, *, vacuumed: bool) -> None:
    live = history.live()
    for version, key, size in history.named():
        if key in live or not vacuumed:
            found = history.sizes.get(key)
            if found != size:
                verdict.blame(f"version {version} names {key} with {size} bytes, of which {found} are there")
    named = {key for _, key, _ in history.named()}
    verdict.orphans = sum(
        key.endswith(".parquet") and key not in named and not key.startswith("_delta_log/") for key in history.sizes
    )


def _judge_table(place: Place, history: History, states: Sequence[State], verdict: Verdict, *, vacuumed: bool) -> None:
    newest = len(states) - 1
    for version in [newest] if vacuumed else sorted({*history.checkpoints, newest}):
        try:
            found = rows_of(DeltaTable(place.uri, version, storage_options=place.options))
        except DeltaError as error:
            verdict.blame(f"version {version} cannot be read: {error}")
            continue
        if found != rows(states[version]):
            verdict.blame(f"version {version} has other rows than its history gives")
    table = DeltaTable(place.uri, storage_options=place.options)
    if table.version() != newest:
        verdict.blame(f"the newest version is {newest}, not {table.version()}")
    keys = {unquote(path) for path in table.files().column("path").to_pylist()}
    if keys != history.live():
        verdict.blame("the newest version has other files than its commits give")
