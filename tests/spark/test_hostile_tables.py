"""Spark's source over tables that were made to harm their reader: rows or the engine's error, in one sentence.

One session reads them all. A worker that was killed, or out of memory, would lose the task with an error of Spark's.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fuzz import extremes
from handmade import Handmade, add, field, metadata, parquet, struct
from refdelta import errors, write_deltalake
from refdelta.spark import typed_errors
from refdelta_storage import LocalStore

pytestmark = pytest.mark.spark
LONG = struct(field("a", "long"))


def data_file(content: bytes, schema: dict[str, Any], rows: int) -> Callable[[Path], None]:
    """A table of one data file."""

    def make(path: Path) -> None:
        made = Handmade(schema, store=LocalStore(path))
        made.put("f.parquet", content)
        made.commit(add("f.parquet", rows=rows, size=len(content)))

    return make


def path_in_log(name: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        made = Handmade(LONG, store=LocalStore(path))
        made.commit(add(name, rows=1))

    return make


def schema_text(text: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        made = Handmade(LONG, store=LocalStore(path))
        action = metadata(LONG)
        action["metaData"]["schemaString"] = text
        made.commit(action)

    return make


def long_partition_value(path: Path) -> None:
    write_deltalake(path, pa.table({"a": range(1_000), "p": ["v"] * 1_000}), partition_by=["p"])
    log = path / "_delta_log" / f"{0:020d}.json"
    log.write_text(log.read_text().replace('"p":"v"', f'"p":"{"v" * 5_000}"'))


def extreme(place: str, value: Any) -> Callable[[Path], None]:
    """A table of the search for raw errors."""

    def make(path: Path) -> None:
        store = LocalStore(path)
        for key, content in extremes.objects((place, value)).items():
            store.put(key, content)

    return make


TWICE = json.dumps(struct(field("a", "long"), field("A", "long")))
CUT_OFF = "[[[["
ROWS = pa.table({"a": [1, 2, 3]})
TABLES: dict[str, tuple[Callable[[Path], None], type[errors.DeltaError] | int, str]] = {
    "a path out of the folder": (path_in_log("../../elsewhere/f"), errors.UnsafePathError, "elsewhere"),
    "a path to another place": (path_in_log("file:///elsewhere/f"), errors.UnsafePathError, "elsewhere"),
    "a file that is none": (data_file(b"PAR1" * 9, LONG, 1), errors.DataFileError, "f.parquet"),
    "a file that is cut off": (data_file(parquet(ROWS)[:-9], LONG, 3), errors.DataFileError, "f.parquet"),
    "a long partition value": (long_partition_value, 1_000, ""),
    "a schema that is cut off": (schema_text(CUT_OFF), errors.InvalidLogError, "schema"),
    "a schema with a name twice": (schema_text(TWICE), errors.InvalidLogError, "'a' and 'A' have the same name"),
    "a domain that is cut off": (extreme("domain clustering", CUT_OFF), 3, ""),
    "a long retention": (
        extreme("property delta.deletedFileRetentionDuration", "interval 999999999999 weeks"),
        3,
        "",
    ),
    "a log that is cut off": (extreme("unknown action", CUT_OFF), errors.InvalidLogError, "JSON"),
    "days of the year 5,881,580": (extreme("days", 2**31 - 1), 3, ""),
    "times of the year 294,247": (extreme("micros", 2**63 - 1), 3, ""),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_hostile_table_is_rows_or_one_error_of_the_engine(session: Any, tmp_path: Path, name: str) -> None:
    make, expected, said = TABLES[name]
    make(tmp_path)
    with contextlib.ExitStack() as stack:
        if not isinstance(expected, int):
            caught = stack.enter_context(pytest.raises(expected, match=said))
            stack.enter_context(typed_errors())
        frame = session.read.format("refdelta").load(str(tmp_path))
        counted = frame.selectExpr("count(*) AS n", "max(hash(*)) AS h").collect()[0].n
    if isinstance(expected, int):
        assert counted == expected
    else:
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 2_000


def test_the_session_still_reads_afterwards(session: Any, tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"a": [1, 2, 3]}))
    assert session.read.format("refdelta").load(str(tmp_path)).count() == 3
