"""delta-spark in a process of its own, as the oracle for a table.

The engine never needs it: this is the only module of the package that starts delta-spark, for the tests, the
cross-check and the demo. It needs the ``spark`` extra and Java 17 or later; :func:`availability` says in one line what
is missing, :func:`session` starts and ends a quiet local Spark.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from refdelta.errors import DeltaError, InvalidLogError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

MAVEN_PACKAGE: Final = "io.delta:delta-spark_4.2_2.13:4.4.0"
"""The JARs for pyspark 4.2.0; Spark's own package resolution fetches them on first use (about 87 MB)."""

MINIMUM_JAVA: Final = 17
JAVA_HINT: Final = "for example: apt-get install openjdk-17-jre-headless"
CACHE_VARIABLE: Final = "REFDELTA_CACHE"

QUICK: Final = {
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.stateReconstructionValidation.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings for many statements on tiny tables: no checksums, no empty tasks, and no code generation for each."""

_LOG_NAME: Final = "spark.log"
_gateways: dict[int, tuple[Any, tempfile.TemporaryDirectory[str]]] = {}


class OracleUnavailableError(DeltaError):
    """delta-spark cannot be started here; the message says in one line what is missing."""


def cache_dir() -> Path:
    """The folder of the JARs: ``$REFDELTA_CACHE``, else ``refdelta`` in the user's cache folder."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "refdelta"


def java_version() -> int | None:
    """The major version of the Java that Spark would start, or None if there is none."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if command is None:
        return None
    try:
        shown = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', shown.stderr + shown.stdout)
    return int(found.group(1)) if found else None


def jars_cached() -> bool:
    """True if delta-spark's JAR is in the cache, so that a start needs no network."""
    group, artifact, version = MAVEN_PACKAGE.split(":")
    return (cache_dir() / "ivy" / "jars" / f"{group}_{artifact}-{version}.jar").is_file()


def availability() -> str | None:
    """The reason why delta-spark cannot run here.

    Returns:
        None if Java and the Python packages are installed; else one line that names the missing part and how to install
        it. A failure to fetch JARs that are not cached yet appears only at the start: :func:`start_session` raises.
    """
    for package, module in (("pyspark", "pyspark"), ("delta-spark", "delta")):
        if importlib.util.find_spec(module) is None:
            return f"delta-spark needs the Python package {package}: pip install 'refdelta[spark]'"
    java = java_version()
    if java is None:
        return f"delta-spark needs Java {MINIMUM_JAVA} and there is no java here; {JAVA_HINT}"
    if java < MINIMUM_JAVA:
        return f"delta-spark needs Java {MINIMUM_JAVA} and this is Java {java}; {JAVA_HINT}, and point JAVA_HOME to it"
    return None


def start_session(*, cores: int = 2, memory: str = "2g", conf: Mapping[str, str] | None = None) -> Any:
    """Start a local Spark with delta-spark, whose output goes to a file and not to the terminal.

    Args:
        cores: the number of tasks that run at once, and of partitions of a shuffle.
        memory: the heap of its Java process, in Java's notation.
        conf: further Spark settings, which override the ones here.

    Returns:
        The ``SparkSession``; end it with :func:`stop_session`. A process can hold one at a time.

    Raises:
        OracleUnavailableError: a requirement is missing, a session runs already, or the start failed (with the reason).
    """
    if reason := availability():
        raise OracleUnavailableError(reason)
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is not None:
        raise OracleUnavailableError("a Spark session is running in this process already; the oracle needs its own")
    folder = tempfile.TemporaryDirectory(prefix="refdelta-spark-", ignore_cleanup_errors=True)
    settings = SparkConf(loadDefaults=False)
    settings.setAll([*_settings(Path(folder.name), cores, memory).items(), *(conf or {}).items()])
    log = Path(folder.name) / _LOG_NAME
    gateway = None
    # Its workers are processes of this machine, and need the same packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        with log.open("wb") as output, _one_fetch():
            gateway = launch_gateway(settings, {"stdout": output, "stderr": output})
        context = SparkContext(conf=settings, gateway=gateway)
        spark = SparkSession(context)
    except (PySparkRuntimeError, Py4JError, OSError) as error:
        reason = _start_failure(log)
        if gateway is not None:
            _forget_gateway(gateway)
        folder.cleanup()
        with warnings.catch_warnings():
            # PySpark does not close the pipe to a process that failed to start; the traceback refers to it.
            warnings.simplefilter("ignore", ResourceWarning)
            error.with_traceback(None)
        raise OracleUnavailableError(f"delta-spark did not start: {reason}") from error
    _gateways[id(spark)] = (gateway, folder)
    return spark


@contextlib.contextmanager
def _one_fetch() -> Iterator[None]:
    """Let one process at a time fetch the JARs: of two that write to Ivy's cache at once, one fails."""
    if jars_cached() or fcntl is None:
        yield
        return
    cache_dir().mkdir(parents=True, exist_ok=True)
    with (cache_dir() / "fetch.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def stop_session(spark: Any) -> None:
    """End a session of :func:`start_session`, its Java process and its scratch files."""
    gateway, folder = _gateways.pop(id(spark))
    spark.stop()
    _forget_gateway(gateway)
    folder.cleanup()


def start_java(*, memory: str = "256m") -> Any:
    """Start a Java with the JARs of delta-spark, among them those of Delta Kernel, without Spark.

    Args:
        memory: the heap of its Java process, in Java's notation.

    Returns:
        A ``py4j.java_gateway.JavaGateway``; end it with :func:`stop_java`.

    Raises:
        OracleUnavailableError: a requirement is missing, or the JARs cannot be fetched (with the reason).
    """
    if reason := availability():
        raise OracleUnavailableError(reason)
    import pyspark
    from py4j.java_gateway import JavaGateway

    if not jars_cached():
        with session():
            pass  # its start fetches them
    of_spark = Path(pyspark.__file__).parent / "jars"
    bridge = next(of_spark.glob("py4j-*.jar"))
    # delta-spark's own come first: Kernel is compiled against them.
    classpath = os.pathsep.join(f"{folder}/*" for folder in (cache_dir() / "ivy" / "jars", of_spark))
    return JavaGateway.launch_gateway(
        jarpath=str(bridge), classpath=classpath, javaopts=[f"-Xmx{memory}"], java_path=None, die_on_exit=True
    )


def stop_java(gateway: Any) -> None:
    """End a Java of :func:`start_java`."""
    gateway.shutdown()
    _end(gateway.java_process)


@contextlib.contextmanager
def session(*, cores: int = 2, memory: str = "2g", conf: Mapping[str, str] | None = None) -> Iterator[Any]:
    """:func:`start_session` and :func:`stop_session` around a block."""
    spark = start_session(cores=cores, memory=memory, conf=conf)
    try:
        yield spark
    finally:
        stop_session(spark)


def read_table(spark: Any, path: str | Path, version: int | None = None) -> pa.Table:
    """Read a whole table with delta-spark.

    Args:
        spark: a session of :func:`start_session`.
        path: the table's folder or URI.
        version: the version to read; None for the newest.

    Returns:
        Its rows in no particular order; timestamps are in UTC.
    """
    return frame(spark, path, version).toArrow()


def frame(spark: Any, path: str | Path, version: int | None = None) -> Any:
    """The table as a Spark DataFrame, at the newest version or the given one."""
    reader = spark.read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    return reader.load(str(path))


def identifier(path: str | Path) -> str:
    """The table's name in Spark SQL, ``delta.`path```, quoted."""
    quoted = str(path).replace("`", "``")
    return f"delta.`{quoted}`"


def history(spark: Any, path: str | Path) -> list[dict[str, Any]]:
    """``DESCRIBE HISTORY``: one dictionary a version, newest first."""
    return [row.asDict(recursive=True) for row in spark.sql(f"DESCRIBE HISTORY {identifier(path)}").collect()]


def detail(spark: Any, path: str | Path) -> dict[str, Any]:
    """``DESCRIBE DETAIL``: one dictionary."""
    row = spark.sql(f"DESCRIBE DETAIL {identifier(path)}").collect()[0]
    return dict(row.asDict(recursive=True))


def files_read(spark: Any, path: str | Path, predicate: str | None = None) -> list[str]:
    """The data files that delta-spark keeps for a filter after partition pruning and data skipping, as URIs."""
    rows = frame(spark, path)
    return sorted((rows if predicate is None else rows.where(predicate)).inputFiles())


def delta_log(spark: Any, path: str | Path) -> Any:
    """delta-spark's ``DeltaLog`` of a table (a Java object), brought up to the newest version."""
    log = _delta(spark).DeltaLog.forTable(spark._jsparkSession, str(path))  # noqa: SLF001
    log.update(False, _none(spark), _none(spark))
    return log


def checkpoint(spark: Any, path: str | Path) -> None:
    """Write a checkpoint of the newest version with delta-spark."""
    log = delta_log(spark, path)
    log.checkpoint(log.unsafeVolatileSnapshot(), _none(spark))


def validate_checksum(spark: Any, path: str | Path) -> bool:
    """Compare the checksum file (``.crc``) of the newest version with the replayed state, by delta-spark.

    Returns:
        False if that version has no checksum file; True if it agrees.

    Raises:
        InvalidLogError: it disagrees; the message is delta-spark's and names what differs.
    """
    from py4j.protocol import Py4JJavaError

    snapshot = delta_log(spark, path).unsafeVolatileSnapshot()
    if not snapshot.checksumOpt().isDefined():
        return False
    try:
        return bool(snapshot.validateChecksum(spark._jvm.PythonUtils.toScalaMap({})))  # noqa: SLF001
    except Py4JJavaError as error:
        raise InvalidLogError(error.java_exception.getMessage(), file=f"{snapshot.version():020d}.crc") from None


def clear_cache(spark: Any) -> None:
    """Clear delta-spark's cache of tables, so that the next read starts from the files."""
    _delta(spark).DeltaLog.clearCache()


def scala_list(spark: Any, items: Iterable[Any]) -> Any:
    """A Scala ``List`` of Java objects, for calls into delta-spark."""
    builder = spark._jvm.scala.collection.immutable.List.newBuilder()  # noqa: SLF001
    for item in items:
        builder.addOne(item)
    return builder.result()


def _delta(spark: Any) -> Any:
    return spark._jvm.org.apache.spark.sql.delta  # noqa: SLF001


def _none(spark: Any) -> Any:
    return spark._jvm.scala.Option.empty()  # noqa: SLF001


def _settings(folder: Path, cores: int, memory: str) -> dict[str, str]:
    """The settings of the session: small, quiet, in UTC, without files in the current folder."""
    return {
        "spark.master": f"local[{cores}]",
        "spark.app.name": "refdelta oracle",
        "spark.driver.memory": memory,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Duser.timezone=UTC -Dderby.system.home={folder / 'derby'}",
        "spark.jars.packages": MAVEN_PACKAGE,
        "spark.jars.ivy": str(cache_dir() / "ivy"),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.databricks.delta.snapshotPartitions": str(cores),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def _start_failure(log: Path) -> str:
    """The reason of the failure in one line, from the output of Java."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    said = [line.strip() for line in lines if "unresolved dependency" in line or "Exception" in line]
    if any("unresolved dependency" in line or "download failed" in line for line in lines):
        return f"{MAVEN_PACKAGE} could not be fetched from Maven Central (is there a network?)"
    return (said or [line.strip() for line in lines if line.strip()] or ["its Java process ended at once"])[-1]


def _forget_gateway(gateway: Any) -> None:
    """End the Java process, which PySpark keeps until Python ends, so that the next start gets a new one."""
    from pyspark import SparkContext

    SparkContext._gateway = None  # noqa: SLF001
    SparkContext._jvm = None  # noqa: SLF001
    gateway.shutdown()
    _end(gateway.proc)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a Java process, which ends itself when this pipe closes."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
