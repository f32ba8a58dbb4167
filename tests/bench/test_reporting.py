"""`make bench-report`: the lines of a run, the README's lines, the page of figures, and the plots."""

import itertools
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import charts
import pytest
import report
import reporting
import results
from matplotlib.backends.backend_agg import FigureCanvasAgg

from bench import runs

SVG = "{http://www.w3.org/2000/svg}"
EMPTY = f"# Title\n\nbefore\n\n{reporting.BEGIN}\n{reporting.END}\n\nafter\n"


@pytest.fixture(scope="module")
def run(fresh_path):
    return results.load(runs.write(fresh_path()))


@pytest.fixture(scope="module")
def figures(run):
    return dict(charts.plots(run))


@pytest.fixture(scope="module")
def plots(figures):
    return {name: charts.svg(figure, charts.titled(figure)) for name, figure in figures.items()}


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


@pytest.mark.tier("test")
def test_the_lines_stand_between_their_comments_in_place_of_what_was_there(run, tmp_path):
    readme, figures = tmp_path / "README.md", tmp_path / "bench" / "figures.md"
    readme.write_text(EMPTY)
    figures.parent.mkdir()
    reporting.write(run, readme, figures, tmp_path / "bench" / "plots")
    once, page = readme.read_text(), figures.read_text()
    assert once.startswith("# Title\n\nbefore\n")
    assert once.endswith("\n\nafter\n")
    assert "[All figures](bench/figures.md)" in once
    reporting.write(run, readme, figures, tmp_path / "bench" / "plots")
    assert (readme.read_text(), figures.read_text()) == (once, page)
    linked = re.findall(r"^!\[.*\]\((.*)\)$", page, re.MULTILINE)
    there = sorted(f"plots/{path.name}" for path in (tmp_path / "bench" / "plots").iterdir())
    assert sorted(linked) == there


def test_the_readme_has_a_line_for_each_headline_of_the_run(tmp_path):
    benches = runs.everything()
    for name, engines in (
        ("bench_merge_of_100_000", {"refdelta": runs.engine(1.0), "delta-spark": runs.engine(8.0)}),
        ("bench_scan", {"refdelta": runs.engine(3.0), "deltalake": runs.engine(2.0)}),
    ):
        benches.append(runs.bench("bench_dml.py", name, engines, rows=6_000_000))
    engines = {"refdelta": runs.engine(1.0), "deltalake": runs.engine(5.0)}
    for writers in (1, 8):
        name = f"bench_contention[rows-{writers}]"
        benches.append(
            runs.bench(runs.CONTENTION, name, engines, unit="commit", units=100, writers=writers, mix="rows")
        )
    text = reporting.headlines(results.load(runs.write(tmp_path / "run.json", benches)), "f.md", "b.md")
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| |")]
    assert rows == [
        "| change different rows of one file: 8 writers | 10 ms a commit | 50 ms **0.2** |  |",
        "| merge 100,000 rows: 6,000,000 rows | 1 s |  | 8 s **0.12** |",
        "| scan all columns: 6,000,000 rows | 3 s | 2 s **1.5** |  |",
    ]
    assert "[All figures](f.md)" in text
    assert "[how they are made](b.md)" in text


def test_the_names_of_the_headlines_are_those_of_benchmarks():
    folder = Path(charts.__file__).parent
    there = {
        name
        for file in folder.glob("bench_*.py")
        for name in re.findall(r"^def (bench_\w+)", file.read_text(), re.MULTILINE)
    }
    assert {name for name, _ in reporting.HEADLINES} <= there


def test_the_table_names_the_command_the_commit_the_machine_and_the_versions(run):
    head = reporting.where(run)
    assert head in reporting.headlines(run, "figures.md", "README.md")
    assert head in reporting.table(run)
    for said in ("`make bench` at 0123456 on 21 November 2026", "2 cores of A & B <fast>, 8 GiB", "deltalake 1.6.6"):
        assert said in head
    assert "delta-spark" not in head  # which took no part


def test_a_row_has_each_rival_with_settings_and_each_goal(run):
    _, _, page = reporting.table(run).partition("## All")
    row = next(line for line in page.splitlines() if line.startswith("| log only"))
    _, _, own, others, goals, _ = row.split("|")
    assert own.strip() == "500 µs a commit (no fsync)"
    assert "deltalake: **0.042** [0.04 .. 0.046], 12 ms (no fsync)<br>floor: **2.5**" in others
    assert "at most 0.05 x deltalake: reached<br>at most 1.5 x floor: **missed**" in goals


