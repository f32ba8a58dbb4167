"""``refdelta verify``: a whole table against PROTOCOL.md."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from refdelta.cli.app import app
from refdelta.cli.group import on_a_table, store_of
from refdelta.cli.render import echo_json, say
from refdelta.status_line import StatusLine
from refdelta.verifier import SAMPLE
from refdelta.wording import counted

if TYPE_CHECKING:
    from refdelta.verifier.report import Report

_UNSOUND, _UNKNOWN = 1, 2


@app.command(
    "verify",
    examples=(
        "verify flights",
        "verify flights --full --json",
    ),
)
@on_a_table
@click.option("--full", is_flag=True, help="Read all data files.")
@click.option(
    "--sample",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"Read so many data files, spread evenly; {SAMPLE} unless said, 0 looks at the log alone.",
)
@click.pass_context
def verify_table(
    context: click.Context,
    table: str,
    storage_options: dict[str, str],
    as_json: bool,
    full: bool,
    sample: int | None,
) -> None:
    """Check all of TABLE against the Delta protocol: log, checkpoints, checksums, statistics, vectors, rows.

    Each finding names the clause of PROTOCOL.md that is broken, as spec_notes/clauses.md lists them. Nothing is
    written. Exit status: 0 where there is no error, 1 where there is one, 2 where the table cannot be verified.
    """
    from refdelta.errors import DeltaError
    from refdelta.verifier.run import verify_store

    if full and sample is not None:
        raise click.UsageError("--full and --sample exclude each other")
    start = time.monotonic()
    files = None if full else SAMPLE if sample is None else sample
    try:
        with StatusLine() as line:
            report = verify_store(store_of(table, storage_options), sample=files, progress=_progress(line))
    except DeltaError as error:
        say(f"refdelta: {' '.join(str(error).split())}", err=True)
        context.exit(_UNKNOWN)
    if as_json:
        echo_json(report.to_dict())
    else:
        _show(report, time.monotonic() - start)
    context.exit(0 if report.sound else _UNSOUND)


def _progress(line: StatusLine) -> Callable[[str, int, int], None]:
    return lambda what, done, total: line.show(f"{done:,} of {total:,} {what}")


def _show(report: Report, seconds: float) -> None:
    for finding in report.findings:
        say(str(finding))
    for clause, count in report.more.items():
        say(f"... and {count:,} more of {clause}")
    for what in report.unchecked:
        say(f"not checked: {what}")
    looked = ", ".join(counted(count, name.removesuffix("s")) for name, count in report.checked.items())
    warnings = len(report.findings) - len(report.errors)
    verdict = "sound" if report.sound else counted(len(report.errors), "error")
    more = f" and {counted(warnings, 'warning')}" if warnings else ""
    span = f"versions {report.oldest} to {report.newest}" if report.oldest is not None else "no version"
    say(f"{verdict}{more}: {span}; {looked}; {seconds:.1f} s")
