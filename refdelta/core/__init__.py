"""The core: the log, sets of rows, the rules of conflict and the commit protocol, as functions on values.

Nothing here opens a file, reads a clock or draws a random number, so the same code commits to a disk, to a catalog and
to a model checker. ``docs/commit-protocol.md`` names each module, in the order in which to read them. The core is a
distribution of its own, refdelta-core; its ``README.md`` has the loop in twenty lines.
"""
