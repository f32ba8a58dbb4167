"""The main job on a part of its data: it does what it says, and it notices when something is wrong.

Tests of demo.changes, demo.groups, demo.run, demo.with_catalog.
"""

import dataclasses
import datetime as dt
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from refdelta import DeltaTable, write_deltalake
from refdelta.cli import running
from refdelta.crosscheck.oracle import OracleUnavailableError
from refdelta.demo import changes as demo_changes
from refdelta.demo import groups as demo_groups
from refdelta.demo import rows as demo_rows
from refdelta.demo import run as demo
from refdelta.demo import with_catalog as demo_catalog
from refdelta.errors import InvalidArgumentError, UnsupportedFeatureError

# Two tables that several processes wrote are made once for all of it.
pytestmark = pytest.mark.xdist_group("demo")


@pytest.fixture(scope="module")
def flights():
    return demo.flights()


@pytest.fixture(scope="module")
def some(flights):
    """Every fiftieth flight, of all months and carriers but the rarest."""
    return flights.take(pa.array(range(0, flights.num_rows, 50)))


@pytest.fixture(scope="module")
def done(some, tmp_path_factory):
    """A table that two processes wrote: its place, and what they say that they did."""
    place = demo.fresh_place(str(tmp_path_factory.mktemp("demo") / "flights"))
    demo.create(place, some)
    return place, demo.write_concurrently(place, some, 2)


@pytest.mark.tier("test")
def test_the_flights_are_typed(flights):
    assert flights.num_rows == 336_776
    assert flights.schema.field("time_hour").type == pa.timestamp("us", "UTC")
    assert flights.schema.field("dep_delay").type == pa.int32()
    assert flights.schema.field("flight").type == pa.int32()
    assert flights.schema.field("tailnum").type == pa.string()
    first = flights.slice(0, 1).to_pylist()[0]
    assert (first["carrier"], first["time_hour"]) == ("UA", dt.datetime(2013, 1, 1, 10, tzinfo=dt.UTC))
    assert flights["dep_time"].null_count == 8255, "NA is null"
    assert pc.sum(pc.equal(flights["tailnum"], "NA")).as_py() in (0, None)


@pytest.mark.tier("test")
def test_writers_at_once_lose_nothing(done, some):
    place, written = done
    assert len(written.appends) == 12 * demo.APPENDS_A_MONTH
    assert {append.writer for append in written.appends} == {1, 2}
    assert written.rows == some.num_rows
    checks = demo.verify(place, some, written)
    assert [check.problem for check in checks] == [None] * len(checks)


@pytest.mark.tier("test")
def test_a_lost_commit_is_noticed(done, some):
    place, written = done
    problems = [check for check in demo.verify(place, some.slice(1), written) if check.problem]
    assert {"sums per carrier, as in the source", f"{some.num_rows - 1:,} rows, as in the source"} <= {
        check.what for check in problems
    }
    fewer = demo.AppendsOutcome(written.appends[:-1], written.seconds)
    assert not any(check.problem for check in demo.verify(place, some, fewer)[:2])
    twice = demo.AppendsOutcome((*written.appends, written.appends[-1]), written.seconds)
    assert next(check.problem for check in demo.verify(place, some, twice) if "version of its own" in check.what)


@pytest.mark.tier("test")
def test_a_writer_that_fails_ends_the_job_with_its_reason(some, tmp_path):
    place = demo.TableLocation(str(tmp_path / "other"))
    write_deltalake(place.uri, pa.table({"a": [1]}))
    with pytest.raises(demo.DemoFailedError, match=r"writer [12] failed: SchemaMismatchError: .*carrier"):
        demo.write_concurrently(place, some, 2)


def test_only_a_fresh_folder_is_written_to(tmp_path, monkeypatch):
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    with pytest.raises(InvalidArgumentError, match="not empty"):
        demo.fresh_place(str(tmp_path / "used"))
    with pytest.raises(InvalidArgumentError, match="not empty"):
        demo.fresh_place(f"file://{tmp_path}/used/")
    with pytest.raises(InvalidArgumentError, match="whole bucket"):
        demo.fresh_place("s3://bucket/")
    with pytest.raises(InvalidArgumentError, match="of one process"):
        demo.fresh_place("memory://flights")
    monkeypatch.chdir(tmp_path)
    assert demo.fresh_place("new/") == demo.TableLocation("new")
    assert str(demo.fresh_place(None)) == "demo-table/flights-1"
    assert str(demo.fresh_place(None)) == "demo-table/flights-2"


