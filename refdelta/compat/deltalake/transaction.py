"""The module ``deltalake.transaction``: properties of commits, actions, and a table made of data files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from refdelta.compat.deltalake.commit import (
    AddAction,
    CommitProperties,
    PostCommitHookProperties,
    RemoveAction,
    Transaction,
    options_of,
)
from refdelta.compat.deltalake.schema import Schema
from refdelta.compat.deltalake.table import create_table
from refdelta.operations.write.prepared_files import PreparedFiles

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
    """Create a table, or replace one, with data files that are in its folder, in one commit."""
    options = options_of("create_table_with_add_actions", args, commit_properties, post_commithook_properties)
    actions = list(add_actions)
    for action in actions:
        if not isinstance(action, AddAction):
            raise TypeError(f"an action must be an AddAction, not a {type(action).__name__}")
    create_table(
        table_uri,
        schema,
        mode,
        storage_options,
        rows=PreparedFiles(actions, schema.engine if isinstance(schema, Schema) else schema),
        partition_by=partition_by,
        name=name,
        description=description,
        configuration=configuration,
        **options,
    )
