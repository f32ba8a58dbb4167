"""The log of a store that has no listing, such as a web server: its files are found by their names.

Versions follow one another without a gap, so that the newest one is the last that is there; ``_last_checkpoint`` says
where they begin after the log was cleaned up. Other checkpoints than the one of that hint are not found, nor log
compactions, nor checksums: they only save time.
"""

from __future__ import annotations

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from refdelta.core.log.paths import LOG, checkpoint_key, commit_key, last_checkpoint_key, parse_log_name
from refdelta.core.log.segment import parse_last_checkpoint
from refdelta_storage.errors import ObjectNotFoundError, StorageError
from refdelta_storage.wrappers import WrapperStore

if TYPE_CHECKING:
    import builtins
    from collections.abc import Iterable, Iterator

    from refdelta_storage.base import ObjectInfo, Store

_AT_ONCE = 32
_MOST_PARTS = 10_000
_MOST_VERSIONS = 1_000_000
_LONGEST_HINT = 2**24


class UnlistedLog(WrapperStore):
    """A store whose listings of the log are made of the names that log files have.

    Args:
        inner: a store that does not list.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._honest = False

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[ObjectInfo]:
        """The files of the log from the version of ``after`` on. Raises ``StorageError`` for other places."""
        if not prefix.startswith(f"{LOG}/"):
            return self.inner.list(prefix, after)
        name = parse_log_name(prefix)
        if name is not None and name.version >= 0:
            found = [self._head_or_none(prefix)]
        else:
            digits = (after or "").removeprefix(f"{LOG}/")[:20]
            found = [*self._versions(int(digits) if digits.isdecimal() else 0)]
        kept = [one for one in found if one is not None and one.key.startswith(prefix) and one.key > (after or "")]
        return iter(sorted(kept, key=lambda one: one.key))

    def list_keys(self, prefix: str = "", after: str | None = None) -> builtins.list[str]:
        """The keys of :meth:`list`."""
        return [info.key for info in self.list(prefix, after)]

    def _versions(self, start: int) -> Iterator[ObjectInfo | None]:
        """The hinted checkpoint and the commits from a version on."""
        hinted, keys = self._hint()
        self._check_honest()
        first = start
        if hinted is not None and hinted >= start:
            yield from self._heads(keys)
            if start == 0 and self._head_or_none(commit_key(0)) is None:
                first = hinted  # what was before is cleaned up
        count = 1
        while first < start + _MOST_VERSIONS:
            found = self._heads(commit_key(first + place) for place in range(count))
            there = next((place for place, one in enumerate(found) if one is None), count)
            yield from found[:there]
            if there < count:
                return
            first, count = first + count, min(2 * count, _AT_ONCE)
        raise StorageError(f"{self.uri} has more than {_MOST_VERSIONS:,} commits, which cannot be looked up by name")

    def _hint(self) -> tuple[int | None, builtins.list[str]]:
        """The version of the checkpoint of ``_last_checkpoint``, and the keys that its files may have."""
        try:
            data = self.inner.get_range(last_checkpoint_key(), 0, _LONGEST_HINT)
        except ObjectNotFoundError:
            return None, []
        hint = parse_last_checkpoint(data)
        if hint is None:
            return None, []
        version, parts = hint.version, hint.parts or 0
        if 0 < parts <= _MOST_PARTS:
            names = [f"{version:020d}.checkpoint.{n:010d}.{parts:010d}.parquet" for n in range(1, parts + 1)]
            return version, [f"{LOG}/{name}" for name in names]
        v2 = json.loads(data).get("v2Checkpoint")  # as delta-spark names a checkpoint with a name of its own
        path = v2.get("path") if isinstance(v2, dict) else None
        named = parse_log_name(path) if isinstance(path, str) else None
        own = [f"{LOG}/{path}"] if named is not None and named.version == version and named.is_checkpoint else []
        return version, [checkpoint_key(version), *own]

    def _heads(self, keys: Iterable[str]) -> builtins.list[ObjectInfo | None]:
        wanted = [*keys]
        if len(wanted) < 2:
            return [self._head_or_none(key) for key in wanted]
        with ThreadPoolExecutor(min(len(wanted), _AT_ONCE)) as pool:
            return [*pool.map(self._head_or_none, wanted)]

    def _check_honest(self) -> None:
        """Raise ``StorageError`` for a server that has an answer for every name, so that versions would never end."""
        if not self._honest and self._head_or_none(f"{LOG}/{uuid.uuid4()}.json") is not None:
            raise StorageError(f"{self.uri} answers for objects that do not exist: its newest version cannot be known")
        self._honest = True
