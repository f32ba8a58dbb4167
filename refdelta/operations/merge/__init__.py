"""MERGE: its clauses, its join and its execution."""
