"""Events of commits: what observers are told of each outcome, and that they change nothing.

Tests of api.telemetry.
"""

import logging
import os
import subprocess
import sys

import pyarrow as pa
import pytest

from refdelta import CommitProperties, DeltaTable, errors, instrument, observe_commits, write_deltalake
from refdelta.core.conflicts.rules import RULES
from refdelta.errors import ConcurrentDeleteReadException, InvalidArgumentError
from refdelta.transaction import events, intents, leader
from refdelta_storage import LocalStore, StorageError, Unknown, open_store
from transaction.test_intents import ALWAYS, WRITER, append_nine, lay

VECTORS = {"delta.enableDeletionVectors": "true"}


@pytest.fixture
def table(tmp_path):
    write_deltalake(tmp_path / "t", pa.table({"id": range(100)}), configuration=VECTORS)
    return DeltaTable(tmp_path / "t")


@pytest.fixture
def seen():
    found, before = [], events._observers
    with observe_commits(found.append):
        yield found
    assert events._observers == before


def entry(table, version):
    return open_store(table.table_uri).get(f"_delta_log/{version:020d}.json")


def test_a_commit_without_winners(table, seen):
    table.delete("id = 3")
    (event,) = seen
    assert (event.outcome, event.operation, event.read_version, event.version) == ("committed", "DELETE", 0, 1)
    assert (event.attempts, event.puts, event.winners, event.rules, event.rows) == (1, 1, 0, 0, 0)
    assert event.table.endswith("/t")
    assert event.isolation == "WriteSerializable"
    info = table.history(1)[0]
    assert event.txn_id == info["txnId"]
    assert event.bytes == len(entry(table, 1))
    assert event.effects["TryCommit"].count == 1
    assert event.effects["WriteVectors"].count == 1
    assert 0 < sum(one.seconds for one in event.effects.values()) <= event.seconds
    assert event.seconds_waited == 0.0
    assert (event.error, event.rule, event.winner) == (None, None, None)


def test_a_creation_reads_no_version(tmp_path, seen):
    write_deltalake(tmp_path / "t", pa.table({"id": [1]}))
    assert [(event.read_version, event.version, event.outcome) for event in seen] == [(None, 0, "committed")]


def test_winners_rules_and_rows_are_counted(table, seen):
    with table.begin(isolation="Serializable") as txn:
        txn.delete("id = 3")
        write_deltalake(table.table_uri, pa.table({"id": [1000, 1001]}), mode="append")
        DeltaTable(table.table_uri).delete("id = 4")
        txn.commit()
    event = seen[-1]
    assert (event.outcome, event.attempts, event.winners, event.version) == ("committed", 2, 2, 3)
    # Of the appended file statistics show that no row was read; the other winner is asked every rule.
    assert event.rules in {len(RULES), 2 * len(RULES)}
    assert event.effects["Pause"].count == 1
    assert event.puts == 2
    assert event.bytes > len(entry(table, 3))


def test_rows_of_new_files_are_counted(table, seen):
    with table.begin(isolation="Serializable") as txn:
        txn.delete("id = 3")
        # By its statistics the file may have the row: it has to be looked at.
        write_deltalake(table.table_uri, pa.table({"id": [1, 5, 9]}), mode="append")
        txn.commit()
    assert (seen[-1].rows, seen[-1].outcome) == (3, "committed")
    assert seen[-1].effects["MatchRows"].count == 1


def test_a_conflict_has_its_rule_and_its_winner(table, seen):
    with table.begin() as txn:
        txn.delete("id = 3")
        DeltaTable(table.table_uri).delete("id = 3")
        with pytest.raises(ConcurrentDeleteReadException) as raised:
            txn.commit()
    event = seen[-1]
    assert (event.outcome, event.error, event.version) == ("conflict", "ConcurrentDeleteReadException", None)
    assert (event.rule, event.winner) == (raised.value.conflict.rule, 1) == ("read-file-removed", 1)
    assert event.winners == 1
    assert event.rules == [rule.id for rule in RULES].index("read-file-removed") + 1


