"""Schemas and types by deltalake's names, over refdelta's types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias, Union

import pyarrow as pa

from refdelta.arrow.field_metadata import declared_schema, described_arrow
from refdelta.arrow.schema import arrow_type, delta_type, large_schema
from refdelta.compat.deltalake.arrow import given
from refdelta.schema import Schema as EngineSchema
from refdelta.schema import struct_of
from refdelta.table import types

_GENERATED = "delta.generationExpression"
_loads = json.loads  # where `json` is a method of deltalake's

__all__ = ["ArrayType", "Field", "MapType", "PrimitiveType", "Schema", "StructType", "VariantType"]


def _parsed(text: str) -> types.DataType:
    field = {"name": "x", "type": json.loads(text), "nullable": True, "metadata": {}}
    return types.parse_schema(json.dumps({"type": "struct", "fields": [field]})).fields[0].type


class _Type:
    """A type; equal to another that stands for the same type of the log."""

    def __init__(self, engine: types.DataType):
        self._engine = engine

    def to_json(self) -> str:
        """The type as the log writes it."""
        whole = json.loads(types.schema_json(types.StructType((types.StructField("x", self._engine),))))
        return json.dumps(whole["fields"][0]["type"], separators=(",", ":"))

    @classmethod
    def from_json(cls, json: str) -> Any:
        """A type from the log's JSON. Raises ``ValueError`` for another kind of type."""
        return cls._of(_parsed(json))

    @classmethod
    def from_arrow(cls, type: Any) -> Any:  # noqa: A002 - deltalake's name
        """A type from an Arrow type. Raises ``TypeError`` for another kind of type."""
        return cls._of(delta_type(_arrow(type), "x"))

    @classmethod
    def _of(cls, engine: types.DataType) -> Any:
        made = wrapped(engine)
        if not isinstance(made, cls):
            raise TypeError(f"{made!r} is not a {cls.__name__}")
        return made

    def to_arrow(self) -> Any:
        """The Arrow type."""
        return given("DataType", arrow_type(self._engine))

    def __arrow_c_schema__(self) -> object:
        return arrow_type(self._engine).__arrow_c_schema__()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Type) and self._engine == other._engine

    def __hash__(self) -> int:
        return hash(self._engine)


class PrimitiveType(_Type):
    """A type such as ``string``, ``long`` or ``decimal(10,2)``."""

    def __init__(self, data_type: str) -> None:
        try:
            super().__init__(_parsed(json.dumps(data_type)))
        except Exception as error:
            raise ValueError(f"invalid type string: {data_type}") from error

    @property
    def type(self) -> str:
        """Its name."""
        return str(self._engine)

    def __repr__(self) -> str:
        return f'PrimitiveType("{self._engine}")'


class VariantType(_Type):
    """The type of semi-structured values."""

    type = "variant"

    def __init__(self) -> None:
        super().__init__(types.VARIANT)

    def __repr__(self) -> str:
        return "VariantType()"


class ArrayType(_Type):
    """A list."""

    type = "array"

    def __init__(self, element_type: Any, contains_null: bool = True) -> None:
        super().__init__(types.ArrayType(engine_type(element_type), contains_null))

    @property
    def element_type(self) -> Any:
        """The type of its elements."""
        return wrapped(self._engine.element)  # type: ignore[union-attr]

    @property
    def contains_null(self) -> bool:
        """True if elements may be null."""
        return self._engine.contains_null  # type: ignore[union-attr]

    def __repr__(self) -> str:
        return f"ArrayType({self.element_type!r}, contains_null={self.contains_null})"


class MapType(_Type):
    """A map."""

    type = "map"

    def __init__(self, key_type: Any, value_type: Any, value_contains_null: bool = True) -> None:
        super().__init__(types.MapType(engine_type(key_type), engine_type(value_type), value_contains_null))

    @property
    def key_type(self) -> Any:
        """The type of its keys."""
        return wrapped(self._engine.key)  # type: ignore[union-attr]

    @property
    def value_type(self) -> Any:
        """The type of its values."""
        return wrapped(self._engine.value)  # type: ignore[union-attr]

    @property
    def value_contains_null(self) -> bool:
        """True if values may be null."""
        return self._engine.value_contains_null  # type: ignore[union-attr]

    def __repr__(self) -> str:
        return f"MapType({self.key_type!r}, {self.value_type!r}, value_contains_null={self.value_contains_null})"


class StructType(_Type):
    """A struct."""

    type = "struct"

    def __init__(self, fields: list[Field]) -> None:
        super().__init__(types.StructType(tuple(field._engine for field in fields)))  # noqa: SLF001

    @property
    def fields(self) -> list[Field]:
        """Its fields."""
        return [Field._from(field) for field in self._engine.fields]  # type: ignore[union-attr]  # noqa: SLF001

    def __repr__(self) -> str:
        return f"StructType([{', '.join(map(repr, self.fields))}])"


DataType: TypeAlias = Union["PrimitiveType", "MapType", "StructType", "ArrayType", "VariantType"]