@pytest.fixture
def small_demo(monkeypatch, some):
    monkeypatch.setattr(demo, "flights", lambda: some)


@pytest.mark.tier("test")
def test_the_command_shows_figures_history_and_checks(cli, small_demo, tmp_path, some):
    result = cli("demo", "--path", tmp_path / "t", "--writers", 2, "--no-spark", "--no-changes")
    assert (result.status, result.err) == (0, "")
    assert f"{some.num_rows:,} flights, 2 writer processes" in result.out
    assert "commits/s" in result.out
    assert "month 12, part 3 of 3" in result.out or "part 3 of 3" in result.out
    assert result.out.count("  ok  ") == 5
    assert f" read {tmp_path / 't'} --where" in result.out
    assert DeltaTable(tmp_path / "t").version() == 36


@pytest.mark.tier("test")
def test_the_command_as_json(cli, small_demo, tmp_path, some):
    found = cli("demo", "--path", tmp_path / "t", "--writers", 1, "--no-spark", "--no-changes", "--json").json
    assert (found["commits"], found["retries"], found["rows"], found["writers"]) == (36, 0, some.num_rows, 1)
    assert found["files"] == 36
    assert all(check["ok"] for check in found["checks"])
    assert found["not_compared_with_spark"] == "--no-spark"


@pytest.mark.tier("test")
def test_a_failed_check_is_exit_status_1(cli, small_demo, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "verify", lambda *_: [demo.DemoCheck("rows"), demo.DemoCheck("sums", "1 instead of 2")])
    result = cli("demo", "--path", tmp_path / "t", "--writers", 1, "--no-spark", "--no-changes")
    assert result.status == 1
    assert "FAIL  sums: 1 instead of 2" in result.out
    assert result.err == "refdelta: 1 of 2 checks failed, the first: sums\n"


@pytest.fixture(scope="module")
def on_s3(s3_server):
    """Where the tables are that several processes change: on S3. ``make demo`` has them in folders."""
    place = s3_server.place("flights")
    return demo.fresh_place(place.uri, place.options)


@pytest.fixture(scope="module")
def changed(some, on_s3):
    """Two tables, one of either level, that two processes wrote while two more changed rows: what they say of it."""
    return demo_changes.change_concurrently(demo_changes.places(on_s3), some, 2)


@pytest.fixture(scope="module")
def at(on_s3):
    """Where the table of an outcome is."""
    return lambda outcome: demo.TableLocation(outcome.table, on_s3.options)


@pytest.mark.tier("nightly")
def test_changes_at_both_levels_are_those_of_a_serial_run(changed, at, some):
    assert [outcome.level for outcome in changed] == ["WriteSerializable", "Serializable"]
    for outcome in changed:
        assert outcome.table.startswith("s3://")
        assert at(outcome).open().metadata().configuration["delta.isolationLevel"] == outcome.level
        assert len(outcome.appends) == 36
        assert {(change.who, change.month) for change in outcome.changes} == {
            (who, month) for who in (demo_changes.UPDATER, demo_changes.DELETER) for month in range(1, 13)
        }
        checks = demo_changes.verify(at(outcome), some, outcome)
        assert len(checks) == 3
        assert [check.problem for check in checks] == [None] * 3
        assert sorted(outcome.serial_order) == outcome.versions == list(range(1, 61))
        for change in outcome.changes:
            assert set(change.rebased_over) <= set(range(change.read_version + 1, change.version))
            assert all(conflict.winner < change.version for conflict in change.conflicts)
    assert changed[1].serial_order == tuple(changed[1].versions), "Serializable means the order of the log"


@pytest.fixture(scope="module")
def rearranged(changed, s3_server, on_s3):
    """What four processes and OPTIMIZE made of copies of these two tables."""
    copies = {}
    for one in changed:
        copies[one.level] = demo.TableLocation(s3_server.place(one.level).uri, on_s3.options)
        shutil.copytree(s3_server.path(one.table), s3_server.path(copies[one.level].uri))
    return demo_rows.change_rows(copies)