def test_the_page_has_first_the_largest_of_each_kind_and_what_has_another_goal(run):
    shown = list(reporting.largest(run))
    assert len({bench.function for bench in run.benches}) <= len(shown) < len(run.benches)
    goals = {(bench.function, goal.text) for bench in run.benches for goal in bench.goals}
    assert {(bench.function, goal.text) for bench in shown for goal in bench.goals} == goals
    text = reporting.summary(run, [])
    assert all(f"| {bench.title} | " in text for bench in shown)
    assert "| 500 µs a commit | 12 ms **0.042** |  | 200 µs **2.5** |" in text
    assert text in reporting.table(run)


@pytest.mark.tier("test")
def test_plots_of_another_run_do_not_stay(run, tmp_path):
    readme, folder = tmp_path / "README.md", tmp_path / "plots"
    readme.write_text(EMPTY)
    reporting.write(run, readme, tmp_path / "figures.md", folder)
    less = results.load(runs.write(tmp_path / "less.json", runs.everything()[:1]))
    reporting.write(less, readme, tmp_path / "figures.md", folder)
    assert not list(folder.iterdir())
    assert "![" not in (tmp_path / "figures.md").read_text()


def test_several_runs_are_shown_as_one_with_the_rounds_of_all_of_them(tmp_path):
    one, two = (results.load(runs.write(tmp_path / f"{n}.json", runs.everything())) for n in range(2))
    both = results.load(tmp_path / "0.json", tmp_path / "1.json")
    assert [bench.title for bench in both.benches] == [bench.title for bench in one.benches]
    for bench, part in zip(both.benches, two.benches, strict=True):
        for name, engine in bench.engines.items():
            once = part.engines[name]
            assert sorted(engine.seconds.values()) == sorted([*once.seconds.values()] * 2)
            assert engine.figures == {figure: values * 2 for figure, values in once.figures.items()}
            assert engine.middle == pytest.approx(once.middle)
            assert bench.ratio(name).middle == pytest.approx(part.ratio(name).middle)
    assert "`make bench`, 2 runs, at 0123456" in reporting.where(both)


def test_the_contests_of_the_first_run_that_is_named_come_first(tmp_path):
    """One run may have left out what another one measured alone."""
    told = json.loads(runs.write(tmp_path / "whole.json", runs.everything()).read_text())
    whole, names = results.load(tmp_path / "whole.json"), []
    for number in range(2):
        names.append(tmp_path / f"{number}.json")
        part = told["benchmarks"][:2] if number else told["benchmarks"][2:]
        names[-1].write_text(
            json.dumps(told | {"benchmarks": part, "datetime": f"2026-11-2{9 - number}T00:00:00+00:00"})
        )
    both = results.load(*reversed(names))
    assert [bench.title for bench in both.benches] == [bench.title for bench in whole.benches]
    assert both.time.day == 29


def test_runs_of_different_sizes_are_not_one(tmp_path):
    paths = [tmp_path / "default.json", tmp_path / "full.json"]
    runs.write(paths[0], runs.everything())
    told = json.loads(paths[0].read_text())
    told["machine_info"]["size"] = "full"
    paths[1].write_text(json.dumps(told))
    with pytest.raises(results.ResultsError, match=r"not of one commit, size and machine: .*default.*full"):
        results.load(*paths)


# --- the plots ---


@pytest.mark.tier("test")
def test_there_is_a_plot_of_each_kind_that_has_points(plots):
    assert list(plots) == ["conflict-check", "snapshot", "throughput", "abort-rate"]


@pytest.mark.tier("test")
def test_plots_are_drawn_for_light_and_dark_and_name_versions_settings_units_and_source(plots):
    for plot in plots.values():
        root = ET.fromstring(plot)
        style = root.find(f"{SVG}style").text
        assert "prefers-color-scheme: dark" in style
        own = charts.LOOKS["refdelta"]
        assert own.light in plot.partition("</style>")[2]
        assert f'[style*="fill: {own.light}"]{{fill:{own.dark}!important}}' in style
        shown = texts(plot)
        assert any(text.startswith("refdelta 0.1.0") for text in shown)
        assert any(text.startswith("deltalake 1.6.6") for text in shown)
        assert any(text.startswith("make bench at 0123456") for text in shown)
        assert "A & B <fast>" in " ".join(shown)
    assert {"seconds", "winners", "deltalake 1.6.6: its defaults"} <= set(texts(plots["conflict-check"]))
    assert {"commits per second", "writers"} <= set(texts(plots["throughput"]))
    assert "of the transactions that were tried" in texts(plots["abort-rate"])


