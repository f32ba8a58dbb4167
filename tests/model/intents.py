"""A model checker for intents beside the log: every schedule of a few writers, with faults, and invariants.

The protocol is an abstract one, and its decisions are those of :mod:`refdelta.core.commit.intents`: which intents a
leader takes, what it withdraws, what a version means to a writer that waits. A world is a value: the log, what readers
have as the table, the intents, data files, requests on their way, and how far each writer is. Worlds are explored in
the order of their distance, so the schedule of a violation is a shortest one.

``left_out`` names parts of the rules that are not followed, to show that each is needed (:data:`SWITCHES`).
Larger worlds than the tests explore::

    python -m model.intents exhaustive 2000000   # the scenarios of the tests with more faults, up to so many worlds
    python -m model.intents walks 100000 SEED    # random schedules of three writers and everything that may happen

What is assumed: a request arrives within a day or never; the age of files and listings is compared and the put sent
without a sleep of a week between them, as a commit alone assumes; the one version that a writer puts into a table that
was made anew in just that moment is withdrawn, as that of a commit alone.
"""

from __future__ import annotations

import functools
import random
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from refdelta.core.commit import intents
from refdelta.core.commit.intents import Candidate, Head, Named

WEEK_MS: Final = 7 * 86_400_000

SWITCHES: Final = {
    "1 replaces": "a second try names the first one",
    "2 base": "the base is the commit that the writer read",
    "3 missing": "all commits since the base are there",
    "3 named": "none of them names the transaction",
    "4 ends": "only the log ends a wait with a failure",
    "5 window": "no version after the window takes an intent",
    "6 refused": "what could not be read is left out in silence",
    "6 anew": "where one is left out late, those after it are checked anew",
    "7 order": "each member is checked against those before it",
    "8 leader": "a leader asks for its base again after the put",
    "8 object": "the base is known by its object, not by its content",
    "8 member": "a writer that finds itself in a version asks for its base",
    "9 stale": "old intents are left out",
    "9 files": "intents of old data files are left out",
    "9 listing": "an old listing is not put",
    "10 settle": "a put in doubt is settled before the next version",
    "10 vectors": "vectors are kept while a put is in doubt",
    "10 ahead": "what is read ahead waits until the put is settled",
    "11 protocol": "a leader stops where the metadata changed",
}
"""The parts of the rules, by the number of their rule."""
_OF_CANDIDATES: Final = {
    "2 base": "base",
    "3 missing": "missing",
    "3 named": "named",
    "5 window": "window",
    "9 stale": "stale",
    "9 files": "files",
}


class Tx(NamedTuple):
    """A transaction: it appends ``file``, and deletes ``row`` if it has one, by a vector that its leader writes."""

    id: str
    work: str
    base: int
    base_hash: str
    file: str
    row: str | None = None
    replaces: tuple[str, ...] = ()


class Entry(NamedTuple):
    """A commit file. ``built_on`` is the metadata for which it was encoded, ``vector`` a file that it refers to."""

    mark: str
    by: str
    members: tuple[Tx, ...] = ()
    refused: tuple[tuple[Tx, str], ...] = ()
    withdrawn: frozenset[str] = frozenset()
    metadata: bool = False
    built_on: int = 0
    vector: str | None = None
    again: bool = False
    """Whether it was put into a place that had been cleaned up: another object, perhaps of the same content."""

    @property
    def object(self) -> str:
        return self.mark + "'" * self.again


class Local(NamedTuple):
    """How far a writer is. One that leads for others has its result already; ``ahead`` are the intents that it listed
    while a put of its own was under way.
    """

    tx: Tx
    phase: str = "new"
    listed: tuple[tuple[Tx, int, int], ...] = ()
    old_listing: bool = False
    plan: tuple[int, Entry, str] | None = None
    """The version to put, its bytes, and the mark of the version before."""
    doubt: bool = False
    withdraws: bool = False
    files_ms: int = 0
    leads: int = 0
    stays: int = 0
    ahead: tuple[tuple[Tx, int, int], ...] | None = None
    old_ahead: bool = False
    seen_metadata: int = 0
    result: str = ""
    version: int = -1


