"""The runner: cases on an engine, and what the judge makes of each."""

from __future__ import annotations

import itertools
import tempfile
import textwrap
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

from refdelta.conformance.cases import Case, Failure
from refdelta.conformance.engines import (
    Engine,
    EngineUnavailableError,
    NotSupportedError,
    Session,
    StoreEngine,
    with_stores,
)
from refdelta.conformance.expected import MUST_COMMIT, Expectation, Rows, origin, shown, spans
from refdelta.conformance.faults import Faults
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
    ERROR: "the engine or its adapter ended with an error that is no conflict",
}
"""The statuses of a result, and what each says."""


@dataclass(frozen=True)
class Result:
    """A case on an engine.

    Attributes:
        case: the case.
        engine: the name of the engine.
        status: one of :data:`STATUSES`.
        why: one line; empty if the case is sound, and all transactions committed or conflicted.
        committed: the transactions that committed, in the order of their commits.
        failures: the conflicts by transaction.
        rows: what was left, in the form of the corpus; None if it was not read.
        order: a serial order that explains it; None if there is none.
        unknown: under faults, by transaction the errors that say that the outcome of the commit is not known.
        failed: under faults, by transaction the other errors that are no conflicts: it has not committed.
    """

    case: Case
    engine: str
    status: str
    why: str = ""
    committed: tuple[str, ...] = ()
    failures: Mapping[str, Failure] = field(default_factory=dict)
    rows: Rows | None = None
    order: tuple[str, ...] | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)

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
            "unknown": dict(self.unknown),
            "failed": dict(self.failed),
        }


@dataclass
class _Ended:
    """How the transactions of a case ended, by their names, and the step that is being taken."""

    committed: list[str] = field(default_factory=list)
    failures: dict[str, Failure] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    step: str = ""

    def result(self, engine: Engine, case: Case, status: str, why: str, rows: Rows | None = None) -> Result:
        committed = tuple(self.committed)
        return Result(
            case, engine.name, status, why, committed, self.failures, rows, unknown=self.unknown, failed=self.failed
        )


def run_case(engine: Engine, case: Case, folder: Path | str, faults: Faults | None = None) -> Result:
    """Run one case.

    Args:
        engine: the engine.
        case: the case.
        folder: a folder that does not exist yet; with faults one of their store.
        faults: the faults that requests meet while the transactions run; None for no faults.
    """
    if case.kind not in engine.kinds:
        return Result(case, engine.name, REFUSED, f"the adapter runs no cases of {case.kind}")
    try:
        if faults is None:
            session = engine.open(case, Path(folder))
        else:
            session = with_stores(engine).open_in_store(case, str(folder), faults.options)
    except NotSupportedError as error:
        return Result(case, engine.name, REFUSED, str(error))
    except EngineUnavailableError:
        raise  # it ends the run: other cases would meet it, too
    except Exception as error:  # noqa: BLE001 - any error of any engine is a result
        return Result(case, engine.name, ERROR, f"open: {_with_place(error, engine)}")
    ended = _Ended()
    stopped: Result | None = None
    try:
        with nullcontext() if faults is None else faults.during(case):
            _take_steps(engine, case, session, ended, faults)
        ended.step = "left"
        expectation = Expectation(case)
        expectation.history(case.commits)
        rows = _left(session, expectation)
    except NotSupportedError as error:
        stopped = ended.result(engine, case, REFUSED, str(error))
    except Exception as error:  # noqa: BLE001 - any error of any engine is a result
        stopped = ended.result(engine, case, ERROR, f"{ended.step}: {_with_place(error, session)}")
    try:
        session.close()
    except Exception as error:  # noqa: BLE001 - any error of any engine is a result
        stopped = stopped or ended.result(engine, case, ERROR, f"close: {_with_place(error, session)}")
    return stopped or _judged(engine, expectation, ended, rows)


def _take_steps(engine: Engine, case: Case, session: Session, ended: _Ended, faults: Faults | None) -> None:
    for verb, name in case.steps:
        if name in ended.failed:
            continue  # it could not begin
        ended.step = f"{verb} {name}"
        failure: object = None
        try:
            if verb == "begin":
                session.begin(name)
            else:
                failure = session.commit(name)
        except NotSupportedError:
            raise
        except Exception as error:
            if faults is None or not isinstance(engine, StoreEngine):
                raise
            unknown = verb == "commit" and isinstance(error, engine.unknown)
            (ended.unknown if unknown else ended.failed)[name] = _in_a_line(error)
            # A request that its client gave up may still arrive: before the next step, so that the schedule is kept.
            faults.settle()
            continue
        if isinstance(failure, Failure):
            ended.failures[name] = failure
        elif failure is not None:
            raise InvalidArgumentError(f"the adapter gave {failure!r} instead of None or a Failure")
        elif verb == "commit":
            ended.committed.append(name)


