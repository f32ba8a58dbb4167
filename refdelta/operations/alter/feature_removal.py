"""For each feature that can be dropped: its traces in a table, and their removal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from refdelta.core.log.actions import Add, Metadata, Remove
from refdelta.core.log.assigned import ENABLEMENT
from refdelta.core.log.paths import parse_log_name
from refdelta.core.log.segment import LogFile
from refdelta.engine.log.commits import read_commits
from refdelta.engine.log.listing import list_log
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.log.statistics import whole_adds
from refdelta.operations.alter.unmapping import clustering_by_names, removed_mapping
from refdelta.operations.layout.reorg_uniform import rewrite_figures
from refdelta.operations.shared.change import PROTECTED
from refdelta.table.column_mapping import MODE, each_field, mode_of, unmapped, without_mapping
from refdelta.table.evolution import TYPE_CHANGES
from refdelta.table.features import REGISTRY, ActivationFacts
from refdelta.table.properties import CONSTRAINT_PREFIX
from refdelta.table.row_tracking import ENABLED, ID_COLUMN, SUSPENDED, VERSION_COLUMN
from refdelta.table.types import parse_schema, schema_json

if TYPE_CHECKING:
    from refdelta.core.log.actions import AnyAction
    from refdelta.engine.log.listing import Listing
    from refdelta.engine.log.snapshot import Snapshot


_WIDENING = "delta.enableTypeWidening"
Last = tuple["Metadata", tuple["AnyAction", ...]]
Described = tuple[str, dict[str, str], dict[str, int]]


def _nothing(_: Snapshot) -> str:
    return ""


def _as_it_is(snapshot: Snapshot) -> Last:
    return snapshot.metadata, ()


@dataclass(frozen=True)
class Removal:
    """The removal of a feature's traces.

    Attributes:
        last: returns the table's metadata without the feature, and further actions of the commit that drops it.
        left: returns a description of the traces that are still in the table; empty if there are none.
        stop: whether that metadata is committed first, so that no writer uses the feature while files are rewritten.
        rewrite: if not None, all files are rewritten while there are traces; it returns the description of that commit,
            for the removed and the added files.
        purge: whether files with deletion vectors are rewritten while there are traces.
    """

    last: Callable[[Snapshot], Last] = _as_it_is
    left: Callable[[Snapshot], str] = _nothing
    stop: bool = False
    rewrite: Callable[[list[Add], list[Add]], Described] | None = None
    purge: bool = False


def used_by_metadata(name: str, snapshot: Snapshot) -> bool:
    """True if a table's metadata uses the feature."""
    metadata = snapshot.metadata
    return REGISTRY[name].active(ActivationFacts.of(metadata.schema_string, metadata.configuration))


def _properties(*, unset: tuple[str, ...] = (), **values: str) -> Callable[[Snapshot], Last]:
    """Metadata without the properties ``unset``, and with other values of ``values`` if the table has these."""
    off = {f"delta.{name}": value for name, value in values.items()}

    def last(snapshot: Snapshot) -> Last:
        before = snapshot.metadata.configuration or {}
        after = {key: off.get(key, value) for key, value in before.items() if key not in unset}
        return msgspec.structs.replace(snapshot.metadata, configuration=after), ()

    return last


def _constraints(snapshot: Snapshot) -> str:
    names = [
        key[len(CONSTRAINT_PREFIX) :]
        for key in snapshot.metadata.configuration or {}
        if key.lower().startswith(CONSTRAINT_PREFIX)
    ]
    return f"the table has the constraints {', '.join(sorted(names))}; drop_constraint removes them" if names else ""


def _domains(snapshot: Snapshot) -> Last:
    gone = tuple(msgspec.structs.replace(d, removed=True) for d in snapshot.domains.values())
    return snapshot.metadata, gone


def _without_row_ids(snapshot: Snapshot) -> Last:
    """The domain with the highest row id stays, since a restored version would bring lower ids back."""
    gone = (ENABLED, SUSPENDED, ID_COLUMN, VERSION_COLUMN)
    configuration = {k: v for k, v in (snapshot.metadata.configuration or {}).items() if k not in gone}
    bare = {"base_row_id": None, "default_row_commit_version": None, "data_change": False}
    again = tuple(msgspec.structs.replace(add, **bare) for add in whole_adds(snapshot.files))
    return msgspec.structs.replace(snapshot.metadata, configuration=configuration), again


