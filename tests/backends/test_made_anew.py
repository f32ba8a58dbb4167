"""A table that is removed, and made anew in its place, before the background work of its last commit has begun: the new
table gets no file of the old one and loses none, and nothing is left where there is no new one.

``tests/model/test_places.py`` has every moment between two requests of such work.

Tests of engine.log.identity.
"""

from __future__ import annotations

import logging
import shutil
from functools import partial

import deltalake
import pyarrow as pa
import pytest

from backends.tables import opened, write
from refdelta import CommitProperties, DeltaTable, write_deltalake
from refdelta.engine.log import cleanup, identity
from refdelta.engine.log.location import open_location
from refdelta.errors import CommitFailedError
from refdelta.transaction import background

OLD = {"delta.checkpointInterval": "2", "delta.logRetentionDuration": "interval 0 days"}
ROW = pa.table({"id": pa.array([1], pa.int64())})


@pytest.fixture
def held(monkeypatch):
    """The background work that was asked for; none of it runs until the test runs it."""
    work = []

    def hold(uri, kind, task, **_):
        work.append((kind, partial(run, uri, kind, task)))
        return True

    run = background.run
    monkeypatch.setattr(background, "at_once", frozenset())
    monkeypatch.setattr(background, "run", hold)
    yield work
    background.settle()


@pytest.fixture(autouse=True)
def expired(monkeypatch, caplog):
    """All of a log has expired as soon as a checkpoint follows on it."""
    caplog.set_level(logging.WARNING, "refdelta")
    monkeypatch.setattr(cleanup, "_DAY_MS", 1)
    monkeypatch.setattr("refdelta.transaction.post_commit.time_of_newest", lambda _: 10**14)


def begin(held):
    """Let all work begin that is held, and wait for its end."""
    while held:
        held.pop(0)[1]()
    background.settle()


def content(place):
    store = open_location(place.uri, place.options)
    return {info.key: store.get(info.key) for info in store.list()}


def remove(place, backend):
    if backend == "local":
        shutil.rmtree(place.uri)
    else:
        store = open_location(place.uri, place.options)
        store.delete([info.key for info in store.list()])


def of_deltalake(backend, request):
    """The options by which deltalake opens a place."""
    if backend == "local":
        return None
    return request.getfixturevalue(f"{backend}_server").of_deltalake()


def make_old(place, held):
    """A table of the versions 0 to 4. The work of the last one is held: a checkpoint and a cleanup, and where a put
    costs a round trip a checksum, which is put at once elsewhere.
    """
    write(place, ROW, configuration=OLD)
    for _ in range(3):
        write(place, ROW, mode="append")
    begin(held)
    write(place, ROW, mode="append", commit_properties=CommitProperties(cleanup_expired_logs=True))
    remote = open_location(place.uri, place.options).capabilities.remote
    assert {kind.name for kind, _ in held} == {"maintenance", *["checksum"] * remote}


def test_where_it_was_removed_nothing_is_left(place, backend, held, caplog):
    make_old(place, held)
    remove(place, backend)
    begin(held)
    assert content(place) == {}
    assert caplog.records == []


@pytest.mark.parametrize("versions", [1, 5, 7])
def test_a_table_in_its_place_stays_as_it_is(place, backend, held, caplog, versions):
    make_old(place, held)
    of_the_old, held[:] = [*held], []
    remove(place, backend)
    write(place, pa.table({"other": ["x"]}), configuration={"delta.checkpointInterval": "3"})
    for _ in range(versions - 1):
        write(place, pa.table({"other": ["x"]}), mode="append")
    begin(held)
    new = content(place)
    begin(of_the_old)
    assert content(place) == new
    assert opened(place).version() == versions - 1
    assert caplog.records == []


@pytest.mark.parametrize("backend", ["local", "s3", "azure"])
def test_so_does_one_of_another_library(place, backend, held, caplog, request):
    options = of_deltalake(backend, request)
    make_old(place, held)
    remove(place, backend)
    for mode in ("error", *["append"] * 4):
        deltalake.write_deltalake(place.uri, ROW, mode=mode, storage_options=options)
    new = content(place)
    begin(held)
    assert content(place) == new
    assert caplog.records == []


def test_work_that_does_not_look_harms_the_new_table(place, backend, held, monkeypatch):
    """The tests of this file find it."""
    make_old(place, held)
    remove(place, backend)
    of_the_old, held[:] = [*held], []
    for _ in range(5):
        write(place, pa.table({"other": ["x"]}), mode="append")
    begin(held)
    new = content(place)
    monkeypatch.setattr(identity.Placement, "stands", lambda _: True)
    monkeypatch.setattr(identity.Placement, "locate", lambda _: None)
    begin(of_the_old)
    assert content(place) != new


def test_without_an_event_the_work_does_what_it_is_for(place, held, caplog):
    make_old(place, held)
    begin(held)
    left = {key for key in content(place) if key.startswith("_delta_log/")}
    log = {key.removeprefix("_delta_log/") for key in left}
    assert {f"{4:020}.json", f"{4:020}.crc", f"{4:020}.checkpoint.parquet", "_last_checkpoint"} <= log
    assert f"{0:020}.json" not in log
    assert caplog.records == []


def test_a_version_that_a_late_put_created_anew_is_not_built_on(tmp_path):
    """Log cleanup removed it, and its writer's request came a second time: the bytes are the same, and no reader has
    the file.
    """
    for _ in range(2):
        write_deltalake(tmp_path, ROW, mode="append")
    stale = DeltaTable(tmp_path).begin()
    stale.append(ROW)
    for _ in range(2):
        write_deltalake(tmp_path, ROW, mode="append")
    log = tmp_path / "_delta_log"
    late = (log / f"{1:020d}.json").read_bytes()
    for version in range(3):
        (log / f"{version:020d}.json").unlink()
    (log / "late").write_bytes(late)
    (log / "late").rename(log / f"{1:020d}.json")
    with pytest.raises(CommitFailedError, match="version 1, on which this commit builds, is no longer in the log"):
        stale.commit()
    assert not (log / f"{2:020d}.json").exists()


def test_a_version_whose_file_was_copied_back_is_built_on(tmp_path):
    """A folder that was restored has other objects, and the same log."""
    for _ in range(2):
        write_deltalake(tmp_path, ROW, mode="append")
    with DeltaTable(tmp_path).begin() as txn:
        txn.append(ROW)
        newest = tmp_path / "_delta_log" / f"{1:020d}.json"
        shutil.copy(newest, f"{newest}.copy")
        (tmp_path / "_delta_log" / f"{newest.name}.copy").rename(newest)
        assert txn.commit().version == 2
