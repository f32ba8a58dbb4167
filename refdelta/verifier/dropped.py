"""Features that go from a protocol: only as the specification has it (PROTOCOL.md, "Supported Features")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from refdelta.core.log.actions import CommitInfo, Protocol
from refdelta.core.table.features import REGISTRY, Facts, activated, features_of
from refdelta.errors import InvalidLogError

if TYPE_CHECKING:
    from refdelta.verifier.log_files import Commit
    from refdelta.verifier.report import Report
    from refdelta.verifier.state import State

_DROP = "DROP FEATURE"
_PROTECTION = "checkpointProtection"


class UsedFeatures:
    """The features that the metadata of some version that is kept has used."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def begin(self, state: State) -> None:
        """Take in the first version that is known, or one behind a gap."""
        if state.protocol is None or state.metadata is None:
            return
        facts = Facts.of(state.metadata.schema_string, state.metadata.configuration)
        try:
            self._used |= activated(facts, features_of(state.protocol))
        except InvalidLogError:
            return  # a finding already

    def step(self, commit: Commit, before: Protocol | None, after: State, report: Report) -> None:
        """Take in a version that changes protocol or metadata, and note the features that it should not have lost."""
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

    def _problem(self, name: str, commit: Commit, after: State) -> str | None:
        feature = REGISTRY.get(name)
        if feature is None:
            return None  # nobody here knows its rules
        infos = [action.fields for action in commit.actions if isinstance(action, CommitInfo)]
        operation = infos[0].get("operation") if infos else None
        if operation is not None and operation != _DROP:
            return f"and the operation is {operation}, not {_DROP}"
        if feature.drop == "never" and operation is None:
            return "and nothing says that it was dropped"
        fenced = after.supports(_PROTECTION) and after.property("delta.requireCheckpointProtectionBeforeVersion") != 0
        if feature.drop == "history" and name in self._used and not fenced:
            return "which versions that are kept have used, and nothing protects them"
        return None
