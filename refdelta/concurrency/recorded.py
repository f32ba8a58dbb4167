"""What a commit says about what its transaction read, so that those who lose to it need not guess."""

from __future__ import annotations

from typing import Any

from refdelta.concurrency.standing import Standing
from refdelta.concurrency.summary import READ_DOMAINS, READ_PREDICATES
from refdelta.protocol.predicate import TRUE, to_sql

_TEXT_KEPT = 16_384
"""How many characters of predicates a commit carries. Longer ones become TRUE: every row."""


def recorded_reads(ours: Standing) -> dict[str, Any]:
    """The fields of commitInfo that say what a transaction read; none for a blind append or a compaction."""
    if ours.blind or ours.snapshot_isolation:
        return {}
    texts = [to_sql(predicate) for predicate in ours.predicates]
    recorded: dict[str, Any] = {READ_PREDICATES: texts if sum(map(len, texts)) <= _TEXT_KEPT else [to_sql(TRUE)]}
    if not ours.read.every_domain:
        recorded[READ_DOMAINS] = sorted(ours.read.domains)
    return recorded
