"""ALTER TABLE SET and UNSET TBLPROPERTIES; the table's name and description."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from refdelta import arguments
from refdelta.errors import InvalidArgumentError, unknown_name
from refdelta.operations.alter.unmapping import gives_up_mapping, remove_mapping
from refdelta.operations.shared.change import change_table, in_json
from refdelta.operations.shared.property_rules import check_properties
from refdelta.table.properties import (
    CONSTRAINT_PREFIX,
    PROPERTIES,
    invalid_properties,
    validate,
    without_properties,
)
from refdelta.table.protocol_choice import asked_features

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from refdelta.core.log.actions import Metadata
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.transaction import Transaction


def set_properties(txn: Transaction, snapshot: Snapshot, properties: Mapping[str, Any]) -> None:
    """Stage SET TBLPROPERTIES; nothing if the table has these values already. If a property ends the column mapping,
    all files are rewritten.

    Args:
        txn: the transaction.
        snapshot: the snapshot that it reads.
        properties: names and values; ``delta.feature.<name>`` with the value ``supported`` adds a table feature,
            and ``delta.minWriterVersion`` the features that the version implies.

    Raises:
        InvalidArgumentError: a property does not exist, or cannot have this value.
        InvalidLogError: the table has another property whose value does not fit.
        UnsupportedFeatureError: a property needs a feature that this engine does not support.
    """
    if not properties:
        raise InvalidArgumentError("there is no property to set: properties is empty")
    given = {name: _text(value) for name, value in (arguments.mapping("properties", properties) or {}).items()}
    _check_no_constraints(given, "add_constraint adds one, and checks the existing rows")
    valid = validate(given)
    txn.replaces_properties(valid)
    stored = {**(snapshot.metadata.configuration or {}), **valid}
    features = asked_features(given, snapshot.protocol)
    parameters = {"properties": in_json(given)}
    txn.describe("SET TBLPROPERTIES", parameters, {})
    metadata = msgspec.structs.replace(snapshot.metadata, configuration=stored)
    check_properties(valid, metadata)
    _change(txn, snapshot, metadata, features)


def unset_properties(txn: Transaction, snapshot: Snapshot, names: Sequence[str], *, if_exists: bool) -> None:
    """Stage UNSET TBLPROPERTIES: the properties have their defaults again.

    Args:
        txn: the transaction.
        snapshot: the snapshot that it reads.
        names: the names of the properties.
        if_exists: ignore properties that the table does not have.

    Raises:
        InvalidArgumentError: the table does not have a property, or users cannot change it.
        InvalidLogError: the table has another property whose value does not fit.
        UnsupportedFeatureError: the table would need a feature that this engine does not support.
    """
    if isinstance(names, str) or not names:
        raise InvalidArgumentError(f"the properties to unset must be a list of names, not {names!r}")
    names, if_exists = arguments.names("names", names) or [], arguments.flag("if_exists", if_exists)
    _check_no_constraints(names, "drop_constraint removes it")
    stored = dict(snapshot.metadata.configuration or {})
    invalid = {*txn.invalid, *invalid_properties(stored)}
    keys = []
    for name in names:
        row = PROPERTIES.get(name.lower())
        key = row.name if row is not None else name
        keys.append(key)
        if key in invalid:
            stored = without_properties(stored, [key])
            continue
        if row is not None and not row.settable:
            raise InvalidArgumentError(f"property {row.name} is managed by the engine and cannot be unset")
        if key not in stored and not if_exists:
            raise InvalidArgumentError(unknown_name("property", name, stored, kinds="properties", where="the table"))
        stored.pop(key, None)
    txn.replaces_properties(keys)
    txn.describe("UNSET TBLPROPERTIES", {"properties": in_json(list(names)), "ifExists": in_json(if_exists)}, {})
    _change(txn, snapshot, msgspec.structs.replace(snapshot.metadata, configuration=stored))


def _change(txn: Transaction, snapshot: Snapshot, metadata: Metadata, features: Iterable[str] = ()) -> None:
    if gives_up_mapping(snapshot, metadata):
        remove_mapping(txn, snapshot, metadata, features)
    else:
        change_table(txn, snapshot, metadata, features)


def _check_no_constraints(names: Iterable[str], advice: str) -> None:
    for name in names:
        if name.lower().startswith(CONSTRAINT_PREFIX):
            raise InvalidArgumentError(
                f"{name} is the property of a constraint and cannot be changed directly: {advice}"
            )


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int)):
        return str(value)
    raise InvalidArgumentError(f"the value of a property must be a string, an integer, or True or False, not {value!r}")


def set_table_name(txn: Transaction, snapshot: Snapshot, name: str | None) -> None:
    """Stage the name of the table; None for no name."""
    txn.describe("UPDATE TABLE METADATA", {"name": arguments.text("name", name) or ""}, {})
    change_table(txn, snapshot, msgspec.structs.replace(snapshot.metadata, name=name))


def set_table_description(txn: Transaction, snapshot: Snapshot, description: str | None) -> None:
    """Stage the description of the table; None for no description."""
    txn.describe("UPDATE TABLE METADATA", {"description": arguments.text("description", description) or ""}, {})
    change_table(txn, snapshot, msgspec.structs.replace(snapshot.metadata, description=description))
