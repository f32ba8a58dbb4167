"""The recipes of docs/guide/recipes.md, each by its scheduler, which ``nox -s recipes`` installs.

A section's files, which begin with a comment that names them, are written into a folder, where its commands are run.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from by_path import loaded
from refdelta import DeltaTable, verify

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guide" / "recipes.md"
ENVIRONMENTS = ROOT / ".nox"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"^(?:#!/bin/sh\n)?(?:#|--) ([\w/]+\.\w+)\b")
DAYS = {"2026-11-24": 30, "2026-11-25": 30}
SECRET = json.dumps({"fsync": "false"})  # the one option of a local folder


def section(name):
    """The files of a section by their names, and its commands."""
    (text,) = re.findall(rf"^## {name}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    files, commands = {}, []
    for language, block in _BLOCK.findall(text):
        if named := _NAMED.match(block):
            files[named[1]] = block
        elif language == "sh":
            commands.append(block)
    return files, commands


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command in the folder of a recipe, with the programs of an environment first."""
    monkeypatch.setenv("LAKE_ROOT", str(tmp_path / "lake"))

    def run(command, programs, check=True):
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join([str(tmp_path), *OWN])}
        done = subprocess.run(
            ["sh", "-e", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert not check or done.returncode == 0, (done.stdout + done.stderr)[-4000:]
        return done

    return run


OWN = [str(ROOT), str(ROOT / "storage")]


def write(files, folder):
    """Write the files of a section, and the module of the jobs beside the first of them."""
    _, jobs = _BLOCK.search(PAGE.read_text()).groups()
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    first = (folder / next(iter(files))).parent
    (first / "jobs.py").write_text(jobs)


def rows(path, key):
    return sorted(DeltaTable(path).to_pyarrow_table().to_pylist(), key=lambda row: row[key])


@pytest.mark.tier("nightly")  # each needs an environment of its own
@pytest.mark.parametrize("tool", ["airflow", "dagster", "prefect", "dbt"])
def test_the_scheduler_runs_it_twice_and_no_row_is_doubled(tool, run, tmp_path, monkeypatch):
    programs = ENVIRONMENTS / f"recipes-{tool}" / "bin"
    if not programs.exists():
        pytest.skip(f"{tool} is not installed: nox --install-only -s 'recipes({tool})'")
    extra = {"root": str(tmp_path / "lake"), "options": json.loads(SECRET)}
    for name, value in {
        "AIRFLOW_HOME": tmp_path / "airflow",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": tmp_path / "dags",
        "AIRFLOW_CONN_LAKE": json.dumps({"conn_type": "generic", "extra": extra}),
        "LAKE_OPTIONS": SECRET,
        "PREFECT_HOME": tmp_path / "prefect",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "200",
        "DBT_PROFILES_DIR": tmp_path,
        "DBT_ENV_SECRET_LAKE": SECRET,
        # No usage reports from a test.
        "DO_NOT_TRACK": "1",
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
    }.items():
        monkeypatch.setenv(name, str(value))
    files, commands = section({"airflow": "Airflow", "dagster": "Dagster", "prefect": "Prefect"}.get(tool, tool))
    write(files, tmp_path)
    if tool == "dbt":  # it reads orders, which another program has written
        for day in DAYS:
            run(
                f"python -c \"import jobs; jobs.load('lake/orders', jobs.orders_of('{day}'), 'orders/{day}')\"",
                programs,
            )
        commands *= 2
        model = files["models/totals.sql"].replace("totals.parquet", "none.parquet")
        (tmp_path / "models" / "none.sql").write_text(f"{model} having false")
    for command in commands:
        run(command, programs)
    assert [row["amount"] for row in rows(tmp_path / "lake" / "orders", "id")] == [10, 20, 10, 20]
    assert {row["day"]: row["amount"] for row in rows(tmp_path / "lake" / "totals", "day")} == DAYS
    for name in ("orders", "totals"):
        assert verify(tmp_path / "lake" / name).sound
    if tool == "dbt":
        assert DeltaTable(tmp_path / "lake" / "none").count() == 0, "dbt-duckdb's file of no rows has one of nulls"
    else:
        assert DeltaTable(tmp_path / "lake" / "orders").transaction_version("orders/2026-11-24") == 1
        assert list((tmp_path / "lake" / "orders" / "_delta_log").glob("*.checkpoint*.parquet"))


@pytest.mark.tier("nightly")
def test_cron_runs_it_twice_and_at_once(run, tmp_path):
    files, commands = section("cron")
    assert set(files) == {"orders.sh", "maintain.sh"}
    write(files, tmp_path)
    programs = ENVIRONMENTS / "recipes-cron" / "bin"
    if not programs.exists():
        programs = Path(sys.executable).parent
    (tmp_path / "lake.env").write_text(f"export LAKE_ROOT={tmp_path / 'lake'}\n")
    for folder in ("in", "corrected"):
        (tmp_path / folder).mkdir()
    for day in DAYS:
        (tmp_path / "in" / f"{day}.csv").write_text(f"id,day,amount\n{day[-2:]}0,{day},10\n{day[-2:]}1,{day},20\n")
    (tmp_path / "corrected" / "2026-11-25.csv").write_text("id,day,amount\n251,2026-11-25,25\n252,2026-11-25,1\n")
    for command in commands:
        run(command, programs)
    first = run("./orders.sh 2026-11-24", programs)
    assert [line.split(":")[0] for line in first.stdout.splitlines()] == ["version 1"]
    run("./orders.sh 2026-11-25 & ./orders.sh 2026-11-25 & ./maintain.sh & wait", programs)
    again = run("./orders.sh 2026-11-25", programs)
    assert again.stdout.startswith("nothing was written\n")
    run("./maintain.sh", programs)
    lost = run("./orders.sh 2026-11-26", programs, check=False)
    assert (lost.returncode, lost.stdout) == (1, "")
    assert lost.stderr in PAGE.read_text()
    assert [row["id"] for row in rows(tmp_path / "lake" / "orders", "id")] == [240, 241, 250, 251, 252]
    assert {row["day"]: row["amount"] for row in rows(tmp_path / "lake" / "totals", "day")} == {
        "2026-11-24": 30,
        "2026-11-25": 36,
    }


def test_runs_that_overlap_count_each_change_once(tmp_path):
    """Another run passes on more changes after the first one has read its position."""
    (tmp_path / "jobs.py").write_text(_BLOCK.search(PAGE.read_text())[2])
    jobs = loaded(tmp_path / "jobs.py")
    orders, totals = str(tmp_path / "orders"), str(tmp_path / "totals")
    jobs.load(orders, jobs.orders_of("2026-11-24"), "a")
    position, left = DeltaTable.transaction_version, [1]

    def overtaken(table, name):
        found = position(table, name)
        if left:
            left.pop()
            jobs.load(orders, jobs.orders_of("2026-11-25"), "b")
            jobs.add_up(orders, totals)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeltaTable, "transaction_version", overtaken)
        jobs.add_up(orders, totals)
    assert not left
    assert {row["day"]: row["amount"] for row in rows(totals, "day")} == DAYS
    assert position(DeltaTable(totals), "orders") == 1
