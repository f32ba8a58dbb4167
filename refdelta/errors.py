"""Every error that refdelta raises, in one tree under :class:`DeltaError`.

The first question of a reader of an error is whose fault it is. The tree answers it:

* the caller's mistake also subclasses the fitting builtin (``ValueError``, ``FileNotFoundError``, ...);
* a log or a data file that breaks the protocol is :class:`InvalidLogError` or :class:`DataFileError`, and names the
  file;
* a table that needs what this engine lacks is :class:`UnsupportedFeatureError`, and names the feature;
* another writer's commit is :class:`ConcurrentModificationError`, under the six names that the field knows;
* the store's trouble is :class:`StoreError`.

This module imports nothing, so every layer may raise from it.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


_LONGEST = 1_500


class DeltaError(Exception):
    """The root: ``except DeltaError`` catches whatever refdelta raises on purpose.

    Its message can be shown: what a log or a user wrote may stand in it, but neither floods a terminal nor steers it.
    """

    def __str__(self) -> str:
        text = super().__str__()
        if len(text) > _LONGEST:
            left_out = len(text) - _LONGEST
            text = f"{text[: _LONGEST - 300]}... ({left_out} characters left out) ...{text[-300:]}"
        return text if text.isprintable() else "".join(map(_seen, text))


def _seen(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


# --- the caller's mistakes ---------------------------------------------------------------------------------------


class InvalidArgumentError(DeltaError, ValueError):
    """An option, mode, property or argument that is not one of those that exist."""


class ColumnNotFoundError(InvalidArgumentError):
    """A column that the table's schema does not have."""

    def __init__(self, column: str, available: Iterable[str], where: str = "the table"):
        self.column = column
        names = list(available)
        shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        super().__init__(f"column {column!r} does not exist in {where}; its columns are: {shown}")


class PredicateError(InvalidArgumentError):
    """A predicate or expression that cannot be parsed, bound to the schema, or evaluated here."""


class ExpressionError(DeltaError, ArithmeticError):
    """An expression that has no value for some row: a division by zero, a number too large, a text that is no date."""


class SchemaMismatchError(DeltaError, ValueError):
    """Data whose schema does not fit the table's."""


class UnsupportedTypeError(SchemaMismatchError, TypeError):
    """An Arrow type that Delta cannot store without changing it."""


class ConstraintViolationError(DeltaError, ValueError):
    """Data that breaks a promise of the table or of the call: nullability, replaceWhere."""


class TableNotFoundError(DeltaError, FileNotFoundError):
    """There is no Delta table at this place."""


class TableAlreadyExistsError(DeltaError, FileExistsError):
    """There is a Delta table at this place, and the call asked for a new one."""


class VersionNotFoundError(DeltaError, LookupError):
    """A version or a time that the table does not have, or no longer has."""


class StreamStoppedError(DeltaError):
    """A commit that a stream of a table does not read past: it removes or changes rows, or changes the table itself.

    Attributes:
        version: the commit's.
        reload: whether a stream that is loaded again goes on with it; else an option is needed, which the message
            names.
    """

    def __init__(self, message: str, version: int, reload: bool):
        self.version, self.reload = version, reload
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.version, self.reload)


class ReadOnlyTableError(DeltaError, ValueError):
    """A write through a handle that is pinned to a version."""


# --- the table's faults ------------------------------------------------------------------------------------------


class InvalidLogError(DeltaError):
    """A log that breaks the protocol.

    Attributes:
        file: the log file, relative to the table's root where it is known.
        line: its line, counted from 1, where the file has lines.
    """

    def __init__(self, reason: str, *, file: str | None = None, line: int | None = None):
        self.reason, self.file, self.line = reason, file, line
        place = "" if file is None else f"{file}: " if line is None else f"{file}, line {line}: "
        super().__init__(place + reason)


class UnsafePathError(InvalidLogError):
    """A path in the log that leaves the table's folder or names another store."""


class DataFileError(DeltaError):
    """A data file or deletion vector that is not what the log says it is.

    Attributes:
        file: its path, relative to the table's root.
    """

    def __init__(self, reason: str, *, file: str):
        self.reason, self.file = reason, file
        super().__init__(f"{file}: {reason}")


class DataFileNotFoundError(DataFileError, FileNotFoundError):
    """A file that the log names is not in the store."""


class UnsupportedFeatureError(DeltaError):
    """The table needs features that this engine does not have.

    Attributes:
        features: their names as PROTOCOL.md writes them.
    """

    def __init__(self, features: Iterable[str], action: str, hint: str = ""):
        self.features = tuple(features)
        names = ", ".join(self.features)
        super().__init__(f"cannot {action} this table: it needs {names}" + (f"; {hint}" if hint else ""))


