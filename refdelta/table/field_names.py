"""The names that columns cannot have, and columns that have one place in files."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from refdelta.errors import InvalidArgumentError, InvalidLogError, SchemaMismatchError
from refdelta.table.types import (
    FIELD_ID,
    PHYSICAL_NAME,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    physical_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

# Characters that Parquet's own schema language used to reserve; Spark refuses them in names unless columns are mapped.
_RESERVED = frozenset(" ,;{}()\n\t=")
_reserved: ContextVar[frozenset[str]] = ContextVar("reserved", default=_RESERVED)


@contextmanager
def names_of_any_characters() -> Iterator[None]:
    """A context in which names of new columns may have the characters that Parquet used to reserve."""
    token = _reserved.set(frozenset())
    try:
        yield
    finally:
        _reserved.reset(token)


def check_field_names(schema: StructType, *, mapped: bool = False, before: StructType | None = None) -> None:
    """Refuse names that a table cannot have, at any depth.

    Args:
        schema: of the table to be.
        mapped: whether its columns are mapped; then files hold other names, and any character will do.
        before: the schema of the table so far; columns whose names other writers allowed may stay.

    Raises:
        SchemaMismatchError: a name occurs twice, up to its case.
        InvalidArgumentError: a name has a character that Parquet reserves, outside of
            :func:`names_of_any_characters`, or is empty.
    """
    _check_struct(schema, "", mapped, before)


def _check_struct(struct: StructType, path: str, mapped: bool, before: DataType | None) -> None:
    seen: dict[str, str] = {}
    for item in struct:
        here = f"{path}{item.name}"
        twin = seen.get(item.name.lower())
        seen[item.name.lower()] = here
        if twin is not None:
            raise SchemaMismatchError(
                f"columns {twin!r} and {here!r} have the same name: names are compared without regard to case"
            )
        if not item.name:
            raise InvalidArgumentError(f"a column of {path.rstrip('.') or 'the schema'} has an empty name")
        bad = sorted(_reserved.get().intersection(item.name))
        own = before.find(item.name) if isinstance(before, StructType) else None
        if bad and not mapped and own is None:
            raise InvalidArgumentError(
                f"column name {here!r} holds {', '.join(map(repr, bad))}, which Parquet reserves; rename the column"
            )
        _check_nested(item.type, f"{here}.", mapped, None if own is None else own.type)


def _check_nested(data_type: DataType, path: str, mapped: bool, before: DataType | None) -> None:
    match data_type:
        case StructType():
            _check_struct(data_type, path, mapped, before)
        case ArrayType():
            was = before.element if isinstance(before, ArrayType) else None
            _check_nested(data_type.element, f"{path}element.", mapped, was)
        case MapType():
            key, value = (before.key, before.value) if isinstance(before, MapType) else (None, None)
            _check_nested(data_type.key, f"{path}key.", mapped, key)
            _check_nested(data_type.value, f"{path}value.", mapped, value)


def check_distinct(schema: StructType, *, mapped: bool) -> None:
    """Refuse a schema of a log in which two columns have one place in files, so that one would be read for the other.

    Implements PROTOCOL.md, "Column Mapping": ids and physical names are unique. Columns of two structs have two places
    also if their ids are the same, and delta-spark reads them.

    Args:
        schema: as the log has it, with the marks of its column mapping.
        mapped: whether its columns are mapped.

    Raises:
        InvalidLogError: two columns of one struct have the same name or the same physical name, up to case, or the same
            id; both are named. An id is no number that Parquet has.
    """
    _distinct(schema, "", mapped)


def _distinct(data_type: DataType, path: str, mapped: bool) -> None:
    match data_type:
        case StructType():
            names: dict[str, str] = {}
            stored: dict[str, str] = {}
            ids: dict[int, str] = {}
            for item in data_type:
                here = f"{path}{item.name}"
                _once(names, item.name.lower(), here, "the same name, as names are compared without regard to case")
                if mapped:
                    name = physical_name(item)
                    _once(stored, name.lower(), here, f"the same physical name, {PHYSICAL_NAME} {name!r}")
                    _distinct_id(item, here, ids)
                _distinct(item.type, f"{here}.", mapped)
        case ArrayType():
            _distinct(data_type.element, f"{path}element.", mapped)
        case MapType():
            _distinct(data_type.key, f"{path}key.", mapped)
            _distinct(data_type.value, f"{path}value.", mapped)


def _distinct_id(item: StructField, here: str, ids: dict[int, str]) -> None:
    if FIELD_ID not in item.metadata:
        return
    number = item.metadata[FIELD_ID]
    if type(number) is not int or not 0 <= number < 2**31:
        raise InvalidLogError(f"the table's schema is not valid: column {here!r} has the {FIELD_ID} {number!r:.100}")
    _once(ids, number, here, f"the same id, {FIELD_ID} {number}")


def _once(seen: dict[Any, str], key: object, here: str, shared: str) -> None:
    twin = seen.setdefault(key, here)
    if twin is not here:
        raise InvalidLogError(f"the table's schema is not valid: columns {twin!r} and {here!r} have {shared}")
