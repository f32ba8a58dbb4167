"""Properties of commits, and the actions of ``create_write_transaction``, by deltalake's names."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
    order: tuple[str, ...] = ("commit_properties", "post_commithook_properties"),
) -> dict[str, Any]:
    """The options of a statement for refdelta; positional ones warn, as in deltalake.

    Raises:
        TypeError: too many positional arguments, or one that is given by name, too.
    """
    named = {"commit_properties": commit, "post_commithook_properties": hooks}
    if args:
        if len(args) > len(order):
            raise TypeError(f"{name}() takes at most {len(order)} positional commit argument(s), got {len(args)}")
        message = f"Passing commit arguments positionally to {name}() is deprecated; use keyword arguments instead."
        warnings.warn(message, DeprecationWarning, stacklevel=3)
        for key, value in zip(order, args, strict=False):
            if named[key] is not None:
                raise TypeError(f"{name}() got multiple values for {key!r}")
            named[key] = value
    after: Any = named["post_commithook_properties"]
    if after is not None and (not after.create_checkpoint or after.cleanup_expired_logs is not None):
        no_effect("post_commithook_properties", "the table properties delta.checkpointInterval and others decide")
    given: Any = named["commit_properties"]
    if given is None:
        return {}
    return {
        "commit_properties": Properties(
            custom_metadata=given.custom_metadata,
            max_commit_retries=given.max_commit_retries,
            app_transactions=given.app_transactions,
        )
    }


def unheeded(writer_properties: Any) -> None:
    """Warn, once, if there are properties of Parquet files."""
    if writer_properties is not None:
        no_effect("writer_properties", "set the table property delta.parquet.compression.codec for the codec")


def metrics_of(result: Any) -> dict[str, Any]:
    """The metrics of a result as a plain dict."""
    return dict(result.metrics)
