"""ALTER TABLE as the statement of a transaction: a table's properties, columns, constraints and features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from refdelta.api.statement import OneStatement
from refdelta.operations.alter.alter import add_columns, set_properties, unset_properties
from refdelta.operations.alter.columns import change_type, drop_columns, move_column, rename_column, set_nullable
from refdelta.operations.alter.constraints import add_constraint, drop_constraint
from refdelta.operations.alter.defaults import set_default
from refdelta.operations.alter.descriptions import set_column_metadata, set_description, set_name
from refdelta.operations.alter.domains import set_domain
from refdelta.operations.alter.features import add_features
from refdelta.operations.alter.identity import sync_identity
from refdelta.operations.dml.row_ids import backfill
from refdelta.operations.layout.clustering import cluster_by

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Alterations(OneStatement):
    """A transaction that may alter the table. :class:`refdelta.api.alter.TableAlterer` says what each method raises."""

    def set_properties(self, properties: Mapping[str, Any]) -> None:
        """Set table properties, as :meth:`refdelta.api.alter.TableAlterer.set_table_properties`."""
        self.run("set_properties", set_properties, properties)

    def unset_properties(self, names: Sequence[str], *, if_exists: bool = False) -> None:
        """Remove table properties, as :meth:`refdelta.api.alter.TableAlterer.unset_table_properties`."""
        self.run("unset_properties", unset_properties, names, if_exists=if_exists)

    def backfill_row_ids(self, most: int) -> bool:
        """Give row ids to some files that have none, before row tracking is enabled.

        Args:
            most: how many files at most.

        Returns:
            Whether there were more files without ids than that.
        """
        return bool(self.run("backfill_row_ids", backfill, most))

    def cluster_by(self, columns: Sequence[str] | str | None) -> None:
        """Change the clustering columns, as :meth:`refdelta.api.alter.TableAlterer.cluster_by`."""
        self.run("cluster_by", cluster_by, columns)

    def add_columns(self, fields: Any) -> None:
        """Add columns, as :meth:`refdelta.api.alter.TableAlterer.add_columns`."""
        self.run("add_columns", add_columns, fields)

    def rename_column(self, column: str, new_name: str) -> None:
        """Rename a column, as :meth:`refdelta.api.alter.TableAlterer.rename_column`."""
        self.run("rename_column", rename_column, column, new_name)

    def drop_columns(self, columns: Sequence[str] | str, *, if_exists: bool = False) -> None:
        """Drop columns, as :meth:`refdelta.api.alter.TableAlterer.drop_columns`."""
        self.run("drop_columns", drop_columns, columns, if_exists=if_exists)

    def change_type(self, column: str, new_type: Any) -> None:
        """Widen a column's type, as :meth:`refdelta.api.alter.TableAlterer.change_type`."""
        self.run("change_type", change_type, column, new_type)

    def set_nullable(self, column: str, nullable: bool = True) -> None:
        """Say whether a column may be null, as :meth:`refdelta.api.alter.TableAlterer.set_nullable`."""
        self.run("set_nullable", set_nullable, column, nullable)

    def move_column(self, column: str, *, after: str | None = None) -> None:
        """Move a column, as :meth:`refdelta.api.alter.TableAlterer.move_column`."""
        self.run("move_column", move_column, column, after)

    def set_default(self, column: str, default: str | None) -> None:
        """Give a column a default, or with None none, as :meth:`refdelta.api.alter.TableAlterer.set_default`."""
        self.run("set_default", set_default, column, default)

    def set_column_metadata(self, column: str, metadata: Mapping[str, Any]) -> None:
        """Describe a column, as :meth:`refdelta.api.alter.TableAlterer.set_column_metadata`."""
        self.run("set_column_metadata", set_column_metadata, column, metadata)

    def sync_identity(self, column: str) -> None:
        """Let an identity column go on, as :meth:`refdelta.api.alter.TableAlterer.sync_identity`."""
        self.run("sync_identity", sync_identity, column)

    def add_constraint(self, constraints: Mapping[str, str]) -> None:
        """Add a CHECK constraint, as :meth:`refdelta.api.alter.TableAlterer.add_constraint`."""
        self.run("add_constraint", add_constraint, constraints)

    def drop_constraint(self, name: str, *, raise_if_not_exists: bool = True) -> None:
        """Drop a CHECK constraint, as :meth:`refdelta.api.alter.TableAlterer.drop_constraint`."""
        self.run("drop_constraint", drop_constraint, name, raise_if_not_exists=raise_if_not_exists)

    def set_table_name(self, name: str | None) -> None:
        """Name the table, as :meth:`refdelta.api.alter.TableAlterer.set_table_name`."""
        self.run("set_table_name", set_name, name)

    def set_table_description(self, description: str | None) -> None:
        """Describe the table, as :meth:`refdelta.api.alter.TableAlterer.set_table_description`."""
        self.run("set_table_description", set_description, description)

    def set_domain_metadata(self, domain: str, configuration: str | None) -> None:
        """Set or remove a metadata domain of the user's own, beside any statement and as many domains as wanted: it is
        committed with them, and of two transactions that set the same domain the second fails.

        Args:
            domain: its name, which does not begin with ``delta.``.
            configuration: what it says; None removes it.

        Raises:
            InvalidArgumentError: a domain of the engines, one that is not there to be removed, or one that the
                transaction has set already; the table does not support the feature ``domainMetadata``.
        """
        self._check_open("set_domain_metadata")
        if not self._staging.already_recorded:
            set_domain(self._staging, self._snapshot, domain, configuration)

    def add_feature(self, feature: Any, allow_protocol_versions_increase: bool = False) -> None:
        """Add table features, as :meth:`refdelta.api.alter.TableAlterer.add_feature`."""
        self.run("add_feature", add_features, feature, raise_versions=allow_protocol_versions_increase)
