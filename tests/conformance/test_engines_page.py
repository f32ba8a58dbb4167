"""The page of what engines make of the suite is that of the recorded runs."""

from __future__ import annotations

import re
from pathlib import Path
from pkgutil import resolve_name

import pytest

import by_path
from refdelta.conformance import cases, engines

ROOT = Path(__file__).resolve().parents[2]
generator = by_path.generator("engines_page")


@pytest.mark.tier("test")
def test_the_page_is_that_of_the_recorded_runs():
    assert generator.PAGE.read_text() == generator.page(generator.runs()), "run .ci/generate/engines_page.py --page"


@pytest.mark.tier("test")
def test_a_run_has_each_case_of_the_corpus_that_is_for_its_engine():
    for name, one in generator.runs().items():
        kinds = resolve_name(engines.OWN[name]).kinds if name in engines.OWN else ("statements",)
        kinds = generator.KINDS.get(name, kinds)
        asked = [case.id for case in cases() if case.kind in kinds]
        assert [result["case"] for result in one["results"]] == asked, (
            f"run .ci/generate/engines_page.py --missing --engine {name}"
        )


@pytest.mark.tier("test")
def test_only_missing_cases_are_run_where_the_version_is_the_same(capsys):
    whole = generator.record("refdelta-files", ["statements"], generator.runs()["refdelta-files"])
    assert whole == generator.runs()["refdelta-files"]
    assert capsys.readouterr().out == "", "nothing ran"
    less = {**whole, "date": "2026-11-01", "results": whole["results"][1:]}
    again = generator.record("refdelta-files", ["statements"], less)
    assert again["results"] == whole["results"]
    assert re.fullmatch(r"2026-11-01 and \d{4}-\d\d-\d\d", again["date"])
    assert capsys.readouterr().out.split()[:2] == [whole["results"][0]["status"], whole["results"][0]["case"]]


def test_a_second_run_with_the_same_verdicts_is_a_day_more(capsys):
    def run_of(date, status="wrong", version="1"):
        return {"engine": "e", "version": version, "date": date, "results": [{"case": "a", "status": status}]}

    first = run_of("2026-11-01")
    again = generator.repeated(first, run_of("2026-11-02"))
    assert again == {**first, "again": ["2026-11-02"]}
    assert generator.repeated(again, run_of("2026-11-01")) == again
    assert generator.repeated(again, run_of("2026-11-03"))["again"] == ["2026-11-02", "2026-11-03"]
    assert generator.repeated(first, run_of("2026-11-01")) == first
    assert capsys.readouterr().out == ""
    other = run_of("2026-11-02", "sound")
    assert generator.repeated(again, other) == other
    assert capsys.readouterr().out == "e, a: wrong before, sound now\n"
    newer = run_of("2026-11-02", version="2")
    assert generator.repeated(again, newer) == newer


def test_refdelta_is_wrong_in_no_recorded_case():
    for name in ("refdelta", "refdelta-files"):
        if name in generator.runs():
            assert {one["status"] for one in generator.runs()[name]["results"]} <= {"sound", "needless", "refused"}


@pytest.mark.tier("test")
def test_a_run_is_counted_by_level_and_by_group():
    results = [
        {"case": "a@Serializable", "group": "g", "level": "Serializable", "status": "wrong", "why": "left: [[1]]"},
        {"case": "b@Serializable", "group": "g", "level": "Serializable", "status": "refused", "why": ""},
        {"case": "a@default", "group": "g", "level": "default", "status": "sound", "why": ""},
    ]
    lines = generator.page({"mine": {"engine": "mine", "version": "1", "date": "d", "results": results}}).splitlines()
    assert "| mine | 1 | Serializable | 1 | 1 | 0 | 0 | 1 | 0 |" in lines
    assert "| mine | 1 | default | 1 | 0 | 0 | 1 | 0 | 0 |" in lines
    assert "| g | 1 / 0 / 1 |" in lines
    assert "- `a@Serializable`, wrong: left: `[[1]]`" in lines


@pytest.mark.tier("test")
def test_an_engine_that_is_not_there_keeps_its_run_unless_it_is_asked_for(monkeypatch, tmp_path, capsys):
    def unavailable(name):
        raise engines.EngineUnavailableError(f"{name} is not installed")

    monkeypatch.setattr(engines, "find", unavailable)
    monkeypatch.setattr(generator, "PAGE", tmp_path / "engines.md")
    assert generator.main([]) == 0
    assert "duckdb keeps its recorded run: duckdb is not installed" in capsys.readouterr().out
    assert generator.PAGE.read_text() == generator.page(generator.runs())
    with pytest.raises(engines.EngineUnavailableError, match="polars is not installed"):
        generator.main(["--engine", "polars"])
