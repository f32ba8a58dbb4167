"""The clauses of PROTOCOL.md that a verification checks, in our own words.

These are the clauses marked "verified" in ``spec_notes/clauses.md``.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class ProtocolClause(NamedTuple):
    """A clause of PROTOCOL.md.

    Attributes:
        level: MUST, SHOULD or MAY.
        section: the heading in PROTOCOL.md of the section that has it.
        text: the requirement, in our own words.
    """

    level: str
    section: str
    text: str


# By the heading of their section.
_TEXTS: Final = {
    "Delta Table Specification": {
        "log-2": "versions are consecutive: between the oldest in the log and the newest none is missing",
    },
    "Delta Log Entries": {
        "log-3": "each line is one JSON object with one action, which has its required fields",
    },
    "Action Reconciliation": {
        "log-7": "a commit has no actions of a V2 checkpoint",
    },
    "Log Compaction Files": {
        "log-8": "a compacted file holds the reconciled actions of its commits",
        "log-9": "a compacted file has no commitInfo, and ends at a later version than it begins",
    },
    "Delta Log Entries (Requirements for Writers)": {
        "action-1": "a commit has at most one add and one remove of a path",
        "action-8": "a commit has at most one metaData, one protocol, and one txn for each application",
    },
    "Change Metadata": {
        "action-2": "the first version has metaData and protocol; later ones replace them whole",
        "action-16": "the format of the data files is parquet, and the schema names every partition column",
    },
    "Add File and Remove File": {
        "action-9": "a commit does not add and remove the same path with the same deletion vector",
        "action-10": "a path that is live with another deletion vector is added only where that one is removed in "
        "the same commit",
        "action-11": "an add without dataChange is of a file that is live already, or comes with removes of the rows "
        "that it holds",
        "action-12": "a remove without dataChange comes with adds that hold its rows",
        "action-14": "a remove with extendedFileMetadata has partitionValues and size",
        "action-15": "a remove has a deletionTimestamp; a tombstone is kept until it has expired",
        "action-20": "rows are where `commitInfo.rowPlaces` of an add without dataChange records them",
        "path-1": "a path is a URI reference, and decoded before use",
        "file-1": "a live file exists, and has the size that the log says",
        "dv-6": "a remove names the vector of the logical file that it removes",
    },
    "Commit Provenance Information": {
        "action-21": "each action of a version with members is of a member by `commitInfo.members`, whose ids differ; "
        "only a file is of several",
        "action-22": "members that share a version change rows only, all with change files or all without",
    },
    "Add CDC File": {
        "action-13": "dataChange of a cdc file is false",
    },
    "Domain Metadata": {
        "action-18": "only a table whose writerFeatures have domainMetadata has domains",
    },
    "Consistency Between Table Metadata and Data Files": {
        "file-2": "each column of a data file is one of the table's",
        "file-3": "a file has a value for every partition column",
    },
    "Data Files": {
        "file-6": "data files are in folders whose names do not begin with an underscore, unless the name of a "
        "partition column does",
    },
    "Delta Data Type to Parquet Type Mappings": {
        "file-7": "a column of a file has the type of the table's, or one that widens to it",
    },
    "Schema Serialization Format": {
        "file-8": "no value is null where the schema has none",
        "schema-1": "a schema is JSON, and is preserved with unknown metadata of fields",
        "schema-2": "names are unique regardless of their case",
    },
    "Partition Value Serialization": {
        "part-3": "a partition value can be parsed as the type of its column",
    },
    "Table Features for New and Existing Tables": {
        "feature-3": "reader version 3 needs writer version 7, and lists of features that agree",
    },
    "Append-only Tables": {
        "feature-4": "nothing is removed where `delta.appendOnly` is true",
    },
    "Supported Features": {
        "feature-5": "a feature in the protocol stays there until it is dropped by the specified procedure",
    },
    "Active Features": {
        "feature-6": "the protocol supports the features that the metadata uses",
    },
    "Timestamp without timezone (TimestampNtz)": {
        "ntz-1": "a table with such columns has readers 3, writers 7 and the feature",
    },
    "Checkpoints": {
        "check-1": "a checkpoint has the whole state, and the tombstones that have not expired",
    },
    "Last Checkpoint File": {
        "check-6": "`_last_checkpoint` may be missing, old or broken; its checksum shows whether it is intact",
        "check-17": "`_last_checkpoint` names a checkpoint that exists, with the right number of actions",
    },
    "Metadata Cleanup": {
        "check-7": "a checkpoint covers the commits that cleanup removes, and the commit of the checkpoint itself is "
        "kept",
        "check-16": "sidecars of existing checkpoints are kept, and sidecars of the last day",
    },
    "Checkpoints (Requirements for Writers)": {
        "check-8": "a checkpoint has no commitInfo and no change data",
        "check-14": "statistics and partition values are stored as structs and as JSON as the properties say, and "
        "agree",
    },
    "Checkpoint Schema": {
        "check-9": "removes in a checkpoint have no statistics and no tags",
        "check-10": "readerFeatures and writerFeatures are in a checkpoint exactly where the versions have them",
    },
    "V2 Checkpoint Table Feature": {
        "check-11": "checkpoints of the V2 form only where the feature is; multi-part ones only where it is not",
    },
    "V2 Spec": {
        "check-12": "a V2 checkpoint has one checkpointMetadata, of its version",
        "check-13": "file actions of a V2 checkpoint are all in it or all in its sidecars, which exist and are in "
        "`_sidecars`",
    },
    "Multi-part checkpoint": {
        "check-18": "parts are made by Spark's hash of the logical file; we write no such checkpoint",
    },
    "Version Checksum File": {
        "crc-2": "the values of a checksum are those that reconciliation gives",
    },
    "Version Checksum File Schema": {
        "crc-4": "a checksum is one JSON object with its required fields; metadata and protocol count one each",
        "crc-5": "a checksum has the in-commit timestamp exactly where the table has them",
    },
    "File Size Histogram Schema": {
        "crc-6": "a histogram's first boundary is 0, its boundaries rise, and its three lists are as long as each "
        "other",
    },
    "Deletion Vector Format": {
        "dv-2": "size, CRC-32 and cardinality of a vector are those in the log and in its file",
        "dv-3": "vectors are written in the portable form; in files they are framed by a length and a CRC-32, after a "
        "version byte",
        "dv-8": "a vector names only rows that its file has",
    },
    "Deletion Vectors": {
        "dv-4": "new vectors only where `delta.enableDeletionVectors` is true",
        "dv-7": "a table with vectors has readers 3, writers 7 and the feature",
    },
    "Writer Requirement for Deletion Vectors": {
        "dv-5": "an add with a vector says how many rows its file has, deleted ones included",
    },
    "Deletion Vector Descriptor Schema": {
        "dv-9": "a descriptor is of type u, i or p; an inline one has no offset",
    },
    "Per-file Statistics": {
        "stats-1": "no live value is outside of the bounds of its column: truncated strings and timestamps are rounded",
        "stats-3": "tight bounds are values of live rows, except where they are truncated",
        "stats-4": "numRecords counts all rows of the file",
        "stats-5": "nullCount is the number of nulls; with wide bounds only 0 and numRecords have a meaning, for live "
        "rows",
        "stats-6": "statistics are JSON that mirrors the schema, by physical names",
    },
    "Statistics for Variant Columns": {
        "stats-7": "bounds of variants are variants of normalized paths, with one type for each path",
    },
    "Column Mapping": {
        "map-2": "every column, nested ones too, has a physical name and an id of its own",
        "map-6": "physical name and id of a column do not change, and no other column ever gets them",
    },
    "Writer Requirements for Column Mapping": {
        "map-3": "`delta.columnMapping.maxColumnId` is no smaller than any id, and never decreases",
        "map-4": "files have the physical names, and the ids as field ids",
        "map-5": "partition values, statistics and clustering columns use physical names",
    },
    "Column Invariants": {
        "rows-1": "an invariant is true for every row",
    },
    "CHECK Constraints": {
        "rows-2": "every constraint is true for every row",
        "rows-3": "columns that a constraint names are in the schema",
    },
    "Generated Columns": {
        "rows-5": "a generated column has the value of its expression in every row, nulls included",
    },
    "Identity Columns": {
        "rows-8": "the step is not 0; the high-water mark is the last value in the direction of the step",
        "rows-9": "without explicit inserts, each value is the start plus a multiple of the step, and occurs once",
    },
    "Writer Version Requirements": {
        "rows-12": "field metadata of invariants, generated, identity and default columns requires the feature in the "
        "protocol",
    },
    "Writer Requirements for AddCDCFile": {
        "cdf-3": "with the change data feed enabled, a commit that changes rows other than by plain inserts and "
        "deletes has cdc files",
    },
    "Change Data Files": {
        "cdf-4": "change files have `_change_type`, of the four kinds, in every row",
        "cdf-5": "change files lie in `_change_data`, unless they are data files too",
    },
    "Writer Requirements for In-Commit Timestamps": {
        "ict-2": "the commitInfo comes first and has a timestamp: the time, or one more than that of the version "
        "before",
        "ict-3": "if in-commit timestamps are enabled later, the metadata has the version and the time from which "
        "they exist",
        "ict-4": "the timestamp of the commit that enables them is later than the commit file of the version before",
    },
    "Publishing Commits": {
        "catalog-7": "commits are published in order, and as they were ratified",
        "catalog-12": "only ratified commits are published",
        "catalog-13": "the catalog holds the commits that are not published",
    },
    "Writer Requirements for Catalog-managed tables": {
        "catalog-9": "in-commit timestamps are supported and active",
        "catalog-10": "each commitInfo has a txnId, by which a commit whose reply was lost is found again",
    },
    "Writer Requirements for Row Tracking": {
        "track-1": "where the feature is supported and not suspended, every new add has a baseRowId, and default "
        "ids are unique in a version",
        "track-2": "the high-water mark is no lower than any id that was assigned; new ids are above the mark before",
        "track-3": "a new add has its version as defaultRowCommitVersion",
        "track-4": "adds and removes of a path that existed before keep baseRowId and defaultRowCommitVersion",
        "track-5": "where row tracking is enabled, every live file has both, and the names of the two materialized "
        "columns are set and differ from all columns",
        "track-6": "stable ids are unique in a version",
    },
    "Row Tracking": {
        "track-10": "row tracking is not enabled and suspended at once",
    },
    "Writer Requirements for Clustered Table": {
        "cluster-1": "the clustering columns are in the domain `delta.clustering`, by physical names",
        "cluster-2": "adds have statistics of the clustering columns",
        "cluster-3": "a table is not clustered and partitioned at once",
    },
    "Type Change Metadata": {
        "widen-1": "recorded changes are of the widenings that the specification has, each with both types",
    },
    "Writer Requirements for Type Widening": {
        "widen-3": "changes of type are recorded in the nearest field, and only where the property allows them",
    },
    "Writer Requirements for IcebergCompatV1 and V2": {
        "iceberg-1": "column mapping is on, and deletion vectors are not",
        "iceberg-2": "every live file counts its rows",
        "iceberg-3": "files hold their partition columns",
        "iceberg-4": "the schema has only allowed types: no array, map or void in V1, no void or variant in either",
    },
    "Writer Requirements for IcebergCompatV2": {
        "iceberg-5": "elements, keys and values have ids of their own, in their field's metadata",
        "iceberg-7": "V1 and V2 are not active at once",
    },
    "Writer Requirements for Variant Data Type": {
        "variant-2": "variants are written as value and metadata, where shredding is not enabled",
    },
}
_WEAKER: Final = {
    "action-15": "SHOULD",
    "check-6": "MAY",
    "check-17": "SHOULD",
    "rows-9": "SHOULD",
    "track-10": "SHOULD",
}

CLAUSES: Final = {
    name: ProtocolClause(_WEAKER.get(name, "MUST"), section, text)
    for section, texts in _TEXTS.items()
    for name, text in texts.items()
}
"""The clauses by their ids."""
