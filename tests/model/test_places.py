"""Work that follows a commit harms no table that takes the place of its own, whenever that happens."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from model import places
from refdelta.engine.log import checkpoint_write, cleanup, identity

NEW = {
    "as long, with a checkpoint": places.made(4, checkpoint=3),
    "short, by another library": places.made(1, bare=True),
    "longer": places.made(6),
}
OLD = {
    "checkpoint": places.made(4),
    "checkpoint by the user": places.made(4),
    "V2 checkpoint": places.made(4, v2=True),
    "checksum": {key: data for key, data in places.made(4).items() if not key.endswith("3.crc")},
    "log compaction": places.made(4),
    "cleanup": places.made(4, checkpoint=2),
}


@pytest.fixture(autouse=True)
def expired(monkeypatch, caplog):
    """The whole log has expired, and sidecars are written for a single file."""
    caplog.set_level(logging.ERROR, "refdelta")
    monkeypatch.setattr(cleanup, "_DAY_MS", 1)
    monkeypatch.setattr("refdelta.transaction.post_commit._surely_past", lambda _: 10**14)
    monkeypatch.setattr(checkpoint_write, "LISTED_ITSELF", 0)


def case(kind: str, *, remote: bool, new: tuple[str, ...] = tuple(NEW)) -> places.Case:
    work = places.WORKS[kind.removeprefix("V2 ")]
    return places.Case(work, OLD[kind], tuple(NEW[name] for name in new), remote)


@pytest.mark.parametrize("remote", [False, True], ids=["disk", "objects"])
@pytest.mark.parametrize("kind", OLD)
def test_no_table_is_harmed_by_work_of_the_one_before(kind, remote, tmp_path):
    assert next(places.wrong(case(kind, remote=remote), tmp_path), None) is None


def _faults(kind: str, path: Path, *, remote: bool) -> list[str]:
    return [*places.wrong(case(kind, remote=remote, new=("as long, with a checkpoint",)), path)]


@pytest.mark.parametrize("kind", ["checkpoint", "checksum", "log compaction"])
def test_without_the_look_after_the_work_a_file_is_left(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(identity.Placement, "stands", lambda _: True)
    assert _faults(kind, tmp_path, remote=True)
