"""The scope of names in an expression: the schema of one table, or of two under their aliases, as in MERGE."""

from __future__ import annotations

from dataclasses import dataclass

from refdelta.errors import ColumnNotFoundError, PredicateError
from refdelta.expressions.expression import Column, Value
from refdelta.expressions.sql_text import quoted
from refdelta.table.char_varchar import char_length
from refdelta.table.collation import compared_as
from refdelta.table.row_tracking import ASKED
from refdelta.table.types import STRING, DataType, StructType


@dataclass(frozen=True, slots=True)
class Scope:
    """The relations in which names are looked up.

    Attributes:
        relations: schemas by alias; a bound column's path begins with the alias, unless that is empty.
    """

    relations: tuple[tuple[str, StructType], ...]

    @classmethod
    def of(cls, schema: StructType | Scope) -> Scope:
        """One relation, whose columns have paths without alias; a scope is itself."""
        return schema if isinstance(schema, Scope) else cls((("", schema),))

    @classmethod
    def of_two(
        cls, target_alias: str, target_schema: StructType, source_alias: str, source_schema: StructType
    ) -> Scope:
        """Two relations. Expressions are evaluated over batches of two struct columns that are named by the aliases.

        Raises:
            PredicateError: the aliases are the same.
        """
        if target_alias.lower() == source_alias.lower():
            raise PredicateError(f"target and source have the same alias {target_alias!r}")
        return cls(((target_alias, target_schema), (source_alias, source_schema)))

    def resolve(self, path: tuple[str, ...]) -> Column:
        """Find a column or a field of a struct, its names in any case, with or without the alias.

        Raises:
            ColumnNotFoundError: there is none.
            PredicateError: several relations have it, or the path goes into an array or a map; it is what only reads
                have of rows.
        """
        whole = ".".join(path).lower()
        if whole in ASKED and not any(path[0] in schema for _, schema in self.relations):
            if not any(whole in schema for _, schema in self.relations):
                raise PredicateError(
                    f"there is no {whole} here: reads of a table that tracks rows (delta.enableRowTracking) have it; "
                    "statements, transactions and the change data feed have not"
                )
            path = (whole,)
        named = [
            (alias, schema)
            for alias, schema in self.relations
            if alias and len(path) > 1 and path[0].lower() == alias.lower()
        ]
        for alias, schema in named:
            if path[1] in schema:
                return _under(alias, schema, path[1:])
        holding = [(alias, schema) for alias, schema in self.relations if path[0] in schema]
        if len(holding) > 1 and not named:
            names = " and ".join(f"{alias}.{path[0]}" for alias, _ in holding)
            raise PredicateError(f"column {path[0]!r} is ambiguous: it may be {names}")
        for alias, schema in holding if len(holding) == 1 else ():
            try:
                return _under(alias, schema, path)
            except ColumnNotFoundError:
                if not named:
                    raise
        for alias, schema in named:
            raise ColumnNotFoundError(path[1], schema.names, alias)
        if len(self.relations) == 1 and path[0] not in self.relations[0][1] and whole in self.relations[0][1]:
            raise ColumnNotFoundError(".".join(path), [quoted(name) for name in self.relations[0][1].names])
        if len(self.relations) == 1:
            return _under(*self.relations[0], path)
        available = [f"{alias}.{name}" for alias, schema in self.relations for name in schema.names]
        raise ColumnNotFoundError(path[0], available, " and ".join(alias for alias, _ in self.relations))

    def find(self, path: tuple[str, ...]) -> Column | None:
        """As :meth:`resolve`; None if there is no such column."""
        try:
            return self.resolve(path)
        except PredicateError:
            return None

    def char_length(self, value: Value) -> int | None:
        """The length of a char(n) column; None for other columns, for fields of structs and for anything else: Spark
        takes only a column by itself for one in comparisons.
        """
        if not isinstance(value, Column) or value.type != STRING:
            return None
        for alias, schema in self.relations:
            path = value.path[1:] if alias else value.path
            if len(path) == 1 and (not alias or value.path[0] == alias):
                return char_length(schema, path)
        return None


def _under(alias: str, schema: StructType, path: tuple[str, ...]) -> Column:
    found: list[str] = []
    here: DataType = schema
    for name in path:
        if not isinstance(here, StructType):
            raise PredicateError(f"column {'.'.join(found)} is {here}, and has no field {name!r}")
        item = here.find(name)
        if item is None:
            whole = ".".join((*found, name))
            raise ColumnNotFoundError(whole, [".".join((*found, other)) for other in here.names])
        found.append(item.name)
        here = compared_as(item)
    return Column((alias, *found) if alias else tuple(found), here)
