"""The log of a catalog-managed table, as a store (PROTOCOL.md, "Catalog-managed tables").

A catalog, and not the file system, decides which commits are versions of such a table. :class:`ManagedStore` shows the
table's folder as if every ratified commit were published, and no other: the rest of the engine reads and writes logs as
always. Snapshots, time travel, history, change feeds, streams and the verifier need no second way.

    version v       ratified, not published           published           above the latest ratified
    get, head,      the staged file, or the bytes     the file of the     nothing is there
    list            that the catalog holds            log
    put_if_absent                                                         stage, then propose to the catalog

A :class:`Ratifier` is what a catalog does for one table. A version has one ratified commit for ever, so what was read
of it is remembered; only the latest version has to be asked for.
"""

from __future__ import annotations

import builtins
import heapq
import re
import threading
import uuid
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, runtime_checkable
from typing import Protocol as Interface

from refdelta.core.log.paths import LOG, MAX_VERSION, VERSIONED, checksum_key, commit_key, parse_log_name
from refdelta.core.log.timestamps import in_commit_timestamp
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import CatalogMismatchError, UnsupportedFeatureError
from refdelta_storage import base as storage
from refdelta_storage.base import Committed, ObjectInfo, PutOutcome, Store, Unknown
from refdelta_storage.errors import ObjectNotFoundError, StorageError
from refdelta_storage.memory import MemoryStore
from refdelta_storage.wrappers import WrapperStore

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from refdelta.core.commit.transaction import CommitOutcome
    from refdelta.core.log.actions import Metadata, Protocol

FEATURE = "catalogManaged"
CATALOG = "refdelta.catalog"
"""The property with the name of the catalog, for the message of an engine that opens the table by its path."""

TABLE_ID = "refdelta.tableId"
"""The property with the id of the table in its catalog, by which another table in its folder is recognized."""

STAGED = f"{LOG}/_staged_commits"
_STAGED_NAME = re.compile(r"([0-9]{20})\.[0-9A-Za-z-]{1,64}\.json")
_TRIES = 3
_DIGITS = 20
_REMEMBERED = 10_000
_HELD_BYTES = 32 * 2**20

BEHIND, MISSING, OTHER = "older catalog", "older folder", "other content"
"""The kinds of differences between a catalog and a folder."""

BACKLOG = 1000
"""So many commits may wait to be published; a writer that finds more publishes them before it goes on."""


@dataclass(frozen=True, slots=True)
class RatifiedCommit:
    """A commit that a catalog has ratified, or is asked to.

    Attributes:
        version: its version.
        size: its size in bytes.
        timestamp_ms: its in-commit timestamp, in milliseconds since 1970 (UTC).
        file_name: the name of its file in ``_delta_log/_staged_commits``; None if the catalog holds the content.
        data: the content; None if it is staged, or not sent along. A proposal has it in either case.

    Raises:
        ValueError: a field is not what a catalog may claim. Its answers are input, like a log.
    """

    version: int
    size: int
    timestamp_ms: int
    file_name: str | None = None
    data: bytes | None = None

    def __post_init__(self) -> None:
        _check_number("version", self.version, 0)
        _check_number("size", self.size, 0)
        _check_number("timestamp", self.timestamp_ms, 0)
        name = self.file_name
        if name is not None and not (isinstance(name, str) and named_version(name) == self.version):
            raise ValueError(
                f"names {str(name)[:200]!r} as the staged commit of version {self.version}, whose name "
                f"is like {self.version:020d}.<uuid>.json"
            )
        if not isinstance(self.data, bytes | None):
            raise ValueError(  # noqa: TRY004 - a claim, and no argument
                f"holds a commit of version {self.version} whose content is no bytes"
            )


