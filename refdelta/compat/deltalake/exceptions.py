"""The exceptions of deltalake: refdelta's own classes, so that ``except`` clauses for either library catch both."""

from __future__ import annotations

from refdelta.errors import CommitFailedError, DeltaError, DeltaProtocolError, SchemaMismatchError, TableNotFoundError

__all__ = ["CommitFailedError", "DeltaError", "DeltaProtocolError", "SchemaMismatchError", "TableNotFoundError"]
