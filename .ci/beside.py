"""The versions of popular packages that a resolver chooses alone, and in one environment with refdelta.

A package is held back if its version is older beside refdelta, or that of pyarrow, sqlglot, msgspec or fsspec in its
environment. The table has the versions of these four alone and beside refdelta, and in the last column every package
that is older beside it. With the extra `s3` some are: s3fs needs an aiobotocore, which needs a botocore.

`nox -s beside` runs it with the versions of a day, with `-- --today` those of today. `--dependency "pyarrow>=26"` tries
another minimum version, `--extras s3,pandas` other extras than the usual ones, `--extras ""` none, and
`--only dagster,feast` takes these packages. `uv` has to be on the path; `--day 2026-11-28` are the versions of a day.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]

PACKAGES = [
    *["mlflow", "sqlmesh", "daft", "awswrangler", "dbt-core", "dbt-duckdb", "dagster", "apache-airflow", "prefect"],
    *["polars", "duckdb", "pandas", "ibis-framework[duckdb]", "dlt", "ray[data]", "datasets", "streamlit", "pyiceberg"],
    *["deltalake", "feast", "lancedb", "snowflake-connector-python", "great-expectations", "soda-core"],
    *["delta-sharing", "kedro", "apache-superset", "jupyter"],
]
EXTRAS = "s3,adls,pandas,polars,duckdb,cli"
_SHOWN = ("pyarrow", "sqlglot", "msgspec", "fsspec")


def resolved(requirements: list[str], *options: str) -> dict[str, str]:
    """The versions that fit together, by package; none if there are none. Nothing is installed."""
    uv = ["uv", "pip", "compile", "-q", "--python-version", "3.11", "--no-header"]
    done = subprocess.run(
        [*uv, "--no-annotate", *options, "-"],
        input="\n".join(requirements),
        capture_output=True,
        text=True,
        check=False,
    )
    return dict(re.findall(r"^([\w.-]+)==(\S+)", done.stdout, re.MULTILINE))


def older(alone: dict[str, str], beside: dict[str, str]) -> dict[str, str]:
    """The packages whose version beside refdelta is older, with both versions."""
    both = [name for name in alone if name in beside]
    return {name: f"{alone[name]}, {beside[name]}" for name in both if _numbers(beside[name]) < _numbers(alone[name])}


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def main(arguments: list[str]) -> int:
    """Print the table. Returns 1 if refdelta holds a package back."""
    given = dict(itertools.pairwise(arguments))
    day = ["--exclude-newer", given["--day"]] if "--day" in given else []
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = told["project"]
    extras = [name for name in given.get("--extras", EXTRAS).split(",") if name]
    needed = [*told["tool"]["hatch"]["metadata"]["hooks"]["custom"]["dependencies"]]
    needed += [one for name in extras for one in project["optional-dependencies"][name]]
    needed += [value for name, value in itertools.pairwise(arguments) if name == "--dependency"]
    print(f"| package | alone | beside refdelta[{','.join(extras)}] | {' | '.join(_SHOWN)} | older beside it |")
    print("|---" * (4 + len(_SHOWN)) + "|")
    held = 0
    packages = given["--only"].split(",") if "--only" in given else PACKAGES
    for package in packages:
        name = package.partition("[")[0]
        alone, beside = resolved([package], *day), resolved([package, *needed], *day)
        found = older(alone, beside)
        held += not beside or bool(found.keys() & {name, *_SHOWN})
        both = [alone.get(name, "none"), beside.get(name, "none")]
        shown = [f"{alone[key]}, {beside.get(key)}" if key in alone else beside.get(key, "") for key in _SHOWN]
        print(f"| {' | '.join([package, *both, *shown, '; '.join(map(' '.join, found.items()))])} |", flush=True)
    print(f"\n{held} of {len(packages)} are held back beside refdelta.")
    return int(held > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
