"""The operations of ``refdelta serve`` for several tables at one moment, without HTTP.

Every part is checked as a commit of its own: the staged file is read, and has to be a version that readers accept. Then
one transaction of the database moves all tables. The answer to a request that comes again is the first one's: the names
of its staged files show that it was carried out.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from refdelta.catalog import service
from refdelta.catalog.service import ApiError, DeltaService, Row, invalid
from refdelta.catalog.sql import STAGING
from refdelta.catalog.together_api import (
    PartOutcome,
    RatificationReply,
    RatifiedPart,
    TableVersion,
    Versions,
)
from refdelta.catalog.together_api import Ratification as Request
from refdelta.core.log.actions import AnyAction
from refdelta.engine.log.managed_log import (
    CatalogReplacedError,
    Exists,
    ManagedStore,
    Proposal,
    Ratified,
    RatifiedCommit,
    named_version,
)
from refdelta.engine.log.snapshot import Snapshot
from refdelta_storage import Committed, Unknown

_NAME_PARTS = 3
_WINNERS = 100


@dataclass
class _Part:
    """A part of a request, with its table.

    Attributes:
        asked: the part.
        row: the table by its id.
        held: the table as the server remembers it; one of its own while it is created.
    """

    asked: RatifiedPart
    row: Row
    held: service._Held

    def proposal(self) -> Proposal:
        commit = self.asked.commit
        return Proposal(
            self.held.log.ratifier,
            self.asked.before,
            None
            if commit is None
            else RatifiedCommit(commit.version, commit.file_size, commit.timestamp, commit.file_name),
        )


class TogetherService(DeltaService):
    """The operations of the Delta API, and those for several tables. Arguments are those of :class:`DeltaService`."""

    def versions(self) -> Versions:
        """The latest versions of all tables with names of three parts, by one statement of the database."""
        found = self._catalog._latest_of_all("list the versions")  # noqa: SLF001 - of this package
        return Versions(
            tables=[
                TableVersion(
                    name=name,
                    table_id=one.entry.table_id,
                    location=one.entry.location,
                    managed=one.entry.managed,
                    commits=one.entry.commits,
                    latest=one.version,
                )
                for name, one in sorted(found.items())
                if name.count(".") == _NAME_PARTS - 1
            ]
        )

    def ratify(self, request: Request) -> RatificationReply:
        """Ratify versions of several tables at one moment: all of them or none."""
        if len({one.table_id for one in request.parts}) < len(request.parts):
            raise invalid("a table is there twice")
        parts = [self._opened(one) for one in request.parts]
        if self._is_carried_out(parts):
            return _all_committed(parts)
        size = sum(one.asked.commit.file_size for one in parts if one.asked.commit is not None)
        if size > service._LARGEST_COMMIT:  # noqa: SLF001 - of this package
            raise invalid("the commits of a transaction have too many bytes together")
        with self._commits.taken(size), ExitStack() as stack:
            # Read before other requests have to wait.
            actions = [self._staged(one.held, one.asked.commit) if one.asked.commit else [] for one in parts]
            # Two requests that wait for the same tables in the same order never wait for each other.
            for one in sorted(parts, key=lambda one: one.asked.table_id):
                stack.enter_context(self._alone(one.held))
            return self._ratified(parts, actions)

    def _opened(self, asked: RatifiedPart) -> _Part:
        row = self._catalog.row(id=asked.table_id)
        is_new = asked.creates is not None
        if row is None or row.sealed or (row.latest < 0 and not (is_new and row.entry.name.startswith(STAGING))):
            what = f"staging table for {asked.creates}" if is_new else "table"
            raise ApiError(404, "NoSuchTableException", f"there is no {what} with the id {asked.table_id}")
        if not row.entry.managed:
            raise invalid("the commits of an external table do not go through the catalog")
        self._check_staged(row)
        commit = asked.commit
        if commit is not None and not commit.version == named_version(commit.file_name) == asked.before + 1:
            raise invalid(f"version {commit.version} in {commit.file_name!r} does not follow on version {asked.before}")
        if row.latest >= 0:
            return _Part(asked, row, self._held(row.entry))
        if asked.before != 0:
            raise invalid("a table that is created has version 0 before")
        parts = str(asked.creates).split(".")
        if len(parts) != _NAME_PARTS:
            raise invalid(f"the name of a table has three parts, not {asked.creates!r}")
        entry = replace(row.entry, name=service._full_name(*parts))  # noqa: SLF001 - of this package
        ratifier = self._catalog._ratifier(entry, creates=True)  # noqa: SLF001 - of this package
        held = service._Held(ManagedStore(self._catalog.store_of(entry), ratifier))  # noqa: SLF001 - of this package
        return _Part(asked, row, held)

    def _is_carried_out(self, parts: Sequence[_Part]) -> bool:
        """Whether the request was carried out before. Its parts are committed at one moment, but looked at one after
        another: so what one of them shows is confirmed by all.
        """
        if not any(map(self._is_done, parts)):
            return False
        if not all(self._is_done(one) for one in parts if one.asked.commit is not None):
            raise invalid("a part was committed by another request")
        return True

    def _is_done(self, one: _Part) -> bool:
        commit = one.asked.commit
        if commit is None:
            return one.asked.creates is not None and one.row.latest >= 0
        answer = one.held.log.ask()
        return commit.version <= answer.latest and self._is_accepted(one.held, answer, commit)

    def _ratified(self, parts: Sequence[_Part], actions: Sequence[Sequence[AnyAction]]) -> RatificationReply:
        """Check the parts and ratify them, while no other request of this server is at work on their tables."""
        answers = [one.held.log.ask() for one in parts]
        if any(answer.latest > one.asked.before for one, answer in zip(parts, answers, strict=True)):
            return self._refused(parts)
        after = [self._checked(*one) for one in zip(parts, answers, actions, strict=True)]
        outcomes = self._propose(parts)
        if any(isinstance(one, Unknown) for one in outcomes):
            raise ApiError(500, "CommitStateUnknownException", "the database gave no answer to the commits")
        if not all(isinstance(one, Committed) for one in outcomes):
            return self._refused(parts)
        for one, state in zip(parts, after, strict=True):
            one.held.state = state
        return _all_committed(parts)

    def _checked(self, one: _Part, answer: Ratified, actions: Sequence[AnyAction]) -> Snapshot | None:
        """The state of a table after its part, if readers accept it; None if it is only read."""
        asked, commit, log = one.asked, one.asked.commit, one.held.log
        if answer.latest < asked.before:
            raise invalid(f"the latest version is {answer.latest}, not {asked.before}")
        if one.row.latest >= 0 and asked.creates is not None:
            raise ApiError(404, "NoSuchTableException", f"there is no staging table with the id {asked.table_id}")
        if asked.creates is not None:
            before = self._version_zero(one.row.entry)
            service._check_managed(before, asked.table_id)  # noqa: SLF001 - of this package
            service._check_time(before.timestamp_ms)  # noqa: SLF001 - of this package
        elif commit is None:
            return None
        else:
            self._check_backlog(answer, one.row.published)
            before = self._state(one.held, Ratified(asked.before))
        if commit is None:
            return before
        return service._next_state(log, before, commit, actions, asked.table_id)  # noqa: SLF001 - of this package

    def _propose(self, parts: Sequence[_Part]) -> Sequence[Committed | Exists | Unknown | None]:
        proposals = [one.proposal() for one in parts]
        try:
            return self._catalog._ratify(proposals)  # noqa: SLF001 - of this package
        except CatalogReplacedError:
            for part in parts:
                part.held.log.ask()  # compares the database with the folder
            return self._catalog._ratify(proposals)  # noqa: SLF001 - of this package

    def _refused(self, parts: Sequence[_Part]) -> RatificationReply:
        """The reply where a table has a later version: that of this request, or of another writer."""
        if self._is_carried_out(parts):
            return _all_committed(parts)
        outcomes = []
        for one in parts:
            answer = one.held.log.ask()
            winners = [service._api_commit(won) for won in answer.commits if won.version > one.asked.before]  # noqa: SLF001 - of this package
            if answer.latest > one.asked.before:
                outcomes.append(PartOutcome(outcome="exists", commits=winners[:_WINNERS]))
            else:
                outcomes.append(PartOutcome(outcome="untried"))
        return RatificationReply(parts=outcomes)


def _all_committed(parts: Sequence[_Part]) -> RatificationReply:
    return RatificationReply(parts=[PartOutcome(outcome="committed")] * len(parts))
