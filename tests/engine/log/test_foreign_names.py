"""Temporary names of other programs beside the objects of a table: they are no part of it, and stay.

A server shows such names while it replaces an object, as versitygw does; Hadoop, copying programs and editors leave
them behind. Each name here has the content of the object beside it, or a part of it.
"""

from __future__ import annotations

import json
import re
import uuid

import pyarrow as pa
import pytest

from refdelta import DeltaTable, settle, verify, write_deltalake
from refdelta.core.commit.intent_file import FOLDER
from refdelta.core.log.paths import LOG, SIDECARS, commit_key, last_checkpoint_key
from refdelta.engine.log.cleanup import cleanup_log
from refdelta.engine.log.listing import file_time, has_log, newest_version
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.errors import InvalidLogError
from refdelta.operations.maintenance.vacuum import find_candidates, list_objects
from refdelta.transaction.traffic import listed as intents
from refdelta_storage import MemoryStore
from servers.running import S3_TEMPORARY

DAY = 86_400_000
HIDDEN = {
    "versitygw": "{folder}.{name}.sgwtmp.1753900000000000000",
    "versitygw's folder": "{folder}.sgwtmp/{name}",
    "Hadoop's checksum": "{folder}.{name}.crc",
    "Hadoop's rename": "{folder}.{name}.4f0e8a52-5d8c-4b43-9d3f-3c1f5b7a9e10.tmp",
    "rsync": "{folder}.{name}.Xa3kQ2",
    "Spark's folder": "{folder}_temporary/0/{name}",
}
SHOWN = {
    "Hadoop's copy": "{folder}{name}._COPYING_",
    "a temporary file": "{folder}{name}.tmp",
    "a part": "{folder}{name}.part",
    "a backup": "{folder}{name}~",
}


