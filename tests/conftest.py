"""What all tests share: hypothesis profiles, fresh folders, and the one Spark session of a run.

``pytest`` runs everything that can run here; ``-m "not spark"`` leaves delta-spark out. Under pytest-xdist the tests
marked ``spark`` form one group, so that with ``--dist loadgroup`` one worker has the session and the others none; those
marked ``spark(apart=True)`` start Sparks in processes of their own, beside it.
"""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from servers.running import AzureServer, Place, S3Server, Server

ROOT = Path(__file__).resolve().parent.parent
IN_CI = os.environ.get("CI", "").lower() in {"1", "true"}

# The JARs of delta-spark live in the project's ignored cache folder, so that a run leaves the home folder alone.
os.environ.setdefault("REFDELTA_CACHE", str(ROOT / ".cache"))
# Spark's workers need the packages that this Python has, and take the first python3 of the path otherwise.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("dev", deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if IN_CI else "dev"))


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in a hook of its own
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            marker = item.get_closest_marker("spark")
            if marker and not marker.kwargs.get("apart"):
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


def _serve(kind: type[Server]) -> Iterator[Any]:
    from servers.install import ServerUnavailableError

    try:
        server = kind().start()
    except ServerUnavailableError as error:
        (pytest.fail if IN_CI else pytest.skip)(str(error))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """versitygw, one for each process of a test run. Skips where it cannot be had, and fails there when CI=true."""
    from servers.running import S3Server

    yield from _serve(S3Server)


@pytest.fixture(scope="session")
def azure_server() -> Iterator[AzureServer]:
    """Azurite, as :func:`s3_server`."""
    from servers.running import AzureServer

    yield from _serve(AzureServer)


BACKENDS = ("local", "memory", "s3", "azure")


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """The name of each backend in turn."""
    return str(request.param)


@pytest.fixture
def new_place(backend: str, request: pytest.FixtureRequest, fresh_path: Callable[[], Path]) -> Callable[[], Place]:
    """Gives fresh places for tables, one at each call, on each backend in turn: local, memory, S3, Azure."""
    from servers.running import Place

    match backend:
        case "local":
            return lambda: Place(str(fresh_path()), {})
        case "memory":
            return lambda: Place(f"memory://{fresh_path()}", {})
        case "s3":
            return request.getfixturevalue("s3_server").place  # type: ignore[no-any-return]
        case _:
            return request.getfixturevalue("azure_server").place  # type: ignore[no-any-return]


@pytest.fixture
def place(new_place: Callable[[], Place]) -> Place:
    """One fresh place for a table, on each backend in turn."""
    return new_place()
