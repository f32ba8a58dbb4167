"""``CommitOptions`` and ``CommitProperties``: the options of every statement."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

import msgspec

from refdelta import arguments
from refdelta.core.commit.budget import RowBudget
from refdelta.errors import InvalidArgumentError, suggestion

if TYPE_CHECKING:
    from refdelta.engine.work.executor import Executor


class CommitOptions(TypedDict, total=False):
    """The keyword arguments that every statement takes; each may be left out, or None.

    Attributes:
        isolation: ``WriteSerializable`` or ``Serializable``, at least as strict as the table's own level; None for the
            table's own.
        app_id: with ``app_version``, makes a write idempotent: nothing is written if the table records this version of
            the application, or a later one (PROTOCOL.md, "Transaction Identifiers").
        app_version: see ``app_id``.
        commit_properties: limits of retries, and notes in the commit.
        executor: reads and writes the files of statements. None for threads of this process; a
            :class:`refdelta.spark.SparkExecutor` for the workers of a Spark cluster. Conflicts are always decided in
            this process.

    Example::

        options = CommitOptions(isolation="Serializable", app_id="nightly", app_version=7)
        table.delete("id = 3", **options)
    """

    isolation: arguments.Isolation | None
    app_id: str | None
    app_version: int | None
    commit_properties: CommitProperties | None
    executor: Executor | None


class StatementOptions(CommitOptions, total=False):
    """The keyword arguments of a statement that commits by itself: those of :class:`CommitOptions`, and one more.

    Attributes:
        attempts: how often the statement may run in all: after a conflict, it runs again on the newest version, after a
            random pause that grows. None for the default of the handle, which is 1 unless said.

    Example::

        table.delete("id = 3", attempts=5).statement_attempts
    """

    attempts: int | None


class AppTransaction(Protocol):
    """An application transaction, such as deltalake's ``Transaction`` and :class:`refdelta.core.log.actions.Txn`."""

    @property
    def app_id(self) -> str:
        """The application's id."""

    @property
    def version(self) -> int:
        """The version that the application gave its write."""


@dataclass(frozen=True)
class CommitProperties:
    """Notes in a commit, and limits of its retries. The attributes have deltalake's names; deltalake's class of this
    name is accepted, too.

    Attributes:
        custom_metadata: further fields of the commitInfo; fields that the engine writes cannot be set.
        user_metadata: the string that Spark's history shows as ``userMetadata``.
        max_commit_retries: the maximum number of further attempts after a lost race; None for the default.
        max_commit_seconds: the maximum time of a commit with its retries, in seconds; None for the default.
        app_transactions: application versions to record in the same commit (PROTOCOL.md, "Transaction Identifiers").
            The write is skipped if the table records all of them already, each at this version or a later one. If it
            records some, but not all, the write fails with ``InvalidArgumentError``.
        row_level: detect conflicts by row instead of by file. None: as the table's ``refdelta.rowLevelConcurrency``
            says, or else if it has no partition columns. It has no effect without deletion vectors.
        row_budget: the amount of other writers' new data that may be read to detect conflicts by row; None for the
            default.
        create_checkpoint: False leaves out the checkpoint and the log compaction file that are due after this commit,
            for example because its caller waits; None writes them.
        cleanup_expired_logs: whether expired log files are removed after this commit; None removes them after a
            checkpoint, if ``delta.enableExpiredLogCleanup`` permits it.
        group: ``"intents"``: where other writers commit at the same time, one version may have several transactions;
            each is put beside the log, and one of the writers commits those that are there
            (``docs/commit-protocol.md``, "Intents"). ``"always"`` does so without looking for other writers. Of a table
            that ``refdelta serve`` serves, its server gets the transaction, and commits those that clients sent
            meanwhile as one version; of other catalogs, it has no effect. None: each transaction has a version for
            itself.
        replaces: the ids of earlier tries of the same work whose outcome is not known, with ``group``: at most one of
            them and of this one is committed.

    Example::

        properties = CommitProperties(user_metadata="ticket 12", max_commit_retries=3)
        table.delete("id = 3", commit_properties=properties)
        table.history(1)[0]["userMetadata"]
    """

    custom_metadata: Mapping[str, Any] | None = None
    user_metadata: str | None = None
    max_commit_retries: int | None = None
    max_commit_seconds: float | None = None
    app_transactions: Sequence[AppTransaction] | None = None
    row_level: bool | None = None
    row_budget: RowBudget | None = None
    create_checkpoint: bool | None = None
    cleanup_expired_logs: bool | None = None
    group: str | None = None
    replaces: Sequence[str] = ()


