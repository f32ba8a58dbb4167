"""The tests of `make check` in further environments: the lowest declared versions, and other versions of Python.

`floors` installs the lowest version of each dependency that pyproject.toml declares, and the pinned pytest,
into .venv-floors. `newest` installs the newest versions that the extras allow, without the pins of `spark`, into
.venv-newest: those of the day of `NEWEST_OF`, so that one commit has one verdict, or of today by `--today`.
`3.12` and others install the pinned versions into .venv-3.12. A version of Python that is not installed is named and
passed over. `--part 4` before them runs every fourth file of tests, without those on Spark.

`recipes` installs each scheduler of docs/guide/recipes.md with refdelta into .venv-recipes-NAME, and runs its recipe;
`recipes dagster dbt` only these. `--install` before it leaves their recipes to the tests that follow.
`libraries` installs each library that uses deltalake without it, and with refdelta under its name, into
.venv-libraries-NAME, and runs its script of tests/compat/libraries in a folder, and on S3 by the server of the tests;
`libraries dlt ray` only these. Their versions are the newest of `NEWEST_OF`, or of today by `--today`.
`documents` runs the blocks of each page, each in an environment that has the pinned versions of just what the page
installs, in .venv-documents. Pages that install the same share one.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
CORE = ROOT / "refdelta" / "core"
"""The second distribution of this tree, which the first one depends on."""
_TESTS = ["--tier", "check", "-m", "not spark", "-n", "auto", "--maxprocesses", "4", "--dist", "loadgroup"]
NEWEST_OF = "2026-11-25"
RECIPES = {
    "airflow": ["apache-airflow"],
    "dagster": ["dagster"],
    "prefect": ["prefect"],
    # dbt-core 1.12 comes with a parser that is fetched from GitHub while it is installed.
    "dbt": ["dbt-core<1.12", "dbt-duckdb"],
}
"""The packages of each scheduler of the recipes."""
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
_LARGE = ("mypy",)  # its tests are none of make check


def floors() -> list[str]:
    """The lowest versions as constraints: ``name==version`` of each ``name>=version``, and the pins of pytest."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = told["project"]["optional-dependencies"]
    needed = told["tool"]["hatch"]["metadata"]["hooks"]["custom"]["dependencies"]
    found = {}
    for wanted in [*needed, *(one for name in extras if name != "dev" for one in extras[name])]:
        if lowest := re.match(r"([\w.-]+)>=([\w.]+)", wanted):
            found[lowest.group(1)] = lowest.group(2)
    # Not every pin: some tools need newer versions of these dependencies, and uv then chooses older ones.
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
    found |= {name: version for name, version in pins.items() if name.startswith(("pytest", "hypothesis"))}
    return [f"{name}=={version}" for name, version in sorted(found.items())]


