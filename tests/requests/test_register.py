"""spec_notes/requests.md: each of its rows is asserted by a test here, and the sizes that it names are the code's."""

from __future__ import annotations

import re
from pathlib import Path

from refdelta.engine.parquet import dv, ranged
from refdelta.engine.work import executor

HERE = Path(__file__).parent
REGISTER = (HERE.parents[1] / "spec_notes" / "requests.md").read_text()


def test_each_row_is_held_to_what_happens():
    rows = re.findall(r"^\| ([a-z]+-\d+) \|", REGISTER, re.MULTILINE)
    tests = "".join(path.read_text() for path in HERE.glob("test_*.py") if path.name != Path(__file__).name)
    assert len(rows) == len(set(rows)) > 12
    assert not [row for row in rows if f'"{row}"' not in tests]


def test_the_sizes_are_those_of_the_code():
    told = " ".join(REGISTER.split())
    mib, kib = 2**20, 2**10
    assert f"An object of up to {ranged.WHOLE_BYTES // mib} MiB is one request" in told
    assert f"come the last {ranged.FOOTER_BYTES // kib} KiB" in told
    assert (
        f"Ranges with up to {ranged.GAP_BYTES // kib} KiB between them are one request, up to "
        f"{ranged.REQUEST_BYTES // mib} MiB" in told
    )
    assert f"together up to {ranged.CHUNK_BYTES // mib} MiB" in told
    assert f"Up to {executor.REQUESTS} files are read at a time" in told
    assert f"no more than {executor.LOOK_AHEAD_BYTES // mib} MiB of them" in told
    assert (
        f"no more than {dv.GAP_BYTES // kib} KiB lie between them. Up to {dv.HELD_BYTES // mib} MiB of them wait"
        in told
    )
