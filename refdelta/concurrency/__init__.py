"""Isolation, conflicts and the commit loop: what PROTOCOL.md leaves open, as pure functions and generators."""
