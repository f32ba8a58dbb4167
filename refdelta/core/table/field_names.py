"""The names that columns cannot have."""

from __future__ import annotations

from refdelta.core.table.types import ArrayType, DataType, MapType, StructType
from refdelta.errors import InvalidArgumentError, SchemaMismatchError

# Characters that Parquet's own schema language used to reserve; Spark refuses them in names unless columns are mapped.
_RESERVED = frozenset(" ,;{}()\n\t=")


def check_field_names(schema: StructType, *, mapped: bool = False, before: StructType | None = None) -> None:
    """Refuse names that a table cannot have, at any depth.

    Args:
        schema: of the table to be.
        mapped: whether its columns are mapped; then files hold other names, and any character will do.
        before: the schema of the table so far; columns whose names other writers allowed may stay.

    Raises:
        SchemaMismatchError: a name occurs twice, up to its case.
        InvalidArgumentError: a name has a character that Parquet reserves, or is empty.
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
        bad = sorted(_RESERVED.intersection(item.name))
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
