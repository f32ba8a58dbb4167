"""The verifier: an auditor of tables, which trusts neither who wrote them nor what they say of themselves.

It reads a log by its own plain pass over the actions (:mod:`refdelta.core.log.replay` is the definition) and holds what
it finds against the clauses in ``spec_notes/clauses.md``. Nothing is written.
"""
