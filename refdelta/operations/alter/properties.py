"""ALTER TABLE SET and UNSET TBLPROPERTIES; the table's name and description."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from refdelta import arguments
from refdelta.core.table.properties import CONSTRAINT_PREFIX, PROPERTIES, validate
from refdelta.core.table.protocol_choice import asked_features
from refdelta.errors import InvalidArgumentError, unknown_name
from refdelta.operations.alter.change import change_table, in_json
from refdelta.operations.alter.property_rules import check_properties
from refdelta.operations.alter.unmapping import gives_up_mapping, remove_mapping

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
            raise InvalidArgumentError(unknown_name("property", name, stored, kinds="properties", where="the table"))
        stored.pop(key, None)
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
            raise InvalidArgumentError(f"{name} is a constraint, and no property of its own: {advice}")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int)):
        return str(value)
    raise InvalidArgumentError(f"the value of a property is a string, not {value!r}")


def set_table_name(txn: Transaction, snapshot: Snapshot, name: str | None) -> None:
    """Stage that the table has this name, or with None no name."""
    txn.describe("UPDATE TABLE METADATA", {"name": arguments.text("name", name) or ""}, {})
    change_table(txn, snapshot, msgspec.structs.replace(snapshot.metadata, name=name))


def set_table_description(txn: Transaction, snapshot: Snapshot, description: str | None) -> None:
    """Stage that the table has this description, or with None none."""
    txn.describe("UPDATE TABLE METADATA", {"description": arguments.text("description", description) or ""}, {})
    change_table(txn, snapshot, msgspec.structs.replace(snapshot.metadata, description=description))
