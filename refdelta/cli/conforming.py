"""``refdelta conformance``: the cases of the conformance suite on an engine."""

from __future__ import annotations

import secrets
import webbrowser
from contextlib import closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from refdelta.cli.app import app
from refdelta.cli.group import storage_options
from refdelta.cli.render import echo_json, say
from refdelta.errors import DeltaError, InvalidArgumentError, unknown_name
from refdelta.status_line import StatusLine
from refdelta.wording import counted

# The suite is imported when it runs.
if TYPE_CHECKING:
    from refdelta.conformance import Case, Result

PAGE: Final = "docs/play/index.html"
"""The page that shows cases, in the folder of the site."""
ENGINES: Final = (
    *("refdelta", "refdelta-files", "delta-spark", "delta-kernel", "deltalake", "polars", "duckdb", "duckdb-late"),
    "pyiceberg",
)
"""The engines that are known by name: those of :data:`refdelta.conformance.engines.OWN`."""
BUILT: Final = Path(__file__).resolve().parents[2] / "docs" / "site"
"""The folder of the site of a source tree, where ``make docs`` puts it."""


class ConformanceFailedError(DeltaError):
    """An engine left rows that no serial order explains, or ended with an error."""


def chosen(known: list[Case], only: tuple[str, ...]) -> list[Case]:
    """The cases that were asked for, by their names or their ids.

    Raises:
        InvalidArgumentError: one does not exist.
    """
    names = {case.name for case in known} | {case.id for case in known}
    for name in only:
        if name not in names:
            raise InvalidArgumentError(unknown_name("case", name, sorted(names)))
    return [case for case in known if not only or {case.name, case.id} & {*only}]


@app.command(
    "conformance",
    examples=(
        "conformance --engine deltalake",
        "conformance --engine refdelta --case lost-update",
        "conformance --engine refdelta-files --random --seeds 0-99",
        "conformance --engine refdelta --faults --uri s3://bucket/x --storage-option endpoint_url=http://127.0.0.1:9000",
        "conformance --case lost-update --open",
    ),
)
@click.option("--engine", "name", metavar="NAME", help=f"One of {', '.join(ENGINES)}, or another.")
@click.option("--case", "only", metavar="ID", multiple=True, help="This case, at all or one of its levels. Repeatable.")
@click.option("--corpus", metavar="FILE|DIR", help="Other cases than the corpus: a file, or a folder.")
@click.option("--random", "drawn", is_flag=True, help="Random cases of statements.")
@click.option("--seeds", metavar="A-B", default="0-99", show_default=True, help="Of random cases, which.")
@click.option("--write", metavar="FILE", help="Of random cases, write the smallest wrong ones as cases to this file.")
@click.option(
    "--elle", metavar="FILE", help="Random cases of reads and writes of registers; write their histories for Elle."
)
@click.option(
    "--faults",
    "rate",
    metavar="[RATE]",
    type=click.FloatRange(0, 1),
    is_flag=False,
    flag_value=0.1,
    help="On tables in a store, let this part of the requests meet a fault while the transactions run; 0.1 unless "
    "given. Replies are lost, requests arrive late or twice, the store answers with errors.",
)
@click.option("--uri", metavar="URI", help="Of --faults, the place of the tables, such as s3://bucket/scratch.")
@click.option("--seed", type=click.IntRange(0), help="Of --faults; drawn unless said.")
@storage_options
@click.option("--open", "shown", is_flag=True, help="Show the case in a browser, and run nothing.")
@click.option("--site", metavar="DIR|URL", help="Of --open, the site with the page; unless given, that of `make docs`.")
@click.option("--junit", "report", metavar="FILE", help="Write the results as JUnit's XML.")
@click.option("--json", "as_json", is_flag=True, help="JSON for programs.")
def conformance(
    name: str | None,
    only: tuple[str, ...],
    corpus: str | None,
    drawn: bool,
    seeds: str,
    write: str | None,
    elle: str | None,
    rate: float | None,
    uri: str | None,
    seed: int | None,
    storage_options: dict[str, str],
    shown: bool,
    site: str | None,
    report: str | None,
    as_json: bool,
) -> None:
    """Run concurrent transactions on an engine, and judge what is left of the tables.

    Each case has a table, transactions, and the order in which they begin and commit. A result is sound, needless (a
    commit was refused that a serial order explains), wrong (no serial order explains what is left), refused (the
    engine cannot do what the case asks for), or an error. The exit status is 1 if one is wrong or an error. The page
    docs/conformance.md describes the cases.
    """
    from refdelta.conformance import cases, engines, run
    from refdelta.conformance.elle import draw_registers, exported
    from refdelta.conformance.faults import Faults
    from refdelta.conformance.programs import draw, smaller, written
    from refdelta.conformance.runner import ERROR, WRONG, counts, junit

    _refuse_options_of_faults(
        rate, uri, of_faults=seed is not None or bool(storage_options), others=shown or bool(write or elle)
    )
    _refuse_options(drawn=drawn, shown=shown, of_cases=bool(only or corpus), of_random=bool(write or elle), site=site)
    if shown:
        _open(only, corpus, site)
        return
    if name is None:
        raise click.UsageError("Missing option '--engine'.")
    if drawn:
        asked = (draw if elle is None else draw_registers)(_seeds(seeds))
    else:
        asked = chosen(cases(corpus) if corpus else cases(), only)
    found: list[Result] = []
    seed = secrets.randbelow(2**31) if seed is None else seed
    faults = None if rate is None or uri is None else Faults(uri, storage_options, rate=rate, seed=seed)
    with closing(engines.find(name)) as engine, faults or nullcontext():
        version = engine.version()
        if faults is not None:
            try:
                engines.with_stores(engine)
            except engines.NotSupportedError as error:
                raise InvalidArgumentError(f"--faults needs tables in a store: {error}") from None
        with StatusLine() as line:

            def told(result: Result) -> None:
                found.append(result)
                line.show(f"{len(found):,} of {counted(len(asked), 'case')}")

            run(engine, asked, told, faults)
            if drawn and write is not None:
                line.show("looking for smaller cases")
                wrong = [smaller(engine, result.case) for result in found if result.status == WRONG]
                Path(write).write_text(written(wrong))
    if elle is not None:
        made = exported(found)
        Path(elle).write_text(made.text)
        if made.left_out:
            say(f"{made.left_out} of {counted(len(found), 'case')} do not fit Elle's form", err=True)
    if report is not None:
        Path(report).write_text(junit(found))
    if as_json:
        echo_json(
            {
                "engine": name,
                "version": version,
                "counts": counts(found),
                **({} if faults is None else {"faults": {"rate": rate, "seed": seed, "met": faults.met}}),
                "results": [one.as_json() for one in found],
            }
        )
    else:
        _show(name, version, found)
        if faults is not None:
            say(f"{counted(faults.met, 'request')} met faults: rate {rate:g}, seed {seed}; {_endings(found)}")
    bad = [one for one in found if one.status in (WRONG, ERROR)]
    if bad:
        several = [f"{count:,} {status}" for status, count in counts(bad).items() if count]
        said = f"{' and '.join(several)} of {counted(len(found), 'case')}"
        raise ConformanceFailedError(f"{said}: {bad[0].case.id}{', ...' if len(bad) > 1 else ''}")