def test_used_up_retries(table, seen):
    with table.begin(commit_properties=CommitProperties(max_commit_retries=0)) as txn:
        txn.delete("id = 3")
        write_deltalake(table.table_uri, pa.table({"id": [1000]}), mode="append")
        with pytest.raises(errors.CommitRetriesExhaustedError):
            txn.commit()
    assert (seen[-1].outcome, seen[-1].attempts) == ("retries_exhausted", 1)


def test_other_ends(table, seen, monkeypatch):
    def broken(*_):
        raise StorageError("disk")

    monkeypatch.setattr(LocalStore, "put_if_absent", broken)
    with pytest.raises(errors.DeltaError):
        table.delete("id = 3")
    assert (seen[-1].outcome, seen[-1].version) == ("failed", None)
    monkeypatch.setattr(LocalStore, "put_if_absent", lambda *_: Unknown(OSError("no reply")))
    with pytest.raises(errors.CommitOutcomeUnknownError):
        table.delete("id = 3", commit_properties=CommitProperties(max_commit_seconds=0))
    assert (seen[-1].outcome, seen[-1].error) == ("unknown", "CommitOutcomeUnknownError")


def test_an_interrupt_has_an_unknown_outcome(table, seen, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalStore, "put_if_absent", interrupted)
    with pytest.raises(KeyboardInterrupt):
        table.delete("id = 3")
    assert seen[-1].outcome == "unknown"


def test_an_observer_that_fails_changes_nothing(table, caplog):
    def fails(event):
        raise ValueError(event.operation)

    seen = []
    with caplog.at_level(logging.WARNING, "refdelta"), observe_commits(fails), observe_commits(seen.append):
        assert table.delete("id = 3").version == 1
    assert "an observer of commits failed: ValueError: DELETE" in caplog.text
    assert len(seen) == 1


def test_the_same_function_twice_is_two_observers(table):
    seen = []
    first, second = observe_commits(seen.append), observe_commits(seen.append)
    table.delete("id = 1")
    first.close()
    first.close()
    table.delete("id = 2")
    second.close()
    table.delete("id = 3")
    assert [event.version for event in seen] == [1, 1, 2]


def test_an_observer_must_be_callable():
    with pytest.raises(InvalidArgumentError, match="observer must be a function of one event, not 3"):
        observe_commits(3)


# --- transactions that are put as intents ---


def append_by_intent(uri, *rows):
    return write_deltalake(uri, pa.table({"id": rows}), mode="append", commit_properties=ALWAYS)


@pytest.mark.usefixtures("patient")
def test_a_transaction_that_leads_has_one_event(table, seen):
    lay(table.table_uri.removeprefix("file://"), append_nine)
    result = append_by_intent(table.table_uri, 1000)
    (event,) = seen
    assert (event.outcome, event.operation, event.read_version, event.version) == ("committed", "WRITE", 0, 1)
    assert event.member == result.member is not None
    assert event.txn_id == DeltaTable(table.table_uri).history(1)[0]["members"][event.member]["txnId"]
    assert (event.attempts, event.puts, event.winners, event.error) == (1, 2, 0, None)  # the intent, and the version
    assert event.bytes > len(entry(table, 1))
    assert event.effects["TryCommit"].count == 2
    assert 0 < sum(one.seconds for one in event.effects.values()) <= event.seconds


@pytest.mark.tier("test")
def test_a_transaction_that_another_process_leads_has_one_event(table, seen, monkeypatch):
    monkeypatch.setattr(intents._Writer, "_patience", lambda *_: 600.0)
    monkeypatch.setattr(intents, "_FRESH_SECONDS", 86_400.0)
    monkeypatch.setattr(intents, "_PASSED_OVER", 1000)
    command = [sys.executable, str(WRITER), table.table_uri, "1", "1000000", "0"]
    patient = {**os.environ, "INTENT_FRESH_MS": "86400000"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=patient) as other:
        other.stdout.readline()
        try:
            result = append_by_intent(table.table_uri, 1000)
        finally:
            other.kill()
    (event,) = seen
    assert (event.outcome, event.operation, event.error) == ("committed", "WRITE", None)
    assert (event.version, event.member) == (result.version, result.member)
    info = next(one for one in DeltaTable(table.table_uri).history() if one["version"] == event.version)
    assert event.txn_id == (info["members"][event.member] if event.member is not None else info)["txnId"]
    # It has put its intent and no version, and waited for it.
    assert (event.attempts, event.puts, event.effects["TryCommit"].count) == (1, 1, 1)
    assert event.winners == event.version - event.read_version - 1 == len(result.rebased_over)
    assert 0 < event.seconds_waited < event.seconds


