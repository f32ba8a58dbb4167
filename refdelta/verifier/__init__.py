"""The verifier: an audit of a table against PROTOCOL.md, which takes no statement of the log or of its files as true.

It reads the log by a plain pass over the actions (:mod:`refdelta.core.log.replay` is the definition) and compares the
result with the clauses in ``spec_notes/clauses.md``. It writes nothing.
"""

SAMPLE = 100
"""The number of data files that are read unless the caller says another."""
