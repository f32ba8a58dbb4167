"""The schema of a table as its users see it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from refdelta.core.table.types import StructField, StructType, parse_schema, schema_json
from refdelta.engine.arrow.schema import from_arrow, to_arrow
from refdelta.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator


# Generated columns, defaults and identity columns: see refdelta.operations.write.column_declarations.
_TEXTS = ("delta.generationExpression", "CURRENT_DEFAULT")
_NUMBERS = ("delta.identity.start", "delta.identity.step", "delta.identity.allowExplicitInsert")
_NUMBER = re.compile(r"-?\d{1,19}|true|false").fullmatch


class Schema:
    """A Delta schema: exportable to Arrow (``__arrow_c_schema__``) and to the JSON of the log.

    Implements PROTOCOL.md, "Schema Serialization Format".
    """

    def __init__(self, struct: StructType):
        self.struct = struct

    @classmethod
    def from_arrow(cls, schema: Any) -> Schema:
        """From anything with ``__arrow_c_schema__``. Raises ``UnsupportedTypeError`` for what Delta cannot store."""
        return cls(from_arrow(pa.schema(schema)))

    @classmethod
    def from_json(cls, text: str) -> Schema:
        """From a ``schemaString``. Raises ``InvalidLogError``."""
        return cls(parse_schema(text))

    @property
    def fields(self) -> list[StructField]:
        """The top-level fields, in order."""
        return list(self.struct.fields)

    @property
    def names(self) -> list[str]:
        """The names of the top-level fields, in order."""
        return [f.name for f in self.struct.fields]

    def to_arrow(self) -> pa.Schema:
        """The Arrow schema with which this table is read."""
        return to_arrow(self.struct)

    def to_json(self) -> str:
        """The ``schemaString`` of the log."""
        return schema_json(self.struct)

    def __arrow_c_schema__(self) -> Any:
        return self.to_arrow().__arrow_c_schema__()

    def __iter__(self) -> Iterator[StructField]:
        return iter(self.struct.fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.struct == other.struct

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __repr__(self) -> str:
        return f"Schema({self.to_arrow().to_string(show_field_metadata=False, show_schema_metadata=False)})"


def struct_of(schema: Any) -> StructType:
    """The fields of a schema that a caller gave.

    Raises:
        InvalidArgumentError: it is no :class:`Schema`, and has no ``__arrow_c_schema__``.
        UnsupportedTypeError: a type that Delta cannot store.
    """
    if isinstance(schema, Schema):
        return schema.struct
    if not hasattr(schema, "__arrow_c_schema__"):
        raise InvalidArgumentError(f"schema is a refdelta.Schema or an Arrow schema, not a {type(schema).__name__}")
    given = pa.schema(schema)
    return StructType(
        tuple(replace(f, metadata=_declared(item)) for f, item in zip(from_arrow(given), given, strict=True))
    )


def _declared(item: pa.Field) -> dict[str, Any]:
    """The declarations of a column's values in the metadata of an Arrow field, such as one of deltalake."""
    found = ((key.decode(), value.decode()) for key, value in (item.metadata or {}).items())
    return {k: v if k in _TEXTS else json.loads(v) for k, v in found if k in _TEXTS or (k in _NUMBERS and _NUMBER(v))}
