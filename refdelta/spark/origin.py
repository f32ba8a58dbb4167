"""Which version of which table the rows of a DataFrame are made from, noted in its plan.

Whoever writes rows that are made from those of the same table rests on them, and is to be told where somebody has
changed them since. The note is the name of an alias, which stays in the plan whatever is made of the DataFrame.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

_NOTE = re.compile(r"refdelta_(\d+)_([0-9a-f]{32})")


def noted(frame: Any, uri: str, version: int) -> Any:
    """The same DataFrame, with a note that its rows are those of this version of the table at ``uri``."""
    return frame.alias(f"refdelta_{version}_{_digest(uri)}")


def oldest_version(frame: Any, uri: str) -> int | None:
    """The oldest noted version of the table at ``uri`` from which rows are made, None where there is no note."""
    plan = getattr(frame, "_jdf", None)
    if plan is None:
        return None
    text = plan.queryExecution().analyzed().treeString()
    return min((int(version) for version, table in _NOTE.findall(text) if table == _digest(uri)), default=None)


def _digest(uri: str) -> str:
    return hashlib.sha256(uri.encode()).hexdigest()[:32]
