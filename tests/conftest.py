"""What all tests share: tiers, hypothesis profiles, fresh folders, and the Spark session of a worker.

``pytest`` runs everything that can run here; ``--tier check`` and ``--tier test`` run less (:mod:`tiers`), ``-m "not
spark"`` leaves delta-spark out. Under pytest-xdist, with ``--dist loadgroup``, one worker has all tests that are marked
``spark``: a Spark session takes half a minute of a core until its code is loaded and compiled. Tests marked
``spark(apart=True)`` start Sparks in processes of their own.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import os
import shlex
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

import tiers

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from servers.running import AzureServer, GcsServer, Place, S3Server, Server

ROOT = Path(__file__).resolve().parent.parent
IN_CI = os.environ.get("CI", "").lower() in {"1", "true"}

# The JARs of delta-spark live in the project's ignored cache folder, so that a run leaves the home folder alone.
os.environ.setdefault("REFDELTA_CACHE", str(ROOT / ".cache"))
# Spark's workers need the packages that this Python has, and take the first python3 of the path otherwise.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# Tests start hundreds of processes of Python. Where none keeps what it compiles, each compiles the package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A Java of the tests lives for minutes and runs most of its code a few times: the second compiler would take more time
# than it saves, and so would threads that collect garbage beside it. The cache is for code that is not compiled twice.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=400m"
os.environ["JDK_JAVA_OPTIONS"] = f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {JAVA}".strip()

hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("dev", deadline=None, print_blob=True)
# For `make mutations`, where it matters that an example fails and not which is the smallest.
_NO_SHRINKING = set(hypothesis.Phase) - {hypothesis.Phase.shrink, hypothesis.Phase.explain}
hypothesis.settings.register_profile("mutations", deadline=None, derandomize=True, phases=_NO_SHRINKING)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if IN_CI else "dev"))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("refdelta")
    group.addoption("--tier", choices=tiers.TIERS, help="leave out what it does not have (tests/README.md)")


_NAMED = pytest.StashKey[set[Path]]()


def pytest_configure(config: pytest.Config) -> None:
    # Looked up for each file; make mutations names thousands of tests.
    config.stash[_NAMED] = {Path(argument.partition("::")[0]).resolve() for argument in config.args}
    tiers.choose(config.getoption("tier"))
    # What a property without `@examples` tries.
    hypothesis.settings.register_profile("tier", max_examples=tiers.budget(hypothesis.settings.default.max_examples))
    hypothesis.settings.load_profile("tier")
    # What tests write is small and soon gone. In memory no fsync waits for a disk.
    if "PYTEST_DEBUG_TEMPROOT" not in os.environ and _has_room(_MEMORY):
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(_MEMORY)
    if IN_CI and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_ToldAtOnce(config))
    if file := os.environ.get("REFDELTA_SECONDS"):
        import seconds

        config.pluginmanager.register(seconds.Recorder(file))


@pytest.hookimpl(tryfirst=True, optionalhook=True)  # xdist has one of its own
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """A worker for each core. In the tiers with Spark there is one more for every two cores: the worker that has the
    tests on Spark waits for Java, others for servers and processes, and two workers leave a quarter of two cores idle.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if config.getoption("tier") == tiers.CHECK else cores + cores // 2


_MEMORY = Path("/dev/shm")


def _has_room(folder: Path) -> bool:
    return os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > 4 << 30


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import a file that the tier has none of, unless it is named: a collection is done by each worker."""
    tier = config.getoption("tier")
    if tier is None or not collection_path.name.startswith("test_") or collection_path in config.stash[_NAMED]:
        return None
    return True if tiers.leaves_out(collection_path, tier) else None


def pytest_report_header(config: pytest.Config) -> str:
    tier = config.getoption("tier")
    return f"tier: {tier}" if tier else "tier: none, nothing is left out"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how each test that failed is run alone."""
    failed = [*terminalreporter.stats.get("failed", ()), *terminalreporter.stats.get("error", ())]
    if names := list(dict.fromkeys(report.nodeid.partition("@")[0] for report in failed if "::" in report.nodeid)):
        terminalreporter.section("to run one of them alone")
        tier = config.getoption("tier")
        for name in names:
            # With the tier, a random test tries the same examples again; a test that is named is never left out.
            terminalreporter.line(f"{_PYTHON} -m pytest {f'--tier {tier} ' if tier else ''}{shlex.quote(name)}")


_PYTHON = ".venv/bin/python" if Path(sys.prefix) == ROOT / ".venv" else "python"


class _ToldAtOnce:
    """On CI a run that takes too long is ended, and has no summary. So failed tests are named when they fail, and those
    that run are named when a signal ends the run.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config, self._running = config, dict[str, float]()
        signal.signal(signal.SIGTERM, self._end)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.pop(nodeid, None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None) or report.longreprtext
            self._tell(f"FAILED {report.nodeid}: {str(crash).strip().partition(chr(10))[0]}")

    def _end(self, *_: object) -> None:
        for nodeid, since in self._running.items():
            self._tell(f"RUNNING for {time.monotonic() - since:.0f} s: {nodeid}")
        pytest.exit("the run was ended by a signal")

    def _tell(self, text: str) -> None:
        self._config.get_terminal_writer().line(f"\n{text}")


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in a hook of its own
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.spark)  # or another worker would start a Spark for it
    tier = config.getoption("tier")
    named = any("::" in argument for argument in config.args)
    if out := tiers.left_out(items, tier) if tier and not named else set():
        config.hook.pytest_deselected(items=[item for item in items if item in out])
        items[:] = [item for item in items if item not in out]
    # The long ones first, so that no worker waits for the last of another.
    items.sort(key=tiers.rank, reverse=True)
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            marker = item.get_closest_marker("spark")
            if marker and not marker.kwargs.get("apart"):
                item.add_marker(pytest.mark.xdist_group("spark"))
            elif tier and (needed := tiers.services(item) - {"spark", "browser"}):
                # One server of each kind is enough for the few files of the gate.
                item.add_marker(pytest.mark.xdist_group("stores" if needed <= {"s3", "azure"} else min(needed)))


def pytest_collection_finish() -> None:
    """Thousands of tests stay in memory until the end, and so does much of what they load: little is gained by looking
    through it for garbage, which would take a tenth of the time of a run.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_unconfigure() -> None:
    gc.unfreeze()


