"""Commits of other writers beside this engine's transactions: what they claim need not be what they did.

Two kinds. A *claim* is a commit that this engine would write, of which fields are changed afterwards: its rows are what
its statement makes of them. A *deed* is a commit that is made up: the rows of its files before and after are what it
did, and it has read the whole table, unless it only appends. The judge is given rows, never claims.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from pyroaring import BitMap64

from model.branches import Committed, Refusal, Staged, Version
from model.cases import (
    COMPACT,
    COPY_0_1,
    DELETE_K2,
    INSERT_0,
    MERGE_SOME,
    PAINT_1_0,
    PURGE,
    REPLACE_1,
    Case,
)
from model.core import Core, File, inline
from model.entries import entries_behind
from model.layouts import CREATED
from model.operations import insert, is_data
from refdelta.conformance.judge import Effect, History, Row, Transaction, apply
from refdelta.core.log.actions import AnyAction, CommitInfo, Remove
from refdelta.core.log.codec import encode_commit
from refdelta.core.rows.deletes import tombstone

OURS, SPARK, RUST, UNKNOWN = "refdelta/1.0", "Apache-Spark/4.0.0 Delta-Lake/4.0.0", "delta-rs:py-1.6.6", None

Info = dict[str, Any]
Lines = list[dict[str, Any]]
Deed = Callable[["WithForeign", Version], "list[AnyAction] | None"]
"""The actions after commitInfo; None where the version has nothing to do it to."""


@dataclass(frozen=True, eq=False)
class Foreign:
    """A commit of another writer.

    Attributes:
        kind: what it lies about.
        case: what the judge and the model call it; for a claim, the statement that it ran.
        claim: changes the lines of the commit.
        deed: what a made-up commit does.
        info: the commitInfo of a made-up commit.
        blind: whether a made-up commit has read nothing.
    """

    kind: str
    case: Case
    claim: Callable[[Lines], None] | None = None
    deed: Deed | None = None
    info: Info | None = None
    blind: bool = False


class WithForeign(Core):
    """The rules over a log in which other writers claim. Their cases are in ``foreign``."""

    def __init__(self, level: str, layout: Any, foreign: Iterable[Foreign]) -> None:
        self.foreign = {one.case: one for one in foreign}
        super().__init__(level, layout)

    def attempt(self, version: Version, staged: Staged) -> Committed | None:
        committed = super().attempt(version, staged)
        other = self.foreign.get(staged.case)
        if committed is None or other is None or other.claim is None:
            return committed
        (data,) = committed.data
        lines = [json.loads(line) for line in data.splitlines()]
        other.claim(lines)
        changed = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        return replace(committed, data=(changed,), content=self._behind(version.content, changed))

    def stage(self, version: Version, case: Case, isolation: str | None) -> Any:
        other = self.foreign.get(case)
        return None if other is not None and other.deed is not None else super().stage(version, case, isolation)

    def _commit(self, version: Version, staged: Staged) -> Version | Refusal:
        other = self.foreign.get(staged.case)
        if other is None or other.deed is None:
            return super()._commit(version, staged)
        actions = other.deed(self, version)
        if actions is None:
            return version
        data = encode_commit([CommitInfo(dict(other.info or {})), *actions])
        content = self._behind(version.content, data)
        number = version.number + 1
        name = f"V{number} {staged.case.name}"
        effect = _difference(name, version, [row for file in content.values() for row in file.live])
        seen = None if other.blind else frozenset(filter(is_data, version.state))
        done = effect._replace(seen=seen)

        def operation(_: str, state: Any) -> Effect:
            return done._replace(seen=None if other.blind else frozenset(filter(is_data, state)))

        made = Transaction(name, operation, version.number, number)
        return Version(
            (*version.log, data),
            content,
            entries_behind(version.entries, data, name),
            (*version.transactions, made),
            apply(version.state, effect),
            version.start,
            version.gone,
            made_by=(version, staged),
        )


def _difference(name: str, version: Version, rows: list[Any]) -> Effect:
    """What becomes of the rows of a version where these are left, and came. A row that the table was created with, and
    that is back, is the same row.
    """
    left = list(rows)
    removed = set()
    for row in filter(is_data, version.state):
        if row.values in left:
            left.remove(row.values)
        else:
            removed.add(row)
    known = {row.values: row for row in version.start | CREATED if is_data(row) and row not in version.state}
    came = (known.pop(values, Row((name, i), values)) for i, values in enumerate(left))
    return Effect(frozenset(removed), frozenset(came))


def history_of(version: Version) -> History:
    return History(version.start, version.transactions)


# --- deeds -----------------------------------------------------------------------------------------------------------


def _case(name: str) -> Case:
    return Case(name, "FOREIGN", insert(), lambda _: None, None, None)


def _removed(file: File, *, changes: bool | None) -> Remove:
    gone = tombstone(file.add, now_ms=1, data_change=True)
    return msgspec.structs.replace(gone, data_change=changes, stats=file.add.stats)


def _file(core: Core, version: Version, number: int) -> File | None:
    """One of the files of the table as it was created, or what has come in its place."""
    live = sorted(version.content.values(), key=lambda file: file.path)
    return live[number] if number < len(live) else None


def _vector(number: int, hidden: tuple[int, ...], *, changes: bool) -> Deed:
    """A file gets a vector of these rows."""

    def deed(core: WithForeign, version: Version) -> list[AnyAction] | None:
        file, rows = _file(core, version, number), BitMap64(hidden)
        if file is None or rows == file.hidden or (rows and max(rows) >= len(file.rows)):
            return None
        if len(rows) == len(file.rows):
            return [_removed(file, changes=changes)]
        vector = inline(rows) if rows else None
        return [
            _removed(file, changes=changes),
            msgspec.structs.replace(file.add, deletion_vector=vector, data_change=changes),
        ]

    return deed


def _swap(number: int | None, rows: tuple[Any, ...], *, leaves: bool | None, comes: bool) -> Deed:
    """A file goes, or none; and these rows come, or none."""

    def deed(core: WithForeign, version: Version) -> list[AnyAction] | None:
        file = None if number is None else _file(core, version, number)
        if number is not None and file is None:
            return None
        gone = [] if file is None else [_removed(file, changes=leaves)]
        return [*gone, *(core._write(rows, data_change=comes) if rows else [])]

    return deed


def _grow(number: int) -> Deed:
    """A file goes, and new rows come, one more than it had."""

    def deed(core: WithForeign, version: Version) -> list[AnyAction] | None:
        file = _file(core, version, number)
        if file is None:
            return None
        rows = [(20 + at, at % 2) for at in range(len(file.live) + 1)]
        return [_removed(file, changes=False), *core._write(rows, data_change=False)]

    return deed


def _rewrite(number: int, change: Callable[[Any], Any], *, leaves: bool, comes: bool) -> Deed:
    """A file is written anew with each of its rows changed."""

    def deed(core: WithForeign, version: Version) -> list[AnyAction] | None:
        file = _file(core, version, number)
        if file is None:
            return None
        return [_removed(file, changes=leaves), *core._write([change(row) for row in file.live], data_change=comes)]

    return deed


def _refresh(*, changes: bool) -> Deed:
    def deed(core: WithForeign, version: Version) -> list[AnyAction] | None:
        return [
            msgspec.structs.replace(file.add, data_change=changes, modification_time=2)
            for file in version.content.values()
        ]

    return deed


def _made(kind: str, name: str, deed: Deed, *, blind: bool = False, **info: Any) -> Foreign:
    given = {key: value for key, value in info.items() if value is not None}
    title = " ".join(f"{key}={value}" for key, value in given.items())
    return Foreign(kind, _case(f"{name} ({title})"), deed=deed, info=given, blind=blind)


def vectors() -> Iterator[Foreign]:
    """A file gets another vector, larger or smaller or other, whatever the operation is called."""
    hidden = [(0, some) for count in range(4) for some in itertools.combinations(range(4), count) if some != (0,)] + [
        (1, (0,))
    ]
    for (number, rows), changes in itertools.product(hidden, (True, False)):
        deed = _vector(number, rows, changes=changes)
        grows = number == 1 or 0 in rows
        words = [
            (op, engine)
            for op in ("DELETE", "MERGE", "WRITE", "CLONE", "Restore", "RESTORE", None, "OPTIMIZE")
            for engine in (UNKNOWN, SPARK)
            # An engine that is known does what its statements do.
            if engine is UNKNOWN or op not in {"DELETE", "MERGE"} or (grows and changes)
        ]
        if grows and changes:
            words += [("DELETE", OURS), ("MERGE", OURS)]
        for op, engine in words:
            yield _made(
                "a vector", f"file {number} hides {rows}, dataChange={changes}", deed, operation=op, engineInfo=engine
            )


def _flipped(row: Any) -> Any:
    return row[0], {0: 1, 1: 0}.get(row[1], row[1])


def hidden_rows() -> Iterator[Foreign]:
    """Rows come or go beside ``dataChange=false``."""
    new = ((20, 0), (21, 1))
    words = [
        (op, engine)
        for op in ("OPTIMIZE", "WRITE", "COMPUTE STATS", "REORG", None)
        for engine in (UNKNOWN, RUST, SPARK, OURS)
    ]
    for op, engine in words:
        info = {"operation": op, "engineInfo": engine}
        known = (engine in {OURS, SPARK} and op in {"OPTIMIZE", "REORG", "COMPUTE STATS"}) or (
            engine == RUST and op == "OPTIMIZE"
        )
        # An engine that is known refreshes files that are there.
        if not (known and op == "COMPUTE STATS"):
            yield _made("rows of no file", "new rows", _swap(None, new, leaves=None, comes=False), **info)
        yield _made("rows of no file", "mixed", _swap(0, (*new, (22, 0)), leaves=True, comes=False), **info)
        yield _made(
            "rows of no file", "mixed the other way", _swap(0, (*new, (22, 0)), leaves=False, comes=True), **info
        )
        # Of a known engine they are found by the statistics of the removes, which refdelta does not write.
        if not (known and engine == OURS):
            yield _made("rows of no file", "more rows", _grow(1), **info)
        yield _made("rows that go", "a file goes", _swap(0, (), leaves=False, comes=False), **info)
        yield _made("no lie", "the same", _refresh(changes=False), **info)
        yield _made("no lie", "the same, as new", _refresh(changes=True), **info)
        yield _made("no lie", "moves", _rewrite(0, lambda row: row, leaves=False, comes=False), **info)
        yield _made("no lie", "writes anew", _rewrite(0, lambda row: row, leaves=True, comes=True), **info)
        if known:
            continue
        # As many rows, and others.
        yield _made("other rows", "as many", _rewrite(0, _flipped, leaves=False, comes=False), **info)
        yield _made(
            "other rows", "as many keys", _rewrite(0, lambda row: (row[0] + 12, 0), leaves=False, comes=False), **info
        )


def blind() -> Iterator[Foreign]:
    """Commits that call themselves blind appends."""
    new = ((10, 0), (12, 1))
    for engine in (UNKNOWN, SPARK, RUST):
        info = {"engineInfo": engine, "isBlindAppend": True}
        yield _made(
            "no lie", "append", _swap(None, new, leaves=None, comes=True), blind=True, operation="WRITE", **info
        )
        for op in ("MERGE", "DELETE", "UPDATE", "WRITE", None):
            yield _made(
                "a blind append that removes", "a", _swap(0, new, leaves=True, comes=True), operation=op, **info
            )
        for op in ("MERGE", "UPDATE", "OPTIMIZE", "RESTORE"):
            yield _made(
                "a blind append that reads", "r", _swap(None, new, leaves=None, comes=True), operation=op, **info
            )
        yield _made(
            "a blind append that reads", "says so", _swap(None, new, leaves=None, comes=True),
            operation="WRITE", readPredicates=["TRUE"], **info,
        )  # fmt: skip


# --- claims ----------------------------------------------------------------------------------------------------------


def _info(lines: Lines) -> Info:
    return next(line["commitInfo"] for line in lines if "commitInfo" in line)


def _claimed(kind: str, case: Case, name: str, claim: Callable[[Lines], None]) -> Foreign:
    return Foreign(kind, replace(case, name=f"{case.name}, which says {name}"), claim=claim)


def _fields(engine: str | None, **fields: Any) -> Callable[[Lines], None]:
    def claim(lines: Lines) -> None:
        info = _info(lines)
        info.pop("engineInfo", None)
        info.update(fields if engine is None else {"engineInfo": engine, **fields})

    return claim


def read_fields() -> Iterator[Foreign]:
    """What was read is claimed wrongly."""
    for case, engine in itertools.product((COPY_0_1, PAINT_1_0, MERGE_SOME, REPLACE_1), (UNKNOWN, SPARK, RUST)):
        for fields in (
            {"readPredicates": []},
            {"readPredicates": ["k = 99"]},
            {"readPredicates": ["k = 99"], "readDomains": []},
            {"readPredicates": ["FALSE"], "isolationLevel": "WriteSerializable"},
            {"readPredicates": "FALSE"},
            {"readPredicates": [1]},
        ):
            yield _claimed("what it read", case, f"{fields} {engine}", _fields(engine, **fields))
        if engine != SPARK:
            for number in (-5, 0, 10**9, "0", None, True, 1.5):
                yield _claimed(
                    "which version it read", case, f"version {number!r} {engine}", _fields(engine, readVersion=number)
                )
        if engine == UNKNOWN:
            yield _claimed("no lie", case, "nothing", lambda lines: lines.remove({"commitInfo": _info(lines)}))
    for case in (COPY_0_1, PAINT_1_0):

        def twice(lines: Lines) -> None:
            lines.append({"commitInfo": {**_info(lines), "readPredicates": ["k = 99"], "isBlindAppend": True}})

        yield _claimed("two commitInfos", case, "two things", twice)
    for value in ("true", 1, "false", [], {}):
        yield _claimed("no lie", INSERT_0, f"blind {value!r}", _fields(UNKNOWN, isBlindAppend=value))


Runs = dict[str, list[dict[str, Any]]]


def place_changes() -> Iterator[tuple[str, bool, Callable[[Runs, Lines], None]]]:
    """Changes of a record of places: what they are called, whether a sum shows them, and the change."""

    def runs(places: Runs) -> list[dict[str, Any]]:
        return [run for found in places.values() for run in found]

    for at, field, by in itertools.product(range(3), ("rows", "start"), (-2, -1, 1, 2)):

        def shift(places: Runs, _: Lines, at: int = at, field: str = field, by: int = by) -> None:
            if at < len(found := runs(places)):
                found[at][field] += by

        yield f"{field} of run {at} {by:+}", True, shift

    def no_vectors(places: Runs, _: Lines) -> None:
        for run in runs(places):
            run.pop("deletionVector", None)

    def vectors_of_removes(places: Runs, lines: Lines) -> None:
        vectors = {line["remove"]["path"]: line["remove"].get("deletionVector") for line in lines if "remove" in line}
        for run in runs(places):
            run.pop("deletionVector", None)
            if vectors.get(run["path"]):
                run["deletionVector"] = vectors[run["path"]]

    def all_vectors(vector: BitMap64) -> Callable[[Runs, Lines], None]:
        def change(places: Runs, _: Lines) -> None:
            for run in runs(places):
                if "deletionVector" in run:
                    run["deletionVector"] = msgspec.to_builtins(inline(vector))

        return change

    def twice(places: Runs, _: Lines) -> None:
        for found in places.values():
            found.extend(json.loads(json.dumps(found)))

    def first_only(places: Runs, _: Lines) -> None:
        for found in places.values():
            del found[1:]

    def without_an_output(places: Runs, _: Lines) -> None:
        places.pop(next(iter(places)))

    def backwards(places: Runs, _: Lines) -> None:
        for found in places.values():
            found.reverse()

    def outputs_swapped(places: Runs, _: Lines) -> None:
        names, values = list(places), list(places.values())[::-1]
        places.clear()
        places.update(zip(names, values, strict=True))

    def inputs_swapped(places: Runs, _: Lines) -> None:
        names = sorted({run["path"] for run in runs(places)})
        other = dict(zip(names, names[::-1], strict=True))
        for run in runs(places):
            run["path"] = other[run["path"]]

    def physical(places: Runs, _: Lines) -> None:
        for run in runs(places):
            if vector := run.pop("deletionVector", None):
                run["rows"] += vector["cardinality"]

    def spelled(places: Runs, _: Lines) -> None:
        for run in runs(places):
            run["path"] = "".join(f"%{ord(letter):02x}" for letter in run["path"])

    def unknown(places: Runs, _: Lines) -> None:
        for run in runs(places):
            run["path"] += "-not"

    def one_by_one(places: Runs, _: Lines) -> None:
        for found in places.values():
            found[:] = [{**run, "start": run["start"] + i, "rows": 1} for run in found for i in range(run["rows"])]

    yield "nothing else", False, lambda *_: None
    yield "each row by itself", False, one_by_one
    yield "paths in other letters", False, spelled
    yield "no vectors", True, no_vectors
    yield "the vectors of the removes", False, vectors_of_removes
    yield "a vector of two rows", True, all_vectors(BitMap64([0, 1]))
    yield "a vector of other rows", False, all_vectors(BitMap64([1]))
    yield "a vector of the last row", False, all_vectors(BitMap64([3]))
    yield "each run twice", True, twice
    yield "first runs only", True, first_only
    yield "not all outputs", False, without_an_output
    yield "runs backwards", False, backwards
    yield "outputs swapped", False, outputs_swapped
    yield "inputs swapped", False, inputs_swapped
    yield "rows that are dead, too", True, physical
    yield "inputs that are not there", True, unknown
    yield "no object", True, lambda places, _: places.update({name: [7] for name in places})  # type: ignore[list-item]


def places() -> Iterator[Foreign]:
    """Records of places that contradict their commit, or are not true."""
    for case, engine in itertools.product((COMPACT, PURGE), (UNKNOWN, OURS, RUST)):
        for name, by_sums, change in place_changes():
            if engine == OURS and not by_sums and name not in TRUE:
                continue

            def claim(lines: Lines, change: Any = change, engine: str | None = engine) -> None:
                _fields(engine)(lines)
                if record := _info(lines).get("rowPlaces"):
                    change(record, lines)

            yield _claimed("places", case, f"{name} {engine}", claim)


TRUE = {"nothing else", "each row by itself", "paths in other letters"}


def all_foreign() -> list[Foreign]:
    return [*vectors(), *hidden_rows(), *blind(), *read_fields(), *places()]


def by_case(foreign: Iterable[Foreign]) -> Mapping[Case, Foreign]:
    return {one.case: one for one in foreign}


KEPT = (DELETE_K2,)
