"""The runner: cases on an engine, and what the judge makes of each."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

from refdelta.conformance.cases import Case, Failure
from refdelta.conformance.engines import Engine, NotSupportedError, Session
from refdelta.conformance.expected import MUST_COMMIT, Expectation, Rows, origin, shown, spans
from refdelta.errors import InvalidArgumentError

SOUND: Final = "sound"
NEEDLESS: Final = "needless"
WRONG: Final = "wrong"
REFUSED: Final = "refused"
ERROR: Final = "error"
STATUSES: Final[Mapping[str, str]] = {
    SOUND: "a serial order explains what is left, and no commit was refused that one explains",
    NEEDLESS: "a serial order explains what is left, but a commit was refused that one explains, too",
    WRONG: "no serial order of the committed transactions explains what is left",
    REFUSED: "the engine or its adapter cannot do what the case asks for",
    ERROR: "a transaction ended with an error that is no conflict",
}
"""The statuses of a result, and what each says."""


@dataclass(frozen=True)
class Result:
    """A case on an engine.

    Attributes:
        case: the case.
        engine: the name of the engine.
        status: one of :data:`STATUSES`.
        why: one line; empty if the case is sound.
        committed: the transactions that committed, in the order of their commits.
        failures: the conflicts by transaction.
        rows: what was left, in the form of the corpus; None if it was not read.
        order: a serial order that explains it; None if there is none.
    """

    case: Case
    engine: str
    status: str
    why: str = ""
    committed: tuple[str, ...] = ()
    failures: Mapping[str, Failure] = field(default_factory=dict)
    rows: Rows | None = None
    order: tuple[str, ...] | None = None

    def as_json(self) -> dict[str, Any]:
        """The result for programs."""
        return {
            "case": self.case.name,
            "level": self.case.level,
            "engine": self.engine,
            "status": self.status,
            "why": self.why,
            "committed": list(self.committed),
            "conflicts": {name: {"error": f.error, "rule": f.rule, "why": f.why} for name, f in self.failures.items()},
            "rows": self.rows,
            "order": None if self.order is None else list(self.order),
        }


def run_case(engine: Engine, case: Case, folder: Path) -> Result:
    """Run one case.

    Args:
        engine: the engine.
        case: the case.
        folder: a folder that does not exist yet.
    """
    if case.kind not in engine.kinds:
        return Result(case, engine.name, REFUSED, f"the adapter runs no cases of {case.kind}")
    try:
        session = engine.open(case, folder)
    except NotSupportedError as error:
        return Result(case, engine.name, REFUSED, str(error))
    committed: list[str] = []
    failures: dict[str, Failure] = {}
    try:
        for verb, name in case.steps:
            if verb == "begin":
                session.begin(name)
            elif failure := session.commit(name):
                failures[name] = failure
            else:
                committed.append(name)
        expectation = Expectation(case)
        expectation.history(case.commits)
        rows = _left(session, expectation)
    except NotSupportedError as error:
        return Result(case, engine.name, REFUSED, str(error), tuple(committed), failures)
    except Exception as error:  # noqa: BLE001 - any error of any engine is a result
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return Result(case, engine.name, ERROR, why, tuple(committed), failures)
    finally:
        session.close()
    return _judged(engine, expectation, tuple(committed), failures, rows)


def _left(session: Session, expectation: Expectation) -> Rows:
    """The rest of the table, in the form of the corpus."""
    left = session.left()
    if not isinstance(left, Mapping):
        values = [list(row) for row in left]
        return sorted(values, key=lambda row: [(value is None, value or 0) for value in row])
    files: dict[str, list[int]] = {}
    for path, hidden in left.items():
        if path not in expectation.content:
            raise InvalidArgumentError(f"the file {path} is live, and no transaction of the case adds it")
        for number, row in enumerate(expectation.content[path]):
            if number not in hidden:
                file, original = origin(row)
                files.setdefault(file, []).append(original)
    return {file: spans(numbers) for file, numbers in sorted(files.items())}


def _judged(
    engine: Engine,
    expectation: Expectation,
    committed: tuple[str, ...],
    failures: Mapping[str, Failure],
    rows: Rows,
) -> Result:
    case = expectation.case
    outcomes = (case.expected or expectation.as_json())["outcomes"]
    verdicts = (case.expected or {"verdicts": expectation.verdicts})["verdicts"]
    same = [one for one in outcomes if tuple(one["committed"]) == committed]
    fine = next((one for one in same if one["rows"] == rows), None)
    if fine is None:
        why = _why_wrong(expectation, committed, rows, [one["rows"] for one in same])
        return Result(case, engine.name, WRONG, why, committed, failures, rows)
    order = tuple(fine["orders"][0])
    for name in failures:
        together = [other for other in case.commits if other in committed or other == name]
        accepted = expectation.explain(together)
        if accepted.order is not None:
            reason = "it must commit" if verdicts[name] == MUST_COMMIT else str(accepted)
            why = f"{name} was refused with {failures[name].error}, but {reason}"
            return Result(case, engine.name, NEEDLESS, why, committed, failures, rows, order)
    return Result(case, engine.name, SOUND, "", committed, failures, rows, order)


def _why_wrong(expectation: Expectation, committed: tuple[str, ...], rows: Rows, right: Sequence[Rows]) -> str:
    found = expectation.explain(committed)
    expected = right[0] if right else shown(expectation.case, expectation.start)
    if found.order is None:
        return f"{', '.join(committed)} committed, and {found}; left: {rows}"
    return f"{', '.join(committed)} committed; left: {rows}, where a serial order leaves {expected}"


def run(engine: Engine, cases: Iterable[Case], progress: Callable[[Result], None] = lambda _: None) -> list[Result]:
    """Run cases on an engine, each on a table of its own in a scratch folder.

    Args:
        engine: the engine, such as :func:`refdelta.conformance.engines.find` gives.
        cases: the cases.
        progress: called with each result.

    Returns:
        One result for each case, in their order.

    Example:
        >>> from refdelta.conformance import cases, engines, run
        >>> chosen = [case for case in cases() if case.name == "lost-update"]
        >>> [result.status for result in run(engines.find("refdelta"), chosen)]
        ['sound', 'sound']
    """
    results = []
    with tempfile.TemporaryDirectory(prefix="refdelta-conformance-") as scratch:
        for number, case in enumerate(cases):
            result = run_case(engine, case, Path(scratch) / str(number))
            results.append(result)
            progress(result)
    return results


def counts(results: Iterable[Result]) -> dict[str, int]:
    """The number of results by status."""
    found = Counter(result.status for result in results)
    return {status: found[status] for status in STATUSES}


def junit(results: Sequence[Result]) -> str:
    """The results as JUnit's XML: wrong is a failure, an error is one, refused is skipped, needless is an output."""
    counted = counts(results)
    suite = ET.Element(
        "testsuite",
        name="refdelta conformance",
        tests=str(len(results)),
        failures=str(counted[WRONG]),
        errors=str(counted[ERROR]),
        skipped=str(counted[REFUSED]),
    )
    tags = {WRONG: "failure", ERROR: "error", REFUSED: "skipped"}
    for result in results:
        case = ET.SubElement(suite, "testcase", name=result.case.id, classname=f"{result.engine}.{result.case.group}")
        if result.status in tags:
            ET.SubElement(case, tags[result.status], message=result.why)
        elif result.why:
            ET.SubElement(case, "system-out").text = result.why
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)
