"""The commit protocol: :func:`commit_loop` yields effects, which the caller carries out.

A :class:`Committer` carries out the effects on the log.
"""

from refdelta.core.commit.budget import Limits, RowBudget
from refdelta.core.commit.committer import Committer, carry_out
from refdelta.core.commit.loop import commit_loop
from refdelta.core.commit.transaction import CommitOutcome, PreparedCommit

__all__ = ["CommitOutcome", "Committer", "Limits", "PreparedCommit", "RowBudget", "carry_out", "commit_loop"]
