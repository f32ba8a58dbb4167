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
from handmade import Handmade, add, field, metadata, struct
from refdelta import errors, write_deltalake
from refdelta.spark import typed_errors
from refdelta_storage import LocalStore
from security.bombs import BYTE_ARRAY, INT64, dictionary_page, text
from security.test_parquet import LONG_LIST, SEVEN, flat, long_text, one_list

pytestmark = pytest.mark.spark
LONG, TEXT = struct(field("a", "long")), struct(field("a", "string"))


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
    log.write_text(log.read_text().replace('"p":"v"', f'"p":"{"v" * 500_000}"'))


def extreme(place: str, value: Any) -> Callable[[Path], None]:
    """A table of the search for raw errors."""

    def make(path: Path) -> None:
        store = LocalStore(path)
        for key, content in extremes.objects((place, value)).items():
            store.put(key, content)

    return make


TWICE = json.dumps(struct(field("a", "long"), field("A", "long")))
DEEP = "[" * 100_000
TABLES: dict[str, tuple[Callable[[Path], None], type[errors.DeltaError] | int, str]] = {
    "a path out of the folder": (path_in_log("../../etc/passwd"), errors.UnsafePathError, "passwd"),
    "a path to another place": (path_in_log("file:///etc/passwd"), errors.UnsafePathError, "passwd"),
    "a dictionary of two gigabytes": (
        data_file(flat(BYTE_ARRAY, dictionary_page(1, text(b"x"), 2**31 - 1), 10), TEXT, 10),
        errors.DataFileError,
        "f.parquet",
    ),
    "a file that is none": (data_file(b"PAR1" * 9, LONG, 1), errors.DataFileError, "f.parquet"),
    "a footer with 2**40 rows": (data_file(flat(INT64, SEVEN, 3, total_rows=2**40), LONG, 3), 3, ""),
    "a list of two billion": (
        data_file(one_list(INT64, SEVEN, 2**31 - 1), struct(field("a", LONG_LIST)), 1),
        errors.DataFileError,
        "f.parquet",
    ),
    "a long partition value": (long_partition_value, 1_000, ""),
    "a schema that nests": (schema_text(DEEP), errors.InvalidLogError, "schema"),
    "a schema with a name twice": (schema_text(TWICE), errors.InvalidLogError, "'a' and 'A' have the same name"),
    "a domain that nests": (extreme("domain clustering", DEEP), 3, ""),
    "an endless retention": (
        extreme("property delta.deletedFileRetentionDuration", "interval 999999999999 weeks"),
        3,
        "",
    ),
    "a log that nests": (extreme("unknown action", "[" * 5_000 + "]" * 5_000), errors.InvalidLogError, "nest"),
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


def test_a_page_that_stands_for_millions_of_long_texts_does_not_fill_a_worker(session: Any, tmp_path: Path) -> None:
    """40 MB of text in each of many rows, in a file of a few kB: they come batch by batch, or are refused."""
    data_file(long_text(200), TEXT, 200)(tmp_path)
    frame = session.read.format("refdelta").load(str(tmp_path))
    assert frame.selectExpr("length(a) AS n").limit(3).collect()[0].n == 40 * 2**20


def test_the_session_still_reads_afterwards(session: Any, tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"a": [1, 2, 3]}))
    assert session.read.format("refdelta").load(str(tmp_path)).count() == 3
