"""The functions of SQL that expressions may call, by name.

Each is one entry in a module of :mod:`refdelta.expressions.library`: its signature, its definition on internal values
and, where they are faster by far, its columns. A further function is a further entry there; it is called by its name.
"""

from __future__ import annotations

from refdelta.errors import PredicateError
from refdelta.expressions.expression import Call, Value
from refdelta.expressions.library.arrays import ARRAYS
from refdelta.expressions.library.intervals import INTERVAL_FUNCTIONS
from refdelta.expressions.library.numbers import NUMBERS
from refdelta.expressions.library.regular_expressions import REGULAR_EXPRESSIONS
from refdelta.expressions.library.text import TEXT
from refdelta.expressions.library.times import TIMES
from refdelta.expressions.signature import ANY_NUMBER, Function
from refdelta.table.types import BINARY

FUNCTIONS: dict[str, Function] = {
    **NUMBERS,
    **TEXT,
    **REGULAR_EXPRESSIONS,
    **TIMES,
    **INTERVAL_FUNCTIONS,
    **ARRAYS,
}

ALIASES = {
    "ucase": "upper",
    "lcase": "lower",
    "char_length": "length",
    "character_length": "length",
    "len": "length",
    "substr": "substring",
    "dayofmonth": "day",
    "dateadd": "date_add",
    "date_diff": "datediff",
    "ceiling": "ceil",
    "mod": "%",
    "negative": "-",
    "nvl": "coalesce",
    "ifnull": "coalesce",
    "pow": "power",
    "signum": "sign",
    "getbit": "bit_get",
    "char": "chr",
    "sha": "sha1",
    "regexp": "rlike",
    "regexp_like": "rlike",
    "cardinality": "size",
    "array_size": "size",
    "unix_timestamp": "to_unix_timestamp",
}
"""Other names of the same functions."""


_OF_STRINGS = {
    *("concat", "left", "right", "substring", "lpad", "rpad", "overlay", "elt", "startswith", "endswith", "contains"),
}
"""Functions that have another form for binaries in Spark."""


def typed_call(name: str, args: tuple[Value, ...]) -> Call:
    """A call with its types found; the name is one of :data:`FUNCTIONS`.

    Raises:
        PredicateError: these arguments are not what the function takes.
    """
    function = FUNCTIONS[name]
    least, most = function.arity
    if not least <= len(args) <= most:
        many = f"{least}" if least == most else f"at least {least}" if most == ANY_NUMBER else f"{least} to {most}"
        raise PredicateError(f"{name} takes {many} argument{'' if many == '1' else 's'}, not {len(args)}")
    binary = next((arg for arg in args if arg.type == BINARY), None) if name in _OF_STRINGS else None
    if binary is not None:
        raise PredicateError(f"{name} of a binary is not supported here; cast {binary} to a string")
    found, kind = function.typing(name, args)
    return Call(name, found, kind)
