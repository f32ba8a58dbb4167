"""Statistics of other writers lose no row: true values, each with the roundings that were seen, random predicates."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

import claimed_tables as claimed
from refdelta.core.expressions.predicate import evaluate
from refdelta.core.log.actions import Add
from refdelta.core.pruning.file_match import FileMatcher
from refdelta.engine.arrow.schema import from_arrow
from refdelta.engine.expressions.sql import parse_predicate
from refdelta.engine.scan.skipping import prune
from refdelta.errors import PredicateError

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


def lost(seed: int, roundings: frozenset[str], predicates: int = 25) -> list[tuple[str, str, bool]]:
    """The files that have a row for a predicate and are skipped: predicate, statistics, and by which of the two forms:
    true for columns.
    """
    draw = random.Random(seed)
    groups = [claimed.rows_of(draw) for _ in range(FILES)]
    texts = [claimed.text_of(claimed.stats_of(rows, roundings, draw)) for rows in groups]
    rows = [[internal(row) for row in group] for group in groups]
    none = pa.array([[]] * FILES, pa.map_(pa.string(), pa.string()))
    files = pa.table({"partitionValues": none, "stats": pa.array(texts, pa.string())})
    found = []
    for _ in range(predicates):
        sql = claimed.predicate(draw.choice(groups), draw)
        try:
            bound = parse_predicate(sql, SCHEMA)
        except PredicateError as error:
            raise AssertionError(sql) from error
        matcher = FileMatcher(bound, SCHEMA, ())
        columns = prune(files, SCHEMA, (), bound).keep.to_pylist()
        for group, text, by_column in zip(rows, texts, columns, strict=True):
            add = Add(path="f", partition_values={}, size=1, modification_time=0, data_change=True, stats=text)
            by_file = matcher.may_match(add)
            if not (by_file and by_column) and any(evaluate(bound, row) is True for row in group):
                found.append((sql, text, by_file))
            assert by_file == by_column, (sql, text)
    return found
