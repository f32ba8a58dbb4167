"""The errors that the core raises, under :class:`DeltaError`, and suggestions for misspelt names.

* A mistake of the caller: :class:`InvalidArgumentError` or :class:`VersionNotFoundError`.
* A log or a file that breaks the protocol: :class:`InvalidLogError` or :class:`DataFileError`, with the file.
* The commit of another writer: :class:`ConcurrentModificationError`, under the six names of delta-spark.
* A commit whose outcome cannot be found out: :class:`CommitOutcomeUnknownError`.

``refdelta.errors`` has these and those of the engine. This module imports nothing of the project.
"""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

_LONGEST = 1_500
_SHOWN = 20  # names in a message
_PREDICATE = 200  # characters of a predicate in a message


class DeltaError(Exception):
    """The root: ``except DeltaError`` catches every error that refdelta raises itself.

    The message is safe to print: text from a log or a user is cut to 1,500 characters, control characters are escaped.
    """

    def __reduce__(self) -> tuple[object, ...]:
        # Not by the constructor, which may take other arguments than the message: errors cross process boundaries.
        return _rebuild, (type(self), self.args, self.__dict__)

    def __str__(self) -> str:
        text = super().__str__()
        if len(text) > _LONGEST:
            left_out = len(text) - _LONGEST
            text = f"{text[: _LONGEST - 300]}... ({left_out} characters left out) ...{text[-300:]}"
        return printable(text, keep="")


def printable(text: str, keep: str = "\n\t") -> str:
    """The text with escapes for control characters, which a hostile table may contain, except for those to keep."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else ascii(one)[1:-1] for one in text)


def _rebuild(cls: type[DeltaError], args: tuple[object, ...], attributes: dict[str, object]) -> DeltaError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


class DeltaProtocolError(DeltaError):
    """A breach of the protocol: a log that breaks it, rows that break a constraint, an unsupported feature."""


# --- names that do not exist ---------------------------------------------------------------------------------------


def suggestion(name: Any, known: Iterable[str]) -> str:
    """The end of a message: ``; did you mean 'towns'?`` where a known name is similar in any case, else nothing.

    Compares at most 1,000 names of at most 64 characters, since hostile tables may name many.
    """
    from difflib import get_close_matches  # its import costs more than most messages need

    by_lower = {one.lower(): one for one in islice(known, 1_000) if len(one) <= 64}
    near = get_close_matches(name.lower(), by_lower, 1, 0.7) if isinstance(name, str) and len(name) <= 64 else []
    return f"; did you mean {str(by_lower[near[0]])!r}?" if near else ""


def unknown_name(kind: str, name: Any, known: Iterable[str], *, kinds: str = "", where: str = "") -> str:
    """The message for a name that does not exist: the most similar name, and the existing ones unless there are many.

    Args:
        kind: the kind of thing that the name was to be, such as ``column``.
        name: the name.
        known: the names that exist, in the order in which to list them.
        kinds: the plural of ``kind``; with an s unless given.
        where: the place without the name, such as ``the table``.
    """
    names = list(known)
    similar = suggestion(name, names)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    listed = f"{kinds or kind + 's'}: {', '.join(names[:_SHOWN]) or '(none)'}{more}"
    end = similar if similar and more else f"{similar} {listed}" if similar else f"; {listed}"
    return f"{kind} {name!r} does not exist{' in ' if where else ''}{where}{end}"


# --- arguments -------------------------------------------------------------------------------------------------------


class InvalidArgumentError(DeltaError, ValueError):
    """An option, mode, property or argument that is not one of those that exist."""


class VersionNotFoundError(DeltaError, LookupError):
    """A version or a time that the table does not have, or has no longer."""


# --- damaged logs and files ------------------------------------------------------------------------------------------


class InvalidLogError(DeltaProtocolError):
    """A log that breaks the protocol.

    Attributes:
        file: the log file, relative to the table's root if that is known.
        line: the line, counted from 1, if the file has lines.
    """

    def __init__(self, reason: str, *, file: str | None = None, line: int | None = None):
        self.reason, self.file, self.line = reason, file, line
        place = "" if file is None else f"{file}: " if line is None else f"{file}, line {line}: "
        super().__init__(place + reason)


class UnsafePathError(InvalidLogError):
    """A path in the log that leaves the table's folder or names another store."""


