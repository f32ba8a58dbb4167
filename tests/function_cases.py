"""Calls of every function of SQL, and rows of random values for them."""

from __future__ import annotations

import math
import random
from decimal import Decimal

import pyarrow as pa

from predicate_strategies import DEC, schema_of
from refdelta.arrow.partition import from_internal
from refdelta.arrow.schema import to_arrow
from refdelta.table.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    MapType,
)

SCHEMA = schema_of(
    by=BYTE,
    sh=SHORT,
    i=INTEGER,
    j=INTEGER,
    l=LONG,
    f=FLOAT,
    d=DOUBLE,
    g=DOUBLE,
    s=STRING,
    t=STRING,
    w=STRING,
    dec=DEC,
    dt=DATE,
    du=DATE,
    ts=TIMESTAMP,
    tt=TIMESTAMP,
    n=TIMESTAMP_NTZ,
    b=BOOLEAN,
    bin=BINARY,
    ai=ArrayType(INTEGER),
    aj=ArrayType(INTEGER),
    ad=ArrayType(DOUBLE),
    xs=ArrayType(STRING),
    aa=ArrayType(ArrayType(INTEGER)),
    m=MapType(STRING, INTEGER),
)

_FLOATS = [0.0, -0.0, 0.5, 1.0, -1.0, 2.5, 710.0, -745.5, 1e10, 1e300, 5e-324, math.inf, -math.inf, math.nan]
_WORDS = [
    "",
    "a",
    "ab",
    "Ab cD",
    "aaa",
    "b",
    " a ",
    "äöü",
    "straße",
    "\U0001f680x",
    "a\nb",
    "a.b.c",
    "x1y22z",
    "Robert",
]
_WORDS += ["Tymczak", "79927398713", "YWI=", "YQ==", "%%", "1F", "zz", "a,b,c", "2020-02-29", "2021-13-01", "a\r", "\n"]
_WORDS += ["2020-02-29 10:11:12", "10/3/2021", "Jan 5, 2020", "foo123bar45", "AB12-cd", "bab", "ǆa Ǆ", "é", "aXbXc"]
_DATES = [0, -1, 18_262, 18_321, 18_320, -719_162, 2_932_896, 19_000, -25_509, 30, 58, 59]
_MICROS = [0, 1, -1, 999_999, -86_400_000_000, 1_600_000_000_123_456, -62_135_596_800_000_000, 253_402_300_799_999_999]
_MICROS += [1_582_934_400_000_000, 1_580_428_800_000_000, 1_582_934_399_000_000]
_INTS = [0, 1, 2, 3, 7, -1, -2, 31, 33, 100, 2**31 - 1, -(2**31)]


def value(kind, chosen):
    """A random internal value, or None."""
    if chosen.random() < 0.15:
        return None
    if isinstance(kind, ArrayType):
        return [value(kind.element, chosen) for _ in range(chosen.choice([0, 1, 2, 3, 5]))]
    if isinstance(kind, MapType):
        keys = chosen.sample(["a", "b", "", "ä", "ab"], chosen.choice([0, 1, 3]))
        return [(key, value(kind.value, chosen)) for key in keys]
    if kind in (BYTE, SHORT, INTEGER, LONG):
        bits = {BYTE: 7, SHORT: 15, INTEGER: 31, LONG: 63}[kind]
        many = [*(n for n in _INTS if -(2**bits) <= n < 2**bits), 2**bits - 1, -(2**bits)]
        return chosen.choice(many) if chosen.random() < 0.7 else chosen.randrange(-(2**bits), 2**bits)
    if kind == FLOAT:
        return pa.scalar(chosen.choice([v for v in _FLOATS if abs(v) != 1e300]), pa.float32()).as_py()
    if kind == DOUBLE:
        return chosen.choice([*_FLOATS, chosen.uniform(-2, 2), chosen.gauss(0, 100), chosen.uniform(0, 1e6)])
    if kind == STRING:
        return chosen.choice(_WORDS)
    if kind == DEC:
        return (
            Decimal(chosen.choice([0, 100, 150, -225, 250, 350, 999_999, -999_999]))
            .scaleb(-2)
            .quantize(Decimal("0.01"))
        )
    if kind == DATE:
        return chosen.choice([*_DATES, chosen.randrange(-100_000, 100_000)])
    if kind in (TIMESTAMP, TIMESTAMP_NTZ):
        return chosen.choice([*_MICROS, chosen.randrange(-(2**52), 2**52)])
    return chosen.random() < 0.5 if kind == BOOLEAN else chosen.choice([b"", b"a", b"\x00\xff", b"abc", "ä".encode()])


