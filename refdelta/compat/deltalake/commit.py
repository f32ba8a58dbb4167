"""Properties of commits, and the actions of ``create_write_transaction``, by deltalake's names."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from refdelta.compat.deltalake._util import deprecate_positional_commit_args
from refdelta.errors import InvalidArgumentError
from refdelta.transaction.options import CommitProperties as Properties


@dataclass(frozen=True)
class Transaction:
    """An application's version."""

    app_id: str
    version: int
    last_updated: int | None = None


@dataclass
class AddAction:
    """A data file to commit."""

    path: str
    size: int
    partition_values: Mapping[str, str | None]
    modification_time: int
    data_change: bool
    stats: str


@dataclass(repr=False)
class RemoveAction:
    """A data file to remove."""

    path: str
    data_change: bool
    deletion_timestamp: int
    size: int | None = None
    partition_values: dict[str, str | None] | None = None

    def __str__(self) -> str:
        values = [f"{name}={value}" for name, value in vars(self).items()]
        return f"RemoveAction({', '.join(values)})"

    __repr__ = __str__


@dataclass
class PostCommitHookProperties:
    """The steps after a commit: a checkpoint where one is due, and the removal of expired log files."""

    create_checkpoint: bool = True
    cleanup_expired_logs: bool | None = None


@dataclass
class CommitProperties:
    """Notes in a commit, the number of its retries, and versions of applications."""

    custom_metadata: dict[str, Any] | None = None
    max_commit_retries: int | None = None
    app_transactions: list[Transaction] | None = None


HOOKS_FIRST = ("post_commithook_properties", "commit_properties")
"""The order of positional arguments of most statements, for :func:`options_of`."""

HOOKS_LAST = ("commit_properties", "post_commithook_properties")
"""The order of the others."""

_SAID: set[str] = set()


def no_effect(name: str, instead: str) -> None:
    """Warn, once in a process, that an argument has no effect.

    Args:
        name: the argument.
        instead: what decides in its place.
    """
    if name not in _SAID:
        _SAID.add(name)
        warnings.warn(f"{name} has no effect in refdelta: {instead}", UserWarning, stacklevel=4)


def options_of(
    name: str,
    args: tuple[Any, ...],
    commit: CommitProperties | None,
    hooks: PostCommitHookProperties | None,
    order: tuple[str, ...] = HOOKS_LAST,
) -> dict[str, Any]:
    """The options of a statement for refdelta; positional ones warn, as in deltalake.

    Raises:
        TypeError: too many positional arguments, or one that is given by name, too.
    """
    given, after = deprecate_positional_commit_args(name, args, commit, hooks, order)
    if given is None and after is None:
        return {}
    notes = _notes(given.custom_metadata) if given is not None else None
    return {
        "commit_properties": Properties(
            custom_metadata=notes,
            max_commit_retries=getattr(given, "max_commit_retries", None),
            app_transactions=getattr(given, "app_transactions", None),
            create_checkpoint=None if after is None or after.create_checkpoint else False,
            cleanup_expired_logs=getattr(after, "cleanup_expired_logs", None),
        )
    }


def _notes(given: Any) -> Any:
    """Notes of a commit. Raises ``ValueError``, as deltalake does, for notes that JSON cannot hold."""
    if isinstance(given, Mapping):
        if any(not isinstance(name, str) for name in given):
            raise InvalidArgumentError(f"custom_metadata keys must be strings, not {sorted(map(repr, given))}")
        if wrong := [name for name in ("userName", "userId") if not isinstance(given.get(name, ""), str)]:
            raise InvalidArgumentError(f"custom_metadata must have a string as {wrong[0]}")
        try:
            json.dumps(given, allow_nan=False)
        except ValueError as error:
            raise InvalidArgumentError(f"custom_metadata must have values that JSON can hold: {error}") from error
        except TypeError:
            pass  # refdelta says which value
    return given


def metrics_of(result: Any) -> dict[str, Any]:
    """The metrics of a result as a plain dict."""
    return dict(result.metrics)
