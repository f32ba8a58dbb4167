"""ADD FEATURE and DROP FEATURE: features of a table's protocol, by name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from refdelta import arguments
from refdelta.errors import InvalidArgumentError
from refdelta.operations.shared.change import change_table, in_json
from refdelta.table.features import REGISTRY, features_of
from refdelta.table.protocol_choice import known_feature, upgraded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.transaction import Transaction

# deltalake names this feature by Arrow's type.
_OTHER_NAMES = {"timestampwithouttimezone": "timestampNtz"}


def add_feature(txn: Transaction, snapshot: Snapshot, given: Any, *, raise_versions: bool) -> None:
    """Stage further features of the protocol; nothing if the table supports them.

    Args:
        txn: the transaction.
        snapshot: the snapshot that it reads.
        given: a name, one of deltalake's ``TableFeatures``, or a list of these.
        raise_versions: whether the protocol may get higher versions.

    Raises:
        InvalidArgumentError: a feature does not exist, cannot be added by name, or needs higher versions that are not
            allowed.
        UnsupportedFeatureError: this engine does not support a feature.
    """
    names = [feature_name(one) for one in _listed(given)]
    raise_versions = arguments.flag("allow_protocol_versions_increase", raise_versions)
    if "clustering" in names:
        raise InvalidArgumentError(
            "clustering cannot be added by name; alter.cluster_by() adds it with the clustering columns"
        )
    before, after = snapshot.protocol, upgraded(snapshot.protocol, snapshot.metadata, names)
    higher = (
        after.min_reader_version > before.min_reader_version or after.min_writer_version > before.min_writer_version
    )
    if higher and not raise_versions:
        raise InvalidArgumentError(
            f"the table has reader version {before.min_reader_version} and writer version {before.min_writer_version}, "
            f"and would need {after.min_reader_version} and {after.min_writer_version}; pass "
            "allow_protocol_versions_increase=True to allow it"
        )
    txn.describe("ADD FEATURE", {"name": in_json(names)}, {})
    change_table(txn, snapshot, snapshot.metadata, names)


def feature_name(given: Any) -> str:
    """The name of a feature, which is given in any case or as one of deltalake's ``TableFeatures``.

    Raises:
        InvalidArgumentError: there is no such feature.
    """
    if isinstance(given, str):
        return known_feature(given)
    if type(given).__name__ != "TableFeatures":
        raise InvalidArgumentError(
            f"a table feature must be a string or one of deltalake's TableFeatures, not {given!r}"
        )
    name = str(given).rpartition(".")[2]
    return known_feature(_OTHER_NAMES.get(name.lower(), re.sub("Preview$", "-preview", name)))


def to_drop(snapshot: Snapshot, given: Any) -> str:
    """The name of the feature to drop.

    Raises:
        InvalidArgumentError: the table does not support it, another of its features needs it, or it cannot be dropped.
    """
    name = feature_name(given)
    supported = features_of(snapshot.protocol)
    if name not in supported:
        raise InvalidArgumentError(
            f"the table does not support {name}; it supports: {', '.join(sorted(supported)) or '(none)'}"
        )
    if REGISTRY[name].drop == "never":
        raise InvalidArgumentError(
            f"{name} cannot be dropped: Delta defines no procedure for it, and delta-spark cannot drop it either. To "
            "be without it, copy the rows to a new table"
        )
    needing = sorted(other for other in supported if other in REGISTRY and name in REGISTRY[other].requires)
    if name == "vacuumProtocolCheck" and "catalogManaged" in supported:
        needing = ["catalogManaged"]  # as writers have it, though PROTOCOL.md does not ask readers for it
    if needing:
        need = "need it; drop these first" if len(needing) > 1 else "needs it; drop that first"
        raise InvalidArgumentError(f"{name} cannot be dropped: {', '.join(needing)} {need}")
    return name


def _listed(given: Any) -> Iterable[Any]:
    several = list(given) if isinstance(given, (list, tuple, set, frozenset)) else [given]
    if not several:
        raise InvalidArgumentError("there is no feature to add")
    return several
