"""``refdelta bench``: races that are measured, checked and cleaned up behind; and that wrong ones are noticed.

Tests of cli.benching, racing.costs, racing.crew, racing.mixes, racing.throughput, throughput.
"""

import dataclasses
import functools
import importlib.util
import os
import signal
import sys
from collections import Counter
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta import DeltaTable, __version__, errors, write_deltalake
from refdelta.engine.log.location import open_location
from refdelta.proxy import Request
from refdelta.racing import throughput
from refdelta.racing.costs import Costs
from refdelta.racing.crew import Crew, RaceFailedError
from refdelta.racing.mixes import (
    APPENDS,
    KINDS,
    MIXES,
    SAME,
    SAME_ROWS,
    SCHEMA,
    Mix,
    check_rows,
    expected,
    first_pieces,
    statement,
)
from refdelta.racing.throughput import GROUP, Acknowledged, Own, OwnEngine, Tally, check, jobs, prepare, race, summed
from tiers import examples
from waiting import until

KEYS = {"mix", "writers", "commits", "seconds", "commits_per_second", "aborts", "abort_rate", "attempts", "latency"}
PACKAGES = {"refdelta", "pyarrow", "numpy", "fsspec"}
MACHINE = PACKAGES | {"python", "system", "processor", "cpus", "memory_bytes", "time"}


