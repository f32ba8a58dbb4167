"""The runner: the statuses, by engines that go wrong in known ways, and by those of the package.

Tests of conformance.runner, conformance.programs, conformance.engines.refdelta_engine,
conformance.engines.deltalake_engine, conformance.engines.pyiceberg_engine, conformance.engines.polars_engine,
conformance.engines.duckdb_engine.
"""

from __future__ import annotations

import re
import sqlite3
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from xml.etree import ElementTree as ET

import duckdb
import msgspec
import numpy as np
import pytest

import refdelta
from refdelta import errors
from refdelta.cli import main
from refdelta.conformance import cases, engines, run
from refdelta.conformance.cases import Case, Failure
from refdelta.conformance.engines import NotSupportedError, duckdb_engine
from refdelta.conformance.engines.refdelta_engine import as_arrow
from refdelta.conformance.judge import Row
from refdelta.conformance.programs import draw, smaller, written
from refdelta.conformance.runner import ERROR, NEEDLESS, REFUSED, SOUND, WRONG, counts, junit
from refdelta.conformance.statements import effect
from refdelta.crosscheck import oracle

CASES = {case.id: case for case in cases()}
SOME = (
    "lost-update",
    "write-skew",
    "delete-over-a-matching-insert",
    "compaction-over-a-delete",
    "insert-insert",
    "copies-of-each-other",
    "transaction-of-two-statements",
    "delete-delete-of-other-partitions",
)


class Careless:
    """An engine in memory that checks nothing, or refuses every commit after another one, or fails."""

    kinds = ("statements",)

    def __init__(self, name: str = "careless") -> None:
        self.name = name

    def version(self) -> str:
        return "1"

    def open(self, case: Case, folder: Path) -> Careless.Session:
        if self.name == "modest":
            raise NotSupportedError("anything")
        return Careless.Session(case, self.name)

    def close(self) -> None:
        pass

    class Session:
        def __init__(self, case: Case, how: str) -> None:
            self.case, self.how, self.versions, self.seen = case, how, 0, {}
            self.state = frozenset(
                Row((n, i), tuple(r)) for n, f in enumerate(case.table["rows"]) for i, r in enumerate(f)
            )

        def begin(self, name: str) -> None:
            self.seen[name] = self.state, self.versions

        def commit(self, name: str) -> Failure | None:
            seen, version = self.seen[name]
            if self.how == "failing":
                raise ZeroDivisionError("by nothing")
            if self.how == "timid" and version != self.versions:
                return Failure("ConcurrentAppend", "somebody was faster")
            change = effect(self.case.transactions[name].statements, name, seen)
            self.state = (self.state - change.removed) | change.added
            self.versions += 1
            return None

        def left(self):
            return [row.values for row in self.state]

        def close(self) -> None:
            pass


def statuses(engine, *names: str) -> dict[str, str]:
    chosen = [case for case in CASES.values() if case.name in names]
    return {result.case.id: result.status for result in run(engine, chosen)}


def test_an_engine_that_checks_nothing_is_wrong_where_no_order_explains_it():
    found = statuses(Careless(), "lost-update", "write-skew", "delete-over-a-matching-insert", "insert-insert")
    assert found == {
        "lost-update@Serializable": WRONG,
        "lost-update@WriteSerializable": WRONG,
        "write-skew@Serializable": WRONG,
        "write-skew@WriteSerializable": WRONG,
        "delete-over-a-matching-insert@Serializable": WRONG,
        "delete-over-a-matching-insert@WriteSerializable": SOUND,
        "insert-insert@Serializable": SOUND,
        "insert-insert@WriteSerializable": SOUND,
    }
    (result,) = run(Careless(), [CASES["lost-update@Serializable"]])
    assert result.why.startswith("W, T committed, and no order explains it: ")
    assert result.why.endswith("left: [[0, 1], [0, 1]]")


