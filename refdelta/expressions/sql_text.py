"""Names and constants as Spark's SQL writes them: what :func:`refdelta.expressions.expression.to_sql` is made
of.
"""

from __future__ import annotations

import re
from typing import Any

from refdelta.expressions.interval_types import DAY_TIME, DAYS, YEAR_MONTH
from refdelta.table import partition_values
from refdelta.table.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
)


def quoted(name: str) -> str:
    """A name, in backquotes where it needs them."""
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and name.lower() not in _WORDS
    return name if plain else "`" + name.replace("`", "``") + "`"


_WORDS = frozenset(
    [
        "all",
        "and",
        "any",
        "as",
        "between",
        "both",
        "by",
        "case",
        "cast",
        "date",
        "distinct",
        "else",
        "end",
        "escape",
        "exists",
        "false",
        "from",
        "group",
        "having",
        "in",
        "interval",
        "is",
        "join",
        "like",
        "limit",
        "not",
        "null",
        "on",
        "or",
        "order",
        "select",
        "some",
        "table",
        "then",
        "timestamp",
        "true",
        "union",
        "using",
        "when",
        "where",
    ]
)


def string_sql(text: str) -> str:
    """A string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t").replace("\0", "\\0") + "'"


_SUFFIX: dict[DataType, str] = {LONG: "L", SHORT: "S", BYTE: "Y"}


def literal_sql(value: Any, data_type: DataType) -> str:
    """An internal value as a literal of Spark's dialect."""
    if value is None:
        return "NULL"
    if data_type == STRING:
        return string_sql(value)
    if data_type == BOOLEAN:
        return str(value).upper()
    if data_type == DAYS:
        return f"INTERVAL '{value // partition_values.DAY}' DAY"
    if data_type == DAY_TIME:
        sign, size = "-" if value < 0 else "", abs(value)
        return f"INTERVAL '{sign}{size // 1_000_000}.{size % 1_000_000:06}' SECOND"
    if data_type == YEAR_MONTH:
        return f"INTERVAL '{value}' MONTH"
    if data_type == BINARY:
        return f"X'{bytes(value).hex().upper()}'"
    if data_type == DATE:
        return f"DATE '{partition_values.format_date(value)}'"
    if data_type in (TIMESTAMP, TIMESTAMP_NTZ):
        zone = data_type == TIMESTAMP
        return f"TIMESTAMP{'' if zone else '_NTZ'} '{partition_values.format_timestamp(value, zone=zone)}'"
    if isinstance(data_type, DecimalType):
        return f"CAST('{value:f}' AS DECIMAL({data_type.precision}, {data_type.scale}))"
    if data_type in (DOUBLE, FLOAT):
        return f"CAST('{partition_values.format_float(value)}' AS {str(data_type).upper()})"
    return f"{value}{_SUFFIX.get(data_type, '')}"


_TYPE_NAMES = {"long": "BIGINT", "integer": "INT", "short": "SMALLINT", "byte": "TINYINT"}


def type_sql(data_type: DataType) -> str:
    """A type as CAST names it."""
    if isinstance(data_type, DecimalType):
        return f"DECIMAL({data_type.precision}, {data_type.scale})"
    return _TYPE_NAMES.get(str(data_type), str(data_type).upper())