_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Give all tests that are skipped for one reason one place, so that the summary says it in one line. Remember those
    that failed.
    """
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    if report.skipped and isinstance(report.longrepr, tuple):
        report.longrepr = (__file__, 1, report.longrepr[2])
    return report


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """After each file, give back the memory that the allocator keeps: a run has several processes for long, and there
    may be a second run. Garbage is looked for only if the process has grown, as that takes longer.
    """
    if (nextitem is None or nextitem.path != item.path) and hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)
        if _resident() > _grown_to[0] + _MUCH:
            gc.collect()
            _LIBC.malloc_trim(0)
            _grown_to[0] = _resident()


def _resident() -> int:
    """Bytes of this process in memory; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


_MUCH = 128 * 2**20
_grown_to = [0]  # how large the process was after the last garbage was collected
_LIBC = ctypes.CDLL(None) if os.name == "posix" else None


@pytest.fixture
def tmp_path(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """pytest's folder, which is in memory, and emptied after a test that passed. It is not removed: a later test would
    get one of the same name, and Spark remembers the tables of a path.
    """
    yield tmp_path
    if not request.node.stash.get(_FAILED, False):
        with contextlib.suppress(OSError):
            for path in tmp_path.iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()


@pytest.fixture(scope="session", autouse=True)
def _maintenance_at_once() -> Iterator[None]:
    """In the process of the tests, checkpoints are written before the commit returns, so that all that a test counts
    and sees has one order. Processes that tests start, and tests with ``maintenance_in_background``, write them in the
    background.
    """
    from refdelta.transaction import background

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(background, "at_once", frozenset({background.MAINTENANCE}))
        yield


@pytest.fixture
def maintenance_in_background(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Checkpoints are written in the background, and are done when the test ends."""
    from refdelta.transaction import background

    monkeypatch.setattr(background, "at_once", frozenset())
    yield
    background.settle()


@pytest.fixture(scope="session")
def fresh_path(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """A folder that does not exist yet, another one at every call: what one example of a property needs."""
    base = tmp_path_factory.mktemp("fresh")
    numbers = itertools.count()
    return lambda: base / f"t{next(numbers)}"


# delta-spark writes checksums, and compares those of others with what it replays, as it does for its users.
_CHECKED = {
    "spark.databricks.delta.writeChecksumFile.enabled",
    "spark.databricks.delta.stateReconstructionValidation.enabled",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The Spark session of this process, with delta-spark. Skips where it cannot start, and with CI=true fails."""
    from refdelta.crosscheck import oracle

    try:
        session = oracle.start_session(conf={name: oracle.QUICK[name] for name in oracle.QUICK.keys() - _CHECKED})
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


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[GcsServer]:
    """fake-gcs-server, as :func:`s3_server`."""
    from servers.running import GcsServer

    yield from _serve(GcsServer)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Any]:
    """PostgreSQL, as :func:`s3_server`."""
    from servers.install import ServerUnavailableError
    from servers.postgres import PostgresServer

    try:
        server = PostgresServer().start()
    except ServerUnavailableError as error:
        (pytest.fail if IN_CI else pytest.skip)(str(error))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def simulator() -> Any:
    """Runs the specification of the commit protocol by Quint. Skips where it cannot be had, as :func:`s3_server`."""
    from model.specification import run
    from servers.install import ServerUnavailableError, quint

    try:
        quint()
    except ServerUnavailableError as error:
        (pytest.fail if IN_CI else pytest.skip)(str(error))
    return run


BACKENDS = ("local", "memory", "s3", "azure", "gcs")


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """The name of each backend in turn."""
    return str(request.param)


@pytest.fixture
def new_place(backend: str, request: pytest.FixtureRequest, fresh_path: Callable[[], Path]) -> Callable[[], Place]:
    """Gives fresh places for tables, one at each call, on each backend in turn: local, memory, S3, Azure, GCS."""
    from servers.running import Place

    match backend:
        case "local":
            return lambda: Place(str(fresh_path()), {})
        case "memory":
            return lambda: Place(f"memory://{fresh_path()}", {})
        case "s3":
            return request.getfixturevalue("s3_server").place  # type: ignore[no-any-return]
        case "azure" | "gcs":
            return request.getfixturevalue(f"{backend}_server").place  # type: ignore[no-any-return]
    raise AssertionError(f"no place for tables on the backend {backend}")


@pytest.fixture
def place(new_place: Callable[[], Place]) -> Place:
    """One fresh place for a table, on each backend in turn."""
    return new_place()
