"""The judge of runs under faults sees each kind of wrong, and blames nobody where there is none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from faults.judge import judge
from faults.steps import START, Step, after, begin, some_steps
from faults.writers import Read, rows, write
from refdelta import DeltaTable
from servers.running import S3_SECRET, Place


@pytest.fixture
def table(tmp_path):
    """A place, and what its two writers were told."""
    place = Place(str(tmp_path / "t"), {})
    begin(place.uri, "vectors", {})
    kinds = dict.fromkeys(("append", "update", "delete", "merge", "compact"), 1)
    told = [one for owner in (0, 1) for one in write(place, some_steps(owner, 6, 3, kinds), owner)]
    return place, told


def blamed(place, told, reads=(), **options):
    return "; ".join(judge(place, told, reads, **options).wrong)


@pytest.mark.tier("test")
def test_nobody_is_blamed_where_all_is_right(table):
    place, told = table
    reads = [Read(0, rows(START))]
    verdict = judge(place, told, reads)
    assert verdict.wrong == []
    assert verdict.reads == 1
    assert verdict.steps["committed"] == verdict.versions - 1 > 8


@pytest.mark.tier("test")
def test_every_step_does_what_its_definition_says(tmp_path):
    place = Place(str(tmp_path / "t"), {})
    begin(place.uri, "partitions", {})
    kinds = ["append", "update", "delete", "merge", "replace", "restore", "append", "overwrite", "alter", "compact"]
    told = write(place, [Step(kind, 4, number) for number, kind in enumerate(kinds)], 1)
    assert [one.outcome for one in told[:-1]] == ["committed"] * 9
    assert judge(place, told).wrong == []
    assert after(START, Step("delete", -1, 0), [START]) != START


@pytest.mark.tier("test")
def test_what_callers_are_told(table):
    place, told = table
    last = next(one for one in reversed(told) if one.outcome == "committed")
    others = [one for one in told if one is not last]
    assert "told failed" in blamed(place, [*others, replace(last, outcome="failed")])
    assert "told nothing" in blamed(place, [*others, replace(last, outcome="nothing")])
    assert "told committed" in blamed(place, [*others, replace(last, version=last.version - 1)])
    assert "nobody took" in blamed(place, others)
    assert blamed(place, [*others, replace(last, outcome="unknown")]) == ""
    lost = replace(last, step=Step("append", 7, 7))
    assert "told committed" in blamed(place, [*told, lost])
    assert blamed(place, [*told, replace(lost, outcome="unknown")]) == ""


@pytest.mark.tier("test")
def test_what_errors_say(table):
    place, told = table

    def fails(name, text, traceback=""):
        return blamed(
            place,
            [
                *told,
                replace(told[0], step=Step("append", 7, 7), outcome="failed", error=(name, text), traceback=traceback),
            ],
        )

    assert fails("StoreError", "cannot write x: the connection was reset") == ""
    assert "no clear error" in fails("ClientError", "reset")
    assert "no clear error" in fails("DataFileNotFoundError", "x: not there")
    assert "not one line" in fails("StoreError", "cannot write x\nand y")
    assert "credentials" in fails("StoreError", f"cannot use {S3_SECRET}")
    assert "credentials" in fails("StoreError", "PUT http://x/y?sig=abc")


@pytest.mark.tier("test")
def test_readers(table):
    place, told = table
    assert "other rows" in blamed(place, told, [Read(0, rows(START)[1:])])
    assert "other rows" in blamed(place, told, [Read(99, rows(START))])
    assert "version 0 after 3" in blamed(place, told, [Read(0, rows(START), least=3)])
    assert blamed(place, told, [Read(None, error=("StoreError", "no answer"))]) == ""


@pytest.mark.tier("test")
def test_files(table):
    place, told = table
    path = DeltaTable(place.uri).files().column("path").to_pylist()[0]
    file = Path(place.uri) / path
    content = file.read_bytes()
    file.write_bytes(content[:-100])
    assert f"{path} with {len(content)} bytes, of which {len(content) - 100} are there" in blamed(place, told)
    assert "cannot be read" in blamed(place, told)
    file.unlink()
    assert "of which None are there" in blamed(place, told, vacuumed=True)


@pytest.mark.tier("test")
def test_a_commit_that_is_there_twice(table):
    place, told = table
    log = DeltaTable(place.uri).store
    newest = DeltaTable(place.uri).version()
    append = next(one for one in told if one.step.kind == "append")
    text = log.get(f"_delta_log/{append.version:020}.json")
    doubled = [json.loads(line) for line in text.splitlines()]
    log.put_if_absent(f"_delta_log/{newest + 1:020}.json", "\n".join(map(json.dumps, doubled)).encode())
    assert "told committed" in blamed(place, told)


@pytest.mark.tier("test")
def test_a_gap(table):
    place, told = table
    DeltaTable(place.uri).store.delete([f"_delta_log/{3:020}.json"])
    with pytest.raises(AssertionError, match="contiguous"):
        judge(place, told)
