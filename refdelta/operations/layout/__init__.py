"""OPTIMIZE and REORG: rewrites of files that merge, sort or cluster them, or remove deleted rows."""
