"""The engines that ``refdelta bench --engine`` knows, over the mixes that each can do; and wrong ones, which are found.

Tests of racing.engines.other_forms, racing.engines.rivals, racing.engines.of_deltalake, racing.engines.of_delta_spark,
racing.engines.of_lance, racing.engines.of_pyiceberg, racing.engines.of_ducklake.
"""

import importlib
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors
from refdelta.racing import find_engine, race, throughput
from refdelta.racing.engines import ENGINES, of_ducklake
from refdelta.racing.engines.of_deltalake import DeltalakeEngine, DeltalakeHands
from refdelta.racing.engines.other_forms import GroupEngine
from refdelta.racing.mixes import APPENDS, MIXES, SAME_ROWS, Mix, mix_of
from refdelta.racing.throughput import RaceCommit, SeveralTables, Tally

OF_ONE_PROCESS = {"refdelta-group", "delta-spark"}
NO_COMPACTION = {"pyiceberg"}
OWN = [name for name in ENGINES if name.startswith("refdelta")]
# ducklake has a test of its own: its extension is for one version of DuckDB.
OTHERS = ["deltalake", "pyiceberg", "lance"]


def _raced(folder, engine, mix, **how):
    return race(str(folder), mix=mix_of(mix, 5), engine=find_engine(engine), **{"writers": 3, "commits": 9, **how})


@pytest.mark.tier("test")
@pytest.mark.sample(check=3, test=3)
@pytest.mark.parametrize("mix", [*MIXES])
@pytest.mark.parametrize("engine", [*OWN, *OTHERS])
def test_every_mix_is_done_once_and_its_rows_are_right(tmp_path, engine, mix):
    if engine in NO_COMPACTION and MIXES[mix].compacts:
        with pytest.raises(errors.DeltaError, match="compacts no files"):
            _raced(tmp_path, engine, mix, threads=True, warm_up=0)
        return
    told = _raced(tmp_path, engine, mix, threads=True, warm_up=0)
    assert told.problems == ()
    assert told.engine == engine
    assert told.commits + told.reads == 9
    assert told.commits == 0 or told.cpu_ms > 0
    assert [*tmp_path.iterdir()] == []


@pytest.mark.tier("nightly")
@pytest.mark.sample(test=2)
@pytest.mark.parametrize("engine", ["refdelta-catalog", "refdelta-intents", *OTHERS])
def test_processes(tmp_path, engine):
    told = _raced(tmp_path, engine, "ycsb-f", warm_up=1)
    assert (told.problems, told.commits + told.reads) == ((), 9)


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("mix", ["append=1,batch=1", "rows", "payments", "ycsb-f", "upserts"])
def test_threads_on_one_java_process(tmp_path, spark, monkeypatch, mix):
    from refdelta.racing.engines.of_delta_spark import DeltaSparkEngine

    monkeypatch.setattr(DeltaSparkEngine, "session", spark)
    told = _raced(tmp_path, "delta-spark", mix, writers=2, commits=4, threads=True, warm_up=0)
    assert (told.problems, told.commits + told.reads) == ((), 4)


@pytest.mark.tier("test")
def test_an_engine_of_one_process_says_so(tmp_path):
    with pytest.raises(errors.DeltaError, match="refdelta-group is of the threads of one process: add --threads"):
        _raced(tmp_path, "refdelta-group", "appends", warm_up=0)


def test_a_group_ends_with_its_last_thread(tmp_path):
    engine = GroupEngine()
    engine.prepare(str(tmp_path / "t"), mix_of("appends"), {})
    first, second = (engine.open(str(tmp_path / "t"), mix_of("appends"), {}) for _ in range(2))
    first.close()
    assert second.commit(0).version == 1
    second.close()
    with pytest.raises(errors.DeltaError):
        second.commit(1)


@pytest.mark.tier("test")
@pytest.mark.sample(check=1)
@pytest.mark.parametrize("engine", ["refdelta-catalog", "pyiceberg"])
def test_a_database_of_ones_own(cli, tmp_path, engine):
    (tmp_path / "t").mkdir()
    given = f"database=sqlite:///{tmp_path}/own.db"
    how = ("--engine", engine, "--engine-option", given, "--commits", 2, "--threads", "--warm-up", 0)
    assert cli("bench", tmp_path / "t", *how).status == 0
    assert (tmp_path / "own.db").stat().st_size > 0


@pytest.mark.tier("nightly")
@pytest.mark.sample(check=2, test=4)
@pytest.mark.parametrize(
    ("engine", "mix"),
    [
        *[(name, mix) for name in (*OWN, "deltalake", "lance") for mix in ("late", "upserts")],
        ("pyiceberg", "appends"),
    ],
)
def test_each_of_several_tables_has_its_share(tmp_path, engine, mix):
    told = _raced(tmp_path, engine, mix, tables=3, threads=engine in OF_ONE_PROCESS)
    assert (told.problems, told.commits, told.tables) == ((), 9, 3)


