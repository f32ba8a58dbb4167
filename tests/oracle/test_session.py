"""The oracle says what it lacks in one line, and stays quiet.

Tests of crosscheck.oracle.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from refdelta.crosscheck import oracle


def fake_java(folder, printed):
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{printed}' >&2\n")
    java.chmod(0o755)
    return folder


@pytest.fixture
def only_this_java(monkeypatch, tmp_path):
    """Java is what JAVA_HOME says."""

    def install(printed):
        monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", printed)))

    return install


def test_without_java_it_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    reason = oracle.availability()
    assert reason is not None
    assert "apt-get install openjdk-17-jre-headless" in reason
    assert "\n" not in reason
    with pytest.raises(oracle.OracleUnavailableError, match="Java 17"):
        oracle.start_session()


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_202"', 8),
        ('openjdk version "21" 2023-09-19', 21),
    ],
)
def test_java_versions(only_this_java, printed, version):
    only_this_java(printed)
    assert oracle.java_version() == version
    assert (oracle.availability() is None) == (version >= 17)


def test_a_java_that_is_too_old_is_named(only_this_java):
    only_this_java('openjdk version "11.0.2"')
    assert "this is Java 11" in (oracle.availability() or "")


def test_java_home_without_java(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    assert oracle.java_version() is None


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'refdelta[spark]'" in (oracle.availability() or "")


@pytest.mark.tier("test")
def test_a_start_that_fails_gives_the_reason(only_this_java):
    """This Java calls itself 17 and then ends at once. In a process of its own: this one may have a session."""
    only_this_java('openjdk version "17.0.1"')
    program = "from refdelta.crosscheck import oracle; oracle.start_session()"
    command = [sys.executable, "-W", "error", "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert ended.returncode == 1
    assert ended.stdout == ""
    assert "OracleUnavailableError: delta-spark did not start: " in ended.stderr.splitlines()[-1]


def test_the_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("REFDELTA_CACHE", str(tmp_path))
    assert oracle.cache_dir() == tmp_path
    assert not oracle.jars_cached()
    monkeypatch.delenv("REFDELTA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert oracle.cache_dir() == tmp_path / "xdg" / "refdelta"


@pytest.mark.parametrize("path", ["/a b/c", "/back`tick"])
def test_identifiers_are_quoted(path):
    assert oracle.identifier(path) == "delta.`" + path.replace("`", "``") + "`"


@pytest.mark.spark
def test_one_session_a_process(spark):
    with pytest.raises(oracle.OracleUnavailableError, match="running in this process already"):
        oracle.start_session()


@pytest.mark.spark
def test_the_session_is_quiet_and_in_utc(spark, capfd):
    assert spark.range(3).count() == 3
    spark._jvm.java.lang.System.err.println("noise of the Java process")
    assert capfd.readouterr() == ("", "")
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert not Path("spark-warehouse").exists()
