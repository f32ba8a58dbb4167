"""``make generate NAME=reference``: the page ``docs/functions.md``, whose results are computed while it is written."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

from formatting import formatted

from refdelta.expressions.evaluate import value_of
from refdelta.expressions.functions import ALIASES
from refdelta.expressions.sql import parse_expression
from refdelta.expressions.sql_dialect import CAST_FUNCTIONS, CLOCKS
from refdelta.table.partition_values import serialize
from refdelta.table.types import ArrayType, DataType, MapType, StructType, is_nested

PAGE = Path(__file__).parents[2] / "docs" / "functions.md"

_HEAD = """# Functions of SQL

Written by `make generate NAME=reference`; a test fails where it differs. These are the functions of predicates,
assigned values and other [SQL expressions](reference.md#sql-expressions), with an example and its result. They have the
values of Spark 4 with its ANSI errors, and are compared with it over random rows. Other names are refused, with the
nearest one of these.

Arguments called `pattern`, `part`, `format`, `unit`, `limit`, `count` or `charset` are constants. A null argument makes
a null, except where a function is there for nulls. Times are in UTC.

- The last digits of logarithms, powers and trigonometric functions may differ from those of Spark, as Java leaves them
  open.
- Regular expressions have Java's syntax, and RE2 matches them in linear time. Constructs that RE2 does not have, or has
  with another meaning, are refused by name: lookaround, backreferences, possessive quantifiers and atomic groups;
  `\\Z`, `\\G`, `\\R`, `\\X`, `\\h` and `\\v`; intersections of classes, and classes of `\\p` beyond ASCII; flags
  other than `i` and `s`; octal codes; a `$` before the end of the pattern. `regexp_count`, `regexp_extract_all`,
  `regexp_replace` and `split` refuse patterns that may match the empty string; `split(s, '')` makes characters.
- Some errors are not Spark's: `base64` takes 57 bytes at most, and `\\b` strings of ASCII alone. Where `$` matches
  before a last line end, functions other than `rlike` raise an error: write `\\z` for the end of the string.
"""

_SECTIONS = {
    "Numbers": """
abs(x): abs(-2)
bround(x[, places]): bround(2.5)
cbrt(x): cbrt(27)
ceil(x): ceil(1.2)
degrees(x): degrees(pi())
e(): e()
exp(x): exp(0)
expm1(x): expm1(0)
factorial(n): factorial(5)
floor(x): floor(-1.2)
greatest(x, y, ...): greatest(1, 3, NULL)
hypot(x, y): hypot(3, 4)
least(x, y, ...): least(1, 3, NULL)
ln(x): ln(1)
log([base, ]x): log(2, 8)
log10(x): log10(100)
log1p(x): log1p(0)
log2(x): log2(8)
mod(x, y): mod(7, -3)
nanvl(x, y): nanvl(double('NaN'), 0.0D)
negative(x): negative(1)
pi(): pi()
pmod(n, m): pmod(-7, 3)
positive(x): positive(1)
power(x, y): power(2, 10)
radians(x): radians(180)
rint(x): rint(2.5)
round(x[, places]): round(2.345, 2)
sign(x): sign(-3)
sqrt(x): sqrt(9)
""",
    "Trigonometry": """
acos(x): acos(1)
asin(x): asin(0)
atan(x): atan(0)
atan2(y, x): atan2(0, 1)
cos(x): cos(0)
cosh(x): cosh(0)
cot(x): round(cot(0.5), 3)
csc(x): csc(pi() / 2)
sec(x): sec(0)
sin(x): sin(0)
sinh(x): sinh(0)
tan(x): tan(0)
tanh(x): tanh(0)
""",
    "Null instead of an error": """
try_add(x, y): try_add(2147483647, 1)
try_divide(x, y): try_divide(1, 0)
try_element_at(array_or_map, key): try_element_at(array(1, 2), 3)
try_mod(x, y): try_mod(1, 0)
try_multiply(x, y): try_multiply(2147483647, 2)
try_subtract(x, y): try_subtract(3, 1)
try_to_date(s[, format]): try_to_date('2024-02-30')
try_to_timestamp(s[, format]): try_to_timestamp('noon')
""",
    "Bits and codes": """
base64(x): base64('Delta')
bin(n): bin(10)
bit_count(n): bit_count(7)
bit_get(n, place): bit_get(4, 2)
crc32(x): crc32('Delta')
decode(x, charset): decode(X'41', 'UTF-8')
encode(s, charset): encode('A', 'UTF-8')
hex(x): hex(255)
md5(x): md5('Delta')
sha1(x): sha1('Delta')
sha2(x, bits): sha2('Delta', 256)
shiftleft(n, count): shiftleft(1, 4)
shiftright(n, count): shiftright(-8, 1)
shiftrightunsigned(n, count): shiftrightunsigned(-8, 28)
unbase64(s): unbase64('RGVsdGE=')
unhex(s): unhex('41')
""",
    "Strings": """
ascii(s): ascii('A')
bit_length(x): bit_length('ä')
btrim(s[, characters]): btrim('--a-', '-')
chr(n): chr(65)
concat(s, ...): concat('a', 'b')
concat_ws(part, s, ...): concat_ws(', ', 'a', NULL, 'b')
contains(s, part): contains('Delta', 'elt')
elt(n, s, ...): elt(2, 'a', 'b')
endswith(s, part): endswith('Delta', 'ta')
find_in_set(s, list): find_in_set('b', 'a,b,c')
initcap(s): initcap('delta lake')
instr(s, part): instr('Delta', 't')
left(s, count): left('Delta', 2)
length(x): length('Delta')
levenshtein(s, other): levenshtein('Delta', 'Delft')
locate(part, s[, start]): locate('a', 'banana', 3)
lower(s): lower('Delta')
lpad(s, count[, part]): lpad('7', 3, '0')
ltrim([characters, ]s): ltrim('  a')
luhn_check(s): luhn_check('79927398713')
octet_length(x): octet_length('ä')
overlay(s, part, start[, count]): overlay('Spark', 'l', 2, 3)
position(part, s[, start]): position('l' IN 'Delta')
repeat(s, count): repeat('ab', 2)
replace(s, part[, new]): replace('Delta', 'l', 'L')
reverse(s): reverse('Delta')
right(s, count): right('Delta', 2)
rpad(s, count[, part]): rpad('7', 3, '.')
rtrim([characters, ]s): rtrim('a  ')
soundex(s): soundex('Robert')
space(count): space(2)
split_part(s, part, n): split_part('a.b.c', '.', 2)
startswith(s, part): startswith('Delta', 'De')
substring(s, start[, count]): substring('Delta', 2, 3)
substring_index(s, part, n): substring_index('a.b.c', '.', 2)
translate(s, old, new): translate('Delta', 'lt', 'LT')
trim(s): trim(' a ')
upper(s): upper('Delta')
""",
    "Regular expressions": """
regexp_count(s, pattern): regexp_count('a1b22', '[0-9]+')
regexp_extract(s, pattern[, group]): regexp_extract('a1b22', '([a-z])([0-9]+)', 2)
regexp_extract_all(s, pattern[, group]): regexp_extract_all('a1b22', '[0-9]+', 0)
regexp_instr(s, pattern): regexp_instr('ab12', '[0-9]')
regexp_replace(s, pattern, new[, start]): regexp_replace('a1b22', '[0-9]+', '#')
regexp_substr(s, pattern): regexp_substr('ab12', '[0-9]+')
rlike(s, pattern): rlike('Delta', '^D.*a$')
split(s, pattern[, limit]): split('a,b', ',')
""",
    "Dates and times": """
add_months(date, n): add_months(DATE'2024-01-31', 1)
date_add(date, days): date_add(DATE'2024-02-28', 2)
date_diff(end, start): date_diff(DATE'2024-03-01', DATE'2024-02-01')
date_format(time, format): date_format(TIMESTAMP'2024-01-31 10:00:00Z', 'd MMM yyyy')
date_from_unix_date(days): date_from_unix_date(19000)
date_part(unit, time): date_part('week', DATE'2024-01-31')
date_sub(date, days): date_sub(DATE'2024-03-01', 1)
date_trunc(unit, time): date_trunc('hour', TIMESTAMP'2024-01-31 10:11:12Z')
dateadd(unit, n, time): dateadd(HOUR, 2, TIMESTAMP'2024-01-31 10:00:00Z')
datediff(end, start): datediff(DATE'2024-03-01', DATE'2024-02-01')
datepart(unit, time): datepart('year', DATE'2024-01-31')
day(date): day(DATE'2024-01-31')
dayname(date): dayname(DATE'2024-01-31')
dayofweek(date): dayofweek(DATE'2024-01-31')
dayofyear(date): dayofyear(DATE'2024-01-31')
from_unixtime(seconds[, format]): from_unixtime(0)
hour(time): hour(TIMESTAMP'2024-01-31 10:11:12Z')
last_day(date): last_day(DATE'2024-02-03')
make_date(year, month, day): make_date(2024, 1, 31)
make_dt_interval([days, hours, minutes, seconds]): DATE'2024-01-31' + make_dt_interval(1)
make_interval([years, months, weeks, days]): DATE'2024-01-31' + make_interval(0, 1)
make_timestamp(year, month, day, hour, minute, second): make_timestamp(2024, 1, 31, 10, 11, 12.5)
make_timestamp_ntz(year, month, day, hour, minute, second): make_timestamp_ntz(2024, 1, 31, 10, 11, 12.5)
make_ym_interval([years, months]): DATE'2024-01-31' + make_ym_interval(0, 1)
minute(time): minute(TIMESTAMP'2024-01-31 10:11:12Z')
month(date): month(DATE'2024-01-31')
monthname(date): monthname(DATE'2024-01-31')
months_between(end, start[, rounded]): months_between(DATE'2024-03-01', DATE'2024-01-16')
next_day(date, name): next_day(DATE'2024-01-31', 'Mon')
quarter(date): quarter(DATE'2024-01-31')
second(time): second(TIMESTAMP'2024-01-31 10:11:12Z')
timestamp_micros(n): timestamp_micros(1000000)
timestamp_millis(n): timestamp_millis(1000)
timestamp_seconds(n): timestamp_seconds(1)
timestampadd(unit, n, time): timestampadd(MONTH, 1, TIMESTAMP'2024-01-31 10:00:00Z')
timestampdiff(unit, start, end): timestampdiff(DAY, TIMESTAMP'2024-01-01 00:00:00Z', TIMESTAMP'2024-01-31 00:00:00Z')
to_date(s[, format]): to_date('31.1.2024', 'd.M.yyyy')
to_timestamp(s[, format]): to_timestamp('31.1.2024', 'd.M.yyyy')
to_unix_timestamp(s[, format]): to_unix_timestamp('1970-01-02', 'yyyy-MM-dd')
trunc(date, unit): trunc(DATE'2024-01-31', 'month')
unix_date(date): unix_date(DATE'1970-01-02')
unix_micros(time): unix_micros(TIMESTAMP'1970-01-01 00:00:01Z')
unix_millis(time): unix_millis(TIMESTAMP'1970-01-01 00:00:01Z')
unix_seconds(time): unix_seconds(TIMESTAMP'1970-01-01 00:00:01Z')
unix_timestamp([s[, format]]): unix_timestamp('1970-01-01 00:01:00')
weekday(date): weekday(DATE'2024-01-31')
weekofyear(date): weekofyear(DATE'2024-01-31')
year(date): year(DATE'2024-01-31')
""",
    "Arrays, maps and structs": """
array(x, ...): array(1, 2)
array_compact(a): array_compact(array(1, NULL))
array_contains(a, x): array_contains(array(1, 2), 2)
array_distinct(a): array_distinct(array(1, 2, 1))
array_join(a, part[, for_null]): array_join(array('a', 'b'), '-')
array_max(a): array_max(array(1, 3, 2))
array_min(a): array_min(array(1, 3, 2))
array_position(a, x): array_position(array('a', 'b'), 'b')
array_remove(a, x): array_remove(array(1, 2, 1), 1)
array_sort(a): array_sort(array(2, NULL, 1))
arrays_overlap(a, b): arrays_overlap(array(1, 2), array(2, 3))
element_at(array_or_map, key): element_at(array('a', 'b'), -1)
flatten(a): flatten(array(array(1), array(2, 3)))
get(a, place): get(array('a', 'b'), 0)
map(key, value, ...): map('a', 1, 'b', 2)
map_contains_key(m, key): map_contains_key(map('a', 1), 'b')
map_keys(m): map_keys(map('a', 1, 'b', 2))
map_values(m): map_values(map('a', 1, 'b', 2))
named_struct(name, value, ...): named_struct('x', 1, 'y', 'b')
size(array_or_map): size(array(1, 2))
slice(a, start, count): slice(array(1, 2, 3), 2, 2)
sort_array(a[, up]): sort_array(array(2, NULL, 1), false)
""",
    "Conditions and nulls": """
coalesce(x, ...): coalesce(NULL, 1)
equal_null(x, y): equal_null(NULL, NULL)
isnan(x): isnan(double('NaN'))
isnotnull(x): isnotnull(1)
isnull(x): isnull(1)
nullif(x, y): nullif(1, 1)
nullifzero(x): nullifzero(0)
nvl2(x, if_not_null, if_null): nvl2(NULL, 1, 2)
zeroifnull(x): zeroifnull(NULL)
""",
}


def entries() -> dict[str, list[tuple[str, str]]]:
    """For each section the signatures and examples."""
    return {title: [_entry(line) for line in text.split("\n") if line] for title, text in _SECTIONS.items()}


def _entry(line: str) -> tuple[str, str]:
    signature, _, example = line.partition("): ")
    return signature + ")", example


def names() -> set[str]:
    """The names of all functions on the page."""
    listed = {signature.partition("(")[0] for found in entries().values() for signature, _ in found}
    return {*listed, *ALIASES, *CAST_FUNCTIONS, *CLOCKS}


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for title, found in entries().items():
        parts += [f"## {title}\n", "| function | example | result |\n|---|---|---|"]
        for signature, example in found:
            value = parse_expression(example, StructType(()))
            parts.append(f"| `{signature}` | `{example}` | `{_shown(value_of(value, {}), value.type)}` |")
        parts.append("")
    casts = ", ".join(f"`{name}`" for name in sorted(CAST_FUNCTIONS))
    clocks = ", ".join(f"`{name}()`" for name in sorted(CLOCKS))
    aliases = ", ".join(f"`{alias}` (`{name}`)" for alias, name in sorted(ALIASES.items()))
    parts += [
        f"## Casts\n\n{casts}: of one argument, as `cast(x AS type)`.\n",
        f"## The time at which the statement began\n\n{clocks}; the parentheses can be left out.\n",
        f"## Other names\n\n{aliases}.\n",
    ]
    return formatted("\n".join(parts))


def _shown(value: Any, kind: DataType) -> str:
    if value is None:
        return "NULL"
    if isinstance(kind, ArrayType):
        return f"[{', '.join(_shown(item, kind.element) for item in value)}]"
    if isinstance(kind, MapType):
        return f"{{{', '.join(f'{_shown(k, kind.key)}: {_shown(v, kind.value)}' for k, v in value)}}}"
    if isinstance(kind, StructType):
        return f"{{{', '.join(f'{field.name}: {_shown(value[field.name], field.type)}' for field in kind)}}}"
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    if isinstance(value, str):
        return f"'{value}'"
    if isinstance(value, bool | float | Decimal):
        return str(value).lower() if isinstance(value, bool) else str(value)
    assert not is_nested(kind)
    return str(serialize(value, kind))


if __name__ == "__main__":
    PAGE.write_text(page())
