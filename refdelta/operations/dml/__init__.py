"""DELETE and UPDATE, and their common parts: hidden and rewritten rows, row ids, change files."""
