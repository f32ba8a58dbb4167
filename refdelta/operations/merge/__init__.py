"""MERGE: its clauses, the join, and how the pieces are run."""
