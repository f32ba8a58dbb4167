"""Which files are live, as the log says; and that it says nothing that no log may say."""

from __future__ import annotations

from collections.abc import Mapping

from refdelta.core.log.actions import Add, CommitInfo, Remove
from refdelta.core.log.codec import decode_commit
from refdelta.core.log.replay import file_key

Entries = Mapping[str, Add]
"""The live files by path."""


class Wrong(AssertionError):
    """The engine did what it must not do."""


def entries_of(*log: bytes) -> Entries:
    """What is live behind the last of these versions."""
    entries: Entries = {}
    for version, data in enumerate(log):
        entries = entries_behind(entries, data, f"version {version}")
    return entries


def entries_behind(entries: Entries, data: bytes, what: str) -> Entries:
    """What is live behind one more commit.

    Raises ``Wrong`` where a remove names nothing that is live, a path would have two entries, or a file that gets
    another vector loses what others said of it. A file may be added again as it is.
    """
    live = dict(entries)
    actions = decode_commit(data, what)
    restores = any(info.fields.get("operation") == "RESTORE" for info in actions if isinstance(info, CommitInfo))
    for path, vector in (file_key(action) for action in actions if isinstance(action, Remove)):
        if path not in live or file_key(live.pop(path))[1] != vector:
            raise Wrong(f"{path} with the vector {vector} is removed, and was not live: {what}")
    for add in (action for action in actions if isinstance(action, Add)):
        path, vector = file_key(add)
        if path in live and file_key(live[path])[1] != vector:
            raise Wrong(f"{path} is live twice: {what}")
        before = entries.get(path)
        if before is not None and add.data_change and add.tags != before.tags and not restores:
            raise Wrong(f"{path} has lost its tags: {what}")
        live[path] = add
    return live
