"""The clauses of PROTOCOL.md that a verification looks for, in our own words.

They are those of ``spec_notes/clauses.md`` that are "verified" there.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Clause(NamedTuple):
    """A clause.

    Attributes:
        level: MUST, SHOULD or MAY.
        section: the heading in PROTOCOL.md that it stands under.
        text: what it asks, in our own words.
    """

    level: str
    section: str
    text: str


CLAUSES: Final[dict[str, Clause]] = {
    "log-2": Clause(
        "MUST",
        "Delta Table Specification",
        "versions follow on from each other: between the oldest that is kept and the newest none is missing",
    ),
    "log-3": Clause(
        "MUST",
        "Delta Log Entries",
        "each line is one JSON object with one action, which has its required fields",
    ),
    "log-7": Clause(
        "MUST",
        "Action Reconciliation",
        "the actions of a V2 checkpoint stand in no commit",
    ),
    "log-8": Clause(
        "MUST",
        "Log Compaction Files",
        "a compacted file holds what reconciliation makes of its commits",
    ),
    "log-9": Clause(
        "MUST",
        "Log Compaction Files",
        "a compacted file has no commitInfo, and ends at a later version than it begins",
    ),
    "action-1": Clause(
        "MUST",
        "Delta Log Entries (Requirements for Writers)",
        "a commit has at most one add and one remove of a path",
    ),
    "action-2": Clause(
        "MUST",
        "Change Metadata",
        "the first version has metaData and protocol; later ones replace them whole",
    ),
    "action-8": Clause(
        "MUST",
        "Delta Log Entries (Requirements for Writers)",
        "a commit has at most one metaData, one protocol, and one txn for each application",
    ),
    "action-9": Clause(
        "MUST",
        "Add File and Remove File",
        "a commit does not add and remove the same path with the same deletion vector",
    ),
    "action-10": Clause(
        "MUST",
        "Add File and Remove File",
        "a path that is live with another deletion vector is added only where that one is removed in the same commit",
    ),
    "action-11": Clause(
        "MUST",
        "Add File and Remove File",
        "an add without dataChange is of a file that is live already, or comes with removes whose rows it holds",
    ),
    "action-12": Clause(
        "MUST",
        "Add File and Remove File",
        "a remove without dataChange comes with adds that hold its rows",
    ),
    "action-13": Clause(
        "MUST",
        "Add CDC File",
        "dataChange of a cdc file is false",
    ),
    "action-14": Clause(
        "MUST",
        "Add File and Remove File",
        "a remove with extendedFileMetadata has partitionValues and size",
    ),
    "action-15": Clause(
        "SHOULD",
        "Add File and Remove File",
        "a remove says when it was; a tombstone stays until it has expired",
    ),
    "action-16": Clause(
        "MUST",
        "Change Metadata",
        "the format of the data files is parquet, and the schema names every partition column",
    ),
    "action-18": Clause(
        "MUST",
        "Domain Metadata",
        "domains stand only in a table whose writerFeatures have domainMetadata",
    ),
    "path-1": Clause(
        "MUST",
        "Add File and Remove File",
        "a path is a URI reference, and decoded before use",
    ),
    "file-1": Clause(
        "MUST",
        "Add File and Remove File",
        "a live file is there, and is as long as the log says",
    ),
    "file-2": Clause(
        "MUST",
        "Consistency Between Table Metadata and Data Files",
        "each column of a data file is one of the table's",
    ),
    "file-3": Clause(
        "MUST",
        "Consistency Between Table Metadata and Data Files",
        "a file has a value for every partition column",
    ),
    "file-6": Clause(
        "MUST",
        "Data Files",
        "data files lie in folders whose names do not begin with an underscore, but where a partition column's does",
    ),
    "file-7": Clause(
        "MUST",
        "Delta Data Type to Parquet Type Mappings",
        "a column of a file has the type of the table's, or one that widens to it",
    ),
    "file-8": Clause(
        "MUST",
        "Schema Serialization Format",
        "no value is null where the schema has none",
    ),
    "part-3": Clause(
        "MUST",
        "Partition Value Serialization",
        "a partition value reads as one of its column's type",
    ),
    "schema-1": Clause(
        "MUST",
        "Schema Serialization Format",
        "schemas are JSON, and come back as they were, unknown metadata of fields included",
    ),
    "schema-2": Clause(
        "MUST",
        "Schema Serialization Format",
        "names are unique regardless of their case",
    ),
    "feature-3": Clause(
        "MUST",
        "Table Features for New and Existing Tables",
        "reader version 3 needs writer version 7, and lists of features that agree",
    ),
    "feature-4": Clause(
        "MUST",
        "Append-only Tables",
        "nothing is removed where `delta.appendOnly` is true",
    ),
    "feature-5": Clause(
        "MUST",
        "Supported Features",
        "a feature stays in the protocol once it is there, but where it is dropped as the specification has it",
    ),
    "feature-6": Clause(
        "MUST",
        "Active Features",
        "what the metadata uses the protocol supports",
    ),
    "ntz-1": Clause(
        "MUST",
        "Timestamp without timezone (TimestampNtz)",
        "a table with such columns has readers 3, writers 7 and the feature",
    ),
    "check-1": Clause(
        "MUST",
        "Checkpoints",
        "a checkpoint has the whole state, and tombstones that are not expired",
    ),
    "check-6": Clause(
        "MAY",
        "Last Checkpoint File",
        "`_last_checkpoint` may be missing, old or broken; its checksum tells",
    ),
    "check-7": Clause(
        "MUST",
        "Metadata Cleanup",
        "a checkpoint covers the commits that cleanup removes, and the commit of the checkpoint itself stays",
    ),
    "check-8": Clause(
        "MUST",
        "Checkpoints (Requirements for Writers)",
        "a checkpoint has no commitInfo and no change data",
    ),
    "check-9": Clause(
        "MUST",
        "Checkpoint Schema",
        "removes in a checkpoint have no statistics and no tags",
    ),
    "check-10": Clause(
        "MUST",
        "Checkpoint Schema",
        "readerFeatures and writerFeatures are in a checkpoint exactly where the versions have them",
    ),
    "check-11": Clause(
        "MUST",
        "V2 Checkpoint Table Feature",
        "checkpoints of the V2 form only where the feature is; multi-part ones only where it is not",
    ),
    "check-12": Clause(
        "MUST",
        "V2 Spec",
        "a V2 checkpoint has one checkpointMetadata, of its version",
    ),
    "check-13": Clause(
        "MUST",
        "V2 Spec",
        "file actions of a V2 checkpoint are all in it or all in its sidecars, which are there and lie in `_sidecars`",
    ),
    "check-14": Clause(
        "MUST",
        "Checkpoints (Requirements for Writers)",
        "statistics and partition values stand as structs, and as JSON, where the properties say so, and say the same",
    ),
    "check-16": Clause(
        "MUST",
        "Metadata Cleanup",
        "sidecars of a checkpoint that is there stay, and those of the last day",
    ),
    "check-17": Clause(
        "SHOULD",
        "Last Checkpoint File",
        "`_last_checkpoint` names a checkpoint that is there, and counts its actions right",
    ),
    "check-18": Clause(
        "MUST",
        "Multi-part checkpoint",
        "parts are made by Spark's hash of the logical file; we write no such checkpoint",
    ),
    "crc-2": Clause(
        "MUST",
        "Version Checksum File",
        "what a checksum says is what reconciliation gives",
    ),
    "crc-4": Clause(
        "MUST",
        "Version Checksum File Schema",
        "a checksum is one JSON object with its required fields; metadata and protocol count one each",
    ),
    "crc-5": Clause(
        "MUST",
        "Version Checksum File Schema",
        "a checksum has the in-commit timestamp exactly where the table has them",
    ),
    "crc-6": Clause(
        "MUST",
        "File Size Histogram Schema",
        "a histogram's first boundary is 0, its boundaries rise, and its three lists are as long as each other",
    ),
    "dv-2": Clause(
        "MUST",
        "Deletion Vector Format",
        "size, CRC-32 and cardinality of a vector are those that the log and its file say",
    ),
    "dv-3": Clause(
        "MUST",
        "Deletion Vector Format",
        "vectors are written in the portable form; in files they are framed by a length and a "
        "CRC-32, behind a version byte",
    ),
    "dv-4": Clause(
        "MUST",
        "Deletion Vectors",
        "new vectors only where `delta.enableDeletionVectors` is true",
    ),
    "dv-5": Clause(
        "MUST",
        "Writer Requirement for Deletion Vectors",
        "an add with a vector says how many rows its file has, deleted ones included",
    ),
    "dv-6": Clause(
        "MUST",
        "Add File and Remove File",
        "a remove names the vector of the logical file that it removes",
    ),
    "dv-7": Clause(
        "MUST",
        "Deletion Vectors",
        "a table with vectors has readers 3, writers 7 and the feature",
    ),
    "dv-8": Clause(
        "MUST",
        "Deletion Vector Format",
        "a vector names only rows that its file has",
    ),
    "dv-9": Clause(
        "MUST",
        "Deletion Vector Descriptor Schema",
        "a descriptor is of type u, i or p; an inline one has no offset",
    ),
    "stats-1": Clause(
        "MUST",
        "Per-file Statistics",
        "no live value lies outside of its column's bounds: cut strings are rounded, times too",
    ),
    "stats-3": Clause(
        "MUST",
        "Per-file Statistics",
        "tight bounds are reached by a live row, up to where they are cut",
    ),
    "stats-4": Clause(
        "MUST",
        "Per-file Statistics",
        "numRecords counts all rows of the file",
    ),
    "stats-5": Clause(
        "MUST",
        "Per-file Statistics",
        "nullCount counts the nulls; with wide bounds, 0 and numRecords alone say something, and that of live rows",
    ),
    "stats-6": Clause(
        "MUST",
        "Per-file Statistics",
        "statistics are JSON that mirrors the schema, by physical names",
    ),
    "map-2": Clause(
        "MUST",
        "Column Mapping",
        "every column, nested ones too, has a physical name and an id of its own",
    ),
    "map-3": Clause(
        "MUST",
        "Writer Requirements for Column Mapping",
        "`delta.columnMapping.maxColumnId` is no smaller than any id, and never goes down",
    ),
    "map-4": Clause(
        "MUST",
        "Writer Requirements for Column Mapping",
        "files have the physical names, and the ids as field ids",
    ),
    "map-5": Clause(
        "MUST",
        "Writer Requirements for Column Mapping",
        "partition values, statistics and clustering columns go by physical names",
    ),
    "map-6": Clause(
        "MUST",
        "Column Mapping",
        "physical name and id of a column stay as they are; no other column ever gets them",
    ),
    "rows-1": Clause(
        "MUST",
        "Column Invariants",
        "no row breaks an invariant: it is true for each",
    ),
    "rows-2": Clause(
        "MUST",
        "CHECK Constraints",
        "every constraint is true for every row",
    ),
    "rows-3": Clause(
        "MUST",
        "CHECK Constraints",
        "columns that a constraint names are in the schema",
    ),
    "rows-5": Clause(
        "MUST",
        "Generated Columns",
        "a generated column has the value of its expression in every row, nulls included",
    ),
    "rows-8": Clause(
        "MUST",
        "Identity Columns",
        "the step is not 0; the high-water mark is the last value in the direction of the step",
    ),
    "rows-9": Clause(
        "SHOULD",
        "Identity Columns",
        "where users may give no values, each is the start and a number of steps, and occurs once",
    ),
    "rows-12": Clause(
        "MUST",
        "Writer Version Requirements",
        "marks of rules stand only where the protocol has their feature",
    ),
    "cdf-3": Clause(
        "MUST",
        "Writer Requirements for AddCDCFile",
        "where the feed is on, a commit that changes rows other than by plain inserts and deletes has cdc files",
    ),
    "cdf-4": Clause(
        "MUST",
        "Change Data Files",
        "change files have `_change_type`, of the four kinds, in every row",
    ),
    "cdf-5": Clause(
        "MUST",
        "Change Data Files",
        "change files lie in `_change_data`, unless they are data files too",
    ),
    "ict-2": Clause(
        "MUST",
        "Writer Requirements for In-Commit Timestamps",
        "the commitInfo comes first and has a timestamp: the time, or one more than that of the version before",
    ),
    "ict-3": Clause(
        "MUST",
        "Writer Requirements for In-Commit Timestamps",
        "where they are turned on later, the metadata says from which version and time on",
    ),
    "ict-4": Clause(
        "MUST",
        "Writer Requirements for In-Commit Timestamps",
        "the commit that turns them on is later than the file of the version before",
    ),
    "track-1": Clause(
        "MUST",
        "Writer Requirements for Row Tracking",
        "where the feature is supported and not suspended, every new add has a baseRowId, and "
        "default ids are unique in a version",
    ),
    "track-2": Clause(
        "MUST",
        "Writer Requirements for Row Tracking",
        "the high-water mark is no lower than any id that was assigned; new ids are above the mark before",
    ),
    "track-3": Clause(
        "MUST",
        "Writer Requirements for Row Tracking",
        "a new add has its version as defaultRowCommitVersion",
    ),
    "track-4": Clause(
        "MUST",
        "Writer Requirements for Row Tracking",
        "adds and removes of a path that was there keep baseRowId and defaultRowCommitVersion",
    ),
    "track-5": Clause(
        "MUST",
        "Writer Requirements for Row Tracking",
        "where it is enabled, every live file has both, and the names of the two hidden columns "
        "are set and are no column's",
    ),
    "track-6": Clause(
        "MUST",
        "Writer Requirements for Row Tracking",
        "stable ids are unique in a version",
    ),
    "track-10": Clause(
        "SHOULD",
        "Row Tracking",
        "row tracking is not enabled and suspended at once",
    ),
    "cluster-1": Clause(
        "MUST",
        "Writer Requirements for Clustered Table",
        "the clustering columns stand in the domain `delta.clustering`, by physical names",
    ),
    "cluster-2": Clause(
        "MUST",
        "Writer Requirements for Clustered Table",
        "adds have statistics of the clustering columns",
    ),
    "cluster-3": Clause(
        "MUST",
        "Writer Requirements for Clustered Table",
        "a table is not clustered and partitioned at once",
    ),
    "widen-1": Clause(
        "MUST",
        "Type Change Metadata",
        "recorded changes are of the widenings that the specification has, each with both types",
    ),
    "widen-3": Clause(
        "MUST",
        "Writer Requirements for Type Widening",
        "changes of type are recorded in the nearest field, and only where the property allows them",
    ),
    "iceberg-1": Clause(
        "MUST",
        "Writer Requirements for IcebergCompatV1 and V2",
        "column mapping is on, and deletion vectors are not",
    ),
    "iceberg-2": Clause(
        "MUST",
        "Writer Requirements for IcebergCompatV1 and V2",
        "every live file counts its rows",
    ),
    "iceberg-3": Clause(
        "MUST",
        "Writer Requirements for IcebergCompatV1 and V2",
        "files hold their partition columns",
    ),
    "iceberg-4": Clause(
        "MUST",
        "Writer Requirements for IcebergCompatV1 and V2",
        "the schema has no type but the allowed ones: V1 takes no array, map or void; neither takes void or variant",
    ),
    "iceberg-5": Clause(
        "MUST",
        "Writer Requirements for IcebergCompatV2",
        "elements, keys and values have ids of their own, in their field's metadata",
    ),
    "iceberg-7": Clause(
        "MUST",
        "Writer Requirements for IcebergCompatV2",
        "V1 and V2 are not active at once",
    ),
    "variant-2": Clause(
        "MUST",
        "Writer Requirements for Variant Data Type",
        "they are written as value and metadata, where shredding is not enabled",
    ),
}
