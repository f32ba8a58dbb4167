"""A process that copies the changes of a table by intents, and dies at a call of the store.

``python copying_writer.py SOURCE TARGET APP DIE`` copies what SOURCE has into TARGET, as the application APP; its
position is in the file ``TARGET.APP``. At its call number ``DIE`` on a log, it dies before the call, or after it where
the number is negative; 0 is for none.
"""

from __future__ import annotations

import sys
from pathlib import Path

from refdelta import DeltaTable, write_deltalake
from transaction.intent_writer import ALWAYS, die_at


def main() -> None:
    source, target, app, die = sys.argv[1:]
    die_at(int(die), type(DeltaTable(target).store))
    stored = Path(f"{target}.{app}")
    follower = DeltaTable(source).follow(stored.read_text() if stored.exists() else None, timeout=0)
    store(stored, follower.position)
    for change in follower:
        # A killed one may have left the same change beside the log. If it is committed meanwhile, the change conflicts
        # with itself, and is known at the next attempt.
        once = {"app_id": app, "app_version": change.app_version, "attempts": 20}
        write_deltalake(target, change.rows, mode="append", commit_properties=ALWAYS, **once)
        store(stored, change.position)


def store(stored: Path, position: str) -> None:
    beside = stored.with_suffix(".new")
    beside.write_text(position)
    beside.replace(stored)


if __name__ == "__main__":
    main()