@pytest.mark.tier("test")
def test_the_smallest_cases_are_wrong_on_an_engine_that_checks_nothing():
    chosen = [case for case in CASES.values() if case.group == "smallest"]
    assert len(chosen) >= 70
    assert {result.status for result in run(Careless(), chosen)} == {WRONG}


def test_an_engine_that_refuses_every_second_commit_is_sound_but_for_needless_ones():
    found = statuses(Careless("timid"), "lost-update", "insert-insert")
    assert set(found.values()) == {SOUND, NEEDLESS}
    assert found["lost-update@Serializable"] == SOUND
    (result,) = run(Careless("timid"), [CASES["insert-insert@Serializable"]])
    assert result.why == "T was refused with ConcurrentAppend, but it must commit"


def test_what_an_engine_cannot_do_and_what_fails_are_results_of_their_own():
    assert set(statuses(Careless("modest"), "lost-update").values()) == {REFUSED}
    (failed,) = run(Careless("failing"), [CASES["lost-update@Serializable"]])
    assert failed.status == ERROR
    assert re.fullmatch(r"commit W: ZeroDivisionError: by nothing \(test_runner.py:\d+\)", failed.why)
    (other,) = run(Careless(), [next(case for case in CASES.values() if case.kind == "actions")])
    assert (other.status, other.why) == (REFUSED, "the adapter runs no cases of actions")


class Faulty(Careless):
    """An adapter with one fault, on an engine without: a method raises, or gives what it should not."""

    def __init__(self, method: str, given: object) -> None:
        super().__init__("faulty")
        self.method, self.given = method, given

    def open(self, case: Case, folder: Path) -> Careless.Session:
        session = super().open(case, folder)
        setattr(session, self.method, self.given)
        if self.method == "open":
            self.given()
        return session


def fails(*_: object) -> None:
    raise LookupError("two\nlines" + " and more" * 100)


def test_an_error_of_a_method_of_the_adapter_is_a_result_and_the_run_goes_on():
    two = [CASES["insert-insert@Serializable"], CASES["insert-insert@WriteSerializable"]]
    for method, step in {"open": "open", "begin": "begin T", "commit": "commit W", "left": "left"}.items():
        results = run(Faulty(method, fails), two)
        assert [result.status for result in results] == [ERROR, ERROR]
        assert results[0].why.startswith(f"{step}: LookupError: two lines and more")
        assert len(results[0].why) < 600
        assert re.search(r" \.\.\. \(test_runner.py:\d+\)$", results[0].why)
    results = run(Faulty("close", fails), two)
    assert [(result.status, result.committed) for result in results] == [(ERROR, ("W", "T"))] * 2
    assert results[0].why.startswith("close: LookupError: two lines")


def test_an_engine_that_turns_out_to_be_missing_ends_the_run():
    def missing():
        raise engines.EngineUnavailableError("no server is running")

    with pytest.raises(engines.EngineUnavailableError, match="no server is running"):
        run(Faulty("open", missing), [CASES["insert-insert@Serializable"]])


@pytest.mark.parametrize(
    ("method", "given", "why"),
    [
        ("commit", True, "commit W: InvalidArgumentError: the adapter gave True instead of None or a Failure"),
        ("commit", "a conflict", "commit W: InvalidArgumentError: the adapter gave 'a conflict' instead of"),
        ("left", [{"k": 0, "a": 0}], "left: InvalidArgumentError: the adapter gave the row {'k': 0, 'a': 0}: rows"),
        ("left", [("0", "0")], "left: InvalidArgumentError: the adapter gave the row ('0', '0'): rows are pairs"),
        ("left", [(0, 0, 0)], "left: InvalidArgumentError: the adapter gave the row (0, 0, 0): rows are pairs"),
    ],
)  # fmt: skip
def test_a_value_of_another_form_is_an_error_and_no_verdict(method, given, why):
    (result,) = run(Faulty(method, lambda *_: given), [CASES["insert-insert@Serializable"]])
    assert result.status == ERROR
    assert result.why.startswith(why)


