"""A commit, folded to what the conflict rules need of it.

Both sides of a rule are folded the same way: the winner from the bytes of its log file, the transaction from the
actions that it stages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from refdelta.protocol.actions import Add, AnyAction, CommitInfo, DomainMetadata, Metadata, Protocol, Remove, Txn
from refdelta.protocol.codec import decode_summary
from refdelta.protocol.paths import same_path

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSummary:
    """What the rules need of a commit.

    Attributes:
        version: its version; for a transaction that is still to commit, the version that it read.
        operation: ``commitInfo.operation``.
        txn_id: ``commitInfo.txnId``: who wrote it.
        changes_protocol: it has a protocol action, whatever that says.
        changes_metadata: it has a metaData action, whatever that says.
        app_ids: the application ids for which it records a version.
        domains: the metadata domains that it sets or removes.
        adds: its add actions, without statistics where they come from a log file.
        removes: its remove actions, likewise.
        says_blind_append: ``commitInfo.isBlindAppend`` is true. A foreign commit that does not say so is not blind.
    """

    version: int
    operation: str | None = None
    txn_id: str | None = None
    changes_protocol: bool = False
    changes_metadata: bool = False
    app_ids: frozenset[str] = field(default_factory=frozenset)
    domains: frozenset[str] = field(default_factory=frozenset)
    adds: tuple[Add, ...] = ()
    removes: tuple[Remove, ...] = ()
    says_blind_append: bool = False

    @property
    def added_data(self) -> tuple[Add, ...]:
        """The adds that bring data in, as opposed to those that rearrange it."""
        return tuple(add for add in self.adds if add.data_change)

    @property
    def removed_data(self) -> tuple[Remove, ...]:
        """The removes that take data out. One that does not say counts as one that does, as in delta-spark."""
        return tuple(remove for remove in self.removes if remove.data_change is not False)

    @property
    def rearranges(self) -> bool:
        """Whether there are file actions, and none of them changes data: a compaction, a refresh of statistics."""
        return bool(self.adds or self.removes) and not (self.added_data or self.removed_data)

    @property
    def removed_keys(self) -> frozenset[str]:
        """The removed files, as :func:`~refdelta.concurrency.read_set.file_key` gives their paths."""
        return frozenset(same_path(remove.path) for remove in self.removes)


def fold(version: int, actions: Iterable[AnyAction]) -> CommitSummary:
    """Fold actions. Actions of kinds that no rule looks at (cdc, sidecar, ...) leave no trace."""
    info: dict[str, object] = {}
    adds: list[Add] = []
    removes: list[Remove] = []
    app_ids: set[str] = set()
    domains: set[str] = set()
    kinds: set[type] = set()
    for action in actions:
        match action:
            case Add():
                adds.append(action)
            case Remove():
                removes.append(action)
            case CommitInfo():
                info = action.fields
            case Txn():
                app_ids.add(action.app_id)
            case DomainMetadata():
                domains.add(action.domain)
            case _:
                kinds.add(type(action))
    operation, txn_id = info.get("operation"), info.get("txnId")
    return CommitSummary(
        version=version,
        operation=operation if isinstance(operation, str) else None,
        txn_id=txn_id if isinstance(txn_id, str) else None,
        changes_protocol=Protocol in kinds,
        changes_metadata=Metadata in kinds,
        app_ids=frozenset(app_ids),
        domains=frozenset(domains),
        adds=tuple(adds),
        removes=tuple(removes),
        says_blind_append=info.get("isBlindAppend") is True,
    )


def summarize(version: int, data: bytes, file: str) -> CommitSummary:
    """Fold the content of a commit file.

    Args:
        version: the file's version.
        data: its bytes.
        file: its name, for errors.

    Raises:
        InvalidLogError: the file is not what PROTOCOL.md, "Delta Log Entries", says; names file and line.
    """
    return fold(version, decode_summary(data, file))
