"""DROP FEATURE: remove the traces of a feature from the table, then the feature from the protocol.

A writer feature can be dropped at once. After the drop of a reader-writer feature, earlier versions still have its
traces, so readers without the feature must not replay these versions. There are two ways:

* ``checkpointProtection`` (protocol_rfcs/checkpoint-protection.md) is added. Checkpoints that every client can read
  separate the earlier versions from the later ones, and log cleanup keeps them until it removes all earlier versions at
  once. There are three checkpoints, since delta-spark falls back to an earlier one if it cannot read two.
* The history is truncated: the log of the earlier versions is removed when they are old enough that no transaction
  still reads them. That takes two calls, a day apart, or as long as
  ``delta.dropFeatureTruncateHistory.retentionDuration`` says.

A call makes several commits, and the table is consistent after each. The last one reads the whole table: if another
writer brings traces back meanwhile, the call begins again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from refdelta.engine.log.checkpoint_write import write_checkpoint
from refdelta.engine.log.cleanup import cleanup_log
from refdelta.engine.log.listing import list_log
from refdelta.engine.log.store_clock import store_time
from refdelta.errors import ConcurrentModificationError, InternalError, InvalidArgumentError
from refdelta.operations.alter.feature_removal import (
    REMOVALS,
    Removal,
    history_has_traces,
    oldest_commit,
    used_by_metadata,
)
from refdelta.operations.alter.features import to_drop
from refdelta.operations.layout.optimize import OptimizeRequest, optimize
from refdelta.operations.layout.reorg_uniform import files_anew
from refdelta.operations.shared.change import PROTECTED, in_json, stage_table
from refdelta.table.features import REGISTRY, check_writable, features_of
from refdelta.table.iceberg_compat import check_compatible
from refdelta.table.properties import get
from refdelta.table.protocol_choice import minimal_protocol, without
from refdelta.transaction import background

if TYPE_CHECKING:
    from refdelta.core.log.actions import Add
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.operations.alter.feature_removal import Described
    from refdelta.transaction.results import CommitResult
    from refdelta.transaction.transaction import Transaction

    Begin = Callable[[], Transaction]

PROTECTION = "checkpointProtection"
_BARRIERS = 3
_TRIES = 5


def drop_feature(begin: Begin, given: Any, *, truncate_history: bool) -> CommitResult:
    """Drop a feature from a table's protocol; see :meth:`refdelta.api.alter.TableAlterer.drop_feature`.

    Args:
        begin: begins a transaction on the newest version.
        given: the feature: its name, or one of deltalake's ``TableFeatures``.
        truncate_history: remove the versions that have its traces, instead of protecting their checkpoints.

    Returns:
        The result of the last commit.

    Raises:
        InvalidArgumentError: the table does not support the feature, the feature cannot be dropped, or is in use in a
            way that only the user can end; with ``truncate_history``, versions that have its traces are too young, and
            the message says when to call again.
        UnsupportedFeatureError: the table needs a feature that this engine cannot write.
        ConcurrentModificationError: other writers brought traces back in each of five attempts.
    """
    return _Drop(begin, given, truncate_history).run()


@dataclass
class _Drop:
    begin: Begin
    given: Any
    truncate: bool

    def run(self) -> CommitResult:
        snapshot = self._newest()
        name = to_drop(snapshot, self.given)
        history = REGISTRY[name].drop == "history"
        if self.truncate and not history and name != PROTECTION:
            raise InvalidArgumentError(
                f"truncate_history does not apply to {name}: readers need not support it; leave truncate_history out"
            )
        if name == PROTECTION and not self.truncate:
            raise InvalidArgumentError(
                f"{name} is dropped together with the versions that it protects; pass truncate_history=True"
            )
        removal = REMOVALS[name]
        for attempt in range(1, _TRIES + 1):
            changed = self._clean(name, removal)
            try:
                if name == PROTECTION:
                    return self._truncated(name, removal, changed=False)
                if not history:
                    return self._downgrade(name, removal)
                return self._truncated(name, removal, changed) if self.truncate else self._fenced(name, removal)
            except ConcurrentModificationError:
                if attempt == _TRIES:
                    raise
        raise InternalError(f"DROP FEATURE {name} ended neither with a commit nor with a conflict")

    def _newest(self) -> Snapshot:
        with self.begin() as txn:
            existing = txn.existing
            background.settle(existing.store.uri)  # no checkpoint of an earlier version comes after what follows
            return existing

    def _clean(self, name: str, removal: Removal) -> bool:
        """Stop the use of the feature and remove those traces that the last commit cannot remove itself.

        Returns:
            Whether anything was committed.
        """
        changed = False
        if removal.stop and used_by_metadata(name, self._newest()):
            self._commit(lambda txn, snapshot: _stop(txn, snapshot, removal))
            changed = True
        if (described := removal.rewrite) is not None and removal.left(self._newest()):
            self._commit(lambda txn, snapshot: _rewrite(txn, snapshot, removal, described))
            changed = True
        while removal.purge and removal.left(self._newest()):
            with self.begin() as txn:
                txn.run("reorg_purge", optimize, OptimizeRequest(aim="purge"))
                txn.commit()
            changed = True
        return changed

    def _commit(self, stage: Callable[[Transaction, Snapshot], None]) -> CommitResult:
        with self.begin() as txn:
            txn.run("drop_feature", stage)
            return txn.commit()

    # --- protected checkpoints ---

    def _fenced(self, name: str, removal: Removal) -> CommitResult:
        for _ in range(_BARRIERS):
            self._barrier()
        result = self._downgrade(name, removal, protect=True)
        snapshot = self._newest()
        write_checkpoint(snapshot.store, snapshot)
        return result

    def _barrier(self) -> None:
        self._commit(lambda txn, _: txn.describe("Empty Commit", {}, {}, always=True))
        snapshot = self._newest()
        write_checkpoint(snapshot.store, snapshot)

    # --- truncated history ---

    def _truncated(self, name: str, removal: Removal, changed: bool) -> CommitResult:
        if name != PROTECTION:
            self._barrier()
        snapshot = self._newest()
        wait_ms = get(snapshot.metadata.configuration or {}, "delta.dropFeatureTruncateHistory.retentionDuration")
        if not changed:
            cleanup_log(snapshot.store, snapshot, store_time(snapshot.store), retention_ms=wait_ms)
        if name == PROTECTION:
            there = oldest_commit(list_log(snapshot.store))
            traces = there < snapshot.properties.require_checkpoint_protection_before_version
        else:
            traces = changed or history_has_traces(snapshot, name, removal)
        if traces:
            raise InvalidArgumentError(
                f"{name} is no longer in use, but earlier versions have its traces, and are not old enough to be "
                f"removed. Call this again in {wait_ms / 3_600_000:g} hours "
                "(delta.dropFeatureTruncateHistory.retentionDuration), when no transaction can still use them"
            )
        return self._downgrade(name, removal)

    # --- the last commit ---

    def _downgrade(self, name: str, removal: Removal, *, protect: bool = False) -> CommitResult:
        def stage(txn: Transaction, snapshot: Snapshot) -> None:
            metadata, actions = removal.last(snapshot)
            left = removal.left(snapshot)
            if left:
                raise InvalidArgumentError(f"{name} cannot be dropped: {left}")
            protocol = without(snapshot.protocol, name)
            if protect:
                protocol = minimal_protocol(features_of(protocol) | {PROTECTION})
                configuration = {**(metadata.configuration or {}), PROTECTED: str(snapshot.version + 1)}
                metadata = msgspec.structs.replace(metadata, configuration=configuration)
            check_writable(protocol, metadata)
            # The commit depends on the absence of traces, in rows and in domains.
            txn.read_whole_table()
            txn.read_domains()
            stage_table(txn, snapshot, protocol, metadata)
            txn.stage(actions)
            parameters: dict[str, Any] = {"featureName": name, "truncateHistory": self.truncate}
            txn.describe("DROP FEATURE", parameters, {})

        return self._commit(stage)


def _stop(txn: Transaction, snapshot: Snapshot, removal: Removal) -> None:
    metadata, _ = removal.last(snapshot)
    before, after = snapshot.metadata.configuration or {}, metadata.configuration or {}
    values = {key: after[key] for key in sorted(after) if before.get(key) != after[key]}
    gone = sorted(before.keys() - after.keys())
    stopped = msgspec.structs.replace(snapshot.metadata, configuration=metadata.configuration)
    check_writable(snapshot.protocol, stopped)
    stage_table(txn, snapshot, snapshot.protocol, stopped)
    if values:
        txn.describe("SET TBLPROPERTIES", {"properties": in_json(values)}, {})
    else:
        txn.describe("UNSET TBLPROPERTIES", {"properties": in_json(gone), "ifExists": in_json(True)}, {})


def _rewrite(
    txn: Transaction, snapshot: Snapshot, removal: Removal, described: Callable[[list[Add], list[Add]], Described]
) -> None:
    metadata, actions = removal.last(snapshot)
    check_writable(snapshot.protocol, metadata)
    check_compatible(features_of(snapshot.protocol), metadata, snapshot.metadata, keeps_files=False)
    txn.read_whole_table()
    removed, added = files_anew(txn, snapshot, dataclasses.replace(snapshot, metadata=metadata), "upgrade")
    stage_table(txn, snapshot, snapshot.protocol, metadata)
    txn.stage(actions)
    txn.describe(*described(removed, added))