@pytest.mark.tier("test")
def test_each_mix_commits_all_and_leaves_nothing(cli, tmp_path):
    how = ("--mix", "all", "--writers", 3, "--commits", 9, "--threads", "--warm-up", 0)
    told = cli("bench", tmp_path, *how, "--json").json
    assert [one["mix"] for one in told] == ["appends", "rows", "same-rows", "optimize"]
    for one in told:
        assert one.keys() >= KEYS
        assert one["machine"].keys() == MACHINE
        assert (one["warm_up"], one["seed"], one["engine"]) == (0, one["settings"]["seed"], "refdelta")
        assert one["settings"]["uri"] == str(tmp_path)
        assert (one["writers"], one["commits"], one["problems"]) == (3, 9, [])
        assert one["attempts"] >= 9
        assert 0 < one["latency"]["p50"] <= one["latency"]["p90"] <= one["latency"]["p99"]
        assert one["commits_per_second"] == pytest.approx(9 / one["seconds"], abs=0.01)
        if MIXES[one["mix"]].never_aborts:
            assert (one["aborts"], one["abort_rate"]) == ({}, 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.tier("test")
def test_processes_and_what_people_see(process, tmp_path):
    running = process("bench", tmp_path, "--writers", 2, "--commits", 6, "--mix", "appends")
    out, err = (text.decode() for text in running.communicate(timeout=120))
    assert (running.returncode, err) == (0, ""), "no progress in a pipe"
    assert out.split()[:3] == ["mix", "writers", "commits"]
    assert out.splitlines()[2].split()[:3] == ["appends", "2", "6"]
    assert "no commit lost, none doubled" in out
    assert f"with refdelta {__version__}, pyarrow " in out
    assert list(tmp_path.iterdir()) == []


def test_by_the_clock(cli):
    (told,) = cli("bench", "memory://bench", "--threads", "--writers", 2, "--seconds", 0.2, "--json").json
    assert told["commits"] > 0
    assert told["problems"] == []
    assert list(open_location("memory://bench").list()) == []


@pytest.mark.tier("test")
def test_an_interrupt_leaves_nothing(process, tmp_path):
    running = process("bench", tmp_path, "--writers", 1, "--seconds", 100)
    until(lambda: list(tmp_path.glob("*/_delta_log/*1.json")))
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=120)
    assert (running.returncode, out, err) == (130, b"", b"refdelta: interrupted\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.tier("test")
def test_writers_whose_race_is_killed_end(process, tmp_path):
    """Otherwise they would go on to change a table whose race is not judged any more."""
    with process("bench", tmp_path, "--writers", 2, "--seconds", 100) as running:
        until(lambda: versions(tmp_path) >= 4)
        writers = descendants(running.pid)
        assert len(writers) >= 2
        running.kill()
    until(lambda: not any(map(is_running, writers)))


def descendants(pid):
    """The processes that a process has begun, and those that they have."""
    states = {int(path.parent.name): state_of(path.parent.name) for path in Path("/proc").glob("[0-9]*/stat")}
    found, more = [], [pid]
    while more:
        parent = more.pop()
        more += (own := [one for one, state in states.items() if state is not None and int(state[1]) == parent])
        found += own
    return found


def state_of(pid):
    """The fields after the name of a process; None if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def is_running(pid):
    state = state_of(pid)
    return state is not None and state[0] != "Z"


def versions(folder):
    return len([*folder.rglob("_delta_log/*.json")])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("memory://x",), "its writers are threads"),
        (("memory://x", "--threads", "--commits", "3", "--seconds", "1"), "say one"),
        (("memory://x", "--threads", "--writers", "0"), "--writers"),
        (("memory://x", "--threads", "--mix", "reads"), "'reads' is not one of"),
        (("memory://x", "--threads", "--mix", "same-row"), "did you mean 'same-rows'"),
        (("memory://x", "--threads", "--mix", "appnd=1"), "did you mean 'append'"),
        (("memory://x", "--threads", "--mix", "append=x"), "the weight of append is 'x'"),
        (("memory://x", "--threads", "--mix", "append=0"), "a mix needs a weight above 0"),
        (("memory://x", "--threads", "--mix", "none.toml"), "the mix none.toml cannot be read"),
        (("memory://x", "--threads", "--engine", "refdlta"), "did you mean 'refdelta'"),
        (("memory://x", "--threads", "--engine", "json:nothing"), "the engine json:nothing cannot be loaded"),
        (("memory://x", "--threads", "--engine", "json:dumps"), "the engine json:dumps lacks name, versions, prepare"),
        (("memory://x", "--threads", "--engine", "a:b", "--row-level"), "--row-level is of refdelta"),
        (("memory://x", "--threads", "--plot", "x.txt"), "ends with .svg, .png or .pdf"),
        (("memory://x", "--threads", "--plot", "/no/such/x.svg"), "there is no such folder"),
        (("/no/such/folder",), "there is no folder /no/such/folder"),
        (("memory://x", "--threads", "--latency", "put=60,get=fast"), "--latency put=60,get=fast: get is 'fast'"),
        (("memory://x", "--threads", "--latency", "put=60"), "--latency needs a store with an endpoint"),
        (("/tmp", "--latency", "put=60"), "--latency needs a store with an endpoint"),
        (("s3://b/t", "--latency", "put=60"), "the storage options have none"),
    ],
)
def test_clear_errors(fails, arguments, words):
    assert words in fails("bench", *arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"commits": 1, "mix": "writes"}, "mix is one of appends, rows, same-rows, optimize, batches"),
        ({}, "say one of the two"),
        ({"commits": 0}, "commits is between"),
        ({"seconds": 0}, "seconds is more than 0"),
        ({"commits": 1, "writers": 0}, "needs a writer"),
    ],
)
def test_arguments_that_make_no_race(arguments, words):
    with pytest.raises(errors.InvalidArgumentError, match=words):
        race("memory://x", threads=True, **arguments)


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("scheme", ["s3", "azure"])
def test_on_a_store(cli, scheme, request):
    place = request.getfixturevalue(f"{scheme}_server").place()
    options = _storage_options(place.options)
    result = cli("bench", place.uri, *options, "--writers", 2, "--commits", 4, "--mix", "rows", "--json")
    assert result.json[0]["commits"] == 4
    secret = place.options.get("secret") or place.options["connection_string"].split("AccountKey=")[1][:40]
    assert secret not in result.out + result.err
    assert list(open_location(place.uri, place.options).list()) == []


def _storage_options(options):
    return [word for name, value in options.items() for word in ("--storage-option", f"{name}={value}")]


@pytest.mark.tier("test")
@pytest.mark.parametrize("engine", ["refdelta", "deltalake"])
def test_requests_bytes_and_their_price_are_counted_at_a_proxy(cli, s3_server, engine):
    place = s3_server.place()
    options = _storage_options(place.options if engine == "refdelta" else s3_server.of_deltalake())
    how = ("bench", place.uri, *options, "--engine", engine, "--writers", 2, "--commits", 6, "--warm-up", 1)
    (told,) = cli(*how, "--latency", "put=1,get=1,list=1,jitter=0.5,rate=3500", "--json").json
    assert (told["commits"], told["problems"]) == (6, [])
    assert told["settings"]["latency"] == "put=1,get=1,list=1,jitter=0.5,rate=3500"
    costs = told["costs"]
    assert costs["requests"]["PUT"] >= 2, "a data file and a commit"
    assert costs["requests"]["PUT"] + costs["requests"].get("LIST", 0) <= 12, "those of the warm-up are none of it"
    dear = costs["requests"]["PUT"] + costs["requests"].get("LIST", 0)
    cheap = costs["requests"].get("GET", 0) + costs["requests"].get("HEAD", 0)
    assert costs["dollars"] == pytest.approx(dear * 0.005 + cheap * 0.0004)
    assert costs["bytes_up"] > 500
    assert costs["bytes_down"] > 0
    assert costs["refused"] == 0
    assert list(open_location(place.uri, place.options).list()) == []


@pytest.mark.parametrize("kind", ["azure", "gcs"])
def test_requests_to_stores_of_azure_and_google_are_late_and_counted(cli, request, kind):
    place = request.getfixturevalue(f"{kind}_server").place()
    how = ("--writers", 2, "--commits", 4, "--warm-up", 0, "--latency", "put=1,get=1,list=1", "--json")
    (told,) = cli("bench", place.uri, *_storage_options(place.options), *how).json
    assert (told["commits"], told["problems"]) == (4, [])
    assert told["costs"]["requests"]["PUT"] >= 2, "a data file and a commit"
    assert told["costs"]["bytes_up"] > 500
    assert list(open_location(place.uri, place.options).list()) == []


@pytest.mark.tier("test")
def test_the_costs_in_a_line_and_no_processor_time_that_is_the_proxys_too(cli, s3_server):
    place = s3_server.place()
    how = ("--threads", "--writers", 1, "--commits", 2, "--warm-up", 0, "--latency", "put=0")
    result = cli("bench", place.uri, *_storage_options(place.options), *how)
    (line,) = (line for line in result.out.splitlines() if line.startswith("appends: ") and "requests a commit" in line)
    assert "PUT" in line
    assert "bytes up and" in line
    assert "at S3's list prices" in line
    assert len(result.out.splitlines()[2].split()) == 10, "all columns but the last"


def test_costs_are_those_of_one_commit():
    data = Request("PUT", "t/x.parquet", "data", "", False, 3_000, reply=10)
    listing = Request("LIST", "t/_delta_log/", "log", "", False, 0, reply=500)
    read = Request("GET", "t/_delta_log/0.json", "log", "", False, 0, reply=1_500)
    removal = Request("DELETE-MANY", "t/x.parquet", "data", "", False, 100)
    refused = Request("PUT", "t/y.parquet", "data", "", False, 3_000, fault="busy-before")
    costs = Costs.of([data, listing, read, removal, refused], 2)
    assert costs.requests == {"DELETE-MANY": 0.5, "GET": 0.5, "LIST": 0.5, "PUT": 1.0}
    assert (costs.bytes_up, costs.bytes_down, costs.refused) == (3_050, 1_005, 1)
    assert costs.dollars == pytest.approx(1_000 * (3 * 5e-6 + 4e-7) / 2)


def test_wrong_credentials_are_one_line_without_them(fails, s3_server, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.options()["key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-but-secret")
    place = s3_server.place()
    line = fails("bench", place.uri)
    assert place.uri in line
    assert "wrong-but-secret" not in line


# --- what the check notices --------------------------------------------------------------------------------------


def compete(crew, hands, mix, writers, commits, seconds=None):
    crew.ready(jobs(hands, mix, writers))
    return crew.go(tasks=commits, seconds=seconds)


def raced(folder, mix, commits=6):
    """A table after a race of two threads, and what they were told."""
    prepare(folder, mix)
    with Crew(3, threads=True) as crew:
        tallies = compete(crew, functools.partial(Own, folder, mix, None, {}), mix, 2, commits)
    return DeltaTable(folder), tallies


def test_a_lost_commit_and_a_doubled_one_are_noticed(tmp_path):
    table, (first, second) = raced(str(tmp_path / "t"), APPENDS)
    assert check(table, APPENDS, [first, second]) == []
    every = [*first.commits, *second.commits]
    made_up = dataclasses.replace(every[0], task=77, version=77)
    assert "1 commit acknowledged and not in the log, the first task 77" in check(
        table, APPENDS, [Tally([*every, made_up])]
    )
    twice = check(table, APPENDS, [Tally([*every, every[0]])])
    assert twice == ["a version was acknowledged to two writers"]
    dropped = every[0]
    assert check(table, APPENDS, [Tally(every[1:])]) == [
        f"1 version acknowledged to no writer, the first {dropped.version}"
    ]
    assert check(table, APPENDS, [Tally(every[1:], unknown=[dropped.task])]) == []
    again = Own(table.table_uri, APPENDS, None, {}).commit(dropped.task)
    assert f"1 task committed twice, the first {dropped.task}" in check(
        table_now := DeltaTable(table.table_uri), APPENDS, [Tally(every), Tally(unknown=[dropped.task])]
    )
    assert again.version == table_now.version()


@pytest.mark.sample(check=1)
@pytest.mark.parametrize("mix", list(MIXES.values()), ids=str)
def test_rows_that_no_commit_explains_are_noticed(tmp_path, mix):
    table, tallies = raced(str(tmp_path / "t"), mix)
    assert check(table, mix, tallies) == []
    table.delete("id = 3")
    assert any("than the commits explain" in problem for problem in check(table, mix, tallies)) or mix.name == "rows"
    table.update({"n": "n + 1"}, predicate="id = 5 or id = 99")
    assert any("than the commits explain" in problem for problem in check(table, mix, tallies))


def test_an_update_that_was_undone_by_another_is_noticed():
    (before,) = first_pieces(SAME_ROWS)
    assert check_rows(before, SAME_ROWS, []) == []
    assert check_rows(before, SAME_ROWS, [1, 2]) == ["other values than the commits explain"]
    assert expected(SAME_ROWS, [1, 2])["n"].to_pylist()[: SAME + 1] == [2] * SAME + [0]


def test_a_wrong_table_is_told_with_its_figures(cli, tmp_path, monkeypatch):
    monkeypatch.setattr(throughput, "check", lambda *_: ["a version was acknowledged to two writers"])
    result = cli("bench", tmp_path, "--threads", "--commits", 2)
    assert result.status == 1
    assert result.err.endswith("appends: a version was acknowledged to two writers\n")
    assert "commits/s" in result.out
    assert "none doubled" not in result.out


# --- writers in trouble --------------------------------------------------------------------------------------------


class Unlucky:
    """Loses twice before each commit, and cannot tell of the one of task 3."""

    aborts, unknown = (errors.CommitFailedError,), (errors.CommitOutcomeUnknownError,)

    def __init__(self):
        self.tried = 0

    def commit(self, task):
        if task == 3:
            raise errors.CommitOutcomeUnknownError("no answer", 3, "id")
        self.tried += 1
        if self.tried % 3:
            raise errors.CommitRetriesExhaustedError("others were first")
        return Acknowledged(task, attempts=2)

    def compact(self):
        return None


def test_aborts_are_counted_by_their_kind_and_repeated():
    with Crew(1, threads=True) as crew:
        tallies = compete(crew, Unlucky, APPENDS, 1, 5)
        again = compete(crew, Unlucky, APPENDS, 1, 2)
    assert [commit.task for commit in again[0].commits] == [0, 1], "a crew may run again"
    told = summed(APPENDS, 1, tallies)
    assert told.aborts == {"CommitOutcomeUnknownError": 1, "CommitRetriesExhaustedError": 8}
    assert (told.commits, told.attempts, tallies[0].unknown) == (4, 8, [3])
    assert told.abort_rate == 9 / 13


def test_who_loses_for_ever_stops_with_the_clock():
    with Crew(1, threads=True) as crew:
        unlucky = functools.partial(_Always)
        (tally,) = compete(crew, unlucky, APPENDS, 1, 5, 0.05)
    assert tally.commits == []
    assert summed(APPENDS, 1, [tally]).commits_per_second == 0


class _Always(Unlucky):
    def commit(self, task):
        raise errors.CommitRetriesExhaustedError("others were first")


def test_a_writer_that_fails_ends_the_race_and_the_folder_goes(fails, tmp_path, monkeypatch):
    def broken(self, task):
        raise ValueError("no such luck")

    monkeypatch.setattr(Own, "commit", broken)
    line = fails("bench", tmp_path, "--threads", "--writers", 2)
    assert line.endswith("failed: ValueError: no such luck")
    assert list(tmp_path.iterdir()) == []


def _dies():
    os._exit(3)


@pytest.mark.tier("test")
def test_a_process_that_dies_is_noticed():
    with Crew(1) as crew, pytest.raises(RaceFailedError, match="writer 1 ended with status 3"):
        crew.ready([_dies])


@pytest.mark.parametrize("row_level", [None, True, False])
def test_whether_rows_decide_reaches_the_commit(cli, tmp_path, monkeypatch, row_level):
    asked = set()
    delete = DeltaTable.delete

    def noted(self, *arguments, commit_properties, **named):
        asked.add(commit_properties.row_level)
        return delete(self, *arguments, commit_properties=commit_properties, **named)

    monkeypatch.setattr(DeltaTable, "delete", noted)
    option = {None: (), True: ("--row-level",), False: ("--no-row-level",)}[row_level]
    assert cli("bench", tmp_path, "--mix", "rows", "--threads", "--writers", 1, "--commits", 2, *option).status == 0
    assert asked == {row_level}


# --- mixes of one's own, other engines, warm-up ----------------------------------------------------------------------


@pytest.mark.tier("test")
def test_a_weighted_mix_is_raced_and_checked(cli, tmp_path):
    (tmp_path / "nightly.toml").write_text(
        "append = 2\nupdate = 2\ndelete = 1\nrows = 500\nfiles = 3\noptimize = true\n"
    )
    inline = "append=1,same-rows=0.5,update=1"
    how = ("--mix", tmp_path / "nightly.toml", "--mix", inline, "--threads", "--writers", 2, "--commits", 12)
    told = cli("bench", "memory://weighted", *how, "--seed", 5, "--json").json
    assert [(one["mix"], one["commits"], one["problems"]) for one in told] == [("nightly", 12, []), (inline, 12, [])]
    assert told[0]["compactions"] > 0
    assert {one["seed"] for one in told} == {5}


def _commute(weights):
    try:
        return Mix(weights, rows=100, files=2) is not None
    except errors.InvalidArgumentError:
        return False


weights = st.dictionaries(st.sampled_from([*KINDS]), st.integers(0, 5), min_size=1).filter(_commute)


@examples(60)
@given(weights, st.integers(0, 9), st.sets(st.integers(0, 80), max_size=30))
def test_the_rows_after_a_weighted_mix_are_those_of_its_statements(weights, seed, tasks):
    mix = Mix({kind: weight for kind, weight in weights.items() if kind != "batch"} | {"append": 1}, 100, 2, seed=seed)
    rows = {(row["id"], 0): row["n"] for piece in first_pieces(mix) for row in piece.to_pylist()}
    for task in sorted(tasks):
        wanted = statement(mix, task)
        if wanted.what == "append":
            rows |= {(row["id"], number): row["n"] for number, row in enumerate(wanted.rows.to_pylist())}
            continue
        hit = [key for key in rows if key[0] in wanted.ids]
        if wanted.what == "merge":
            for id_ in wanted.rows["id"].to_pylist():
                rows[id_, 0] = rows.get((id_, 0), -1) + 1
            continue
        assert len(hit) == len(wanted.ids)
        if wanted.what == "delete":
            del rows[hit[0]]
        elif wanted.what == "update":
            before = pa.table({"id": [id_ for id_, _ in hit], "n": [rows[key] for key in hit]}, SCHEMA)
            rows |= dict(zip(hit, wanted.updated(before)["n"].to_pylist(), strict=True))
    found = sorted((id_, n) for (id_, _), n in rows.items())
    result = expected(mix, [*tasks])
    assert [tuple(row.values()) for row in result.to_pylist()] == found
    assert check_rows(result, mix, [*tasks]) == []


@pytest.mark.parametrize("mix", [mix for mix in MIXES.values() if mix.rows])
def test_the_sql_of_a_statement_says_what_it_does_to_rows(tmp_path, mix):
    """refdelta runs the SQL; engines without SQL compute the same from the ids."""
    for task in range(6):
        wanted = statement(mix, task)
        if wanted.what != "update":
            continue
        every = pa.concat_tables(first_pieces(mix))
        table = DeltaTable.create(str(tmp_path / f"t{task}"), SCHEMA)
        write_deltalake(table, every.take(pa.array([*wanted.ids, mix.rows - 1])), mode="append")
        table.update({"n": wanted.value}, predicate=wanted.predicate)
        rows = table.to_pyarrow_table(filters=wanted.predicate)
        before = every.take(rows["id"].combine_chunks())
        assert rows.sort_by("id").equals(wanted.updated(before).sort_by("id"))


def test_the_last_of_several_new_values_may_be_any_of_them_and_no_other():
    mix = MIXES["ycsb-a"]
    tasks = [task for task in range(400) if statement(mix, task).what == "update"]
    by_id = Counter(statement(mix, task).ids for task in tasks)
    (((hot,), times),) = by_id.most_common(1)
    assert times > 5, "Zipf's law has hot keys"
    values = [statement(mix, task).put for task in tasks if statement(mix, task).ids == (hot,)]
    rows = expected(mix, tasks)
    for value, wrong in [(values[0], False), (values[-1], False), (0, True), (max(values) + 1_000, True)]:
        n = rows["n"].to_numpy().copy()
        n[hot] = value
        assert bool(check_rows(pa.table([rows["id"], n], SCHEMA), mix, tasks)) is wrong


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ({"read": 1}, "reads alone"),
        ({"delete": 1, "add": 1}, "delete and add may meet in a row"),
        ({"put": 1, "pay": 0.5}, "put and pay may meet"),
        ({"correct": 1}, "rows of a mix is 20; it is a whole number from 50"),
    ],
)
def test_mixes_that_no_check_could_judge_are_refused(weights, words):
    with pytest.raises(errors.InvalidArgumentError, match=words):
        Mix(weights, rows=20)


class Mine(OwnEngine):
    """Another engine, which notes what it is asked."""

    asked: ClassVar[list] = []

    def __init__(self):
        super().__init__(None, "mine")

    @property
    def versions(self):
        return {"mine": "1.5"}

    def prepare(self, folder, mix, storage_options):
        self.asked.append(("prepare", folder))
        super().prepare(folder, mix, storage_options)

    def open(self, folder, mix, storage_options):
        hands = super().open(folder, mix, storage_options)
        own = hands.commit

        def commit(task):
            self.asked.append(("commit", folder))
            return own(task)

        hands.commit = commit
        return hands

    def check(self, folder, mix, tallies, storage_options):
        self.asked.append(("check", folder))
        return super().check(folder, mix, tallies, storage_options)


@pytest.mark.parametrize("by", ["name", "path"])
def test_another_engine_and_the_commits_before_the_clock_starts(cli, monkeypatch, by):
    monkeypatch.setattr(Mine, "asked", [])
    monkeypatch.setitem(sys.modules, "my_engines", SimpleNamespace(Mine=Mine))
    points = EntryPoints([EntryPoint("mine", "my_engines:Mine", GROUP)] if by == "name" else [])
    monkeypatch.setattr(throughput, "entry_points", lambda group: points.select(group=group))
    engine = "mine" if by == "name" else "my_engines:Mine"
    how = ("--threads", "--writers", 2, "--commits", 5, "--warm-up", 3, "--engine", engine)
    (told,) = cli("bench", "memory://bench", *how, "--json").json
    assert (told["engine"], told["machine"]["mine"], "refdelta" in told["machine"]) == ("mine", "1.5", False)
    assert (told["commits"], told["warm_up"], told["problems"]) == (5, 6, [])
    (warm, real), counts = dict.fromkeys(folder for _, folder in Mine.asked), Counter(Mine.asked)
    assert counts == {
        ("prepare", warm): 1,
        ("commit", warm): 6,
        ("prepare", real): 1,
        ("commit", real): 5,
        ("check", real): 1,
    }


def test_without_a_warm_up_the_clock_starts_at_once(monkeypatch):
    monkeypatch.setattr(Mine, "asked", [])
    told = race("memory://bench", writers=1, commits=3, threads=True, warm_up=0, engine=Mine())
    assert (told.warm_up, len({folder for _, folder in Mine.asked})) == (0, 1)
    with pytest.raises(errors.InvalidArgumentError, match="warm_up"):
        race("memory://bench", commits=3, threads=True, warm_up=-1)


def test_the_first_error_of_each_kind_is_shown(cli, monkeypatch):
    commit, failed = Own.commit, []

    def sometimes(self, task):
        if len(failed) < 2:
            failed.append(task)
            raise errors.CommitRetriesExhaustedError(f"the store is slow, {len(failed)}")
        return commit(self, task)

    monkeypatch.setattr(Own, "commit", sometimes)
    how = ("--threads", "--writers", 1, "--commits", 2, "--warm-up", 0)
    result = cli("bench", "memory://bench", *how)
    assert result.status == 0
    assert "appends: 2 x CommitRetriesExhaustedError, the first: the store is slow, 1\n" in result.out
    failed.clear()
    (told,) = cli("bench", "memory://bench", *how, "--json").json
    assert told["first_errors"] == {"CommitRetriesExhaustedError": "the store is slow, 1"}


def test_a_failure_in_a_later_mix_does_not_lose_the_figures(cli, monkeypatch):
    commit = Own.commit

    def broken(self, task):
        if self._mix.name == "rows":
            raise OSError("the disk is full")
        return commit(self, task)

    monkeypatch.setattr(Own, "commit", broken)
    result = cli("bench", "memory://bench", "--threads", "--writers", 1, "--commits", 2, "--mix", "all")
    assert result.status == 1
    assert result.out.splitlines()[2].split()[0] == "appends"
    assert result.err.endswith("writer 1 failed: OSError: the disk is full\n")


@pytest.mark.tier("test")
def test_the_figures_are_drawn(cli, fails, tmp_path, monkeypatch):
    how = ("bench", "memory://bench", "--threads", "--writers", 1, "--commits", 2, "--plot", tmp_path / "p.svg")
    assert cli(*how, "--mix", "appends", "--mix", "same-rows").status == 0
    assert "same-rows" in (tmp_path / "p.svg").read_text()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else True)
    assert "pip install 'refdelta[plot]'" in fails(*how)


def test_the_former_name_of_the_module_says_the_new_one(monkeypatch):
    # A clock that is changed in later tests looks through all modules, and this one warns: it does not stay.
    monkeypatch.setitem(sys.modules, "refdelta.throughput", None)
    del sys.modules["refdelta.throughput"]
    import refdelta.throughput

    with pytest.warns(DeprecationWarning, match="use refdelta.racing"):
        assert refdelta.throughput.race is race
    with pytest.raises(AttributeError, match="nothing_of_it"):
        _ = refdelta.throughput.nothing_of_it