def test_every_colour_has_one_for_a_dark_ground(plots):
    for plot in plots.values():
        style, _, drawn = plot.partition("</style>")
        used = set(re.findall(r"(?:fill|stroke): (#\w+)", drawn))
        assert used <= set(re.findall(r'\[style\*="fill: (#\w+)"\]', style))


@pytest.mark.tier("test")
def test_the_same_figures_are_the_same_plot(run, plots):
    again = {name: charts.svg(figure, charts.titled(figure)) for name, figure in charts.plots(run)}
    assert again == plots
    assert not any("<dc:date>" in plot for plot in plots.values())


def test_titles_state_what_the_figures_show(figures):
    titles = {name: charts.titled(figure) for name, figure in figures.items()}
    assert titles["conflict-check"] == (
        "Committing over other writers' commits: 14 times as fast as deltalake (10,000 winners)"
    )
    assert titles["snapshot"].endswith(": 2 times as fast as deltalake (1,000,000 files)")
    assert titles["throughput"].endswith(": 25 times as fast as deltalake (8 writers)")
    assert titles["abort-rate"] == (
        "Contention: disjoint rows, 8 writers: 0 % of refdelta's transactions conflict, 88 % of deltalake's"
    )
    assert "14 times as fast as deltalake at 10,000: 2.5 s, 35 s" in panel_texts(figures["conflict-check"])


