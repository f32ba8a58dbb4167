"""The module ``deltalake.transaction``: properties of commits, actions, and a table made of data files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from refdelta.compat.deltalake.commit import (
    AddAction,
    CommitProperties,
    PostCommitHookProperties,
    RemoveAction,
    Transaction,
    options_of,
)
from refdelta.compat.deltalake.table import DeltaTable

if TYPE_CHECKING:
    from refdelta.arguments import ReplaceMode
    from refdelta.compat.deltalake.schema import Schema

__all__ = [
    "AddAction",
    "CommitProperties",
    "PostCommitHookProperties",
    "RemoveAction",
    "Transaction",
    "create_table_with_add_actions",
]


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
    options = options_of("create_table_with_add_actions", args, commit_properties, post_commithook_properties)
    there = DeltaTable.is_deltatable(table_uri, storage_options)
    if there and mode == "ignore":
        return
    create_mode: Any = "ignore" if there and mode in ("append", "overwrite") else "error"
    table = DeltaTable.create(
        table_uri, schema, create_mode, partition_by, name, description, configuration, storage_options
    )
    how: ReplaceMode = "overwrite" if mode == "overwrite" else "append"
    table.create_write_transaction(
        list(add_actions), how, schema, partition_by, commit_properties=options.get("commit_properties")
    )
