"""What the command imports before it works, and Ctrl-C from its first moment to its last.

Tests of cli.program.
"""

import contextlib
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from refdelta import write_deltalake
from refdelta.cli.app import SECTIONS, app, first_sentence
from refdelta.cli.benching import ENGINES as BENCHED
from refdelta.cli.benching import MIXES as BENCH_MIXES
from refdelta.cli.conforming import ENGINES as JUDGED
from refdelta.cli.group import LEVELS
from refdelta.conformance.engines import OWN
from refdelta.core.conflicts.isolation import IsolationLevel
from refdelta.racing.engines import ENGINES
from refdelta.racing.mixes import MIXES, ROWS
from refdelta.racing.throughput import MOST_TABLES

VERBS = {name: verb for verbs in SECTIONS.values() for name, verb in verbs.items()}
HEAVY = (
    "pyarrow",
    "numpy",
    "sqlglot",
    "msgspec",
    "fsspec",
    "rich",
    "refdelta.engine",
    "refdelta.api",
    "refdelta_storage",
)

# Calls the command, and says which modules are there at its end.
MODULES = """
import os, sys
import atexit
atexit.register(lambda: os.write(2, " ".join(sys.modules).encode()))
sys.argv[0] = "refdelta"
from refdelta.cli import main
sys.exit(main())
"""


def modules_after(*arguments, **environment):
    done = subprocess.run(
        [sys.executable, "-c", MODULES, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout
    return done.stderr.split()


def completion_of(words):
    return {"_REFDELTA_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["--version"], {}),
        (["--help"], {}),
        ([], completion_of("refdelta ")),
        ([], completion_of("refdelta write --")),
        (["update", "--help"], {}),
    ],
    ids=str,
)
def test_version_help_and_completion_import_no_engine(arguments, environment):
    found = modules_after(*arguments, **environment)
    assert [name for name in found if name.startswith(HEAVY)] == []
    if not any(name in VERBS for name in [*arguments, *environment.get("COMP_WORDS", "").split()]):
        assert {name for name in found if name.startswith("refdelta.cli.")} == {
            "refdelta.cli.program",
            "refdelta.cli.app",
        }


def test_no_module_of_a_command_imports_an_engine():
    code = (
        "import importlib, sys; from refdelta.cli.app import SECTIONS\n"
        "for verbs in SECTIONS.values():\n"
        "    for verb in verbs.values(): importlib.import_module(f'refdelta.cli.{verb.module}')\n"
        "print(*sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in found if name.startswith(HEAVY)] == []


def test_the_table_of_commands_says_what_the_commands_say():
    for name, verb in VERBS.items():
        command = app.commands[name]
        assert verb.sentence == first_sentence(command), name
        assert command.callback.__module__ == f"refdelta.cli.{verb.module}", name
    assert {*app.commands._added} == {*VERBS}, "a command that the table lacks is not found"


def test_the_help_names_what_the_engines_have():
    assert tuple(level.value for level in IsolationLevel) == LEVELS
    assert tuple(ENGINES) == BENCHED
    assert {name: mix.text for name, mix in MIXES.items()} == BENCH_MIXES
    assert tuple(OWN) == JUDGED
    limits = {option.name: option.type.max for option in app.commands["bench"].params if hasattr(option.type, "max")}
    assert (limits["commits"], limits["tables"]) == (ROWS, MOST_TABLES)


@pytest.mark.parametrize("name", sorted(set(VERBS) - {"catalog"}))
def test_a_commands_own_options_come_first(cli, name):
    shown = cli(name, "--help").out
    order = [shown.find(f"\n{title}:\n") for title in ("Options", "Commit options", "Catalog and store options")]
    there = [place for place in order if place >= 0]
    assert there == sorted(there)
    assert there[0] == order[0] >= 0
    own = shown[order[0] :].split("\n\n")[0]
    assert "\n  --storage-option" not in own
    assert "\n  --catalog-timeout" not in own


# Sends itself Ctrl-C at a chosen moment.
AT = """
import os, signal, sys, importlib.abc
signal.signal(signal.SIGINT, signal.default_int_handler)  # the runner of tests may ignore it

class AtImport(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == os.environ["AT"]:
            os.environ["AT"] = ""
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, AtImport())
if os.environ["AT"] == "the end":
    import threading
    threading._register_atexit(os.kill, os.getpid(), signal.SIGINT)
if os.environ["AT"] == "a callback":
    import refdelta.cli.reading

    class Lost:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)
            "a bytecode after it"

    refdelta.cli.reading.open_table = lambda *_: Lost() and None
if os.environ["AT"] == "a row":
    import refdelta.cli.reading

    def stop(*_):
        print("a row")
        os.kill(os.getpid(), signal.SIGINT)

    refdelta.cli.reading.open_table = stop
sys.argv[0] = "refdelta"
from refdelta.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("moment", "arguments"),
    [
        ("refdelta.cli.program", ["--version"]),
        ("click", ["--version"]),
        ("refdelta.cli.app", ["--help"]),
        ("refdelta.cli.reading", ["read", "t"]),
        ("pyarrow", ["read", "t"]),
        ("refdelta.api.reading", ["read", "t"]),
        ("the end", ["--version"]),
        ("a callback", ["read", "t"]),
    ],
)
def test_ctrl_c_is_one_line_at_any_moment(moment, arguments, tmp_path):
    write_deltalake(tmp_path / "t", pa.table({"id": [1]}))
    done = subprocess.run(
        [sys.executable, "-c", AT, *arguments],
        env={**os.environ, "AT": moment},
        cwd=tmp_path,
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (128 + signal.SIGINT, b"refdelta: interrupted\n")


def test_a_process_that_ignores_ctrl_c_goes_on_to_do_so():
    code = AT.replace("signal.default_int_handler", "signal.SIG_IGN")
    command = [sys.executable, "-c", code, "--version"]
    done = subprocess.run(command, env={**os.environ, "AT": "click"}, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_call_in_a_program_leaves_its_handling_of_ctrl_c(cli):
    before = signal.getsignal(signal.SIGINT)
    assert cli("--version").status == 0
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_with_a_closed_pipe_is_one_line():
    # What nobody reads is dropped, and not complained about when the interpreter ends.
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", AT, "read", "t"],
        env={**os.environ, "AT": "a row", "PYTHONUNBUFFERED": ""},
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGINT, b"refdelta: interrupted\n")


@pytest.mark.tier("test")
def test_ctrl_c_on_a_terminal_reaches_no_process_of_a_race(tmp_path):
    ours, terminal = pty.openpty()
    command = [sys.executable, "-m", "refdelta", "bench", str(tmp_path), "--writers", "2", "--seconds", "60"]
    running = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True)
    os.close(terminal)
    seen = b""
    with contextlib.suppress(OSError):  # Linux says EIO where the other side has closed
        while block := os.read(ours, 4096):
            seen += block
            if b"starting 2 writers" in seen and not seen.endswith(b"^C"):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(running.pid, signal.SIGINT)
                seen += b"^C"
    os.close(ours)
    assert running.wait(timeout=120) == 128 + signal.SIGINT
    assert b"Traceback" not in seen
    assert not [path for path in Path(tmp_path).iterdir() if path.suffix == ".json"]
