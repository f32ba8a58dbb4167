"""Errors on their way through Spark, which keeps only the text of an exception raised by a worker.

The :class:`~refdelta.errors.DeltaError` of a worker is encoded into the text of another exception, as JSON between two
marks; the driver finds it there and raises it again. So callers catch the same exceptions as without Spark. Errors are
never pickled: their messages contain data from logs and users.
"""

from __future__ import annotations

import base64
import datetime as dt
import importlib.util
import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from refdelta import errors
from refdelta.errors import ConflictDetails, ConflictParty, DeltaError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator

_MARKED = re.compile(r"\[refdelta:([A-Za-z0-9+/=]+)\]")
_NAME = "name one that has refdelta by PYSPARK_PYTHON or spark.pyspark.python before the session starts"
# Messages of Spark whose cause is the Python of its workers, each with the message to raise instead.
_WRONG_PYTHON = (
    (
        r"No module named '((?:refdelta|msgspec|pyarrow|numpy|pyroaring|sqlglot|fsspec)\w*)",
        f"the Python of Spark's workers has no {{}}: install refdelta there too, or {_NAME}",
    ),
    (
        r"PYTHON_VERSION_MISMATCH\] Python in worker has different version: (\S+) than that in driver",
        f"the Python of Spark's workers is {{}}, which differs from the driver's: {_NAME}",
    ),
    (
        r'Cannot run program "([^"]+)": error=2\b',
        f"the Python of Spark's workers, {{}}, does not exist: {_NAME}",
    ),
    (
        r"(?s)Error from python worker:.*?\n\s+(\w+Error: [^\n]*)",
        f"the Python of Spark's workers does not start ({{}}): {_NAME}",
    ),
)
_VIEW = "CREATE TEMPORARY VIEW name USING refdelta OPTIONS (path '...') makes a table known to SQL"
# Messages of Spark for operations that it refuses without a call of the data source, each with the alternative.
_REFUSED = (
    (
        r'UNSUPPORTED_DATA_SOURCE_SAVE_MODE\] The data source "refdelta"',
        "for data sources in Python Spark has the modes append and overwrite; refdelta.spark.write has all",
    ),
    (
        r"DATA_SOURCE_NOT_FOUND\] Failed to find the data source: refdelta\b",
        "this thread does not know the format refdelta (yet, or after an interrupt): refdelta.spark.register(spark)",
    ),
    (
        r"The table or view `(?:DETAIL|HISTORY)` cannot be found",
        "Spark has no such statement; detail() and history() of refdelta.DeltaTable do the same for one of its tables",
    ),
    (r"UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY\].*: refdelta\b", f"Spark reads no path of this format by SQL; {_VIEW}"),
    (
        r"TABLE_OR_VIEW_NOT_FOUND\].*`refdelta`\.`[^`]*`",
        f"Spark's SQL writes no path of this format; refdelta.spark.write does, and {_VIEW}",
    ),
    (
        r"Table does not support \w+: refdelta\b|Table `refdelta` does not support (?:UPDATE|MERGE INTO) TABLE",
        "Spark's SQL changes no rows of such a table; delete, update and merge of refdelta.DeltaTable do, on Spark too",
    ),
    (
        r"Table `refdelta` does not support (?:overwrite by filter|dynamic overwrite)",
        "Spark replaces no part of such a table; refdelta.spark.write does, by predicate= or partition_overwrite=",
    ),
    (
        r"providing FileFormat are supported: class [\w.]{0,200}PythonDataSourceV2",
        "Spark writes no folder of a format in Python; refdelta.spark.write writes a table by its path",
    ),
    (
        r'BestEffortStagedTable\.table\(\)" is null',  # delta-spark's catalog, of another data source
        "delta-spark's catalog has no tables of sources in Python; refdelta.spark.write creates a table by its path",
    ),
    (
        r"refdelta does not support Update mode",
        "for data sources in Python Spark has the modes append and complete; DeltaTable.merge in foreachBatch updates",
    ),
    (
        r"The provided partitioning or clustering columns do not match the existing table's",
        "for data sources in Python Spark has no partitionBy; option('partitionBy', 'a,b') names the columns",
    ),
    (
        r"'save' does not support bucketBy",
        "Delta has no buckets; refdelta.spark.write(cluster_by=...) keeps rows with similar values together",
    ),
    (
        r"UNSUPPORTED_FEATURE\.TIME_TRAVEL\]",
        "Spark has no time travel for such a relation; of a table of refdelta the option versionAsOf reads a version",
    ),
    (
        r"UNRESOLVED_COLUMN[.A-Z_]{0,30}\] A column, [^`\n]{0,60}`_metadata`",
        "the relation has no column _metadata; refdelta.spark.read(metadata=True) has it for a table of refdelta",
    ),
    (
        r"The maximum arrow batch size should be greater than 0",
        "with spark.sql.execution.arrow.maxRecordsPerBatch=0 Spark reads no source in Python; refdelta.spark.read does",
    ),
)
# With this variable a worker of PySpark reports an error without its traceback, so that the message comes first.
_NO_TRACEBACK = "SPARK_HIDE_TRACEBACK"
# The message of Py4J in place of an interrupt, which it tries to pass on to a Java that nothing was sent to.
_INTERRUPTED = "Gateway must be connected to send cancel cmd"
# The message of Spark for a job that was cancelled, with its reason.
_CANCELLED = re.compile(r"\[SPARK_JOB_CANCELLED\] Job \d+ cancelled ([^\n]*?)\.?(?: SQLSTATE|\n|$)")


