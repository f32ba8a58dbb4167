"""The corpus finds a missing rule of conflict: without it, cases are wrong on refdelta that are sound with it."""

from __future__ import annotations

import pytest

from refdelta.conformance import cases, engines, run
from refdelta.conformance.runner import NEEDLESS, SOUND, WRONG
from refdelta.core.commit import member
from refdelta.core.conflicts import rules
from rules_left_out import check_without

CASES = {case.id: case for case in cases()}
WITHOUT = {
    "protocol": ("both-change-the-protocol@WriteSerializable",),
    "metadata": ("both-change-metadata@WriteSerializable", "same-metadata-twice@WriteSerializable"),
    "domain": ("same-domain@WriteSerializable", "same-domain-same-text@WriteSerializable"),
    "application": ("application-known-before@WriteSerializable", "three-of-one-application@WriteSerializable"),
    "files-added": ("overwrite-append@Serializable", "read-null-partition-append-there@Serializable"),
    "read-file-removed": ("update-over-a-delete-of-its-row@Serializable",),
    "deleted-by-both": ("refresh-over-delete@Serializable",),
    "append-skipped": ("longer-cycle-through-a-late-writer@WriteSerializable",),
}
"""Cases that are wrong without a rule."""

OTHERWISE = {
    "table-created": "its cases leave a table that another rule refuses, too",
    "table-replaced": "no case replaces a table",
    "identity": "rows of the cases do not have values that two writers may not both take",
    "files-deleted": "no case has a VACUUM",
}
"""Rules of which the corpus shows nothing, and why; ``tests/core/conflicts/test_needed_rules.py`` has histories."""


def test_each_rule_has_a_case_or_a_reason_why_not():
    assert WITHOUT.keys() | OTHERWISE.keys() == {rule.id for rule in rules.RULES}
    assert not WITHOUT.keys() & OTHERWISE.keys()


@pytest.mark.parametrize("rule", WITHOUT)
def test_without_a_rule_cases_are_wrong(rule, monkeypatch):
    chosen = [CASES[name] for name in WITHOUT[rule]]
    engine = engines.find("refdelta")
    assert {result.status for result in run(engine, chosen)} <= {SOUND, NEEDLESS}
    monkeypatch.setattr(member, "check", check_without(rule))
    assert {result.case.id: result.status for result in run(engine, chosen)} == dict.fromkeys(WITHOUT[rule], WRONG)
