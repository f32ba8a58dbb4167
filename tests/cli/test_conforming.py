"""``refdelta conformance``."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest

from refdelta.conformance.cases import CORPUS


def test_a_case_runs_and_is_shown(cli):
    shown = cli("conformance", "--engine", "refdelta", "--case", "lost-update")
    assert (shown.status, shown.err) == (0, "")
    lines = shown.out.splitlines()
    assert lines[:2] == ["   sound  lost-update@Serializable", "   sound  lost-update@WriteSerializable"]
    assert lines[2].endswith(": 2 sound")


def test_the_exit_status_is_1_where_an_engine_is_wrong(cli, tmp_path):
    report = tmp_path / "junit.xml"
    called = cli(
        *("conformance", "--engine", "deltalake", "--case", "compaction-compaction@Serializable"),
        *("--json", "--junit", report),
    )
    assert called.status == 1
    assert called.err == "refdelta: 1 of 1 case are wrong: compaction-compaction@Serializable\n"
    shown = json.loads(called.out)
    assert (shown["engine"], shown["counts"]["wrong"]) == ("deltalake", 1)
    assert shown["results"][0]["status"] == "wrong"
    assert ET.parse(report).getroot().get("failures") == "1"


def test_random_cases(cli, tmp_path):
    path = tmp_path / "wrong.json"
    called = cli("conformance", "--engine", "refdelta", "--random", "--seeds", "3-4", "--write", path, "--json")
    assert called.status == 0
    assert [result["case"] for result in json.loads(called.out)["results"]] == ["random-3", "random-4"]
    assert json.loads(path.read_text())["cases"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--engine", "none"), "engine 'none' does not exist"),
        (("--engine", "refdelta", "--case", "lost-updates"), "case 'lost-updates' does not exist; did you mean"),
        (("--engine", "refdelta", "--random", "--seeds", "x"), "must be such as 0-99"),
        (("--engine", "refdelta", "--random", "--case", "lost-update"), "--random goes without"),
        (("--engine", "refdelta", "--write", "x.json"), "--write goes with --random"),
        (("--engine", "refdelta", "--corpus", str(CORPUS / "none.json")), "there is no such file"),
    ],
)
def test_calls_that_make_no_sense(fails, arguments, said):
    assert said in fails("conformance", *arguments)
