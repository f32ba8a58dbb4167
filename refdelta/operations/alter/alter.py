"""ALTER TABLE: properties, and columns that are added. Nothing but the log is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from refdelta import arguments
from refdelta.core.table.evolution import as_nullable, merge_schemas
from refdelta.core.table.field_names import check_field_names
from refdelta.core.table.properties import CONSTRAINT_PREFIX, PROPERTIES, validate
from refdelta.core.table.protocol_choice import asked_features
from refdelta.core.table.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)
from refdelta.engine.arrow.schema import from_arrow
from refdelta.errors import ColumnNotFoundError, InvalidArgumentError, SchemaMismatchError
from refdelta.operations.alter.change import change_schema, change_table, in_json
from refdelta.operations.alter.names import split_path
from refdelta.operations.alter.property_rules import check_properties
from refdelta.operations.alter.unmapping import gives_up_mapping, remove_mapping
from refdelta.operations.write.declared import MARKS
from refdelta.operations.write.row_rules import INVARIANTS
from refdelta.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from refdelta.core.log.actions import Metadata
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.transaction import Transaction


def set_properties(txn: Transaction, snapshot: Snapshot, properties: Mapping[str, Any]) -> None:
    """Stage SET TBLPROPERTIES. Where the table has these values already, nothing is staged. Where columns are not to be
    mapped any more, all files are written anew.

    Args:
        txn: the transaction.
        snapshot: what it sees.
        properties: names and values; ``delta.feature.<name>`` with the value ``supported`` adds a table feature,
            and ``delta.minWriterVersion`` those that the version implies.

    Raises:
        InvalidArgumentError: a property that does not exist, or a value that it cannot have.
        UnsupportedFeatureError: a property asks for a feature that this engine cannot honour.
    """
    if not properties:
        raise InvalidArgumentError("there is no property to set: properties is empty")
    given = {name: _text(value) for name, value in (arguments.mapping("properties", properties) or {}).items()}
    _check_no_constraints(given, "add_constraint adds one, and checks the rows that are there")
    valid = validate(given)
    stored = {**(snapshot.metadata.configuration or {}), **valid}
    features = asked_features(given, snapshot.protocol)
    parameters = {"properties": in_json(given)}
    txn.describe("SET TBLPROPERTIES", parameters, {})
    metadata = msgspec.structs.replace(snapshot.metadata, configuration=stored)
    check_properties(valid, metadata)
    _change(txn, snapshot, metadata, features)


def unset_properties(txn: Transaction, snapshot: Snapshot, names: Sequence[str], *, if_exists: bool) -> None:
    """Stage UNSET TBLPROPERTIES: each property is again what it is where nobody sets it.

    Raises:
        InvalidArgumentError: a property that the table does not have, unless ``if_exists``; one that is not for users
            to change.
        UnsupportedFeatureError: the table would then need a feature that this engine cannot honour.
    """
    if isinstance(names, str) or not names:
        raise InvalidArgumentError(f"the properties to unset are a list of names, not {names!r}")
    names, if_exists = arguments.names("names", names) or [], arguments.flag("if_exists", if_exists)
    _check_no_constraints(names, "drop_constraint takes it away")
    stored = dict(snapshot.metadata.configuration or {})
    for name in names:
        row = PROPERTIES.get(name.lower())
        if row is not None and not row.settable:
            raise InvalidArgumentError(f"property {row.name} is not for users to unset")
        key = row.name if row is not None else name
        if key not in stored and not if_exists:
            raise InvalidArgumentError(f"the table has no property {name!r}; it has: {', '.join(stored) or '(none)'}")
        stored.pop(key, None)
    txn.describe("UNSET TBLPROPERTIES", {"properties": in_json(list(names)), "ifExists": in_json(if_exists)}, {})
    _change(txn, snapshot, msgspec.structs.replace(snapshot.metadata, configuration=stored))


def _change(txn: Transaction, snapshot: Snapshot, metadata: Metadata, features: Iterable[str] = ()) -> None:
    if gives_up_mapping(snapshot, metadata):
        remove_mapping(txn, snapshot, metadata, features)
    else:
        change_table(txn, snapshot, metadata, features)


def add_columns(txn: Transaction, snapshot: Snapshot, given: Any) -> None:
    """Stage ADD COLUMNS: the rows that are there have null in them.

    Args:
        txn: the transaction.
        snapshot: what it sees.
        given: the columns: fields of refdelta, pyarrow or deltalake, one, several, or a schema of them. A name with
            dots is a path to a field of a struct; in it ``element``, ``key`` and ``value`` lead into arrays and maps.
            Backticks keep a dot in a name.

    Raises:
        UnsupportedTypeError: an Arrow type that Delta lacks.
        SchemaMismatchError: a column that exists already; a name that Delta cannot store.
        InvalidArgumentError: no fields at all, a column that is not nullable, or a path that leads nowhere.
    """
    fields = _fields_of(given)
    if not fields:
        raise InvalidArgumentError("there is no column to add")
    schema = snapshot.schema
    for item in fields:
        if not item.nullable or as_nullable(item.type) != item.type:
            raise InvalidArgumentError(
                f"cannot add column {item.name!r}: it and all that is in it must be nullable, since the rows that are "
                "there have no value for it"
            )
        if marks := sorted({*MARKS, INVARIANTS} & item.metadata.keys()):
            raise InvalidArgumentError(
                f"cannot add column {item.name!r} with {', '.join(marks)}: the rows that are there have no such value"
            )
        grown = merge_schemas(schema, StructType((_placed(schema, split_path(item.name), item),)), changes="refused")
        if grown == schema:
            raise SchemaMismatchError(f"cannot add column {item.name!r}: the table has it already")
        schema = grown
    check_field_names(schema, mapped=snapshot.column_mapping_mode != "none")
    columns = [
        {"column": {"name": f.name, "type": _type_name(f.type), "nullable": True, "metadata": dict(f.metadata)}}
        for f in fields
    ]
    txn.describe("ADD COLUMNS", {"columns": in_json(columns)}, {})
    change_schema(txn, snapshot, schema)


def _fields_of(given: Any) -> list[StructField]:
    if isinstance(given, StructField):
        return [given]
    if isinstance(given, Schema):
        return given.fields
    if isinstance(given, pa.Schema):
        return list(from_arrow(given))
    if isinstance(given, pa.Field):
        return list(from_arrow(pa.schema([given])))
    if hasattr(given, "__arrow_c_schema__"):
        # A field of deltalake, or a schema of it; both come as a field of some type.
        return _exported(given)
    if isinstance(given, Iterable) and not isinstance(given, (str, bytes, dict)):
        return [item for part in given for item in _fields_of(part)]
    raise InvalidArgumentError(f"a column to add is a field of refdelta, pyarrow or deltalake, not {given!r}")


def _exported(given: Any) -> list[StructField]:
    field = pa.field(given)
    if field.name:
        return list(from_arrow(pa.schema([field])))
    return list(from_arrow(pa.schema(given)))


def _placed(schema: StructType, path: Sequence[str], item: StructField) -> StructField:
    """The new field within copies of the fields that lead to it, as it is merged into the schema."""
    head, *rest = path
    if not rest:
        return StructField(head, item.type, True, item.metadata)
    parent = schema.find(head)
    if parent is None:
        raise ColumnNotFoundError(head, schema.names)
    return StructField(parent.name, _within(parent.type, rest, item, head), parent.nullable)


def _within(parent: DataType, path: Sequence[str], item: StructField, where: str) -> DataType:
    step, rest = path[0], path[1:]
    match parent:
        case StructType():
            return StructType((_placed(parent, path, item),))
        case ArrayType() if step.lower() == "element" and rest:
            return ArrayType(_within(parent.element, rest, item, f"{where}.element"), parent.contains_null)
        case MapType() if step.lower() == "value" and rest:
            value = _within(parent.value, rest, item, f"{where}.value")
            return MapType(parent.key, value, parent.value_contains_null)
        case MapType() if step.lower() == "key" and rest:
            key = _within(parent.key, rest, item, f"{where}.key")
            return MapType(key, parent.value, parent.value_contains_null)
        case _:
            raise InvalidArgumentError(f"cannot add column {item.name!r}: {where} is {parent}, and takes no fields")


def _check_no_constraints(names: Iterable[str], advice: str) -> None:
    for name in names:
        if name.lower().startswith(CONSTRAINT_PREFIX):
            raise InvalidArgumentError(f"{name} is a constraint, and no property of its own: {advice}")


def _type_name(data_type: DataType) -> str:
    """As Spark names a type there: nested ones by their kind alone."""
    kinds = {StructType: "struct", ArrayType: "array", MapType: "map"}
    return kinds.get(type(data_type)) or str(data_type)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int)):
        return str(value)
    raise InvalidArgumentError(f"the value of a property is a string, not {value!r}")
