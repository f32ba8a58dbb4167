"""The picture of the field: the runs take turns, failures are told and are no figures, and the page has all of them."""

import json
import subprocess
from pathlib import Path

import field
import pytest

from waiting import until


def _line(engine, mix="appends", writers=1, rate=10.0, **more):
    return {
        "engine": engine,
        "uri": "/var/tmp",
        "mix": mix,
        "writers": writers,
        "commits": 10,
        "commits_per_second": rate,
        "aborts": {},
        "latency": {"p50": 5.0, "p99": 9.0},
        "cpu_ms": 3.0,
        "growth": None,
        "machine": {"time": "2026-11-27T10:00:00+00:00", "cpus": 2, "processor": "x", engine: "1.0"},
        **more,
    }


def test_each_round_begins_with_another_engine():
    found = [(one.engine, one.writers) for one in field.works(["a", "b"], ["appends"], [1, 8], 2)]
    assert found == [("a", 1), ("b", 1), ("a", 8), ("b", 8), ("b", 1), ("a", 1), ("b", 8), ("a", 8)]


@pytest.mark.tier("nightly")
def test_runs_become_lines_and_the_page_is_made_of_all_lines(tmp_path, capsys):
    (tmp_path / "scratch").mkdir()
    to, page = tmp_path / "runs.jsonl", tmp_path / "docs" / "field.md"
    page.parent.mkdir()
    how = ["--uri", str(tmp_path / "scratch"), "--to", str(to), "--commits", "4", "--rounds", "1", "--writers", "1"]
    assert field.main([*how, "--engines", "refdelta,deltalake,pyiceberg", "--mixes", "upserts"]) == 0
    assert field.main([*how, "--engines", "", "--page", str(page)]) == 0
    lines = {line["engine"]: line for line in map(json.loads, to.read_text().splitlines())}
    assert lines["refdelta"]["commits"] == lines["deltalake"]["commits"] == 4
    assert "compacts no files" in lines["pyiceberg"]["failed"]
    text = page.read_text()
    assert "| pyiceberg | no figure: pyiceberg compacts no files" in text
    assert "deltalake 1." in text
    assert "with `--mixes upserts --writers 1 --commits 4 --rounds 1 --seconds 300`," in " ".join(text.split())
    svg = (page.parent / field.PICTURE).read_text()
    assert f"]({field.PICTURE})" in text
    assert svg.index(">deltalake<") < svg.index(">1 writer<")
    assert "upserts x 1, deltalake: " in capsys.readouterr().out


def test_figures_are_medians_and_who_is_wrong_has_none():
    lines = [_line("a", rate=rate) for rate in (1.0, 30.0, 2.0)]
    lines += [
        _line("b", failed="the log or the rows differ: appends: other rows than the commits explain: 9, and not 10")
    ]
    lines += [_line("c", failed="not done after 300 s"), _line("a", failed="not done after 300 s")]
    text = field.page(lines)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert text.index("### Local disk: appends") < text.index("| a | 2.0")
    assert "| a | 2.0 | 5 | 9 | 0.00 | 3.00 |" in rows
    assert "| b | **wrong**: 9, and not 10 |  |  |  |  |" in rows
    assert "| c | no figure: not done after 300 s |  |  |  |  |" in rows
    assert text.count("![") == 1
    assert "27" in text
    assert "a 1.0, b 1.0" in text


def test_who_is_wrong_once_has_no_figure():
    wrong = "the log or the rows differ: appends: other rows than the commits explain: 9, and not 10"
    lines = [_line("a"), _line("a", failed=wrong), _line("a", failed="not done after 9 s"), _line("a"), _line("b")]
    assert "| a | **wrong**: 9, and not 10 |  |  |  |  |" in field.page(lines).splitlines()
    assert [len(line.get_xdata()) for line in field.plot(lines).axes[0].get_lines()] == [1]


def test_a_long_reason_is_its_cause_and_has_no_stack():
    query = f'Failed to prepare query "SELECT type FROM {"a" * 100}"'
    reasons = [
        f"writer 6 failed: Error: Failed to look: {query}: database is locked",
        r"writer 1 failed: INTERNAL Error: no file for a | b\n\nStack Trace:\n\n/lib/x.so: 0x7f\nmore: see",
    ]
    text = field.page([_line(str(at), failed=reason) for at, reason in enumerate(reasons)])
    assert "| 0 | no figure: database is locked |" in text
    assert r"| 1 | no figure: no file for a \| b |" in text


def test_requests_and_their_price_are_medians_of_the_runs_that_counted_them():
    costs = [{"requests": {"PUT": 2.0, "GET": count}, "dollars": dollars} for count, dollars in ((1, 0.3), (3, 0.1))]
    lines = [_line("a", rate=1.0), *({**_line("a", rate=1.0), "costs": one} for one in costs)]
    assert "| a | 1.0 | 5 | 9 | 0.00 | 3.00 | 4.0 | 0.2000 |" in field.page(lines).splitlines()


