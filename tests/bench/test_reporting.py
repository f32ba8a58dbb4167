"""`make bench-report`: the lines of a run, the README's table, and the plots."""

import itertools
import re
import xml.etree.ElementTree as ET

import pytest
import report
import reporting
import results
import svg

from bench import runs

SVG = "{http://www.w3.org/2000/svg}"
EMPTY = f"# Title\n\nbefore\n\n{reporting.BEGIN}\n{reporting.END}\n\nafter\n"


@pytest.fixture
def run(tmp_path):
    return results.load(runs.write(tmp_path / "run.json"))


@pytest.fixture
def plots(run):
    return dict(reporting.plots(run))


def elsewhere(folder):
    """Arguments by which nothing is written into the project."""
    return ["--figures", str(folder / "figures.md"), "--plots", str(folder / "plots")]


def texts(plot):
    return ["".join(element.itertext()) for element in ET.fromstring(plot).iter(f"{SVG}text")]


# --- lines ---


def test_lines_tell_seconds_ratios_and_goals(run):
    text = "\n".join(report.lines(run.benches[:1]))
    assert "log only commits\n" in text
    assert "500 µs a commit  [400 µs .. 600 µs]  (no fsync)" in text
    assert "refdelta takes 0.0417 x [0.04 .. 0.0462]" in text
    assert "goal: at most 0.05 x deltalake: reached" in text
    assert "goal: at most 1.5 x floor: MISSED" in text


@pytest.mark.parametrize(
    ("seconds", "text"), [(2.5, "2.5 s"), (0.01, "10 ms"), (4.2e-5, "42 µs"), (3e-9, "3 ns"), (1e-10, "0.1 ns")]
)
def test_durations(seconds, text):
    assert report.duration(seconds) == text


# --- the table ---


