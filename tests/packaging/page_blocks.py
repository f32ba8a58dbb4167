"""The blocks of a page: Python that prints what stands below it, and commands that do.

python tests/packaging/page_blocks.py PAGE      runs them in this folder; needs nothing but what the page installs
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# A block of Python, which may stand in a list, and what it prints, if it prints.
PYTHON = re.compile(
    r"^(?P<in> *)```python\n(.*?)^(?P=in)```$(?:\n+^(?P=in)```text\n(.*?)^(?P=in)```$)?", re.MULTILINE | re.DOTALL
)


SERVES = "# until Ctrl-C"
"""The end of a command that is stopped when it has printed what is shown."""


def run_python(page: Path) -> None:
    """Run the blocks of Python, one after the other, with the same names. Raises AssertionError for other output."""
    names: dict[str, Any] = {}
    for number, (_, block, shown) in enumerate(PYTHON.findall(page.read_text())):
        with contextlib.redirect_stdout(io.StringIO()) as found:
            name = f"{page.name}, python block {number}"
            exec(compile(textwrap.dedent(block), name, "exec"), names)
        _check(textwrap.dedent(shown), found.getvalue(), name)


def commands(page: Path) -> Iterator[tuple[str, str]]:
    """The commands of a page, each with what is shown below it."""
    for block in re.findall(r"^```console\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            yield command, shown


def run_commands(page: Path) -> None:
    """Run the commands with those of this Python's environment. Raises AssertionError for other output."""
    clean = {name: value for name, value in os.environ.items() if name != "REFDELTA_DEBUG"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{clean['PATH']}"
    for command, shown in commands(page):
        running = subprocess.Popen(
            ["bash", "-c", command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**clean, "PATH": path, "PYTHONUTF8": "1"},
            start_new_session=True,
        )
        begun = ""
        if command.endswith(SERVES):
            begun = "".join(running.stdout.readline() for _ in shown.splitlines())
            os.killpg(running.pid, signal.SIGTERM)
        printed = begun + running.communicate()[0]
        _check(shown, "".join(line.rstrip() + "\n" for line in printed.splitlines()), f"$ {command}")


def _check(shown: str, printed: str, name: str) -> None:
    if not doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS):
        raise AssertionError(f"{name} prints\n{printed}")


if __name__ == "__main__":
    run_python(Path(sys.argv[1]))
    run_commands(Path(sys.argv[1]))
