"""The resources over which two transactions can conflict (concurrency.md, "Reads and footprints").

A commit writes resources by its actions (:data:`ACTIONS`), and an operation reads and writes at most those of
:data:`OPERATIONS`. :data:`RESOURCES` describes each, and the rules of :mod:`refdelta.core.conflicts.rules` with its
name decide conflicts over it. An action or an operation without a row would never conflict, so
``tests/core/conflicts/test_footprints.py`` fails for it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from refdelta.core.log.actions import (
    Add,
    Cdc,
    CheckpointMetadata,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Sidecar,
    Txn,
)


class Resource(msgspec.Struct, frozen=True):
    """A resource that transactions read and write.

    Attributes:
        name: its name in rules, actions and operations.
        written: how a commit writes it.
        read: how a transaction reads it.
        unruled: the reason why no rule concerns it; None if one does.
    """

    name: str
    written: str
    read: str
    unruled: str | None = None


RESOURCES: Final = {
    one.name: one
    for one in (
        Resource(
            "table",
            "version 0, or an operation that replaces the table",
            "a transaction that creates or replaces the table rests on being the only one",
        ),
        Resource("protocol", "a protocol action", "every transaction reads it"),
        Resource(
            "metadata",
            "a metaData action, unless it repeats what is there",
            "every transaction reads it",
        ),
        Resource(
            "identity values",
            "any commit to a table with identity columns",
            "any transaction on a table with identity columns",
        ),
        Resource(
            "domains",
            "a domainMetadata action, but for that of row tracking",
            "by itself; one that sets a domain has read it, one that removes or retypes a column has read the domains "
            "that name columns, and DROP FEATURE has read all of them",
        ),
        Resource("applications", "a txn action", "one that records the version of an application has read it"),
        Resource(
            "deleted files",
            "VACUUM START: until its VACUUM END, files that have been unreferenced for its retention may go",
            "a transaction that adds files rests on them, since they were written or removed; where it did not write "
            "them just now, also on VACUUMs in progress at its snapshot",
        ),
        Resource(
            "added rows",
            "an add with dataChange, of a new path, or of one whose deletion vector hides a row no more",
            "each read of rows, by its predicate; where rows decide, by the rows of the added files",
        ),
        Resource(
            "removed rows",
            "a remove with dataChange, of a path that goes or is added again with a larger deletion vector",
            "the files and the rows in them that a transaction has read or removes",
        ),
        Resource(
            "moved rows",
            "removes and adds with dataChange=false: the same rows in other files",
            "the files and the rows that a transaction has read or removes; they are followed to their new places by "
            "the commit's record or by row ids, and count as removed where that fails",
            unruled="rows that cannot be followed are removed rows",
        ),
        Resource(
            "row ids",
            "the domain delta.rowTracking, and baseRowId of an add",
            "each commit of new files, which takes the ids after those of all winners",
            unruled="ids are given anew after each winner",
        ),
        Resource(
            "commit time",
            "every commit",
            "each commit of a table with in-commit timestamps, or that enables them",
            unruled="the timestamp is made later than that of each winner",
        ),
        Resource(
            "change data",
            "a cdc action",
            "no transaction: it repeats what adds and removes do",
            unruled="readers take it from the version in which it stands",
        ),
    )
}
"""By name; in the order in which the rules ask."""


ACTIONS: Final[dict[type, frozenset[str]]] = {
    Add: frozenset({"added rows", "removed rows", "moved rows", "row ids"}),
    Remove: frozenset({"removed rows", "moved rows"}),
    Metadata: frozenset({"metadata", "identity values"}),
    Protocol: frozenset({"protocol"}),
    DomainMetadata: frozenset({"domains", "row ids"}),
    Txn: frozenset({"applications"}),
    Cdc: frozenset({"change data"}),
    CommitInfo: frozenset({"commit time", "deleted files", "table"}),
    # Of checkpoints, and never of commits.
    Sidecar: frozenset(),
    CheckpointMetadata: frozenset(),
}
"""The actions of PROTOCOL.md, and the resources that each can write."""


class Operation(msgspec.Struct, frozen=True):
    """The resources that an operation reads and writes at most.

    Attributes:
        reads: names of resources.
        writes: likewise.
    """

    reads: frozenset[str]
    writes: frozenset[str]


EVERY_COMMIT: Final = Operation(
    frozenset({"protocol", "metadata", "identity values", "applications", "commit time"}),
    frozenset({"applications", "commit time"}),
)
"""The resources that every operation reads and writes."""

_ROWS = frozenset({"added rows", "removed rows", "moved rows"})
_TABLE = frozenset({"protocol", "metadata"})


def _operation(reads: frozenset[str] = frozenset(), writes: frozenset[str] = frozenset()) -> Operation:
    return Operation(reads | EVERY_COMMIT.reads, writes | EVERY_COMMIT.writes)


# Any statement may also set domains, may read rows and domains before, and rests on the files that it adds.
_STATEMENT = _ROWS | {"domains", "deleted files"}
_CHANGE = _operation(_STATEMENT, _ROWS | _TABLE | {"domains", "row ids", "change data", "identity values"})
_REWRITE = _operation(_STATEMENT, frozenset({"moved rows", "row ids", "domains", "removed rows"}))
_ALTER = _operation(_STATEMENT, _TABLE | {"domains", "identity values", "row ids", "moved rows"})
_REPLACE = _operation(_STATEMENT | {"table"}, _CHANGE.writes | {"table"})

OPERATIONS: Final[dict[str, Operation]] = {
    **dict.fromkeys(("WRITE", "STREAMING UPDATE", "DELETE", "UPDATE", "MERGE"), _CHANGE),
    "OPTIMIZE": _REWRITE,
    # REORG TABLE APPLY (UPGRADE UNIFORM) changes the table, too.
    "REORG": _operation(_STATEMENT, _REWRITE.writes | _TABLE),
    "RESTORE": _CHANGE,
    "FSCK": _CHANGE,
    "CLONE": _REPLACE,
    "CONVERT": _REPLACE,
    **dict.fromkeys(
        (
            "CREATE TABLE",
            "CREATE TABLE AS SELECT",
            "CREATE OR REPLACE TABLE",
            "CREATE OR REPLACE TABLE AS SELECT",
            "REPLACE TABLE",
            "REPLACE TABLE AS SELECT",
        ),
        _REPLACE,
    ),
    **dict.fromkeys(
        (
            "ADD COLUMNS",
            "ADD CONSTRAINT",
            "ADD FEATURE",
            "CHANGE COLUMN",
            "CLUSTER BY",
            "DROP COLUMNS",
            "DROP CONSTRAINT",
            "RENAME COLUMN",
            "REMOVE DOMAIN METADATA",
            "ROW TRACKING BACKFILL",
            "SET DOMAIN METADATA",
            "SET TBLPROPERTIES",
            "SYNC IDENTITY",
            "UNSET TBLPROPERTIES",
            "UPDATE FIELD METADATA",
            "UPDATE TABLE METADATA",
            "UPGRADE PROTOCOL",
        ),
        _ALTER,
    ),
    # It may rewrite all files without the feature, or end the mapping of columns.
    "DROP FEATURE": _CHANGE,
    "REMOVE COLUMN MAPPING": _CHANGE,
    "VACUUM START": _operation(writes=frozenset({"deleted files"})),
    "VACUUM END": _operation(),
    "Empty Commit": _operation(),
}
"""The operations of this engine, by their ``commitInfo.operation``."""
