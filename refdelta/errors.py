"""The errors that refdelta raises, one tree under :class:`DeltaError`, and suggestions for misspelt names.

The class says where the cause is:

* a mistake of the caller: also a subclass of the fitting builtin (``ValueError``, ``FileNotFoundError``, ...);
* a log or a data file that breaks the protocol: :class:`InvalidLogError` or :class:`DataFileError`, with the file;
* a table that needs a feature which this engine lacks: :class:`UnsupportedFeatureError`, with the feature;
* the commit of another writer: :class:`ConcurrentModificationError`, under the six names of delta-spark;
* the store: :class:`StoreError`;
* a bug in refdelta: :class:`InternalError`.

Those that the core raises are defined in :mod:`refdelta.core.errors`. This module imports nothing else of the project,
so every layer may raise from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    from refdelta.core.errors import (
        CommitFailedError,
        CommitOutcomeUnknownError,
        CommitRetriesExhaustedError,
        ConcurrentAppendException,
        ConcurrentDeleteDeleteException,
        ConcurrentDeleteReadException,
        ConcurrentModificationError,
        ConcurrentTransactionException,
        ConflictDetails,
        ConflictParty,
        DataFileError,
        DataFileNotFoundError,
        DeltaConcurrentModificationException,
        DeltaError,
        DeltaProtocolError,
        FailedTransaction,
        InvalidArgumentError,
        InvalidLogError,
        MetadataChangedException,
        NotEnoughMemoryError,
        ProtocolChangedException,
        UnsafePathError,
        VersionNotFoundError,
        printable,
        suggestion,
        unknown_name,
    )
except ModuleNotFoundError as error:
    if not str(error.name).startswith("refdelta."):
        raise
    # pip removes an older refdelta, in which the core was, after it has put the files of refdelta-core in their place.
    raise ImportError("refdelta.core is missing; say: pip install --force-reinstall --no-deps refdelta-core") from error

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "CatalogMismatchError",
    "ColumnNotFoundError",
    "CommitFailedError",
    "CommitOutcomeUnknownError",
    "CommitRetriesExhaustedError",
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentModificationError",
    "ConcurrentTransactionException",
    "ConflictDetails",
    "ConflictParty",
    "ConstraintViolationError",
    "DataFileError",
    "DataFileNotFoundError",
    "DeltaConcurrentModificationException",
    "DeltaError",
    "DeltaProtocolError",
    "ExpressionError",
    "FailedTransaction",
    "InternalError",
    "InvalidArgumentError",
    "InvalidLogError",
    "MetadataChangedException",
    "NotCopyableError",
    "NotEnoughMemoryError",
    "PredicateError",
    "ProtocolChangedException",
    "ReadOnlyTableError",
    "SchemaMismatchError",
    "StoreError",
    "StreamStoppedError",
    "TableAlreadyExistsError",
    "TableNotFoundError",
    "UnsafePathError",
    "UnsupportedFeatureError",
    "UnsupportedTypeError",
    "VersionNotFoundError",
    "printable",
    "suggestion",
    "unknown_name",
]


class InternalError(DeltaError):
    """A state that cannot occur unless refdelta itself has a bug. Please report it."""

    def __init__(self, state: str):
        super().__init__(f"{state}. This is a bug in refdelta: please report this message with its traceback")


# --- mistakes of the caller ------------------------------------------------------------------------------------------


class NotCopyableError(InvalidArgumentError, TypeError):
    """A copy, a deep copy or a pickle of a transaction, which owns the files that it wrote."""


class ColumnNotFoundError(InvalidArgumentError):
    """A column that the table's schema does not have."""

    def __init__(self, column: str, available: Iterable[str], where: str = "the table"):
        self.column = column
        super().__init__(unknown_name("column", column, available, where=where))


class PredicateError(InvalidArgumentError):
    """A predicate or expression that cannot be parsed, bound to the schema, or evaluated here."""


class ExpressionError(DeltaError, ArithmeticError):
    """An expression without a value for some row: a division by zero, a number too large, a string that is no date."""


class SchemaMismatchError(DeltaError, ValueError):
    """Data whose schema does not fit the table's."""


class UnsupportedTypeError(SchemaMismatchError, TypeError):
    """An Arrow type that Delta cannot store without changing it."""


class ConstraintViolationError(DeltaProtocolError, ValueError):
    """Rows that break a constraint: a NOT NULL column, a CHECK constraint, the condition of ``replaceWhere``."""


class TableNotFoundError(DeltaError, FileNotFoundError):
    """No Delta table at this location."""


class TableAlreadyExistsError(DeltaError, FileExistsError):
    """A Delta table at the location where the call was to create one."""


class StreamStoppedError(DeltaError):
    """A commit at which a stream of a table stops: it removes or changes rows, or changes the table itself.

    Attributes:
        version: the version of the commit.
        reload: whether a restarted stream continues past it; otherwise that takes an option, which the message names.
    """

    def __init__(self, message: str, version: int, reload: bool):
        self.version, self.reload = version, reload
        super().__init__(message)


class ReadOnlyTableError(DeltaError, ValueError):
    """A write through a handle that is pinned to a version."""


# --- unsupported tables ----------------------------------------------------------------------------------------------


class UnsupportedFeatureError(DeltaProtocolError):
    """The table needs features that this engine does not have.

    Attributes:
        features: their names as in PROTOCOL.md, "Valid Feature Names in Table Features".
    """

    def __init__(self, features: Iterable[str], action: str, hint: str = ""):
        self.features = tuple(features)
        names = ", ".join(self.features)
        super().__init__(f"cannot {action} this table: it needs {names}" + (f"; {hint}" if hint else ""))


# --- the store -------------------------------------------------------------------------------------------------------


class StoreError(DeltaError, OSError):
    """The store refused or failed: no space, no permission, no connection."""


class CatalogMismatchError(StoreError):
    """A catalog and the folder of its table have different versions: one of them was restored from an older copy.

    Attributes:
        kind: ``older catalog``: the folder has published versions that the catalog does not know; ``older folder``:
            versions that the catalog has are not in the folder; ``other content``: a version is another commit in the
            catalog than in the folder, or than it was before.
    """

    def __init__(self, message: str, kind: str = "other content") -> None:
        super().__init__(message)
        self.kind = kind