def test_a_conflict_of_an_intent_has_its_rule_and_its_winner(table, seen):
    with table.begin(commit_properties=ALWAYS) as txn:
        txn.delete("id = 3")
        DeltaTable(table.table_uri).delete("id = 3")
        with pytest.raises(ConcurrentDeleteReadException):
            txn.commit()
    event = seen[-1]
    assert (event.outcome, event.error, event.version) == ("conflict", "ConcurrentDeleteReadException", None)
    assert (event.rule, event.winner, event.winners) == ("read-file-removed", 1, 1)
    assert [one.txn_id for one in seen].count(event.txn_id) == 1


def test_an_intent_whose_fate_is_unknown_says_so(table, seen, monkeypatch):
    def gone(*_):
        raise errors.StoreError("gone")

    monkeypatch.setattr(leader.Leader, "look", gone)
    brief = CommitProperties(group="always", max_commit_seconds=0)
    with pytest.raises(errors.CommitOutcomeUnknownError):
        table.delete("id = 3", commit_properties=brief)
    (event,) = seen
    assert (event.outcome, event.error, event.puts) == ("unknown", "CommitOutcomeUnknownError", 1)


# --- OpenTelemetry ---


@pytest.fixture
def telemetry():
    pytest.importorskip("opentelemetry.sdk", reason="pip install opentelemetry-sdk")
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    spans, metrics, provider = InMemorySpanExporter(), InMemoryMetricReader(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    with instrument(provider, MeterProvider([metrics])):
        yield provider.get_tracer("test"), spans, metrics


def points(metrics):
    found = {}
    for resource in metrics.get_metrics_data().resource_metrics:
        for scope in resource.scope_metrics:
            found |= {metric.name: metric.data.data_points for metric in scope.metrics}
    return found


@pytest.mark.tier("test")
def test_spans_are_children_of_the_callers_and_carry_the_event(table, telemetry):
    tracer, spans, _ = telemetry
    with tracer.start_as_current_span("job") as job:
        table.delete("id = 3")
    span, parent = spans.get_finished_spans()
    assert (span.name, parent.name) == ("delta.commit DELETE", "job")
    assert span.parent.span_id == job.get_span_context().span_id
    assert span.status.is_ok or span.status.is_unset
    assert parent.start_time <= span.start_time <= span.end_time
    assert {"delta.version": 1, "delta.outcome": "committed", "delta.attempts": 1}.items() <= span.attributes.items()
    assert span.attributes["delta.effect.TryCommit.count"] == 1
    assert "delta.rule" not in span.attributes


def test_a_conflict_is_an_error_in_both(table, telemetry):
    _, spans, metrics = telemetry
    with table.begin() as txn:
        txn.delete("id = 3")
        DeltaTable(table.table_uri).delete("id = 3")
        with pytest.raises(ConcurrentDeleteReadException):
            txn.commit()
    span = spans.get_finished_spans()[-1]
    assert not span.status.is_ok
    assert span.status.description == "conflict: read-file-removed"
    assert span.attributes["error.type"] == "ConcurrentDeleteReadException"
    found = points(metrics)
    by_outcome = {point.attributes["delta.outcome"]: point for point in found["delta.commits"]}
    assert by_outcome["conflict"].attributes["delta.rule"] == "read-file-removed"
    assert by_outcome["conflict"].value == 1
    assert {point.count for point in found["delta.commit.duration"]} == {1}
    assert sorted(found) == [
        "delta.commit.attempts",
        "delta.commit.duration",
        "delta.commit.size",
        "delta.commit.wait",
        "delta.commit.winners",
        "delta.commits",
    ]


def test_a_missing_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry", None)
    with pytest.raises(InvalidArgumentError, match=r"pip install 'refdelta\[opentelemetry\]'"):
        instrument()
