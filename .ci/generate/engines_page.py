"""``make engines``: the page ``docs/engines.md``, from runs of the conformance suite on each engine.

Each run is kept in ``docs/findings/runs``, one file an engine. ``--engine NAME`` runs one engine again (may be
repeated), ``--missing`` only the cases that the run of the same version does not have, ``--page`` none; the page is
written from all runs that are there. A run with the same verdicts as the recorded one of the same version is a day more
of that; of another one the differences are told, and it is the recorded run then.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from formatting import formatted

from refdelta.conformance import Case, cases, engines, run
from refdelta.conformance.cases import ALL_COMMIT
from refdelta.conformance.runner import NEEDLESS, STATUSES, WRONG

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "engines.md"
RUNS = ROOT / "docs" / "findings" / "runs"
KINDS = {"delta-spark": ("statements",)}
"""The kinds of cases that a run has, where it has not all: the corpus has delta-spark's answers to cases of actions."""
LEVELS = ("Serializable", "WriteSerializable", "default")
HEAD = """# What engines make of the conformance suite

Written by `make engines`, which runs [the suite](conformance.md); a test holds the page to the
recorded runs. Nothing stands here that was not run. Each case is a table, two to four transactions,
and the order in which they begin and commit.

- **wrong**: no serial order of the committed transactions leaves the rows that are left.
- **needless**: a commit was refused although a serial order explains it. Documentation allows most
  of these; it is a matter of how much runs side by side, not of soundness.
- **refused**: the engine or its adapter cannot do what the case asks for. It says nothing about
  soundness.

"""
NOTES = {
    "refdelta": "Tables of statements have deletion vectors, so rows decide over conflicts.",
    "refdelta-files": "Tables without deletion vectors, where files decide.",
    "delta-spark": (
        "Defaults of the release. A statement waits before its commit, by an observer of the release. No statement "
        "can set `WriteSerializable`, so the adapter writes that property into version 0. The session has one shuffle "
        "partition, and no code generation. The run has the cases of statements; of the cases of actions the table "
        "above has the recorded answers. An OPTIMIZE that waits before its commit is refused by the adapter: for it "
        "delta-spark runs two transactions, and the observer knows one."
    ),
    "deltalake": "Defaults of the release. A transaction begins when its handle is opened.",
    "delta-kernel": (
        "Kernel is below SQL, and its transactions take actions. They cannot say what they read, so a case in which "
        "that makes a difference is refused: connectors have to check it themselves. It is given removes too, "
        "which it compares with those of other commits."
    ),
    "polars": "Polars writes by deltalake, with modes of its own: append, overwrite and merge.",
    "duckdb": (
        "Appends only, in transactions of DuckDB; the extension has no DELETE, UPDATE and MERGE. Run with the packages "
        "`duckdb` and `duckdb-extension-delta` of one version. A commit that finds its version taken is refused, "
        "also if it is an append, as the extension tries no second version. Here the statements of a transaction run "
        "at its beginning. DuckDB 2.0.1 was not run: on 2026-11-29 its extension could not be fetched, and it does not "
        "load that of 1.5.5, the newest package."
    ),
    "duckdb-late": (
        "The same, but a transaction reads at its beginning, and its statements run just before its COMMIT. The read "
        "fixes the version that the statements see; the commit goes to the newest version all the same, and is "
        "compared with nothing. [The finding](findings/duckdb-insert-after-read.md) has the steps."
    ),
    "pyiceberg": (
        "Another format, with the same questions: Iceberg tables in a SQL catalog on SQLite. Iceberg has no "
        "`WriteSerializable`; its writers' default, `serializable`, is used. UPDATE, INSERT SELECT and compaction are "
        "not there in pyiceberg."
    ),
}
RECORDED = """The cases of actions have the recorded answers of delta-spark's conflict checker (its optimistic
transactions, at 4.4.0), which `tests/oracle/test_transactions.py` compares with delta-spark. Judged by
which transactions committed:
"""
Run = dict[str, Any]


def record(name: str, kinds: Sequence[str], before: Run | None = None) -> Run:
    """Run the cases of these kinds on an engine; those that a run before has are kept, if it is of the same version."""
    with closing(engines.find(name)) as engine:
        version = engine.version()
        chosen = [case for case in cases() if case.kind in engine.kinds and case.kind in kinds]
        same = before is not None and before["version"] == version
        kept = {one["case"]: one for one in before["results"]} if before is not None and same else {}
        results = run(
            engine,
            [case for case in chosen if case.id not in kept],
            lambda result: print(f"{result.status:>8} {result.case.id} {result.why[:200]}", flush=True),
        )
    date = dt.date.today().isoformat()
    found = {
        one.case.id: {
            "case": one.case.id, "group": one.case.group, "level": one.case.level, "status": one.status, "why": one.why,
        }
        for one in results
    }  # fmt: skip
    if before is not None and kept and not found:
        return before
    if before is not None and kept and before["date"] != date:
        date = f"{before['date']} and {date}"
    found = {**kept, **found}
    return {"engine": name, "version": version, "date": date, "results": [found[case.id] for case in chosen]}


def repeated(before: Run, after: Run) -> Run:
    """The run to be kept, of two with all cases: the first one with a day more, if all verdicts are the same."""
    first, second = ({one["case"]: one["status"] for one in run["results"]} for run in (before, after))
    if before["version"] == after["version"] and first == second:
        days = [*before.get("again", []), after["date"]]
        again = sorted(day for day in set(days) if day not in before["date"])
        return {**before, **({"again": again} if again else {})}
    for case in sorted(first.keys() | second.keys()):
        if first.get(case) != second.get(case):
            print(f"{after['engine']}, {case}: {first.get(case)} before, {second.get(case)} now")
    return after


