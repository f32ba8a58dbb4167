"""What all tests share: hypothesis profiles, fresh folders, and the one Spark session of a run.

``pytest`` runs everything that can run here; ``-m "not spark"`` leaves delta-spark out. Under pytest-xdist the tests
marked ``spark`` form one group, so that with ``--dist loadgroup`` one worker has the session and the others none.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

ROOT = Path(__file__).resolve().parent.parent
IN_CI = os.environ.get("CI", "").lower() in {"1", "true"}

# The JARs of delta-spark live in the project's ignored cache folder, so that a run leaves the home folder alone.
os.environ.setdefault("REFDELTA_CACHE", str(ROOT / ".cache"))

hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("dev", deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if IN_CI else "dev"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            if item.get_closest_marker("spark"):
                item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Give all tests that Spark's absence skips one place, so that the summary says it in one line and not in fifty."""
    report = yield
    if report.skipped and item.get_closest_marker("spark") and isinstance(report.longrepr, tuple):
        report.longrepr = (__file__, 1, report.longrepr[2])
    return report


@pytest.fixture(scope="session")
def fresh_path(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """A folder that does not exist yet, another one at every call: what one example of a property needs."""
    base = tmp_path_factory.mktemp("fresh")
    numbers = itertools.count()
    return lambda: base / f"t{next(numbers)}"


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The Spark session of the run, with delta-spark. Skips where it cannot start, and fails there when CI=true."""
    from refdelta.spark import oracle

    try:
        # Thousands of tiny queries, each with a schema of its own: compiling Java for each takes longer than running.
        session = oracle.start_session(
            conf={"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
        )
    except oracle.OracleUnavailableError as error:
        (pytest.fail if IN_CI else pytest.skip)(str(error))
    yield session
    oracle.stop_session(session)