def test_each_line_has_its_name_at_its_end_and_no_name_covers_another(figures):
    figure = figures["throughput"]
    for axes in figure.axes:
        names = {
            text.get_text(): text for text in axes.texts if text.get_text() in {"refdelta", "deltalake", "files decide"}
        }
        assert len(names) == 3
        assert names["deltalake"].get_color() == charts.LOOKS["deltalake"].light
    same = {f"refdelta, {number}": (8, 100 + number / 10) for number in range(6)}
    axes = figure.axes[0]
    known = len(axes.texts)
    charts._name_ends(axes, same, dict.fromkeys(same, charts.LOOKS["refdelta"]))
    FigureCanvasAgg(figure).draw()
    boxes = [text.get_window_extent() for text in axes.texts[known:]]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def panel_texts(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_without_the_rival_a_title_is_the_topic_and_a_panel_has_the_floor(tmp_path):
    benches = [bench for bench in runs.everything() if bench["fullname"].startswith(runs.STALE)]
    for bench in benches:
        bench["extra_info"]["engines"].pop("deltalake")
    (figure,) = dict(charts.plots(results.load(runs.write(tmp_path / "run.json", benches)))).values()
    assert charts.titled(figure) == "Committing over other writers' commits"
    assert "2.5 times as slow as the floor at 10,000: 2.5 s, 1 s" in panel_texts(figure)


def test_all_points_are_inside_their_panel(figures):
    for name in ("conflict-check", "snapshot", "throughput"):
        lines = [(axes, line) for axes in figures[name].axes for line in axes.lines]
        assert sum(len(line.get_xdata()) for _, line in lines) > 6
        for axes, line in lines:
            (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
            assert all(left <= x <= right for x in line.get_xdata())
            assert all(low <= y <= high for y in line.get_ydata())


@pytest.mark.tier("test")
def test_all_text_is_inside_the_picture(figures):
    for name, figure in figures.items():
        FigureCanvasAgg(figure).draw()
        (legend,) = figure.legends
        shown = [*figure.texts, *legend.get_texts(), *(text for axes in figure.axes for text in axes.texts)]
        for text in shown:
            box = text.get_window_extent()
            assert 0 <= box.x0 <= box.x1 <= figure.bbox.width, (name, text)
            assert 0 <= box.y0 <= box.y1 <= figure.bbox.height, (name, text)
        assert all(axes.get_title(loc="left") for axes in figure.axes)


def test_a_higher_figure_is_drawn_higher(figures):
    """Ten times the winners, ten times the seconds: equal steps up, on axes that are logarithmic."""
    (axes,) = figures["conflict-check"].axes
    (own,) = (line for line in axes.lines if line.get_gid() == "refdelta")
    heights = [axes.transData.transform(point)[1] for point in own.get_xydata()]
    steps = [after - before for before, after in itertools.pairwise(heights)]
    assert min(steps) > 10
    assert max(steps) - min(steps) < 0.5


def test_bars_are_as_long_as_their_shares_and_the_axis_ends_behind_the_longest(figures):
    for axes in figures["abort-rate"].axes:
        shares = [bar.get_width() for bar in axes.patches if bar.get_gid() == "deltalake"]
        assert len(shares) == 3
        assert len(set(shares)) == 1
        assert axes.get_xlim()[0] == 0
        assert 87.5 < axes.get_xlim()[1] < 1.3 * 87.5
    lengths = [max(bar.get_width() for bar in axes.patches) for axes in figures["abort-rate"].axes]
    assert lengths == pytest.approx([50.0, 75.0, 87.5])


def test_bars_stand_in_the_order_of_the_legend(figures):
    (legend,) = figures["abort-rate"].legends
    order = [text.get_text() for text in legend.get_texts()]
    for axes in figures["abort-rate"].axes:
        assert axes.yaxis_inverted()
        bars = sorted(axes.patches, key=lambda bar: bar.get_y())
        names = [bar.get_gid() for bar in bars[:3]]
        assert [text.startswith(f"{name.partition(',')[0]} ") for text, name in zip(order, names, strict=True)] == [
            True
        ] * 3
        assert ["files decide" in text for text in order] == ["files decide" in name for name in names]
        colours = [charts.LOOKS.get(name) or charts.OTHERS[0] for name in names]
        assert [patch.get_facecolor() for patch in legend.get_patches()] == [bar.get_facecolor() for bar in bars[:3]]
        assert len({look.light for look in colours}) == 3


def test_no_two_engines_or_variants_look_alike(run):
    looks = charts.looks(run)
    assert set(looks) == {"refdelta", "refdelta, files decide", "deltalake", "floor"}
    known = [*charts.LOOKS.values(), *charts.OTHERS]
    for kind in ("light", "dark", "marker"):
        assert len({getattr(look, kind) for look in known}) == len(known)
    assert looks["refdelta"] == charts.LOOKS["refdelta"]


def test_what_a_single_writer_does_is_left_out_of_the_conflicts(tmp_path):
    benches = [bench for bench in runs.everything() if bench["fullname"].startswith(runs.CONTENTION)]
    for bench in benches:
        bench["extra_info"]["engines"]["refdelta, one writer"] = runs.engine(1.0, abort_rate=0)
    drawn = dict(charts.plots(results.load(runs.write(tmp_path / "run.json", benches))))
    bars = [bar.get_gid() for axes in drawn["abort-rate"].axes for bar in axes.patches]
    assert "refdelta" in bars
    assert "refdelta, one writer" not in bars
    assert "refdelta, one writer" in [line.get_gid() for axes in drawn["throughput"].axes for line in axes.lines]


# --- the program ---


@pytest.mark.tier("test")
def test_the_program_takes_the_newest_run(tmp_path, monkeypatch, capsys):
    for name in ("20261121-100000-aaaaaaa.json", "20261121-110000-bbbbbbb.json"):
        runs.write(tmp_path / name)
    (tmp_path / "20261121-120000-ccccccc.json").touch()  # under way
    monkeypatch.setattr(reporting, "newest", lambda: results.newest(tmp_path))
    readme = tmp_path / "README.md"
    readme.write_text(EMPTY)
    assert reporting.main(["--readme", str(readme), *elsewhere(tmp_path)]) == 0
    assert "bbbbbbb" in capsys.readouterr().out
    assert "`make bench` at 0123456" in readme.read_text()
    assert "| log only commits" in (tmp_path / "figures.md").read_text()


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


@pytest.mark.tier("test")
def test_a_readme_without_a_place_for_the_figures_is_left_alone(tmp_path, capsys):
    path, readme = runs.write(tmp_path / "run.json"), tmp_path / "README.md"
    readme.write_text("# Title\n")
    assert reporting.main([str(path), "--readme", str(readme), *elsewhere(tmp_path)]) == 1
    assert "no place for the figures" in capsys.readouterr().err
    assert readme.read_text() == "# Title\n"
