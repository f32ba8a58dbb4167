"""``QueryBuilder``: SQL queries over tables, by the package ``datafusion``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from refdelta.arrow.field_metadata import described_arrow
from refdelta.compat.deltalake.arrow import stream
from refdelta.errors import InvalidArgumentError

if TYPE_CHECKING:
    from refdelta.compat.deltalake.table import DeltaTable


class QueryBuilder:
    """SQL queries by Apache DataFusion over tables.

    Args:
        session_config: DataFusion's settings by name, such as ``datafusion.execution.batch_size``.

    Raises:
        DeltaError: there is no such setting.
        ImportError: the package datafusion is not installed: ``pip install 'refdelta[datafusion]'``.
    """

    def __init__(self, session_config: dict[str, str] | None = None) -> None:
        try:
            from datafusion import SessionConfig, SessionContext
        except ModuleNotFoundError as error:
            message = "QueryBuilder needs the package datafusion: pip install 'refdelta[datafusion]'"
            raise ImportError(message) from error
        # deltalake keeps the case of names that are not quoted.
        settings = {"datafusion.sql_parser.enable_ident_normalization": "false", **(session_config or {})}
        try:
            self._context = SessionContext(SessionConfig(settings))
        except BaseException as error:
            # A setting that does not exist. Before DataFusion 55 it was a panic of Rust, which is no Exception.
            if isinstance(error, ValueError) or type(error).__name__ == "PanicException":
                raise InvalidArgumentError(str(error)) from error
            raise

    def register(self, table_name: str, delta_table: DeltaTable) -> QueryBuilder:
        """Add a table to the query builder under a name.

        Args:
            table_name: its name in queries.
            delta_table: the table, at the version of the handle.
        """
        own = delta_table._own  # noqa: SLF001
        rows = own.scan().to_table()
        # Fields have the metadata of their columns, as in deltalake's results.
        fields = zip(rows.schema, described_arrow(own.schema().struct, every=True), strict=True)
        described = pa.schema([item.with_metadata(column.metadata) for item, column in fields])
        self._context.from_arrow(pa.Table.from_arrays(rows.columns, schema=described), name=table_name)
        return self

    def execute(self, sql: str) -> Any:
        """Run a query.

        Args:
            sql: a query in DataFusion's SQL.

        Returns:
            A stream of record batches.
        """
        return stream(self._context.sql(sql).to_arrow_table().to_reader())