@pytest.mark.tier("nightly")
def test_different_rows_of_the_same_files_never_conflict(changed, rearranged, at, some):
    for before, outcome in zip(changed, rearranged, strict=True):
        assert (outcome.level, outcome.base, outcome.conflicts) == (before.level, 60, ())
        assert (outcome.counted("UPDATE"), outcome.counted("DELETE")) == (24, 24)
        assert outcome.counted("OPTIMIZE") >= 1
        checks = demo_rows.verify(at(outcome), demo_changes.expected(some, before), outcome)
        assert [check.problem for check in checks] == [None] * 4
        for step in outcome.steps:
            assert set(step.rebased_over) <= set(range(step.read_version + 1, step.version))
        assert sum(len(step.rebased_over) > 0 for step in outcome.steps) == outcome.moved


@pytest.mark.tier("nightly")
def test_what_is_wrong_with_changed_rows_is_noticed(changed, rearranged, at, some):
    before, outcome = demo_changes.expected(some, changed[0]), rearranged[0]
    place = at(outcome)
    assert "rows instead of" in demo_rows.verify(place, before.slice(50), outcome)[3].problem
    assert demo_rows.verify(place, before, dataclasses.replace(outcome, steps=outcome.steps[1:]))[0].problem
    others = [step for step in outcome.steps if (step.statement.who, step.statement.month) != (1, 1)]
    assert demo_rows.verify(place, before, dataclasses.replace(outcome, steps=tuple(others)))[1].problem
    lost = demo_changes.StatementConflict(1, "read-file-removed", "ConcurrentDeleteReadException")
    assert demo_rows.verify(place, before, dataclasses.replace(outcome, conflicts=(lost,)))[2].problem


@pytest.mark.tier("test")
def test_the_statements_of_the_processes_are_about_different_rows(flights):
    """So the order of these statements makes no difference, and a conflict between them is one too many."""
    january = flights.filter(pc.equal(flights["month"], 1))
    statements = [demo_rows.RowStatement(what, who, 1) for who, (what, _) in demo_rows.AIRLINES.items()]
    changed = january.num_rows - demo_rows.RowStatement("DELETE", 3, 1).applied(january).num_rows
    assert changed > 500
    forth, back = january, january
    for one, other in zip(statements, reversed(statements), strict=True):
        forth, back = one.applied(forth), other.applied(back)
    assert forth.equals(back)
    assert not forth.equals(january)
    assert demo_rows.RowStatement("OPTIMIZE").applied(january).equals(january)


def step(version, read_version, what, who=0, month=0):
    return demo_rows.Step(demo_rows.RowStatement(what, who, month), version, read_version, 1, ())


@pytest.mark.tier("test")
def test_a_schedule_is_replayed_with_files(some):
    """Two updates and a delete in January, a delete in February, and OPTIMIZE of what none of them had seen."""
    steps = (
        step(61, 60, "UPDATE", 1, 1),
        step(62, 60, "UPDATE", 2, 1),
        step(63, 62, "DELETE", 3, 1),
        step(64, 60, "DELETE", 3, 2),
        step(65, 62, "OPTIMIZE"),
        step(66, 64, "DELETE", 4, 3),
        step(67, 66, "UPDATE", 1, 4),
    )
    with_all = pa.concat_tables([some] * demo_rows.REPLAYED_PART).sort_by("month")
    outcome = demo_rows.RowsOutcome("Serializable", "nowhere", 60, steps, (), 1.0)
    found = demo_rows.replay(with_all, outcome)
    assert found.check.problem is None
    assert (dict(found.conflicts), found.total) == ({"UPDATE": 1, "OPTIMIZE": 1, "DELETE": 1}, 3)
    one_after_the_other = tuple(dataclasses.replace(one, read_version=one.version - 1) for one in steps)
    assert demo_rows.replay(with_all, dataclasses.replace(outcome, steps=one_after_the_other)).total == 0


