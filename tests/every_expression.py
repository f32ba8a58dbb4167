"""Every function, operator and cast, over values of every type, in all places of their arguments.

:func:`texts` has the expressions as SQL, over the columns of :data:`SCHEMA`; :func:`broken` finds out whether one is
refused or evaluated, as it must be.
"""

from __future__ import annotations

import functools
import itertools
import json
import random
import re

import pyarrow as pa

import refdelta
import tiers
from function_cases import GROUPS, value
from function_cases import SCHEMA as FLAT
from predicate_strategies import DEC, schema_of
from refdelta.arrow.partition import from_internal, to_internal
from refdelta.arrow.schema import arrow_type, to_arrow
from refdelta.engine.scan.skipping import prune
from refdelta.errors import DeltaError, ExpressionError, PredicateError
from refdelta.expressions.evaluate import evaluate, evaluate_value, row_mask, value_of
from refdelta.expressions.functions import ALIASES, FUNCTIONS
from refdelta.expressions.sql import parse_expression, parse_predicate
from refdelta.expressions.sql_dialect import CAST_FUNCTIONS, CLOCKS, CONSTANTS, EXTRACTED, SHORTHANDS, TYPES
from refdelta.expressions.sql_reader import KNOWN
from refdelta.table.types import (
    BOOLEAN,
    DATE,
    INTEGER,
    STRING,
    TIMESTAMP,
    VARIANT,
    VOID,
    ArrayType,
    DecimalType,
    MapType,
    StructType,
)

_STRUCT = schema_of(x=INTEGER, z=VOID, v=VARIANT)
SCHEMA = StructType(
    (
        *FLAT,
        *schema_of(
            z=VOID,
            v=VARIANT,
            big=DecimalType(38, 18),
            st=_STRUCT,
            sz=schema_of(z=VOID),
            az=ArrayType(VOID),
            av=ArrayType(VARIANT),
            at=ArrayType(DATE),
            au=ArrayType(TIMESTAMP),
            an=ArrayType(DEC),
            ab=ArrayType(BOOLEAN),
            rs=ArrayType(_STRUCT),
            mv=MapType(STRING, VARIANT),
            mi=MapType(DATE, ArrayType(STRING)),
        ),
    )
)

OPERANDS = (
    *SCHEMA.names,
    *("st.x", "st.z", "sz.z", "st.v", "xs[0]", "az[0]", "av[0]", "rs[0]", "rs[0].z", "m['a']", "mv['a']", "mi[dt]"),
    *("NULL", "1", "-1", "3000000000", "1.5", "2.5D", "'x'", "''", "'2020-02-29'", "'12'", "TRUE", "X'61'"),
    *("DATE'2020-02-29'", "TIMESTAMP'2020-02-29 10:00:00'", "TIMESTAMP_NTZ'2020-02-29 10:00:00'", "current_date()"),
    *("INTERVAL '1' DAY", "INTERVAL '1' MONTH", "INTERVAL '1' HOUR", "(dt - du)", "(ts - tt)", "(n - ts)"),
    *("make_ym_interval(j, j)", "make_dt_interval(j)", "array()", "array(NULL)", "array(1, 2)", "array(dt - du)"),
    *("map('a', 1)", "map('a', NULL)", "named_struct('x', 1)", "named_struct('z', NULL)", "array(array(NULL))"),
    *("(i = 1)", "(z IS NULL)", "(z = 1)", "CASE WHEN b THEN z END", "CAST(z AS INT)", "coalesce(z, NULL)", "-d"),
    *("CAST(NULL AS STRING)", "CAST(NULL AS DOUBLE)", "CAST(NULL AS DATE)", "CAST(z AS STRING)", "(NOT b)"),
)
"""Values of every type: columns, fields, elements, constants, nulls, intervals, conditions."""