def foreign(store, forms):
    """Put a foreign name beside each object, by turns with its content and with a part of it. Returns their contents
    by key.
    """
    made = {}
    for number, info in enumerate([*store.list()]):
        content = store.get(info.key)
        folder, slash, name = info.key.rpartition("/")
        for form in forms:
            made[form.format(folder=folder + slash, name=name)] = content[: len(content) // (1 + number % 2)]
    for key, content in made.items():
        store.put(key, content)
    return made


def there(store, made):
    return {info.key: store.get(info.key) for info in store.list() if info.key in made} == made


def time_of(store):
    """The time of the newest commit, in milliseconds."""
    return file_time(store, commit_key(newest_version(store, -1)))


def rows(*ids):
    return pa.table({"id": ids, "p": [str(one % 2) for one in ids]})


CONFIGURATION = {
    "delta.enableDeletionVectors": "true",
    "delta.enableChangeDataFeed": "true",
    "delta.checkpointPolicy": "v2",
    "delta.checkpointInterval": "1000",
}


@pytest.fixture
def table():
    """Versions 0 to 4 with a checkpoint, vectors, change files, checksums, a sidecar, a staged commit and an intent."""
    uri = f"memory://{uuid.uuid4()}"
    for start in (0, 10, 20):
        write_deltalake(
            uri, rows(*range(start, start + 10)), mode="append", partition_by=["p"], configuration=CONFIGURATION
        )
    table = DeltaTable(uri)
    table.delete("id IN (3, 14)")
    table.create_checkpoint()
    table.update({"p": "'1'"}, predicate="id = 22")
    settle()
    content = table.store.get(commit_key(4))
    table.store.put(f"{LOG}/_staged_commits/{5:020d}.{uuid.uuid4()}.json", content)
    table.store.put(f"{SIDECARS}/{uuid.uuid4()}.parquet", b"of a checkpoint that was never written")
    table.store.put(f"{FOLDER}/i-{4:020d}-{uuid.uuid4()}.json", b"{}")
    return DeltaTable(uri)


def state(uri):
    """All that is read of the table."""
    table = DeltaTable(uri)
    versions = [DeltaTable(uri, version=number) for number in range(table.version() + 1)]
    return (
        [sorted(one.to_pyarrow_table().to_pylist(), key=lambda row: row["id"]) for one in versions],
        [entry["version"] for entry in table.history()],
        table.load_cdf(starting_version=0).read_all().num_rows,
        table.scan().files.num_rows,
        [info.key for info in intents(table.store)],
    )


@pytest.mark.tier("test")
@pytest.mark.parametrize("form", [*HIDDEN, *SHOWN])
def test_foreign_names_are_not_read_and_survive_writes_and_maintenance(table, form):
    uri, store = table.table_uri, table.store
    before = state(uri)
    made = foreign(store, [{**HIDDEN, **SHOWN}[form]])
    assert state(uri) == before
    assert verify(uri).sound
    table = DeltaTable(uri)
    write_deltalake(table, rows(100, 101), mode="append")
    table.delete("id = 101")
    table.optimize.compact()
    table.create_checkpoint()
    settle()
    assert [info.key for info in intents(store)] == before[-1]
    cleanup_log(store, load_snapshot(store), time_of(store), retention_ms=0)
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    settle()
    # VACUUM removes each old file of the folder of change files that is not hidden.
    assert there(store, {k: v for k, v in made.items() if form in HIDDEN or not k.startswith("_change_data/")})
    left = DeltaTable(uri).to_pyarrow_table()["id"].to_pylist()
    assert sorted(left) == sorted({*range(30), 100} - {3, 14})


def test_old_foreign_names_stay_where_they_are_hidden(table):
    """VACUUM in full removes old files that the log does not name, and log cleanup removes old sidecars that no
    checkpoint names, but hidden names belong to other programs.
    """
    store = table.store
    hidden = foreign(store, HIDDEN.values())
    later = time_of(store) + 400 * DAY
    table.create_checkpoint()
    snapshot = load_snapshot(store)
    found = find_candidates(snapshot, list_objects(store), expired_ms=later, full=True)
    assert not {*found.objects["key"].to_pylist()} & {*hidden}
    assert cleanup_log(store, snapshot, later, retention_ms=0)
    assert there(store, hidden)
    assert any(key.startswith(f"{SIDECARS}/") for key in hidden)


def test_the_hint_is_replaced_by_one_request_beside_its_temporary_name(table):
    store = table.store
    hint = json.loads(store.get(last_checkpoint_key()))
    foreign(store, [HIDDEN["versitygw"]])
    assert json.loads(store.get(last_checkpoint_key())) == hint
    table.create_checkpoint()
    settle()
    assert json.loads(store.get(last_checkpoint_key()))["version"] == table.version()


def test_the_name_of_the_server_is_the_one_that_its_tests_allow():
    key = HIDDEN["versitygw"].format(folder=f"{LOG}/", name=f"{5:020d}.json")
    assert re.fullmatch(S3_TEMPORARY, key)
    assert not re.fullmatch(S3_TEMPORARY, commit_key(5))


# --- a foreign name alone -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [*HIDDEN, *SHOWN])
def test_foreign_names_make_no_table(form):
    store = MemoryStore(str(uuid.uuid4()))
    store.put({**HIDDEN, **SHOWN}[form].format(folder=f"{LOG}/", name=f"{0:020d}.json"), b"{}")
    assert not has_log(store)
    assert newest_version(store, -1) == -1


@pytest.mark.parametrize("form", [*HIDDEN, *SHOWN])
def test_the_time_of_a_commit_is_not_that_of_a_foreign_name(form):
    store = MemoryStore(str(uuid.uuid4()))
    store.put({**HIDDEN, **SHOWN}[form].format(folder=f"{LOG}/", name=f"{7:020d}.json"), b"{}")
    with pytest.raises(InvalidLogError, match="no longer exists"):
        file_time(store, commit_key(7))
    store.put(commit_key(7), b"{}")
    assert file_time(store, commit_key(7)) == store.head(commit_key(7)).mtime_ms
