"""The commit protocol: the loop, its effects, what it is given and what it gives back.

:func:`commit_loop` commits; a shell carries out its effects, those of the log by a :class:`Committer`.
"""

from refdelta.core.commit.budget import Limits, RowBudget
from refdelta.core.commit.committer import Committer, carry_out
from refdelta.core.commit.loop import commit_loop
from refdelta.core.commit.transaction import CommitOutcome, PreparedCommit

__all__ = ["CommitOutcome", "Committer", "Limits", "PreparedCommit", "RowBudget", "carry_out", "commit_loop"]
