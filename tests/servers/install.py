"""``python tests/servers/install.py``: put the servers of the tests into the project's cache, at pinned versions, and
Quint, which runs the specification of the commit protocol (spec_notes/quint).

versitygw (S3) and fake-gcs-server are built by Go from their modules, whose checksums Go's own database vouches for;
Azurite, Quint and all that they need come from npm, at the versions and with the checksums of the ``package-lock.json``
in ``azurite`` and ``quint``, which ``make lock`` writes. All need the network once; what is there already takes no
time. ``REFDELTA_CACHE`` is the cache, ``.cache`` unless said.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
# Without symbolic links: npm takes a folder that it reaches by one for another project.
CACHE = Path(os.environ.get("REFDELTA_CACHE") or ROOT / ".cache").resolve() / "servers"

VERSITYGW_VERSION = "1.8.0"
FAKE_GCS_VERSION = "1.56.1"
AZURITE_LOCK = Path(__file__).parent / "azurite"
AZURITE_VERSION = json.loads((AZURITE_LOCK / "package.json").read_text())["dependencies"]["azurite"]
QUINT_LOCK = Path(__file__).parent / "quint"
QUINT_VERSION = json.loads((QUINT_LOCK / "package.json").read_text())["dependencies"]["@informalsystems/quint"]
VERSITYGW = CACHE / f"versitygw-{VERSITYGW_VERSION}" / "versitygw"
FAKE_GCS = CACHE / f"fake-gcs-server-{FAKE_GCS_VERSION}" / "fake-gcs-server"
AZURITE = CACHE / f"azurite-{AZURITE_VERSION}" / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
QUINT = CACHE / f"quint-{QUINT_VERSION}" / "node_modules" / "@informalsystems" / "quint" / "dist" / "src" / "cli.js"

_GO = "Go 1.25 or later (https://go.dev/dl)"
_NPM = "Node 20 or later with npm (https://nodejs.org)"
HOW = "`make servers` installs it; it needs {tool}"


class ServerUnavailableError(Exception):
    """A server is not installed, or cannot be; the message says in one line what to do."""


def versitygw() -> Path:
    """The program, installed now if it is not there yet. Raises ``ServerUnavailableError``."""
    package = f"github.com/versity/versitygw/cmd/versitygw@v{VERSITYGW_VERSION}"
    return _installed(VERSITYGW, "go", _GO, lambda: _build(package, VERSITYGW))


def fake_gcs() -> Path:
    """The program, installed now if it is not there yet. Raises ``ServerUnavailableError``."""
    package = f"github.com/fsouza/fake-gcs-server@v{FAKE_GCS_VERSION}"
    return _installed(FAKE_GCS, "go", _GO, lambda: _build(package, FAKE_GCS))


def azurite() -> Path:
    """The script that node runs, installed now if it is not there yet. Raises ``ServerUnavailableError``."""
    return _installed(AZURITE, "npm", _NPM, lambda: _fetch(AZURITE_LOCK, CACHE / f"azurite-{AZURITE_VERSION}"))


def quint() -> Path:
    """The script that node runs, installed now if it is not there yet. Raises ``ServerUnavailableError``."""
    return _installed(QUINT, "npm", _NPM, lambda: _fetch(QUINT_LOCK, CACHE / f"quint-{QUINT_VERSION}"))


def _installed(program: Path, tool: str, needs: str, install: object) -> Path:
    if program.exists():
        return program
    if shutil.which(tool) is None:
        raise ServerUnavailableError(f"there is no {tool}: {HOW.format(tool=needs)}")
    assert callable(install)
    with _alone():
        if not program.exists():  # another process may have been quicker
            print(f"installing {program.relative_to(CACHE).parts[0]} into {CACHE}", file=sys.stderr, flush=True)
            install()
    return program


def _build(package: str, program: Path) -> None:
    with _new_folder(program.parent) as folder:
        _run(
            ["go", "install", "-trimpath", "-ldflags=-s -w", package],
            {"CGO_ENABLED": "0", "GOBIN": str(folder), "GOTOOLCHAIN": "auto"},
        )


def _fetch(lock: Path, folder: Path) -> None:
    with _new_folder(folder) as new:
        for file in lock.iterdir():
            shutil.copy(file, new)
        _run(["npm", "ci", "--no-fund", "--no-audit", "--ignore-scripts", "--prefix", str(new)], {})


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """A folder to fill, which gets its name when it is whole."""
    new = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    yield new
    new.rename(folder)


@contextmanager
def _alone() -> Iterator[None]:
    """One installation at a time: several workers of a test run may ask at once."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=1200
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ServerUnavailableError(f"`{' '.join(command[:2])}` failed: {last}")


def main() -> int:
    """Install all; 1 and one line for each that cannot be."""
    failed = 0
    for get in (versitygw, fake_gcs, azurite, quint):
        try:
            print(get().relative_to(CACHE.parent.parent), flush=True)
        except ServerUnavailableError as error:
            print(error, file=sys.stderr)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
