"""A catalog and a folder that go back: histories of commits, publications, copies and restores.

The log is the real one (:class:`ManagedStore`, :mod:`refdelta.engine.log.adoption`); the database and the folder are
values, of which a copy can be taken and put back at any point. Each commit names the one that its writer saw before it,
so a log whose commits do not follow on each other is found out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations, pairwise, product
from typing import Any

from model.contents import Violation
from refdelta.core.log.actions import CommitInfo
from refdelta.core.log.codec import encode_commit
from refdelta.core.log.paths import LOG, VERSIONED, checksum_key, commit_key
from refdelta.core.log.segment import LogFile
from refdelta.engine.log.adoption import plan_adoption, prepare_adoption
from refdelta.engine.log.checksum_write import put_for
from refdelta.engine.log.identity import CommitIdentity, Placement
from refdelta.engine.log.managed_log import CatalogReplacedError, Exists, ManagedStore, Ratified, RatifiedCommit
from refdelta.errors import CatalogMismatchError
from refdelta_storage import Committed, MemoryStore, StorageError

FIRST = encode_commit([CommitInfo(fields={"txnId": "0", "parent": None, "inCommitTimestamp": 0})])

OPS = "abfgpP"
"""a, b: a commit by a writer that stays open; f: by one that opens the table; g: as f, but it publishes, too; p: writer
a publishes; P: a program that opens the table for it does.

Beside these: s, r: a copy of the database is taken, and put back; S, R: of the folder; x: while writer a commits,
another one commits and publishes, and the database is put back; y: it is put back while writer a publishes; o: another
catalog publishes in the folder; A, D: adopt, without and with discarding; c, d: as a and f, but the checksum comes
later, or never; l: those come that have not come yet; e: writer a proposes without a look whether others were first.
"""


@dataclass(frozen=True, slots=True)
class Rows:
    """What the database has of the table, from version 1 on."""

    commits: tuple[RatifiedCommit, ...] = ()
    published: int = 0
    since: int = 0


@dataclass(slots=True)
class Database:
    """The database of the catalog. ``session`` changes if it is another one in its place."""

    rows: Rows = field(default_factory=Rows)
    session: int = 0


class Part:
    """The catalog's part for the table, with the conditions of ``SqlRatifier``."""

    maintenance = None
    name = "the catalog"

    def __init__(self, database: Database, *, inline: bool) -> None:
        self.database, self.inline = database, inline
        self.confirmed: str | None = None
        self.between: Callable[[], None] = _nothing

    @property
    def _session(self) -> str:
        return f"{self.database.session} {self.database.rows.since}"

    def ratified(self, first: int = 0) -> Ratified:
        rows = self.database.rows
        held = tuple(one for one in rows.commits if one.version > rows.published and one.version >= first)
        return Ratified(len(rows.commits), held, self._session)

    def propose(self, commit: RatifiedCommit) -> Committed | Exists:
        self._check()
        rows = self.database.rows
        if commit.version <= len(rows.commits):
            return Exists(self.ratified(commit.version).commits)
        if commit.version > len(rows.commits) + 1:
            raise StorageError(f"version {commit.version} is not the next one")
        kept = commit if self.inline else replace(commit, data=None)
        self.database.rows = replace(rows, commits=(*rows.commits, kept))
        return Committed()

    def published(self, version: int) -> None:
        self.between()
        self._check()
        rows = self.database.rows
        self.database.rows = replace(rows, published=max(rows.published, version))

    def confirm(self, session: str) -> None:
        self.confirmed = session

    def _check(self) -> None:
        if self.confirmed != self._session:
            raise CatalogReplacedError("not the database that was compared")


