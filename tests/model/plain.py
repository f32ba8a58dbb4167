"""Plain checking by files, to compare with: what a transaction read are the files that statistics let it skip none of,
and a winner's new files conflict unless their partition says otherwise. delta-spark checks in this way, a little more
strictly; what it makes of the same histories is in :mod:`model.delta_spark`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from model.branches import Staged, Version
from model.engine import Engine
from refdelta.conformance.judge import SERIALIZABLE


def accepts(engine: Engine, version: Version, staged: Staged) -> bool:
    """Whether plain checking lets a transaction commit when the table is at ``version``."""
    asks = staged.case.asks
    mine = {action["remove"]["path"] for action in engine.undisturbed(staged) if "remove" in action}
    read = set() if asks is None else _read(engine, staged)
    for data in version.log[staged.at.in_log + 1 :]:
        theirs = [json.loads(line) for line in data.splitlines()]
        removed = {a["remove"]["path"] for a in theirs if "remove" in a}
        if any("metaData" in a or "protocol" in a for a in theirs) or removed & (read | mine):
            return False
        info = next(a["commitInfo"] for a in theirs if "commitInfo" in a)
        if engine.level != SERIALIZABLE and info.get("isBlindAppend"):
            continue
        added = [a["add"] for a in theirs if "add" in a and a["add"]["dataChange"]]
        if asks is not None and any(_may_hold(asks, add["partitionValues"]) for add in added):
            return False
    return True


def _read(engine: Engine, staged: Staged) -> set[str]:
    asks = staged.case.asks
    return {
        path
        for path, partition, rows in engine.files(staged.at)
        if _may_hold(asks, partition)
        and all(_in_range(constants, [row["ka".index(c)] for row in rows]) for c, constants in asks.items())
    }


def _may_hold(asks: Mapping[str, tuple[int, ...]], partition: Mapping[str, str | None]) -> bool:
    return all(int(partition[c]) in constants for c, constants in asks.items() if partition.get(c) is not None)


def _in_range(constants: tuple[int, ...], values: list[int]) -> bool:
    return any(min(values) <= constant <= max(values) for constant in constants)
