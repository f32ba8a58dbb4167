"""How many requests a commit makes, at the level of HTTP, on S3 and on Azure."""

from __future__ import annotations

import json
import shlex
from collections import Counter

import pyarrow as pa
import pytest

from refdelta import AddAction, DeltaTable, errors, settle, write_deltalake
from refdelta.catalog import SqlCatalog
from refdelta.cli import main
from refdelta.core.log.actions import Add, CommitInfo
from refdelta.core.log.codec import encode_commit
from refdelta.core.log.paths import commit_key
from refdelta.proxy.faults import FaultRule, FaultRules
from refdelta.transaction.options import CommitProperties
from servers.proxies import CountingProxy
from servers.running import Place

ROW = pa.table({"n": pa.array(range(10), pa.int64())})
VECTORS = {"delta.enableDeletionVectors": "true"}


@pytest.fixture(autouse=True)
def moments(monkeypatch):
    """On a machine that is busy a moment may be long."""
    monkeypatch.setattr("refdelta.api.handle._MOMENT", 600.0)


@pytest.fixture
def place(proxy):
    """A place by way of the proxy, in a bucket that has been written to before."""
    write_deltalake((first := proxy.place()).uri, ROW, storage_options=first.options)
    proxy.reset()
    return proxy.place()


@pytest.fixture
def four(proxy, place):
    """A handle on a table of four commits, each of which adds a small file."""
    for _ in range(4):
        append(place)
    table = opened(place)
    proxy.reset()
    return table


def opened(place):
    return DeltaTable(place.uri, storage_options=place.options)


def append(place, **options):
    return write_deltalake(place.uri, ROW, mode="append", storage_options=place.options, **options)


def test_new_tables(proxy, place, told):
    append(place)
    assert proxy.counts == told("write-1")
    proxy.reset()
    other = proxy.place()
    table = DeltaTable.create(other.uri, ROW.schema, storage_options=other.options)
    assert table.version() == 0
    assert proxy.counts == told("write-2")


def test_appends(proxy, place, four, told, monkeypatch):
    append(place)
    assert proxy.counts == told("write-3")
    four.update_incremental()
    proxy.reset()
    with monkeypatch.context() as later:
        later.setattr("refdelta.api.handle._MOMENT", 0.0)
        write_deltalake(four, ROW, mode="append")
    assert proxy.counts == told("write-4")
    proxy.reset()
    for _ in range(3):
        write_deltalake(four, ROW, mode="append")
    assert proxy.counts == told("write-5")
    assert all(seen.conditional for seen in proxy.seen if seen.kind == "commit" and seen.method == "PUT")
    assert (four.version(), four.count()) == (8, 90)
    proxy.reset()
    four.update_incremental()
    assert proxy.counts == told("write-6")
    assert four.to_pyarrow_table().num_rows == opened(place).count() == 90


@pytest.mark.sample(test=2)
@pytest.mark.parametrize(("winners", "row"), [(1, "write-7"), (10, "write-8"), (300, "write-9")])
def test_stale_appends(proxy, place, four, told, winners, row):
    late = four.begin()
    late.append(ROW)
    for number in range(winners):
        add = Add(path=f"f{number}", partition_values={}, size=1, modification_time=1, data_change=True)
        info = CommitInfo(fields={"operation": "WRITE", "txnId": f"winner-{number}", "isBlindAppend": True})
        four.store.put_if_absent(commit_key(4 + number), encode_commit([info, add]))
    proxy.reset()
    result = late.commit()
    # Azure's listings start at a hundred, and go on by one.
    more = Counter({"LIST log": 2} if winners > 200 and place.uri.startswith("abfs") else {})
    assert proxy.counts == told(row) + more
    assert result.rebased_over == tuple(range(4, 4 + winners))
    # The handle goes on from what the commit has seen.
    proxy.reset()
    assert (four.version(), len(four.files())) == (4 + winners, 4 + winners + 1)
    write_deltalake(four, ROW, mode="append")
    assert proxy.counts == told("write-4") + more
    proxy.reset()
    write_deltalake(four, ROW, mode="append")
    assert proxy.counts == told("write-18")
    assert opened(place).files().sort_by("path").equals(four.files().sort_by("path"))


def test_appends_over_a_change_that_the_handle_has_not_seen(proxy, place, four, told):
    write_deltalake(four, ROW, mode="append")
    opened(place).alter.add_columns(pa.schema([("m", pa.int64())]))
    proxy.reset()
    assert write_deltalake(four, ROW, mode="append").version == 6
    assert proxy.counts == told("write-19")
    assert opened(place).count() == 60


def test_commits_of_files_that_are_there(proxy, place, four, told):
    write_deltalake(four, ROW, mode="append")
    proxy.reset()
    stats = json.dumps({"numRecords": 10})
    four.create_write_transaction([AddAction("f", 1, {}, 1, True, stats)], "append", ROW.schema)
    four.settle()
    assert proxy.counts == told("write-20")
    proxy.reset()
    four.create_write_transaction([AddAction("g", 1, {}, 1, True, stats)], "append", ROW.schema)
    four.settle()
    assert proxy.counts == told("write-24")
    assert four.count() == 70
    table = opened(place)
    proxy.reset()
    table.create_write_transaction([AddAction("h", 1, {}, 1, True, stats)], "append", ROW.schema)
    table.settle()
    assert proxy.counts == told("write-25")


