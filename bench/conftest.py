"""What the benchmarks share: how large they are, who takes part, and what is told at the end."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from contest import Contest
from report import lines
from resting import rest
from results import Bench

DATA = Path(__file__).parent / "data"
# On a disk, unlike /tmp on many systems, and away from where tests and builds have just removed thousands of files.
DISK = Path("/var/tmp")
SIZES = ("smoke", "default", "full")
PACKAGES = (
    *("pyarrow", "pyroaring", "msgspec", "fsspec", "s3fs", "adlfs", "gcsfs", "obstore"),
    *("deltalake", "delta-spark", "pyspark", "duckdb", "polars", "pyiceberg"),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("contests")
    group.addoption("--size", choices=SIZES, default="default", help="smoke: does each work; full: as long as it takes")
    group.addoption("--rounds", type=int, help="how many rounds count, whatever a benchmark asks for")
    group.addoption("--without", action="append", default=[], metavar="ENGINE", help="an engine that is left out")
    group.addoption(
        "--alone", action="store_true", help="refdelta without any other engine, as `make bench-compare` does"
    )
    group.addoption("--scratch", type=Path, help="where the tables are written; the disk makes a difference")
    group.addoption("--seed", type=int, default=20261121)


def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    machine_info["packages"] = {name: version(name) for name in ("refdelta", *PACKAGES)}
    machine_info["cores"] = len(os.sched_getaffinity(0))
    machine_info["memory"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    machine_info["kernel"] = platform.release()
    machine_info["size"] = config.getoption("size")
    machine_info.pop("node", None)  # nobody's name


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    session = getattr(config, "_benchmarksession", None)
    told = [bench.as_dict() for bench in session.benchmarks if bench] if session else []
    for line in lines([Bench.of(one) for one in told if "engines" in one["extra_info"]]):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def size(pytestconfig: pytest.Config) -> Any:
    """``size(smoke=.., default=.., full=..)`` is what fits the run; without ``full`` it is as the default."""
    name = pytestconfig.getoption("size")

    def choose(*, smoke: Any, default: Any, full: Any = None) -> Any:
        return {"smoke": smoke, "default": default, "full": default if full is None else full}[name]

    return choose


@pytest.fixture
def contest(benchmark: Any, pytestconfig: pytest.Config) -> Contest:
    option = pytestconfig.getoption
    rounds = option("rounds") or (1 if option("size") == "smoke" else None)
    return Contest(benchmark, rounds, frozenset(option("without")), option("seed"), alone=option("alone"))


@pytest.fixture(scope="session")
def scratch(pytestconfig: pytest.Config) -> Iterator[Path]:
    """A folder on the disk that is measured, which has rested from what was removed before."""
    parent = pytestconfig.getoption("scratch") or (DISK if os.access(DISK, os.W_OK) else DATA)
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=parent))
    if pytestconfig.getoption("size") != "smoke":
        with pytestconfig.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            rest(folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def folder(scratch: Path) -> Path:
    """A fresh folder of one benchmark. It goes with the others at the end: see ``DISK``."""
    return Path(tempfile.mkdtemp(dir=scratch))


@pytest.fixture(scope="session")
def spark(pytestconfig: pytest.Config) -> Iterator[Any]:
    """A warm delta-spark session, with the settings that its users have. None where it is left out, or cannot start."""
    if pytestconfig.getoption("alone") or "delta-spark" in pytestconfig.getoption("without"):
        yield None
        return
    from refdelta.crosscheck import oracle

    conf = {"spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "false"}
    with contextlib.ExitStack() as stack:
        try:
            session = stack.enter_context(oracle.session(memory="3g", conf=conf))
        except oracle.OracleUnavailableError as error:
            print(f"delta-spark is left out: {error}", file=sys.stderr)
            session = None
        yield session