def _texts(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Metadata as the module shows it: numbers are strings."""
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in metadata.items()}


class Field:
    """A column, or a field of a struct."""

    def __init__(
        self,
        name: str,
        type: Any,  # noqa: A002 - deltalake's name
        nullable: bool = True,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        self._engine = types.StructField(name, engine_type(type), nullable, _texts(metadata or {}))

    @classmethod
    def _from(cls, engine: types.StructField) -> Field:
        made = cls.__new__(cls)
        made._engine = engine  # noqa: SLF001
        return made

    @property
    def name(self) -> str:
        """Its name."""
        return self._engine.name

    @property
    def type(self) -> Any:
        """Its type."""
        return wrapped(self._engine.type)

    @property
    def nullable(self) -> bool:
        """True if the field may be null."""
        return self._engine.nullable

    @property
    def metadata(self) -> dict[str, Any]:
        """Its metadata."""
        return dict(self._engine.metadata)

    def to_json(self) -> str:
        """The field as the log writes it."""
        whole = json.loads(types.schema_json(types.StructType((self._engine,))))
        return json.dumps(whole["fields"][0], separators=(",", ":"))

    @staticmethod
    def from_json(json: str) -> Field:
        """A field from the log's JSON."""
        return Schema.from_json(f'{{"type":"struct","fields":[{json}]}}').fields[0]

    def to_arrow(self) -> Any:
        """The Arrow field."""
        return given("Field", self._described)

    @staticmethod
    def from_arrow(field: Any) -> Field:
        """A field from an Arrow field."""
        return Field._from(struct_of(pa.schema([pa.field(field)])).fields[0])

    def __arrow_c_schema__(self) -> object:
        return self._described.__arrow_c_schema__()

    @property
    def _described(self) -> pa.Field:
        return described_arrow(types.StructType((self._engine,)), every=True).field(0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Field) and self._engine == other._engine

    def __hash__(self) -> int:
        return hash((self.name, self._engine.type))

    def __repr__(self) -> str:
        metadata = f", metadata={json.dumps(self.metadata)}" if self.metadata else ""
        return f"Field({self.name}, {self.type!r}, nullable={self.nullable}{metadata})"


class Schema:
    """A table's schema."""

    def __init__(self, fields: list[Field]) -> None:
        self._struct = types.StructType(tuple(field._engine for field in fields))  # noqa: SLF001

    @classmethod
    def of(cls, struct: types.StructType) -> Schema:
        """The schema of these fields of the engine."""
        return cls([Field._from(field) for field in struct.fields])  # noqa: SLF001

    @property
    def engine(self) -> EngineSchema:
        """The schema as refdelta's class."""
        return EngineSchema(self._struct)

    def without_expressions(self) -> tuple[EngineSchema, dict[str, str]]:
        """The schema as refdelta's class, and the expressions of its generated columns, which refdelta takes apart."""
        plain = [
            replace(item, metadata={name: value for name, value in item.metadata.items() if name != _GENERATED})
            for item in self._struct
        ]
        return EngineSchema(types.StructType(tuple(plain))), generated_columns(self._struct)

    @property
    def fields(self) -> list[Field]:
        """The columns."""
        return [Field._from(field) for field in self._struct.fields]  # noqa: SLF001

    @property
    def invariants(self) -> list[tuple[str, str]]:
        """The invariants: pairs of a column and an SQL expression."""
        found = [(f.name, f.metadata["delta.invariants"]) for f in self._struct if "delta.invariants" in f.metadata]
        return [(name, json.loads(text)["expression"]["expression"]) for name, text in found]

    def to_json(self) -> str:
        """The schema as the log writes it."""
        return self.engine.to_json()

    def json(self) -> dict[str, Any]:
        """The schema as the log writes it, as plain values."""
        return dict(_loads(self.to_json()))

    @staticmethod
    def from_json(json: str) -> Schema:
        """A schema from the log's JSON."""
        return Schema.of(types.parse_schema(json))

    def to_arrow(self, as_large_types: bool = False) -> Any:
        """The Arrow schema; with ``as_large_types``, strings, binaries and lists have offsets of 64 bits."""
        schema = described_arrow(self._struct, every=True)
        return given("Schema", large_schema(schema) if as_large_types else schema)

    @staticmethod
    def from_arrow(type: Any) -> Schema:  # noqa: A002 - deltalake's name
        """A schema from an Arrow schema."""
        struct = declared_schema(pa.schema(type))
        return Schema.of(
            types.StructType(tuple(replace(item, metadata=_texts(item.metadata)) for item in struct.fields))
        )

    def __arrow_c_schema__(self) -> object:
        return described_arrow(self._struct, every=True).__arrow_c_schema__()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self._struct == other._struct

    def __hash__(self) -> int:
        return hash(self._struct.fields)

    def __repr__(self) -> str:
        return f"Schema([{', '.join(map(repr, self.fields))}])"


def generated_columns(struct: types.StructType) -> dict[str, str]:
    """The expressions of the generated columns, by their names."""
    return {item.name: str(item.metadata[_GENERATED]) for item in struct if _GENERATED in item.metadata}


def wrapped(engine: types.DataType) -> Any:
    """A type of the engine as deltalake's class."""
    kinds: Any = {types.ArrayType: ArrayType, types.MapType: MapType, types.StructType: StructType}
    kind = VariantType if engine == types.VARIANT else kinds.get(type(engine), PrimitiveType)
    made = kind.__new__(kind)
    made._engine = engine  # noqa: SLF001
    return made


def engine_type(data_type: Any) -> types.DataType:
    """A type as the engine's; also from the name of a primitive type."""
    if isinstance(data_type, str):
        return VariantType()._engine if data_type == "variant" else PrimitiveType(data_type)._engine  # noqa: SLF001
    return data_type._engine  # type: ignore[no-any-return]  # noqa: SLF001


def _arrow(exported: Any) -> pa.DataType:
    return exported if isinstance(exported, pa.DataType) else pa.field(exported).type