@pytest.mark.tier("test")
@pytest.mark.sample(check=3, test=3)
@pytest.mark.parametrize("after", ["append", "correct", "upsert"])
@pytest.mark.parametrize("before", ["correct", "upsert"])
@pytest.mark.parametrize("engine", [*OWN, *OTHERS])
def test_who_lost_does_it_again_and_wins(tmp_path, engine, before, after):
    """A handle that was opened before another writer's change moves on when it has lost, if it has not before."""
    by, mix = find_engine(engine), Mix({before: 1, after: 1}, 100, 2)
    first = next(task for task in range(100) if mix.kind(task) == before)
    second = next(task for task in range(first + 1, 100) if mix.kind(task) == after)
    by.prepare(str(tmp_path / "t"), mix, {})
    other, late = (by.open(str(tmp_path / "t"), mix, {}) for _ in range(2))
    done = [(first, other.commit(first))]
    try:
        done.append((second, late.commit(second)))
    except late.aborts:
        done.append((second, late.commit(second)))
    for hands in (other, late):
        getattr(hands, "close", lambda: None)()
    tally = Tally([RaceCommit(task, told.version, 1, 0.0, 1.0, told.member) for task, told in done])
    assert by.check(str(tmp_path / "t"), mix, [tally], {}) == []


def test_a_loss_in_one_of_several_tables_names_it(tmp_path):
    engine, mix = SeveralTables(find_engine("refdelta"), 3), mix_of("appends")
    engine.prepare(str(tmp_path), mix, {})
    hands = engine.open(str(tmp_path), mix, {})
    told = [hands.commit(task) for task in range(7)]
    assert [(one.table, one.version) for one in told] == [(0, 1), (1, 1), (2, 1), (0, 2), (1, 2), (2, 2), (0, 3)]
    tally = Tally([RaceCommit(task, one.version, 1, 0.0, 1.0, table=one.table) for task, one in enumerate(told)])
    assert engine.check(str(tmp_path), mix, [tally], {}) == []
    compacted = hands.compact()
    assert compacted.table == 0
    tally.commits.append(RaceCommit(-1, compacted.version, 1, 0.0, 1.0, table=0))
    assert engine.check(str(tmp_path), mix, [tally], {}) == []
    DeltaTable(tmp_path / "2").delete("n = 3")
    (problem,) = engine.check(str(tmp_path), mix, [tally], {})
    assert problem == "table 2: other rows than the commits explain: 18, and not 20"


@pytest.mark.parametrize("tables", [0, 1001, 1.5, True])
def test_a_race_has_some_tables(tmp_path, tables):
    with pytest.raises(errors.InvalidArgumentError, match="tables"):
        _raced(tmp_path, "refdelta", "appends", tables=tables)


@pytest.mark.tier("test")
def test_tuned_tables_compact_by_themselves(tmp_path):
    mix = mix_of("appends")
    for settings in ("defaults", "tuned"):
        engine = find_engine("refdelta", settings=settings)
        engine.prepare(str(tmp_path / settings), mix, {})
        hands = engine.open(str(tmp_path / settings), mix, {})
        for task in range(60):
            hands.commit(task)
    files = [len(DeltaTable(tmp_path / settings).files()) for settings in ("defaults", "tuned")]
    assert files[0] == 60 > files[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--engine", "refdelta", "--engine-option", "a=b"), "unexpected keyword argument 'a'"),
        (("--engine-option", "settings=tunde"), "settings are 'defaults' or 'tuned', not 'tunde'"),
        (("--engine", "pyiceberg", "--engine-option", "database"), "say NAME=VALUE"),
        (("--engine", "pyiceberg", "--engine-option", "databse=x"), "unexpected keyword argument 'databse'"),
        (("--engine", "icberg"), "did you mean 'pyiceberg'"),
    ],
)
def test_clear_errors(fails, tmp_path, arguments, words):
    assert words in fails("bench", tmp_path, *arguments, "--threads")


@pytest.mark.parametrize("name", ["deltalake", "pyiceberg", "lance", "ducklake"])
def test_a_library_that_is_not_installed_is_named(monkeypatch, name):
    engine = ENGINES[name].partition(":")
    module, cls = importlib.import_module(engine[0]), engine[2]
    package = getattr(module, cls).packages[0]
    monkeypatch.setitem(sys.modules, getattr(module, cls).module, None)
    with pytest.raises(errors.InvalidArgumentError, match=f"needs the package {package}, .*: pip install {package}"):
        find_engine(name)


def test_an_extension_that_cannot_be_had_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(of_ducklake.importlib.util, "find_spec", lambda _: None)
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.setattr(duckdb.DuckDBPyConnection, "install_extension", _refuses, raising=False)
    with pytest.raises(errors.InvalidArgumentError, match="no extension ducklake here: INSTALL ducklake"):
        _raced(tmp_path, "ducklake", "appends", threads=True)