@dataclass(frozen=True, slots=True)
class Ratified:
    """The answer of a catalog.

    Attributes:
        latest: the latest ratified version.
        commits: the ratified commits that the catalog still holds, without a gap up to ``latest``; empty if all of them
            are published.
        session: the identity of the database that has answered, which another one in its place does not have (a copy
            that was restored, a replica); None if that is not known.

    Raises:
        ValueError: the latest version is none, or there is a gap.
    """

    latest: int
    commits: tuple[RatifiedCommit, ...] = ()
    session: str | None = None

    def __post_init__(self) -> None:
        _check_number("latest version", self.latest, -1)
        first = self.latest + 1 - len(self.commits)
        if any(commit.version != version for version, commit in enumerate(self.commits, first)):
            versions = [commit.version for commit in self.commits]
            raise ValueError(f"names versions {versions[:20]}, with {self.latest} as the latest")


@dataclass(frozen=True, slots=True)
class Exists(storage.Exists):
    """The version is ratified already. It may be ours, from a request without a reply.

    Attributes:
        winners: the ratified commits from this version on, if the catalog sent them along.
    """

    winners: tuple[RatifiedCommit, ...] = ()


@dataclass(frozen=True, slots=True)
class Proposal:
    """One table of several whose versions are ratified at one moment.

    Attributes:
        ratifier: the catalog's part for the table.
        before: the version that has to be its latest one.
        commit: the commit of the next version; None if its version is only to stay the latest one until all others are
            ratified.
    """

    ratifier: Ratifier
    before: int
    commit: RatifiedCommit | None


class CatalogReplacedError(StorageError):
    """The database of the catalog is another one than the one that was confirmed. Nothing was changed."""


class Ratifier(Interface):
    """The part of a catalog that is for one table. Each method may raise ``StorageError``.

    Attributes:
        inline: whether the catalog holds the content of commits.
        maintenance: the reason why it does not permit maintenance (OPTIMIZE, VACUUM, REORG, log cleanup); None if it
            does.
    """

    inline: bool
    maintenance: str | None

    @property
    def name(self) -> str:
        """The table's name and its catalog, for messages; without credentials."""

    def ratified(self, first: int = 0) -> Ratified:
        """The latest version, and the commits from ``first`` on that it still holds."""

    def propose(self, commit: RatifiedCommit) -> Committed | Exists | Unknown:
        """Ratify a commit, if its version is the next one.

        Returns:
            ``Committed`` if it is ratified; ``Exists`` if another commit has the version; ``Unknown`` without a certain
            answer. Raises ``StorageError`` only if it is certain that it was not and will not be ratified.
        """

    def published(self, version: int) -> None:
        """Take note that all versions up to this one are in the log; the catalog may forget them."""

    def confirm(self, session: str) -> None:
        """Change nothing from now on but in the database with this identity, which was compared with the folder.

        :meth:`propose` and :meth:`published` raise ``CatalogReplacedError`` for another one. It is never called for
        catalogs whose answers have no session.
        """


@runtime_checkable
class SharingRatifier(Ratifier, Interface):
    """The part for one table of a catalog whose server commits transactions of several clients as one version."""

    def share(self, intent: bytes, seconds: float) -> CommitOutcome | Unknown | None:
        """Have the server commit a transaction, with those that others send at the same time.

        Args:
            intent: the transaction, as :func:`~refdelta.core.commit.intent_file.encode_intent` has it.
            seconds: for how long it is sent again while the server has too much to do.

        Returns:
            The outcome; None if it is certain that the server has not committed it and will not, so that it goes alone;
            ``Unknown`` if it may have, or may still.

        Raises:
            ConcurrentModificationError: it conflicts, and is not committed.
        """