KINDS = (
    *("sh", "l", "f", "d", "s", "dec", "dt", "ts", "n", "b", "bin", "z", "v", "st", "ai", "xs", "az", "av", "m"),
    *("NULL", "1", "1.5", "2.5D", "'x'", "DATE'2020-02-29'", "INTERVAL '1' DAY", "INTERVAL '1' MONTH", "(dt - du)"),
    *("(ts - tt)", "array(NULL)", "map('a', NULL)", "CAST(z AS INT)", "CAST(NULL AS STRING)", "(z = 1)", "st.z"),
)
"""One of each kind, for functions and operators of two."""

_BINARY = (
    *("+", "-", "*", "/", "%", "div", "&", "|", "^", "<<", ">>", "||"),
    *("=", "<>", "<", ">=", "<=>", "AND", "OR", "IS NOT DISTINCT FROM"),
)
_FORMS_OF_ONE = (
    *("-{0}", "~{0}", "NOT {0}", "{0} IS NULL", "{0} IS NOT NULL", "{0} IS TRUE", "{0} IS NOT FALSE"),
    *("{0} LIKE 'x%'", "{0} ILIKE 'x_'", "{0} RLIKE 'x'", "{0} LIKE NULL", "{0} LIKE ANY ('x%', 'y')"),
    *("{0} IN (1, NULL)", "{0} IN ('x', 'y')", "{0} IN (NULL)", "{0} NOT IN (DATE'2020-02-29')", "{0} IN (X'61')"),
    *("{0} BETWEEN 1 AND 2", "{0} BETWEEN 'a' AND NULL", "{0}.x", "{0}.z", "{0}[0]", "{0}['a']", "{0}[z]"),
    *("CASE WHEN {0} THEN 1 END", "CASE WHEN b THEN {0} END", "CASE {0} WHEN NULL THEN 1 ELSE 2 END"),
    *("IF({0}, 1, 2)", "IF(b, {0}, NULL)", "trim(BOTH 'a' FROM {0})", "trim(LEADING {0} FROM s)"),
    *(f"extract({name} FROM {{0}})" for name in sorted({*EXTRACTED})),
    *(f"date_part('{name}', {{0}})" for name in ("year", "seconds", "week")),
    *(f"{cast}({{0}} AS {kind})" for cast in ("CAST", "TRY_CAST") for kind in (*sorted(TYPES), "DECIMAL(5, 2)")),
    *("timestampadd(DAY, {0}, ts)", "timestampadd(MONTH, 1, {0})", "timestampdiff(HOUR, {0}, ts)"),
    *("dateadd(HOUR, {0}, dt)", "datediff(DAY, {0}, ts)", "position({0} IN s)", "position('a' IN {0})"),
)
_FORMS_OF_TWO = (
    *(f"{{0}} {op} {{1}}" for op in _BINARY),
    *("{0}[{1}]", "{0} IN ({1})", "{0} IN ({1}, i)", "{0} BETWEEN {1} AND {1}", "CASE WHEN b THEN {0} ELSE {1} END"),
    *("CASE {0} WHEN {1} THEN 1 END", "IF(b, {0}, {1})", "IF({0}, {1}, NULL)", "({0} + {1}) * 2", "-({0} - {1})"),
)
_PARTITIONS = ["by", "t", "du", "g"]
_COLUMN = re.compile(rf"\b({'|'.join(FLAT.names)})\b(?!\s*\()")


def texts():
    """All expressions, in an order that spreads their forms."""
    found = dict.fromkeys([*OPERANDS, *_calls(1), *_calls(2), *_varied()])
    for form in _FORMS_OF_ONE:
        found.update(dict.fromkeys(form.format(one) for one in OPERANDS))
    for form in _FORMS_OF_TWO:
        found.update(dict.fromkeys(form.format(*pair) for pair in itertools.product(KINDS, KINDS)))
    shuffled = list(found)
    random.Random(tiers.seed(5)).shuffle(shuffled)
    return shuffled


