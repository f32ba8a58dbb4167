"""Metadata domains of applications: named strings in a table (PROTOCOL.md, "Domain Metadata").

Concurrent transactions conflict if they set the same domain. Names that begin with ``delta.`` belong to engines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from refdelta.core.log.actions import DomainMetadata
from refdelta.errors import InvalidArgumentError, unknown_name
from refdelta.operations.shared.change import change_table, in_json
from refdelta.table.features import features_of

if TYPE_CHECKING:
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.transaction import Transaction

FEATURE: Final = "domainMetadata"
_SYSTEM: Final = "delta."


def set_domain(
    txn: Transaction, snapshot: Snapshot, domain: str, configuration: str | None, *, upgrade: bool = False
) -> None:
    """Stage a domain with its configuration, or its removal; nothing if it does not change.

    Args:
        txn: the transaction.
        snapshot: the snapshot that it reads.
        domain: its name.
        configuration: its value; None removes the domain.
        upgrade: whether the protocol gets the feature if it lacks it; else that is an error.

    Raises:
        InvalidArgumentError: the domain belongs to engines, is to be removed and does not exist, or was set by this
            transaction before; the configuration is not a string; the table lacks the feature.
    """
    if not isinstance(domain, str) or not domain or domain.lower().startswith(_SYSTEM):
        raise InvalidArgumentError(
            f"{domain!r} cannot be set: the name of a metadata domain must be a string that does not begin with "
            f"{_SYSTEM!r}"
        )
    if not isinstance(configuration, str | None):
        raise InvalidArgumentError(
            f"the configuration of a metadata domain must be a string, not {type(configuration).__name__}"
        )
    if any(isinstance(action, DomainMetadata) and action.domain == domain for action in txn.staged):
        raise InvalidArgumentError(f"the transaction has set the metadata domain {domain!r} already")
    before = snapshot.domains.get(domain)
    if configuration is None:
        if before is None:
            raise InvalidArgumentError(
                unknown_name("metadata domain", domain, sorted(snapshot.domains), where="the table")
            )
        staged = msgspec.structs.replace(before, removed=True)
    else:
        staged = DomainMetadata(domain=domain, configuration=configuration, removed=False)
    if staged == before:
        # The commit depends on the current value.
        txn.read_domains([domain])
        return
    if upgrade:
        change_table(txn, snapshot, snapshot.metadata, [FEATURE])
    elif FEATURE not in features_of(snapshot.protocol):
        raise InvalidArgumentError(
            f"the table does not support {FEATURE}: alter.add_feature({FEATURE!r}, True) before this transaction, or "
            "alter.set_domain_metadata(), which adds it"
        )
    if txn.description is None:
        name = "REMOVE DOMAIN METADATA" if configuration is None else "SET DOMAIN METADATA"
        txn.describe(name, {"domains": in_json([domain])}, {})
    txn.stage([staged])
