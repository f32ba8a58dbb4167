"""The schema of a table as its users see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from refdelta.arrow.field_metadata import declared_schema, described_arrow
from refdelta.errors import InvalidArgumentError, UnsupportedTypeError
from refdelta.table.types import StructField, StructType, parse_schema, schema_json

if TYPE_CHECKING:
    from collections.abc import Iterator


class Schema:
    """A Delta schema: exportable to Arrow (``__arrow_c_schema__``) and to the JSON of the log.

    Implements PROTOCOL.md, "Schema Serialization Format".
    """

    def __init__(self, struct: StructType):
        self.struct = struct

    @classmethod
    def from_arrow(cls, schema: Any) -> Schema:
        """From anything with ``__arrow_c_schema__``, with the metadata of its fields.

        Raises:
            UnsupportedTypeError: Delta cannot store a type.
            InvalidArgumentError: the metadata of a field cannot be kept; the column and the key are named.
        """
        return cls(declared_schema(pa.schema(schema)))

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
        """The Arrow schema with which this table is read, with the metadata of the fields as text.

        Physical names and ids of a column mapping and the history of types are left out: they belong to this table.
        """
        return described_arrow(self.struct)

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
        try:
            shown = self.to_arrow().to_string(show_field_metadata=False, show_schema_metadata=False)
        except UnsupportedTypeError:  # a type that Arrow, or this engine, does not have
            shown = "\n".join(map(str, self.struct))
        return f"Schema({shown})"


def struct_of(schema: Any) -> StructType:
    """The fields of a schema that a caller gave.

    Raises:
        InvalidArgumentError: it is no :class:`Schema`, and has no ``__arrow_c_schema__``.
        UnsupportedTypeError: a type that Delta cannot store.
        InvalidArgumentError: the metadata of a field cannot be kept; the column and the key are named.
    """
    if isinstance(schema, Schema):
        return schema.struct
    if not hasattr(schema, "__arrow_c_schema__"):
        raise InvalidArgumentError(f"schema is a refdelta.Schema or an Arrow schema, not a {type(schema).__name__}")
    return declared_schema(pa.schema(schema))