class ManagedStore(WrapperStore):
    """The folder of a catalog-managed table.

    Args:
        inner: the store of the folder.
        ratifier: the catalog.
    """

    def __init__(self, inner: Store, ratifier: Ratifier) -> None:
        super().__init__(inner)
        self.ratifier = ratifier
        self._known: dict[int, RatifiedCommit] = {}
        self._held = 0
        self._forgotten = -1
        self._latest = -1
        self._published = -1
        # The database whose versions were compared with the folder, and whether they have to be compared again.
        self._session: str | None = None
        self._suspect = False
        # The newest held commit whose published file was compared.
        self._compared: RatifiedCommit | None = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    # --- the catalog ---

    @property
    def authority(self) -> ManagedStore:
        """This log, for :func:`managed_by`."""
        return self

    @property
    def session(self) -> str | None:
        """The database that was compared with the folder last, unless it has to be compared again."""
        return None if self._suspect else self._session

    def ask(self, first: int = 0) -> Ratified:
        """The catalog's answer of this moment; see :meth:`Ratifier.ratified`.

        Raises:
            StorageError: the catalog failed, or its answer has a gap.
            CatalogMismatchError: it has gone back, or does not agree with the folder.
        """
        before = self._latest
        answer = self._ask(first)
        if self._suspect or answer.session not in (None, self._session):
            self._compare(before)
        return answer

    def _ask(self, first: int = 0) -> Ratified:
        before = self._latest
        answer = self.ratifier.ratified(first)
        if answer.latest < before:
            raise self._mismatch(
                BEHIND, f"the latest version is {answer.latest} by the catalog, before it was {before}"
            )
        self._remember(answer.commits)
        self._latest = max(self._latest, answer.latest)
        if first == 0:
            self._published = max(self._published, answer.latest - len(answer.commits))
        return answer

    def _compare(self, seen: int) -> None:
        """Compare the catalog with the folder, by one listing, and with the latest version that was seen before."""
        answer = self._ask()
        if answer.latest >= 0:
            tip = self._known.get(seen)
            first = answer.commits[0].version if answer.commits else answer.latest
            after = commit_key(first - 2) if first > 1 else None
            self._check(answer, [*self.inner.list(VERSIONED, after)], after)
            if tip is not None and tip not in answer.commits:
                self._check_same(tip)
        self._confirm(answer)

    def differences(self) -> builtins.list[tuple[str, str]]:
        """Every difference between the catalog and the folder, as its kind and a message; empty if they agree.

        Raises:
            StorageError: the store or the catalog failed.
        """
        found = []
        self._suspect = True
        try:
            self.ask()
        except CatalogMismatchError as error:
            found.append((error.kind, str(error)))
        there = {info.key for info in self.inner.list(VERSIONED)}
        for commit in self.ratifier.ratified().commits:
            key = commit_key(commit.version)
            if key in there:
                if not self.is_published(commit):
                    found.append((OTHER, f"{key} is another commit than the one that the catalog has ratified"))
            elif commit.file_name is not None and listed(self.inner, _staged_key(commit)) is None:
                found.append((MISSING, f"version {commit.version} is ratified, and {commit.file_name} is missing"))
        return found

    def _confirm(self, answer: Ratified) -> None:
        self._suspect = False
        if answer.session is not None and answer.session != self._session:
            self.ratifier.confirm(answer.session)
            self._session = answer.session

    def _check(self, answer: Ratified, infos: Iterable[ObjectInfo], after: str | None) -> None:
        """Raise ``CatalogMismatchError`` if a listing of the log, after a key, does not agree with the catalog."""
        checkpoint = highest = -1
        there = set()
        for info in infos:
            name = parse_log_name(info.key)
            if name is None:
                continue
            highest = max(highest, name.hi)
            if name.kind == "commit":
                there.add(name.version)
            elif name.is_checkpoint:
                checkpoint = max(checkpoint, name.version)
        # Versions that were ratified and published after the catalog has answered are none of this answer.
        if highest > answer.latest and highest > (latest := self._ask(answer.latest + 1).latest):
            raise self._mismatch(
                BEHIND,
                f"the latest version is {latest} by the catalog, and the folder has published files up to {highest}",
            )
        needed = answer.commits[0].version - 1 if answer.commits else answer.latest
        # Log cleanup removes the oldest commits first, and none after the newest checkpoint.
        kept = range(max(min(there, default=needed), checkpoint), needed + 1)
        missing = next((version for version in kept if version not in there and version != checkpoint), None)
        if missing is not None and (after is None or after < commit_key(needed)):
            raise self._mismatch(
                MISSING,
                f"the latest version is {answer.latest} by the catalog, and {needed} is published, but the folder has "
                f"no version {missing}",
            )
        # Commits that follow on another one cannot be the same again, so the newest one stands for those before it.
        both = [commit for commit in answer.commits if commit.version in there]
        if both:
            self._check_same(both[-1])

    def _check_same(self, commit: RatifiedCommit) -> None:
        """Raise ``CatalogMismatchError`` if the published file of a version is not this commit."""
        if commit == self._compared:
            return
        if not self.is_published(commit):
            raise self._mismatch(
                OTHER,
                f"the catalog has ratified another commit as version {commit.version} than the folder has published",
            )
        self._compared = commit

    def is_published(self, commit: RatifiedCommit) -> bool:
        """Whether the published file of a version has the content of a ratified commit. True if there is none any more.

        Raises:
            StorageError: the store failed.
        """
        try:
            published = self.inner.get(commit_key(commit.version))
        except ObjectNotFoundError:  # removed by log cleanup
            return True
        try:
            own = commit.data if commit.file_name is None else self.inner.get(_staged_key(commit))
        except ObjectNotFoundError:  # removed by log cleanup, when it had been published
            own = None
        if own is not None:
            return own == published
        return len(published) == commit.size and in_commit_timestamp(published, "") == commit.timestamp_ms

    def _mismatch(self, kind: str, text: str) -> CatalogMismatchError:
        self._suspect = True
        return CatalogMismatchError(
            f"{self.ratifier.name} does not agree with the folder {self.inner.uri}: {text}. One of them was restored "
            "from an older copy, or another catalog has the folder, too. Nothing was changed. Restore the other one, "
            "too, or take over the versions that the folder has: catalog.adopt(name), or refdelta catalog adopt NAME",
            kind,
        )

    def propose(self, version: int, data: bytes) -> Committed | Exists | Unknown:
        """Have a commit ratified: staged under a new name, unless the catalog holds contents.

        Raises:
            StorageError: it is certain that it was not ratified.
            CatalogMismatchError: the catalog does not agree with the folder; it was not ratified.
            InvalidLogError: it has no in-commit timestamp.
        """
        commit = self.proposal(version, data)
        return self.concluded(commit, self._propose(commit))

    def proposal(self, version: int, data: bytes) -> RatifiedCommit:
        """A commit that can be proposed: staged under a new name, unless the catalog holds contents. Errors are those
        of :meth:`propose`.
        """
        timestamp = in_commit_timestamp(data, commit_key(version))
        self.look(version)
        if self.ratifier.inline:
            return RatifiedCommit(version, len(data), timestamp, data=data)
        # The content goes along for catalogs that have to know what a commit changes.
        return RatifiedCommit(version, len(data), timestamp, self._stage(version, data), data)

    def look(self, version: int) -> None:
        """Compare the catalog with the folder before a version is proposed, if there is reason to."""
        if self._suspect or version <= self._latest or not self._looks_right(version):
            self._suspect = True
            self.ask(version)

    def concluded(self, commit: RatifiedCommit, outcome: Committed | Exists | Unknown) -> Committed | Exists | Unknown:
        """Take note of the outcome of a proposal, which is returned."""
        if isinstance(outcome, Committed):
            self._remember([commit if self.ratifier.inline else replace(commit, data=None)])
            self._latest = max(self._latest, commit.version)
        elif isinstance(outcome, Exists) and outcome.winners:
            self._remember(outcome.winners)
            # A catalog that forgets these has gone back, and is asked before the next proposal.
            self._latest = max(self._latest, outcome.winners[-1].version)
        return outcome

    def _looks_right(self, version: int) -> bool:
        """Whether the folder has the newest published version, and neither commit nor checksum of the one that is
        proposed. On a disk alone, where a look takes microseconds; elsewhere the publisher finds out.
        """
        found = self.inner.capabilities
        if found.remote or not found.durable:
            return True
        known = self._published < 0 or self._has(commit_key(self._published))
        return known and not self._has(commit_key(version)) and not self._has(checksum_key(version))

    def _has(self, key: str) -> bool:
        try:
            self.inner.head(key)
        except ObjectNotFoundError:
            return False
        return True

    def _propose(self, commit: RatifiedCommit) -> Committed | Exists | Unknown:
        try:
            return self.ratifier.propose(commit)
        except CatalogReplacedError:
            self.ask(commit.version)
            return self.ratifier.propose(commit)
        except StorageError:
            if commit.version <= self._latest + 1:
                self.ask(commit.version)  # a catalog that has gone back is named
            raise

    def _stage(self, version: int, data: bytes) -> str:
        for _ in range(_TRIES):
            name = f"{version:020d}.{uuid.uuid4()}.json"
            if isinstance(self.inner.put_if_absent(f"{STAGED}/{name}", data), Committed):
                return name
        raise StorageError(f"the commit for version {version} cannot be staged: the store gives no certain answer")

    def content(self, commit: RatifiedCommit) -> bytes:
        """The content of a ratified commit: the catalog's, that of its staged file, or, once that is gone, that of the
        published file.

        Raises:
            StorageError: it is nowhere, or has another size than the catalog says.
        """
        data = commit.data
        if commit.file_name is not None:
            with suppress(ObjectNotFoundError):
                data = self.inner.get(_staged_key(commit))
        published = data is None
        if data is None:
            data = self._published_content(commit)
        if len(data) != commit.size:
            raise StorageError(
                f"the commit of version {commit.version} has {len(data)} bytes, but {commit.size} by "
                f"{self.ratifier.name}"
            )
        if published and in_commit_timestamp(data, commit_key(commit.version)) != commit.timestamp_ms:
            raise self._mismatch(OTHER, f"the published file of version {commit.version} is of another time")
        return data

    def _published_content(self, commit: RatifiedCommit) -> bytes:
        try:
            return self.inner.get(commit_key(commit.version))
        except ObjectNotFoundError:
            if self._of_catalog(commit.version) is None:
                raise  # removed by log cleanup
        raise self._mismatch(
            MISSING,
            f"version {commit.version} is ratified, and its staged file {commit.file_name} is missing, and so is its "
            "published one",
        )

    @property
    def latest(self) -> int:
        """The latest version that is known to be ratified; -1 if none is."""
        return self._latest

    @property
    def published(self) -> int:
        """The latest version that is known to be published; -1 if none is."""
        return self._published

    def unpublished(self) -> tuple[RatifiedCommit, ...]:
        """The ratified commits that the catalog still holds, oldest first."""
        return self.ask().commits

    @staticmethod
    def shown(commit: RatifiedCommit) -> tuple[str, int, int]:
        """Key, size and time of a commit, as in listings."""
        return commit_key(commit.version), commit.size, commit.timestamp_ms

    def holds(self, version: int) -> bool | None:
        """Whether the catalog, which is asked, has the same commit of a version as before; None if it has published the
        version, so that the folder tells.

        Raises:
            StorageError: the catalog failed.
        """
        if version <= self._published:
            return None
        try:
            return any(commit.version == version for commit in self.ask(version).commits) or None
        except CatalogMismatchError:
            return False

    def has_backlog(self) -> bool:
        """Whether more commits wait to be published than should (``BACKLOG``).

        Raises:
            StorageError: the catalog failed.
        """
        if self._latest - self._published > BACKLOG:
            self.ask()  # others publish, too
        return self._latest - self._published > BACKLOG

    def publish(self, most: int | None = None, *, yields: bool = False) -> int:
        """Write ratified commits into the log, oldest first (PROTOCOL.md, "Publishing commits").

        Every writer may do so at any time: a version has one content, so it does no harm if several do.

        Args:
            most: the number of commits; None for all.
            yields: whether to stop where another publisher is at work.

        Returns:
            How many commits this call published.

        Raises:
            StorageError: the store or the catalog failed; what was published so far stays.
            CatalogMismatchError: a published file has other content than the ratified commit of its version. The
                catalog forgets none from that version on.
        """
        count, last, met = 0, None, 0
        there: Container[int] = ()
        try:
            for commit in self._to_publish()[:most]:
                if commit.version in there:
                    self._check_same(commit)
                elif self._publish(commit):
                    count += 1
                elif yields:
                    # Published by another one: by now, or earlier if it has ended. After those that are there, the
                    # next version shows whether it goes on.
                    met += 1
                    there = self._published_after(commit) if met == 1 else ()
                last = commit.version
                if met > 1:
                    break
        finally:
            if last is not None:
                self.ratifier.published(last)
                self._published = max(self._published, last)
        return count

    def _to_publish(self) -> tuple[RatifiedCommit, ...]:
        """The commits that are not published, of which the first one follows on the log in the folder."""
        commits = self.unpublished()
        if commits:
            before = commits[0].version - 1
            if not self._has(commit_key(before)):
                raise self._mismatch(MISSING, f"{before} is published by the catalog, and the folder lacks it")
        return commits

    def _published_after(self, commit: RatifiedCommit) -> range:
        """The versions after a published one that are in the folder, without a gap."""
        after = commit.version + 1
        for info in self.inner.list(f"{LOG}/", commit_key(commit.version)):
            if info.key == commit_key(after):
                after += 1
        return range(commit.version + 1, after)

    def _publish(self, commit: RatifiedCommit) -> bool:
        """Write one commit into the log; False if it is there."""
        key, data = commit_key(commit.version), self.content(commit)
        for _ in range(_TRIES):
            match self.inner.put_if_absent(key, data):
                case Committed():
                    return True
                case storage.Exists():
                    if self.inner.get(key) != data:
                        raise self._mismatch(
                            OTHER, f"{key} is not the commit that the catalog has ratified as this version"
                        )
                    return False
        raise StorageError(f"version {commit.version} cannot be published: no certain answer of the store")

    def _remember(self, commits: Iterable[RatifiedCommit]) -> None:
        """Remember commits; where they become too many, or too long, the older half is forgotten.

        Raises ``CatalogMismatchError`` if a version was another commit before.
        """
        with self._lock:
            for commit in commits:
                known = self._known.setdefault(commit.version, commit)
                if known is commit:
                    self._held += len(commit.data or b"")
                elif _differ(known.file_name, commit.file_name) or _differ(known.data, commit.data):
                    raise self._mismatch(OTHER, f"version {commit.version} was another commit before")
            if len(self._known) > _REMEMBERED or self._held > _HELD_BYTES:
                versions = sorted(self._known)
                for version in versions[: len(versions) // 2]:
                    self._held -= len(self._known.pop(version).data or b"")
                    self._forgotten = max(self._forgotten, version)

    def _of_catalog(self, version: int) -> RatifiedCommit | None:
        """A commit as the catalog holds it now; None if it is published."""
        return next((one for one in self.ratifier.ratified(version).commits if one.version == version), None)

    # --- the store ---

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        """Commits of versions above 0 are proposed to the catalog; everything else is put into the folder."""
        version = _version(key)
        if not version:
            return self.inner.put_if_absent(key, data)
        return self.propose(version, data)

    def put(self, key: str, data: bytes) -> None:
        if _version(key) is not None:
            raise StorageError(f"{key} is not replaced: {self.ratifier.name} has ratified it")
        self.inner.put(key, data)

    def get(self, key: str) -> bytes:
        commit = self._ratified(key)
        return self.inner.get(key) if commit is None else self.content(commit)

    def get_many(self, keys: Iterable[str]) -> builtins.list[bytes]:
        wanted = list(keys)
        unpublished = [self._ratified(key) for key in wanted]
        others = iter(self.inner.get_many([key for key, one in zip(wanted, unpublished, strict=True) if one is None]))
        return [next(others) if one is None else self.content(one) for one in unpublished]

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._of(key).get_range(key, start, length)

    def get_ranges(self, key: str, ranges: Iterable[tuple[int, int]]) -> builtins.list[bytes]:
        return self._of(key).get_ranges(key, ranges)

    def open_input(self, key: str, size: int | None = None) -> BinaryIO:
        return self._of(key).open_input(key, size)

    def open_output(self, key: str) -> AbstractContextManager[BinaryIO]:
        if _version(key) is not None:
            raise StorageError(f"{key} is not written as a stream: {self.ratifier.name} ratifies commits")
        return self.inner.open_output(key)

    def head(self, key: str) -> ObjectInfo:
        commit = self._ratified(key)
        return self.inner.head(key) if commit is None else _info(commit)

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[ObjectInfo]:
        if not (prefix.startswith(LOG) or LOG.startswith(prefix)):
            return self.inner.list(prefix, after)
        # The catalog first: what is published between the two requests is in its answer, too.
        before = self._latest
        answer = self._ask()
        found: Iterable[ObjectInfo] = self.inner.list(prefix, after)
        if prefix == VERSIONED and answer.latest >= 0:
            found = [*found]
            self._check(answer, found, after)
            replaced = answer.session not in (None, self._session)
            tip = self._known.get(before)
            if replaced and tip is not None and tip not in answer.commits:
                self._check_same(tip)
            self._confirm(answer)
        held = {commit_key(one.version): one for one in answer.commits}
        wanted = sorted(key for key in held if key.startswith(prefix) and (after is None or key > after))
        there = (self._info(info) for info in found if self._shows(info.key, answer, held))
        return heapq.merge((_info(held[key]) for key in wanted), there, key=lambda info: info.key.encode())

    def list_keys(self, prefix: str = "", after: str | None = None) -> builtins.list[str]:
        return [info.key for info in self.list(prefix, after)]

    def local_path(self, key: str) -> str | None:
        return None if _version(key) is not None else self.inner.local_path(key)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete files of the folder. A commit that is not published stays."""
        wanted = list(keys)
        versions = [version for key in wanted if (version := _version(key)) is not None]
        held = {commit.version for commit in self.ask().commits} if versions else set()
        if kept := sorted(held.intersection(versions)):
            raise StorageError(f"versions {kept} are not published yet, and are not deleted")
        self.inner.delete(wanted)
        with self._lock:
            for version in versions:
                known = self._known.pop(version, None)
                self._held -= len(known.data or b"") if known else 0

    @staticmethod
    def _shows(key: str, answer: Ratified, held: Container[str]) -> bool:
        name = parse_log_name(key) if key.startswith(LOG) else None
        return name is None or (name.hi <= answer.latest and key not in held)

    def _info(self, file: ObjectInfo) -> ObjectInfo:
        """A published commit keeps the time that was shown before."""
        version = _version(file.key)
        known = None if version is None else self._known.get(version)
        return file if known is None else _info(known)

    def _ratified(self, key: str) -> RatifiedCommit | None:
        """The ratified commit of a key, if the catalog has named it; None for a file of the folder.

        Raises ``ObjectNotFoundError`` for a version that is not ratified, whatever the folder has.
        """
        version = _version(key)
        if version is None:
            return None
        if version > self._latest:
            self.ask()
        if version > self._latest:
            raise ObjectNotFoundError(f"version {version} is not ratified by {self.ratifier.name}")
        with self._lock:
            known = self._known.get(version)
        return self._of_catalog(version) if known is None and version <= self._forgotten else known

    def _of(self, key: str) -> Store:
        """The store that has the object: the folder, or for a commit that the catalog holds its content."""
        commit = self._ratified(key)
        if commit is None:
            return self.inner
        one = MemoryStore()
        one.put(key, self.content(commit))
        return one


def managed_by(store: Store) -> ManagedStore | None:
    """The catalog-managed log in or below a store; None if commits are files."""
    return store.authority  # type: ignore[no-any-return]


def folder_of(store: Store) -> Store:
    """The store of a table's folder, without the catalog-managed log around it."""
    managed = managed_by(store)
    return store if managed is None else managed.inner


def publish_through(store: Store, version: int) -> None:
    """Publish the commits of a catalog-managed table, unless all up to this version are: checkpoints and log compaction
    files stand for published versions only.

    Args:
        store: the table's store.
        version: the newest version that is to be published.

    Raises:
        StoreError: the store or the catalog failed.
    """
    managed = managed_by(store)
    if managed is not None and managed.published < version:
        with store_errors("publish"):
            managed.publish()


def check_place(store: Store, protocol: Protocol, metadata: Metadata) -> None:
    """Refuse a catalog-managed table whose commits are asked for without its catalog, and the reverse.

    Args:
        store: the store of the table's folder.
        protocol: the table's protocol.
        metadata: the table's metadata.

    Raises:
        UnsupportedFeatureError: its commits are with a catalog, and this is its folder; or the other way round.
    """
    managed = managed_by(store)
    needed = FEATURE in (protocol.writer_features or ()) or FEATURE in (protocol.reader_features or ())
    if needed and managed is None:
        catalog = (metadata.configuration or {}).get(CATALOG)
        where = f"the catalog {catalog}" if catalog else "a catalog"
        raise UnsupportedFeatureError(
            [FEATURE],
            "open or make",
            "its commits go through a catalog, never straight to its folder: take it from "
            f"{where}, as catalog.table(name)",
        )
    if managed is not None and not needed:
        raise UnsupportedFeatureError(
            [FEATURE],
            "commit to",
            f"the feature is missing in the protocol of a table that {managed.ratifier.name} manages",
        )


def maintenance_refused(store: Store) -> str | None:
    """The reason why the table's catalog does not permit maintenance; None if it does, or if there is no catalog."""
    managed = managed_by(store)
    return None if managed is None else managed.ratifier.maintenance


def check_maintenance(store: Store, what: str) -> None:
    """Refuse maintenance that the table's catalog does not permit.

    Args:
        store: the table's store.
        what: the statement, for the message.

    Raises:
        UnsupportedFeatureError: the catalog does not permit it.
    """
    if (reason := maintenance_refused(store)) is not None:
        raise UnsupportedFeatureError(["catalogManaged"], what, reason)


def _version(key: str) -> int | None:
    """The version of a key of a commit; None for other keys."""
    name = parse_log_name(key) if key.startswith(f"{LOG}/") else None
    return name.version if name is not None and name.kind == "commit" else None


def staged_version(key: str) -> int:
    """The version for which a commit was staged, by its key; a version that no table has for other keys."""
    name = key.removeprefix(f"{STAGED}/").partition(".")[0]
    return int(name) if len(name) == _DIGITS and name.isdecimal() else MAX_VERSION


def listed(store: Store, key: str) -> ObjectInfo | None:
    """An object as listings have it; None if there is none. A longer name that begins with this one, as a temporary
    file of another program may have, is another object. Raises ``StorageError``.
    """
    found = next(store.list(prefix=key), None)  # of the keys with this prefix, it is the first
    return found if found is not None and found.key == key else None


def _info(commit: RatifiedCommit) -> ObjectInfo:
    return ObjectInfo(commit_key(commit.version), commit.size, commit.timestamp_ms)


def _staged_key(commit: RatifiedCommit) -> str:
    return f"{STAGED}/{commit.file_name}"


def _differ(one: object, other: object) -> bool:
    return one is not None and other is not None and one != other


def named_version(name: str) -> int | None:
    """The version of a staged commit by the name of its file; None if it is no such name."""
    found = _STAGED_NAME.fullmatch(name)
    return None if found is None else int(found.group(1))


def _check_number(what: str, number: object, least: int) -> None:
    if type(number) is not int or not least <= number <= MAX_VERSION:
        raise ValueError(f"claims {str(number)[:50]!r} as the {what}, which is no whole number from {least} to 2^63-1")