def _refuse_options(*, drawn: bool, shown: bool, of_cases: bool, of_random: bool, site: str | None) -> None:
    """Raise an error for options of which one has no meaning beside the others."""
    if drawn and (of_cases or shown):
        raise click.UsageError("--random goes without --case, --corpus and --open")
    if of_random and not drawn:
        raise click.UsageError("--write and --elle go with --random")
    if site is not None and not shown:
        raise click.UsageError("--site goes with --open")


def _refuse_options_of_faults(rate: float | None, uri: str | None, *, of_faults: bool, others: bool) -> None:
    if rate is None and (uri is not None or of_faults):
        raise click.UsageError("--uri, --seed and --storage-option go with --faults")
    if rate is not None and uri is None:
        raise click.UsageError("--faults needs --uri: a place in a store, such as s3://bucket/scratch")
    if rate is not None and others:
        raise click.UsageError("--faults goes without --write, --elle and --open")


def _open(only: tuple[str, ...], corpus: str | None, site: str | None) -> None:
    """Print the address of the page that shows a case, and open it."""
    if len(only) != 1 or corpus:
        raise click.UsageError("--open goes with one --case of the corpus")
    from refdelta.conformance import cases

    link = link_to(chosen(cases(), only)[0].id, site)
    say(link)
    webbrowser.open(link)


def link_to(case: str, site: str | None = None) -> str:
    """The address at which the page to play with shows a case.

    Args:
        case: the id of the case.
        site: the folder or the address of the site; None: that of the source tree.

    Raises:
        InvalidArgumentError: the folder does not have the page.
    """
    if site is not None and site.startswith(("http://", "https://", "file://")):
        return f"{site.rstrip('/')}/{PAGE}#case={case}"
    folder = BUILT if site is None else Path(site).resolve()
    if not (folder / PAGE).is_file():
        raise InvalidArgumentError(
            f"{folder} does not have {PAGE}: build the site by `make docs`, or name one by --site"
        )
    return f"{(folder / PAGE).as_uri()}#case={case}"


def _seeds(text: str) -> range:
    first, dash, last = text.partition("-")
    if not first.isdigit() or (dash and not last.isdigit()):
        raise InvalidArgumentError(f"seeds={text!r} must be such as 0-99")
    return range(int(first), int(last if dash else first) + 1)


def _endings(found: list[Result]) -> str:
    """How the transactions ended. An engine that reaches no store has sound results, too: all of them failed."""
    told = {
        "committed": sum(len(one.committed) for one in found),
        "met a conflict": sum(len(one.failures) for one in found),
        "ended with an unknown outcome": sum(len(one.unknown) for one in found),
        "failed": sum(len(one.failed) for one in found),
    }
    return f"of the transactions {', '.join(f'{count:,} {how}' for how, count in told.items() if count) or 'none ran'}"


def _show(name: str, version: str, found: list[Result]) -> None:
    from refdelta.conformance.runner import STATUSES, counts

    for one in found:
        say(f"{one.status:>8}  {one.case.id}{': ' if one.why else ''}{one.why}")
    shown = ", ".join(f"{count:,} {status}" for status, count in counts(found).items() if count)
    say(f"{name} {version}: {shown}")
    for status, meaning in STATUSES.items():
        if any(one.status == status for one in found):
            say(f"{status:>8}  = {meaning}")
