"""`make bench`: each benchmark works, in small, and its samples are enough for the report."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import reporting
import results

BENCH = Path(__file__).parents[2] / "bench"
FILES = sorted(BENCH.glob("bench_*.py"))
BESIDE_SPARK = [
    f"{file}::{name}"
    for file in FILES
    for name, arguments in re.findall(r"^def (bench_\w+)\((.*?)\):", file.read_text(), re.MULTILINE | re.DOTALL)
    if re.search(r"\bspark\b", arguments)
]


def smoke(tmp_path, *arguments, timeout):
    """Run benchmarks in small. Returns the run as the report reads it, which it can draw."""
    told = tmp_path / "run.json"
    command = [sys.executable, "-m", "pytest", "-c", BENCH / "pytest.ini", "--size", "smoke", "--benchmark-json", told]
    command += ["--scratch", tmp_path / "scratch", *arguments]
    # The benchmarks are not part of a run of xdist that starts them.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, env=env)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    if " passed" not in done.stdout:  # what it runs against is not there
        (pytest.fail if os.environ.get("CI", "").lower() in {"1", "true"} else pytest.skip)(done.stdout[-300:])
    run = results.load(told)
    for bench in run.benches:
        assert bench.title in done.stdout
        for goal in bench.goals:
            assert goal.engine in bench.engines
            assert not goal.rival or goal.rival in bench.engines
            assert bench.reached(goal) in (True, False)  # it is of a figure that was told
        for name, engine in bench.engines.items():
            assert engine.seconds, f"{bench.title}: {name} has not run"
            assert min(engine.seconds.values()) > 0
    readme = tmp_path / "README.md"
    readme.write_text(f"Figures:\n{reporting.BEGIN}{reporting.END}\n")
    reporting.write(run, readme, tmp_path / "figures.md", tmp_path / "plots")
    first, _, every = (tmp_path / "figures.md").read_text().partition("## All")
    assert reporting.where(run) in readme.read_text()
    assert all(f"| {bench.title}" in first for bench in reporting.largest(run))
    assert all(f"| {bench.title}" in every for bench in run.benches)
    assert not list((tmp_path / "scratch").glob("*")), "it has left something"
    return run


@pytest.mark.tier("nightly")
@pytest.mark.sample(test=1)
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_benchmark_runs_in_small_and_can_be_reported(file, tmp_path):
    run = smoke(tmp_path, file, "--without", "delta-spark", timeout=300)
    assert {bench.file for bench in run.benches} == {file.name}
    assert not any("delta-spark" in bench.engines for bench in run.benches)


@pytest.mark.tier("nightly")
@pytest.mark.spark(apart=True)
@pytest.mark.timeout(900)  # a Spark, beside what else runs
def test_delta_spark_takes_part_in_small(tmp_path):
    assert BESIDE_SPARK
    run = smoke(tmp_path, *BESIDE_SPARK, timeout=800)
    assert {bench.file for bench in run.benches if "delta-spark" in bench.engines} == {
        Path(name.partition("::")[0]).name for name in BESIDE_SPARK
    }