def test_the_table_stands_between_its_comments_in_place_of_what_was_there(run, tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(EMPTY)
    reporting.write(run, readme, tmp_path / "figures.md", tmp_path / "bench" / "plots")
    once = readme.read_text()
    assert once.startswith("# Title\n\nbefore\n")
    assert once.endswith("\n\nafter\n")
    reporting.write(run, readme, tmp_path / "figures.md", tmp_path / "bench" / "plots")
    assert readme.read_text() == once
    linked = re.findall(r"^!\[.*\]\((.*)\)$", once, re.MULTILINE)
    there = sorted(f"bench/plots/{path.name}" for path in (tmp_path / "bench" / "plots").iterdir())
    assert sorted(linked) == there


def test_the_table_names_the_command_the_commit_the_machine_and_the_versions(run):
    head = reporting.where(run)
    assert head in reporting.summary(run, "figures.md", [])
    assert head in reporting.table(run)
    for said in ("`make bench` at 0123456 on 21 November 2026", "2 cores of A & B <fast>, 8 GiB", "deltalake 1.6.6"):
        assert said in head
    assert "delta-spark" not in head  # which took no part


def test_a_row_has_each_rival_with_settings_and_each_goal(run):
    row = next(line for line in reporting.table(run).splitlines() if line.startswith("| log only"))
    _, _, own, others, goals, _ = row.split("|")
    assert own.strip() == "500 µs a commit (no fsync)"
    assert "deltalake: **0.042** [0.04 .. 0.046], 12 ms (no fsync)<br>floor: **2.5**" in others
    assert "at most 0.05 x deltalake: reached<br>at most 1.5 x floor: **missed**" in goals


def test_the_readme_has_the_largest_of_each_kind_and_what_has_another_goal(run):
    shown = list(reporting.largest(run))
    assert len({bench.function for bench in run.benches}) <= len(shown) < len(run.benches)
    goals = {(bench.function, goal.text) for bench in run.benches for goal in bench.goals}
    assert {(bench.function, goal.text) for bench in shown for goal in bench.goals} == goals
    text = reporting.summary(run, "figures.md", [])
    assert all(f"| {bench.title} | " in text for bench in shown)
    assert "| 500 µs a commit | 12 ms **0.042** |  | 200 µs **2.5** |" in text
    assert "[All figures](figures.md)" in text


def test_plots_of_another_run_do_not_stay(run, tmp_path):
    readme, folder = tmp_path / "README.md", tmp_path / "plots"
    readme.write_text(EMPTY)
    reporting.write(run, readme, tmp_path / "figures.md", folder)
    less = results.load(runs.write(tmp_path / "less.json", runs.everything()[:1]))
    reporting.write(less, readme, tmp_path / "figures.md", folder)
    assert not list(folder.iterdir())
    assert "![" not in readme.read_text()


# --- the plots ---


def test_there_is_a_plot_of_each_kind_that_has_points(plots):
    assert list(plots) == ["conflict-check", "snapshot", "throughput", "abort-rate"]


def test_plots_are_drawn_for_light_and_dark_and_name_versions_settings_units_and_source(plots):
    for plot in plots.values():
        root = ET.fromstring(plot)
        style = root.find(f"{SVG}style").text
        assert "prefers-color-scheme: dark" in style
        assert svg.LIGHT[0] in style
        assert svg.DARK[0] in style
        shown = texts(plot)
        assert any(text.startswith("refdelta 0.1.0") for text in shown)
        assert any(text.startswith("deltalake 1.6.6") for text in shown)
        assert any(text.startswith("make bench at 0123456") for text in shown)
        assert "A & B <fast>" in " ".join(shown)
    assert {"seconds", "winners", "deltalake 1.6.6: its defaults"} <= set(texts(plots["conflict-check"]))
    assert {"commits per second", "writers"} <= set(texts(plots["throughput"]))
    assert "of the transactions that were tried" in texts(plots["abort-rate"])


def test_all_points_are_inside_their_panel(plots):
    for name in ("conflict-check", "snapshot", "throughput"):
        dots = list(ET.fromstring(plots[name]).iter(f"{SVG}circle"))
        assert len(dots) > 6
        panels = [dot for dot in dots if dot.find(f"{SVG}title").text]
        for dot in panels:
            assert svg.LEFT <= float(dot.get("cx")) <= svg.PANEL_WIDTH - svg.RIGHT
            assert svg.TOP <= float(dot.get("cy")) <= svg.PANEL_HEIGHT - svg.BOTTOM


def test_a_higher_figure_is_drawn_higher(plots):
    """Ten times the winners, ten times the seconds: equal steps up, on axes that are logarithmic."""
    dots = [dot for dot in ET.fromstring(plots["conflict-check"]).iter(f"{SVG}circle") if dot.find(f"{SVG}title").text]
    own = [float(dot.get("cy")) for dot in dots if dot.find(f"{SVG}title").text.startswith("refdelta")]
    steps = [before - after for before, after in itertools.pairwise(own)]
    assert min(steps) > 10
    assert max(steps) - min(steps) < 0.5


def test_bars_are_as_long_as_their_shares(plots):
    bars = {}
    for group in ET.fromstring(plots["abort-rate"]).iter(f"{SVG}rect"):
        told = group.find(f"{SVG}title")
        if told is not None:
            bars.setdefault(told.text.partition(":")[0], []).append((told.text, float(group.get("width"))))
    lengths = {float(text.rpartition(": ")[2].removesuffix(" %")): width for text, width in bars["deltalake 1.6.6"]}
    assert lengths[87.5] > lengths[75.0] > lengths[50.0]
    panels = svg.PANEL_WIDTH - 76
    assert max(lengths.values()) <= panels


def test_an_engine_has_one_hue_and_its_variants_dashes_of_their_own(run):
    own, variant = reporting.look(run, "refdelta"), reporting.look(run, "refdelta, files decide")
    assert own.hue == variant.hue
    assert own.dashes != variant.dashes
    assert reporting.look(run, "deltalake").hue != own.hue
    assert reporting.look(run, "floor").style == "grey"


@pytest.mark.parametrize(("low", "high"), [(0.001, 0.001), (3e-6, 40.0), (1e-9, 1e9), (0.5, 0.9), (10.0, 10.0)])
@pytest.mark.parametrize("log", [False, True])
def test_ticks_enclose_what_is_drawn(low, high, log):
    ticks = svg.Axis("x", log=log).ticks(low, high)
    assert ticks == sorted(set(ticks))
    assert ticks[0] <= low * 1.0001 if log else ticks[0] == 0
    assert ticks[-1] >= high * 0.9999
    assert 2 <= len(ticks) <= 9


# --- the program ---


def test_the_program_takes_the_newest_run(tmp_path, monkeypatch, capsys):
    for name in ("20261121-100000-aaaaaaa.json", "20261121-110000-bbbbbbb.json"):
        runs.write(tmp_path / name)
    (tmp_path / "20261121-120000-ccccccc.json").touch()  # under way
    monkeypatch.setattr(reporting, "newest", lambda: results.newest(tmp_path))
    readme = tmp_path / "README.md"
    readme.write_text(EMPTY)
    assert reporting.main(["--readme", str(readme), *elsewhere(tmp_path)]) == 0
    assert "bbbbbbb" in capsys.readouterr().out
    assert "| log only commits" in readme.read_text()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "is no run of `make bench`"),
        ("{", "is no run of `make bench`"),
        ("{}", "is no run of `make bench`: KeyError: 'benchmarks'"),
        ("[]", "is no run of `make bench`: TypeError"),
    ],
)
def test_what_is_no_run_is_refused(content, told, tmp_path, capsys):
    path = tmp_path / "run.json"
    if content is not None:
        path.write_text(content)
    readme = tmp_path / "README.md"
    readme.write_text(EMPTY)
    assert reporting.main([str(path), "--readme", str(readme), *elsewhere(tmp_path)]) == 1
    assert told in capsys.readouterr().err
    assert readme.read_text() == EMPTY
    assert not (tmp_path / "plots").exists()


def test_a_run_without_contests_and_a_folder_without_runs_are_refused(tmp_path):
    with pytest.raises(results.ResultsError, match="no run in"):
        results.newest(tmp_path)
    with pytest.raises(results.ResultsError, match="no contest"):
        results.load(runs.write(tmp_path / "run.json", []))


def test_a_readme_without_a_place_for_the_figures_is_left_alone(tmp_path, capsys):
    path, readme = runs.write(tmp_path / "run.json"), tmp_path / "README.md"
    readme.write_text("# Title\n")
    assert reporting.main([str(path), "--readme", str(readme), *elsewhere(tmp_path)]) == 1
    assert "no place for the figures" in capsys.readouterr().err
    assert readme.read_text() == "# Title\n"