@pytest.mark.tier("nightly")
def test_a_wrong_row_or_order_is_noticed(changed, at, some):
    outcome = changed[0]
    where = at(outcome)
    assert "rows instead of" in demo_changes.verify(where, some.slice(50), outcome)[1].problem
    place = some.schema.get_field_index("air_time")
    other = some.set_column(place, some.schema.field(place), pc.add(some["air_time"], 1).cast(pa.int32()))
    assert demo_changes.verify(where, other, outcome)[1].problem == "as many rows, but others"
    fewer = dataclasses.replace(outcome, changes=outcome.changes[1:])
    assert all(check.problem for check in demo_changes.verify(where, some, fewer)[:2])


def outcome_of(level, *changes):
    appends = tuple(demo.Append(1, version, 1, 0) for version in (1, 2, 3, 5, 6))
    return demo_changes.ChangesOutcome(level, "t", appends, changes, 1.0)


def test_a_change_that_passed_over_appends_comes_before_them():
    late = demo_changes.ChangeCommit(demo_changes.UPDATER, 1, 4, 1, 1, (2, 3), ())
    gone = demo_changes.ChangeCommit(demo_changes.DELETER, 1, 7, 4, 1, (5, 6), ())
    last = demo_changes.ChangeCommit(demo_changes.DELETER, 2, 8, 7, 1, (), ())
    weak = outcome_of("WriteSerializable", late, gone, last)
    assert weak.serial_order == (1, 4, 2, 3, 7, 5, 6, 8)
    assert weak.passed_over == {4: (2, 3), 7: (5, 6)}
    assert outcome_of("Serializable", late, gone, last).serial_order == (1, 2, 3, 4, 5, 6, 7, 8)


@pytest.mark.tier("nightly")
def test_a_level_that_does_not_keep_its_promise_is_noticed(changed, at, some):
    outcome = changed[0]
    first, *others = outcome.changes
    lost = demo_changes.StatementConflict(outcome.appends[0].version, "files-added", "ConcurrentAppendException")
    broken = dataclasses.replace(outcome, changes=(dataclasses.replace(first, conflicts=(lost,)), *others))
    assert demo_changes.verify(at(outcome), some, broken)[2].problem is not None


@pytest.fixture
def changed_already(changed, rearranged, at, monkeypatch):
    """The command finds done what takes processes; it is asked for the tables that it was asked for."""
    asked = []
    for module in (demo_changes, demo_rows):
        verify = module.verify
        monkeypatch.setattr(
            module, "verify", lambda _, before, outcome, verify=verify: verify(at(outcome), before, outcome)
        )
    monkeypatch.setattr(demo_changes, "change_concurrently", lambda tables, *_: asked.append(tables) or changed)
    monkeypatch.setattr(demo_rows, "change_rows", lambda tables: asked.append(tables) or rearranged)
    return asked