def checked(properties: CommitProperties | None) -> CommitProperties:
    """The properties of a commit as this module's class; the defaults for None.

    Raises:
        InvalidArgumentError: the object is not like ``CommitProperties``, or an attribute has a wrong type or value.
    """
    if properties is None:
        return CommitProperties()
    if not hasattr(properties, "max_commit_retries"):
        kind = type(properties).__name__
        raise InvalidArgumentError(f"commit_properties must be a CommitProperties, not of type {kind}")
    given: dict[str, Any] = {one.name: getattr(properties, one.name, None) for one in fields(CommitProperties)}
    own = CommitProperties(**{**given, "replaces": given["replaces"] or ()})
    arguments.text("user_metadata", own.user_metadata)
    custom = dict(arguments.mapping("custom_metadata", own.custom_metadata) or {})
    try:
        msgspec.json.encode(custom)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"custom_metadata must have values that JSON can hold: {error}") from error
    for name, value in custom.items():
        _check_finite(value, f"custom_metadata[{name!r}]")
    if (retries := arguments.whole("max_commit_retries", own.max_commit_retries)) is not None and retries < 0:
        raise InvalidArgumentError(f"max_commit_retries is {retries}; it cannot be negative")
    arguments.seconds("max_commit_seconds", own.max_commit_seconds)
    apps = own.app_transactions or ()
    if not isinstance(apps, Sequence) or not all(hasattr(t, "app_id") and hasattr(t, "version") for t in apps):
        raise InvalidArgumentError(f"app_transactions must be a list of refdelta.AppTransaction, not {apps!r:.80}")
    for name in ("row_level", "create_checkpoint", "cleanup_expired_logs"):
        if (value := getattr(own, name)) is not None:
            arguments.flag(name, value)
    if own.group not in (None, "intents", "always"):
        raise InvalidArgumentError(f"group must be 'intents', 'always' or None, not {own.group!r:.80}")
    if isinstance(own.replaces, str) or not all(isinstance(one, str) for one in own.replaces):
        raise InvalidArgumentError(f"replaces must be a list of transaction ids, not {own.replaces!r:.80}")
    if own.replaces and own.group is None:
        raise InvalidArgumentError("replaces needs group='intents': a commit alone has no earlier try beside the log")
    if not isinstance(own.row_budget, RowBudget | None):
        raise InvalidArgumentError(f"row_budget must be a RowBudget, not {own.row_budget!r:.80}")
    return own


def check_options(options: CommitOptions) -> None:
    """Refuse a keyword argument that is not an option, as Python does for unknown arguments.

    Raises:
        TypeError: there is no such option; the message suggests a similar one.
    """
    for name in options:
        if name not in StatementOptions.__annotations__:
            known = StatementOptions.__annotations__
            hint = suggestion(name, known) or f"; options: {', '.join(known)}"
            raise TypeError(f"unexpected keyword argument {name!r}{hint}")


def without_attempts(options: StatementOptions) -> CommitOptions:
    """The options of one attempt of a statement."""
    return {name: value for name, value in options.items() if name != "attempts"}  # type: ignore[return-value]


def records_applications(options: CommitOptions) -> bool:
    """True if the options name an application version. A second commit with the same options would be skipped."""
    return options.get("app_id") is not None or bool(checked(options.get("commit_properties")).app_transactions)


def without_applications(options: CommitOptions) -> CommitOptions:
    """The options without application versions, for all but the last of several commits."""
    properties = replace(checked(options.get("commit_properties")), app_transactions=None)
    return {**options, "app_id": None, "app_version": None, "commit_properties": properties}


def _check_finite(value: Any, where: str) -> None:
    """Refuse NaN and infinities, which JSON would hold as null."""
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidArgumentError(f"{where} is {value}, for which JSON has no number; write it as a string")
    if isinstance(value, Mapping):
        for name, part in value.items():
            _check_finite(part, f"{where}[{name!r}]")
    elif isinstance(value, (list, tuple)):
        for place, part in enumerate(value):
            _check_finite(part, f"{where}[{place}]")
