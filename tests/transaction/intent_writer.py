"""A process that writes by intents, and dies at a call of the store.

``python intent_writer.py URI NUMBER COUNT DIE`` appends rows ``NUMBER * 1000 + k`` and prints each that was
acknowledged. At its call number ``DIE`` of the store that writes, it dies before the call, or after it where the number
is negative. ``INTENT_FRESH_MS`` in the environment is the age at which it takes no intent of others any more.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import pyarrow as pa

from refdelta import CommitProperties, DeltaTable, write_deltalake
from refdelta.core.commit import intents

ALWAYS = CommitProperties(group="always")
CHANGES = ("put_if_absent", "delete", "list", "get")


def die_at(number: int, store: type) -> None:
    """Kill this process at its call with this number that concerns the log."""
    calls = 0

    def wrapped(call):
        def counted(self, *args, **options):
            nonlocal calls
            if "_delta_log" not in f"{args[:1]}{options}":
                return call(self, *args, **options)
            calls += 1
            if calls == number:
                os.kill(os.getpid(), signal.SIGKILL)
            found = call(self, *args, **options)
            if calls == -number:
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        return counted

    for name in CHANGES:
        setattr(store, name, wrapped(getattr(store, name)))


def main() -> None:
    uri, first, count, die = sys.argv[1], *map(int, sys.argv[2:])
    options = json.loads(os.environ.get("INTENT_OPTIONS", "{}"))
    intents.FRESH_MS = int(os.environ.get("INTENT_FRESH_MS", intents.FRESH_MS))
    die_at(die, type(DeltaTable(uri, storage_options=options).store))
    for k in range(count):
        rows = pa.table({"id": [first * 1000 + k]})
        write_deltalake(uri, rows, mode="append", storage_options=options, commit_properties=ALWAYS)
        print(first * 1000 + k, flush=True)


if __name__ == "__main__":
    main()