def test_the_url_of_ducklakes_database_is_in_no_error(tmp_path, monkeypatch):
    import duckdb

    class Connection:
        def install_extension(self, name):
            pass

        load_extension = install_extension

        def execute(self, sql):
            raise duckdb.IOException(f"unable to connect: {sql}")

    monkeypatch.setattr(of_ducklake.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(duckdb, "connect", Connection)
    engine = find_engine("ducklake", database="postgresql+psycopg://a:secret@127.0.0.1/b")
    with pytest.raises(errors.InvalidArgumentError) as failed:
        engine.prepare(str(tmp_path / "t"), APPENDS, {})
    assert str(failed.value) == "the catalog of ducklake cannot be opened: IOException"
    assert failed.value.__suppress_context__
    with pytest.raises(errors.InvalidArgumentError, match="one of PostgreSQL"):
        find_engine("ducklake", database="sqlite:///a.db")


@pytest.mark.parametrize("database", ["", "postgresql://a@127.0.0.1/b"])
def test_the_settings_of_ducklake(tmp_path, monkeypatch, database):
    import duckdb

    told = []

    class Connection:
        def install_extension(self, name):
            pass

        load_extension = install_extension

        def execute(self, sql):
            told.append(sql)

        sql = execute

    monkeypatch.setattr(of_ducklake.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(duckdb, "connect", Connection)
    for settings in ("defaults", "tuned"):
        find_engine("ducklake", settings=settings, database=database).open(str(tmp_path / "t"), APPENDS, {})
    plain, retries, tuned = told
    assert (retries, "META_JOURNAL_MODE" in plain) == ("SET ducklake_max_retry_count = 100", False)
    assert ("META_JOURNAL_MODE 'WAL', META_BUSY_TIMEOUT 5000" in tuned) == (not database)
    with pytest.raises(errors.InvalidArgumentError, match="'defaults' or 'tuned'"):
        find_engine("ducklake", settings="best")


def _refuses(self, name):
    import duckdb

    raise duckdb.IOException(f"no {name}")


@pytest.mark.parametrize("mix", ["append=1,batch=1", "rows", "same-rows", "ycsb-a", "payments", "upsert=1"])
def test_the_statements_of_ducklake(tmp_path, monkeypatch, mix):
    """On tables of DuckDB itself, which are no lake: the SQL is the same."""
    import duckdb

    lakes = {}

    def connected(folder, _, **settings):
        Path(folder).mkdir(exist_ok=True)
        if folder not in lakes:
            lakes[folder] = duckdb.connect()
            lakes[folder].execute(f"ATTACH '{folder}/lake.db' AS lake")
        return lakes[folder].cursor()

    monkeypatch.setattr(of_ducklake, "_connected", connected)
    told = _raced(tmp_path, "ducklake", mix, writers=1, threads=True, warm_up=0)
    assert (told.problems, told.commits + told.reads) == ((), 9)


# --- a fast and wrong engine loses -----------------------------------------------------------------------------------


class _Forgetful(DeltalakeHands):
    """Acknowledges every third append without making it."""

    appended = 0

    def append(self, rows: pa.Table) -> None:
        type(self).appended += 1
        if self.appended % 3:
            super().append(rows)


class _Stale(DeltalakeHands):
    """Computes the new values from rows that it read when it was opened: an update of another writer is undone."""

    def update(self, wanted):
        rows = DeltaTable(self._table.table_uri, version=1).to_pyarrow_table(filters=wanted.predicate)
        for row in wanted.updated(rows).to_pylist():
            self._table.update_incremental()
            self._table.update({"n": str(row["n"])}, predicate=f"id = {row['id']}")


class _Losing(DeltalakeHands):
    """Every update loses, whatever others do."""

    def update(self, wanted):
        raise self.aborts[0]("it lost")


class Wrong(DeltalakeEngine):
    """An engine with such hands."""

    def __init__(self, hands=DeltalakeHands):
        super().__init__()
        self.hands = hands

    def open(self, folder, mix, storage_options):
        return self.hands(folder, mix, storage_options)


@pytest.mark.tier("nightly")
@pytest.mark.parametrize(
    ("hands", "mix", "words"),
    [
        (_Forgetful, APPENDS, "other rows than the commits explain: 60, and not 90"),
        (_Stale, SAME_ROWS, "other values than the commits explain"),
        (_Stale, Mix({"pay": 1}, rows=50), "other values than the commits explain"),
    ],
)
def test_lost_work_is_found_by_the_rows(tmp_path, hands, mix, words):
    _Forgetful.appended = 0
    how = {"mix": mix, "writers": 1, "threads": True, "warm_up": 0, "commits": 9 if mix is APPENDS else 20}
    assert race(str(tmp_path), engine=Wrong(hands), **how).problems == (words,)


@pytest.mark.tier("test")
def test_an_engine_that_never_wins_ends_the_race(tmp_path, monkeypatch):
    monkeypatch.setattr(throughput, "_MOST_LOST", 7)
    mix = Mix({"append": 1, "correct": 1}, rows=100)
    with pytest.raises(errors.DeltaError, match=r"no writer got on while task \d+ lost 7 times: CommitFailedError: it"):
        race(str(tmp_path), engine=Wrong(_Losing), mix=mix, writers=2, threads=True, warm_up=0, commits=20)
    assert [*tmp_path.iterdir()] == []
