"""The client of the requests for several tables of ``refdelta serve``; see :mod:`refdelta.catalog.together_api`.

A server without them, such as Unity Catalog's own, is refused by name: its API moves one table a request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from refdelta.catalog import delta_api as api
from refdelta.catalog.together_api import (
    MOST_PARTS,
    RATIFICATIONS,
    VERSIONS,
    Ratification,
    RatificationReply,
    RatifiedPart,
    Versions,
)
from refdelta.catalog.unity_http import RequestError, pause
from refdelta.engine.log.managed_log import Exists, Proposal, RatifiedCommit
from refdelta.errors import CatalogMismatchError, InvalidArgumentError, TableAlreadyExistsError
from refdelta_storage import Committed, StorageError, Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from refdelta.catalog.unity_http import Connection

_TRIES = 6
_NO_SUCH_PATH = (404, 405, 501)


def versions_of(connection: Connection, what: str) -> Versions:
    """The latest versions of all tables at one moment.

    Args:
        connection: the server.
        what: the attempted action, for messages.

    Raises:
        InvalidArgumentError: the server has no such request.
        RequestError: it refused, or gave no answer.
    """
    try:
        return connection.get(VERSIONS, Versions)
    except RequestError as error:
        if error.status in _NO_SUCH_PATH:
            raise InvalidArgumentError(
                f"cannot {what}: {connection.root} has no request for several tables at one moment, as Unity Catalog's "
                "interface has none; refdelta serve and SqlCatalog have one"
            ) from error
        raise


def ratify_together(connection: Connection, proposals: Sequence[Proposal]) -> list[Committed | Exists | Unknown | None]:
    """Ratify the next versions of several tables by one request; results as for ``SqlCatalog._ratify``.

    A request whose reply was lost is sent again: the server knows it by the names of its staged files and the ids of
    its new tables, and answers as it did.

    Args:
        connection: the server.
        proposals: at most one of each table, with ratifiers of this server.

    Raises:
        StorageError: the server refused it, or a table is gone, and nothing was ratified.
        TableAlreadyExistsError: the name of a table that is created is taken, and nothing was ratified.
        CatalogMismatchError: the catalog does not agree with the folder of a table, and nothing was ratified.
    """
    ratifiers: list[Any] = [one.ratifier for one in proposals]
    if len(proposals) > MOST_PARTS:
        raise StorageError(f"a transaction through {connection.root} has at most {MOST_PARTS} tables")
    request = Ratification(
        parts=[
            RatifiedPart(
                table_id=ratifier.entry.table_id,
                before=one.before,
                commit=None if one.commit is None else _announced(one.commit),
                creates=ratifier.entry.name if ratifier.creates else None,
            )
            for one, ratifier in zip(proposals, ratifiers, strict=True)
        ]
    )
    lost: RequestError | None = None
    for number in range(1, _TRIES + 1):
        try:
            return _outcomes(connection.send("POST", RATIFICATIONS, RatificationReply, request), proposals)
        except RequestError as error:
            lost = lost or (None if error.certain else error)
            last = error
        if last.kind == "ResourceExhaustedException":
            for ratifier in ratifiers:
                ratifier.publish()
            last.retry_after = None  # that was the reason to wait
        elif not last.passing:
            break
        if number < _TRIES:
            pause(last, number)
    if lost is not None:
        return [Unknown(lost)] * len(proposals)
    raise _refusal(last, ratifiers)


def _announced(commit: RatifiedCommit) -> api.ApiCommit:
    return api.ApiCommit(
        version=commit.version,
        timestamp=commit.timestamp_ms,
        file_name=commit.file_name or "",
        file_size=commit.size,
        file_modification_timestamp=commit.timestamp_ms,
    )


def _refusal(error: RequestError, ratifiers: Sequence[Any]) -> Exception:
    if error.kind in api.CATALOG_MISMATCHES:
        return CatalogMismatchError(str(error), api.CATALOG_MISMATCHES[error.kind])
    if error.kind == "AlreadyExistsException":
        created = " or ".join(one.entry.name for one in ratifiers if one.creates)
        return TableAlreadyExistsError(f"there is a table of this name: {created}")
    gone = [one.name for one in ratifiers if one.entry.table_id in str(error)]
    return StorageError(f"there is no table {gone[0]} any more: {error}") if error.status == 404 and gone else error


def _outcomes(reply: RatificationReply, proposals: Sequence[Proposal]) -> list[Committed | Exists | Unknown | None]:
    """The outcomes of a reply, which is input like a log.

    Raises ``RequestError``, without certainty, if it says that some are committed and others not, or names no commits
    that can be.
    """
    kinds = {one.outcome for one in reply.parts}
    if len(reply.parts) != len(proposals) or ("committed" in kinds and len(kinds) > 1) or kinds == {"untried"}:
        raise _nonsense("it names not one outcome for all parts")
    found: list[Committed | Exists | Unknown | None] = []
    for one, proposal in zip(reply.parts, proposals, strict=True):
        match one.outcome:
            case "committed":
                found.append(Committed())
            case "untried":
                found.append(None)
            case "exists":
                found.append(Exists(_winners(one.commits, proposal.before + 1)))
    return found


def _winners(commits: Sequence[api.ApiCommit], first: int) -> tuple[RatifiedCommit, ...]:
    try:
        winners = tuple(RatifiedCommit(one.version, one.file_size, one.timestamp, one.file_name) for one in commits)
    except ValueError as error:
        raise _nonsense(str(error)) from error
    if winners and [one.version for one in winners] != [*range(winners[0].version, winners[0].version + len(winners))]:
        raise _nonsense("its commits have a gap")
    if winners and winners[0].version < first:
        raise _nonsense("it names commits that are not later")
    return winners


def _nonsense(why: str) -> RequestError:
    return RequestError(
        f"POST {RATIFICATIONS}: the reply is not as refdelta serve has it: {why}", status=None, certain=False
    )