class DataFileError(DeltaError):
    """A data file or deletion vector that is not what the log describes.

    Attributes:
        file: its path, relative to the table's root.
    """

    def __init__(self, reason: str, *, file: str):
        self.reason, self.file = reason, file
        super().__init__(f"{file}: {reason}")


class DataFileNotFoundError(DataFileError, FileNotFoundError):
    """A file that the log names and the store does not have."""


class NotEnoughMemoryError(DeltaError, MemoryError):
    """Not enough memory to read a file, or more than 2 GiB of strings where they are needed at once. The file may be
    hostile, or the machine too small.
    """


# --- commits -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConflictParty:
    """One of the two transactions of a conflict, as its commit describes it; None for a field that it does not have.

    Attributes:
        version: its version; None for the transaction that failed.
        member: its place among the members of the version, counted from 0; None if it has the version for itself.
        operation: the operation, such as ``DELETE``.
        predicate: SQL that is true for each row which it read; None if it read none, or does not record it.
        user: the name of the user, or the user's id.
        time: the time of the commit (UTC).
        isolation_level: the level at which it was checked.
        note: the user's note, ``commitInfo.userMetadata``.
        tables: the tables of its transaction, if that is one over several, as ``sales.orders@7``: name and version.
    """

    version: int | None = None
    operation: str | None = None
    predicate: str | None = None
    user: str | None = None
    time: dt.datetime | None = None
    isolation_level: str | None = None
    note: str | None = None
    tables: tuple[str, ...] = ()
    member: int | None = None


@dataclass(frozen=True, slots=True)
class FailedTransaction:
    """A transaction that was not committed, in the form in which the log would have it.

    Attributes:
        uri: its table, without credentials.
        read_version: the version that it read; -1 if it was to create the table.
        row_level: whether conflicts were decided by rows.
        actions: the actions of its commit, as the lines of the log have them: commitInfo with its reads, and of its
            file actions the first ones, without statistics.
        left_out: the number of file actions that are not among them.
    """

    uri: str
    read_version: int
    row_level: bool
    actions: tuple[Mapping[str, Any], ...]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class ConflictDetails:
    """The conflict of a commit with another one that was committed first (the winner).

    Attributes:
        rule: the id of the rule in ``refdelta/core/conflicts/rules.py`` that found the conflict.
        version: the version of the winner.
        operation: the operation of the winner, from its commitInfo.
        files: the paths of the files in conflict, as the log writes them; only the first ones.
        advice: one sentence on what the user can do.
        rows: the number of rows of these files that both transactions touched, if it is known.
        positions: the first few of these rows by file: their positions in it, counted from 0.
        fallbacks: the reasons why conflicts were found by files and not by rows, if they were.
        winner: the winner, as its commit describes it.
        own: this transaction: its operation, predicate and isolation level.
        table: the name of the table in its catalog, if the transaction is one over several tables.
        member: the place of the winner among the members of its version, counted from 0; None if it has the version
            for itself. Of several members that deleted rows of one file, the first: the log has these rows together.
        attempt: this transaction in the form of the log, from which the conflict can be explained later; None if it is
            not at hand.

    Example::

        try:
            table.update({"amount": "0.0"}, predicate="id = 1")
        except errors.ConcurrentModificationError as error:
            Path("conflict.json").write_text(error.conflict.as_json())  # for `refdelta why conflict.json`
    """

    rule: str
    version: int
    operation: str | None
    files: tuple[str, ...] = ()
    advice: str = ""
    rows: int | None = None
    positions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    fallbacks: tuple[str, ...] = ()
    winner: ConflictParty = field(default_factory=ConflictParty)
    own: ConflictParty = field(default_factory=ConflictParty)
    table: str | None = None
    member: int | None = None
    attempt: FailedTransaction | None = None

    def as_dict(self) -> dict[str, Any]:
        """The attributes as plain values for JSON, the time as an ISO 8601 string."""
        import msgspec

        return dict(msgspec.to_builtins(self))

    def as_json(self) -> str:
        """:meth:`as_dict` as JSON: all that it takes to explain the conflict later, without credentials. It is for
        ``refdelta why FILE``.
        """
        import msgspec

        return msgspec.json.format(msgspec.json.encode(self)).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> ConflictDetails:
        """The conflict that :meth:`as_json` has written, or that the command line has with ``--json``.

        Raises:
            InvalidArgumentError: it is something else.
        """
        import msgspec

        try:
            value = msgspec.json.decode(text)
            if isinstance(value, dict) and isinstance(value.get("conflict"), dict):
                value = value["conflict"]
            return msgspec.convert(value, cls)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise InvalidArgumentError(f"this is not the JSON of a conflict: {error}") from error


