"""What a commit says about what its transaction read, so that those who lose to it need not guess."""

from __future__ import annotations

from typing import Any

from refdelta.concurrency.standing import Standing
from refdelta.concurrency.summary import READ_PREDICATES
from refdelta.protocol.predicate import TRUE, to_sql

_TEXT_KEPT = 16_384
"""How many characters of predicates a commit carries. Longer ones become TRUE: every row."""


def recorded_reads(ours: Standing) -> dict[str, Any]:
    """The field of commitInfo that says what a transaction read; none for one that read no rows, or moved rows only."""
    if ours.blind or ours.snapshot_isolation:
        return {}
    texts = [to_sql(predicate) for predicate in ours.predicates]
    return {READ_PREDICATES: texts if sum(map(len, texts)) <= _TEXT_KEPT else [to_sql(TRUE)]}