def _vectors(snapshot: Snapshot) -> str:
    files = snapshot.files
    found = files.num_rows - files.column("deletionVector").null_count
    return f"{found} of its files have deletion vectors" if found else ""


def _changes(snapshot: Snapshot) -> str:
    changed = TYPE_CHANGES in ActivationFacts.of(snapshot.metadata.schema_string, None).keys
    return "its schema records the widened types of columns" if changed else ""


def _as_if_never_widened(snapshot: Snapshot) -> Last:
    configuration = {k: v for k, v in (snapshot.metadata.configuration or {}).items() if k != _WIDENING}
    schema = each_field(snapshot.schema, lambda item: replace(item, metadata=_without(item.metadata, TYPE_CHANGES)))
    return msgspec.structs.replace(
        snapshot.metadata, schema_string=schema_json(schema), configuration=configuration
    ), ()


def _mapped(snapshot: Snapshot) -> str:
    schema = parse_schema(snapshot.metadata.schema_string)
    mapped = mode_of(snapshot.metadata) != "none" or without_mapping(schema) != schema
    return "its columns are mapped" if mapped else ""


def _by_names(snapshot: Snapshot) -> Last:
    configuration = {k: v for k, v in (snapshot.metadata.configuration or {}).items() if k != MODE}
    metadata = unmapped(msgspec.structs.replace(snapshot.metadata, configuration=configuration))
    return metadata, clustering_by_names(snapshot, metadata)


def _without(metadata: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in metadata.items() if name != key}


def _reorganized(removed: list[Add], added: list[Add]) -> Described:
    return "REORG", {"predicate": "[]", "applyPurge": "false"}, rewrite_figures(removed, added)


_WIDENED = Removal(_as_if_never_widened, _changes, stop=True, rewrite=_reorganized)

REMOVALS: dict[str, Removal] = {
    "checkConstraints": Removal(left=_constraints),
    "inCommitTimestamp": Removal(_properties(unset=ENABLEMENT, enableInCommitTimestamps="false")),
    "domainMetadata": Removal(_domains),
    "materializePartitionColumns": Removal(_properties(unset=("delta.enableMaterializePartitionColumnsFeature",))),
    "checkpointProtection": Removal(_properties(unset=(PROTECTED,))),
    "columnMapping": Removal(_by_names, _mapped, rewrite=removed_mapping),
    "deletionVectors": Removal(_properties(unset=("delta.enableDeletionVectors",)), _vectors, stop=True, purge=True),
    "v2Checkpoint": Removal(_properties(checkpointPolicy="classic"), stop=True),
    "vacuumProtocolCheck": Removal(),
    "rowTracking": Removal(_without_row_ids),
    "typeWidening": _WIDENED,
    "typeWidening-preview": _WIDENED,
}


_AT_ONCE = 100


def oldest_commit(listing: Listing) -> int:
    """The oldest version whose commit is in the log. Raises ``ValueError`` if there is none."""
    names = (parse_log_name(key) for key, _, _ in listing)
    return min(name.version for name in names if name is not None and name.kind == "commit")


def history_has_traces(snapshot: Snapshot, name: str, removal: Removal) -> bool:
    """True if a readable version, or a commit in the log, has traces of the feature.

    Args:
        snapshot: the newest version, which has none.
        name: the feature.
        removal: the removal of its traces.
    """
    listing = list_log(snapshot.store)
    names = [(found, entry) for entry in listing if (found := parse_log_name(entry[0])) is not None]
    if name == "v2Checkpoint" and any(found.kind == "uuid" for found, _ in names):
        return True
    oldest = oldest_commit(listing)
    if oldest > 0:
        first = load_snapshot(snapshot.store, oldest)
        if _used_by(name, first.metadata) or removal.left(first):
            return True
    commits = [
        LogFile(*entry, found.version, found.hi)
        for found, entry in names
        if found.kind == "commit" and found.version <= snapshot.version
    ]
    for start in range(0, len(commits), _AT_ONCE):
        for actions in read_commits(snapshot.store, commits[start : start + _AT_ONCE]):
            if any(_shows(name, action) for action in actions):
                return True
    return False


def _shows(name: str, action: AnyAction) -> bool:
    if isinstance(action, Metadata):
        return _used_by(name, action)
    if name == "deletionVectors" and isinstance(action, (Add, Remove)):
        return action.deletion_vector is not None
    return False


def _used_by(name: str, metadata: Metadata) -> bool:
    return REGISTRY[name].active(ActivationFacts.of(metadata.schema_string, metadata.configuration))