def test_commits_to_a_catalog_of_files_that_are_there(proxy, place, told, tmp_path):
    stats = json.dumps({"numRecords": 10})
    found = f"sqlite:///{tmp_path}/catalog.db"
    with SqlCatalog(found, storage_options=place.options, locations=[place.uri]) as catalog:
        catalog.create_table("t", ROW.schema, place.uri, commits="inline")
        table = catalog.table("t")
        proxy.reset()
        table.create_write_transaction([AddAction("f", 1, {}, 1, True, stats)], "append", ROW.schema)
        assert proxy.counts == told("write-26")
        proxy.reset()
        table.create_write_transaction([AddAction("g", 1, {}, 1, True, stats)], "append", ROW.schema)
        assert proxy.counts == told("write-27")
        assert (table.version(), len(table.files())) == (2, 2)


def test_statements(proxy, place, told):
    for _ in range(4):
        append(place, configuration=VECTORS)
    table = opened(place)
    table.alter.set_table_properties({"delta.checkpointInterval": "1000"})
    proxy.reset()
    assert table.delete("n = 3").metrics["num_deleted_rows"] == 4
    assert proxy.counts == told("write-10")
    late = table.begin()
    late.delete("n = 0")
    for n in range(4, 10):
        table.delete(f"n = {n}")
    proxy.reset()
    result = late.commit()
    assert len(result.rebased_over) == 6
    assert result.fallbacks == ()
    assert proxy.counts == told("write-11")
    assert sorted(set(table.to_pyarrow_table()["n"].to_pylist())) == [1, 2]


def test_checkpoints_and_cleanup(proxy, place, four, told):
    four.create_checkpoint()
    assert proxy.counts == told("write-12")
    four.alter.set_table_properties({"delta.checkpointInterval": "7"})
    append(place)
    append(place)
    table = opened(place)
    proxy.reset()
    write_deltalake(table, ROW, mode="append")
    assert proxy.counts == told("write-13")
    proxy.reset()
    # The next one goes on from the checkpoint without a look.
    write_deltalake(table, ROW, mode="append")
    assert proxy.counts == told("write-18")
    proxy.reset()
    table.create_checkpoint()
    assert proxy.counts == told("write-14")
    proxy.reset()
    table.cleanup_metadata()
    assert proxy.counts == told("write-15")


# --- outcomes that are not known -----------------------------------------------------------------------------------


@pytest.fixture(params=["s3_server", "azure_server"])
def faulty(request):
    """A proxy that follows rules, before each server in turn; its rules, and the server's options without it."""
    server, rules = request.getfixturevalue(request.param), FaultRules()
    with CountingProxy(server, rules) as proxy:
        yield proxy, rules, server.options()


def test_an_error_for_a_commit_that_was_carried_out_costs_one_read(faulty, told):
    proxy, rules, _ = faulty
    place = proxy.place()
    append(place)
    table = opened(place)
    proxy.reset()
    rules.add(FaultRule("500-after", method="PUT", kind="commit"))
    result = write_deltalake(table, ROW, mode="append")
    assert (result.version, result.attempts, result.rebased_over) == (1, 1, ())
    assert proxy.counts == told("write-16")
    assert opened(place).count() == 20


def test_a_commit_that_was_not_carried_out_is_put_again_with_the_same_bytes(faulty, told):
    proxy, rules, _ = faulty
    place = proxy.place()
    append(place)
    table = opened(place)
    proxy.reset()
    rules.add(FaultRule("500-before", method="PUT", kind="commit", times=2))
    assert write_deltalake(table, ROW, mode="append").attempts == 1
    assert proxy.counts == told("write-17")
    assert len({seen.body for seen in proxy.seen if seen.kind == "commit" and seen.method == "PUT"}) == 1
    assert opened(place).count() == 20


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("fault", ["drop-before", "late"])
def test_an_outcome_that_stays_unknown_says_how_to_find_out(faulty, fault, capsys):
    """The message is taken at its word: its command is run, and what it says to look for is looked for."""
    proxy, rules, options = faulty
    place = proxy.place()
    append(place)
    settle()
    rules.add(FaultRule(fault, method="PUT", kind="commit", times=10_000))
    rules.add(FaultRule("drop-before", method="GET", kind="commit", skip=1, times=10_000))
    with pytest.raises(errors.CommitOutcomeUnknownError) as caught:
        append(place, commit_properties=CommitProperties(max_commit_seconds=2))
    error = caught.value
    assert (error.version, error.uri) == (1, place.uri)
    assert place.options.get("secret", "no key") not in str(error)
    command = shlex.split(str(error).split("`")[1])
    assert command == ["refdelta", "log", place.uri, "--version", "1"]
    proxy.settle()  # the server gets what was dropped up to seconds later
    # Once the store answers:
    there = Place(place.uri, options)
    status = main([*command[1:], "--json", *(f"--storage-option={name}={value}" for name, value in options.items())])
    said = capsys.readouterr()
    if fault == "late":
        (info,) = (action["commitInfo"] for action in json.loads(said.out) if "commitInfo" in action)
        assert info["txnId"] == error.txn_id
        assert f'"txnId":"{error.txn_id}"'.encode() in opened(there).store.get(commit_key(1))
        assert opened(there).count() == 20
    else:
        assert (status, said.out) == (1, "")
        assert "no version 1" in said.err
        assert opened(there).count() == 10
