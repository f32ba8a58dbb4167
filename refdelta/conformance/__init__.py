"""The conformance suite for writers of Delta tables: a corpus of cases, a judge, a runner, and an adapter an engine.

``docs/conformance.md`` describes it; ``refdelta conformance`` runs it.
"""

from refdelta.conformance import engines, judge
from refdelta.conformance.cases import Case, cases
from refdelta.conformance.runner import Result, run

__all__ = ["Case", "Result", "cases", "engines", "judge", "run"]
