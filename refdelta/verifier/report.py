"""What a verification finds: findings, each by the clause that it breaks, and what was looked at."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from refdelta.verifier.clauses import CLAUSES

Severity = Literal["error", "warning"]

_SHOWN = 50
"""So many findings of one clause are kept; the others are counted."""


@dataclass(frozen=True)
class Finding:
    """One place where a table breaks a clause.

    Attributes:
        clause: its id in ``spec_notes/clauses.md``.
        severity: ``error`` where the clause is a MUST and breaking it matters to readers, else ``warning``.
        message: what is wrong.
        version: the table's version, where one is to blame.
        file: the file of the log, or the data file.
        line: the line of a commit, counted from 1.
    """

    clause: str
    severity: Severity
    message: str
    version: int | None = None
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        place = "" if self.file is None else self.file + ("" if self.line is None else f":{self.line}")
        at = "" if self.version is None else f"version {self.version}"
        where = ", ".join(part for part in (at, place) if part)
        return (
            f"{self.severity}: {self.clause}: {where}: {self.message}" if where else f"{self.severity}: {self.message}"
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the attributes, with level, section and words of the clause; those that are None are left out."""
        clause = CLAUSES[self.clause]
        facts = {
            "clause": self.clause,
            "severity": self.severity,
            "message": self.message,
            "version": self.version,
            "file": self.file,
            "line": self.line,
            "level": clause.level,
            "section": clause.section,
            "says": clause.text,
        }
        return {name: value for name, value in facts.items() if value is not None}


@dataclass
class Report:
    """What :func:`refdelta.verify` found.

    Attributes:
        uri: the table.
        oldest: the oldest version whose state was known; None where there was none.
        newest: the newest version.
        findings: what breaks the protocol, up to 50 for each clause.
        more: how many more there are, by clause.
        unchecked: what could not be looked at, and why; not a fault of the table.
        checked: how many commits, checkpoints, checksums, files and rows were looked at.
    """

    uri: str
    oldest: int | None = None
    newest: int | None = None
    findings: list[Finding] = field(default_factory=list)
    more: Counter[str] = field(default_factory=Counter)
    unchecked: list[str] = field(default_factory=list)
    checked: Counter[str] = field(default_factory=Counter)

    @property
    def errors(self) -> list[Finding]:
        """The findings that are errors."""
        return [finding for finding in self.findings if finding.severity == "error"]

    @property
    def sound(self) -> bool:
        """Whether there is no error; there may be warnings."""
        return not self.errors

    def find(
        self,
        clause: str,
        message: str,
        *,
        version: int | None = None,
        file: str | None = None,
        line: int | None = None,
        severity: Severity | None = None,
    ) -> None:
        """Note a finding. Unless said, what breaks a MUST is an error and what breaks a SHOULD a warning."""
        usual: Severity = "error" if CLAUSES[clause].level == "MUST" else "warning"
        self._keep(Finding(clause, severity or usual, message, version, file, line))

    def _keep(self, new: Finding) -> None:
        if sum(finding.clause == new.clause for finding in self.findings) >= _SHOWN:
            self.more[new.clause] += 1
        else:
            self.findings.append(new)

    def take(self, part: Report) -> None:
        """Take in what the report of a part says; parts are looked at side by side."""
        for finding in part.findings:
            self._keep(finding)
        for what in part.unchecked:
            self.skip(what)
        self.more += part.more
        self.checked += part.checked

    def skip(self, what: str) -> None:
        """Note what could not be looked at, once."""
        if what not in self.unchecked and len(self.unchecked) < _SHOWN:
            self.unchecked.append(what)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "table": self.uri,
            "sound": self.sound,
            "oldest_version": self.oldest,
            "newest_version": self.newest,
            "checked": dict(self.checked),
            "findings": [finding.to_dict() for finding in self.findings],
            "more": dict(self.more),
            "unchecked": self.unchecked,
        }
