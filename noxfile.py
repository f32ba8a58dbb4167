"""Environments of the tests beside `.venv`: `.venv/bin/nox -l` lists them, `nox -s NAME -- ARGUMENTS` runs one.

`newest`, `floors` and `pythons` run tests of `make check`: with `--part 8` those of every eighth file, with a path only
its tests; other arguments are pytest's. The newest versions are those of `NEWEST_OF`, so that one commit has one
verdict, or of today by `--today`. `nox --install-only` sets up the environments of recipes and libraries for the tests
that follow.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
import tempfile
import tomllib
from collections import defaultdict
from pathlib import Path

import nox
from packaging.requirements import Requirement

nox.options.default_venv_backend = "uv"
nox.options.download_python = "never"
nox.options.error_on_missing_interpreters = False
nox.options.reuse_venv = "yes"
nox.options.sessions = []  # all of them take hours

# Versions of Python that pyenv has and that are not chosen are not on the path.
_PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
os.environ["PATH"] = os.pathsep.join([os.environ["PATH"], *map(str, _PYENV.glob("3.*/bin"))])

ROOT = Path(__file__).parent
PINS = ROOT / "constraints.txt"
NEWEST_OF = "2026-11-28"
RECIPES = {
    "airflow": ["apache-airflow"],
    "dagster": ["dagster"],
    "prefect": ["prefect"],
    # dbt-core 1.12 comes with a parser that is fetched from GitHub while it is installed.
    "dbt": ["dbt-core<1.12", "dbt-duckdb"],
    "cron": ["refdelta[cli]"],
}
"""The packages of each scheduler of docs/guide/recipes.md."""
LIBRARIES = {
    "polars": ["polars"],
    "dlt": ["dlt[deltalake]"],
    "ibis": ["ibis-framework[duckdb,polars,deltalake]", "duckdb<2"],  # Ibis 12 calls a method that DuckDB 2 has not
    "dagster": ["dagster-deltalake-pandas", "dagster-deltalake-polars"],
    "daft": ["daft[deltalake]", "pyiceberg"],  # each writer of Daft 0.7.26 imports pyiceberg
    "ray": ["ray[data]"],
    "pandas": ["pandas"],
    "duckdb": ["duckdb"],
    "datafusion": ["datafusion"],
}
"""The packages of each library that uses deltalake."""


# --- versions ---


def _asked(session: nox.Session) -> tuple[argparse.Namespace, list[str]]:
    """The arguments of a session, and the others, which are pytest's."""
    parser = argparse.ArgumentParser(prog=f"nox -s {session.name} --", allow_abbrev=False)
    parser.add_argument("--today", action="store_true", help="the newest versions of today")
    parser.add_argument("--part", type=int, default=1, metavar="N", help="every N-th file of tests")
    return parser.parse_known_args(session.posargs)


def _newest(session: nox.Session) -> list[str]:
    return ["--upgrade", *([] if _asked(session)[0].today else ["--exclude-newer", NEWEST_OF])]


def requirements() -> list[str]:
    """The project with its extras and its tools, but for `spark`, whose pins hold other packages back."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = ",".join(name for name in extras if name not in ("dev", "spark"))
    return ["-e", f"{ROOT}[{wanted}]", *(one for one in extras["dev"] if not one.startswith("refdelta["))]


def lowest() -> list[str]:
    """The lowest versions that pyproject.toml declares, and the pinned pytest, as constraints."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = declared["project"]["optional-dependencies"]
    needed = list(declared["tool"]["hatch"]["metadata"]["hooks"]["custom"]["dependencies"])
    needed += [one for name in extras if name != "dev" for one in extras[name]]
    found = {
        one.name: part.version for one in map(Requirement, needed) for part in one.specifier if part.operator == ">="
    }
    # Not every pin: some tools need newer versions of these dependencies, and uv then chooses older ones.
    pins = dict(line.split("==") for line in PINS.read_text().split())
    found |= {name: version for name, version in pins.items() if name.startswith(("pytest", "hypothesis"))}
    return [f"{name}=={version}" for name, version in sorted(found.items())]


# --- the tests of make check ---


@nox.session
def newest(session: nox.Session) -> None:
    """The newest versions that the extras allow."""
    session.install(*_newest(session), *requirements())
    _check(session)


@nox.session
def floors(session: nox.Session) -> None:
    """The lowest versions that pyproject.toml declares."""
    constraints = Path(session.create_tmp(), "floors.txt")
    constraints.write_text("\n".join(lowest()) + "\n")
    session.install("-c", str(constraints), *requirements())
    _check(session)


