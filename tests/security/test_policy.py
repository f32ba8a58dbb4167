"""SECURITY.md says what the code does."""

import re
from pathlib import Path

from refdelta.engine.expressions import sql_dialect, sql_reader
from refdelta.engine.log import commits
from refdelta.engine.parquet import limits

ROOT = Path(__file__).parents[2]
POLICY = (ROOT / "SECURITY.md").read_text()


def test_every_promise_has_its_test():
    promises = POLICY.partition("## Promises")[2].partition("## What is not promised")[0]
    sections = re.findall(r"^### .*\n(.*)", promises, re.MULTILINE)
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
    assert commits._LONGEST_COMMIT == 2**31
    assert (sql_dialect._MAX_LENGTH, sql_reader._MAX_DEPTH) == (1_000_000, 150)
    for said in ("1 GiB", "4 GiB", "1,000 times", "2 GiB", "1,000,000 characters and 150 levels"):
        assert said in " ".join(POLICY.split())