def _calls(many):
    """Calls of all functions that take so many arguments."""
    for name in sorted(KNOWN - set(CLOCKS) - set(CONSTANTS)):
        function = FUNCTIONS.get(ALIASES.get(name, name))
        least, most = (SHORTHANDS[name],) * 2 if name in SHORTHANDS else (1, 3) if function is None else function.arity
        if least <= many <= most or (name in CAST_FUNCTIONS and many == 1):
            yield from (
                f"{name}({', '.join(chosen)})"
                for chosen in itertools.product(OPERANDS if many == 1 else KINDS, repeat=many)
            )


def _varied():
    """The calls of other tests, which are right, with another operand in the place of one of their columns."""
    for text in dict.fromkeys(itertools.chain.from_iterable(GROUPS.values())):
        for place in _COLUMN.finditer(text):
            yield from (text[: place.start()] + one + text[place.end() :] for one in OPERANDS)


# --- what is wrong with one -----------------------------------------------------------------------------------------


def _value(kind, chosen):
    if chosen.random() < 0.15 or kind == VOID:
        return None
    if isinstance(kind, StructType):
        return {item.name: _value(item.type, chosen) for item in kind}
    if isinstance(kind, ArrayType):
        return [_value(kind.element, chosen) for _ in range(chosen.choice([0, 1, 2]))]
    if isinstance(kind, MapType):
        keys = [18_321, -1] if kind.key == DATE else ["a", "b"]
        return [(key, _value(kind.value, chosen)) for key in keys[: chosen.choice([0, 1, 2])]]
    return value(DEC if isinstance(kind, DecimalType) else kind, chosen)


def _array(kind, chosen, many):
    """A column of random values."""
    if kind == VARIANT:
        return refdelta.variants([chosen.choice([None, 1, "x", {"a": 1}, [1.5]]) for _ in range(many)])
    if not _holds(kind, VARIANT):
        return _typed([_value(kind, chosen) for _ in range(many)], kind)
    if isinstance(kind, StructType):
        parts = [_array(item.type, chosen, many) for item in kind]
        missing = pa.array([chosen.random() < 0.15 for _ in range(many)])
        return pa.StructArray.from_arrays(parts, fields=list(arrow_type(kind)), mask=missing)
    offsets = pa.array(range(many + 1), pa.int32())
    if isinstance(kind, ArrayType):
        return pa.ListArray.from_arrays(offsets, _array(kind.element, chosen, many), type=arrow_type(kind))
    target = arrow_type(kind)
    parts = [pa.array(["a"] * many), _array(kind.value, chosen, many)]
    entries = pa.StructArray.from_arrays(parts, fields=[target.key_field, target.item_field])
    return pa.Array.from_buffers(target, many, [None, offsets.buffers()[1]], children=[entries])


def _typed(values, kind):
    """Internal values, also of times in what is nested."""
    if isinstance(kind, ArrayType):
        offsets = [0, *itertools.accumulate(len(one or ()) for one in values)]
        inner = _typed([item for one in values for item in one or ()], kind.element)
        return _lists(values, offsets, inner, arrow_type(kind))
    if isinstance(kind, MapType):
        offsets = [0, *itertools.accumulate(len(one or ()) for one in values)]
        keys = _typed([key for one in values for key, _ in one or ()], kind.key)
        items = _typed([item for one in values for _, item in one or ()], kind.value)
        target = arrow_type(kind)
        entries = pa.StructArray.from_arrays([keys, items], fields=[target.key_field, target.item_field])
        return _lists(values, offsets, entries, target)
    return from_internal(values, kind)


def _lists(values, offsets, inner, target):
    valid = pa.array([one is not None for one in values], pa.bool_())
    return pa.Array.from_buffers(
        target, len(values), [valid.buffers()[1], pa.array(offsets, pa.int32()).buffers()[1]], children=[inner]
    )


