"""Properties of commits, and the actions of ``create_write_transaction``, by deltalake's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from refdelta.transaction.options import CommitProperties as Properties

if TYPE_CHECKING:
    from refdelta.compat.deltalake.schema import Schema


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


@dataclass
class RemoveAction:
    """A data file to remove."""

    path: str
    data_change: bool
    deletion_timestamp: int
    size: int | None = None
    partition_values: dict[str, str | None] | None = None


@dataclass
class PostCommitHookProperties:
    """What happens after a commit."""

    create_checkpoint: bool = True
    cleanup_expired_logs: bool | None = None


@dataclass
class CommitProperties:
    """Notes in a commit, the number of its retries, and versions of applications."""

    custom_metadata: dict[str, Any] | None = None
    max_commit_retries: int | None = None
    app_transactions: list[Transaction] | None = None


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
        import warnings

        if len(args) > len(order):
            raise TypeError(f"{name}() takes at most {len(order)} positional commit argument(s), got {len(args)}")
        message = f"Passing commit arguments positionally to {name}() is deprecated; use keyword arguments instead."
        warnings.warn(message, DeprecationWarning, stacklevel=3)
        for key, value in zip(order, args, strict=False):
            if named[key] is not None:
                raise TypeError(f"{name}() got multiple values for {key!r}")
            named[key] = value
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


def create_table_with_add_actions(
    table_uri: str,
    schema: Schema,
    add_actions: list[AddAction],
    mode: Literal["error", "append", "overwrite", "ignore"] = "error",
    partition_by: list[str] | str | None = None,
    name: str | None = None,
    description: str | None = None,
    configuration: Mapping[str, str | None] | None = None,
    storage_options: dict[str, str] | None = None,
    *args: Any,
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
) -> None:
    """Create a table, and commit data files that are in its folder."""
    from refdelta.compat.deltalake.table import DeltaTable

    options = options_of("create_table_with_add_actions", args, commit_properties, post_commithook_properties)
    there = DeltaTable.is_deltatable(table_uri, storage_options)
    if there and mode == "ignore":
        return
    create_mode: Any = "ignore" if there and mode in ("append", "overwrite") else "error"
    table = DeltaTable.create(
        table_uri, schema, create_mode, partition_by, name, description, configuration, storage_options
    )
    how = "overwrite" if mode == "overwrite" else "append"
    table.create_write_transaction(
        list(add_actions), how, schema, partition_by, commit_properties=options.get("commit_properties")
    )