def page(runs: Mapping[str, Run]) -> str:
    """The whole page."""
    parts = [*_summary(runs), "", RECORDED, *_recorded(), "", *_groups(runs), *_wrong(runs)]
    return formatted(HEAD + "\n".join(parts) + "\n")


def _recorded() -> list[str]:
    """The table about the recorded answers of delta-spark's conflict checker to the cases of actions."""
    lines = ["| level | cases of actions | no order explains it | needless | sound |", "|---|---|---|---|---|"]
    for level in LEVELS:
        counts = Counter(_judged(case) for case in cases() if case.delta_spark is not None and case.level == level)
        shown = " | ".join(str(counts[status]) for status in (WRONG, NEEDLESS, "sound"))
        lines.append(f"| {level} | {sum(counts.values())} | {shown} |")
    return lines


def _judged(case: Case) -> str:
    failed = (
        {} if case.delta_spark == ALL_COMMIT else dict(pair.split() for pair in (case.delta_spark or "").split(", "))
    )
    accepted = [set(one["committed"]) for one in case.expected["outcomes"]]
    committed = {name for name in case.commits if name not in failed}
    if committed not in accepted:
        return WRONG
    return NEEDLESS if any({*committed, name} in accepted for name in failed) else "sound"


def _count(results: Sequence[Mapping[str, str]], status: str) -> int:
    return sum(one["status"] == status for one in results)


def _summary(runs: Mapping[str, Run]) -> list[str]:
    lines = ["| engine | version | level | cases run | **wrong** | needless | sound | refused | error |"]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for name, one in runs.items():
        for level in LEVELS:
            found = [result for result in one["results"] if result["level"] == level]
            if found:
                ran = len(found) - _count(found, "refused")
                counts = " | ".join(
                    str(_count(found, status)) for status in (WRONG, NEEDLESS, "sound", "refused", "error")
                )
                lines.append(f"| {name} | {one['version']} | {level} | {ran} | {counts} |")
    return lines


def _groups(runs: Mapping[str, Run]) -> list[str]:
    lines = ["## By group", "", "Each cell is wrong / needless / sound; `-` if nothing of the group was run.", ""]
    groups = sorted({result["group"] for one in runs.values() for result in one["results"]})
    lines.append("| group | " + " | ".join(runs) + " |")
    lines.append("|---" * (len(runs) + 1) + "|")
    for group in groups:
        cells = []
        for one in runs.values():
            found = [result for result in one["results"] if result["group"] == group]
            shown = " / ".join(str(_count(found, status)) for status in (WRONG, NEEDLESS, "sound"))
            cells.append(shown if len(found) > _count(found, "refused") else "-")
        lines.append(f"| {group} | {' | '.join(cells)} |")
    return lines


def _wrong(runs: Mapping[str, Run]) -> list[str]:
    lines = []
    for name, one in runs.items():
        lines += ["", f"## {name}", "", NOTES.get(name, ""), ""]
        again = f"; the same verdicts on {' and '.join(one['again'])}" if "again" in one else ""
        lines += [f"Run on {one['date']}, version {one['version']}: `refdelta conformance --engine {name}`{again}", ""]
        found = [result for result in one["results"] if result["status"] in (WRONG, "error")]
        lines += [f"- `{result['case']}`, {result['status']}: {_text(result['why'])}" for result in found]
        lines += [] if found else ["No case is wrong."]
    return lines


def _text(why: str) -> str:
    return re.sub(r"\[\[.*?\]\]", r"`\g<0>`", why.replace("|", "\\|"))  # rows, as code


def runs() -> dict[str, Run]:
    """The recorded runs, in the order of the engines."""
    files = {path.stem: path for path in RUNS.glob("*.json")}
    order = [name for name in engines.OWN if name in files] + sorted(files.keys() - engines.OWN.keys())
    return {name: json.loads(files[name].read_text()) for name in order}


def main(arguments: list[str] | None = None) -> int:
    """Run engines, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", action="append", default=[])
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--missing", action="store_true")
    parser.add_argument("--kind", action="append", choices=("statements", "actions"), default=[])
    asked = parser.parse_args(arguments)
    RUNS.mkdir(parents=True, exist_ok=True)
    known = runs()
    for name in asked.engine or ([] if asked.page else engines.OWN):
        try:
            before = known.get(name)
            kinds = asked.kind or KINDS.get(name, ("statements", "actions"))
            one = record(name, kinds, before if asked.missing else None)
            if before is not None and not asked.missing:
                one = repeated(before, one)
        except engines.EngineUnavailableError as error:
            if asked.engine:
                raise
            print(f"{name} keeps its recorded run: {error}")
            continue
        lines = ",\n".join(f"  {json.dumps(result, ensure_ascii=False)}" for result in one["results"])
        head = json.dumps({key: value for key, value in one.items() if key != "results"}, ensure_ascii=False)
        (RUNS / f"{name}.json").write_text(f'{head[:-1]}, "results": [\n{lines}\n]}}\n')
    PAGE.write_text(page(runs()))
    print(f"{PAGE.name}: {', '.join(runs())}; statuses: {', '.join(STATUSES)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