def test_rows_may_be_lists_and_have_numbers_of_numpy():
    rows = [[np.int64(0), 0], [1, np.int64(1)], [10, 0], [11, 0]]
    (result,) = run(Faulty("left", lambda: iter(rows)), [CASES["insert-insert@Serializable"]])
    assert (result.status, result.why) == (SOUND, "")
    assert {type(value) for row in result.rows for value in row} == {int}


def test_the_results_for_programs():
    chosen = [CASES["lost-update@Serializable"], CASES["insert-insert@Serializable"]]
    results = [*run(Careless(), chosen), *run(Careless("modest"), chosen), *run(Careless("failing"), chosen)]
    assert counts(results) == {SOUND: 1, NEEDLESS: 0, WRONG: 1, REFUSED: 2, ERROR: 2}
    suite = ET.fromstring(junit(results))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors"), suite.get("skipped")) == (
        "6",
        "1",
        "2",
        "2",
    )
    assert suite[0].get("name") == "lost-update@Serializable"
    assert suite[0][0].tag == "failure"
    assert results[0].as_json()["rows"] == [[0, 1], [0, 1]]
    assert results[1].as_json()["order"] == ["W", "T"]


@pytest.mark.sample(check=20)
@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.id)
def test_refdelta_is_sound(case):
    (result,) = run(engines.find("refdelta"), [case])
    assert result.status in (SOUND, NEEDLESS), result.why
    if case.cannot_conflict:
        assert result.status == SOUND, result.why


@pytest.mark.sample(check=6)
@pytest.mark.parametrize("case", [c for c in CASES.values() if c.kind == "statements"], ids=lambda case: case.id)
def test_refdelta_without_deletion_vectors_is_sound(case):
    (result,) = run(engines.find("refdelta-files"), [case])
    assert result.status in (SOUND, NEEDLESS), result.why
    if case.cannot_conflict:
        assert result.status == SOUND, result.why


@pytest.mark.tier("test")
def test_other_engines_run_the_cases_that_they_can():
    for name, refused in (
        ("deltalake", {"copies-of-each-other", "transaction-of-two-statements"}),
        ("pyiceberg", None),
        ("polars", {name for name in SOME if name != "insert-insert"}),
    ):
        with_engine = engines.find(name)
        assert with_engine.version()
        chosen = [case for case in CASES.values() if case.name in SOME and case.level == "Serializable"]
        found = run(with_engine, chosen)
        assert not [result for result in found if result.status == ERROR], found
        assert refused is None or {result.case.name for result in found if result.status == REFUSED} == refused


def test_deltalake_doubles_rows_by_two_compactions():
    # docs/findings/deltalake-compaction.md; where this fails, the finding is mended, and its page is to say so.
    (result,) = run(engines.find("deltalake"), [CASES["compaction-compaction@Serializable"]])
    assert (result.status, len(result.rows)) == (WRONG, 8)


def test_polars_merges_and_overwrites_by_its_own_modes():
    names = ("overwrite-over-an-insert@WriteSerializable", "merges-of-other-keys@Serializable")
    results = run(engines.find("polars"), [CASES[name] for name in names])
    assert [result.status for result in results] == [SOUND, NEEDLESS]
    assert results[1].failures["T"].error == "CommitFailedError"


def test_engines_in_java_say_what_is_missing(monkeypatch):
    monkeypatch.setattr(oracle, "availability", lambda: "delta-spark needs Java 17 and there is no java here")
    with pytest.raises(engines.EngineUnavailableError, match=r"^delta-spark needs Java 17"):
        engines.find("delta-spark")
    with pytest.raises(engines.EngineUnavailableError, match=r"^Delta Kernel, by delta-spark's JARs, needs Java 17"):
        engines.find("delta-kernel")
    with pytest.raises(oracle.OracleUnavailableError, match="there is no java here"):
        oracle.start_java()


