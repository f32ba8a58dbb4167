"""Every command on tables in S3 and Azure: their options from the environment or the command line, shown nowhere."""

import json
import os
import subprocess
import sys

import pytest

from refdelta import DeltaTable
from refdelta.cli.app import app

SERVERS = ["s3_server", "azure_server"]


def environment(server):
    """How users name a server to every program at once."""
    options = server.options()
    if server.scheme == "s3":
        return {
            "AWS_ACCESS_KEY_ID": options["key"],
            "AWS_SECRET_ACCESS_KEY": options["secret"],
            "AWS_ENDPOINT_URL": options["endpoint_url"],
        }
    return {"AZURE_STORAGE_CONNECTION_STRING": options["connection_string"]}


def secret_of(server):
    """The part of its options that nobody may see."""
    options = server.options()
    return options["secret"] if server.scheme == "s3" else server.connection_string().split("AccountKey=")[1][:40]


@pytest.fixture(params=SERVERS)
def server(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def in_environment(server, monkeypatch):
    for name, value in environment(server).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def rows(tmp_path):
    """Two files of rows."""
    (tmp_path / "a.csv").write_text("id,p\n1,a\n2,a\n3,b\n")
    (tmp_path / "b.csv").write_text("id,p\n4,b\n5,a/c\n")
    return [tmp_path / "a.csv", tmp_path / "b.csv"]


def test_every_command_by_the_environment(cli, server, in_environment, rows, tmp_path):
    uri = server.place().uri
    shown = []

    def run(*arguments):
        result = cli(*arguments)
        assert result.status == 0, result.err
        shown.append(result.out + result.err)
        return result

    def ids():
        return sorted(row["id"] for row in run("read", uri, "--json").json)

    vectors = ("--property", "delta.enableDeletionVectors=true")
    assert run("write", uri, *rows, "--partition-by", "p", *vectors, "--json").json["num_added_rows"] == 5
    assert run("write", uri, rows[0], "--mode", "append", "--message", "again", "--json").json["version"] == 1
    assert run("delete", uri, "--where", "id = 1", "--json").json["num_deleted_rows"] == 2
    assert run("update", uri, "--set", "id=id + 10", "--where", "p = 'b'", "--json").json["num_updated_rows"] == 3
    assert ids() == [2, 2, 5, 13, 13, 14]
    run("read", uri, "--where", "p = 'b'", "--output", tmp_path / "out.parquet")
    assert (tmp_path / "out.parquet").exists()
    assert "partition" in run("read", uri, "--where", "p = 'b'", "--explain").out
    assert run("optimize", uri, "--json").json["numFilesAdded"] >= 1
    assert run("optimize", uri, "--z-order-by", "id", "--json").json["version"] is not None
    run("checkpoint", uri)
    assert run("vacuum", uri, "--dry-run", "--json").status == 0
    assert run("restore", uri, "--version", 0, "--json").json["version"] is not None
    assert ids() == [1, 2, 3, 4, 5]
    operations = [commit["operation"] for commit in run("history", uri, "--json").json]
    assert operations[::-1] == ["WRITE", "WRITE", "DELETE", "UPDATE", "OPTIMIZE", "OPTIMIZE", "RESTORE"]
    assert run("detail", uri, "--json").json["num_files"] == 3
    assert len(run("files", uri, "--json").json) == 3
    assert "commitInfo" in run("log", uri).out
    run("history", uri)
    run("detail", uri)
    assert secret_of(server) not in "".join(shown)
    assert DeltaTable(uri, storage_options=server.options()).version() == 6


def test_a_command_of_its_own_finds_the_store_by_the_environment(server, rows):
    """No option of any kind, in a process that has nothing but its environment."""
    uri = server.place().uri
    command = [sys.executable, "-m", "refdelta", "write", uri, str(rows[0]), "--json"]
    done = subprocess.run(
        command, env={**os.environ, **environment(server)}, capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["version"] == 0


def test_options_on_the_command_line(cli, server, rows):
    place = server.place()
    options = [word for name, value in place.options.items() for word in ("--storage-option", f"{name}={value}")]
    assert cli("write", place.uri, rows[0], *options).status == 0
    assert len(cli("read", place.uri, "--json", *options).json) == 3


def test_each_command_on_a_table_takes_options():
    on_tables = {
        name: {option.name for option in command.params}
        for name, command in app.commands.items()
        if any(parameter.name == "table" and parameter.param_type_name == "argument" for parameter in command.params)
    }
    assert len(on_tables) >= 12
    assert [name for name, options in on_tables.items() if "storage_options" not in options] == []


@pytest.mark.parametrize("verb", ["read", "write", "history", "detail", "vacuum", "demo"])
def test_wrong_credentials_are_one_line_without_them(fails, server, in_environment, monkeypatch, rows, verb):
    wrong = "d3JvbmctYnV0LXNlY3JldC1hbGwtdGhlLXNhbWUtd3JvbmctYnV0LXNlY3JldA=="
    if server.scheme == "s3":
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", wrong)
    else:
        right = environment(server)["AZURE_STORAGE_CONNECTION_STRING"]
        key = right.split("AccountKey=")[1].split(";")[0]
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", right.replace(key, wrong))
    uri = server.place().uri
    arguments = {"write": (uri, rows[0]), "demo": ("--path", uri, "--no-spark")}.get(verb, (uri,))
    line = fails(verb, *arguments)
    assert any(word in line for word in ("denied", "Forbidden", "403", "signature", "authenticat", "authoriz")), line
    assert wrong not in line
    assert wrong[:20] not in line
    assert uri in line


def test_an_unknown_option_is_named_and_its_value_is_not(fails, server):
    line = fails("read", server.place().uri, "--storage-option", "sekret_key=hunter22")
    assert "sekret_key" in line
    assert "hunter22" not in line


def test_options_of_another_service_are_refused(fails, s3_server, azure_server):
    assert "unknown option" in fails("read", s3_server.place().uri, "--storage-option", "account_name=x")
    assert "unknown option" in fails("read", azure_server.place().uri, "--storage-option", "aws_region=x")
