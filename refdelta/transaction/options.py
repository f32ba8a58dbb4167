"""How to commit: the options of every statement, and what its user wants to be noted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

import msgspec

from refdelta import arguments
from refdelta.core.commit.budget import RowBudget
from refdelta.errors import InvalidArgumentError

if TYPE_CHECKING:
    from refdelta.engine.scan.executor import Executor


class CommitOptions(TypedDict, total=False):
    """The keyword arguments that every statement takes; each may be left out, or None.

    Attributes:
        isolation: ``WriteSerializable`` or ``Serializable``, at least as strict as the table's own level; None for
            that.
        app_id: with ``app_version``, makes a write idempotent: nothing is written if the table records this version of
            the application, or a later one (PROTOCOL.md, "Transaction Identifiers").
        app_version: see ``app_id``.
        commit_properties: how often to try, and what to note in the commit.
        executor: reads and writes the files of statements: threads of this process where it is None, the workers of a
            Spark cluster by :class:`refdelta.spark.SparkExecutor`. Conflicts are decided in this process either way.
    """

    isolation: str | None
    app_id: str | None
    app_version: int | None
    commit_properties: CommitProperties | None
    executor: Executor | None


class AppTransaction(Protocol):
    """An application's transaction: deltalake's ``Transaction`` and :class:`refdelta.core.log.actions.Txn` both are
    one.
    """

    @property
    def app_id(self) -> str:
        """The application's name."""

    @property
    def version(self) -> int:
        """The version of what it wrote."""


@dataclass(frozen=True)
class CommitProperties:
    """How to commit, and what to note in the commit. Has the names of deltalake's class, which is accepted in its
    place.

    Attributes:
        custom_metadata: further fields of the commitInfo; those that the engine writes itself cannot be replaced.
        user_metadata: the string that Spark's history shows as ``userMetadata``.
        max_commit_retries: how many times the log entry may be put again after it lost; None for the default.
        max_commit_seconds: for how long a commit may go on trying, in seconds; None for the default.
        app_transactions: versions of applications to record in the same commit (PROTOCOL.md, "Transaction
            Identifiers"). A write is skipped if the table records all of them already, each at this version or a later
            one; if it records some and not all, that is an ``InvalidArgumentError``, and nothing is written.
        row_level: whether rows decide over conflicts instead of files. None: where the table has deletion vectors
            enabled and no partition columns. Without deletion vectors they never do.
        row_budget: how much of other writers' new data may be looked at so that rows decide; None for the default.
    """

    custom_metadata: Mapping[str, Any] | None = None
    user_metadata: str | None = None
    max_commit_retries: int | None = None
    max_commit_seconds: float | None = None
    app_transactions: Sequence[AppTransaction] | None = None
    row_level: bool | None = None
    row_budget: RowBudget | None = None


def checked(properties: CommitProperties | None) -> CommitProperties:
    """The properties of a commit as our own class, those of nobody's choice where there are none.

    Raises:
        InvalidArgumentError: they are of another kind.
    """
    if properties is None:
        return CommitProperties()
    if not hasattr(properties, "max_commit_retries"):
        kind = type(properties).__name__
        raise InvalidArgumentError(f"commit_properties is a CommitProperties, not of type {kind}")
    own = CommitProperties(**{one.name: getattr(properties, one.name, None) for one in fields(CommitProperties)})
    arguments.text("user_metadata", own.user_metadata)
    try:
        msgspec.json.encode(dict(arguments.mapping("custom_metadata", own.custom_metadata) or {}))
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"custom_metadata is what JSON can hold: {error}") from error
    if (retries := arguments.whole("max_commit_retries", own.max_commit_retries)) is not None and retries < 0:
        raise InvalidArgumentError(f"max_commit_retries is not negative, but {retries} is")
    arguments.seconds("max_commit_seconds", own.max_commit_seconds)
    given = own.app_transactions or ()
    if not isinstance(given, Sequence) or not all(hasattr(t, "app_id") and hasattr(t, "version") for t in given):
        raise InvalidArgumentError(f"app_transactions is a list of refdelta.Transaction, not {given!r:.80}")
    if own.row_level is not None:
        arguments.flag("row_level", own.row_level)
    if not isinstance(own.row_budget, RowBudget | None):
        raise InvalidArgumentError(f"row_budget is a RowBudget, not {own.row_budget!r:.80}")
    return own


def check_options(options: CommitOptions) -> None:
    """Refuse a keyword argument that is no option, as Python does for a function that names its arguments.

    Raises:
        TypeError: there is no such option; names one that is nearly it.
    """
    for name in options:
        if name not in CommitOptions.__annotations__:
            near = get_close_matches(name, CommitOptions.__annotations__, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"options: {', '.join(CommitOptions.__annotations__)}"
            raise TypeError(f"unexpected keyword argument {name!r}; {hint}")


def records_applications(options: CommitOptions) -> bool:
    """Whether the options name a version of an application, which one commit records and a second one would skip."""
    return options.get("app_id") is not None or bool(checked(options.get("commit_properties")).app_transactions)


def without_applications(options: CommitOptions) -> CommitOptions:
    """The same options for a commit that records no version of an application: one of several, but for the last."""
    properties = replace(checked(options.get("commit_properties")), app_transactions=None)
    return {**options, "app_id": None, "app_version": None, "commit_properties": properties}