def test_duckdb_needs_its_extension(monkeypatch):
    monkeypatch.setattr(duckdb_engine, "_extension", lambda *_: "'/nowhere/delta.duckdb_extension'")
    with pytest.raises(engines.EngineUnavailableError, match="no extension delta here: run INSTALL delta in DuckDB"):
        engines.find("duckdb")
    # Before a transaction fails for it, which a case under faults takes for an honest error.
    with pytest.raises(engines.EngineUnavailableError, match="no extension httpfs here: run INSTALL httpfs in DuckDB"):
        duckdb_engine.DuckDB().open_in_store(CASES["insert-insert@Serializable"], "s3://b/t", {})


class DuckDBWithoutConflictChecks:
    """A connection of DuckDB whose extension is one statement long: INSERT by refdelta, at the next version or none.

    As in the extension, a read is of the version that was attached, and an INSERT goes to the version after the newest.
    """

    def __init__(self, *_: str) -> None:
        self.duckdb = duckdb.connect()
        self.table, self.written, self.inserted = None, None, []

    def execute(self, sql: str) -> DuckDBWithoutConflictChecks | duckdb.DuckDBPyConnection:
        if sql.startswith("ATTACH"):
            self.table = refdelta.DeltaTable(sql.split("'")[1])
            self.duckdb.register("t", self.table.to_pyarrow_table())
        elif sql.startswith("INSERT"):
            values = sql.partition("INSERT INTO t ")[2]
            self.written = self.written or refdelta.DeltaTable(self.table.table_uri)
            self.inserted.append(as_arrow(self.duckdb.execute(f"SELECT * FROM ({values}) AS s(k, a)").fetchall()))
        elif sql == "COMMIT":
            newest = refdelta.DeltaTable(self.table.table_uri)
            if newest.version() != self.written.version():
                raise duckdb.TransactionException("Failed to commit: commit conflict at version 3")
            for rows in self.inserted:
                refdelta.write_deltalake(newest, rows, mode="append")
        elif sql != "BEGIN":
            return self.duckdb.execute(sql)
        return self

    def close(self) -> None:
        self.duckdb.close()


@pytest.mark.tier("test")
def test_duckdb_inserts_in_transactions_of_its_own(monkeypatch):
    # CI has no extension for its version of DuckDB; this is the order of calls, and what becomes of a conflict.
    monkeypatch.setattr(duckdb_engine, "_connection", DuckDBWithoutConflictChecks)
    names = ("insert-insert", "copies-of-each-other", "lost-update")
    results = run(engines.find("duckdb"), [CASES[f"{name}@Serializable"] for name in names])
    assert [(result.status, result.committed) for result in results] == [
        (NEEDLESS, ("W",)),
        (SOUND, ("W",)),
        (REFUSED, ()),
    ]
    assert "DuckDB has no update of Delta tables" in results[2].why


@pytest.mark.tier("test")
def test_duckdb_late_inserts_at_the_end_of_its_transactions(monkeypatch):
    # docs/findings/duckdb-insert-after-read.md
    monkeypatch.setattr(duckdb_engine, "_connection", DuckDBWithoutConflictChecks)
    names = ("insert-insert", "copies-of-each-other", "lost-update")
    results = run(engines.find("duckdb-late"), [CASES[f"{name}@WriteSerializable"] for name in names])
    assert [(result.status, result.committed) for result in results] == [
        (SOUND, ("W", "T")),
        (WRONG, ("W", "T")),
        (REFUSED, ()),
    ]


