"""Work that follows a commit harms no table that takes the place of its own, whenever that happens."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

import pytest

from model import places
from refdelta.core.commit import effects
from refdelta.engine.log import checkpoint_write, cleanup, identity
from refdelta_storage import open_store

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
    monkeypatch.setattr("refdelta.transaction.post_commit.time_of_newest", lambda _: 10**14)
    monkeypatch.setattr(checkpoint_write, "LISTED_ITSELF", 0)


def case(kind: str, *, remote: bool, new: tuple[str, ...] = tuple(NEW), **more) -> places.Case:
    work = places.WORKS[kind.removeprefix("V2 ")]
    return places.Case(work, OLD[kind], tuple(NEW[name] for name in new), remote, **more)


@pytest.mark.tier("test")
@pytest.mark.sample(check=2, test=2)
@pytest.mark.parametrize("remote", [False, True], ids=["disk", "objects"])
@pytest.mark.parametrize("kind", OLD)
def test_no_table_is_harmed_by_work_of_the_one_before(kind, remote, tmp_path):
    assert next(places.wrong(case(kind, remote=remote), tmp_path), None) is None


@pytest.fixture(params=["s3", "azure"])
def service(request):
    """Gives fresh places of a service, as stores."""
    server = request.getfixturevalue(f"{request.param}_server")

    def make():
        place = server.place()
        return open_store(place.uri, {**place.options, "put_if_absent": "true"})

    return make


@pytest.mark.sample(test=4)
@pytest.mark.parametrize("kind", OLD)
def test_so_it_is_on_real_servers(kind, service, tmp_path):
    tried = case(kind, remote=True, new=("as long, with a checkpoint", "short, by another library"), objects=service)
    assert next(places.wrong(tried, tmp_path), None) is None


@pytest.fixture
def always(monkeypatch):
    """A version that was seen within the last minute is asked for all the same."""
    monkeypatch.setattr("refdelta.engine.log.file_committer._TRUSTED_SECONDS", -1.0)


@pytest.mark.tier("test")
@pytest.mark.parametrize("remote", [False, True], ids=["disk", "objects"])
def test_no_table_gets_a_commit_to_the_one_before(remote, tmp_path, always):
    assert next(places.wrong_commits(OLD["checkpoint"], tuple(NEW.values()), tmp_path, remote=remote), None) is None


# --- rules that are left out ---


def _faults(kind: str, path: Path, *, remote: bool) -> list[str]:
    return [*places.wrong(case(kind, remote=remote, new=("as long, with a checkpoint",)), path)]


def _left_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out a rule."""
    match name:
        case "the look after the work":
            monkeypatch.setattr(identity.Placement, "stands", lambda _: True)
        case "the look before the work":
            monkeypatch.setattr(identity.Placement, "locate", lambda _: None)
            monkeypatch.setattr(identity.Placement, "check", lambda _: None)
        case "the removal":
            monkeypatch.setattr(identity.Placement, "remove", lambda _: None)
        case "the mark of a file":
            writes = identity.Placement.writes
            monkeypatch.setattr(identity.Placement, "writes", lambda self, key, mark=None: writes(self, key))
        case "names that must be free":
            monkeypatch.setattr(places.Yielding, "create_output", places.Yielding.open_output)
        case "the descriptor of the folder":
            monkeypatch.setattr(places.Yielding, "pinned", lambda self, _: contextlib.nullcontext(self))
        case "files that are as they were listed":
            forced = lambda self, infos: self.delete([info.key for info in infos])  # noqa: E731
            monkeypatch.setattr(places.Yielding, "delete_unchanged", forced)


@pytest.mark.sample(check=2)
@pytest.mark.parametrize(
    ("rule", "kind", "remote"),
    [
        ("the look after the work", "checkpoint", True),
        ("the look after the work", "checksum", False),
        ("the look before the work", "V2 checkpoint", True),
        ("the removal", "log compaction", True),
        ("the mark of a file", "checkpoint", True),
        ("names that must be free", "checkpoint", True),
        ("the descriptor of the folder", "checkpoint", False),
        ("files that are as they were listed", "cleanup", True),
    ],
)
def test_each_rule_that_is_left_out_is_missed(rule, kind, remote, tmp_path, monkeypatch):
    _left_out(rule, monkeypatch)
    assert _faults(kind, tmp_path, remote=remote)


@pytest.mark.sample(test=2)
@pytest.mark.parametrize("rule", ["the look after the work", "the removal"])
def test_a_rule_that_is_left_out_is_missed_on_real_servers(rule, service, tmp_path, monkeypatch):
    _left_out(rule, monkeypatch)
    tried = case("checkpoint", remote=True, new=("as long, with a checkpoint",), objects=service)
    assert next(places.wrong(tried, tmp_path), None) is not None


@pytest.mark.parametrize("remote", [False, True], ids=["disk", "objects"])
def test_a_commit_that_asks_only_whether_the_version_exists_is_found_out(remote, tmp_path, always, monkeypatch):
    look = identity.CommitIdentity.look
    only = lambda self, store: effects.No() if isinstance(look(self, store), effects.No) else effects.Yes()  # noqa: E731
    monkeypatch.setattr(identity.CommitIdentity, "look", only)
    new = (NEW["as long, with a checkpoint"],)
    assert next(places.wrong_commits(OLD["checkpoint"], new, tmp_path, remote=remote), None) is not None
