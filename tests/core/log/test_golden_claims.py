"""Statistics in the golden tables, held against the rows of their files, by engine and field.

The tables are not part of the repository: REFDELTA_GOLDEN is the folder that has them. What was found is kept in
``golden_claims.json``, which ``REFDELTA_GOLDEN=... python tests/core/log/test_golden_claims.py`` writes.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from refdelta.core.log.actions import Add
from refdelta.expressions.expression import Column, Comparison, IsNull, Literal
from refdelta.pruning.file_match import FileMatcher
from refdelta.pruning.stats import load_stats, lookup, statistic
from refdelta.table.types import DecimalType, PrimitiveType, StructField, StructType

KEPT = Path(__file__).with_name("golden_claims.json")
NAMES = {
    "bool": "boolean",
    "int8": "byte",
    "int16": "short",
    "int32": "integer",
    "int64": "long",
    "date32[day]": "date",
}
NAMES |= {"float": "float", "double": "double", "string": "string"}


def kind_of(arrow: pa.DataType) -> Any:
    if pa.types.is_decimal(arrow):
        return DecimalType(arrow.precision, arrow.scale)
    if pa.types.is_timestamp(arrow):
        return PrimitiveType("timestamp" if arrow.tz else "timestamp_ntz")
    return PrimitiveType(NAMES[str(arrow)]) if str(arrow) in NAMES else None


def internal(values: pa.Array) -> pa.Array:
    """Dates as days and times as microseconds."""
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.timestamp("us", values.type.tz), safe=False).cast(pa.int64())
    return values.cast(pa.int32()) if pa.types.is_date(values.type) else values


def entry(add: dict[str, Any]) -> Add:
    return Add(path=add["path"], partition_values={}, size=1, modification_time=0, data_change=True, stats=add["stats"])


def files(folder: Path) -> Iterator[tuple[str, Add, pa.Table]]:
    """The engine, the entry and the rows of each file that has statistics."""
    for commit in sorted(folder.glob("*/table/_delta_log/*.json")):
        if not commit.stem.isdigit():
            continue
        actions = [json.loads(line) for line in commit.read_text().splitlines() if line.strip()]
        infos = [action["commitInfo"] for action in actions if "commitInfo" in action]
        engine = (infos[0].get("engineInfo") if infos else None) or "none"
        for add in (action["add"] for action in actions if "add" in action):
            path = commit.parents[1] / unquote(add["path"])
            if add.get("stats") and path.exists():
                rows = pq.read_table(path, partitioning=None, coerce_int96_timestamp_unit="us")
                yield engine, entry(add), rows


def claimed(add: Add, rows: pa.Table) -> Iterator[tuple[str, bool]]:
    """Each field of the statistics, and whether it holds for the rows."""
    stats = load_stats(add.stats)
    if "numRecords" in stats:
        yield "numRecords", stats["numRecords"] == rows.num_rows
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        kind = kind_of(column.type)
        nulls = lookup(stats, ("nullCount", name))
        if isinstance(nulls, int):
            yield "nullCount", nulls == column.null_count
        if kind is None or column.null_count == len(column):
            continue
        true = pc.min_max(internal(column.combine_chunks())).as_py()
        label = "decimal" if isinstance(kind, DecimalType) else kind.name
        low, high = (statistic(lookup(stats, (part, name)), kind) for part in ("minValues", "maxValues"))
        if low is not None:
            yield f"minimum of {label}", low <= true["min"]
        if high is not None:
            yield f"maximum of {label}", true["max"] <= high + (999 if label.startswith("timestamp") else type(high)())


def measured(folder: Path) -> list[dict[str, Any]]:
    found: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for engine, add, rows in files(folder):
        for field, holds in claimed(add, rows):
            found[engine, field][not holds] += 1
    return [
        {"engine": engine, "field": field, "holds": right, "contradicted": wrong}
        for (engine, field), (right, wrong) in sorted(found.items())
    ]


@pytest.fixture(scope="module")
def golden() -> Path:
    if "REFDELTA_GOLDEN" not in os.environ:
        pytest.skip("REFDELTA_GOLDEN names no folder of golden tables")
    return Path(os.environ["REFDELTA_GOLDEN"])


def test_only_times_were_contradicted_and_they_have_a_margin():
    kept = json.loads(KEPT.read_text())
    assert sum(one["holds"] for one in kept) > 1000
    assert {one["field"] for one in kept if one["contradicted"]} <= {"minimum of timestamp", "minimum of timestamp_ntz"}


def test_what_was_kept_is_what_the_tables_say(golden):
    assert measured(golden) == json.loads(KEPT.read_text())


def extremes(values: pa.Array) -> list[Any]:
    """The least and the greatest value, NaN and null: bounds that keep a file for these keep it for all between."""
    found = list(pc.min_max(values).as_py().values())
    if pa.types.is_floating(values.type):
        found += pc.unique(values.filter(pc.is_nan(values))).to_pylist()
    return [value for value in found if value is not None] + [None] * bool(values.null_count)


def test_no_filter_on_a_value_loses_its_file(golden):
    asked, lost = 0, []
    for _, add, rows in files(golden):
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            kind = kind_of(column.type)
            if kind is None:
                continue
            schema = StructType((StructField(name, kind),))
            for value in extremes(internal(column.combine_chunks())):
                here = Column((name,), kind)
                condition = IsNull(here) if value is None else Comparison("=", here, Literal(value, kind))
                asked += 1
                if not FileMatcher(condition, schema, ()).may_match(add):
                    lost.append((add.path, condition))
    assert asked > 1000
    assert not lost


if __name__ == "__main__":
    KEPT.write_text(json.dumps(measured(Path(os.environ["REFDELTA_GOLDEN"])), indent=1) + "\n")
