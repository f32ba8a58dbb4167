"""The warnings of deltalake."""

from __future__ import annotations


class ExperimentalWarning(Warning):
    """A warning of deltalake's, which refdelta does not raise."""