# --- the store ---------------------------------------------------------------------------------------------------


class StoreError(DeltaError, OSError):
    """The store refused or failed: no space, no permission, no connection."""


class NotEnoughMemoryError(DeltaError, MemoryError):
    """There is not enough memory to read a file. That may be the file's fault, or nobody's."""


# --- commits -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConflictDetails:
    """Why a commit lost to a winner.

    Attributes:
        rule: the id of the rule in ``refdelta/core/conflicts/rules.py`` that decided.
        version: the winning version.
        operation: the winner's operation, as its commitInfo says.
        files: the paths over which the two disagree, as the log writes them; at most some are kept.
        advice: one sentence on what the user can do.
        rows: how many rows of these files both touched, where that is known.
        positions: the first few of these rows by file: their positions in it, counted from 0.
        fallbacks: why files decided somewhere and not rows.
    """

    rule: str
    version: int
    operation: str | None
    files: tuple[str, ...] = ()
    advice: str = ""
    rows: int | None = None
    positions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    fallbacks: tuple[str, ...] = ()


class CommitFailedError(DeltaError):
    """The commit did not happen; nothing of it is visible."""


class CommitRetriesExhaustedError(CommitFailedError):
    """The attempts or the time that the caller allowed are used up; nothing of the commit is visible."""


class ConcurrentModificationError(CommitFailedError):
    """Another writer's commit conflicts with this one; nothing of it is visible.

    Attributes:
        conflict: the :class:`ConflictDetails`.
    """

    def __init__(self, message: str, conflict: ConflictDetails):
        self.conflict = conflict
        by = f" (version {conflict.version}" + (f", {conflict.operation})" if conflict.operation else ")")
        named = conflict.files[:3]
        files = f" Files: {', '.join(named)}{', ...' if len(conflict.files) > len(named) else ''}." if named else ""
        rows = "" if conflict.rows is None else f" Rows: {conflict.rows:,}, {_places(conflict.positions)}."
        coarse = f" Files decided, not rows: {'; '.join(conflict.fallbacks)}." if conflict.fallbacks else ""
        super().__init__(f"{message}{by}.{files}{rows}{coarse}" + (f" {conflict.advice}" if conflict.advice else ""))

    def __reduce__(self) -> tuple[object, ...]:
        # The message is built from its parts; a worker process must be able to hand the error to its parent.
        return _rebuild_conflict, (type(self), str(self), self.conflict)


def _places(positions: Mapping[str, tuple[int, ...]]) -> str:
    some = [f"{', '.join(map(str, found))} in {path}" for path, found in list(positions.items())[:2]]
    return f"at {' and at '.join(some)}"


def _rebuild_conflict(cls: type[ConcurrentModificationError], text: str, conflict: ConflictDetails) -> Exception:
    error = cls.__new__(cls, text)
    error.args, error.conflict = (text,), conflict
    return error


class ConcurrentAppendException(ConcurrentModificationError):
    """Files were added where this transaction read."""


class ConcurrentDeleteReadException(ConcurrentModificationError):
    """A file that this transaction read was deleted."""


class ConcurrentDeleteDeleteException(ConcurrentModificationError):
    """A file that this transaction deletes was deleted."""


class MetadataChangedException(ConcurrentModificationError):
    """The schema, the partitioning or a property changed."""


class ConcurrentTransactionException(ConcurrentModificationError):
    """Another writer committed under the same application id."""


class ProtocolChangedException(ConcurrentModificationError):
    """The protocol was upgraded, or another writer created the table."""


class CommitOutcomeUnknownError(DeltaError):
    """Nobody can tell whether the commit happened; the message says how to find out. Its files stay in place.

    A write with ``app_id`` and ``app_version`` can simply be repeated: where it was committed, it is skipped.

    Attributes:
        why: what is not known, and what went wrong.
        version: the version that the commit is, if it happened; it can be no other one.
        txn_id: ``commitInfo.txnId``, by which its file is known.
        uri: the table, without credentials, where that is known.
    """

    def __init__(self, why: str, version: int, txn_id: str, uri: str | None = None):
        self.why, self.version, self.txn_id, self.uri = why, version, txn_id, uri
        by = "" if uri is None else f", such as by `refdelta log {shlex.quote(uri)} --version {version}`"
        super().__init__(
            f"it is not known whether version {version} was committed: {why}. To find out, look for "
            f'"txnId":"{txn_id}" in _delta_log/{version:020d}.json once the store answers{by}: there, the commit '
            "happened; where that file is another writer's, it did not and will not; where there is no such file, a "
            "delayed request may still create it. The data files stay where they are"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.why, self.version, self.txn_id, self.uri)


# The names under which users of delta-spark catch the parent.
DeltaConcurrentModificationException = ConcurrentModificationError
