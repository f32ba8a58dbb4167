"""Statistics of other writers lose no row: true values, each with the roundings that were seen, random predicates.

Tests of arrow.decimals, pruning.stats_source.
"""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import claimed_tables as claimed
from refdelta.arrow import decimals
from refdelta.arrow.schema import from_arrow
from refdelta.core.log import claims
from refdelta.core.log.actions import Add
from refdelta.engine.scan import file_stats, skipping
from refdelta.engine.scan.skipping import prune
from refdelta.expressions.evaluate import evaluate
from refdelta.expressions.sql import parse_predicate
from refdelta.pruning import file_match, stats_source
from refdelta.pruning.file_match import FileMatcher

SCHEMA = from_arrow(claimed.SCHEMA)
FILES = 40
"""Of more than 32 files the statistics are parsed by columns."""


def internal(row: claimed.Row) -> dict[str, Any]:
    found = {
        name: claimed.decimal_of(value, kind) if value is not None and pa.types.is_decimal(kind) else value
        for (name, kind), value in zip(claimed.KINDS.items(), row.values(), strict=True)
    }
    return {name: found[name] for name in found if "." not in name} | {
        "st": {name: found[f"st.{name}"] for name in ("d", "m")}
    }


def lost(seed: int, rounding: str, predicates: int = 12) -> list[tuple[str, str]]:
    """The files that have a row for a predicate and are skipped: the predicate and the statistics."""
    draw = random.Random(seed)
    groups = [claimed.rows_of(draw) for _ in range(FILES)]
    texts = [claimed.text_of(claimed.stats_of(rows, frozenset([rounding]), draw)) for rows in groups]
    rows = [[internal(row) for row in group] for group in groups]
    none = pa.array([[]] * FILES, pa.map_(pa.string(), pa.string()))
    files = pa.table({"partitionValues": none, "stats": pa.array(texts, pa.string())})
    found = []
    for _ in range(predicates):
        sql = claimed.predicate(draw.choice(groups), draw, claimed.TOUCHED[rounding])
        bound = parse_predicate(sql, SCHEMA)
        matcher = FileMatcher(bound, SCHEMA, ())
        columns = prune(files, SCHEMA, (), bound).keep.to_pylist()
        for group, text, by_column in zip(rows, texts, columns, strict=True):
            add = Add(path="f", partition_values={}, size=1, modification_time=0, data_change=True, stats=text)
            by_file = matcher.may_match(add)
            if not (by_file and by_column) and any(evaluate(bound, row) is True for row in group):
                found.append((sql, text))
            else:
                assert by_file == by_column, (sql, text)
    return found


@pytest.mark.tier("test")
@pytest.mark.sample(check=9, test=12)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("rounding", claimed.ROUNDINGS)
def test_no_file_with_a_row_is_skipped(rounding, seed):
    assert lost(seed, rounding) == []


# --- each margin is needed ---------------------------------------------------------------------------------------


def without_decimals(patch):
    for name in ("decimal_low", "decimal_high"):
        patch.setattr(stats_source, name, lambda unscaled, *_: unscaled)
    patch.setattr(file_stats, "decimal_margins", lambda bounds, **_: bounds)


def without_saturation(patch):
    patch.setattr(claims, "SATURATED", ())
    patch.setattr(decimals, "SATURATED", ())


def without_nan(patch):
    for module in (file_match, skipping):
        patch.setattr(module, "nan_cases", lambda _: ())


def without_minutes(patch):
    for module in (claims, file_stats):
        patch.setattr(module, "TIME_MARGIN", 0)


def without_cuts(patch):
    for module in (claims, file_stats):
        patch.setattr(module, "CUT_LENGTH", 1_000)


def without_replacements(patch):
    for module in (claims, file_stats):
        patch.setattr(module, "REPLACED", "none")
        patch.setattr(module, "CUT_LENGTH", 1_000)


def without_null_counts(patch):
    patch.setattr(file_match, "null_count", lambda nulls, *_, **__: nulls)
    patch.setattr(file_stats, "_null_counts", lambda nulls, *_: nulls)


def without_row_counts(patch):
    patch.setattr(file_match, "row_count", lambda rows: rows)
    patch.setattr(file_stats, "_row_counts", lambda rows: rows)
    without_null_counts(patch)


@pytest.mark.tier("test")
@pytest.mark.parametrize(
    ("rounding", "leave_out"),
    [
        (claimed.DOUBLES, without_decimals),
        (claimed.SATURATED, without_saturation),
        (claimed.NAN, without_nan),
        (claimed.OFFSETS, without_minutes),
        (claimed.LATE, without_minutes),
        (claimed.SECONDS, without_minutes),
        (claimed.CUT, without_cuts),
        (claimed.REPLACED, without_replacements),
        (claimed.COUNTS, without_null_counts),
        (claimed.NEGATIVE, without_row_counts),
    ],
)
def test_a_margin_that_is_left_out_is_found(rounding, leave_out, monkeypatch):
    leave_out(monkeypatch)
    assert any(lost(seed, rounding) for seed in range(8))