def test_each_place_has_tables_and_pictures_of_its_own():
    far = {"uri": "s3://b/t", "distance": "put=60,get=25"}
    lines = [_line("a", rate=5.0), _line("a", rate=9.0, **far), _line("a:tuned", rate=8.0, **far)]
    text = field.page(lines)
    near, away = text.partition("## S3, put 60, get 25 ms\n")[::2]
    assert "| a | 5.0 |" in near
    assert "| a | 9.0 |" in away
    assert ("1/P = 16.7 versions a second" in near, "1/P = 16.7 versions a second" in away) == (False, True)
    assert "| a:tuned | 8.0 |" in away
    near, away = (axes.get_title(loc="left") for axes in field.plot(lines).axes)
    assert (near, away) == ("Local disk: appends", "S3: appends")


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("engine", ["refdelta", "deltalake", "pyiceberg"])
def test_tuned_settings_change_no_rows(tmp_path, engine):
    told = field.run(field.Work(f"{engine}:tuned", "rows", 2), str(tmp_path), 6, 100, {}, 0)
    assert (told["commits"], told["problems"]) == (6, [])


@pytest.mark.tier("test")
def test_other_settings_are_refused(tmp_path):
    told = field.run(field.Work("deltalake:fast", "appends", 1), str(tmp_path), 2, 100, {}, 0)
    assert told["failed"] == "settings are 'defaults' or 'tuned', not 'fast'"


@pytest.mark.tier("nightly")
def test_a_catalog_in_another_database_is_another_engine(tmp_path):
    database = f"sqlite:///{tmp_path}/own.db"
    work = field.Work("pyiceberg:tuned@postgres", "appends", 1)
    told = field.run(work, str(tmp_path), 4, 100, {}, 0, (), database)
    assert (told["commits"], told["engine"]) == (4, "pyiceberg:tuned@postgres")
    assert (tmp_path / "own.db").exists()
    text = field.page([told, _line("pyiceberg")])
    assert text.count(f" | {field.BOUNDS['pyiceberg']} |") == 1


@pytest.mark.tier("nightly")
def test_a_mix_over_several_tables_is_another_one(tmp_path):
    told = field.run(field.Work("refdelta", "appends", 2), str(tmp_path), 6, 100, {}, 0, ["--tables", "3"])
    assert (told["commits"], told["tables"], told["mix"]) == (6, 3, "appends over 3 tables")
    assert "### Local disk: appends over 3 tables" in field.page([told])


def test_time_is_up(tmp_path):
    told = field.run(field.Work("refdelta", "appends", 1), str(tmp_path), 4, 0.01, {}, 0)
    assert told["failed"] == "not done after 0.01 s"


def test_the_picture_has_a_panel_for_each_work_and_a_point_for_each_figure():
    lines = [_line("a", rate=5.0), _line("a", rate=7.0, writers=8), _line("b", rate=9.0, writers=8)]
    lines += [_line("c", failed="not done"), _line("a", "ycsb-a"), _line("c", "ycsb-a", failed="not done")]
    first, second = field.plot(lines).axes
    assert [text.get_text() for text in first.get_yticklabels()] == ["c", "a", "b"]
    points = {line.get_label(): list(map(tuple, line.get_xydata())) for line in first.get_lines()}
    assert points == {"1 writer": [(5.0, 1.0)], "8 writers": [(7.0, 1.0), (9.0, 2.0)]}
    assert [text.get_text() for text in second.get_yticklabels()] == ["c", "a"]


@pytest.mark.tier("nightly")
def test_many_commits_are_a_work_of_their_own(tmp_path):
    found = [field.run(field.Work("none", "appends", 1), str(tmp_path), count, 60, {}, 0) for count in (999, 10_000)]
    assert [one["mix"] for one in found] == ["appends", "appends, 10,000 commits"]
    assert all("none" in one["failed"] for one in found)


def test_the_writers_of_a_run_end_with_it(tmp_path, monkeypatch):
    """A Python of its own that has a process of its own, as ``refdelta bench`` has its writers."""
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {tmp_path}/writer\nwait\n")
    script.chmod(0o700)
    writer = tmp_path / "writer"

    class Slow(subprocess.Popen):
        """Its time is over when it has its writer."""

        def communicate(self, *_, timeout=None):
            if timeout is None:
                return super().communicate()
            until(lambda: writer.exists() and writer.read_text().endswith("\n"))
            raise subprocess.TimeoutExpired(self.args, timeout)

    monkeypatch.setattr(field.subprocess, "Popen", Slow)
    told = field.run(field.Work("a", "appends", 1), str(tmp_path), 4, 2, {"a": str(script)}, 0)
    assert told["failed"] == "not done after 2 s"
    state = Path("/proc", writer.read_text().strip(), "stat")
    until(lambda: not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z")
