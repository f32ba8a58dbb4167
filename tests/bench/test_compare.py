"""`make bench-compare`: two commits of an engine, by the same benchmarks in turn."""

import os
import shutil
import subprocess
from pathlib import Path

import compare
import pytest

BENCH = Path(__file__).parents[2] / "bench"
ENGINE = """
import os

def work():
    with open(os.environ["SEEN"], "a") as seen:
        print({name!r}, file=seen)
"""
TINY = """
from contest import Engine

import refdelta

def bench_both(contest):
    contest.run([Engine("refdelta", refdelta.work), Engine("rival", lambda: 1 / 0)], rounds=1, warm=0)

def bench_later(contest):
    contest.run([Engine("refdelta", refdelta.new)], rounds=1, warm=0)
"""


def git(root, *arguments):
    identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
    done = subprocess.run(["git", "-C", str(root), *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def engines(tmp_path):
    """A repository with three commits of an engine: one, two, and one that does not start. They have tags."""
    root = tmp_path / "project"
    (root / "storage" / "refdelta_storage").mkdir(parents=True)
    (root / "storage" / "refdelta_storage" / "__init__.py").touch()
    (root / "refdelta").mkdir()
    git(root.parent, "init", "--quiet", str(root))
    contents = {
        "one": ENGINE.format(name="one"),
        "two": ENGINE.format(name="two") + "new = work\n",
        "broken": "1 / 0",
    }
    for name, content in contents.items():
        (root / "refdelta" / "__init__.py").write_text(content)
        git(root, "add", ".")
        git(root, "commit", "--quiet", "-m", name)
        git(root, "tag", name)
    return root


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """Benchmarks of that engine, and where it writes which of its commits ran."""
    folder = tmp_path / "bench"
    folder.mkdir()
    shared = [path for path in BENCH.glob("*.py") if not path.name.startswith("bench_")]
    for path in (*shared, BENCH / "pytest.ini"):
        shutil.copy(path, folder)
    (folder / "bench_tiny.py").write_text(TINY)
    seen = tmp_path / "seen"
    monkeypatch.setattr(compare, "BENCH", folder)
    monkeypatch.setenv("SEEN", str(seen))
    # The benchmarks are not part of a run, perhaps of xdist, that starts them.
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        monkeypatch.delenv(name)
    return seen


def worktrees(root):
    return git(root, "worktree", "list", "--porcelain").count("worktree ")


@pytest.mark.tier("nightly")
@pytest.mark.usefixtures("bench")
def test_both_commits_run_in_turn_without_rivals_and_leave_nothing(engines, bench, capsys):
    assert compare.main(["one", "two", "--pairs", "2", "--size", "smoke"], root=engines) == 0
    # The second benchmark is of the second commit only.
    assert bench.read_text().split() == ["one", "two", "two"] * 2
    out = capsys.readouterr().out
    assert "A is one, B is two" in out
    assert "both   A " in out
    assert "of A: " in out
    assert "later  not compared: it fails at one" in out
    assert worktrees(engines) == 1


@pytest.mark.sample(check=2)
@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("one", "nonsense"), "there is no commit 'nonsense'"),
        (("", "two"), "'' is no commit"),
        (("one", "HEAD:refdelta"), "there is no commit 'HEAD:refdelta'"),
        (("broken", "two"), "the engine at this commit does not start"),
    ],
)
def test_commits_that_cannot_be_compared_are_refused(names, told, engines, bench, capsys):
    assert compare.main([*names, "--size", "smoke"], root=engines) == 2
    assert told in capsys.readouterr().err
    assert not bench.exists()
    assert worktrees(engines) == 1


def test_a_name_that_looks_like_an_option_is_no_commit(engines):
    with pytest.raises(compare.CompareError, match="is no commit"):
        compare.resolve(engines, "--all")


@pytest.mark.tier("test")
def test_benchmarks_that_cannot_run_are_told(engines, bench, capsys):
    assert compare.main(["one", "two", "-k", "nothing_of_this_name"], root=engines) == 2
    assert "no benchmark ran" in capsys.readouterr().err
    assert worktrees(engines) == 1


def test_changes_that_are_not_committed_are_told(engines, bench, capsys):
    (engines / "refdelta" / "__init__.py").write_text("changed = True\n")
    compare.main(["nonsense", "two"], root=engines)
    assert "1 changed files of the engine are not committed, and not compared" in capsys.readouterr().err


def test_pairs_of_none_are_refused(engines, capsys):
    with pytest.raises(SystemExit) as ended:
        compare.main(["one", "two", "--pairs", "0"], root=engines)
    assert ended.value.code == 2
    assert "--pairs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("second", "word"),
    [([1.1, 22.0, 1.2], "slower"), ([0.9, 18.0, 0.8], "faster"), ([1.1, 18.0, 1.0], "no difference beyond the spread")],
)
def test_ratios_are_taken_within_pairs(second, word):
    first = {"title": {0: 1.0, 1: 20.0, 2: 1.0}}
    (line,) = compare.lines(("one", "two"), first, {"title": dict(enumerate(second))})
    assert line.endswith(f": {word}")
