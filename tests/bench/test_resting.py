"""A run of benchmarks waits for the disk, but not for ever."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import resting


@pytest.fixture
def waits(monkeypatch):
    """The seconds of each wait, for none of which anybody waits."""
    slept = []
    clock = SimpleNamespace(monotonic=lambda: float(sum(slept)), sleep=slept.append)
    monkeypatch.setattr(resting, "time", clock)
    return slept


def test_a_slow_disk_is_waited_for_until_it_is_quick(waits, monkeypatch, tmp_path, capsys):
    speeds = iter([7e-4, 7e-4, 2e-5])
    monkeypatch.setattr(resting, "creation", lambda _: next(speeds))
    resting.rest(tmp_path)
    assert len(waits) == 2
    assert capsys.readouterr().err.count("the disk is slow") == 1


def test_a_disk_that_is_always_slow_is_measured_as_it_is(waits, monkeypatch, tmp_path):
    monkeypatch.setattr(resting, "creation", lambda _: 1.0)
    resting.rest(tmp_path)
    assert sum(waits) >= resting.LONGEST > sum(waits[:-1])


def test_a_quick_disk_is_not_waited_for(waits, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(resting, "creation", lambda _: 1e-5)
    resting.rest(tmp_path)
    assert not waits
    assert not capsys.readouterr().err


def test_what_was_made_to_try_stays(tmp_path):
    assert resting.creation(tmp_path) > 0
    assert sum(path.is_file() for path in tmp_path.rglob("*")) == 15
