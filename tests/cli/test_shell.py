"""How the command behaves as a program: statuses, pipes, interrupts, and errors that nobody foresaw.

Tests of cli.app, status_line.
"""

import contextlib
import io
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import click
import pyarrow as pa
import pytest

from refdelta import __version__, write_deltalake
from refdelta.cli import reading
from refdelta.cli.app import app
from refdelta.cli.render import cell, echo_table
from refdelta.status_line import StatusLine
from refdelta.wording import size

WITHOUT_CLICK = """
import sys
sys.modules["click"] = None
from refdelta.cli import main
sys.exit(main(["history", "x"]))
"""


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_help_and_version(cli):
    reading, changing = ("read", "history", "detail", "files", "log"), ("write", "optimize", "vacuum", "restore")
    for command in (*reading, *changing, "demo", "bench"):
        assert command in cli("--help").out
        result = cli(command, "--help")
        assert result.status == 0
        assert "--json" in result.out
    assert cli("--version").out.split()[-1] == __version__


def _commands(group, path=()):
    """The commands of a group and of the groups in it, by their words."""
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from _commands(command, (*path, name))
        else:
            yield (*path, name), command


@pytest.mark.parametrize(("words", "command"), [*_commands(app)], ids=[" ".join(words) for words, _ in _commands(app)])
def test_each_command_has_examples_that_parse(cli, words, command):
    assert command.examples
    shown = cli(*words, "--help").out.split("Examples:\n")[1]
    assert [line.strip() for line in shown.splitlines()] == [f"refdelta {example}" for example in command.examples]
    called = []
    for example in command.examples:
        name, *arguments = shlex.split(example)
        found = app.commands[name]
        if isinstance(found, click.Group):
            second, *arguments = arguments
            name, found = f"{name} {second}", found.commands[second]
        found.make_context(name, arguments)
        called.append(name)
    assert " ".join(words) in called


def test_no_command_shows_the_help(cli):
    result = cli()
    assert (result.status, result.err) == (0, "")
    assert result.out == cli("--help").out


@pytest.mark.parametrize("arguments", [["raed", "x"], ["read"], ["read", "a", "b"], ["--jsn"]])
def test_a_wrong_command_is_one_line(fails, arguments):
    assert "--help" in fails(*arguments)


def test_an_unforeseen_error_is_one_line_too_and_says_how_to_see_more(cli, table, monkeypatch):
    def broken(*_arguments, **_options):
        raise RuntimeError("nobody\nforesaw this")

    monkeypatch.setattr(reading, "open_table", broken)
    result = cli("read", table)
    assert result.status == 1
    assert result.err == "refdelta: unexpected RuntimeError: nobody foresaw this (REFDELTA_DEBUG=1 shows where)\n"
    monkeypatch.setenv("REFDELTA_DEBUG", "1")
    assert "Traceback (most recent call last)" in cli("read", table).err


def test_debug_shows_where_a_foreseen_error_comes_from_too(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("REFDELTA_DEBUG", "1")
    err = cli("read", tmp_path).err
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("refdelta: ")


def test_without_click_it_says_what_to_install(process):
    out, err = process(code=WITHOUT_CLICK).communicate(timeout=120)
    assert out == b""
    assert err == b"refdelta: the command line needs click; install with: pip install 'refdelta[cli]'\n"


@pytest.mark.sample(test=1)
@pytest.mark.tier("test")
@pytest.mark.parametrize("shape", ["csv", "json", "table"])
def test_a_closed_pipe_is_no_error(process, tmp_path, shape):
    write_deltalake(tmp_path / "t", pa.table({"n": range(200_000), "text": ["x" * 20] * 200_000}))
    running = process("read", tmp_path / "t", "--format", shape, "--limit", 5000 if shape == "table" else 200_000)
    assert running.stdout.readline()
    running.stdout.close()
    assert running.stderr.read() == b""
    running.stderr.close()
    assert running.wait(timeout=120) == 0


@pytest.mark.sample(test=1)
@pytest.mark.tier("test")
@pytest.mark.parametrize("shape", ["csv", "json", "table"])
def test_a_full_disk_behind_the_output_is_one_line(table, shape):
    command = [sys.executable, "-m", "refdelta", "read", table, "--format", shape]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (1, b"refdelta: No space left on device\n")


@pytest.mark.tier("test")
def test_an_interrupt_is_quiet(process):
    # The child sends itself the signal that Ctrl-C sends, where a command is at work.
    code = (
        "import os, signal, sys; from refdelta.cli import app, reading, main; "
        "reading.open_table = lambda *a: os.kill(os.getpid(), signal.SIGINT); "
        "sys.exit(main(['read', 'x']))"
    )
    running = process(code=code)
    out, err = running.communicate(timeout=120)
    assert (running.returncode, out, err.strip()) == (128 + signal.SIGINT, b"", b"refdelta: interrupted")


def test_the_live_line_is_drawn_over_itself_on_a_terminal_and_nowhere_else():
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        with StatusLine(stream) as line:
            line.show("1 of 2", force=True)
            line.show("2 of 2", force=True)
    assert pipe.getvalue() == ""
    assert [part.removeprefix("\x1b[2K") for part in terminal.getvalue().split("\r")] == ["", "1 of 2", "2 of 2", ""]


def _on_a_terminal(*arguments):
    """The output of a command on a terminal."""
    ours, terminal = pty.openpty()
    command = [sys.executable, "-m", "refdelta", *map(str, arguments)]
    running = subprocess.Popen(command, stdout=terminal, stderr=terminal, stdin=subprocess.DEVNULL)
    os.close(terminal)
    seen = b""
    with contextlib.suppress(OSError):  # Linux says EIO where the other side has closed
        while block := os.read(ours, 4096):
            seen += block
    os.close(ours)
    assert running.wait(timeout=120) == 0
    return seen.decode()


@pytest.mark.tier("test")
def test_a_write_on_a_terminal_shows_its_progress(tmp_path):
    (tmp_path / "a.csv").write_text("id\n" + "1\n" * 1000)
    seen = _on_a_terminal("write", tmp_path / "t", tmp_path / "a.csv")
    assert "writing 1,000 rows" in seen
    assert "version 0: 1,000 rows in 1 file" in seen
    assert "\x1b[33m0\x1b[0m" in _on_a_terminal("history", tmp_path / "t"), "the numbers of versions are yellow"


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, ""), (0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (8_258_905, "8.3 MB"), (5 * 10**15, "5000.0 TB")],
)
def test_sizes_for_people(count, text):
    assert size(count) == text