class Writer:
    """A program that has the table open: the contents of the versions that it has seen."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.log = ManagedStore(world.folder, Part(world.database, inline=world.inline))
        self.seen: list[bytes] = []

    def open(self) -> None:
        """List the log, and read it."""
        keys = [info.key for info in self.log.list(VERSIONED) if info.key.endswith(".json")]
        self.seen = [self.log.get(key) for key in keys]
        if keys != [commit_key(version) for version in range(len(keys))]:
            raise StorageError(f"the log has {keys}")

    def commit(self, *, late: bool = False, looks: bool = True) -> None:
        """Read what is new, and commit. If it is acknowledged, the world takes note."""
        if not self.seen:
            self.open()
        for _ in range(3 if looks else 1):
            version = len(self.seen)
            if looks and (answer := self.log.ask(version)).latest >= version:
                self.seen += [self.log.get(commit_key(one)) for one in range(version, answer.latest + 1)]
                version = len(self.seen)
            data = self.world.next_commit(self.seen[-1])
            self.world.between()
            if isinstance(self._propose(version, data), Committed):
                if not self.world.foreign and next(self.world.folder.list(commit_key(version)), None) is not None:
                    raise Violation(f"version {version} was ratified again, after it had been published")
                self.seen.append(data)
                self.world.acknowledged.append(data)
                if self.world.checksums:
                    file = LogFile(commit_key(version), len(data), None, version, version)
                    info = CommitInfo(fields=json.loads(data)["commitInfo"])
                    placement = Placement(self.log, CommitIdentity(file, info), version)
                    self.world.late.append(partial(put_for, placement, checksum_key(version), data, data.__ne__))
                    if not late:
                        self.world.late.pop()()
                return

    def _propose(self, version: int, data: bytes) -> Any:
        try:
            return self.log.propose(version, data)
        except (StorageError, CatalogMismatchError) as error:
            if data in [content(self.world, one) for one in self.world.database.rows.commits]:
                raise Violation(f"version {version} was ratified, and its writer told that it was not") from error
            raise


class World:
    """One history.

    Attributes:
        acknowledged: the commits that were acknowledged, and that nobody was told are lost.
        excused: those that only the database had, when it was replaced by its copy: nothing knows of them any more.
        errors: the kinds of errors that were raised, by the operation.
        copies: the copies that were taken.
        between: called before a proposal.
        foreign: whether another catalog has published.
        late: the checksums that are still to be written.
    """

    def __init__(self, *, inline: bool, checksums: bool) -> None:
        self.inline, self.checksums = inline, checksums
        self.database, self.folder = Database(), MemoryStore()
        self.folder.put(commit_key(0), FIRST)
        self.acknowledged: list[bytes] = []
        self.excused: set[bytes] = set()
        self.errors: list[str] = []
        self.copies: dict[str, Any] = {}
        self.between: Callable[[], None] = _nothing
        self.foreign = False
        self.late: list[Callable[[], bool]] = []
        self._number = 0
        self.open = {name: Writer(self) for name in "ab"}
        for writer in self.open.values():
            writer.open()

    def next_commit(self, parent: bytes) -> bytes:
        self._number += 1
        # All of one length, and of times that a clock of each writer gives: neither tells two of them apart.
        fields = {"txnId": f"{self._number:02d}", "parent": identity(parent), "inCommitTimestamp": 7}
        return encode_commit([CommitInfo(fields=fields)])

    def step(self, op: str) -> None:
        """Carry out one operation. Errors of the store are noted."""
        try:
            self._step(op)
        except (StorageError, CatalogMismatchError) as error:
            self.errors.append(f"{op} {type(error).__name__}")

    def _step(self, op: str) -> None:
        match op:
            case "a" | "b":
                self.open[op].commit()
            case "f":
                Writer(self).commit()
            case "c":
                self.open["a"].commit(late=True)
            case "e":
                self.open["a"].commit(looks=False)
            case "d":
                Writer(self).commit(late=True)
            case "l":
                late, self.late = self.late, []
                for put in late:
                    put()
            case "g":
                writer = Writer(self)
                writer.commit()
                writer.log.publish(yields=True)
            case "p":
                self.open["a"].log.publish(yields=True)
            case "P":
                Writer(self).log.publish()
            case "x" | "y":
                self.between = self.open["a"].log.ratifier.between = lambda: self._restore_once(beside=op == "x")
                if op == "x":
                    self.open["a"].commit()
                else:
                    self.open["a"].log.publish()
                self._restore_once()
            case "o":
                self.foreign = True
                version = sum(info.key.endswith(".json") for info in self.folder.list(VERSIONED))
                before = self.folder.get(commit_key(version - 1))
                self.folder.put(commit_key(version), self.next_commit(before))
            case "s":
                self.copies["s"] = self.database.rows
            case "r":
                self._restore()
            case "S":
                self.copies["S"] = {info.key: self.folder.get(info.key) for info in self.folder.list()}
            case "R":
                self.folder.delete([info.key for info in [*self.folder.list()]])
                for key, data in self.copies["S"].items():
                    self.folder.put(key, data)
            case "A" | "D":
                self.adopt(discard=op == "D")
            case _:
                raise AssertionError(op)

    def _restore_once(self, *, beside: bool = False) -> None:
        if self.between != _nothing:
            self.between = self.open["a"].log.ratifier.between = _nothing
            if beside:
                self.step("g")
            self._restore()

    def _restore(self) -> None:
        lost = {content(self, one) for one in self.database.rows.commits} - {None}
        self.database.rows, self.database.session = self.copies["s"], self.database.session + 1
        kept = {content(self, one) for one in self.database.rows.commits}
        self.excused |= {data for data in lost - kept if data is not None and not self._is_known(data)}

    def _is_known(self, data: bytes) -> bool:
        """Whether the folder has a trace of a commit: its published file or its checksum."""
        versioned = [info.key for info in self.folder.list(VERSIONED)]
        return any(self.folder.get(key) == data for key in versioned)

    def adopt(self, *, discard: bool) -> bool:
        """As ``Catalog.adopt``; False if there was nothing to adopt."""
        log = ManagedStore(self.folder, Part(self.database, inline=self.inline))
        rows, seen = self.database.rows, log.ratifier.ratified()
        plan = plan_adoption(log, seen)
        if plan.dropped and not discard:
            raise StorageError("versions would be dropped")
        before = {content(self, one) for one in rows.commits if one.version in plan.dropped}
        prepare_adoption(log, plan)
        if not plan.adopted and not plan.dropped:
            return False
        held = {one.version: one for one in seen.commits}
        placeholder = RatifiedCommit(0, 0, 0)
        commits = tuple(held.get(v, replace(placeholder, version=v)) for v in range(1, plan.latest + 1))
        self.database.rows = Rows(commits, plan.published, rows.since + bool(plan.dropped))
        self.excused |= {data for data in before if data is not None}
        # A version that nobody has any more was named by its number.
        there = {*self.contents()}
        for version in plan.dropped:
            self.excused |= {
                data for data in self.acknowledged if data not in there and version_of(self, data) == version
            }
        return True

    def contents(self) -> list[bytes]:
        """All versions, as a program reads them that opens the table now."""
        reader = Writer(self)
        reader.open()
        return reader.seen

    # --- what must hold ---

    def check(self) -> str:
        """Raise ``Violation`` if an acknowledged commit is lost and nothing says so. Returns how the history ended."""
        try:
            contents = self.contents()
        except CatalogMismatchError:
            self._check_refused()
            return "refused"
        except StorageError as error:
            raise Violation(f"opening fails without the named error: {error!r}") from None
        self._check_whole(contents)
        return "whole"

    def _check_whole(self, contents: list[bytes]) -> None:
        for parent, one in pairwise(contents):
            if json.loads(one)["commitInfo"]["parent"] != identity(parent):
                raise Violation("a commit rests on a version that is none")
        lost = [data for data in self.acknowledged if data not in contents and data not in self.excused]
        if lost:
            raise Violation(f"acknowledged and gone: {[identity(one) for one in lost]}")
        for info in self.folder.list(VERSIONED):
            version = int(info.key.removeprefix(f"{LOG}/")[:20])
            if version >= len(contents) or self.folder.get(info.key) != contents[version]:
                raise Violation(f"{info.key} is of another version")
        if found := ManagedStore(self.folder, Part(self.database, inline=self.inline)).differences():
            raise Violation(f"verify finds {found} in a table that can be opened")

    def _check_refused(self) -> None:
        """Each way to go on is refused by name, and nothing is changed; adopting ends that."""
        before = self.database.rows, {info.key: self.folder.get(info.key) for info in self.folder.list()}
        for name, use in {
            "a commit": Writer(self).commit,
            "a publication": Writer(self).log.publish,
        }.items():
            try:
                use()
            except CatalogMismatchError:
                continue
            except StorageError as error:
                raise Violation(f"{name} fails without the named error: {error!r}") from None
            raise Violation(f"{name} is carried out on a table that does not agree")
        if not ManagedStore(self.folder, Part(self.database, inline=self.inline)).differences():
            raise Violation("verify finds nothing")
        published = [key for key in before[1] if key.startswith(VERSIONED) and key.endswith(".json")]
        if (before[0].commits, before[0].since) != (self.database.rows.commits, self.database.rows.since):
            raise Violation("a refused program has changed the catalog")
        if not self.adopt(discard=True):
            raise Violation("there is nothing to adopt")
        contents = self.contents()
        for key in published:
            if self.folder.get(key) != before[1][key] or before[1][key] not in contents:
                raise Violation(f"adopting has changed {key}")
        self._check_whole(contents)
        if self.adopt(discard=True):
            raise Violation("there is something to adopt again")
        # Programs that were open go on or are refused.
        for op in "aabfP":
            self.step(op)
        self._check_whole(self.contents())


def _nothing() -> None:
    pass


def identity(data: bytes) -> str:
    return str(json.loads(data)["commitInfo"]["txnId"])


def content(world: World, commit: RatifiedCommit) -> bytes | None:
    """The content of a commit of the database, wherever it is."""
    if commit.data is not None:
        return commit.data
    for key in (f"{LOG}/_staged_commits/{commit.file_name}", commit_key(commit.version)):
        if next(world.folder.list(key), None) is not None:
            return world.folder.get(key)
    return None


def version_of(world: World, data: bytes) -> int:
    """The version for which a commit was acknowledged: one more than that of its parent."""
    by_name = {identity(one): one for one in [FIRST, *world.acknowledged]}
    version, parent = 0, json.loads(data)["commitInfo"]["parent"]
    while parent is not None:
        version, parent = (
            version + 1,
            json.loads(by_name[parent])["commitInfo"]["parent"] if parent in by_name else None,
        )
    return version


def histories(length: int, copy: str, ops: str = OPS) -> Iterator[str]:
    """Every history of this many operations, and the two of ``copy`` (such as ``sr``) in this order at any points."""
    for first, second in combinations(range(length + 2), 2):
        for others in product(ops, repeat=length):
            steps = [*others]
            steps.insert(first, copy[0])
            steps.insert(second, copy[1])
            yield "".join(steps)


def play(history: str, *, inline: bool, checksums: bool = False) -> str:
    """Play a history, and check its end; ``Violation`` names it."""
    world = World(inline=inline, checksums=checksums)
    try:
        for op in history:
            world.step(op)
        return world.check()
    except Violation as violation:
        raise Violation(f"{history}: {violation}") from None
