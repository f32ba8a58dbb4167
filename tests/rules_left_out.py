"""The conflict check with some of its rules left out, to show that each of them is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from refdelta.core.conflicts import rules

if TYPE_CHECKING:
    from collections.abc import Callable


def check_without(*missing: str) -> Callable[..., Any]:
    """What ``refdelta.core.commit.member.check`` is without the rules with these ids."""
    left = tuple(rule for rule in rules.RULES if rule.id not in missing)
    assert len(left) == len(rules.RULES) - len(missing), missing
    check = rules.check
    return lambda state, winner, facts: check(state, winner, facts, left)
