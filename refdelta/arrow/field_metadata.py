"""The metadata of Arrow fields as that of Delta columns.

Delta's own keys declare something that a table must keep: they are taken with their types, or refused by name. Keys of
file formats (``PARQUET:``, ``ARROW:``) describe the file that the data came from, and are not kept. All other keys are
kept as text; ``comment`` is one of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from refdelta.arrow.schema import arrow_type, from_arrow
from refdelta.errors import InvalidArgumentError, unknown_name
from refdelta.table.types import ArrayType, DataType, MapType, StructField, StructType

# Generated columns, defaults, invariants and identity columns: see refdelta.operations.write.column_declarations.
_TEXTS: Final = ("delta.generationExpression", "delta.invariants", "CURRENT_DEFAULT", "EXISTS_DEFAULT")
_NUMBERS: Final = ("delta.identity.start", "delta.identity.step", "delta.identity.highWaterMark")
_FLAG: Final = "delta.identity.allowExplicitInsert"
DECLARATIONS: Final = frozenset((*_TEXTS, *_NUMBERS, _FLAG))
"""Keys that declare values or rules of a column."""

_RESERVED: Final = ("delta.", "parquet.field.", "__collations")
_GIVEN_BY_TABLE: Final = ("delta.columnmapping.", "delta.typechanges", "parquet.field.")
_OF_FORMATS: Final = ("PARQUET:", "ARROW:", "_PL_")
_NUMBER: Final = re.compile(r"[+-]?\d{1,19}", re.ASCII).fullmatch


def declared_schema(schema: pa.Schema, *, of_file: bool = False) -> StructType:
    """The Delta schema of data with an Arrow schema, with the metadata of its fields, at every depth.

    Args:
        schema: the Arrow schema.
        of_file: whether it is that of a data file, whose keys of Delta describe the table that wrote it: they are left
            out.

    Raises:
        UnsupportedTypeError: Delta has no such type.
        SchemaMismatchError: two columns have the same name, up to its case.
        InvalidArgumentError: the metadata of a field cannot be kept; the column and the key are named.
    """
    return _Reading(of_file).struct(from_arrow(schema), list(schema), "")


def described_arrow(schema: DataType, *, every: bool = False) -> pa.Schema:
    """The Arrow schema of the fields of a struct, with their metadata as text.

    Args:
        schema: the struct.
        every: whether to keep what :func:`declared_schema` refuses. Else the physical names and ids of a column mapping
            and the history of types are left out: they belong to one table.
    """
    return pa.schema(list(_described_type(arrow_type(schema), schema, every).fields))


def check_reserved(field: StructField, path: str) -> None:
    """Refuse metadata of a column that only a table itself can give, or that this engine does not know.

    Args:
        field: the column, or a field of a struct.
        path: its path, for the message.

    Raises:
        InvalidArgumentError: there is such metadata; the message names the key.
    """
    for key in field.metadata:
        lower = str(key).lower()
        if key in DECLARATIONS or not lower.startswith(_RESERVED):
            continue
        if lower.startswith(_GIVEN_BY_TABLE):
            raise InvalidArgumentError(
                f"column {path!r} comes with {key}, which each table gives its own columns; remove it from the "
                "field's metadata"
            )
        unknown = unknown_name("key of metadata", key, sorted(DECLARATIONS), kinds="keys of metadata")
        raise InvalidArgumentError(f"column {path!r}: {unknown}")


def _is_of_delta(key: str) -> bool:
    return key in DECLARATIONS or key.lower().startswith(_RESERVED)


@dataclass(frozen=True)
class _Reading:
    """The reading of the metadata of fields; see :func:`declared_schema`."""

    of_file: bool

    def struct(self, struct: StructType, fields: list[pa.Field], path: str) -> StructType:
        return StructType(tuple(self._field(item, given, path) for item, given in zip(struct, fields, strict=True)))

    def _field(self, item: StructField, given: pa.Field, path: str) -> StructField:
        here = path + item.name
        metadata = {key: _value(key, text, here) for key, text in self._entries(given, here)}
        found = replace(item, type=self._within(item.type, given.type, here), metadata=metadata)
        check_reserved(found, here)
        return found

    def _within(self, data_type: DataType, given: pa.DataType, path: str) -> DataType:
        match data_type:
            case StructType() if pt.is_struct(given):
                return self.struct(data_type, list(given.fields), f"{path}.")
            case ArrayType() if hasattr(given, "value_field"):
                return replace(data_type, element=self._part(data_type.element, given.value_field, f"{path}.element"))
            case MapType() if pt.is_map(given):
                key = self._part(data_type.key, given.key_field, f"{path}.key")
                return replace(data_type, key=key, value=self._part(data_type.value, given.item_field, f"{path}.value"))
        return data_type

    def _part(self, data_type: DataType, given: pa.Field, path: str) -> DataType:
        """An element, a key or a value, which has no metadata in Delta."""
        for key, _ in () if self.of_file else self._entries(given, path):
            if key == "comment" or _is_of_delta(key):
                raise InvalidArgumentError(
                    f"{path!r} comes with {key}, but parts of arrays and maps have no metadata in Delta; remove it "
                    "from the field's metadata"
                )
        return self._within(data_type, given.type, path)

    def _entries(self, given: pa.Field, path: str) -> Iterator[tuple[str, str]]:
        for raw, value in (given.metadata or {}).items():
            try:
                key, text = raw.decode(), value.decode()
            except UnicodeDecodeError:
                if self.of_file or raw.startswith(tuple(name.encode() for name in _OF_FORMATS)):
                    continue
                raise InvalidArgumentError(
                    f"column {path!r}: the metadata {raw!r} of the field is not UTF-8, and cannot be kept; remove it"
                ) from None
            if not key.startswith(_OF_FORMATS) and not (self.of_file and _is_of_delta(key)):
                yield key, text


def _value(key: str, text: str, path: str) -> Any:
    if key in _NUMBERS and not _NUMBER(text):
        raise InvalidArgumentError(f"column {path!r}: {key} must be a whole number, not {text!r}")
    if key == _FLAG and text.lower() not in ("true", "false"):
        raise InvalidArgumentError(f"column {path!r}: {key} must be true or false, not {text!r}")
    if key == _FLAG:
        return text.lower() == "true"
    return int(text) if key in _NUMBERS else text


def _described(plain: pa.Field, item: StructField, every: bool) -> pa.Field:
    kept = {
        str(key): value if isinstance(value, str) else json.dumps(value)
        for key, value in item.metadata.items()
        if every or key in DECLARATIONS or not _is_of_delta(str(key))
    }
    return plain.with_type(_described_type(plain.type, item.type, every)).with_metadata(kept or None)


def _described_type(plain: pa.DataType, data_type: DataType, every: bool) -> pa.DataType:
    match data_type:
        case StructType():
            return pa.struct([_described(f, item, every) for f, item in zip(plain.fields, data_type, strict=True)])
        case ArrayType():
            inner = plain.value_field
            return pa.list_(inner.with_type(_described_type(inner.type, data_type.element, every)))
        case MapType():
            key, value = plain.key_field, plain.item_field
            return pa.map_(
                key.with_type(_described_type(key.type, data_type.key, every)),
                value.with_type(_described_type(value.type, data_type.value, every)),
            )
    return plain