@nox.session(python=["3.12", "3.13", "3.14"])
def pythons(session: nox.Session) -> None:
    """The pinned versions on other versions of Python, where these are installed."""
    session.install("-c", str(PINS), *requirements())
    _check(session)


def _check(session: nox.Session) -> None:
    asked, rest = _asked(session)
    if not any((ROOT / one.partition("::")[0]).exists() for one in rest):
        rest += part(asked.part)
    session.run(
        *("python", "-m", "pytest", "--tier", "check", "-m", "not spark"),
        *("-n", "auto", "--maxprocesses", "4", "--dist", "loadgroup", *rest),
    )


def part(parts: int) -> list[str]:
    """One of so many parts of the files of tests, without those that import pyspark."""
    files = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))
    on_spark = ("tests/spark/", "tests/oracle/", "tests/cli/test_cross")
    return [name for name in files if not name.startswith(on_spark)][::parts]


# --- the blocks of the documents, each page with just what it installs ---


def installed_by(page: str) -> tuple[frozenset[str], frozenset[str]]:
    """The extras of refdelta and the other packages that the text of a page installs. refdelta alone if it says
    nothing.
    """
    extras, others = set(), set()
    for command in re.findall(r"pip\s+install\s+([^`#]+?)\s*(?:`|#|\n\n|\n```)", page):
        words = iter(shlex.split(command))
        for word in words:
            if word == "--target":
                next(words)
            elif own := re.search(r"(?:refdelta.*|^\.)\[([\w,]+)\]$", word):
                extras |= set(own[1].split(","))
            elif word[0] not in "-." and not word.endswith(".whl") and word != "refdelta":
                others.add(word)
    return frozenset(extras), frozenset(others)


def pages() -> dict[tuple[frozenset[str], frozenset[str]], list[Path]]:
    """The pages with blocks to run, by what they install."""
    found = defaultdict(list)
    for page in sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs/guide").glob("*.md")]):
        text = page.read_text()
        if re.search(r"^ *```(python|console)$", text, re.MULTILINE):
            found[installed_by(text)].append(page)
    return found


def _named(extras: frozenset[str], others: frozenset[str]) -> str:
    return "+".join([*sorted(extras), *sorted(others)]) or "refdelta"


@nox.session(reuse_venv=False)
@nox.parametrize(
    ("extras", "others", "found"),
    [nox.param(*installed, found, id=_named(*installed)) for installed, found in pages().items()],
)
def documents(session: nox.Session, extras: frozenset[str], others: frozenset[str], found: list[Path]) -> None:
    """The blocks of the pages that install the same, at the pinned versions."""
    pinned = ["-c", str(PINS), "-b", str(PINS)]
    built = [f"--reinstall-package={name}" for name in ("refdelta", "refdelta-core")]  # not of an older tree
    session.install(*pinned, *built, f"refdelta[{','.join(sorted(extras))}] @ {ROOT.as_uri()}", *sorted(others))
    for page in found:
        with tempfile.TemporaryDirectory() as empty, session.chdir(empty):
            # -P: the folder of the script is none that the reader of the page has.
            session.run("python", "-P", str(ROOT / "tests/packaging/page_blocks.py"), str(page))


# --- other programs ---


@nox.session
@nox.parametrize("tool", list(RECIPES), ids=list(RECIPES))
def recipes(session: nox.Session, tool: str) -> None:
    """The recipe for a scheduler, which is installed with refdelta."""
    session.install(*_newest(session), *RECIPES[tool], "-e", str(ROOT))
    _test(session, "tests/packaging/test_recipes.py", tool)


@nox.session
@nox.parametrize("library", list(LIBRARIES), ids=list(LIBRARIES))
def libraries(session: nox.Session, library: str) -> None:
    """The script of a library that uses deltalake, in a folder and on S3, with refdelta under that name."""
    never = Path(session.create_tmp(), "never.txt")
    never.write_text("deltalake; sys_platform == 'none'\n")  # in the place of what the packages require
    session.install(*_newest(session), "--override", str(never), *LIBRARIES[library], "-e", f"{ROOT}[s3]")
    session.run_install("python", "-m", "refdelta.compat", "install", silent=True)
    _test(session, "tests/compat/test_libraries.py", library)


def _test(session: nox.Session, file: str, name: str) -> None:
    """Run the tests of an environment, by the Python that runs nox."""
    session.run(sys.executable, "-m", "pytest", "-rP", file, "-k", name, *_asked(session)[1], external=True)


@nox.session
def beside(session: nox.Session) -> None:
    """The versions of popular packages alone and beside refdelta (.ci/beside.py)."""
    session.install("-c", str(PINS), "uv")
    asked, rest = _asked(session)
    session.run("python", ".ci/beside.py", *([] if asked.today else ["--day", NEWEST_OF]), *rest)