def _holds(kind, wanted):
    if isinstance(kind, StructType):
        return any(_holds(item.type, wanted) for item in kind)
    if isinstance(kind, ArrayType):
        return _holds(kind.element, wanted)
    return _holds(kind.value, wanted) if isinstance(kind, MapType) else kind == wanted


@functools.cache
def batch(many=12):
    """Random rows of :data:`SCHEMA`."""
    chosen = random.Random(7)
    arrays = [_array(item.type, chosen, many) for item in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=to_arrow(SCHEMA))


@functools.cache
def nulls():
    """Two rows of nulls."""
    return pa.RecordBatch.from_arrays([pa.nulls(2, kind) for kind in to_arrow(SCHEMA).types], schema=to_arrow(SCHEMA))


@functools.cache
def rows():
    """The rows of :func:`batch` as internal values."""
    columns = {item.name: to_internal(batch()[item.name], item.type) for item in SCHEMA}
    return [{name: values[place] for name, values in columns.items()} for place in range(batch().num_rows)]


@functools.cache
def _files():
    """A list of one file, without statistics, and one with some."""
    bounds = {"minValues": {"i": 1, "s": "a", "d": 0.5}, "maxValues": {"i": 2, "s": "b", "d": 1.5}}
    nulls = {"i": 0, "s": 1, "d": 2, "z": 2, "v": 1, "dt": 0, "ts": 2, "b": 2, "dec": 2}
    stats = [json.dumps({"numRecords": 2}), json.dumps({"numRecords": 2, **bounds, "nullCount": nulls})]
    values = [[(name, None) for name in _PARTITIONS], [*zip(_PARTITIONS, ["1", "x", "2020-02-29", "1.5"], strict=True)]]
    return pa.table(
        {"partitionValues": pa.array(values, pa.map_(pa.string(), pa.string())), "stats": pa.array(stats, pa.string())}
    )


def broken(text):
    """What is wrong with an expression; None if it is refused, or is evaluated everywhere.

    Returns:
        The step that failed, and the error. An ``ExpressionError`` is right, unless another error is its cause.
    """
    try:
        bound = parse_expression(text, SCHEMA, now=0)
    except PredicateError as error:
        return None if _words(text)[:80] in _words(str(error)) else ("not named", error)
    except DeltaError as error:
        return None if isinstance(error, ValueError) else ("binding", error)
    except Exception as error:
        return "binding", error
    for step, function in _steps(text, bound):
        try:
            function()
        except ExpressionError as error:
            if error.__cause__ is not None:
                return step, error
        except Exception as error:
            return step, error
    return None


def _words(text):
    """A text without quotes, escapes and signs, as a part of which a message may have it."""
    return re.sub(r"\W", "", text)


def _steps(text, bound):
    def computed(given):
        found = evaluate_value(bound, given)
        assert found.type == arrow_type(bound.type), f"{found.type} where {bound.type} was promised"
        assert len(found) == given.num_rows
        found.validate(full=True)

    def by_row():
        for row in rows():
            value_of(bound, row)

    yield "columns", lambda: computed(batch())
    yield "no rows", lambda: computed(batch().slice(0, 0))
    yield "null rows", lambda: computed(nulls())
    yield "rows", by_row
    for condition in (f"({text}) IS NULL", f"NOT ({text})", f"({text}) = ({text})", f"({text}) <=> NULL", text):
        try:
            predicate = parse_predicate(condition, SCHEMA, now=0)
        except (PredicateError, ValueError):
            continue

        def masked(predicate=predicate):
            assert row_mask(predicate, batch()).type == pa.bool_()

        yield f"{condition}: mask", masked
        yield f"{condition}: rows", lambda predicate=predicate: [evaluate(predicate, row) for row in rows()]
        yield f"{condition}: pruning", lambda predicate=predicate: prune(_files(), SCHEMA, _PARTITIONS, predicate)