class _ErrorRecord(msgspec.Struct):
    """The encoded form of an error: the name of its class in :mod:`refdelta.errors`, its text and its attributes."""

    kind: str
    text: str
    attributes: dict[str, Any]


_RECORD = msgspec.json.Decoder(_ErrorRecord)


class SparkUnavailableError(DeltaError):
    """Spark cannot run: PySpark is not installed, the session has ended, or the workers' Python lacks this package."""


class SparkJobCancelledError(DeltaError):
    """A Spark job was cancelled; what it was to write is not committed, and its files are removed."""


class ReportedError(Exception):
    """The exception that a worker raises instead of a ``DeltaError``, whose text carries it."""


def to_text(error: DeltaError) -> str:
    """An error as text, from which :func:`from_text` restores it."""
    attributes = msgspec.to_builtins(vars(error), enc_hook=str)
    packed = msgspec.json.encode(_ErrorRecord(_kind(error).__name__, str(error), attributes))
    # Data of a log or of a user may look like a mark; only the last one counts.
    shown = str(error).replace("[refdelta:", "[refdelta :")
    return f"{_kind(error).__name__}: {shown} [refdelta:{base64.b64encode(packed).decode()}]"


def from_text(text: str) -> DeltaError | None:
    """The error that is encoded in a string, or None if there is none."""
    found = _MARKED.search(text)
    if found is None:
        return None
    try:
        record = _RECORD.decode(base64.b64decode(found.group(1)))
        kind = getattr(errors, record.kind, None)
        if not (isinstance(kind, type) and issubclass(kind, DeltaError)):
            return None
        # A class with attributes makes its text of them; the text is there already.
        error = kind.__new__(kind, record.text) if record.attributes else kind(record.text)
        error.args = (record.text,)
        for name, value in record.attributes.items():
            was = _with_tuples(value)
            setattr(error, name, _conflict(was) if name == "conflict" else was)
    except (ValueError, AttributeError, TypeError):  # the text only looks like a mark
        return None
    return error


def _conflict(was: dict[str, Any]) -> ConflictDetails:
    values: dict[str, Any] = dict(was)
    for name in {"winner", "own"} & was.keys():
        known: dict[str, Any] = dict(was[name])
        if known.get("time") is not None:
            known["time"] = dt.datetime.fromisoformat(known["time"])
        values[name] = ConflictParty(**known)
    return ConflictDetails(**values)


@contextmanager
def reported() -> Iterator[None]:
    """On a worker: convert a ``DeltaError`` to an exception whose text carries it to the driver."""
    try:
        yield
    except DeltaError as error:
        # PySpark ends the worker after an error, so that no later one of the user's functions lacks its traceback.
        os.environ[_NO_TRACEBACK] = "1"
        raise ReportedError(to_text(error)) from None


@contextmanager
def raise_again() -> Iterator[None]:
    """On the driver: raise the ``DeltaError`` that a worker has reported; any other exception is raised unchanged.

    Raises:
        DeltaError: the error of the worker; :class:`SparkUnavailableError` if its Python lacks this package;
            :class:`SparkJobCancelledError` if the job was cancelled; ``InvalidArgumentError``, with the alternative,
            for operations that Spark itself refuses for data sources in Python.
        KeyboardInterrupt: Py4J has raised an error of its own in place of it.
    """
    try:
        yield
    except Exception as error:
        text = str(error)
        if _INTERRUPTED in text and isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        ours = from_text(text) or _unavailable(text) or _cancelled(text) or _refused(text)
        if ours is None:
            raise
        raise ours from None


def _unavailable(text: str) -> DeltaError | None:
    found = ((re.search(said, text), here) for said, here in _WRONG_PYTHON)
    return next((SparkUnavailableError(here.format(match.group(1))) for match, here in found if match), None)


def _cancelled(text: str) -> DeltaError | None:
    found = _CANCELLED.search(text)
    if found is None:
        return None
    return SparkJobCancelledError(
        f"a Spark job was cancelled ({found.group(1)}): what it was to write is not committed; run the call again"
    )


def _refused(text: str) -> DeltaError | None:
    return next((InvalidArgumentError(instead) for said, instead in _REFUSED if re.search(said, text)), None)


def check_session(spark: Any) -> None:
    """Check that PySpark is installed, and that ``spark`` is a session of this process that has not ended.

    Raises:
        SparkUnavailableError: PySpark is not installed, or the session has ended.
        InvalidArgumentError: ``spark`` is another object, or a session of Spark Connect.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise SparkUnavailableError("this needs the Python package pyspark: pip install 'refdelta[spark]'")
    if not hasattr(spark, "createDataFrame"):
        raise InvalidArgumentError(f"spark must be a SparkSession, not {type(spark).__name__}")
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise InvalidArgumentError(
            "this is a session of Spark Connect, whose driver is elsewhere; commits are made where Spark's driver is, "
            "so a classic session is needed: SparkSession.builder.master(...)"
        )
    context = getattr(spark, "sparkContext", None)
    if context is not None and context._jsc is None:  # noqa: SLF001 - None after the session was stopped
        raise SparkUnavailableError("this Spark session has ended: start another one")


def _kind(error: DeltaError) -> type[DeltaError]:
    """The nearest public class of an error."""
    for kind in type(error).__mro__:
        public = getattr(errors, kind.__name__, None)
        if isinstance(public, type) and public is kind and issubclass(public, DeltaError):
            return public
    return DeltaError


def _with_tuples(value: Any) -> Any:
    """Restore tuples, which JSON has as lists."""
    if isinstance(value, dict):
        return {name: _with_tuples(item) for name, item in value.items()}
    return tuple(value) if isinstance(value, list) else value
