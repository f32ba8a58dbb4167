"""Transactions on wide tables, written as programs: rows without keys, MERGE by ``<=>`` and by ranges, sources that are
the table itself, several reads and appends, calls that fail, metadata domains, ALTER TABLE, RESTORE and VACUUM.
"""

from __future__ import annotations

from functools import cache

from model.calls import RULES, Calls, Condition, On, Program, Programmed, Setting
from model.cases import (
    COMPACT,
    COPY_0_1,
    DELETE_0,
    DELETE_K2,
    INSERT_0,
    MERGE,
    OVERWRITE,
    PAINT_1_0,
    REPLACE_1,
    SET_PROPERTY,
    Case,
)
from model.engine_calls import EngineCalls
from model.layouts import Layout
from model.operations import plus, rearrange

ANY = Condition("TRUE", lambda _k, _a: True)
RED = Condition("a = 0", lambda _, a: a == 0)
BLUE = Condition("a = 1", lambda _, a: a == 1)
KEYLESS = Condition("k IS NULL", lambda k, _: k is None)
BROKEN = Condition("1 / (k - 2) > 5", lambda k, _: k is not None and 1 / (k - 2) > 5)
"""Raises over a row of the key 2, and holds for no other one."""

TO_3 = Setting("3", lambda _: 3)
TO_8 = Setting("8", lambda _: 8)
TO_BROKEN = Setting("CAST(1 / (k - 2) AS BIGINT)", lambda k: None if k is None else int(1 / (k - 2)))

SAME = On("t.k <=> s.k", lambda t, s: t == s)
ABOVE = On("t.k > s.k", lambda t, s: None not in (t, s) and t > s)
COPIED = On("t.k <=> s.k + 20", lambda t, s: t == plus(s, 20))

Named = tuple[str, str, Program]


def _append(name: str, *values: tuple[int | None, int | None]) -> Named:
    return name, "INSERT", lambda txn: txn.append(*values)


def _update(name: str, where: Condition, to: Setting) -> Named:
    return name, "UPDATE", lambda txn: txn.update(where, to)


def _merge(name: str, on: On, *source: tuple[int | None, int | None], update: bool = False) -> Named:
    return name, "MERGE", lambda txn: txn.merge(source, on, update=update)


def _count_and_merge(key: int) -> Program:
    """Two reads: of all rows, and of those that have the key of the source."""
    return lambda txn: txn.merge([(key, len(txn.read(ANY)))], SAME)


def _count_twice(txn: Calls) -> None:
    red, keyless = txn.read(RED), txn.read(KEYLESS)
    txn.append((30, len(red)))
    txn.append((31, len(keyless)))


def _count_and_delete(txn: Calls) -> None:
    txn.append((32, len(txn.read(RED))))
    txn.delete(BLUE)


def _failing(call: str) -> Program:
    """A call that fails over a row of the key 2. What is appended tells whether it did."""

    def program(txn: Calls) -> None:
        calls = {
            "read": lambda: txn.read(BROKEN),
            "delete": lambda: txn.delete(BROKEN),
            "update": lambda: txn.update(BLUE, TO_BROKEN),
        }
        txn.append((17, int(txn.fails(calls[call]))))

    return program


def _count_in_domain(txn: Calls) -> None:
    value = txn.domains().get("x", "0")
    txn.set_domain("x", str(int(value) + 1))


def _copy_domain(before: str, after: str) -> Program:
    """Each of two such transactions rests on what the other one sets."""

    def program(txn: Calls) -> None:
        txn.set_domain(after, str(int(txn.domains().get(before, "0")) + 1))

    return program


def _count_red_in_domain(txn: Calls) -> None:
    txn.set_domain("y", str(len(txn.read(RED))))


def _compact_and_count(txn: Calls) -> None:
    found = txn.read(ANY)
    txn.compact()
    txn.set_domain("y", str(len(found)))


def _domain_in_row(txn: Calls) -> None:
    txn.append((33, int(txn.domains().get("x", "0"))))


def _append_and_set(txn: Calls) -> None:
    txn.append((34, 0))
    txn.set_domain("z", "1")


def _delete_and_set(txn: Calls) -> None:
    txn.delete(RED)
    txn.set_domain("x", "2")


NULLS_AND_MERGES: tuple[Named, ...] = (
    _append("insert k=null", (None, 3)),
    ("delete k=null", "DELETE", lambda txn: txn.delete(KEYLESS)),
    _update("update k=null to 3", KEYLESS, TO_3),
    _merge("merge <=>", SAME, (None, 0), (12, 1), update=True),
    _merge("merge <=> inserts", SAME, (10, 1)),
    _merge("merge above", ABOVE, (2, 0), update=True),
    _merge("merge above inserts", ABOVE, (5, 0)),
)