def test_an_insert_into_several_partitions_is_nothing_that_duckdb_can_do(monkeypatch):
    messages = iter(("INTERNAL Error: DeltaInsert::Sink expects a single row containing output", "anything else"))

    class WithInternalErrors(DuckDBWithoutConflictChecks):
        def execute(self, sql):
            if sql.startswith("INSERT"):
                raise duckdb.InternalException(next(messages))
            return super().execute(sql)

    monkeypatch.setattr(duckdb_engine, "_connection", WithInternalErrors)
    found = run(engines.find("duckdb"), [CASES["insert-insert@Serializable"], CASES["insert-insert@WriteSerializable"]])
    assert [result.status for result in found] == [REFUSED, ERROR]
    assert found[0].why == "DuckDB ends an INSERT into several partitions by an internal error"


def installed(monkeypatch, **points: str) -> None:
    found = [EntryPoint(name, value, engines.GROUP) for name, value in points.items()]
    monkeypatch.setattr(engines, "entry_points", lambda group: found)


def test_an_engine_of_ones_own_is_found_by_its_entry_point(monkeypatch):
    installed(monkeypatch, mine=f"{__name__}:Careless")
    assert engines.find("mine").version() == "1"
    assert engines.names()[-1] == "mine"


def test_an_entry_point_without_an_engine_is_said_to_be_one(monkeypatch):
    installed(
        monkeypatch, gone="no_package.here:Engine", less="collections:Counter", odd=f"{__name__}:OddKinds", duckdb="a:B"
    )
    messages = {
        "gone": r"the entry point gone = 'no_package.here:Engine' of refdelta.conformance.engines cannot be loaded: "
        r"ModuleNotFoundError: No module named 'no_package'",
        "less": r"less = 'collections:Counter' of .* is not an engine: its objects have no name, kinds, version, open",
        "odd": r"kinds='statements' must be a tuple of statements and actions",
        "duckdb": r"duckdb = 'a:B' of .* has the name of an engine of refdelta: give it another one",
    }
    for name, message in messages.items():
        with pytest.raises(errors.InvalidArgumentError, match=message):
            engines.find(name)


class OddKinds(Careless):
    kinds = "statements"


def test_duckdb_gets_the_options_of_s3_as_a_secret_before_it_opens_the_table(monkeypatch):
    asked = []

    class Connection:
        def __init__(self, *extensions):
            asked.append(extensions)

        def execute(self, sql):
            asked.append(sql)

        def close(self):
            pass

    monkeypatch.setattr(duckdb_engine, "_connection", Connection)
    monkeypatch.setattr(duckdb_engine, "make_table", lambda *_, **__: None)
    options = {"key": "o'er", "AWS_SECRET_ACCESS_KEY": "s", "endpoint_url": "http://127.0.0.1:9000", "max_retries": "2"}
    session = duckdb_engine.DuckDB().open_in_store(CASES["insert-insert@Serializable"], "s3://b/t", options)
    session.begin("W")
    login = "REGION 'us-east-1', KEY_ID 'o''er', SECRET 's', ENDPOINT '127.0.0.1:9000'"
    secret = f"CREATE SECRET (TYPE s3, {login}, URL_STYLE 'path', USE_SSL 'false')"
    assert asked[:4] == [("httpfs",), ("httpfs",), secret, "ATTACH 's3://b/t' AS t (TYPE delta, READ_WRITE)"]


def test_engines_are_found_by_name_or_said_to_be_unknown():
    assert engines.names()[: len(engines.OWN)] == list(engines.OWN)
    with pytest.raises(errors.InvalidArgumentError, match="engine 'refdelts' does not exist; did you mean 'refdelta'"):
        engines.find("refdelts")


# --- an adapter of another package ---------------------------------------------------------------------------------