class World(NamedTuple):
    """Attributes:
    log: the commit files that are there, by version.
    truth: the versions of the table, as readers have them.
    table: how often the table was made anew.
    intents: with the age of each, and that of its files when it was put, in milliseconds.
    """

    log: tuple[tuple[int, Entry], ...]
    truth: tuple[Entry, ...]
    files: frozenset[str]
    locals: tuple[Local, ...]
    intents: frozenset[tuple[Tx, int, int]] = frozenset()
    late: frozenset[tuple[str, Any]] = frozenset()
    table: int = 0
    faults: int = 0
    foreign: int = 0
    metadata: int = 0
    cleanups: int = 0
    weeks: int = 0
    drops: int = 0
    deletions: int = 0
    reruns: int = 0
    skips: int = 0


class Violation(AssertionError):
    """An invariant does not hold; with the schedule."""


@dataclass(frozen=True)
class Scenario:
    """What may happen, and how often.

    Attributes:
        writers: the row that each deletes; None for one that only appends.
        faults: crashes, and requests that are lost, late or doubled.
        foreign: commits of another engine.
        metadata: commits of another engine that change the metadata.
        cleanups: times that log cleanup removes all commits but the newest.
        weeks: times that everybody sleeps for a week, in which VACUUM removes what no version refers to.
        drops: times that the table is removed and made anew; intents survive.
        deletions: intents that somebody deletes.
        reruns: dead writers whose work is run again.
        suspects: whether a writer that waits may be taken for dead, and its work run again.
        skips: times that a leader cannot read enough to check a transaction, or has no room for it.
        leads: how often each writer leads.
        stays: how often a leader whose own transaction is committed leads for others.
        alone: whether writers may go alone without an intent.
        withdraws: whether writers withdraw.
        later: more writers, which begin at any time.
        versions: no version after this one is put.
        window: the number of versions for which an intent is good.
    """

    writers: tuple[str | None, ...]
    faults: int = 0
    foreign: int = 0
    metadata: int = 0
    cleanups: int = 0
    weeks: int = 0
    drops: int = 0
    deletions: int = 0
    reruns: int = 0
    suspects: bool = False
    skips: int = 0
    leads: int = 1
    stays: int = 0
    alone: bool = False
    withdraws: bool = False
    later: tuple[str | None, ...] = ()
    versions: int = 4
    window: int = 2


def named(entry: Entry) -> Named:
    """What a commit file names."""
    return Named(
        members=tuple(tx.id for tx in entry.members),
        refused={tx.id: why for tx, why in entry.refused},
        withdrawn=entry.withdrawn,
    )


_named = functools.lru_cache(100_000)(named)


@functools.lru_cache(10_000)
def head(tx: Tx) -> Head:
    """What the rules need of a transaction."""
    return Head(id=tx.id, base=tx.base, base_hash=tx.base_hash, replaces=tx.replaces)


def conflict(tx: Tx, before: Entry) -> str | None:
    """The transaction, or commit, that was before and with which this one conflicts."""
    if before.metadata:
        return before.mark
    return next((one.id for one in before.members if tx.row is not None and one.row == tx.row), None)


