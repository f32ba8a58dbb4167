"""The versions of tables that rows come from.

A transaction that writes rows of one of its own tables has read this table. The rows may come as an object that reads
them when it is consumed, of a class that knows nothing of tables: a ``RecordBatchReader``, a dataset, a ``LazyFrame``.

- Such an object is marked with the version when it is made (:func:`mark`). The mark is kept beside the object, by its
  identity, as long as the object lives.
- A block that consumes rows learns of each version that gives rows in its thread (:func:`noting`), also to a generator
  or to a stream that was imported from another one.

A version that the caller has named (:attr:`refdelta.engine.log.snapshot.Snapshot.named`) never changes, so reading it
is no read of the table as it is, and is neither marked nor noted.
"""

from __future__ import annotations

import threading
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from refdelta.engine.log.snapshot import Snapshot

T = TypeVar("T")

_marks: dict[int, tuple[weakref.ref[Any], tuple[Snapshot, ...]]] = {}
"""The versions by the identity of the object. Some of these classes have no hash."""


class _Noting(threading.local):
    """The versions that gave rows in the block that this thread is in; None outside of such a block."""

    seen: list[Snapshot] | None = None


_noting = _Noting()


def mark(made: T, read: Iterable[Snapshot]) -> T:
    """Mark an object that reads versions when it is consumed.

    Args:
        made: the object, of a class with weak references.
        read: the versions.

    Returns:
        The object.
    """
    current = tuple(one for one in read if not one.named)
    if current:
        key = id(made)
        _marks[key] = weakref.ref(made, lambda _: _marks.pop(key, None)), current
    return made


def marks_of(made: object) -> tuple[Snapshot, ...]:
    """The versions that an object reads when it is consumed, as far as it is marked."""
    found = _marks.get(id(made))
    return found[1] if found is not None and found[0]() is made else ()


@contextmanager
def noting() -> Iterator[list[Snapshot]]:
    """Note each version that gives rows in this thread while the block runs, in a list. Blocks can be nested."""
    before = _noting.seen
    seen: list[Snapshot] = []
    _noting.seen = seen
    try:
        yield seen
    finally:
        _noting.seen = before
        for snapshot in seen:
            note(snapshot)


def note(snapshot: Snapshot) -> None:
    """Tell the block of :func:`noting` that this thread is in, if it is in one, that a version gives rows."""
    seen = _noting.seen
    if seen is not None and not snapshot.named and not any(one is snapshot for one in seen):
        seen.append(snapshot)


def noted(rows: Iterable[T], read: Iterable[Snapshot]) -> Iterator[T]:
    """The same rows, each batch noted as one of these versions when it is asked for."""
    for snapshot in (versions := tuple(read)):
        note(snapshot)
    for batch in rows:
        yield batch
        for snapshot in versions:
            note(snapshot)
