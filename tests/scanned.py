"""What a scan makes of a handmade table."""

from __future__ import annotations

from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.scan.scan import plan_scan


def scan(table, columns=None, predicate=None, **options):
    return plan_scan(load_snapshot(table.store), columns, predicate, **options)


def rows(table, columns=None, predicate=None):
    planned = scan(table, columns, predicate)
    found = planned.to_table()
    found.validate(full=True)
    assert found.schema == planned.schema
    assert planned.count() == found.num_rows
    return found.to_pylist()