def test_cells_for_people():
    assert [cell(value) for value in (None, True, 1.5, "x", [1, None], {"a": 1})] == [
        "",
        "true",
        "1.5",
        "x",
        "[1,null]",
        '{"a":1}',
    ]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_gives_a_script_and_answers(cli, monkeypatch, shell):
    monkeypatch.setenv("_REFDELTA_COMPLETE", f"{shell}_source")
    if shell != "bash":  # click asks the machine's bash for its version
        script = cli()
        assert script.status == 0
        assert "_REFDELTA_COMPLETE" in script.out
        assert "Usage" not in script.out
    monkeypatch.setenv("_REFDELTA_COMPLETE", f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", "hist" if shell == "fish" else "refdelta hist")
    monkeypatch.setenv("COMP_CWORD", "hist" if shell == "fish" else "1")
    if shell == "fish":
        monkeypatch.setenv("COMP_WORDS", "refdelta hist")
    answer = cli()
    assert answer.status == 0
    assert "history" in answer.out
    assert "vacuum" not in answer.out


@pytest.mark.parametrize("words", ["read fl", "write flights a", "merge flights a", "clone t u"])
def test_completion_of_paths(cli, monkeypatch, words):
    monkeypatch.setenv("_REFDELTA_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"refdelta {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
    assert cli().out == f"file,{words.split()[-1]}\n"


WIDE = [f"column{number}" for number in range(60)]


@pytest.fixture
def terminal(monkeypatch):
    """Output as on a terminal of 80 columns."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")


def test_a_row_of_many_columns_is_a_list_on_a_terminal(terminal, capsys):
    echo_table(WIDE, [range(60), [None] * 59 + [7]])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("─── 1 ")
    assert lines[1].split() == ["column0", "0"]
    assert [line.split() for line in lines[61:]] == [["───", "2"], ["column59", "7"]], "empty values are left out"
    assert max(map(len, lines)) < 80


def test_a_table_that_fits_is_a_table_on_a_terminal(terminal, capsys):
    echo_table(["id", "name"], [(1, "one"), (22, "two")], right=["id"])
    assert capsys.readouterr().out.splitlines() == ["id   name", "─" * 9, " 1   one", "22   two"]


def test_few_long_columns_are_wrapped_on_a_terminal(terminal, capsys):
    echo_table(["id", "text"], [(1, "y" * 100)])
    out = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out)
    assert out.count("y") == 100
    assert max(map(len, out.splitlines())) <= 80


def test_a_cell_that_would_take_many_lines_makes_a_list(terminal, capsys):
    echo_table(["id", "text"], [(1, "y" * 300)])
    assert capsys.readouterr().out.splitlines() == ["─── 1 ", "id    1", f"text  {'y' * 300}"]


def test_in_a_pipe_nothing_is_cut(capsys):
    echo_table(WIDE, [range(60)])
    heading, _, row = capsys.readouterr().out.splitlines()
    assert (heading.split(), row.split()) == (WIDE, list(map(str, range(60))))
    echo_table(["a", "b"], [("two\nlines", 1), ("漢字", 2)])
    assert capsys.readouterr().out.splitlines() == ["a       b", "─" * 9, "two     1", "lines", "漢字    2"]


def test_rows_are_printed_before_the_last_one_is_there(capsys):
    def rows():
        for number in range(3_000):
            if number == 2_999:
                assert "1999" in capsys.readouterr().out
            yield (number, "x" * number)

    echo_table(["n", "text"], rows())
    assert capsys.readouterr().out.splitlines()[-1] == f"{2_999:<3}    {'x' * 2_999}".replace("2999    ", "2999   ")


@pytest.mark.tier("test")
@pytest.mark.parametrize("quiet", [True, False])
def test_errors_are_red_on_a_terminal(quiet):
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | (
        {"NO_COLOR": "1"} if quiet else {}
    )
    ours, stderr = pty.openpty()
    command = [sys.executable, "-m", "refdelta", "read"]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr, env=environment)
    os.close(stderr)
    said = b""
    with contextlib.suppress(OSError):
        while block := os.read(ours, 4096):
            said += block
    os.close(ours)
    assert running.wait(timeout=120) == 1
    assert (b"\x1b[31mrefdelta:" in said) is not quiet
    assert b"refdelta:" in said