def _in_a_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _with_place(error: Exception, of: object) -> str:
    """The error in a line of at most some 500 characters, and the last line of the adapter that it passed."""
    module = type(of).__module__
    places = [
        f" ({Path(frame.f_code.co_filename).name}:{line})"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_globals["__name__"] == module
    ]
    return "".join([textwrap.shorten(_in_a_line(error), 500, placeholder=" ..."), *places[-1:]])


def _left(session: Session, expectation: Expectation) -> Rows:
    """The rest of the table, in the form of the corpus."""
    left = session.left()
    if not isinstance(left, Mapping):
        values = [_pair(row) for row in left]
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


def _pair(row: object) -> list[int | None]:
    values = list(row) if isinstance(row, Sequence) and len(row) == 2 else []
    if not values or not all(value is None or isinstance(value, Integral) for value in values):
        raise InvalidArgumentError(f"the adapter gave the row {row!r}: rows are pairs (k, a) of whole numbers or None")
    return [None if value is None else int(value) for value in values]


def _judged(engine: Engine, expectation: Expectation, ended: _Ended, rows: Rows) -> Result:
    case = expectation.case
    outcomes = (case.expected or expectation.as_json())["outcomes"]
    verdicts = (case.expected or {"verdicts": expectation.verdicts})["verdicts"]
    fine = _outcome(case, outcomes, rows, ended.committed, ended.unknown)
    if fine is None:
        return ended.result(engine, case, WRONG, _why_wrong(expectation, ended, rows, outcomes), rows)
    committed, order = fine["committed"], tuple(fine["orders"][0])
    for name, failure in ended.failures.items():
        together = [other for other in case.commits if other in committed or other == name]
        accepted = expectation.explain(together)
        if accepted.order is not None:
            reason = "it must commit" if verdicts[name] == MUST_COMMIT else str(accepted)
            why = f"{name} was refused with {failure.error}, but {reason}"
            return replace(ended.result(engine, case, NEEDLESS, why, rows), order=order)
    told = {**{name: f"an unknown outcome: {why}" for name, why in ended.unknown.items()}, **ended.failed}
    why = "; ".join(f"{name} ended with {text}" for name, text in told.items())
    return replace(ended.result(engine, case, SOUND, why, rows), order=order)


def _outcome(
    case: Case, outcomes: Sequence[Mapping[str, Any]], rows: Rows, committed: Sequence[str], perhaps: Iterable[str]
) -> Mapping[str, Any] | None:
    """The right outcome with these rows, in which these transactions committed, and perhaps some of others."""
    for some in _subsets([*perhaps]):
        names = [name for name in case.commits if name in committed or name in some]
        for one in outcomes:
            if list(one["committed"]) == names and one["rows"] == rows:
                return one
    return None


def _subsets(names: Sequence[str]) -> Iterable[tuple[str, ...]]:
    return itertools.chain.from_iterable(itertools.combinations(names, count) for count in range(len(names) + 1))


def _why_wrong(expectation: Expectation, ended: _Ended, rows: Rows, outcomes: Sequence[Mapping[str, Any]]) -> str:
    case, committed = expectation.case, ended.committed
    if hidden := _outcome(case, outcomes, rows, committed, [*ended.unknown, *ended.failed]):
        name = next(name for name in hidden["committed"] if name in ended.failed)
        return f"{name} committed, and ended with an error that does not say so: {ended.failed[name]}"
    right = [one["rows"] for one in outcomes if list(one["committed"]) == committed]
    found = expectation.explain(committed)
    expected = right[0] if right else shown(case, expectation.start)
    if found.order is None:
        return f"{', '.join(committed)} committed, and {found}; left: {rows}"
    perhaps = f", perhaps {', '.join(ended.unknown)}, too" if ended.unknown else ""
    return f"{', '.join(committed)} committed{perhaps}; left: {rows}, where a serial order leaves {expected}"


def run(
    engine: Engine,
    cases: Iterable[Case],
    progress: Callable[[Result], None] = lambda _: None,
    faults: Faults | None = None,
) -> list[Result]:
    """Run cases on an engine, each on a table of its own in a scratch folder.

    Args:
        engine: the engine, such as :func:`refdelta.conformance.engines.find` gives.
        cases: the cases.
        progress: called with each result.
        faults: the faults that requests meet, such as :class:`refdelta.conformance.faults.Faults`; the tables are then
            in its store. None for no faults.

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
            with nullcontext(Path(scratch) / str(number)) if faults is None else faults.folder() as folder:
                result = run_case(engine, case, folder, faults)
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
