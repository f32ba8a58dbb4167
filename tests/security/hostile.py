"""Hostile commits, texts and places, each run in a process of its own with 3 GiB of address space and 12 s.

``python -m security.hostile FOLDER NAME...`` forks for each, and prints one line of JSON by case: its name, and
the error of refdelta that it ended in, or the answer.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from handmade import write_commit
from refdelta import DeltaTable, verify, write_deltalake
from refdelta.cli import main
from refdelta.errors import DeltaError

MEMORY, SECONDS = 3 << 30, 12
CASES: dict[str, Callable[[Path], object]] = {}


def case(function: Callable[[Path], object]) -> Callable[[Path], object]:
    CASES[function.__name__.replace("_", " ")] = function
    return function


def table(path: Path, **properties: str) -> DeltaTable:
    """Ten rows, in one file."""
    columns = {"a": pa.array(range(10), pa.int64()), "s": ["x" * 30] * 10}
    write_deltalake(path, pa.table(columns), configuration={"delta.enableDeletionVectors": "true", **properties})
    return DeltaTable(path)


def file_of(path: Path, version: int = 0) -> dict[str, Any]:
    """The add of the one file that a version of the table adds."""
    lines = (path / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    (add,) = (json.loads(line)["add"] for line in lines if line.startswith('{"add"'))
    return dict(add)


def told(*words: object) -> str:
    """What the command line says of something."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = main([str(word) for word in words])
    assert "Traceback" not in said.getvalue(), said.getvalue()
    assert "REFDELTA_DEBUG" not in said.getvalue(), said.getvalue()
    return f"{status} {said.getvalue()}"


# --- commits that meet a writer ----------------------------------------------------------------------------------


def _compaction(path: Path, rows: int) -> object:
    txn = table(path).begin()
    txn.delete("a = 3")
    add = file_of(path)
    gone = {"path": add["path"], "deletionTimestamp": 1, "dataChange": False}
    places = {"out.parquet": [{"path": add["path"], "start": 0, "rows": rows}]}
    info = {"operation": "OPTIMIZE", "rowPlaces": places}
    new = {**add, "path": "out.parquet", "dataChange": False}
    write_commit(path, 1, {"commitInfo": info}, {"remove": gone}, {"add": new})
    return txn.commit()


@case
def places_of_2_to_the_62_rows(path: Path) -> object:
    return _compaction(path, 2**62)


@case
def places_of_2_to_the_65_rows(path: Path) -> object:
    return _compaction(path, 2**65)


@case
def numRecords_of_2_to_the_62(path: Path) -> object:
    table(path).delete("a = 5")
    txn = DeltaTable(path).begin()
    txn.update({"s": "'y'"}, predicate="a = 7")
    add = file_of(path, 1)
    vector = add.pop("deletionVector")
    gone = {"path": add["path"], "deletionTimestamp": 1, "dataChange": True, "deletionVector": vector}
    add["stats"] = json.dumps({"numRecords": 2**62})
    write_commit(path, 2, {"commitInfo": {"operation": "RESTORE"}}, {"remove": gone}, {"add": add})
    return txn.commit()


def _recorded(path: Path, text: str) -> object:
    """A transaction passes over an append and then meets a commit that recorded what it read."""
    txn = table(path).begin()
    txn.delete("a = 3")
    add = file_of(path)
    stats = {"numRecords": 9, "minValues": {"a": 100}, "maxValues": {"a": 200}, "nullCount": {"a": 0}}
    skipped = {"operation": "WRITE", "isBlindAppend": True, "readVersion": 0}
    write_commit(path, 1, {"commitInfo": skipped}, {"add": {**add, "path": "one.parquet"}})
    reader = {"operation": "UPDATE", "readPredicates": [text], "readDomains": [], "readVersion": 1}
    new = {**add, "path": "two.parquet", "stats": json.dumps(stats)}
    write_commit(path, 2, {"commitInfo": reader}, {"add": new})
    return txn.commit()


def _nested(form: str, levels: int, core: str = "a") -> str:
    for _ in range(levels):
        core = form.format(core)
    return core


@case
def recorded_predicate_of_nullif_in_nullif(path: Path) -> object:
    return _recorded(path, _nested("nullif({}, 1)", 40) + " = 1")


@case
def recorded_predicate_of_int_in_int(path: Path) -> object:
    return _recorded(path, _nested("int({})", 40) + " = 1")


@case
def recorded_predicate_of_many_alternatives(path: Path) -> object:
    either = " AND ".join(f"(a = {n} OR a = {n + 100})" for n in range(11))
    others = " AND ".join(f"a <> {n}" for n in range(1_600))
    return _recorded(path, f"{either} AND {others}")


@case
def a_megabyte_of_recorded_predicates(path: Path) -> object:
    return _recorded(path, " OR ".join(f"(a = {n} AND s <> '{n}')" for n in range(40_000)))


# --- texts -------------------------------------------------------------------------------------------------------


def _filtered(path: Path, text: str) -> object:
    return table(path).scan(predicate=text).to_reader().read_all().num_rows


@case
def nullif_in_nullif(path: Path) -> object:
    return _filtered(path, _nested("nullif({}, 1)", 20) + " = 1")


