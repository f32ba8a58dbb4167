"""Functions of arrays, maps and structs: elements, places, sorting, joining."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from refdelta.core.expressions.arithmetic import Typed
from refdelta.core.expressions.coercion import coerce, common_type, wider
from refdelta.core.expressions.expression import Call, Literal, Value
from refdelta.core.expressions.ordering import order
from refdelta.core.expressions.signature import ANY_NUMBER, Function, Typing, bounded_text, int_argument, simple
from refdelta.core.table.types import (
    BOOLEAN,
    BYTE,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    is_nested,
)
from refdelta.errors import ColumnNotFoundError, ExpressionError, PredicateError

# --- what they take ----------------------------------------------------------------------------------------------


def _array(name: str, value: Value) -> ArrayType:
    if not isinstance(value.type, ArrayType):
        raise PredicateError(f"{name} takes an array, and {value} is {value.type}")
    return value.type


def _map(name: str, value: Value) -> MapType:
    if not isinstance(value.type, MapType):
        raise PredicateError(f"{name} takes a map, and {value} is {value.type}")
    return value.type


def _plain_array(name: str, value: Value) -> ArrayType:
    kind = _array(name, value)
    if is_nested(kind.element) or kind.element == VARIANT:
        raise PredicateError(f"{name} compares elements, and those of {value} are {kind.element}")
    return kind


def _element(name: str, value: Value, kind: DataType) -> Value:
    """An argument that is compared with elements, in their type."""
    common = kind if value.type in (kind, VOID) else wider(kind, value.type)
    if isinstance(value, Literal) and common is not None and value.type != STRING:
        try:
            return coerce(value, kind, name)
        except PredicateError:
            common = None
    if common != kind:
        raise PredicateError(f"{name}: {value} is {value.type}, and the elements are {kind}; cast one of them")
    return coerce(value, kind, name)


def _of_array(gives: Callable[[ArrayType], DataType], *, compares: bool = False) -> Typing:
    def typed(name: str, args: tuple[Value, ...]) -> Typed:
        kind = _plain_array(name, args[0]) if compares else _array(name, args[0])
        return args, gives(kind)

    return typed


def _with_element(gives: Callable[[ArrayType], DataType]) -> Typing:
    def typed(name: str, args: tuple[Value, ...]) -> Typed:
        kind = _plain_array(name, args[0])
        return (args[0], _element(name, args[1], kind.element)), gives(kind)

    return typed


def _size_types(name: str, args: tuple[Value, ...]) -> Typed:
    if not isinstance(args[0].type, ArrayType | MapType):
        raise PredicateError(f"{name} takes an array or a map, and {args[0]} is {args[0].type}")
    return args, INTEGER


def _index_types(name: str, args: tuple[Value, ...]) -> Typed:
    value, key = args
    if isinstance(value.type, MapType):
        if name == "get":
            raise PredicateError(f"{name} takes an array, and {value} is {value.type}; write {value}[{key}]")
        kind = value.type.key
        if is_nested(kind) or kind == VARIANT:
            raise PredicateError(f"{name}: keys of type {kind} cannot be compared")
        return (value, _element(name, key, kind)), value.type.value
    if not isinstance(value.type, ArrayType):
        raise PredicateError(f"{name} takes an array or a map, and {value} is {value.type}")
    if key.type == LONG or key.type not in (INTEGER, SHORT, BYTE, VOID):
        raise PredicateError(f"{name} takes an int as the place of an element, and {key} is {key.type}")
    return (value, int_argument(name, key)), value.type.element


def _made_types(name: str, args: tuple[Value, ...]) -> Typed:
    kind = _common(name, args)
    return tuple(coerce(arg, kind, name) for arg in args), ArrayType(kind, True)


def _common(name: str, args: tuple[Value, ...]) -> DataType:
    if not args:
        return VOID
    if all(arg.type == args[0].type for arg in args) and is_nested(args[0].type):
        return args[0].type
    return common_type(args, name)


def _map_types(name: str, args: tuple[Value, ...]) -> Typed:
    if len(args) % 2 or not args:
        raise PredicateError(f"{name} takes keys and values in turn, not {len(args)} arguments")
    key, value = common_type(args[::2], name), _common(name, args[1::2])
    if key == VOID:
        raise PredicateError(f"{name}: a key cannot be NULL")
    pairs = zip(args[::2], args[1::2], strict=True)
    return tuple(arg for k, v in pairs for arg in (coerce(k, key, name), coerce(v, value, name))), MapType(key, value)


def _same_arrays(gives: DataType | None = None, *, compares: bool = True) -> Typing:
    def typed(name: str, args: tuple[Value, ...]) -> Typed:
        kinds = [(_plain_array if compares else _array)(name, arg) for arg in args]
        if any(kind.element != kinds[0].element for kind in kinds):
            raise PredicateError(f"{name} takes arrays of one type, not {' and '.join(str(arg.type) for arg in args)}")
        return args, gives or ArrayType(kinds[0].element, any(kind.contains_null for kind in kinds))

    return typed


def _sort_types(name: str, args: tuple[Value, ...]) -> Typed:
    up = args[1] if len(args) > 1 else Literal(True, BOOLEAN)
    if not isinstance(up, Literal) or up.type != BOOLEAN or up.value is None:
        raise PredicateError(f"{name} takes TRUE or FALSE as a constant, not {up}")
    return (args[0], up), _plain_array(name, args[0])


def _slice_types(name: str, args: tuple[Value, ...]) -> Typed:
    return (args[0], int_argument(name, args[1]), int_argument(name, args[2])), _array(name, args[0])


def _join_types(name: str, args: tuple[Value, ...]) -> Typed:
    if _array(name, args[0]).element != STRING:
        raise PredicateError(f"{name} joins strings, and {args[0]} is {args[0].type}")
    rest = tuple(coerce(arg, STRING, name) for arg in args[1:])
    if not all(isinstance(arg, Literal) for arg in rest):
        raise PredicateError(f"{name} takes constants after its first argument")
    return (args[0], *rest), STRING


def _flat_types(name: str, args: tuple[Value, ...]) -> Typed:
    kind = _array(name, args[0]).element
    if not isinstance(kind, ArrayType):
        raise PredicateError(f"{name} takes an array of arrays, and {args[0]} is {args[0].type}")
    return args, kind


def _key_types(name: str, args: tuple[Value, ...]) -> Typed:
    kind = _map(name, args[0])
    if is_nested(kind.key):
        raise PredicateError(f"{name}: keys of type {kind.key} cannot be compared")
    return (args[0], _element(name, args[1], kind.key)), BOOLEAN


def _struct_types(name: str, args: tuple[Value, ...]) -> Typed:
    names = args[::2]
    if len(args) % 2 or not args or not all(isinstance(one, Literal) and isinstance(one.value, str) for one in names):
        raise PredicateError(f"{name} takes names as constants and values in turn")
    pairs = zip(names, args[1::2], strict=True)
    return args, StructType(
        tuple(StructField(str(one.value), value.type) for one, value in pairs if isinstance(one, Literal))
    )


def _field_types(_: str, args: tuple[Value, ...]) -> Typed:
    value, field = args
    if not isinstance(value.type, StructType) or not isinstance(field, Literal):
        raise PredicateError(f"{value} is {value.type}, and has no field {field}")
    item = value.type.find(str(field.value))
    if item is None:
        raise ColumnNotFoundError(str(field.value), value.type.names, str(value))
    return (value, Literal(item.name, STRING)), item.type


# --- what they are -----------------------------------------------------------------------------------------------


def looked_up(pairs: list[tuple[Any, Any]], key: Any) -> Any:
    """The value of a key; None if the map does not have it."""
    return next((value for one, value in pairs if order(one, key) == 0), None)


def element(values: list[Any], place: int, *, lenient: bool = False, base: int = 0, name: str = "[]") -> Any:
    """An element by its place, counted from ``base``; from 1 on, negative places count from the end.

    Raises:
        ExpressionError: there is none, unless ``lenient``.
    """
    if base and not place:
        raise ExpressionError(f"{name}: elements are counted from 1, or from -1 backwards, not from 0")
    at = place - base if place >= base else len(values) + place if base else -1
    if 0 <= at < len(values):
        return values[at]
    if lenient:
        return None
    advice = "try_element_at" if base else "get"
    raise ExpressionError(
        f"{name}: there is no element {place} in an array of {len(values)}; {advice} gives null there"
    )


def _indexed(call: Call, values: Any, key: Any) -> Any:
    if isinstance(call.args[0].type, MapType):
        return looked_up(values, key)
    base, lenient = {"[]": (0, False), "get": (0, True), "element_at": (1, False), "try_element_at": (1, True)}[
        call.name
    ]
    return element(values, key, lenient=lenient, base=base, name=call.name)


def _contains(_: Call, values: list[Any], item: Any) -> bool | None:
    if any(value is not None and order(value, item) == 0 for value in values):
        return True
    return None if None in values else False


def _position(_: Call, values: list[Any], item: Any) -> int:
    return next((place for place, value in enumerate(values, 1) if value is not None and order(value, item) == 0), 0)


def _distinct(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if not any(one is value or (one is not None and value is not None and order(one, value) == 0) for one in found):
            found.append(value + 0.0 if isinstance(value, float) else value)  # the zero is positive
    return found


def _ordered(values: list[Any], *, up: bool = True) -> list[Any]:
    return sorted((value for value in values if value is not None), key=functools.cmp_to_key(order), reverse=not up)


def _sorted(values: list[Any], up: bool) -> list[Any]:
    nulls = [None] * values.count(None)
    found = _ordered(values, up=up)
    return [*nulls, *found] if up else [*found, *nulls]


def sliced(values: list[Any], start: int, count: int) -> list[Any]:
    """Some elements from a place on, counted from 1, or from -1 backwards.

    Raises:
        ExpressionError: the place is 0, or the number of elements is negative.
    """
    if not start or count < 0:
        raise ExpressionError(
            f"slice begins at 1 or later, or at -1 or earlier, with 0 or more: not at {start} with {count}"
        )
    begin = start - 1 if start > 0 else len(values) + start
    return values[begin : begin + count] if begin >= 0 else []


def _joined(_: Call, values: list[Any], between: str, *empty: str) -> str:
    found = [value if value is not None else empty[0] for value in values if value is not None or empty]
    bounded_text("array_join", sum(map(len, found)) + len(between) * len(found))
    return between.join(found)


def _overlap(_: Call, one: list[Any], other: list[Any]) -> bool | None:
    if any(_contains(_, other, value) for value in one if value is not None):
        return True
    return None if one and other and (None in one or None in other) else False


def _made_map(_: Call, *args: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    for key, value in zip(args[::2], args[1::2], strict=True):
        if key is None or any(order(one, key) == 0 for one, _value in found):
            raise ExpressionError(f"map: the key {key!r} is NULL, or is there twice")
        found.append((key, value))
    return found


ARRAYS: dict[str, Function] = {
    "array": Function((1, ANY_NUMBER), _made_types, lambda _, *values: list(values), strict=False),
    "map": Function((2, ANY_NUMBER), _map_types, _made_map, strict=False, fails=True),
    "named_struct": Function(
        (2, ANY_NUMBER), _struct_types, lambda _, *args: dict(zip(args[::2], args[1::2], strict=True)), strict=False
    ),
    "field": Function((2, 2), _field_types, lambda _, value, name: value[name]),
    "[]": Function((2, 2), _index_types, _indexed, fails=True),
    "element_at": Function((2, 2), _index_types, _indexed, fails=True),
    "try_element_at": Function((2, 2), _index_types, _indexed, fails=True),
    "get": Function((2, 2), _index_types, _indexed),
    "size": Function((1, 1), _size_types, simple(len)),
    "array_contains": Function((2, 2), _with_element(lambda _: BOOLEAN), _contains),
    "array_position": Function((2, 2), _with_element(lambda _: LONG), _position),
    "array_remove": Function(
        (2, 2),
        _with_element(lambda kind: kind),
        simple(lambda values, item: [v for v in values if v is None or order(v, item) != 0]),
    ),
    "array_distinct": Function((1, 1), _of_array(lambda kind: kind, compares=True), simple(_distinct)),
    "array_min": Function(
        (1, 1),
        _of_array(lambda kind: kind.element, compares=True),
        simple(lambda values: next(iter(_ordered(values)), None)),
    ),
    "array_max": Function(
        (1, 1),
        _of_array(lambda kind: kind.element, compares=True),
        simple(lambda values: next(iter(_ordered(values, up=False)), None)),
    ),
    "sort_array": Function((1, 2), _sort_types, simple(_sorted)),
    "array_sort": Function(
        (1, 1),
        _of_array(lambda kind: kind, compares=True),
        simple(lambda values: [*_ordered(values), *[None] * values.count(None)]),
    ),
    "array_compact": Function(
        (1, 1),
        _of_array(lambda kind: ArrayType(kind.element, False)),
        simple(lambda values: [v for v in values if v is not None]),
    ),
    "array_join": Function((2, 3), _join_types, _joined, constants=True),
    "arrays_overlap": Function((2, 2), _same_arrays(BOOLEAN), _overlap),
    "slice": Function((3, 3), _slice_types, simple(sliced), fails=True),
    "flatten": Function(
        (1, 1),
        _flat_types,
        simple(lambda values: None if None in values else [item for value in values for item in value]),
    ),
    "array_concat": Function(
        (1, ANY_NUMBER), _same_arrays(compares=False), lambda _, *values: [item for value in values for item in value]
    ),
    "array_reverse": Function((1, 1), _of_array(lambda kind: kind), simple(lambda values: values[::-1])),
    "map_keys": Function(
        (1, 1),
        lambda name, args: (args, ArrayType(_map(name, args[0]).key, False)),
        simple(lambda pairs: [k for k, _ in pairs]),
    ),
    "map_values": Function(
        (1, 1),
        lambda name, args: (args, ArrayType(_map(name, args[0]).value, _map(name, args[0]).value_contains_null)),
        simple(lambda pairs: [v for _, v in pairs]),
    ),
    "map_contains_key": Function(
        (2, 2), _key_types, simple(lambda pairs, key: any(order(k, key) == 0 for k, _ in pairs))
    ),
}
