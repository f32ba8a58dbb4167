"""SECURITY.md says what the code does."""

import re
from pathlib import Path

from refdelta.catalog import unity_http
from refdelta.core.log.json_text import DEEPEST
from refdelta.engine.log import commits
from refdelta.engine.parquet import budget, limits
from refdelta.engine.work import executor
from refdelta.expressions import sql_dialect, sql_reader
from refdelta.table.types import MOST_LEVELS
from refdelta_storage.errors import MOST_SHOWN

ROOT = Path(__file__).parents[2]
POLICY = (ROOT / "SECURITY.md").read_text()


def test_every_promise_has_its_test():
    promises = POLICY.partition("## Promises")[2].partition("## What is not promised")[0]
    sections = re.findall(r"^### .*\n+(.*)", promises, re.MULTILINE)
    assert len(sections) >= 6
    for line in sections:
        named = re.findall(r"`([\w/]+\.\w+)`", line) or re.findall(r"`([\w/]+\.\w+)`", promises.rpartition(line)[2])
        assert named
        assert [name for name in named if not (ROOT / name).is_file()] == []


def test_its_numbers_are_those_of_the_code():
    assert (
        *(2**30, 2**30),  # 1 GiB, twice
        2**32,  # 4 GiB
        1000,
    ) == (limits.BATCH_BYTES, limits.DICTIONARY_BYTES, limits.ROW_BYTES, limits.UNFOLDED)
    assert (budget.HELD_BYTES, budget.HELD_UNFOLDED, budget.VECTOR_BYTES) == (2**30, 100, 2**32)
    assert (executor.DECODED_BYTES, executor.CORE_DECODED_BYTES, limits._LOOSE) == (2**30, 2**27, 2**26)
    assert limits._GROWTH["SNAPPY"] == 22
    assert commits.LONGEST_COMMIT == 2**31
    assert (sql_dialect.MOST_CHARACTERS, sql_reader.MOST_LEVELS) == (1_000_000, 150)
    assert (DEEPEST, MOST_LEVELS) == (100, 100)
    assert (MOST_SHOWN, unity_http._LONGEST_MESSAGE) == (4_000, 500)
    sizes = (
        "1 GiB",
        "2 GiB",
        "4 GiB",
        "1,000 times",
        "100 times",
        "128 MiB a core",
        "64 MiB",
        "22 of one byte",
        "LZ4 256",
    )
    of_texts = ("100 levels deep", "4,000 characters (of a server of a catalog to 500)")
    for said in (*sizes, "1,000,000 characters and 150 levels", *of_texts):
        assert said in " ".join(POLICY.split())