@case
def between_in_between(path: Path) -> object:
    return _filtered(path, _nested("(({}) BETWEEN false AND true)", 20, "a = 1"))


@case
def case_in_case(path: Path) -> object:
    return _filtered(path, _nested("CASE {} WHEN 1 THEN 2 WHEN 3 THEN 4 END", 20) + " = 1")


@case
def arrays_in_arrays(path: Path) -> object:
    return _filtered(path, _nested("array[{}]", 30) + " = 1")


@case
def a_constraint_of_nullif_in_nullif(path: Path) -> object:
    table(path, **{"delta.constraints.c": _nested("nullif({}, 1)", 20) + " > 0"})
    return write_deltalake(path, pa.table({"a": [1], "s": ["x"]}), mode="append")


@case
def replace_in_replace(path: Path) -> object:
    return _filtered(path, _nested("replace({}, 'x', '" + "x" * 15 + "')", 8, "s") + " = 'x'")


@case
def replace_in_replace_of_constants(path: Path) -> object:
    return _filtered(path, _nested("replace({}, 'x', '" + "x" * 15 + "')", 8, "'" + "x" * 15 + "'") + " = s")


@case
def replace_in_replace_for_every_row(path: Path) -> object:
    table(path)
    return DeltaTable(path).update({"s": _nested("replace({}, 'x', '" + "x" * 15 + "')", 8, "s")})


@case
def concat_of_concat(path: Path) -> object:
    return _filtered(path, _nested("concat({0}, replace(s, 'x', '" + "x" * 900 + "'), {0})", 9, "s") + " = 'x'")


@case
def a_long_constant_for_many_rows(path: Path) -> object:
    write_deltalake(path, pa.table({"a": range(100_000), "s": ["x"] * 100_000}))
    return DeltaTable(path).scan(predicate=f"concat(s, '{'x' * 900_000}') = 'x'").to_reader().read_all().num_rows


@case
def a_pattern_of_a_thousand_fields(path: Path) -> object:
    return _filtered(path, f"date_format(timestamp '2024-01-01', '{'y-' * 1_000}') = s")


# --- what a log says, shown --------------------------------------------------------------------------------------


@case
def a_long_partition_value(path: Path) -> object:
    columns = {"a": pa.array(range(200_000), pa.int64()), "p": ["v"] * 200_000}
    write_deltalake(path, pa.table(columns), partition_by=["p"])
    log = path / "_delta_log" / f"{0:020d}.json"
    log.write_text(log.read_text().replace('"p":"v"', f'"p":"{"v" * 500_000}"'))
    return next(iter(DeltaTable(path).scan().to_reader())).num_rows


@case
def times_and_parameters_that_none_has(path: Path) -> object:
    table(path)
    info = {"operation": "X", "timestamp": 2**70, "inCommitTimestamp": -(2**70), "operationParameters": [1, 2]}
    again = file_of(path) | {"modificationTime": 2**63 - 1, "dataChange": False}
    write_commit(path, 1, {"commitInfo": info}, {"add": again})
    return [told(word, path) for word in ("log", "history", "files", "detail")]


@case
def a_domain_of_brackets(path: Path) -> object:
    table(path, **{"delta.feature.domainMetadata": "supported"})
    write_commit(
        path, 1, {"domainMetadata": {"domain": "delta.clustering", "configuration": "[" * 5_000, "removed": False}}
    )
    assert len(told("detail", path)) < 1_000
    return len(str(verify(path))) < 20_000


@case
def a_login_with_a_slash(path: Path) -> object:
    for uri in ("s3a://AKIA:SEC/RET@bucket/t", "s3a://AKIA:SEC%2FRET%40x@bucket/t", "s3a://AKIA:SEC%252FRET@b/t"):
        said = told("detail", uri)
        assert "RET" not in said, said
        assert said.startswith("1 refdelta: "), said
    return "refused"


@case
def output_through_a_link(path: Path) -> object:
    table(path / "t")
    other = path / "other"
    other.write_text("mine")
    for name in (".out.csv.part", "out.csv.part", "out.csv"):
        (path / name).symlink_to(other)
    told("read", path / "t", "--output", path / "out.csv")
    assert other.read_text() == "mine"
    return "untouched"


# --- processes ---------------------------------------------------------------------------------------------------


def outcome(made: Callable[[Path], object], path: Path) -> str:
    try:
        return f"told: {str(made(path))[:200]}"
    except DeltaError as error:
        said = str(error)
        return f"{type(error).__name__}: {said[:300]}" if len(said) < 2_000 else f"an error of {len(said)} characters"


def alone(name: str, folder: Path) -> None:
    """Run one case in a child with its limits, and print how that ended."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        warnings.simplefilter("ignore")
        try:
            said = outcome(CASES[name], Path(tempfile.mkdtemp(dir=folder)))
        except BaseException as error:
            said = f"not an answer: {error!r}"
        os.write(writer, said.encode()[:4_000])
        os._exit(0)
    os.close(writer)
    _, status = os.waitpid(child, 0)
    said = os.read(reader, 8_000).decode(errors="replace")
    os.close(reader)
    print(json.dumps([name, said or f"not an answer: the process ended, {status}"]), flush=True)


if __name__ == "__main__":
    for wanted in sys.argv[2:] or CASES:
        alone(wanted, Path(sys.argv[1]))
