"""The versions of popular packages that a resolver chooses alone, and in one environment with refdelta.

A package is held back if its version beside refdelta is older; the last columns have the pyarrow and sqlglot of that
environment. `uv` has to be on the path, or is named by UV. As in `.ci/environments.py newest`, the versions are those
of the day of `NEWEST_OF`, or of today by `--today`; `--dependency "pyarrow>=26"` tries another minimum version.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import tomllib

from environments import NEWEST_OF, ROOT

PACKAGES = [
    *["mlflow", "sqlmesh", "daft", "awswrangler", "dbt-core", "dagster", "apache-airflow", "prefect", "polars"],
    *["duckdb", "pandas", "ibis-framework[duckdb]", "dlt", "ray", "datasets", "streamlit", "pyiceberg", "deltalake"],
    *["feast", "lancedb", "snowflake-connector-python"],
]


def resolved(requirements: list[str], *options: str) -> dict[str, str]:
    """The versions that fit together, by package; none if there are none. Nothing is installed."""
    uv = [os.environ.get("UV", "uv"), "pip", "compile", "-q", "--python-version", "3.11", "--no-header"]
    done = subprocess.run(
        [*uv, "--no-annotate", *options, "-"],
        input="\n".join(requirements),
        capture_output=True,
        text=True,
        check=False,
    )
    return dict(re.findall(r"^([\w.-]+)==(\S+)", done.stdout, re.MULTILINE))


def main(arguments: list[str]) -> int:
    """Print the table. Returns 1 if refdelta holds a package back."""
    day = [] if "--today" in arguments else ["--exclude-newer", NEWEST_OF]
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    needed += [value for name, value in itertools.pairwise(arguments) if name == "--dependency"]
    print("| package | alone | beside refdelta | pyarrow there | sqlglot there |\n|---|---|---|---|---|")
    held = 0
    for package in PACKAGES:
        name = package.partition("[")[0]
        alone, beside = resolved([package], *day), resolved([package, *needed], *day)
        held += alone.get(name) != beside.get(name)
        versions = [found.get(name, "none") for found in (alone, beside)]
        print(
            "|",
            " | ".join([package, *versions, *(beside.get(key, "") for key in ("pyarrow", "sqlglot"))]),
            "|",
            flush=True,
        )
    print(f"\n{held} of {len(PACKAGES)} are older beside refdelta.")
    return int(held > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
