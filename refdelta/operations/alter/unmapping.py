"""The end of a column mapping: files hold the columns by their names again, so all of them are written anew."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from refdelta.core.pruning.stats import load_stats, lookup
from refdelta.core.table.clustering import clustering_domain
from refdelta.core.table.column_mapping import mode_of, unmapped
from refdelta.core.table.protocol_choice import upgraded
from refdelta.core.table.row_tracking import is_enabled
from refdelta.core.table.types import parse_schema
from refdelta.errors import InvalidArgumentError
from refdelta.operations.alter.change import change_table, check_appended_nothing
from refdelta.operations.layout.reorg_uniform import files_anew

if TYPE_CHECKING:
    from collections.abc import Iterable

    from refdelta.core.log.actions import Add, AnyAction, Metadata
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.transaction import Transaction


def gives_up_mapping(snapshot: Snapshot, metadata: Metadata) -> bool:
    """Whether metadata, as a user wants it, ends the mapping of a table's columns."""
    return snapshot.column_mapping_mode != "none" and mode_of(metadata) == "none"


def remove_mapping(txn: Transaction, snapshot: Snapshot, metadata: Metadata, features: Iterable[str] = ()) -> None:
    """Stage that a table's columns are not mapped any more, and what else its metadata is to be.

    Implements what delta-spark calls REMOVE COLUMN MAPPING: every file is replaced in the one commit, whose rows stay
    what they are. It rests on all of the table, and passes over nobody.

    Args:
        txn: the transaction. All rows of the table count as read.
        snapshot: what it sees.
        metadata: the metadata to come, in which the mode is ``none`` or not set.
        features: table features that are asked for by name.

    Raises:
        InvalidArgumentError: a column has a name that Parquet reserves; a property that gives the files ids, or another
            one that needs the mapping.
        UnsupportedFeatureError: the table would need a feature that this engine cannot write.
    """
    metadata = unmapped(metadata)
    protocol = upgraded(snapshot.protocol, metadata, features)
    if is_enabled(protocol, metadata) and not is_enabled(snapshot.protocol, snapshot.metadata):
        raise InvalidArgumentError(
            "the commit that ends a column mapping replaces all files, and gives no row ids to the old ones: row "
            "tracking is enabled before or after it"
        )
    check_appended_nothing(txn, "end a column mapping: its files hold the columns by their old names")
    txn.read_whole_table()
    after = dataclasses.replace(snapshot, metadata=metadata, protocol=protocol)
    removed, added = files_anew(txn, snapshot, after, "upgrade")
    change_table(txn, snapshot, metadata, features, rewritten=True)
    txn.stage(clustering_by_names(snapshot, metadata))
    txn.describe(*removed_mapping(removed, added))


def removed_mapping(removed: list[Add], added: list[Add]) -> tuple[str, dict[str, str], dict[str, int]]:
    """How delta-spark describes it: the operation, its parameters and figures."""
    figures = {
        "numRewrittenFiles": len(removed),
        "numOutputBytes": sum(add.size for add in added),
        "numRemovedBytes": sum(add.size for add in removed),
        "numCopiedRows": sum(int(lookup(load_stats(add.stats), ("numRecords",))) for add in added),
        "numDeletionVectorsRemoved": sum(add.deletion_vector is not None for add in removed),
    }
    return "REMOVE COLUMN MAPPING", {}, figures


def removes_mapping(txn: Transaction) -> bool:
    """Whether a transaction holds the end of a mapping, so that files for the table as it was have no place in it."""
    before, after = txn.snapshot, txn.table_to_come
    return before is not None and after is not None and gives_up_mapping(before, after.metadata)


def clustering_by_names(snapshot: Snapshot, metadata: Metadata) -> tuple[AnyAction, ...]:
    """The domain that names a table's clustering columns as they are held under other metadata; none where it has none
    or that says the same.
    """
    if not snapshot.clustering_columns:
        return ()
    domain = clustering_domain(snapshot.clustering_columns, parse_schema(metadata.schema_string))
    return () if domain in snapshot.domains.values() else (domain,)
