"""Every test, every environment and the long searches, one after the other, into one page: ``make nightly``.

Random tests and searches take their seed from the hash of the commit, so each night tries something new, and a night
can be repeated: the page has the command of each part. A part that fails, or takes longer than its limit, does not keep
the others from running. The page and the whole output of each part are in ``.cache/nightly/<commit>``.

    python .ci/nightly.py                      all parts
    python .ci/nightly.py tests search-kills   these parts
    python .ci/nightly.py --list               the names of all parts
"""

from __future__ import annotations

import argparse
import html
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import searches  # noqa: E402 - beside the tests

SEEDS = 2**31
TAIL = 60
"""Lines of the output of a part that the page shows."""
HOURS = 3600


@dataclass(frozen=True)
class Part:
    """A command of the night.

    Attributes:
        name: on the command line and on the page.
        about: what it does.
        command: run in the root of the project.
        limit: seconds until it is ended.
    """

    name: str
    about: str
    command: tuple[str, ...]
    limit: float = 2 * HOURS


@dataclass(frozen=True)
class Result:
    """The end of a part: its exit code, None where it was ended at its limit, and its seconds."""

    part: Part
    code: int | None
    seconds: float
    output: str

    @property
    def verdict(self) -> str:
        """``ok``, ``failed`` or ``ended at its limit``."""
        if self.code is None:
            return f"ended after {self.part.limit:.0f} s"
        return "ok" if self.code == 0 else "failed"


def parts(seed: int) -> list[Part]:
    """All parts, with this seed."""
    python = sys.executable
    pytest = (python, "-m", "pytest", "-q", "-n", "auto", "--maxprocesses", "4", "--dist", "loadgroup")
    found = [
        Part("servers", "installs the servers of the tests", (python, "tests/servers/install.py")),
        Part("tests", "every test and every example", (*pytest, "--hypothesis-seed", str(seed)), 6 * HOURS),
    ]
    found += [
        Part(f"environment-{name}", about, (python, "-m", "nox", "-s", name, "--", "--today"), 2 * HOURS)
        for name, about in ENVIRONMENTS.items()
    ]
    for name, search in searches.SEARCHES.items():
        arguments = search.at_night(seed)
        if arguments is not None:
            found.append(Part(f"search-{name}", search.about, (python, "-m", "searches", name, *arguments)))
    mutations = (python, "-m", "mutations", "--tier", "test", "--seed", str(seed), "--count", "20")
    found.append(Part("mutations", "twenty changes of the code: does make test find them?", mutations, 5 * HOURS))
    return found


ENVIRONMENTS = {
    "newest": "the tests of make check with the newest versions of the day",
    "floors": "the tests of make check with the lowest declared versions",
    "pythons": "the tests of make check with other versions of Python",
    "documents": "the blocks of each page, with just what the page installs",
    "recipes": "the recipes for schedulers",
    "libraries": "libraries that use deltalake, with refdelta in its place",
}


def run(part: Part, seed: int, folder: Path) -> Result:
    """Run a part, print its verdict, and keep its output in the folder."""
    print(f"{part.name}: {shlex.join(part.command)}", flush=True)
    env = {
        **os.environ,
        "CI": "true",  # nothing is skipped for want of a server
        "HYPOTHESIS_PROFILE": "dev",  # other examples each night; by --hypothesis-seed the same ones again
        "REFDELTA_SEED": str(seed),
        "PYTHONPATH": str(ROOT / "tests"),
    }
    log, start = folder / f"{part.name}.log", time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            part.command, cwd=ROOT, env=env, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code: int | None = process.wait(part.limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = None
    result = Result(part, code, time.monotonic() - start, log.read_text(errors="replace"))
    print(f"    {result.verdict}, {result.seconds:.0f} s", flush=True)
    return result


PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>refdelta, nightly run of {commit}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }}
table {{ border-collapse: collapse; width: 100% }}
td, th {{ text-align: left; padding: .3rem .6rem; vertical-align: top }}
tr {{ border-top: 1px solid #ccc }} .ok {{ color: #0a7d33 }} .failed {{ color: #b3261e; font-weight: 600 }}
pre {{ background: #f5f5f5; padding: .6rem; overflow-x: auto; white-space: pre-wrap }}
</style>
<h1>Nightly run of {commit}</h1>
<p>{began}, seed {seed}. {failed} of {count} parts failed.</p>
<table><tr><th>part<th>verdict<th>seconds<th>content</tr>
{rows}
</table>
"""


def page(results: list[Result], commit: str, seed: int, began: str) -> str:
    """The report."""
    rows = []
    for result in results:
        kind = "ok" if result.code == 0 else "failed"
        tail = "\n".join(result.output.splitlines()[-TAIL:])
        opened = "" if result.code == 0 else " open"
        rows.append(
            f"<tr><td>{result.part.name}<td class={kind}>{result.verdict}<td>{result.seconds:.0f}"
            f"<td>{html.escape(result.part.about)}<details{opened}><summary>output</summary>"
            f"<pre>{html.escape('$ ' + shlex.join(result.part.command))}\n{html.escape(tail)}</pre></details></tr>"
        )
    failed = sum(result.code != 0 for result in results)
    return PAGE.format(
        commit=commit, seed=seed, began=began, failed=failed, count=len(results), rows="\n".join(rows)
    ).replace(str(ROOT), ".")


def main() -> int:
    """Run the parts; 1 if one failed."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("parts", nargs="*", help="all unless some are named")
    arguments.add_argument("--list", action="store_true", help="print the names of the parts, and run nothing")
    given = arguments.parse_args()
    if given.list:
        print(*(f"{part.name:24} {part.about}" for part in parts(0)), sep="\n")
        return 0
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"],  # noqa: S607 - wherever it is installed
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    seed = int(commit[:8], 16) % SEEDS
    known = {part.name: part for part in parts(seed)}
    if unknown := [name for name in given.parts if name not in known]:
        arguments.error(f"no part is named {unknown[0]!r}; --list prints all")
    folder = ROOT / ".cache" / "nightly" / commit[:12]
    folder.mkdir(parents=True, exist_ok=True)
    began, results = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), list[Result]()
    for name in given.parts or known:
        results.append(run(known[name], seed, folder))
        # After each part, so that a night that is cut short has a page, too.
        (folder / "report.html").write_text(page(results, commit[:12], seed, began))
    print(f"the report: {(folder / 'report.html').relative_to(ROOT)}")
    return int(any(result.code != 0 for result in results))


if __name__ == "__main__":
    sys.exit(main())