@pytest.fixture
def s3_environment(s3_server, monkeypatch):
    """The environment in which the command line finds the server."""
    options = s3_server.options()
    for name, value in zip(("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "ENDPOINT_URL"), options.values(), strict=True):
        monkeypatch.setenv(f"AWS_{name}", value)
    return options


@pytest.mark.tier("nightly")
def test_the_command_on_s3_shows_what_moved_over_what(cli, small_demo, changed_already, s3_server, s3_environment):
    path = s3_server.place("t").uri
    result = cli("demo", "--path", path, "--writers", 2)
    assert (result.status, result.err) == (0, "")
    assert f"2 writer processes, one table: {path}\n" in result.out
    assert "-  not compared with delta-spark: it reads folders of this machine" in result.out
    assert s3_environment["secret"] not in result.out
    assert DeltaTable(str(s3_server.path(path))).version() == 36
    assert result.out.count("  ok  ") == 21
    levels = ("WriteSerializable", "Serializable")
    for level in levels:
        assert f"\n{level}: 36 appends, 24 updates and deletes, " in result.out
        assert f"\n{level}, different rows of the same files: 24 UPDATE, 24 DELETE, " in result.out
    assert changed_already == [{level: demo.TableLocation(f"{path}-{level.lower()}") for level in levels}] * 2
    assert result.out.count("update late, month ") == result.out.count("delete cancelled, month ") == 24
    assert len(re.findall(r"^rows +0 *$", result.out, re.MULTILINE)) == 2
    assert len(re.findall(r"^files, on the same schedule over every 20th flight +\d+", result.out, re.MULTILINE)) == 2


@pytest.mark.tier("nightly")
def test_the_changes_as_json(cli, small_demo, changed_already, tmp_path):
    found = cli("demo", "--path", tmp_path / "t", "--writers", 1, "--no-spark", "--json").json
    assert [level["level"] for level in found["levels"]] == ["WriteSerializable", "Serializable"]
    assert all(len(level["serial_order"]) == 60 for level in found["levels"])
    assert {"who", "version", "rebased_over", "conflicts"} <= set(found["levels"][0]["changes"][0])
    rows = found["levels"][0]["rows"]
    assert (rows["level"], rows["conflicts"], len(rows["steps"]) >= 48) == ("WriteSerializable", [], True)
    assert set(rows["conflicts_by_files"]) <= {"UPDATE", "DELETE", "OPTIMIZE"}
    assert all(check["ok"] for check in found["checks"])


def test_tables_that_are_there_already_are_not_written_to(fails, small_demo, tmp_path):
    (tmp_path / "t-serializable").mkdir()
    (tmp_path / "t-serializable" / "file").touch()
    assert "not empty" in fails("demo", "--path", tmp_path / "t", "--no-spark")
    assert not (tmp_path / "t").exists()


def test_runs_of_versions_are_short():
    assert running._ranges([9, 10, 11, 14, 16, 17]) == "9-11, 14, 16-17"
    assert running._ranges([]) == ""


def no_java(*_arguments):
    raise OracleUnavailableError("delta-spark needs Java 17 and there is no java here")


def test_without_java_one_line_says_how_to_get_it(monkeypatch, some, tmp_path):
    monkeypatch.setattr(demo, "verify_with_spark", no_java)
    monkeypatch.delenv("CI", raising=False)
    checks, reason = running._second_opinion(demo.TableLocation(str(tmp_path)), None, some, {})
    assert (checks, reason) == ([], "delta-spark needs Java 17 and there is no java here")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(OracleUnavailableError):
        running._second_opinion(demo.TableLocation(str(tmp_path)), None, some, {})


def test_delta_spark_reads_the_folder_that_a_store_serves(monkeypatch, some):
    asked = []
    monkeypatch.setattr(demo, "verify_with_spark", lambda *arguments: asked.append(arguments) or [])
    place = demo.TableLocation("s3://tables/flights")
    _, reason = running._second_opinion(place, None, some, {"Serializable": some})
    assert "--spark-folder" in reason
    assert running._second_opinion(place, "/served/flights", some, {"Serializable": some}) == ([], None)
    assert asked == [
        (Path("/served/flights"), some, {"Serializable": (Path("/served/flights-serializable"), some)}),
    ]


@pytest.mark.parametrize(
    ("called", "shown"),
    [
        ("/usr/bin/sh", "sh"),
        (".venv/bin/refdelta-that-no-path-has", ".venv/bin/refdelta-that-no-path-has"),
        ("/x/refdelta/__main__.py", "python -m refdelta"),
    ],
)
def test_what_to_do_next_is_shown_as_it_was_called(monkeypatch, called, shown):
    monkeypatch.setattr("sys.argv", [called])
    assert running._program() == shown


@pytest.mark.tier("nightly")
def test_the_same_through_a_catalog(some, tmp_path):
    place = demo_catalog.beside(demo.TableLocation(str(tmp_path / "flights")))
    Path(place.uri).mkdir(parents=True)
    demo.create(place, some)
    written = demo.write_concurrently(place, some, 4)
    assert {append.writer for append in written.appends} == {1, 2, 3, 4}
    checks = demo_catalog.verify(place, some, written)
    assert [check.problem for check in checks] == [None] * 7
    assert all(check.what.startswith("catalog: ") for check in checks)
    problems = [check for check in demo_catalog.verify(place, some.slice(1), written) if check.problem]
    assert len(problems) == 3
    with pytest.raises(UnsupportedFeatureError, match="catalog"):
        DeltaTable(place.uri)


@pytest.mark.tier("test")
def test_a_hundred_small_writers_share_versions(some, tmp_path):
    outcomes, checks = demo_groups.append_small(demo.TableLocation(str(tmp_path / "flights")), some)
    assert [check.problem for check in checks] == [None] * 4
    alone, grouped = outcomes
    assert sorted(alone.versions) == list(range(1, 101))
    assert alone.members == (None,) * 100
    assert len(set(grouped.versions)) < 50
