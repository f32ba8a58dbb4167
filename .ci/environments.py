"""The tests of `make check` in further environments: the lowest declared versions, and other versions of Python.

`floors` installs the lowest version of each dependency that pyproject.toml declares, and the pinned pytest,
into .venv-floors. `newest` installs the newest versions that the extras allow, without the pins of `spark`, into
.venv-newest: those of the day of `NEWEST_OF`, so that one commit has one verdict, or of today by `--today`.
`3.12` and others install the pinned versions into .venv-3.12. A version of Python that is not installed is named and
passed over. `--part 4` before them runs every fourth file of tests, without those on Spark.

`recipes` installs each scheduler of docs/guide/recipes.md with refdelta into .venv-recipes-NAME, and runs its recipe;
`recipes dagster dbt` only these. `--install` before it leaves their recipes to the tests that follow.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
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
_LARGE = ("basedpyright", "mypy")  # their tests are none of make check


def floors() -> list[str]:
    """The lowest versions as constraints: ``name==version`` of each ``name>=version``, and the pins of pytest."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    found = {}
    for wanted in [*project["dependencies"], *(one for name in extras if name != "dev" for one in extras[name])]:
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
    return ["-e", f"{ROOT}[{wanted}]", *(one for one in extras["dev"] if not one.startswith(("refdelta[", *_LARGE)))]


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


def recipes_folder(tool: str) -> Path:
    """The environment of a scheduler."""
    return ROOT / f".venv-recipes-{tool}"


def install_recipes(tools: list[str], newest_of: list[str]) -> None:
    """Install schedulers, each with refdelta in an environment of its own."""
    for tool in tools:
        folder = recipes_folder(tool)
        inside = _with_uv(folder, sys.executable)
        uv = [inside, "-m", "uv", "pip", "install", "-q", "--python", inside, "--upgrade", *newest_of]
        subprocess.run([*uv, *RECIPES[tool], "-e", ROOT], check=True)


def _with_uv(folder: Path, python: str) -> Path:
    """The interpreter of an environment, which is made if it is missing, with uv: it finds versions that fit together
    in seconds, pip may take many minutes.
    """
    if not folder.exists():
        subprocess.run([python, "-m", "venv", folder], check=True)
    inside = folder / "bin" / "python"
    subprocess.run([inside, "-m", "pip", "install", "-q", "--disable-pip-version-check", "uv"], check=True)
    return inside


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
    if names[:1] == ["--part"]:
        parts, names = int(names[1]), names[2:]
    for name in names:
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
        inside = _with_uv(folder, python)
        uv = [inside, "-m", "uv", "pip", "install", "-q", "--python", inside]
        whole = not parts and name != "newest"
        subprocess.run([*uv, *given, *requirements(whole=whole)], check=True)
        files = ["tests"] if whole else part(found, parts or 1)
        print(f"{name}: the tests of make check" + ("" if whole else f", {len(files)} files"), flush=True)
        failed |= subprocess.run([inside, "-m", "pytest", *_TESTS, *files], cwd=ROOT, check=False).returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
