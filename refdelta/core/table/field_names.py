"""The names that columns cannot have."""

from __future__ import annotations

from refdelta.core.table.types import ArrayType, DataType, MapType, StructType
from refdelta.errors import InvalidArgumentError, SchemaMismatchError

# Characters that Parquet's own schema language used to reserve; Spark refuses them in names unless columns are mapped.
_RESERVED = frozenset(" ,;{}()\n\t=")


def check_field_names(schema: StructType, *, mapped: bool = False) -> None:
    """Refuse names that a table cannot have, at any depth.

    Args:
        schema: of the table to be.
        mapped: whether its columns are mapped; then files hold other names, and any character will do.

    Raises:
        SchemaMismatchError: a name occurs twice, up to its case.
        InvalidArgumentError: a name has a character that Parquet reserves, or is empty.
    """
    _check_struct(schema, "", mapped)


def _check_struct(struct: StructType, path: str, mapped: bool) -> None:
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
        if bad and not mapped:
            raise InvalidArgumentError(
                f"column name {here!r} holds {', '.join(map(repr, bad))}, which Parquet reserves; rename the column"
            )
        _check_nested(item.type, f"{here}.", mapped)


def _check_nested(data_type: DataType, path: str, mapped: bool) -> None:
    match data_type:
        case StructType():
            _check_struct(data_type, path, mapped)
        case ArrayType():
            _check_nested(data_type.element, f"{path}element.", mapped)
        case MapType():
            _check_nested(data_type.key, f"{path}key.", mapped)
            _check_nested(data_type.value, f"{path}value.", mapped)
