"""How the command behaves as a program: statuses, pipes, interrupts, and errors that nobody foresaw."""

import contextlib
import io
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from refdelta import __version__, write_deltalake
from refdelta.cli import reading
from refdelta.cli.render import cell, size
from refdelta.status_line import StatusLine

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
    out, err = process(code=WITHOUT_CLICK).communicate(timeout=60)
    assert out == b""
    assert err == b"refdelta: the command line needs click; install with: pip install 'refdelta[cli]'\n"


@pytest.mark.sample(check=1)
@pytest.mark.parametrize("shape", ["csv", "json", "table"])
def test_a_closed_pipe_is_no_error(process, tmp_path, shape):
    write_deltalake(tmp_path / "t", pa.table({"n": range(200_000), "text": ["x" * 20] * 200_000}))
    running = process("read", tmp_path / "t", "--format", shape, "--limit", 5000 if shape == "table" else 200_000)
    assert running.stdout.readline()
    running.stdout.close()
    assert running.stderr.read() == b""
    running.stderr.close()
    assert running.wait(timeout=60) == 0


@pytest.mark.sample(check=1)
@pytest.mark.parametrize("shape", ["csv", "json", "table"])
def test_a_full_disk_behind_the_output_is_one_line(table, shape):
    command = [sys.executable, "-m", "refdelta", "read", table, "--format", shape]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (1, b"refdelta: No space left on device\n")


def test_an_interrupt_is_quiet(process):
    # The child sends itself the signal that Ctrl-C sends, where a command is at work.
    code = (
        "import os, signal, sys; from refdelta.cli import app, reading, main; "
        "reading.open_table = lambda *a: os.kill(os.getpid(), signal.SIGINT); "
        "sys.exit(main(['read', 'x']))"
    )
    running = process(code=code)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out, err.strip()) == (128 + signal.SIGINT, b"", b"refdelta: interrupted")


def test_the_live_line_is_drawn_over_itself_on_a_terminal_and_nowhere_else():
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        with StatusLine(stream) as line:
            line.show("1 of 2", force=True)
            line.show("2 of 2", force=True)
    assert pipe.getvalue() == ""
    assert [part.removeprefix("\x1b[2K") for part in terminal.getvalue().split("\r")] == ["", "1 of 2", "2 of 2", ""]


def test_a_write_on_a_terminal_shows_its_progress(tmp_path):
    (tmp_path / "a.csv").write_text("id\n" + "1\n" * 1000)
    ours, terminal = pty.openpty()
    command = [sys.executable, "-m", "refdelta", "write", tmp_path / "t", tmp_path / "a.csv"]
    running = subprocess.Popen(command, stdout=terminal, stderr=terminal, stdin=subprocess.DEVNULL)
    os.close(terminal)
    seen = b""
    with contextlib.suppress(OSError):  # Linux says EIO where the other side has closed
        while block := os.read(ours, 4096):
            seen += block
    os.close(ours)
    assert running.wait(timeout=60) == 0
    assert b"writing 1,000 rows" in seen
    assert b"version 0: 1,000 rows in 1 file" in seen


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
