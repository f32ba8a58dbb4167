"""Protocol and metadata: their form, the features that the metadata uses, and the features that were dropped."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from refdelta.core.log.actions import CommitInfo, DomainMetadata, Metadata, Protocol
from refdelta.core.log.json_text import read_json
from refdelta.errors import ColumnNotFoundError, DeltaError, InvalidLogError
from refdelta.expressions.sql import parse_predicate
from refdelta.table.clustering import DOMAIN as CLUSTERING
from refdelta.table.features import REGISTRY, ActivationFacts, activated, features_of, validate_protocol
from refdelta.table.properties import CONSTRAINT_PREFIX
from refdelta.table.types import (
    VARIANT,
    VOID,
    ArrayType,
    MapType,
    StructType,
    parse_schema,
    physical_name,
    unknown_types,
)
from refdelta.verifier.columns import MappingCheck, check_changes, fields, parts
from refdelta.verifier.row_rules import IDENTITY_MARKS, is_long

if TYPE_CHECKING:
    from refdelta.verifier.columns import KnownNames
    from refdelta.verifier.log_files import LoggedCommit
    from refdelta.verifier.report import Report, Severity
    from refdelta.verifier.state import State

# Types that Spark or a proposal has and PROTOCOL.md has not: the table is sound, as far as this engine knows.
_FOREIGN = re.compile(
    r"(udt|interval|geometry|geography|timestamp_nanos|timestamp_ntz_nanos|calendar|char\(|varchar\(|time\()"
)
# Keys in the metadata of fields, with the feature that defines each.
_MARKS = {
    "delta.invariants": "invariants",
    "delta.generationExpression": "generatedColumns",
    "delta.identity.start": "identityColumns",
    "CURRENT_DEFAULT": "allowColumnDefaults",
}


class TableCheck:
    """The check of the protocol and the metadata after a commit, or of the checkpoint from which a walk begins.

    Args:
        state: the state after it.
        before: the metadata in force before; None for the first.
        known: physical names and ids of columns of earlier versions.
        where: the key of the commit or of the checkpoint.
        report: takes the findings.
        commit: the commit; None for a checkpoint.
    """

    def __init__(
        self,
        state: State,
        before: Metadata | None,
        known: KnownNames,
        where: str,
        report: Report,
        commit: LoggedCommit | None = None,
    ):
        self.state, self.before, self.known, self.where, self.report = state, before, known, where, report
        self.lines = {type(line.action): line.number for line in (commit.lines if commit is not None else ())}

    def run(self) -> None:
        """Report violations."""
        protocol, metadata = self.state.protocol, self.state.metadata
        if protocol is None or metadata is None:
            return
        try:
            validate_protocol(protocol)
        except InvalidLogError as error:
            self.find("feature-3", error.reason, Protocol)
        schema = self._schema(metadata)
        if schema is None:
            return
        self._metadata(metadata, schema)
        self._features(protocol, metadata)
        self._rules(metadata, schema)
        self._iceberg(schema)
        self._clustering(metadata)
        self._identity(schema)
        MappingCheck(self.state, schema, self.known, self.find).run()
        check_changes(self.state, None if self.before is None else self.before.schema_string, schema, self.find)

    def find(self, clause: str, message: str, kind: type = Metadata, severity: Severity | None = None) -> None:
        """Add a finding, at the line of the action of this kind."""
        line = self.lines.get(kind)
        self.report.find(clause, message, version=self.state.version, file=self.where, line=line, severity=severity)

    def _schema(self, metadata: Metadata) -> StructType | None:
        try:
            schema = parse_schema(metadata.schema_string)
        except InvalidLogError as error:
            self.find("schema-1", error.reason)
            return None
        unknown = [one for item in schema for one in unknown_types(item.type, item.name)]
        for path, kind in unknown:
            if _FOREIGN.match(kind.name):
                self.report.skip(f"the schema: column {path} has the type {kind}, which this engine does not know")
            else:
                self.find("schema-1", f"the table's schema is not valid: {path} has the unknown type {kind.name!r}")
        return None if unknown else schema

    def _metadata(self, metadata: Metadata, schema: StructType) -> None:
        if metadata.format is not None and metadata.format.provider.lower() != "parquet":
            self.find("action-16", f"the format of the data files is {metadata.format.provider!r}, not 'parquet'")
        for name in metadata.partition_columns:
            if schema.find(name) is None:
                self.find("action-16", f"the partition column {name!r} is not in the schema")
        structs: list[tuple[str, StructType]] = [("", schema)]
        structs += [(f"{part.name}.", part.type) for part in parts(schema) if isinstance(part.type, StructType)]
        for path, struct in structs:
            seen: dict[str, str] = {}
            for item in struct:
                twin = seen.setdefault(item.name.lower(), item.name)
                if twin is not item.name:
                    self.find(
                        "schema-2", f"the names of columns {path}{twin} and {path}{item.name} differ in case only"
                    )

    def _features(self, protocol: Protocol, metadata: Metadata) -> None:
        facts = ActivationFacts.of(metadata.schema_string, metadata.configuration)
        supported = features_of(protocol)
        try:
            used = activated(facts, supported)
        except InvalidLogError as error:
            self.find("feature-6", error.reason)
            return
        for name in sorted(used - supported):
            clause = "ntz-1" if name == "timestampNtz" else "feature-6"
            self.find(clause, f"the metadata uses {name}, which the protocol does not support")
        for key, name in _MARKS.items():
            if key in facts.keys and name not in supported:
                self.find("rows-12", f"a field has {key}, and the protocol does not support {name}", severity="warning")
        unknown = sorted(name for name in supported if name not in REGISTRY)
        if unknown:
            self.report.skip(f"features that this engine does not know: {', '.join(unknown)}")

    def _rules(self, metadata: Metadata, schema: StructType) -> None:
        for key, text in (metadata.configuration or {}).items():
            if not key.lower().startswith(CONSTRAINT_PREFIX):
                continue
            try:
                parse_predicate(text, schema, recorded=True)
            except ColumnNotFoundError as error:
                self.find("rows-3", f"{key}: {error}")
            except DeltaError as error:
                self.report.skip(f"the constraint {key}: this engine does not understand its expression: {error}")

    def _iceberg(self, schema: StructType) -> None:
        first, second = (
            self.state.supports(f"icebergCompat{v}") and self.state.is_on(f"delta.enableIcebergCompat{v}")
            for v in ("V1", "V2")
        )
        if not (first or second):
            return
        name = "icebergCompatV1" if first else "icebergCompatV2"
        if first and second:
            self.find("iceberg-7", "icebergCompatV1 and icebergCompatV2 are both active")
        if self.state.property("delta.columnMapping.mode") not in ("name", "id"):
            self.find("iceberg-1", f"{name} is active, and column mapping is not enabled")
        if self.state.supports("deletionVectors") and (first or self.state.is_on("delta.enableDeletionVectors")):
            what = "supported" if first else "enabled"
            self.find("iceberg-1", f"{name} is active, and deletion vectors are {what}")
        for part in parts(schema):
            nested = isinstance(part.type, (ArrayType, MapType))
            if part.type in (VOID, VARIANT) or (first and nested):
                self.find("iceberg-4", f"{name} is active, and column {part.name} is of type {part.type}")

    def _clustering(self, metadata: Metadata) -> None:
        if not self.state.supports("clustering"):
            return
        if metadata.partition_columns:
            self.find("cluster-3", "the table is clustered, and it has partition columns")
        domain = self.state.domains.get(CLUSTERING)
        if domain is not None and DomainMetadata not in self.lines:  # else it is checked at its own line
            check_clustering_domain(self.state, domain, self.where, self.lines.get(Metadata), self.report)

    def _identity(self, schema: StructType) -> None:
        for part in fields(schema):
            marks = part.field.metadata
            for key in IDENTITY_MARKS:
                if key in marks and not is_long(marks[key]):
                    self.find("rows-8", f"{key} of column {part.name} is {marks[key]!r}, not a 64-bit integer")
            if marks.get("delta.identity.step") == 0:
                self.find("rows-8", f"the step of the identity column {part.name} is 0")


def check_clustering_domain(state: State, domain: DomainMetadata, where: str, line: int | None, report: Report) -> None:
    """Check that the clustering columns are in the schema: those that a commit sets, or those of the table after a
    change of the schema.
    """
    if domain.domain != CLUSTERING or domain.removed or state.metadata is None:
        return
    for path in clustering_paths(domain):
        try:
            here: Any = parse_schema(state.metadata.schema_string)
        except DeltaError:
            return
        for name in path:
            struct = here if isinstance(here, StructType) else StructType()
            found = next((item for item in struct if physical_name(item) == name), None)
            if found is None:
                message = f"the clustering column {'.'.join(path)!r} is not the physical name of a column"
                report.find("cluster-1", message, version=state.version, file=where, line=line)
                break
            here = found.type
    if clustering_paths(domain) == [()]:
        message = f"the domain does not list clustering columns: {domain.configuration[:200]}"
        report.find("cluster-1", message, version=state.version, file=where, line=line)


def clustering_paths(domain: DomainMetadata) -> list[tuple[str, ...]]:
    """The physical paths that the clustering domain lists; one empty path if the domain is malformed."""
    try:
        content = read_json(domain.configuration)
        listed = content["clusteringColumns"]
        return [(path,) if isinstance(path, str) else tuple(map(str, path)) for path in listed]
    except (ValueError, TypeError, KeyError):
        return [()]


# --- dropped features ------------------------------------------------------------------------------------------------


_DROP = "DROP FEATURE"
_PROTECTION = "checkpointProtection"


class UsedFeatures:
    """The features that the metadata of any version still in the log has used."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def begin(self, state: State) -> None:
        """Add the features of the first known version, or of the first after a gap."""
        if state.protocol is None or state.metadata is None:
            return
        facts = ActivationFacts.of(state.metadata.schema_string, state.metadata.configuration)
        try:
            self._used |= activated(facts, features_of(state.protocol))
        except InvalidLogError:
            return  # a finding already

    def step(self, commit: LoggedCommit, before: Protocol | None, after: State, report: Report) -> None:
        """Add a version that changes protocol or metadata, and report features that it was not allowed to remove."""
        if before is not None and after.protocol is not None:
            gone = features_of(before) - features_of(after.protocol)
            lines = {type(line.action): line.number for line in commit.lines}
            for name in sorted(gone):
                problem = self._problem(name, commit, after)
                if problem is not None:
                    message = f"the protocol no longer has {name}, {problem}"
                    line = lines.get(Protocol)
                    report.find("feature-5", message, version=commit.version, file=commit.key, line=line)
        self.begin(after)

    def _problem(self, name: str, commit: LoggedCommit, after: State) -> str | None:
        feature = REGISTRY.get(name)
        if feature is None:
            return None  # its rules are unknown
        infos = [action.fields for action in commit.actions if isinstance(action, CommitInfo)]
        operation = infos[0].get("operation") if infos else None
        if operation is not None and operation != _DROP:
            return f"and the operation is {operation}, not {_DROP}"
        if feature.drop == "never" and operation is None:
            return "and no operation says that the feature was dropped"
        fenced = after.supports(_PROTECTION) and after.property("delta.requireCheckpointProtectionBeforeVersion") != 0
        if feature.drop == "history" and name in self._used and not fenced:
            return "which versions in the log have used, and no checkpointProtection covers them"
        return None
