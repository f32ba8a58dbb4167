"""``refdelta crosscheck``: what delta-spark sees in a table, and what it does with transactions, beside refdelta."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from refdelta.cli.app import app
from refdelta.cli.conforming import chosen
from refdelta.cli.group import at_a_version, in_a_catalog, in_bytes, open_table, storage_options
from refdelta.cli.render import echo_json, say
from refdelta.errors import DeltaError, printable
from refdelta.status_line import StatusLine
from refdelta.wording import counted

# Both engines are imported when they are compared.
if TYPE_CHECKING:
    from refdelta.conformance.cases import Case
    from refdelta.conformance.replay import CaseOutcome, Replayed
    from refdelta.crosscheck import comparison

_VERSIONS = 10
_STARTING = "delta-spark starts (its first start fetches its JARs)"


class CrosscheckFailedError(DeltaError):
    """refdelta and delta-spark differ."""


@app.command(
    "crosscheck",
    examples=(
        "crosscheck flights --where 'month = 3'",
        "crosscheck sales.orders --catalog sqlite:///catalog.db",
        "crosscheck --scenario refdelta/conformance/corpus/rewrites.json",
    ),
)
@click.argument("table", required=False)
@click.option("--json", "as_json", is_flag=True, help="JSON for programs.")
@in_a_catalog
@storage_options
@at_a_version
@click.option(
    "--versions",
    type=click.IntRange(min=0),
    default=_VERSIONS,
    show_default=True,
    help="Of how many versions, newest first, the rows are counted and the history compared.",
)
@click.option(
    "--where",
    "predicates",
    metavar="SQL",
    multiple=True,
    help="A filter: how many rows match, and which files are read. May be repeated; some are made up unless said.",
)
@click.option(
    "--spark-path",
    metavar="DIR|URI",
    help="Where delta-spark finds a TABLE that is in a store, such as the folder that the store serves. "
    "Unless said, it is given a copy on this machine; of a table of a catalog, always.",
)
@click.option(
    "--copy-limit",
    metavar="SIZE",
    callback=in_bytes,
    default="1gb",
    show_default=True,
    help="How much may be copied: the log, and the files of the versions that are compared.",
)
@click.option(
    "--scenario",
    metavar="FILE|DIR",
    help="Instead of a TABLE: the cases of actions in a JSON file, or in all such files of a folder.",
)
@click.option("--only", metavar="ID", multiple=True, help="Of the cases, this one. May be repeated.")
def run(
    table: str | None,
    as_json: bool,
    storage_options: dict[str, str],
    version: str | None,
    versions: int,
    predicates: tuple[str, ...],
    spark_path: str | None,
    copy_limit: int,
    scenario: str | None,
    only: tuple[str, ...],
) -> None:
    """Compare with delta-spark what refdelta sees in TABLE, or does in a scenario.

    Of a TABLE: the schema, all rows, how many there were at each version, the history, the detail, and for filters the
    matching rows and the files that are read. A scenario's transactions run on the commit core of either engine, on
    copies of one table; side by side stand which failed and of what, with the rule that decided. The exit status is 1
    where the two differ. This needs Java 17 and the extra 'spark'.
    """
    if (table is None) == (scenario is None):
        raise click.UsageError("give either a TABLE or --scenario FILE")
    if scenario is not None:
        if version is not None or predicates or spark_path is not None:
            raise click.UsageError("--version, --where and --spark-path go with a TABLE")
        from refdelta.conformance.cases import cases

        _replay([case for case in chosen(cases(scenario), only) if case.kind == "actions"], as_json)
    elif table is not None:
        if only:
            raise click.UsageError("--only goes with --scenario")
        _compare(table, storage_options, version, versions, predicates, spark_path, copy_limit, as_json)


def _compare(
    uri: str,
    options: dict[str, str],
    version: str | None,
    versions: int,
    predicates: Sequence[str],
    spark_path: str | None,
    copy_limit: int,
    as_json: bool,
) -> None:
    from refdelta.crosscheck import comparison, oracle

    table = open_table(uri, options, version)
    for predicate in predicates:
        table.scan(predicate=predicate)  # what is no filter is said before Java starts
    if missing := oracle.availability():
        raise oracle.OracleUnavailableError(missing)
    checks = []
    with StatusLine() as line, ExitStack() as stack:

        def told(what: str) -> None:
            line.show(printable(what), force=True)

        place = stack.enter_context(
            comparison.reachable(table, spark_path, versions=versions, limit=copy_limit, progress=told)
        )
        told(_STARTING)
        with oracle.session() as spark:
            if not as_json:
                line.clear()
                say(f"{table.table_uri}, version {table.version()}")
            for check in comparison.compare_table(
                spark,
                table,
                place=place,
                versions=versions,
                predicates=predicates or None,
                progress=told,
            ):
                checks.append(check)
                if not as_json:
                    line.clear()
                    _show_check(check)
    if as_json:
        shown = [{"what": c.what, "ok": c.problem is None, "found": c.found, "problem": c.problem} for c in checks]
        echo_json({"table": table.table_uri, "version": table.version(), "checks": shown})
    failed = [check for check in checks if check.problem]
    if failed:
        raise CrosscheckFailedError(f"{len(failed)} of {counted(len(checks), 'comparison')} differ: {failed[0].what}")


def _show_check(check: comparison.ComparisonResult) -> None:
    said = ": ".join(part for part in (check.what, check.problem or check.found) if part)
    say(f"{'DIFFERS' if check.problem else 'ok':>9}  {said}")


def _replay(asked: list[Case], as_json: bool) -> None:
    from refdelta.conformance.replay import replay
    from refdelta.crosscheck import oracle

    with StatusLine() as line:
        line.show(_STARTING, force=True)
        with oracle.session(conf=oracle.QUICK) as spark:
            replayed = replay(spark, asked, lambda done: line.show(f"{done:,} of {counted(len(asked), 'case')}"))
    if as_json:
        echo_json([_as_json(one) for one in replayed])
    else:
        for one in replayed:
            _show_replayed(one)
    differ = [one for one in replayed if not one.alike]
    if differ:
        message = f"{len(differ)} of {counted(len(replayed), 'case')} end differently: {differ[0].case.id}"
        raise CrosscheckFailedError(message)


def _show_replayed(one: Replayed) -> None:
    say(f"{one.case.id}: {'alike' if one.alike else 'DIFFERENT'}")
    for engine, outcome in (("refdelta", one.refdelta), ("delta-spark", one.delta_spark)):
        say(f"  {engine:<11}  {outcome.text}")
        for name, failure in outcome.failures.items():
            rule = f"rule {failure.rule}: " if failure.rule else ""
            say(f"  {'':<11}    {name}: {rule}{failure.why}")
    if one.case.delta_spark != one.delta_spark.text:
        say(f"  {'the file':<11}  {one.case.delta_spark}")


def _as_json(one: Replayed) -> dict[str, Any]:
    engines = {"refdelta": one.refdelta, "delta_spark": one.delta_spark}
    return {
        "scenario": one.case.name,
        "level": one.case.level,
        "alike": one.alike,
        "then": one.case.delta_spark,
        **{engine: _outcome(outcome) for engine, outcome in engines.items()},
    }


def _outcome(outcome: CaseOutcome) -> dict[str, Any]:
    failures = {
        name: {"error": failure.error, "rule": failure.rule, "why": failure.why}
        for name, failure in outcome.failures.items()
    }
    return {"outcome": outcome.text, "failures": failures}
