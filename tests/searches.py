"""Long searches for counterexamples, each by its name: ``make search NAME=kills``, or ``python -m searches kills``.

What the name is followed by goes to the program: ``make search NAME=kills ARGS="300 7"``. Without a name the searches
are listed. ``make nightly`` runs those with ``nightly`` arguments, with a seed that it takes from the commit.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).resolve().parent
SEED: Final = "{seed}"
"""In the arguments of a nightly run: the seed of the commit. ``{last}`` is the last of twenty from it on."""


@dataclass(frozen=True)
class Search:
    """A program that looks for a counterexample until it has used up what it was given.

    Attributes:
        about: what it does, and how long it takes.
        command: the arguments of Python that start it, from the folder of the tests.
        usual: its arguments where none are given.
        nightly: its arguments at night; None for a search that takes too long for a night, or needs more than the
            tests do.
        servers: True if it needs the servers of the tests.
        env: variables of its environment.
        variable: the variable of its environment that takes the arguments; by default its command line does.
    """

    about: str
    command: tuple[str, ...]
    usual: tuple[str, ...] = ()
    nightly: tuple[str, ...] | None = None
    servers: bool = False
    env: tuple[tuple[str, str], ...] = ()
    variable: str | None = None

    def run(self, arguments: Sequence[str]) -> int:
        """Run it, and return its exit code."""
        env = {**os.environ, **dict(self.env), "PYTHONPATH": str(TESTS)}
        command = [sys.executable, *self.command]
        if self.variable:
            env[self.variable] = " ".join(arguments)
        else:
            command += arguments
        return subprocess.run(command, cwd=TESTS.parent, env=env, check=False).returncode

    def at_night(self, seed: int) -> list[str] | None:
        """The arguments of a nightly run with this seed; None if it is left out at night."""
        if self.nightly is None:
            return None
        return [argument.format(seed=seed, last=seed + 19) for argument in self.nightly]


def _tests(*arguments: str) -> tuple[str, ...]:
    return ("-m", "pytest", "-q", *arguments)


SEARCHES: Final = {
    "names": Search(
        "the names of deltalake that libraries on PyPI take, into tests/compat/library_names.toml (ARGS='polars dlt')",
        ("tests/compat/names.py",),
    ),
    "histories": Search(
        "delta-spark writes random histories of tables, which are read, compared and verified (15 s each; ARGS=0-99)",
        _tests("tests/oracle/test_random_tables.py"),
        usual=("0-99",),
        nightly=("{seed}-{last}",),
        variable="REFDELTA_HISTORIES",
    ),
    "programs": Search(
        "programs in which any two features meet, by delta-spark and refdelta in turns (minutes)",
        _tests("tests/oracle/test_features_together.py"),
    ),
    "serial": Search(
        "random programs of concurrent transactions that must equal a serial order (ARGS='--seeds 0-999')",
        ("-m", "serial"),
        usual=("--seeds", "0-999"),
    ),
    "specification": Search(
        "the specification of the commit protocol (spec_notes/quint): run it, replay its traces through the core",
        ("-m", "model.specification"),
        nightly=("--samples", "5000", "--seed", SEED),
        servers=True,
    ),
    "precision": Search(
        "how often the engine commits where a judge of serial orders would, into spec_notes/precision.md",
        ("-m", "model.precision"),
    ),
    "precision-spark": Search(
        "asks delta-spark about each history of the search precision, before it (minutes)",
        ("-m", "model.delta_spark"),
    ),
    "puts": Search(
        "50 writers in five processes race for one object, 100 times, on disk, S3, Azure and GCS (minutes)",
        ("tests/storage/races.py",),
        nightly=(),
        servers=True,
    ),
    "races": Search(
        "ten processes that append and change rows of one table on S3 and on Azure (minutes)",
        _tests("tests/backends/test_processes.py", "-s"),
        nightly=(),
        servers=True,
        env=(("REFDELTA_RACES", "full"),),
    ),
    "faults": Search(
        "writers on S3 and Azure while requests are lost, repeated and cut, and servers end (minutes)",
        ("-m", "faults.campaign"),
        nightly=("--seed", SEED),
        servers=True,
    ),
    "fuzz": Search(
        "a million changed logs, checkpoints, vectors, data files, schemas and predicates (minutes)",
        ("-m", "fuzz.run"),
        usual=("--inputs", "1000000"),
        nightly=("--inputs", "300000", "--seed", SEED),
    ),
    "growth": Search(
        "texts, commits and tables that grow: does anything cost more than it is long?",
        ("-m", "growth"),
        nightly=("--texts", "100", "--commits", "100", "--seed", SEED),
    ),
    "kills": Search(
        "kill writers at random moments, on disk and on S3; delta-spark reads what is left (ARGS='300 SEED')",
        ("-m", "kills"),
        usual=("300", "20261121"),
        nightly=("300", SEED),
        servers=True,
    ),
    "kills-catalogs": Search(
        "the same with tables of a catalog in SQLite and in PostgreSQL, which is restarted under load",
        ("-m", "kills.catalogs"),
        usual=("300", "20261121"),
        nightly=("150", SEED),
    ),
    "kills-follow": Search(
        "kill readers that follow a table and copy it, beside writers: each change once (a minute or two)",
        ("-m", "kills.following"),
        usual=("100", "20261121"),
        nightly=("100", SEED),
    ),
    "kills-cluster": Search(
        "statements on a Spark cluster of this machine while executors, tasks and drivers are killed (hours)",
        ("-m", "kills.cluster"),
        usual=("300", "20261121"),
    ),
    "soak": Search(
        "two libraries make, write, remove and make anew the tables of one folder (ARGS='SECONDS SEED'; an hour)",
        ("-m", "kills.soak"),
        usual=("3600", "20261121"),
        nightly=("900", SEED),
    ),
    "spark-settings": Search(
        "each setting of a Spark session changed, one at a time: reads, writes and MERGE as at the defaults (an hour)",
        ("-m", "spark.settings"),
    ),
    "clients": Search(
        "refdelta serve under clients from PyPI and, built by cargo, in Rust (minutes)",
        _tests(
            "tests/catalog/test_foreign_client.py", "tests/catalog/test_rust_client.py", "tests/catalog/test_golden.py"
        ),
        env=(("REFDELTA_RUST", "1"),),
    ),
    "verify": Search(
        "the tests of the API once more, and the data of every table that they leave is verified, too (minutes)",
        _tests("tests/api", "-m", "not spark", "-n", "auto"),
        env=(("REFDELTA_VERIFY", "full"),),
    ),
}


def main(arguments: Sequence[str]) -> int:
    """List the searches, or run one."""
    if not arguments:
        width = max(map(len, SEARCHES))
        print(*(f"{name:{width}}  {search.about}" for name, search in SEARCHES.items()), sep="\n")
        return 0
    name, *rest = arguments
    if name not in SEARCHES:
        print(f"there is no search {name!r}; there are: {', '.join(SEARCHES)}", file=sys.stderr)
        return 2
    return SEARCHES[name].run(rest or SEARCHES[name].usual)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