SEVERAL_READS: tuple[Named, ...] = (
    ("insert itself", "INSERT SELECT", lambda txn: txn.append_own("generator")),
    ("merge itself", "MERGE", lambda txn: txn.merge_own(COPIED, 20)),
    ("count and merge 50", "MERGE", _count_and_merge(50)),
    ("count and merge 51", "MERGE", _count_and_merge(51)),
    ("count twice", "INSERT SELECT", _count_twice),
    ("count and delete", "DELETE", _count_and_delete),
    ("a read fails", "INSERT SELECT", _failing("read")),
    ("a delete fails", "INSERT SELECT", _failing("delete")),
    ("an update fails", "INSERT SELECT", _failing("update")),
)

OTHER_WAYS: tuple[Named, ...] = (
    ("insert itself as a scan", "INSERT SELECT", lambda txn: txn.append_own("scan")),
    ("insert itself as a list", "INSERT SELECT", lambda txn: txn.append_own("list")),
)
"""Those that differ from others only in what the engine is given."""

OF_DOMAINS: tuple[Named, ...] = (
    ("set x", "SET DOMAIN", lambda txn: txn.set_domain("x", "1")),
    ("remove x", "SET DOMAIN", lambda txn: txn.set_domain("x", None)),
    ("count in x", "SET DOMAIN", _count_in_domain),
    ("x to y", "SET DOMAIN", _copy_domain("x", "y")),
    ("y to x", "SET DOMAIN", _copy_domain("y", "x")),
    ("count a=0 in y", "SET DOMAIN", _count_red_in_domain),
    ("compact and count in y", "OPTIMIZE", _compact_and_count),
    ("x to a row", "INSERT SELECT", _domain_in_row),
    ("insert and set z", "INSERT", _append_and_set),
    ("delete a=0 and set x", "DELETE", _delete_and_set),
)

OF_THE_TABLE: tuple[Named, ...] = (
    ("drop s", "ALTER", lambda txn: txn.drop_column()),
    ("rename s", "ALTER", lambda txn: txn.rename_column()),
    ("retype s", "ALTER", lambda txn: txn.retype_column()),
    (f"require {RULES['small'].sql}", "ALTER", lambda txn: txn.require("small")),
    ("require a", "ALTER", lambda txn: txn.require("given")),
    ("add a feature", "ALTER", lambda txn: txn.add_feature()),
    ("drop a feature", "ALTER", lambda txn: txn.drop_feature()),
    ("enable times", "ALTER", lambda txn: txn.enable_times()),
    _append("insert a=7", (20, 7)),
    _append("insert a=null", (21, None)),
    _update("update a=1 to 8", BLUE, TO_8),
    ("restore", "RESTORE", lambda txn: txn.restore()),
)

OF_CLUSTERING: tuple[Named, ...] = (
    ("cluster by s", "ALTER", lambda txn: txn.cluster_by("s")),
    ("cluster by a", "ALTER", lambda txn: txn.cluster_by("a")),
)

CLUSTER: Named = ("cluster", "OPTIMIZE", lambda txn: txn.cluster())

VACUUM = Case("vacuum", "VACUUM", rearrange(), lambda _: None, None, None)
"""It is two commits, between which files are deleted, and no transaction of the public API."""

STATEMENTS = (INSERT_0, COPY_0_1, DELETE_0, DELETE_K2, PAINT_1_0, MERGE, OVERWRITE, REPLACE_1, SET_PROPERTY, COMPACT)
"""Those of the other tables that meet the programs, too."""


@cache
def programs(layout: Layout) -> tuple[Case, ...]:
    """The programs for a table of this kind, and VACUUM."""
    known = [*NULLS_AND_MERGES, *SEVERAL_READS, *OF_DOMAINS, *OF_THE_TABLE]
    if layout.clustered:
        known += [*OF_CLUSTERING, CLUSTER]
    return (*(as_case(layout, *one) for one in known), VACUUM)


def as_case(layout: Layout, name: str, kind: str, program: Program) -> Case:
    """A program as an operation on a table of this kind."""
    statement = Programmed(program, layout.created)
    return Case(name, kind, statement, lambda txn: program(EngineCalls(txn)), None, None, program=program)


def of_rows_and_domains(layout: Layout) -> tuple[Case, ...]:
    """The programs that :class:`model.core.Core` runs: they leave the schema, the properties and the protocol alone."""
    names = {name for name, _, _ in (*NULLS_AND_MERGES, *SEVERAL_READS, *OF_DOMAINS, *OF_CLUSTERING)}
    return tuple(case for case in programs(layout) if case.name in names)


def named(layout: Layout, *names: str) -> tuple[Case, ...]:
    """The programs of these names, and statements."""
    others = (as_case(layout, *one) for one in OTHER_WAYS)
    known = {case.name: case for case in (*STATEMENTS, *programs(layout), *others)}
    return tuple(known[name] for name in names)