def rows(seed, many=60):
    """So many random rows."""
    chosen = random.Random(seed)
    found = []
    for _ in range(many):
        row = {field.name: value(field.type, chosen) for field in SCHEMA}
        row["j"] = chosen.choice([None, 0, 1, 2, 3, -1, -2, 12, 29, 31])
        row["w"] = (
            None if row["w"] is None else "".join(chosen.choice("abAB1 .-é\n") for _ in range(chosen.randrange(9)))
        )
        found.append(row)
    return found


def batch_of(found):
    """Rows as a batch."""
    arrays = [from_internal([row[field.name] for row in found], field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=to_arrow(SCHEMA))


_UNARY = (
    "cbrt degrees radians rint sign sqrt log2 log10 log1p ln exp expm1 sin cos tan cot sec csc asin acos atan sinh "
)
_UNARY += "cosh tanh"
_REGEX = [
    "a",
    "a+",
    "[ab]",
    "(a)(b)?",
    "^a",
    "b$",
    r"\\d+",
    "a|ab",
    "",
    r"\\s",
    ".",
    "(?i)AB",
    "x",
    "[^a]",
    r"\\bab",
    "a*",
    "é",
    r"(.)\\.?",
]

# Patterns that match the empty string are refused where all matches are looked for; split takes an empty pattern.
_EMPTY = ["", "a*"]
_REFUSED = {("regexp_count", ""), ("regexp_count", "a*"), ("split", "a*")}
REFUSED = [
    *(f"{name}(s, '{pattern}')" for name, pattern in sorted(_REFUSED)),
    *(f"regexp_replace(s, '{pattern}', 'x')" for pattern in _EMPTY),
    *(f"regexp_extract_all(s, '{pattern}', 0)" for pattern in _EMPTY),
    "regexp_replace(w, '', '-', 2)",
]
"""Calls with regular expressions that are refused by name."""

GROUPS: dict[str, list[str]] = {
    "doubles": [
        *(f"{name}({column})" for name in _UNARY.split() for column in ("d", "g")),
        "log(d)",
        "log(d, g)",
        "power(d, g)",
        "pow(d, 2)",
        "pow(i, 2)",
        "power(d, 0.5)",
        "atan2(d, g)",
        "hypot(d, g)",
        "signum(f)",
        "nanvl(d, g)",
        "nanvl(f, 1.0D)",
        "nanvl(f, f)",
        "sqrt(i)",
        "pi()",
        "e()",
    ],
    "integers": [
        "bround(dec)",
        "bround(dec, 1)",
        "bround(dec, -1)",
        "bround(i, -1)",
        "bround(l, -2)",
        "bigint(i)",
        "smallint(i % 100)",
        "isnotnull(i)",
        "pmod(i, j)",
        "pmod(l, i)",
        "pmod(j, i)",
        "pmod(i, l)",
        "pmod(by, sh)",
        "factorial(j)",
        "i & j",
        "l | i",
        "by ^ sh",
        "~i",
        "~by",
        "~l",
        "shiftleft(i, j)",
        "shiftright(l, j)",
        "shiftrightunsigned(i, j)",
        "shiftrightunsigned(l, j)",
        "i << j",
        "i >> 2",
        "bit_count(l)",
        "bit_count(by)",
        "bit_count(b)",
        "bit_get(l, 63)",
        "getbit(i, 3)",
        "bin(l)",
        "bin(i)",
        "hex(l)",
        "hex(i)",
        "hex(s)",
        "hex(bin)",
        "unhex(s)",
        "unhex(w)",
        "try_add(i, j)",
        "try_add(l, i)",
        "try_subtract(l, i)",
        "try_multiply(i, i)",
        "try_multiply(l, l)",
        "try_divide(d, g)",
        "try_divide(i, j)",
        "try_mod(i, j)",
        "try_add(by, sh)",
        "try_add(dec, dec)",
        "try_multiply(dec, dec)",
        "try_divide(dec, dec)",
        "try_mod(dec, dec)",
        "try_add(d, g)",
    ],
    "strings": [
        "initcap(s)",
        "initcap(w)",
        "repeat(s, 3)",
        "repeat(s, -1)",
        "repeat(s, 0)",
        "space(3)",
        "space(-1)",
        "translate(s, 'abc', 'x')",
        "translate(w, 'aé', 'éa1')",
        "translate(s, 'aa', 'xy')",
        "instr(s, 'b')",
        "instr(w, 'é')",
        "instr(s, '')",
        "locate('a', s)",
        "locate('a', s, 2)",
        "locate('', s, 2)",
        "locate('a', s, 0)",
        "position('b', w)",
        "position('b' IN w)",
        "substring_index(s, '.', 2)",
        "substring_index(s, '.', -1)",
        "substring_index(w, 'ab', 1)",
        "substring_index('aaaa', 'aa', -1)",
        "substring_index(s, 'aa', -1)",
        "substring_index(s, '', 1)",
        "substring_index(s, 'a', 0)",
        "substring_index(s, 'a', -2)",
        "split_part(s, '.', 2)",
        "split_part(s, ',', -1)",
        "split_part(w, 'a', 1)",
        "split_part(s, '', 1)",
        "split_part(s, 'a', 9)",
        "overlay(s, 'XY', 2)",
        "overlay(s, 'XY', 2, 0)",
        "overlay(s, 'é', 0)",
        "overlay(s, '', 1, 9)",
        "overlay(s, 'x', -2, 1)",
        "find_in_set(s, 'a,b,ab')",
        "find_in_set(s, '')",
        "find_in_set(w, 'a,,b')",
        "concat_ws('-', s, w)",
        "concat_ws('', s, 'x', w)",
        "concat_ws(',')",
        "concat_ws(', ', s)",
        "elt(2, s, w)",
        "elt(1, s, NULL)",
        "btrim(s)",
        "btrim(s, 'a ')",
        "ltrim('ab', s)",
        "rtrim('ab', s)",
        "trim(BOTH 'a' FROM s)",
        "trim(LEADING 'a' FROM w)",
        "trim(TRAILING 'é1' FROM w)",
        "btrim(s, '')",
        "soundex(s)",
        "soundex(w)",
        "levenshtein(s, 'abc')",
        "levenshtein(w, '')",
        "luhn_check(s)",
        "ascii(s)",
        "ascii(w)",
        "chr(i)",
        "chr(l)",
        "char(by)",
        "octet_length(s)",
        "octet_length(bin)",
        "bit_length(s)",
        "bit_length(bin)",
        "base64(bin)",
        "base64(s)",
        "base64(repeat(s, 3))",
        "unbase64(base64(bin))",
        "unbase64(s)",
        "encode(s, 'UTF-8')",
        "decode(bin, 'UTF-8')",
        "decode(encode(s, 'utf-8'), 'utf-8')",
        "decode(s, 'a', 'x', 'b', 'y', 'z')",
        "decode(i, 1, 'one')",
        "md5(s)",
        "md5(bin)",
        "sha1(s)",
        "sha(s)",
        "sha2(s, 256)",
        "sha2(s, 0)",
        "sha2(s, 224)",
        "sha2(bin, 512)",
        "sha2(s, 384)",
        "sha2(s, 1)",
        "crc32(s)",
        "crc32(bin)",
        "lpad(s, 5, 'xy')",
        "rpad(s, 4)",
        "lpad(w, 3, 'é')",
        "lpad(s, 4, '')",
        "nullif(s, 'a')",
        "equal_null(s, w)",
        "zeroifnull(i)",
        "nullifzero(i)",
        "nvl2(s, w, 'q')",
        "positive(i)",
        "isnan(d)",
    ],
    "expressions": [
        *(
            f"{name}({column}, '{pattern}')"
            for name in ("rlike", "regexp_count", "regexp_instr", "regexp_substr", "split")
            for pattern in _REGEX
            for column in ("s", "w")
            if (name, pattern) not in _REFUSED
        ),
        *(
            f"regexp_replace(s, '{pattern}', '<{group}>')"
            for pattern in _REGEX
            if pattern not in _EMPTY
            for group in ("x", "$0")
        ),
        *(f"regexp_extract(w, '{pattern}', 0)" for pattern in _REGEX),
        *(f"regexp_extract_all(s, '{pattern}', 0)" for pattern in _REGEX if pattern not in _EMPTY),
        "regexp_extract(s, '(a)(b)?', 2)",
        "regexp_extract(s, '([a-z]+)([0-9]+)')",
        "regexp_extract_all(s, '([a-z])([0-9]+)', 2)",
        "regexp_replace(s, '(a)(b)?', '$2$1')",
        "regexp_replace(w, 'a', 'b', 3)",
        "regexp_replace(s, 'b', 'xy', 1)",
        "split(s, 'a', 2)",
        "split(w, '', 2)",
        "split(s, ',', 0)",
        "split(w, 'b', 1)",
        "s RLIKE 'a.*b'",
        "s REGEXP '^$'",
        "regexp_like(s, 'a$')",
        "regexp(w, '[0-9]')",
    ],
    "times": [
        "dayname(dt)",
        "monthname(dt)",
        "next_day(dt, 'Mon')",
        "next_day(dt, 'SUNDAY')",
        "next_day(dt, 'th')",
        "months_between(ts, tt)",
        "months_between(dt, du)",
        "months_between(ts, tt, false)",
        "months_between(dt, ts, true)",
        "unix_date(dt)",
        "date_from_unix_date(i)",
        "date_from_unix_date(j)",
        "timestamp_seconds(i)",
        "timestamp_seconds(l)",
        "make_date(j, j, j)",
        "make_date(2020, 2, j)",
        "make_date(i, 1, 1)",
        "make_timestamp(2020, j, 3, 4, 5, 6.5)",
        "make_timestamp(2020, 1, 3, 4, j, 60)",
        "make_timestamp(2020, 1, 3, j, 0, dec)",
        "make_timestamp_ntz(2020, 12, j, 1, 2, 3)",
        "to_date(s, 'yyyy-MM-dd')",
        "to_date(s, 'd/M/yyyy')",
        "to_date(s, 'MMM d, yyyy')",
        "try_to_date(s, 'yyyy-MM-dd')",
        "to_timestamp(s, 'yyyy-MM-dd HH:mm:ss')",
        "try_to_timestamp(s, 'yyyy-MM-dd HH:mm:ss')",
        "to_timestamp(s, 'yyyy-MM-dd')",
        "try_to_timestamp(s)",
        "try_to_date(s)",
        "to_unix_timestamp(s, 'yyyy-MM-dd')",
        "unix_timestamp(s)",
        "to_date(date_format(ts, 'yyyy-MM-dd'), 'yyyy-MM-dd')",
        "to_timestamp(date_format(ts, 'yyyyMMddHHmmss'), 'yyyyMMddHHmmss')",
        "to_timestamp(date_format(ts, 'd.M.yyyy h:mm:ss.SSS a'), 'd.M.yyyy h:mm:ss.SSS a')",
        "date_part('week', dt)",
        "datepart('week', dt)",
        "to_timestamp_ltz(date_format(ts, 'yyyy-MM-dd HH:mm:ss'))",
        "to_timestamp_ntz(date_format(ts, 'yyyy-MM-dd HH:mm:ss'))",
        "date_part('SECONDS', ts)",
        "extract(YEAROFWEEK FROM dt)",
        "extract(DOW_ISO FROM dt)",
        "extract(SECOND FROM n)",
        "extract(MINUTE FROM ts)",
        "extract(DOY FROM dt)",
        "date_part('quarter', ts)",
        "timestampdiff(HOUR, ts, tt)",
        "timestampdiff(DAY, ts, tt)",
        "timestampdiff(WEEK, ts, tt)",
        "timestampadd(MONTH, j, ts)",
        "timestampadd(HOUR, j, ts)",
        "timestampadd(DAY, j, ts)",
        "dateadd(WEEK, j, ts)",
        "dateadd(HOUR, j, dt)",
        "datediff(SECOND, ts, tt)",
    ],
    "intervals": [
        "dt + INTERVAL 1 DAY",
        "dt - INTERVAL '2' MONTH",
        "ts + INTERVAL '1 02:03:04.5' DAY TO SECOND",
        "dt + INTERVAL 3 HOURS",
        "ts - INTERVAL 1 YEAR",
        "n + INTERVAL 1 MONTH",
        "ts + make_dt_interval(j, 1, 2, 3.5)",
        "dt + make_ym_interval(1, j)",
        "ts + (tt - ts)",
        "dt + (du - dt)",
        "ts + INTERVAL 1 DAY * j",
        "n + j * INTERVAL '1' HOUR",
        "dt + INTERVAL 2 WEEKS",
        "n + (INTERVAL 1 DAY + INTERVAL 1 HOUR)",
        "dt + (INTERVAL 1 YEAR - INTERVAL 1 MONTH)",
        "ts - (-INTERVAL 1 DAY)",
        "n + INTERVAL '1-2' YEAR TO MONTH",
        "INTERVAL 1 DAY + dt",
        "n + make_dt_interval()",
        "dt + make_ym_interval(j)",
        "ts + INTERVAL '10' MINUTE",
        "n + (n - ts)",
        "ts + INTERVAL '3' DAY",
        "tt - ts > INTERVAL 1 DAY",
        "ts - INTERVAL 36 HOURS",
        "dt + make_interval(1, 2)",
        "dt - make_interval(0, 0, 1, 2)",
        "ts + INTERVAL 1 MONTH * j",
        "dt + INTERVAL 1 MONTH",
        "n - INTERVAL 1 DAY * j",
    ],
    "arrays": [
        "ai[0]",
        "ai[j]",
        "get(ai, j)",
        "element_at(ai, j)",
        "element_at(ai, -1)",
        "try_element_at(ai, j)",
        "m['a']",
        "element_at(m, 'b')",
        "try_element_at(m, s)",
        "size(ai)",
        "cardinality(m)",
        "array_size(xs)",
        "array_contains(ai, 1)",
        "array_contains(ai, j)",
        "array_contains(ad, d)",
        "array_contains(xs, s)",
        "array_position(ai, j)",
        "array_position(ad, 0.0D)",
        "array_remove(ai, j)",
        "array_remove(ad, d)",
        "array_distinct(ai)",
        "array_distinct(ad)",
        "array_distinct(xs)",
        "array_min(ai)",
        "array_max(ai)",
        "array_min(ad)",
        "array_max(ad)",
        "array_max(xs)",
        "array_min(xs)",
        "sort_array(ai)",
        "sort_array(ad)",
        "sort_array(ad, false)",
        "sort_array(xs, false)",
        "array_sort(ad)",
        "array_sort(ai)",
        "array_sort(xs)",
        "array_compact(ai)",
        "array_compact(aa)",
        "array_join(xs, '-')",
        "array_join(xs, '', '?')",
        "arrays_overlap(ai, aj)",
        "arrays_overlap(ad, ad)",
        "arrays_overlap(xs, array('a', s))",
        "slice(ai, 2, 2)",
        "slice(ai, -2, 2)",
        "slice(ai, j, 2)",
        "slice(xs, 1, j)",
        "slice(ad, -1, 5)",
        "flatten(aa)",
        "concat(ai, aj)",
        "concat(xs, split(s, ','))",
        "reverse(ai)",
        "reverse(xs)",
        "map_keys(m)",
        "map_values(m)",
        "map_contains_key(m, 'a')",
        "map_contains_key(m, s)",
        "array(i, j)",
        "array(1, j, NULL)",
        "array(s, 'x')",
        "array(d, i)",
        "map('a', i, 'b', j)[s]",
        "map_values(map(1, s, 2, w))",
        "named_struct('x', i, 'y', s).x",
        "size(split(w, 'a'))",
        "aa[0][0]",
        "array_contains(array(1, 2), j)",
        "size(array(NULL))",
        "array_position(xs, 'a')",
    ],
}