ADAPTER = """
import contextlib
import sqlite3

from refdelta.conformance.cases import Failure
from refdelta.conformance.engines import NotSupportedError


class Engine:
    name, kinds = "sqlite", ("statements",)

    def version(self):
        return sqlite3.sqlite_version

    def open(self, case, folder):
        folder.mkdir()
        return Session(case, folder / "t.db")

    def close(self):
        pass


class Session:
    def __init__(self, case, file):
        self.case, self.file, self.begun = case, file, {}
        with contextlib.closing(self.connect()) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("CREATE TABLE t (k, a)")
            connection.executemany("INSERT INTO t VALUES (?, ?)", [row for rows in case.table["rows"] for row in rows])

    def connect(self):
        return sqlite3.connect(self.file, timeout=0, isolation_level=None)

    def begin(self, name):
        if any(one.verb in ("upsert", "overwrite", "optimize") for one in self.case.transactions[name].statements):
            raise NotSupportedError("a statement that SQLite has not")
        connection = self.begun[name] = self.connect()
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM t").fetchone()  # the transaction sees this version

    def commit(self, name):
        try:
            for statement in self.case.transactions[name].statements:
                self.begun[name].execute(statement.sql("t"))
            self.begun[name].execute("COMMIT")
        except sqlite3.OperationalError as error:
            self.begun[name].execute("ROLLBACK")
            return Failure("Busy", str(error))

    def left(self):
        with contextlib.closing(self.connect()) as connection:
            return connection.execute("SELECT k, a FROM t").fetchall()

    def close(self):
        for connection in self.begun.values():
            connection.close()
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that registers adapters, as pip installs it."""
    (tmp_path / "other_package.py").write_text(ADAPTER)
    installed = tmp_path / "other_package-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: other-package\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(
        "[refdelta.conformance.engines]\nsqlite = other_package:Engine\nno-class = other_package:Motor\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("other_package", None)


@pytest.mark.tier("test")
def test_an_adapter_of_another_package_is_found_and_judged(package, capsys):
    assert engines.names() == [*engines.OWN, "no-class", "sqlite"]
    found = run(engines.find("sqlite"), [CASES[f"{name}@Serializable"] for name in SOME])
    assert {result.case.name: result.status for result in found} == {
        "lost-update": SOUND,
        "write-skew": SOUND,
        "delete-over-a-matching-insert": SOUND,
        "compaction-over-a-delete": REFUSED,
        "insert-insert": NEEDLESS,
        "copies-of-each-other": SOUND,
        "transaction-of-two-statements": SOUND,
        "delete-delete-of-other-partitions": NEEDLESS,
    }
    assert main(["conformance", "--engine", "sqlite", "--case", "lost-update"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("   sound  lost-update@") == 2
    assert f"sqlite {sqlite3.sqlite_version}: 2 sound" in shown


def test_a_package_without_its_engine_and_a_name_that_is_nearly_one(package):
    with pytest.raises(errors.InvalidArgumentError, match=r"no-class = 'other_package:Motor' .* 'Motor'"):
        engines.find("no-class")
    with pytest.raises(errors.InvalidArgumentError, match=r"'sqlight' does not exist; did you mean 'sqlite'"):
        engines.find("sqlight")


def test_each_adapter_can_be_named():
    files = {file.stem for file in Path(engines.__file__).parent.glob("*.py")} - {"__init__"}
    assert files == {place.partition(":")[0].rpartition(".")[2] for place in engines.OWN.values()}


# --- random cases -----------------------------------------------------------------------------------------------------


@pytest.mark.tier("test")
def test_random_cases_are_sound_on_refdelta():
    results = run(engines.find("refdelta"), draw(range(6)))
    assert {result.status for result in results} <= {SOUND, NEEDLESS}, results


@pytest.mark.tier("test")
def test_a_wrong_random_case_is_made_smaller_and_written_as_a_case(tmp_path):
    wrong = next(result.case for result in run(Careless(), draw(range(200))) if result.status == WRONG)
    less = smaller(Careless(), wrong)
    assert len(less.transactions) == 2
    assert sum(map(len, less.table["rows"])) <= sum(map(len, wrong.table["rows"]))
    path = tmp_path / "wrong.json"
    path.write_text(written([less]))
    (again,) = cases(path)
    (result,) = run(Careless(), [again])
    assert result.status == WRONG
    assert again.expected
    assert msgspec.json.decode(path.read_bytes())["format"] == 1