class CommitFailedError(DeltaError):
    """A commit that did not happen; nothing of it is visible."""


class CommitRetriesExhaustedError(CommitFailedError):
    """A commit that used up its attempts or its time; nothing of it is visible."""


class ConcurrentModificationError(CommitFailedError):
    """A commit that conflicts with one of another writer; nothing of it is visible.

    Attributes:
        conflict: the :class:`ConflictDetails`.
    """

    def __init__(self, message: str, conflict: ConflictDetails):
        self._reason = message
        self.describe(conflict)

    def describe(self, conflict: ConflictDetails) -> None:
        """Replace the details, and the message that is made of them."""
        self.conflict = conflict
        place = f"{conflict.version}" + ("" if conflict.member is None else f".{conflict.member}")
        of = "" if conflict.table is None else f" of {conflict.table}"
        by = f" (version {place}{of}" + (f", {conflict.operation})" if conflict.operation else ")")
        named = conflict.files[:3]
        files = f" Files: {', '.join(named)}{', ...' if len(conflict.files) > len(named) else ''}." if named else ""
        rows = "" if conflict.rows is None else f" Rows: {conflict.rows:,}, {_places(conflict.positions)}."
        reasons = "; ".join(conflict.fallbacks)
        coarse = f" Conflicts were found by files, not by rows: {reasons}." if reasons else ""
        advice = f" {conflict.advice}" if conflict.advice else ""
        self.args = (f"{self._reason}{by}.{_own(conflict)}{files}{rows}{coarse}{advice}",)


def _own(conflict: ConflictDetails) -> str:
    """A sentence on the transaction that failed, if it is known."""
    own = conflict.own
    if own.operation is None:
        return ""
    predicate = own.predicate or ""
    where = f" where {predicate[:_PREDICATE]}{'...' if len(predicate) > _PREDICATE else ''}" if predicate else ""
    since = "" if conflict.attempt is None else f" at version {conflict.attempt.read_version}"
    return f" This transaction: {own.operation}{where}{since}."


def _places(positions: Mapping[str, tuple[int, ...]]) -> str:
    some = [f"{', '.join(map(str, found))} in {path}" for path, found in list(positions.items())[:2]]
    return f"at {' and at '.join(some)}"


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
    """A commit that may or may not have happened; the message says how to find out. Its files stay in place.

    A write with ``app_id`` and ``app_version`` can be repeated safely: it is skipped if it was committed.

    Attributes:
        why: the reason: the request and its failure.
        version: the only version that the commit can have, if it happened.
        txn_id: ``commitInfo.txnId``, which identifies the commit file.
        uri: the table, without credentials, if it is known.
    """

    def __init__(self, why: str, version: int, txn_id: str, uri: str | None = None):
        self.why, self.version, self.txn_id, self.uri = why, version, txn_id, uri
        by = "" if uri is None else f", such as by `refdelta log {shlex.quote(uri)} --version {version}`"
        super().__init__(
            f"it is not known whether version {version} was committed: {why}. To find out, look for "
            f'"txnId":"{txn_id}" in _delta_log/{version:020d}.json once the store answers{by}: if it is there, the '
            "commit happened; if the file has another id, it did not and will not; if there is no such file, a "
            "delayed request may still create it. The data files stay where they are"
        )


DeltaConcurrentModificationException = ConcurrentModificationError  # its name in delta-spark
