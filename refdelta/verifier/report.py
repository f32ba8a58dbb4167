"""The report of a verification: findings, each with the clause that is broken, and counts of what was checked."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from refdelta.verifier.clauses import CLAUSES

Severity = Literal["error", "warning"]

_SHOWN = 50
"""The number of findings of one clause that are kept; further ones are counted."""


@dataclass(frozen=True)
class Finding:
    """One place where a table breaks a clause.

    Attributes:
        clause: its id in ``spec_notes/clauses.md``.
        severity: ``error`` where the clause is a MUST and breaking it matters to readers, else ``warning``.
        message: the defect, as a sentence.
        version: the version of the table in which it was found; None where no single version is at fault.
        file: the key of the log file or of the data file.
        line: the line of the commit, counted from 1.
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
        parts = (self.severity, self.clause, *([where] if where else ()), self.message)
        return f'{": ".join(parts)} (PROTOCOL.md, "{CLAUSES[self.clause].section}")'

    def to_dict(self) -> dict[str, Any]:
        """The attributes as a dictionary for JSON, with level, section and text of the clause, and without None."""
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
    """The result of :func:`refdelta.verify`.

    Attributes:
        uri: the table.
        oldest: the oldest version whose state is known; None where no state is known.
        newest: the newest version.
        findings: the violations of the protocol, up to 50 for each clause.
        more: the number of further findings, by clause.
        unchecked: parts of the table that could not be checked, with the reason; no defects of the table.
        checked: the numbers of commits, checkpoints, checksums, files and rows that were checked.
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
        """True if there is no error; there may be warnings."""
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
        """Add a finding. By default the violation of a MUST is an error, and any other a warning."""
        usual: Severity = "error" if CLAUSES[clause].level == "MUST" else "warning"
        self._keep(Finding(clause, severity or usual, message, version, file, line))

    def _keep(self, new: Finding) -> None:
        if sum(finding.clause == new.clause for finding in self.findings) >= _SHOWN:
            self.more[new.clause] += 1
        else:
            self.findings.append(new)

    def take(self, part: Report) -> None:
        """Add the report of a part; parts are checked concurrently."""
        for finding in part.findings:
            self._keep(finding)
        for what in part.unchecked:
            self.skip(what)
        self.more += part.more
        self.checked += part.checked

    def skip(self, what: str) -> None:
        """Add a part that could not be checked, once."""
        if what not in self.unchecked and len(self.unchecked) < _SHOWN:
            self.unchecked.append(what)

    def to_dict(self) -> dict[str, Any]:
        """The report as a dictionary for JSON."""
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
