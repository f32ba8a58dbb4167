"""One statement of a client of ``refdelta serve`` beside another client: requests are lost, doubled and delayed."""

from __future__ import annotations

import itertools
import logging
import shutil
import time

import pytest

from catalog import statements
from catalog.statements import ARCHIVE, ORDERS, STATEMENTS, Schedule, Server, Wire, World, append, play, search
from refdelta import errors
from refdelta.catalog import SqlCatalog, UnityCatalog, service
from refdelta.catalog.unity import UnityRatifier
from refdelta.transaction import background, driver

OTHERS = "a table of the other client is gone, or has another name"

# A schedule for each way in which a statement went wrong.
FOUND = [
    Schedule("rename", "nothing", 1, True, ("lost reply",)),
    Schedule("rename", "anew", 1, True, ("late",)),
    Schedule("rename", "anew", 1, True, ("twice",)),
    Schedule("create", "anew", 1, True, (None, "twice")),
    Schedule("create", "rename", 1, True, (None, "lost reply")),
    Schedule("create", "replace", 1, True, (None, "lost reply")),
    Schedule("append", "drop", 1, True, ("twice",)),
    Schedule("append", "rename", 1, True, ("twice",)),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(background, "run", lambda *_, **__: True)
        return World(tmp_path_factory.mktemp("statements") / "served")


@pytest.fixture
def world(made, monkeypatch):
    """Nothing waits, and no writer publishes in the background."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setitem(driver.commit.__kwdefaults__, "sleep", lambda _: None)
    monkeypatch.setattr(background, "run", lambda *_, **__: True)
    monkeypatch.setattr(logging.getLogger("refdelta"), "disabled", True)
    return made


def wrong(schedules):
    return [(one.schedule, one.found, one.told) for one in schedules if one.found]


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("statement", [one for one in STATEMENTS if one != "alter"])
def test_every_schedule_with_one_fault(world, statement):
    assert len(explored(world, statement)) > 200


@pytest.mark.tier("nightly")
def test_every_schedule_of_an_alter_with_one_fault(world):
    assert len(explored(world, "alter")) > 200


def explored(world, statement):
    played = [*search(world, statement, most=1)]
    assert wrong(played) == []
    return played


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("statement", ["rename"])
def test_every_schedule_of_a_rename_with_one_fault(world, statement):
    assert wrong(search(world, statement, most=1)) == []


@pytest.mark.parametrize("schedule", FOUND, ids=lambda one: f"{one.statement}-{one.program}-{one.faults[-1]}")
def test_schedules_that_went_wrong(world, schedule):
    assert wrong([play(world, schedule)]) == []


def drops(program, *faults):
    """The schedules of a drop whose DELETE meets these faults, beside a program at moments after its first reply."""
    moments = [(1, True), *itertools.product(range(2, 9), (False, True))]
    return [Schedule("drop", program, *moment, (None, *faults)) for moment in moments]


@pytest.mark.tier("test")
def test_a_drop_beside_a_table_that_takes_the_name(world):
    assert wrong(play(world, one) for one in [*drops("anew", "late"), *drops("replace", "lost reply")]) == []


# --- each rule is needed ---


def kinds(world, schedules, **options):
    return {kind for one in schedules for kind in play(world, one, **options).found}


@pytest.mark.tier("nightly")
def test_without_the_condition_of_the_requests_a_late_one_is_for_another_table(world):
    assert OTHERS in kinds(world, drops("anew", "late"), ignores_conditions=True)
    assert OTHERS in kinds(world, [FOUND[1]], ignores_conditions=True)


def test_without_a_look_for_the_table_a_rename_fails_that_was_carried_out(world, monkeypatch):
    monkeypatch.setattr(UnityCatalog, "_place", lambda *_: "gone")
    assert isinstance(play(world, FOUND[0]).told, errors.TableNotFoundError)


def test_without_the_look_into_the_folder_a_commit_fails_that_was_published_by_a_drop(world, monkeypatch):
    monkeypatch.setattr(UnityRatifier, "_is_published", lambda *_: False)
    assert kinds(world, [FOUND[6]]) == {"append reported a failure, and has its effect"}


def test_without_the_commits_by_id_a_commit_fails_that_is_in_a_renamed_table(world, monkeypatch):
    monkeypatch.setattr(service.DeltaService, "_accepted_elsewhere", lambda *_: None)
    assert kinds(world, [FOUND[7]]) == {"append reported a failure, and has its effect"}


# --- a drop, and the commits beside it ---


def committed_in_the_middle(world, monkeypatch):
    """Drop the table while a writer at the database commits between the publication and the drop.

    Returns what the writer got, and the notes of all commits in the folder.
    """
    drop, told = SqlCatalog._drop, []
    with world.opened() as server, SqlCatalog(f"sqlite:///{world.folder}/catalog.db") as behind:
        client = Wire(server).client()
        table_id = client.load(ORDERS).metadata.table_uuid
        handle = behind.table(ORDERS)

        def late(self, entry):
            try:
                told.append(append(handle, 3, "in the middle"))
            except errors.DeltaError as error:
                told.append(error)
            return drop(self, entry)

        monkeypatch.setattr(SqlCatalog, "_drop", late)
        client.drop_table(ORDERS)
    return told, [note for _, note in world.notes(table_id)]


def test_a_commit_between_publication_and_drop_is_refused(world, monkeypatch):
    told, notes = committed_in_the_middle(world, monkeypatch)
    assert isinstance(told[0], errors.StoreError)
    assert notes == ["", "before"]


def test_a_drop_that_did_not_end_is_repeated(world, monkeypatch):
    with world.opened() as server:
        client = Wire(server).client()
        with monkeypatch.context() as patch:
            patch.setattr(SqlCatalog, "_drop", lambda *_: (_ for _ in ()).throw(statements.Broken("ends here")))
            with pytest.raises(errors.StoreError):
                client.drop_table(ORDERS)
        with pytest.raises(errors.StoreError):
            append(client.table(ORDERS), 3, "into a table that is being dropped")
        client.drop_table(ORDERS)
        append(client.create_table(ORDERS, statements.SCHEMA), 4, "anew")


def test_a_rename_to_a_name_that_is_taken(world):
    with world.opened() as server:
        client = Wire(server).client()
        client.create_table(ARCHIVE, statements.SCHEMA)
        with pytest.raises(errors.TableAlreadyExistsError):
            client.rename_table(ORDERS, ARCHIVE)


# --- a database, and a folder, that come back from a copy ---


def test_a_database_that_was_restored_is_named_and_adopted(world, tmp_path):
    with world.opened() as server:
        client = Wire(server).client()
        shutil.copy(world.folder / "catalog.db", tmp_path / "old.db")
        append(client.table(ORDERS), 2, "later")
        client.publish(ORDERS)
        server.catalog.close()
    for file in world.folder.glob("catalog.db*"):
        file.unlink()
    shutil.copy(tmp_path / "old.db", world.folder / "catalog.db")
    server = Server(world.folder)
    try:
        client = Wire(server).client()
        for refused in (lambda: client.table(ORDERS).count(), lambda: client.publish(ORDERS)):
            with pytest.raises(errors.CatalogMismatchError, match=r"catalog\.db.* does not agree with the folder"):
                refused()
        with pytest.raises(errors.DeltaError):
            client.adopt(ORDERS)
        with SqlCatalog(f"sqlite:///{world.folder}/catalog.db") as behind:
            assert behind.adopt(ORDERS).adopted == (2,)
        append(client.table(ORDERS), 3, "after")
        table_id = client.load(ORDERS).metadata.table_uuid
        assert [note for _, note in world.notes(table_id)] == ["", "before", "later", "after"]
    finally:
        server.close()


def test_a_handle_is_refused_after_the_database_went_back(world, tmp_path):
    """Also where the folder has none of the lost commits: it has a checksum of theirs."""
    with world.opened() as server:
        wire = Wire(server)
        shutil.copy(world.folder / "catalog.db", tmp_path / "old.db")
        handle = wire.client().table(ORDERS)
        append(handle, 2, "lost with the database")
        server.catalog.close()
        for file in world.folder.glob("catalog.db*"):
            file.unlink()
        shutil.copy(tmp_path / "old.db", world.folder / "catalog.db")
        wire.server = Server(world.folder)
        try:
            with pytest.raises(errors.CatalogMismatchError, match="does not agree"):
                append(handle, 3, "after")
        finally:
            wire.server.close()


def test_a_folder_that_lost_published_versions_is_named(world):
    with world.opened() as server:
        client = Wire(server).client()
        client.publish(ORDERS)
        table_id = client.load(ORDERS).metadata.table_uuid
    log = world.folder / "warehouse" / table_id / "_delta_log"
    (log / f"{1:020d}.json").unlink()
    server = Server(world.folder)
    try:
        with pytest.raises(errors.CatalogMismatchError, match="folder"):
            Wire(server).client().table(ORDERS).count()
    finally:
        server.close()