class Explorer:
    """Every schedule of a scenario.

    Args:
        scenario: what may happen.
        left_out: keys of :data:`SWITCHES`: what nobody does.
    """

    def __init__(self, scenario: Scenario, left_out: frozenset[str] = frozenset()) -> None:
        assert left_out <= SWITCHES.keys(), left_out - SWITCHES.keys()
        self.scenario, self.off = scenario, left_out
        ignored = {_OF_CANDIDATES[one] for one in left_out if one in _OF_CANDIDATES}
        self.rules = {name: rule for name, rule in intents.RULES.items() if name not in ignored}
        first = Entry("0.0", "origin")
        rows = [*scenario.writers, *scenario.later]
        made = tuple(
            Local(Tx(name, name, 0, "0.0", f"file-{name}", row), "new" if at < len(scenario.writers) else "unborn")
            for at, (name, row) in enumerate(zip("ABCDE", rows, strict=False))
        )
        files = frozenset(local.tx.file for local in made if local.phase == "new")
        options = {name: getattr(scenario, name) for name in World._fields if hasattr(scenario, name)}
        self.start = World(((0, first),), (first,), files, made, **options)
        self.worlds, self.results = 0, set[str]()

    # --- the search ---

    def run(self, most: int = 10_000_000) -> Explorer:
        """Explore all worlds, up to so many. Raises ``Violation`` with a shortest schedule."""
        parents: dict[World, tuple[World, str] | None] = {self.start: None}
        queue = deque([self.start])
        while queue and len(parents) < most:
            world = queue.popleft()
            for name, after in self.steps(world):
                if after in parents:
                    continue
                parents[after] = world, name
                try:
                    self.check(after)
                except Violation as violation:
                    raise Violation("\n  ".join([str(violation), *_schedule(parents, after)])) from None
                queue.append(after)
        self.worlds = len(parents)
        self.results = {local.result for world in parents for local in world.locals if local.result}
        return self

    def walk(self, choose: random.Random, steps: int = 60) -> None:
        """One random schedule."""
        world, trail = self.start, list[str]()
        for _ in range(steps):
            possible = [*self.steps(world)]
            if not possible:
                return
            name, world = choose.choice(possible)
            trail.append(name)
            try:
                self.check(world)
            except Violation as violation:
                raise Violation("\n  ".join([str(violation), *trail])) from None

    # --- what must hold ---

    def check(self, world: World) -> None:
        """Raise ``Violation`` unless the world is sound."""
        seen, works = dict[str, int](), dict[str, str]()
        metadata, rows = 0, dict[str, str]()
        for version, entry in enumerate(world.truth):
            for tx in entry.members:
                if tx.id in seen:
                    raise Violation(f"{tx.id} is in the versions {seen[tx.id]} and {version}")
                if works.setdefault(tx.work, tx.id) != tx.id:
                    raise Violation(f"{works[tx.work]} and {tx.id} are the same work, and both committed")
                seen[tx.id] = version
                if tx.file not in world.files:
                    raise Violation(f"version {version} refers to {tx.file}, which is gone")
                if tx.row is not None and rows.setdefault(tx.row, tx.id) != tx.id:
                    raise Violation(f"{rows[tx.row]} and {tx.id} both deleted {tx.row}")
            if entry.vector is not None and entry.vector not in world.files:
                raise Violation(f"version {version} refers to {entry.vector}, which is gone")
            for tx, why in entry.refused:
                before = [*world.truth[tx.base + 1 : version], entry]
                if not any(conflict(tx, one) == why for one in before if tx not in one.members):
                    raise Violation(f"version {version} refuses {tx.id} because of {why}, which is no conflict")
            if entry.by != "foreign" and entry.built_on != metadata:
                raise Violation(f"version {version} was made for the metadata {entry.built_on}, not {metadata}")
            metadata += entry.metadata
        for version, entry in world.log:
            if version < len(world.truth) and world.truth[version].mark != entry.mark and not entry.by:
                raise Violation(f"version {version} was overwritten")
        for local in world.locals:
            tx = local.tx
            if local.result == "committed" and tx.base_hash.startswith(f"{world.table}."):
                mine = [one for one in (tx.id, *tx.replaces) if one in seen]
                if not mine or seen[mine[0]] != local.version:
                    raise Violation(f"{tx.id} was told version {local.version}, which readers do not have")
            again = any(tx.id in other.tx.replaces or other.tx.id == f"{tx.id}2" for other in world.locals)
            if local.result == "failed" and (tx.id in seen or (tx.work in works and not again)):
                raise Violation(f"{tx.id} was told that it failed, and {works[tx.work]} is committed")

    # --- steps ---

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Every step that is possible, with a name for it."""
        for at, local in enumerate(world.locals):
            for name, after in self._of_writer(world, at, local):
                yield f"{local.tx.id} {name}", after
        yield from self._of_others(world)

    def _of_others(self, world: World) -> Iterator[tuple[str, World]]:
        for sent in sorted(world.late, key=str):
            what, request = sent
            rest = world._replace(late=world.late - {sent})
            if what == "intent":
                yield f"the late intent {request[0].id} arrives", _with_intent(rest, *request)
            else:
                yield f"the late put of version {request[0]} arrives", self._put(rest, *request)[0]
        if world.foreign and len(world.truth) <= self.scenario.versions:
            yield "another engine commits", self._foreign(world._replace(foreign=world.foreign - 1))
        if world.metadata and len(world.truth) <= self.scenario.versions:
            yield (
                "another engine changes the metadata",
                self._foreign(world._replace(metadata=world.metadata - 1), metadata=True),
            )
        newest = len(world.truth) - 1
        if world.cleanups and any(version < newest for version, _ in world.log):
            left = tuple(one for one in world.log if one[0] >= newest)
            yield "log cleanup", world._replace(log=left, cleanups=world.cleanups - 1)
        if world.weeks:
            yield "a week passes, and VACUUM removes files", self._week(world)
        if world.drops:
            yield "the table is dropped and made anew", self._drop(world)
        if world.deletions:
            for one in sorted(world.intents, key=str):
                left_intents = world.intents - {one}
                after = world._replace(intents=left_intents, deletions=world.deletions - 1)
                yield f"the intent {one[0].id} is deleted", after

    def _foreign(self, world: World, *, metadata: bool = False) -> World:
        version = len(world.truth)
        entry = Entry(f"{world.table}.{version}.foreign", "foreign", metadata=metadata)
        return self._put(world, version, entry)[0]

    def _week(self, world: World) -> World:
        kept = {tx.file for entry in world.truth for tx in entry.members}
        kept |= {entry.vector for entry in world.truth if entry.vector is not None}
        return world._replace(
            weeks=world.weeks - 1,
            late=frozenset(),
            files=world.files & kept,
            intents=frozenset((tx, WEEK_MS, files) for tx, _, files in world.intents),
            locals=tuple(
                one._replace(
                    files_ms=WEEK_MS,
                    old_listing=bool(one.listed or one.plan),
                    old_ahead=one.ahead is not None,
                )
                for one in world.locals
            ),
        )

    def _drop(self, world: World) -> World:
        first = Entry(f"{world.table + 1}.0", "origin")
        return world._replace(
            drops=world.drops - 1, table=world.table + 1, log=((0, first),), truth=(first,), files=frozenset()
        )

    @staticmethod
    def _put(world: World, version: int, entry: Entry) -> tuple[World, bool]:
        if any(version == there for there, _ in world.log):
            return world, False
        if not entry.mark.startswith(f"{world.table}."):
            return world, True  # of the table before: it is withdrawn, as is that of a commit alone
        truth = world.truth
        if version == len(truth):
            truth = (*truth, entry)
        else:
            entry = entry._replace(again=True)  # below what cleanup left: a file that no reader has
        return world._replace(log=tuple(sorted((*world.log, (version, entry)))), truth=truth), True

    # --- of a writer ---

    def _of_writer(self, world: World, at: int, local: Local) -> Iterator[tuple[str, World]]:
        if local.phase == "dead" or (self.scenario.suspects and local.phase == "waiting"):
            yield from self._run_again(world, at, local)
        if local.phase in ("dead", "done"):
            return
        if local.phase == "unborn":
            version, entry = world.log[-1]
            gone = {tx.row for one in world.truth for tx in one.members}
            row = None if local.tx.row in gone else local.tx.row
            tx = local.tx._replace(base=version, base_hash=entry.object, row=row)
            seen = sum(one.metadata for one in world.truth)
            begun = _set(world, at, Local(tx, seen_metadata=seen))
            yield f"begins at version {version}", begun._replace(files=world.files | {tx.file})
            return
        if world.faults:
            yield (
                "dies",
                _set(
                    world._replace(faults=world.faults - 1),
                    at,
                    local._replace(phase="dead", plan=None, listed=(), ahead=None),
                ),
            )
        if local.phase in ("planned", "doubt") and local.ahead is None and local.stays < self.scenario.stays:
            ahead = local._replace(ahead=tuple(sorted(world.intents)), old_ahead=False)
            yield "lists the intents for the version after its own", _set(world, at, ahead)
        match local.phase:
            case "new":
                yield from self._put_intent(world, at, local)
                # A later try waits, since its failure would have to be that of the earlier ones, too.
                if self.scenario.alone and not local.tx.replaces:
                    yield from self._decide(world, at, local, ())
            case "waiting":
                yield from self._wait(world, at, local)
            case "listed":
                yield from self._decide(world, at, local, local.listed)
            case "planned":
                yield from self._put_version(world, at, local)
            case "doubt":
                yield from self._settle(world, at, local)
            case "landed":
                yield from self._confirm(world, at, local)

    def _run_again(self, world: World, at: int, local: Local) -> Iterator[tuple[str, World]]:
        """By a supervisor, which has read all versions from the old base to the new one."""
        tx = local.tx
        if not world.reruns or local.result:
            return
        if any(other.tx.id == f"{tx.id}2" for other in world.locals):
            return
        found = self._fate(world, tx)
        if found.kind not in ("open", "passed"):
            return
        newest = max(version for version, _ in world.log)
        again = Tx(f"{tx.id}2", tx.work, newest, dict(world.log)[newest].object, f"file-{tx.id}2", tx.row)
        if "1 replaces" not in self.off:
            again = again._replace(replaces=(tx.id, *tx.replaces))
        if tx.row is not None and any(conflict(tx, one) for one in world.truth[tx.base + 1 :]):
            return  # the row is not there any more
        seen = sum(entry.metadata for entry in world.truth)
        after = world._replace(
            reruns=world.reruns - 1,
            files=world.files | {again.file},
            locals=(*world.locals, Local(again, seen_metadata=seen)),
        )
        yield f"is run again as {again.id}", after

    def _put_intent(self, world: World, at: int, local: Local) -> Iterator[tuple[str, World]]:
        request = (local.tx, 0, local.files_ms)
        waits = local._replace(phase="waiting")
        arrived = _with_intent(world, *request)
        yield "puts its intent", _set(arrived, at, waits)
        if world.faults:
            less = world._replace(faults=world.faults - 1)
            late = frozenset({*world.late, ("intent", request)})
            yield "puts its intent, which is lost", _set(less, at, waits)
            yield "puts its intent, which is late", _set(less._replace(late=late), at, waits)
            doubled = _with_intent(less._replace(late=late), *request)
            yield "puts its intent, which is doubled", _set(doubled, at, waits)
            dead = local._replace(phase="dead")
            yield "puts its intent and dies", _set(_with_intent(less, *request), at, dead)

    def _wait(self, world: World, at: int, local: Local) -> Iterator[tuple[str, World]]:
        found = self._fate(world, local.tx)
        if found.kind in ("member", "replaced"):
            done = local._replace(phase="done", result="committed", version=found.version, listed=(), plan=None)
            yield f"finds itself in version {found.version}", _set(world, at, done)
        elif found.kind in ("refused", "withdrawn", "passed"):
            yield f"reports that it failed ({found.kind})", _end(world, at, local, "failed")
        elif found.kind == "unknown":
            yield "reports that it does not know", _end(world, at, local, "unknown")
        if found.kind in ("member", "replaced", "refused", "withdrawn", "unknown"):
            return
        if "4 ends" in self.off:
            yield "gives up", _end(world, at, local, "failed")
        if local.leads < self.scenario.leads:
            listed = tuple(sorted(one for one in world.intents if one[0].id != local.tx.id))
            leads = local._replace(phase="listed", listed=listed, old_listing=False, leads=local.leads + 1)
            yield "lists the intents", _set(world, at, leads)
            if self.scenario.withdraws:
                yield "lists the intents, to withdraw", _set(world, at, leads._replace(withdraws=True))

    def _fate(self, world: World, tx: Tx) -> intents.Fate:
        log = dict(world.log)
        newest = max(log)
        base = log.get(tx.base)
        versions = [log.get(version) for version in range(tx.base + 1, newest + 1)]
        chain = [None if entry is None else _named(entry) for entry in versions]
        mark = None if base is None else base.object
        if "8 member" in self.off:
            # The versions that it finds are believed, whatever is before them.
            chain, mark = [one or Named() for one in chain], tx.base_hash
        return intents.fate(head(tx), mark, chain, self.scenario.window)

    # --- a leader ---

    def _decide(
        self,
        world: World,
        at: int,
        local: Local,
        listed: tuple[tuple[Tx, int, int], ...],
        assumed: dict[int, Entry] | None = None,
    ) -> Iterator[tuple[str, World]]:
        """Reads the log, checks the intents, and encodes the next version."""
        log = dict(world.log) if assumed is None else assumed
        newest = max(log)
        if newest >= self.scenario.versions:
            return
        back = _set(world, at, _stops(local))
        since = [entry for version, entry in log.items() if version > local.tx.base]
        if local.old_listing and "9 listing" not in self.off:
            yield "has an old listing", back
            return
        if any(entry.metadata for entry in since) and "11 protocol" not in self.off:
            yield "sees that the metadata changed, and leads no more", back
            return
        if local.phase == "new" and any(conflict(local.tx, entry) for entry in since):
            yield "reports that it failed (alone)", _end(world, at, local, "failed")
            return
        own = (local.tx, -1, local.files_ms)
        candidates = [*listed] if local.result or assumed else [own, *listed]
        for reverse in (False, True) if len(candidates) > 1 else (False,):
            order = candidates[::-1] if reverse else candidates
            for skipped in (None, *([tx.id for tx, _, _ in order] if world.skips else [])):
                entry = self._combine(world, log, newest, order, local, skipped)
                if entry is None:
                    if local.phase != "new":
                        yield "cannot lead", back
                    continue
                files = world.files if entry.vector is None else world.files | {entry.vector}
                planned = local._replace(
                    phase="planned", plan=(newest + 1, entry, self._identity(log[newest])), listed=(), doubt=False
                )
                fewer = world._replace(files=files, skips=world.skips - (skipped is not None))
                note = f", leaving out {skipped}" if skipped else ""
                yield f"encodes {_text(newest + 1, entry)}{note}", _set(fewer, at, planned)

    def _combine(
        self,
        world: World,
        log: dict[int, Entry],
        newest: int,
        order: list[tuple[Tx, int, int]],
        leader: Local,
        skipped: str | None,
    ) -> Entry | None:
        taken, gone, versions = list[Tx](), set[str](), dict[str, list[Entry]]()
        for tx, age_ms, files_ms in order:
            is_own = tx.id == leader.tx.id
            base = log.get(tx.base)
            since = [log.get(version) for version in range(tx.base + 1, newest + 1)]
            chain = tuple(None if entry is None else _named(entry) for entry in since)
            candidate = Candidate(
                head=head(tx),
                version=newest + 1,
                base_hash=None if base is None else base.object,
                chain=chain,
                age_ms=None if is_own else age_ms,
                files_ms=0 if is_own and leader.withdraws else files_ms,
                window=self.scenario.window,
            )
            if intents.left_out(candidate, self.rules) is not None:
                if is_own:
                    return None
            elif (is_own and leader.withdraws) or intents.committed_before(head(tx), chain) is not None:
                gone.add(tx.id)
                gone.update(tx.replaces)
            else:
                taken.append(tx)
                versions[tx.id] = [entry for entry in since if entry is not None]
        replaced = intents.replaced(map(head, taken)) | gone
        members, refused = list[Tx](), list[tuple[Tx, str]]()
        for tx in taken:
            if tx.id in replaced or (tx.id == skipped and not {"6 refused", "6 anew"} & self.off):
                continue
            found = self._conflict(tx, versions[tx.id], members)
            if tx.id == skipped and "6 refused" in self.off:
                found = "what it could not read"
            if found is not None:
                refused.append((tx, found))
            else:
                members.append(tx)
        if "6 anew" in self.off:
            members = [tx for tx in members if tx.id != skipped]
            refused = [one for one in refused if one[0].id != skipped]
        gone |= intents.replaced(head(tx) for tx in (*members, *(tx for tx, _ in refused)))
        gone -= {one for entry in log.values() for one in _named(entry).members}
        if not (members or refused or gone):
            return None
        vector = None
        number = f"{world.table}.{newest + 1}.{leader.tx.id}"
        if any(tx.row is not None for tx in members):
            vector = f"vector-{number}"
        built_on = leader.seen_metadata
        return Entry(number, leader.tx.id, tuple(members), tuple(refused), frozenset(gone), False, built_on, vector)

    def _conflict(self, tx: Tx, versions: list[Entry], members: list[Tx]) -> str | None:
        found = next((why for entry in versions if (why := conflict(tx, entry)) is not None), None)
        if found is None and "7 order" not in self.off:
            found = conflict(tx, Entry("", "", tuple(members)))
        return found

    def _identity(self, entry: Entry) -> str:
        return entry.mark if "8 object" in self.off else entry.object

    def _put_version(self, world: World, at: int, local: Local) -> Iterator[tuple[str, World]]:
        assert local.plan is not None
        version, entry, _ = local.plan
        if local.old_listing and "9 listing" not in self.off:
            # Also in doubt: what the version names decides, not who put it, so other bytes may be put, too.
            yield "lists anew, since its listing is old", _set(world, at, _stops(local))
            return
        after, created = self._put(world, version, entry)
        if created:
            yield f"puts version {version}", _set(after, at, local._replace(phase="landed"))
        else:
            yield f"loses version {version}", _set(world, at, local._replace(phase="doubt"))
        if not world.faults:
            return
        less, doubts = world._replace(faults=world.faults - 1), local._replace(phase="doubt", doubt=True)
        less = self._in_doubt(less, local)
        late = frozenset({*less.late, ("version", (version, entry))})
        yield f"puts version {version}, which is late", _set(less._replace(late=late), at, doubts)
        if created:
            carried_out = self._put(less, version, entry)[0]
            yield f"puts version {version}, whose reply is lost", _set(carried_out, at, doubts)
            dead = local._replace(phase="dead", plan=None, ahead=None)
            yield f"puts version {version} and dies", _set(carried_out, at, dead)

    def _in_doubt(self, world: World, local: Local) -> World:
        assert local.plan is not None
        if "10 vectors" in self.off and local.plan[1].vector is not None:
            return world._replace(files=world.files - {local.plan[1].vector})
        return world

    def _settle(self, world: World, at: int, local: Local) -> Iterator[tuple[str, World]]:
        assert local.plan is not None
        version, entry, _ = local.plan
        found = dict(world.log).get(version)
        if "10 settle" in self.off and found is not None and version < self.scenario.versions:
            further = entry._replace(mark=f"{entry.mark}+")
            goes_on = local._replace(phase="planned", plan=(version + 1, further, found.object))
            yield f"goes on with version {version + 1} without reading version {version}", _set(world, at, goes_on)
        if "10 ahead" in self.off and local.ahead is not None:
            # It takes its version for the next one of the log, as if the put had been acknowledged.
            taken = local._replace(phase="listed", listed=local.ahead, ahead=None, plan=None)
            yield from self._decide(world, at, taken, taken.listed, {**dict(world.log), version: entry})
        if found is None:
            yield f"reads no version {version}", _set(world, at, local._replace(phase="planned"))
        elif found.mark == entry.mark:
            yield f"reads its own version {version}", _set(world, at, local._replace(phase="landed"))
        else:
            # Only where the version before it stands is it the table's; else what became of the put is not known.
            before = dict(world.log).get(version - 1)
            certain = before is not None and self._identity(before) == local.plan[2]
            gone = {entry.vector} if certain else set()
            left = world._replace(files=world.files - gone)
            yield f"reads another version {version}", _set(left, at, _stops(local))

    def _confirm(self, world: World, at: int, local: Local) -> Iterator[tuple[str, World]]:
        assert local.plan is not None
        version, entry, mark = local.plan
        before = dict(world.log).get(version - 1)
        if "8 leader" not in self.off and (before is None or self._identity(before) != mark):
            left = world.log
            if version < len(world.truth) and world.truth[version].mark != entry.mark:
                left = tuple(one for one in left if one[0] != version or one[1].mark != entry.mark)
            yield "does not know", _end(world._replace(log=left), at, local, local.result or "unknown")
            return
        mine = local._replace(phase="done", listed=(), plan=None, version=version)
        if local.result:  # it leads for others, which find themselves in the version
            mine = mine._replace(version=local.version)
        told = local.result or None
        if told is None:
            told = self._told(world, local, entry)
        named_ids = {tx.id for tx in entry.members} | {tx.id for tx, _ in entry.refused} | entry.withdrawn
        swept = world._replace(intents=frozenset(one for one in world.intents if one[0].id not in named_ids))
        after = mine._replace(result=told, ahead=None) if told else _waits_again(local)
        yield f"has put version {version}, and is {told or 'not in it'}", _set(swept, at, after)
        if world.deletions and swept.intents != world.intents:
            yield f"has put version {version}, and deletes no intent", _set(world, at, after)
        if told == "committed" and local.stays < self.scenario.stays:
            # Its intents, if it has read ahead, are those of before: some are members of its version.
            listed = tuple(sorted(world.intents)) if local.ahead is None else local.ahead
            old = local.ahead is not None and local.old_ahead
            stays = after._replace(phase="listed", listed=listed, old_listing=old, stays=local.stays + 1, doubt=False)
            yield f"has put version {version}, and leads for others", _set(world, at, stays)

    @staticmethod
    def _told(world: World, local: Local, entry: Entry) -> str | None:
        told = "committed" if any(tx.id == local.tx.id for tx in entry.members) else None
        if told is None and local.tx.id in entry.withdrawn and not set(local.tx.replaces) & _members(world):
            told = "failed"
        if told is None and any(tx.id == local.tx.id for tx, _ in entry.refused):
            told = "failed"
        return told


def _members(world: World) -> set[str]:
    return {tx.id for _, entry in world.log for tx in entry.members}


def _set(world: World, at: int, local: Local) -> World:
    return world._replace(locals=(*world.locals[:at], local, *world.locals[at + 1 :]))


def _end(world: World, at: int, local: Local, result: str) -> World:
    return _set(world, at, local._replace(phase="done", result=result, listed=(), plan=None, ahead=None))


def _waits_again(local: Local) -> Local:
    return local._replace(
        phase="waiting", plan=None, listed=(), ahead=None, old_listing=False, doubt=False, withdraws=False
    )


def _stops(local: Local) -> Local:
    """A leader that leads no more: it waits for its own transaction, if that is not decided."""
    return _waits_again(local)._replace(phase="done" if local.result else "waiting")


def _with_intent(world: World, tx: Tx, age_ms: int, files_ms: int) -> World:
    if any(one[0].id == tx.id for one in world.intents):
        return world
    return world._replace(intents=world.intents | {(tx, age_ms, files_ms)})


def _text(version: int, entry: Entry) -> str:
    parts = [f"version {version} with {', '.join(tx.id for tx in entry.members) or 'no member'}"]
    if entry.refused:
        parts.append("refused " + ", ".join(f"{tx.id} ({why})" for tx, why in entry.refused))
    if entry.withdrawn:
        parts.append("withdrawn " + ", ".join(sorted(entry.withdrawn)))
    return "; ".join(parts)


SCENARIOS: Final = {
    "alone": Scenario((None, None), faults=1, foreign=1, alone=True, withdraws=True, versions=3),
    "rows": Scenario(("r", "r"), faults=1, foreign=1),
    "three": Scenario(("r", "r", "r"), skips=1, versions=1),
    "metadata": Scenario((None, "r"), metadata=1, foreign=1, faults=1, versions=3),
    "again": Scenario((None, None), faults=2, reruns=1, versions=2),
    "suspects": Scenario((None,), reruns=1, suspects=True, versions=3, withdraws=True, leads=2),
    "cleanup": Scenario((None, None), faults=1, foreign=2, cleanups=1),
    "later": Scenario((None,), later=(None,), foreign=2, cleanups=1, deletions=1, window=3),
    "window": Scenario((None, None), faults=1, foreign=2),
    "week": Scenario((None, None), faults=1, weeks=1, withdraws=True, versions=2),
    "vectors": Scenario(("r", None), faults=1, weeks=1, versions=3),
    "drop": Scenario((None, None), faults=1, drops=1, foreign=1, versions=2),
    "deleted": Scenario((None, None), faults=1, leads=2, deletions=1),
    "stays": Scenario((None, None), faults=1, stays=1, versions=2),
    "stays, cleanup": Scenario((None,), later=(None,), stays=1, foreign=1, cleanups=1, versions=3),
    "stays, week": Scenario((None, None), stays=1, weeks=1, versions=2),
}
"""What the tests explore whole."""

BROKEN_BY: Final = {
    "1 replaces": "again",
    "2 base": "drop",
    "3 missing": "later",
    "3 named": "alone",
    "4 ends": "alone",
    "5 window": "cleanup",
    "6 refused": "three",
    "6 anew": "three",
    "7 order": "rows",
    "8 leader": "cleanup",
    "8 object": "cleanup",
    "8 member": "cleanup",
    "9 stale": "week",
    "9 files": "week",
    "9 listing": "week",
    "10 settle": "alone",
    "10 vectors": "rows",
    "10 ahead": "stays",
    "11 protocol": "metadata",
}
"""The scenario that shows what each part of the rules is for."""

EVERYTHING: Final = Scenario(
    ("r", None),
    later=("r",),
    faults=3,
    foreign=2,
    metadata=1,
    cleanups=1,
    weeks=1,
    drops=1,
    deletions=2,
    reruns=2,
    suspects=True,
    skips=1,
    leads=3,
    stays=2,
    alone=True,
    withdraws=True,
    versions=7,
    window=3,
)
"""What random schedules are drawn from."""


def random_schedules(count: int, seed: int | str, left_out: frozenset[str] = frozenset()) -> None:
    """Try so many schedules of :data:`EVERYTHING`. Raises ``Violation``."""
    choose, explorer = random.Random(seed), Explorer(EVERYTHING, left_out)
    for _ in range(count):
        explorer.walk(choose)


def _main() -> None:
    what, count, *seed = sys.argv[1:]
    began = time.process_time()
    if what == "walks":
        random_schedules(int(count), *(seed or [0]))
        print(f"{int(count):,} random schedules in {time.process_time() - began:.0f} s of CPU: no violation")
        return
    for name, scenario in SCENARIOS.items():
        more = replace(scenario, faults=scenario.faults + 1, leads=scenario.leads + 1)
        explorer = Explorer(more).run(int(count))
        whole = "all" if explorer.worlds < int(count) else "the nearest"
        print(f"{name}: {whole} {explorer.worlds:,} worlds in {time.process_time() - began:.0f} s of CPU: no violation")


def _schedule(parents: dict[World, tuple[World, str] | None], world: World) -> list[str]:
    names = list[str]()
    while (parent := parents[world]) is not None:
        world, name = parent
        names.append(name)
    return names[::-1]


if __name__ == "__main__":
    _main()
