"""``DeltaTable.timeline``: what each version read, and over which versions it was committed, from the log alone.

Tests of operations.inspection.drawing.
"""

import datetime as dt
import json
import xml.etree.ElementTree as ET

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta import CommitProperties, DeltaTable, errors, write_deltalake
from refdelta.operations.inspection.drawing import draw, lanes_of, to_svg
from refdelta.operations.inspection.timeline import SCHEMA, timeline, version_range
from tiers import examples

ROW = {**dict.fromkeys(SCHEMA.names), "operation": "WRITE", "timestamp": 0}


def row(version, read, **fields):
    return {**ROW, "version": version, "read_version": read, "passed": list(range(read + 1, version)), **fields}


@pytest.fixture
def table(tmp_path):
    rows = pa.table({"id": [1, 2, 3]})
    write_deltalake(tmp_path / "stock", rows, configuration={"delta.enableDeletionVectors": "true"})
    table = DeltaTable(tmp_path / "stock")
    note = CommitProperties(user_metadata="a\x1b[2J<note>", custom_metadata={"userName": "ada"})
    first, second = table.begin(commit_properties=note), table.begin()
    first.delete("id = 1")
    second.delete("id = 3")
    first.commit()
    second.commit()
    return table


def test_its_columns(table):
    found = pa.table(table.timeline())
    assert found.schema == SCHEMA
    assert found.column("version").to_pylist() == [0, 1, 2]
    assert found.column("read_version").to_pylist() == [None, 0, 0]
    assert found.column("passed").to_pylist() == [None, [], [1]]
    assert found.column("operation").to_pylist() == ["WRITE", "DELETE", "DELETE"]
    assert found.column("predicate").to_pylist() == [None, "id = 1L", "id = 3L"]
    assert found.column("user").to_pylist() == [None, "ada", None]
    assert found.column("rows").to_pylist() == [3, 1, 1]
    assert found.column("blind_append").to_pylist() == [True, False, False]
    assert found.column("files_added").to_pylist() == [1, 0, 0]  # a file with another vector is not new
    assert found.column("bytes_added").to_pylist()[1:] == [0, 0]
    assert set(found.column("isolation_level").to_pylist()) == {"WriteSerializable"}
    assert abs(found.column("timestamp")[2].as_py() - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=5)
    assert found.column("damage").null_count == 3


def test_it_is_drawn_for_terminals_notebooks_and_pages(table):
    lines = str(table.timeline()).splitlines()
    assert [line[:8].rstrip() for line in lines] == ["0  ●─┐", "1  ● │", "2  ●─┘"]
    assert "DELETE where id = 3L over 1 (1 row)" in lines[2]
    assert all(len(line) <= 80 for line in lines)
    assert "\x1b" not in "".join(lines)
    wide = table.timeline().draw(200)
    assert r"'a\x1b[2J<note>'" in wide
    assert "\x1b[36m" in table.timeline().draw(80, colour=True)
    svg = table.timeline().to_svg()
    texts = [item.text for item in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert "1 committed over versions that they had not seen" in texts[0]
    assert any("<note>" in text for text in texts if text)
    assert table.timeline()._repr_html_() == svg


def test_ranges(table):
    assert table.timeline(limit=1).to_table().column("version").to_pylist() == [2]
    assert table.timeline(version=1).to_table().column("version").to_pylist() == [1]
    assert table.timeline(version=(1, None)).to_table().column("version").to_pylist() == [1, 2]
    # The lane of version 2 comes from above: it began before the drawing.
    assert [line[:7].rstrip() for line in str(table.timeline(version="1..2")).splitlines()] == ["1  ● │", "2  ●─┘"]
    for wrong in (True, -1, "x..y", (1, 2, 3), "..", (2, 1), 1.5):
        with pytest.raises(errors.InvalidArgumentError):
            table.timeline(version=wrong)
    with pytest.raises(errors.VersionNotFoundError, match="it has 0 to 2"):
        table.timeline(version=(5, 9))
    with pytest.raises(errors.InvalidArgumentError, match="limit is 0"):
        table.timeline(limit=0)
    assert version_range("3..") == (3, None)
    assert version_range("..3") == (None, 3)


@pytest.mark.tier("test")
@pytest.mark.breaks_tables
def test_a_long_log_asks_for_a_range(table):
    log = table.store
    for version in range(3, 1_030):
        log.put_if_absent(f"_delta_log/{version:020d}.json", b'{"commitInfo":{"operation":"X","readVersion":0}}\n')
    lines = str(table.timeline()).splitlines()
    assert len(lines) == 21
    assert lines[-1] == "... and 1,010 older versions; ask for a range to see them"
    with pytest.raises(errors.InvalidArgumentError, match="ask for at most 1,000"):
        table.timeline(version=(0, 1_010)).to_svg()
    assert table.timeline().to_table().num_rows == 1_030
    assert max(map(len, table.timeline().to_table().column("passed").to_pylist()[1:])) == 1_000
    assert len(str(table.timeline(limit=900)).splitlines()) == 900


@pytest.mark.breaks_tables
def test_damaged_and_hostile_logs_are_drawn(table):
    hostile = {"operation": ["x"], "readVersion": 10**30, "timestamp": -(10**40), "inCommitTimestamp": 2**61}
    hostile |= {"operationMetrics": {"numOutputRows": "9" * 400}, "userName": "\x00\u202e", "isBlindAppend": "yes"}
    table.store.put_if_absent(f"_delta_log/{5:020d}.json", json.dumps({"commitInfo": hostile}).encode() + b"\n{broken")
    found = timeline(table.store, None, None, None)
    last = found.to_table().slice(3).drop_columns(["timestamp"]).to_pylist()[0]
    assert (last["read_version"], last["rows"], last["operation"], last["blind_append"]) == (None, None, None, None)
    assert last["damage"].startswith("versions 3 to 4 are missing; line 2 is not an action")
    assert "DAMAGED: versions 3 to 4 are missing" in found.draw(200)
    assert found.draw(200).replace("\n", "").isprintable()
    ET.fromstring(found.to_svg())


def test_logs_of_deltalake(tmp_path):
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(tmp_path, pa.table({"id": [1, 2]}))
    deltalake.DeltaTable(tmp_path).delete("id = 1")
    found = DeltaTable(tmp_path).timeline().to_table()
    assert found.column("predicate").to_pylist() == [None, "id = 1"]
    assert found.column("rows").to_pylist() == [2, 1]
    assert found.column("engine")[0].as_py().startswith("delta-rs")


@examples(200)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=40), st.integers(0, 30))
def test_lanes_never_meet(steps, first):
    """Each lane is alone in its column, and begins and ends where its transaction did."""
    rows = [row(version, max(version - step, -1)) for version, step in enumerate(steps)][first:]
    at = {one["version"]: line for line, one in enumerate(rows)}
    lanes = lanes_of(rows)
    taken = [(lane.number, line) for lane in lanes for line in range(lane.start, lane.end + 1)]
    assert len(taken) == len(set(taken))
    for lane in lanes:
        assert lane.start == at.get(rows[lane.end]["read_version"], -1)
    wanted = {line for line, one in enumerate(rows) if one["passed"] and line - at.get(one["read_version"], -1) > 1}
    assert {lane.end for lane in lanes} == wanted
    lines = draw(rows, 80)
    assert all(len(line) <= 80 for line in lines)
    for number, line in enumerate(lines):
        assert line.count("┘") + line.count("┴") == (number in wanted)
    assert to_svg(rows, "x").count("<path stroke") == len(lanes)