def requirements(*, whole: bool) -> list[str]:
    """The project with its extras and tools of development; if not ``whole``, without the large ones that
    :func:`part` does without, and without ``spark``, whose pins hold others back.
    """
    if whole:
        return ["-e", f"{ROOT}[dev]"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = ",".join(name for name in extras if name not in ("dev", "spark"))
    return [
        "-e",
        f"{ROOT}[{wanted}]",
        *(one for one in extras["dev"] if not one.startswith(("refdelta[", *_LARGE))),
    ]


def part(files: list[str], parts: int) -> list[str]:
    """One of so many parts of the files of tests, without those for which pyspark has to be installed: the versions of
    Spark are pinned exactly.
    """
    others = [name for name in files if not name.startswith(("tests/spark/", "tests/oracle/", "tests/cli/test_cross"))]
    return others[::parts]


def python_of(version: str) -> str | None:
    """An interpreter of this version: on the path, or of pyenv or uv."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    managed = sorted(versions.glob(f"{version}.*/bin/python")) + sorted(
        (Path.home() / ".local/share/uv/python").glob(f"cpython-{version}.*/bin/python")
    )
    for candidate in (shutil.which(f"python{version}"), *reversed(managed)):
        # A shim of pyenv is on the path, too, if its version is not chosen, and fails.
        if candidate and subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return str(candidate)
    return None


def uv() -> str:
    """The program uv, which finds versions that fit together in seconds, where pip may take many minutes."""
    folder = ROOT / ".cache" / "uv"
    if not (folder / "bin" / "uv").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run(
            [folder / "bin" / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", "uv"], check=True
        )
    return str(folder / "bin" / "uv")


def _interpreter(folder: Path, python: str) -> Path:
    """The interpreter of an environment, which is made if it is missing."""
    if not folder.exists():
        subprocess.run([python, "-m", "venv", folder], check=True)
    return folder / "bin" / "python"


def recipes_folder(tool: str) -> Path:
    """The environment of a scheduler."""
    return ROOT / f".venv-recipes-{tool}"


def install_recipes(tools: list[str], newest_of: list[str]) -> None:
    """Install schedulers, each with refdelta in an environment of its own."""
    for tool in tools:
        folder = recipes_folder(tool)
        inside = _interpreter(folder, sys.executable)
        install = [uv(), "pip", "install", "-q", "--python", inside, "--upgrade", *newest_of]
        subprocess.run([*install, *RECIPES[tool], "-e", ROOT], check=True)


def libraries_folder(name: str) -> Path:
    """The environment of a library that uses deltalake."""
    return ROOT / f".venv-libraries-{name}"


@contextmanager
def s3_server() -> Iterator[Any]:
    """The server of the tests for S3. None where it cannot be had, which is an error if CI=true."""
    sys.path.append(str(ROOT / "tests"))
    from servers.install import ServerUnavailableError
    from servers.running import S3Server

    try:
        server = S3Server().start()
    except ServerUnavailableError as error:
        if os.environ.get("CI", "").lower() in ("1", "true"):
            raise
        print(f"S3: passed over, {error}", flush=True)
        yield None
        return
    try:
        yield server
    finally:
        server.stop()


def libraries(names: list[str], newest_of: list[str]) -> bool:
    """Run the script of each library in a folder and on S3, in an environment where deltalake is refdelta's. Returns
    True if one failed.
    """
    failed = False
    with s3_server() as server:
        for name in names:
            inside = _interpreter(libraries_folder(name), sys.executable)
            with tempfile.TemporaryDirectory() as empty:
                never = Path(empty, "never.txt")
                never.write_text("deltalake; sys_platform == 'none'\n")  # in the place of what the packages require
                install = [uv(), "pip", "install", "-q", "--python", inside, "--upgrade", *newest_of]
                wanted = ["--override", never, *LIBRARIES[name], "-e", f"{ROOT}[s3]"]
                subprocess.run([*install, *wanted], check=True)
            subprocess.run([inside, "-m", "refdelta.compat", "install"], check=True, stdout=subprocess.DEVNULL)
            places = [[], [server.place(name).uri, json.dumps(server.of_deltalake())]] if server else [[]]
            for arguments in places:
                with tempfile.TemporaryDirectory() as empty:
                    command = [inside, "-P", ROOT / "tests/compat/library.py", name, *arguments]
                    # An option that a library loses must not lead to a cloud.
                    here = {**os.environ, **(server.of_deltalake() if server else {})}
                    done = subprocess.run(command, cwd=empty, env=here, capture_output=True, text=True, check=False)
                told = done.stderr if done.returncode else done.stdout.splitlines()[-1]
                print(f"{told}{' on S3' if arguments else ''}", flush=True)
                failed |= done.returncode != 0
    return failed


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


def documents() -> bool:
    """Run the blocks of each page with just what it installs. Returns True if a page failed."""
    folder = ROOT / ".venv-documents"
    shutil.rmtree(folder, ignore_errors=True)
    pinned = ["-c", str(ROOT / "constraints.txt")]
    for tree in (CORE, ROOT):
        command = [uv(), "build", "-q", "--wheel", "-b", pinned[1], "--out-dir", folder, tree]
        subprocess.run(command, check=True, env={**os.environ, "REFDELTA_RELEASE": "1"})
    (core,), (wheel,) = folder.glob("refdelta_core-*.whl"), folder.glob("refdelta-*.whl")

    def run(number: int, installed: tuple[frozenset[str], frozenset[str]], found: list[Path]) -> int:
        extras, others = installed
        own = [f"refdelta-core @ {core.as_uri()}", f"refdelta[{','.join(sorted(extras))}] @ {wheel.as_uri()}"]
        inside = folder / str(number) / "bin" / "python"
        subprocess.run([uv(), "venv", "-q", "--python", sys.executable, folder / str(number)], check=True)
        subprocess.run([uv(), "pip", "install", "-q", "--python", inside, *pinned, *own, *sorted(others)], check=True)
        failed = 0
        for page in found:
            with tempfile.TemporaryDirectory() as empty:
                # -P: the folder of the script is none that the reader of the page has.
                command = [inside, "-P", ROOT / "tests/packaging/page_blocks.py", page]
                done = subprocess.run(command, cwd=empty, capture_output=True, text=True, check=False)
            told = done.stderr if done.returncode else "runs"
            print(f"{page.relative_to(ROOT)}, {', '.join(['refdelta', *sorted(extras | others)])}: {told}", flush=True)
            failed += done.returncode != 0
        return failed

    sets = pages().items()
    with ThreadPoolExecutor(2) as pool:
        return sum(pool.map(run, range(len(sets)), *zip(*sets, strict=True))) > 0


def main(names: list[str]) -> int:
    """Set up each environment and run the tests there. Returns 1 if a test failed."""
    failed, parts, newest_of = False, 0, ["--exclude-newer", NEWEST_OF]
    found = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))
    if names[:1] == ["--today"]:
        newest_of, names = [], names[1:]
    if (only := names[:1] == ["--install"]) or names[:1] == ["recipes"]:
        tools = names[names.index("recipes") + 1 :] or list(RECIPES)
        install_recipes(tools, newest_of)
        test = ["tests/packaging/test_recipes.py", "-k", " or ".join([*tools, "cron"])]
        return 0 if only else subprocess.run([sys.executable, "-m", "pytest", *test], cwd=ROOT, check=False).returncode
    if names[:1] == ["libraries"]:
        return int(libraries(names[1:] or list(LIBRARIES), newest_of))
    if names[:1] == ["--part"]:
        parts, names = int(names[1]), names[2:]
    for name in names:
        if name == "documents":
            failed |= documents()
            continue
        python = sys.executable if name in ("floors", "newest") else python_of(name)
        if python is None:
            print(f"Python {name}: not installed, passed over")
            continue
        folder = ROOT / f".venv-{name}"
        given = ["-c", str(ROOT / "constraints.txt")]
        if name == "floors":
            lowest = ROOT / ".cache" / "floors.txt"
            lowest.parent.mkdir(exist_ok=True)
            lowest.write_text("\n".join(floors()) + "\n")
            given = ["-c", str(lowest)]
        elif name == "newest":
            given = ["--upgrade", *newest_of]
        inside = _interpreter(folder, python)
        whole = not parts and name != "newest"
        install = [uv(), "pip", "install", "-q", "--python", inside, *given, *requirements(whole=whole)]
        subprocess.run(install, check=True)
        files = ["tests"] if whole else part(found, parts or 1)
        print(f"{name}: the tests of make check" + ("" if whole else f", {len(files)} files"), flush=True)
        failed |= subprocess.run([inside, "-m", "pytest", *_TESTS, *files], cwd=ROOT, check=False).returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
