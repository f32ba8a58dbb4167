"""Errors of workers arrive as what they were, whatever Spark makes of their text."""

from __future__ import annotations

import importlib.util
import inspect
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JError

from refdelta import errors
from refdelta.errors import ConflictDetails, DeltaError, InvalidLogError
from refdelta.spark.failures import (
    ReportedError,
    SparkUnavailableError,
    check_session,
    from_text,
    raise_again,
    reported,
    to_text,
)

CONFLICT = ConflictDetails(
    "delete-read", 7, "DELETE", ("a=1/x.parquet",), "Try again.", 2, {"a=1/x.parquet": (3, 5)}, ("no positions",)
)


def examples() -> list[DeltaError]:
    made = []
    for kind in vars(errors).values():
        if not (inspect.isclass(kind) and issubclass(kind, DeltaError)):
            continue
        if issubclass(kind, errors.ConcurrentModificationError):
            made.append(kind("lost", CONFLICT))
        elif issubclass(kind, errors.ColumnNotFoundError):
            made.append(kind("x", ["a", "b"]))
        elif issubclass(kind, errors.InvalidLogError):
            made.append(kind("broken", file="_delta_log/0.json", line=3))
        elif issubclass(kind, errors.DataFileError):
            made.append(kind("broken", file="é x.parquet"))
        elif issubclass(kind, errors.UnsupportedFeatureError):
            made.append(kind(["one", "two"], "read", "do this"))
        elif issubclass(kind, errors.StreamStoppedError):
            made.append(kind("stopped", version=7, reload=True))
        elif issubclass(kind, errors.CommitOutcomeUnknownError):
            made.append(kind("no answer", 3, "id", "memory://x"))
        elif issubclass(kind, errors.CatalogMismatchError):
            made.append(kind("they differ", "older folder"))
        else:
            made.append(kind("what is wrong: 'it' {is} %s"))
    return made


@pytest.fixture(autouse=True)
def as_a_worker(monkeypatch):
    """What is set for a worker that ends does not stay in this process, whose Java would hand it on."""
    monkeypatch.setattr(os, "environ", dict(os.environ))


@pytest.mark.parametrize("error", examples(), ids=lambda error: type(error).__name__)
def test_every_error_comes_out_as_it_went_in(error):
    with pytest.raises(ReportedError) as sent, reported():
        raise error
    with pytest.raises(type(error)) as caught, raise_again():
        # As Spark shows it: within a traceback, in an exception of its own.
        raise RuntimeError(f"Job aborted:\nTraceback ...\nReportedError: {sent.value}\n\n\tat org.apache.spark.x")
    assert type(caught.value) is type(error)
    assert str(caught.value) == str(error)
    assert vars(caught.value) == vars(error)


@given(st.text(max_size=40))
def test_any_text_is_carried(text):
    found = from_text(f"a {to_text(InvalidLogError(text))} b")
    assert isinstance(found, InvalidLogError)
    assert str(found) == str(InvalidLogError(text))
    assert found.reason == text


def test_a_text_that_looks_like_an_error_does_not_pass_for_one():
    within = errors.StoreError("other")
    found = from_text(to_text(InvalidLogError(to_text(within))))
    assert isinstance(found, InvalidLogError)


@pytest.mark.parametrize("text", ["", "[refdelta:]", "[refdelta:AAAA]", "[refdelta:e30=]", "[refdelta:x"])
def test_a_text_without_an_error_gives_none(text):
    assert from_text(text) is None


def test_a_class_of_ours_that_is_not_public_comes_out_as_the_nearest_that_is():
    class OfOneModule(errors.StoreError):
        pass

    assert type(from_text(to_text(OfOneModule("x")))) is errors.StoreError


def test_other_exceptions_stay_what_they_are():
    with pytest.raises(ZeroDivisionError), raise_again(), reported():
        raise ZeroDivisionError


def test_an_interrupt_stays_one_where_py4j_has_an_error_of_its_own_for_it():
    from py4j.clientserver import ClientServerConnection

    connection = object.__new__(ClientServerConnection)
    connection.socket, connection.is_connected = None, False  # as after an interrupt, which py4j answers so

    def interrupted():
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            connection.shutdown_socket(1, 2)

    with pytest.raises(KeyboardInterrupt), raise_again():
        interrupted()
    with pytest.raises(Py4JError), raise_again():
        connection.shutdown_socket(1, 2)


def test_a_worker_without_refdelta_is_told_in_one_sentence():
    text = "PythonException: ...\nModuleNotFoundError: No module named 'refdelta'\n at ..."
    with pytest.raises(SparkUnavailableError, match="workers has no refdelta: install") as caught, raise_again():
        raise RuntimeError(text)
    assert "\n" not in str(caught.value)


def test_what_is_no_session_is_refused():
    with pytest.raises(errors.InvalidArgumentError, match="not str"):
        check_session("local[2]")


def test_without_pyspark_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SparkUnavailableError, match=r"pip install 'refdelta\[spark\]'"):
        check_session(None)


def test_a_session_of_spark_connect_is_refused():
    connected = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session", "createDataFrame": None})
    with pytest.raises(errors.InvalidArgumentError, match="classic session"):
        check_session(connected())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, PySpark",
            "workers is 3.12, which differs",
        ),
        (
            'java.io.IOException: Cannot run program "/none/python": error=2, No such file or directory\n\tat java',
            "workers, /none/python, does not exist",
        ),
        (
            "\nError from python worker:\n  Traceback\n    File x\n  TypeError: unsupported operand\nPYTHONPATH was:\n",
            "start (TypeError: unsupported operand): name one",
        ),
    ],
)
def test_workers_of_another_python_are_told_in_one_sentence(text, said):
    with pytest.raises(SparkUnavailableError) as caught, raise_again():
        raise RuntimeError(text)
    assert said in str(caught.value)
    assert str(caught.value).endswith("by PYSPARK_PYTHON or spark.pyspark.python before the session starts")
