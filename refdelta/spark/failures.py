"""Errors on their way through Spark, which keeps the text of what a worker raised and nothing else.

A worker's :class:`~refdelta.errors.DeltaError` goes into the text of another error, as JSON between two marks; the
driver finds it there and raises it again. So a caller catches what it would catch without Spark. It is never pickled:
the texts of errors hold what logs and users wrote.
"""

from __future__ import annotations

import base64
import importlib.util
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from refdelta import errors
from refdelta.errors import ConflictDetails, DeltaError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator

_MARKED = re.compile(r"\[refdelta:([A-Za-z0-9+/=]+)\]")
_NAME = "name one that has refdelta by PYSPARK_PYTHON or spark.pyspark.python before the session starts"
# What Spark says where its workers have another Python than they need, and what is said of it here.
_WRONG_PYTHON = (
    (
        r"No module named '((?:refdelta|msgspec|pyarrow|numpy|pyroaring|sqlglot|fsspec)\w*)",
        f"the Python of Spark's workers has no {{}}: install refdelta there as here, or {_NAME}",
    ),
    (
        r"PYTHON_VERSION_MISMATCH\] Python in worker has different version: (\S+) than that in driver",
        f"the Python of Spark's workers is {{}}, another one than here: {_NAME}",
    ),
    (
        r'Cannot run program "([^"]+)": error=2\b',
        f"there is no {{}}, which is to be the Python of Spark's workers: {_NAME}",
    ),
    (
        r"(?s)Error from python worker:.*?\n\s+(\w+Error: [^\n]*)",
        f"the Python of Spark's workers does not start ({{}}): {_NAME}",
    ),
)
_VIEW = "CREATE TEMPORARY VIEW name USING refdelta OPTIONS (path '...') makes a table known to SQL"
# What Spark refuses before it asks a data source in Python, and what to do instead.
_REFUSED = (
    (
        r'UNSUPPORTED_DATA_SOURCE_SAVE_MODE\] The data source "refdelta"',
        "for data sources in Python Spark has the modes append and overwrite; refdelta.spark.write has all",
    ),
    (
        r"DATA_SOURCE_NOT_FOUND\] Failed to find the data source: refdelta\b",
        "this session does not know the format refdelta yet: refdelta.spark.register(spark)",
    ),
    (r"UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY\].*: refdelta\b", f"Spark reads no path of this format by SQL; {_VIEW}"),
    (r"TABLE_OR_VIEW_NOT_FOUND\].*`refdelta`\.`[^`]*`", f"Spark writes no path of this format by SQL; {_VIEW}"),
    (
        r"Table does not support \w+: refdelta\b",
        "Spark's SQL changes no rows of such a table; delete, update and merge of refdelta.DeltaTable do, on Spark too",
    ),
    (
        r"The provided partitioning or clustering columns do not match the existing table's",
        "for data sources in Python Spark has no partitionBy; option('partitionBy', 'a,b') names the columns",
    ),
)


class _ErrorRecord(msgspec.Struct):
    """An error as it travels: the name of its class in :mod:`refdelta.errors`, its text and its attributes."""

    kind: str
    text: str
    attributes: dict[str, Any]


class SparkUnavailableError(DeltaError):
    """Spark cannot run what is asked: it is missing here, its session has ended, or its workers run another Python than
    one with this package.
    """


class ReportedError(Exception):
    """What a worker raises in the place of an error of ours."""


def to_text(error: DeltaError) -> str:
    """An error as text from which :func:`from_text` makes it again."""
    attributes = msgspec.to_builtins(vars(error), enc_hook=str)
    packed = msgspec.json.encode(_ErrorRecord(_kind(error).__name__, str(error), attributes))
    # What a log or a user wrote may look like a mark; only the one behind it counts.
    shown = str(error).replace("[refdelta:", "[refdelta :")
    return f"{_kind(error).__name__}: {shown} [refdelta:{base64.b64encode(packed).decode()}]"


def from_text(text: str) -> DeltaError | None:
    """The error that a text carries, or None where it carries none."""
    found = _MARKED.search(text)
    if found is None:
        return None
    try:
        told = msgspec.json.decode(base64.b64decode(found.group(1)), type=_ErrorRecord)
        kind = getattr(errors, told.kind, None)
        if not (isinstance(kind, type) and issubclass(kind, DeltaError)):
            return None
        # A class with attributes makes its text of them; the text is there already.
        error = kind.__new__(kind, told.text) if told.attributes else kind(told.text)
        error.args = (told.text,)
        for name, value in told.attributes.items():
            was = _as_it_was(value)
            setattr(error, name, ConflictDetails(**was) if name == "conflict" else was)
    except (ValueError, AttributeError, TypeError):  # what looks like a mark and is none
        return None
    return error


@contextmanager
def reported() -> Iterator[None]:
    """On a worker: turn an error of ours into one that arrives."""
    try:
        yield
    except DeltaError as error:
        raise ReportedError(to_text(error)) from None


@contextmanager
def raise_again() -> Iterator[None]:
    """On the driver: raise the error that a worker has reported; anything else stays what it is.

    Raises:
        DeltaError: what the worker raised; :class:`SparkUnavailableError` where it lacks this package;
            ``InvalidArgumentError`` where Spark itself refuses what this data source's users may expect, with what to
            do instead.
    """
    try:
        yield
    except Exception as error:
        text = str(error)
        ours = from_text(text) or _unavailable(text) or _refused(text)
        if ours is None:
            raise
        raise ours from None


def _unavailable(text: str) -> DeltaError | None:
    found = ((re.search(said, text), here) for said, here in _WRONG_PYTHON)
    return next((SparkUnavailableError(here.format(match.group(1))) for match, here in found if match), None)


def _refused(text: str) -> DeltaError | None:
    return next((InvalidArgumentError(instead) for said, instead in _REFUSED if re.search(said, text)), None)


def check_session(spark: Any) -> None:
    """See that there is Spark, and that this is a session of it, in this process and not ended.

    Raises:
        SparkUnavailableError: PySpark is not installed, or the session has ended.
        InvalidArgumentError: it is something else.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise SparkUnavailableError("this needs the Python package pyspark: pip install 'refdelta[spark]'")
    if not hasattr(spark, "createDataFrame"):
        raise InvalidArgumentError(f"spark is a SparkSession, not {type(spark).__name__}")
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise InvalidArgumentError(
            "this is a session of Spark Connect, whose driver is elsewhere; commits are made where Spark's driver is, "
            "so a classic session is needed: SparkSession.builder.master(...)"
        )
    context = getattr(spark, "sparkContext", None)
    if context is not None and context._jsc is None:  # noqa: SLF001 - PySpark's own mark of one that is stopped
        raise SparkUnavailableError("this Spark session has ended: start another one")


def _kind(error: DeltaError) -> type[DeltaError]:
    """The nearest public class of an error."""
    for kind in type(error).__mro__:
        public = getattr(errors, kind.__name__, None)
        if isinstance(public, type) and public is kind and issubclass(public, DeltaError):
            return public
    return DeltaError


def _as_it_was(value: Any) -> Any:
    """JSON has one kind of sequence; errors hold tuples."""
    if isinstance(value, dict):
        return {name: _as_it_was(item) for name, item in value.items()}
    return tuple(value) if isinstance(value, list) else value
