"""``refdelta conformance``."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest

from refdelta.conformance import Result, engines, run
from refdelta.conformance.cases import CORPUS, cases
from refdelta.conformance.runner import ERROR, WRONG
from refdelta.core.commit import member
from refdelta.crosscheck import oracle
from rules_left_out import check_without


@pytest.mark.tier("test")
def test_a_case_runs_and_is_shown(cli):
    shown = cli("conformance", "--engine", "refdelta", "--case", "lost-update")
    assert (shown.status, shown.err) == (0, "")
    lines = shown.out.splitlines()
    assert lines[:2] == ["   sound  lost-update@Serializable", "   sound  lost-update@WriteSerializable"]
    assert lines[2].endswith(": 2 sound")


@pytest.mark.tier("test")
def test_the_exit_status_is_1_where_an_engine_is_wrong(cli, tmp_path):
    report = tmp_path / "junit.xml"
    called = cli(
        *("conformance", "--engine", "deltalake", "--case", "compaction-compaction@Serializable"),
        *("--json", "--junit", report),
    )
    assert called.status == 1
    assert called.err == "refdelta: 1 wrong of 1 case: compaction-compaction@Serializable\n"
    shown = json.loads(called.out)
    assert (shown["engine"], shown["counts"]["wrong"]) == ("deltalake", 1)
    assert shown["results"][0]["status"] == "wrong"
    assert ET.parse(report).getroot().get("failures") == "1"


@pytest.mark.tier("test")
def test_errors_and_wrong_cases_are_counted_apart(cli, monkeypatch):
    def run_two(engine, asked, told, faults):
        for case, status in zip(asked, (ERROR, WRONG), strict=True):
            told(Result(case, "refdelta", status))

    monkeypatch.setattr("refdelta.conformance.run", run_two)
    called = cli("conformance", "--engine", "refdelta", "--case", "lost-update")
    assert (called.status, called.err) == (
        1,
        "refdelta: 1 wrong and 1 error of 2 cases: lost-update@Serializable, ...\n",
    )


def test_random_cases(cli, tmp_path):
    path = tmp_path / "wrong.json"
    called = cli("conformance", "--engine", "refdelta", "--random", "--seeds", "3-4", "--write", path, "--json")
    assert called.status == 0
    assert [result["case"] for result in json.loads(called.out)["results"]] == ["random-3", "random-4"]
    assert json.loads(path.read_text())["cases"] == []


@pytest.fixture
def opened(monkeypatch):
    """The addresses that the browser was asked to open. There is none: it says so by False."""
    asked = []
    monkeypatch.setattr("webbrowser.open", lambda address: bool(asked.append(address)))
    return asked


@pytest.mark.tier("test")
def test_a_case_is_opened_on_the_page_and_its_address_printed(cli, tmp_path, opened, monkeypatch):
    page = tmp_path / "docs" / "play" / "index.html"
    page.parent.mkdir(parents=True)
    page.touch()
    link = f"{page.as_uri()}#case=lost-update@Serializable"
    called = cli("conformance", "--case", "lost-update", "--open", "--site", tmp_path)
    assert (called.status, called.out.splitlines(), opened) == (0, [link], [link])
    monkeypatch.setattr("refdelta.cli.conforming.BUILT", tmp_path)
    assert cli("conformance", "--case", "lost-update@WriteSerializable", "--open").status == 0
    assert opened[1].endswith("#case=lost-update@WriteSerializable")
    called = cli("conformance", "--case", "lost-update", "--open", "--site", "https://docs.example/")
    assert called.out == "https://docs.example/docs/play/index.html#case=lost-update@Serializable\n"


@pytest.mark.tier("test")
def test_a_random_case_that_is_wrong_without_a_rule_is_made_smaller_and_is_sound_with_it(cli, tmp_path, monkeypatch):
    path = tmp_path / "wrong.json"
    command = ("conformance", "--engine", "refdelta")
    with monkeypatch.context() as patch:
        patch.setattr(member, "check", check_without("read-file-removed", "files-added", "deleted-by-both"))
        assert cli(*command, "--random", "--seeds", "0-7", "--write", path).status == 1
        found = cases(path)
        assert {result.status for result in run(engines.find("refdelta"), found)} == {WRONG}
        for case in found:
            assert len(case.transactions) == 2
            assert sum(map(len, case.table["rows"])) <= 2, "two rows are enough for two statements"
            statements = [statement for one in case.transactions.values() for statement in one.statements]
            assert len(statements) == 2
            assert not any(" OR " in statement.where or len(statement.rows) > 1 for statement in statements)
    assert found
    assert cli(*command, "--corpus", path).status == 0


@pytest.mark.tier("test")
def test_histories_for_elle_are_written(cli, tmp_path):
    path = tmp_path / "history.edn"
    called = cli("conformance", "--engine", "refdelta", "--random", "--seeds", "0-1", "--elle", path)
    assert (called.status, called.err) == (0, "")
    assert path.read_text().startswith("{:index 0, :time 0, :type :invoke, :process 0, :f :txn, :value [[:w 0 1] ")
    assert {line.count(":type") for line in path.read_text().splitlines()} == {1}


@pytest.mark.tier("test")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--engine", "none"), "engine 'none' does not exist"),
        (("--engine", "refdelta", "--case", "lost-updates"), "case 'lost-updates' does not exist; did you mean"),
        (("--engine", "refdelta", "--random", "--seeds", "x"), "must be such as 0-99"),
        (("--engine", "refdelta", "--random", "--case", "lost-update"), "--random goes without"),
        (("--engine", "refdelta", "--write", "x.json"), "--write and --elle go with --random"),
        (("--engine", "refdelta", "--elle", "x.edn"), "--write and --elle go with --random"),
        (("--case", "lost-update"), "Missing option '--engine'"),
        (("--engine", "refdelta", "--site", "x"), "--site goes with --open"),
        (("--open",), "--open goes with one --case"),
        (("--case", "lost-updates", "--open"), "case 'lost-updates' does not exist"),
        (("--case", "lost-update", "--open", "--site", "/nowhere"), "build the site by `make docs`, or name one"),
        (("--engine", "refdelta", "--corpus", str(CORPUS / "none.json")), "there is no such file"),
    ],
)
def test_calls_that_make_no_sense(fails, arguments, said):
    assert said in fails("conformance", *arguments)


# --- faults ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--faults", "0.1"), "--faults needs --uri"),
        (("--faults",), "--faults needs --uri"),
        (("--faults", "2"), "--faults"),
        (("--seed", "1"), "go with --faults"),
        (("--uri", "s3://b/t"), "go with --faults"),
        (("--faults", "--uri", "/tmp"), "--faults needs a store with an endpoint"),
        (("--faults", "--uri", "s3://b/t", "--random", "--write", "x"), "--faults goes without --write"),
    ],
)
def test_clear_errors_of_faults(fails, arguments, words):
    assert words in fails("conformance", "--engine", "refdelta", *arguments)


@pytest.mark.tier("test")
def test_an_engine_without_tables_in_stores_is_named_with_the_reason(fails, monkeypatch):
    monkeypatch.setattr(oracle, "availability", lambda: None)
    how = ("--faults", "--uri", "s3://b/t", "--storage-option", "endpoint_url=http://127.0.0.1:1")
    said = fails("conformance", "--engine", "delta-kernel", *how)
    assert "--faults needs tables in a store: delta-kernel has no tables in stores here: it reaches S3 by" in said


OF_STATEMENTS = ("lost-update", "insert-insert", "write-skew")
OF_ACTIONS = (
    *("append-append", "delete-delete-same-file", "same-application-same-version", "two-create-the-table-with-rows"),
    "delete-delete-of-other-rows-of-a-file-with-a-vector",
)


@pytest.mark.tier("test")
@pytest.mark.parametrize(("names", "count"), [(OF_STATEMENTS, 6), (OF_ACTIONS, 7)], ids=["statements", "actions"])
def test_the_verdicts_stay_right_while_requests_meet_faults(cli, s3_server, names, count):
    place = s3_server.place()
    options = [word for name, value in place.options.items() for word in ("--storage-option", f"{name}={value}")]
    how = ("conformance", "--engine", "refdelta", "--faults", 0.3, "--seed", 11, "--uri", place.uri, *options)
    patience = ("--storage-option", "max_retries=2", "--storage-option", "timeout=5s")
    chosen = [word for name in names for word in ("--case", name)]
    called = cli(*how, *patience, *chosen, "--json")
    assert called.status == 0, called
    told = called.json
    assert told["counts"]["sound"] == len(told["results"]) == count
    assert any(one["committed"] for one in told["results"]), "some got through"
    assert (told["faults"]["rate"], told["faults"]["seed"]) == (0.3, 11)
    assert told["faults"]["met"] > 20
    assert not list((s3_server.path(place.uri)).rglob("*.json"))
