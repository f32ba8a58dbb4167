"""Stores around stores: their base, and those that count calls, trace them, forbid writes or inject faults."""

from __future__ import annotations

import abc
import builtins
import copy
import fnmatch
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, Literal, NoReturn, TypeVar

from refdelta_storage.base import Capabilities, Exists, ObjectInfo, PutOutcome, Store, Unknown, check_key
from refdelta_storage.errors import ReadOnlyStoreError, StorageError
from refdelta_storage.streams import CollectingStream


class WrapperStore(Store):
    """Passes everything on to ``inner``. A wrapper of one's own overrides what it changes."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"

    @property
    def uri(self) -> str:
        return self.inner.uri

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    @property
    def authority(self) -> Any:
        return self.inner.authority

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        return self.inner.put_if_absent(key, data)

    def put(self, key: str, data: bytes) -> None:
        self.inner.put(key, data)

    def open_output(self, key: str) -> AbstractContextManager[BinaryIO]:
        return self.inner.open_output(key)

    def create_output(self, key: str) -> AbstractContextManager[BinaryIO]:
        return self.inner.create_output(key)

    def get(self, key: str) -> bytes:
        return self.inner.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self.inner.get_range(key, start, length)

    def get_ranges(self, key: str, ranges: Iterable[tuple[int, int]]) -> builtins.list[bytes]:
        return self.inner.get_ranges(key, ranges)

    def open_input(self, key: str, size: int | None = None) -> BinaryIO:
        return self.inner.open_input(key, size)

    def head(self, key: str) -> ObjectInfo:
        return self.inner.head(key)

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[ObjectInfo]:
        return self.inner.list(prefix, after)

    def delete(self, keys: Iterable[str]) -> None:
        self.inner.delete(keys)

    def delete_unchanged(self, infos: Iterable[ObjectInfo]) -> None:
        self.inner.delete_unchanged(infos)

    def leftovers(self) -> Iterator[ObjectInfo]:
        return self.inner.leftovers()

    def get_many(self, keys: Iterable[str]) -> builtins.list[bytes]:
        return self.inner.get_many(keys)

    def steady(self) -> Store:
        return self._around(self.inner.steady())

    def hasty(self) -> Store:
        return self._around(self.inner.hasty())

    def sync(self, keys: Iterable[str]) -> None:
        self.inner.sync(keys)

    @contextmanager
    def pinned(self, folder: str) -> Iterator[Store]:
        with self.inner.pinned(folder) as inner:
            yield self._around(inner)

    def remove_empty(self, folder: str) -> None:
        self.inner.remove_empty(folder)

    def _around(self, inner: Store) -> Store:
        if inner is self.inner:
            return self
        view = copy.copy(self)
        view.inner = inner
        return view

    def local_path(self, key: str) -> str | None:
        return self.inner.local_path(key)


Operation = Literal[
    "put_if_absent",
    "put",
    "open_output",
    "get",
    "get_range",
    "get_ranges",
    "open_input",
    "head",
    "list",
    "delete",
    "leftovers",
    "get_many",
    "local_path",
]
_T = TypeVar("_T")


class ReadOnlyStore(WrapperStore):
    """Refuses every write with ``ReadOnlyStoreError``, giving ``why``."""

    def __init__(self, inner: Store, why: str = "it was opened for reading") -> None:
        super().__init__(inner)
        self.why = why

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.inner.capabilities, put_if_absent=False)

    def _refuse(self, key: str) -> NoReturn:
        raise ReadOnlyStoreError(f"cannot write {key!r} in {self.uri}: {self.why}")

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:  # noqa: ARG002
        self._refuse(key)

    def put(self, key: str, data: bytes) -> None:  # noqa: ARG002
        self._refuse(key)

    def open_output(self, key: str) -> AbstractContextManager[BinaryIO]:
        self._refuse(key)

    def create_output(self, key: str) -> AbstractContextManager[BinaryIO]:
        self._refuse(key)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._refuse(key)

    def delete_unchanged(self, infos: Iterable[ObjectInfo]) -> None:
        self.delete(info.key for info in infos)


class _Observer(WrapperStore):
    """Calls ``_see`` with each operation and its keys, before it runs."""

    @abc.abstractmethod
    def _see(self, operation: Operation, keys: builtins.list[str]) -> None: ...

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        self._see("put_if_absent", [key])
        return self.inner.put_if_absent(key, data)

    def put(self, key: str, data: bytes) -> None:
        self._see("put", [key])
        self.inner.put(key, data)

    def open_output(self, key: str) -> AbstractContextManager[BinaryIO]:
        self._see("open_output", [key])
        return self.inner.open_output(key)

    def create_output(self, key: str) -> AbstractContextManager[BinaryIO]:
        self._see("open_output", [key])
        return self.inner.create_output(key)

    def get(self, key: str) -> bytes:
        self._see("get", [key])
        return self.inner.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self._see("get_range", [key])
        return self.inner.get_range(key, start, length)

    def get_ranges(self, key: str, ranges: Iterable[tuple[int, int]]) -> builtins.list[bytes]:
        self._see("get_ranges", [key])
        return self.inner.get_ranges(key, ranges)

    def open_input(self, key: str, size: int | None = None) -> BinaryIO:
        self._see("open_input", [key])
        return self.inner.open_input(key, size)

    def head(self, key: str) -> ObjectInfo:
        self._see("head", [key])
        return self.inner.head(key)

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[ObjectInfo]:
        self._see("list", [prefix])
        return self.inner.list(prefix, after)

    def delete(self, keys: Iterable[str]) -> None:
        keys = [*keys]
        self._see("delete", keys)
        self.inner.delete(keys)

    def delete_unchanged(self, infos: Iterable[ObjectInfo]) -> None:
        infos = [*infos]
        if infos:
            self._see("delete", [info.key for info in infos])
        self.inner.delete_unchanged(infos)

    def leftovers(self) -> Iterator[ObjectInfo]:
        self._see("leftovers", [""])
        return self.inner.leftovers()

    def get_many(self, keys: Iterable[str]) -> builtins.list[bytes]:
        keys = [*keys]
        self._see("get_many", keys)
        return self.inner.get_many(keys)

    def local_path(self, key: str) -> str | None:
        self._see("local_path", [key])
        return self.inner.local_path(key)


class CountingStore(_Observer):
    """Counts calls: ``store.counts["get"]``, ``store.total``. A pickled one counts on by itself."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.counts: Counter[str] = Counter()
        self._lock = _Lock()

    @property
    def total(self) -> int:
        """Calls of all operations; ``local_path``, which is none of the store's, is counted and not part of it."""
        return sum(self.counts.values()) - self.counts["local_path"]

    def reset(self) -> None:
        """Count from nothing again."""
        with self._lock:
            self.counts.clear()

    def _see(self, operation: Operation, keys: builtins.list[str]) -> None:  # noqa: ARG002
        with self._lock:
            self.counts[operation] += 1


class TracingStore(_Observer):
    """Records ``(operation, key)`` in ``calls``, in order; one entry a key, and for ``list`` the prefix."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.calls: builtins.list[tuple[str, str]] = []

    def _see(self, operation: Operation, keys: builtins.list[str]) -> None:
        self.calls.extend((operation, key) for key in keys)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, and the calls that it affects.

    Attributes:
        kind: ``drop``: the request never arrives. ``lose_reply``: it is carried out, and its reply is lost.
            ``exists``: the same for ``put_if_absent``, and the client resends it and gets the reply that the object
            exists. ``late``: its reply is lost, and it is carried out ``calls`` calls later. For these
            ``put_if_absent`` gives its ``Unknown`` or ``Exists``, and all else raises ``StorageError``.
            ``fail``: it is refused, nothing is done, ``StorageError``. ``delay``: it takes ``seconds`` more.
        operation: the method, or ``*``.
        key: a shell pattern for its key; for ``list`` of its prefix, for ``delete`` and ``get_many`` of any key.
        skip: how many matching calls go well before.
        times: how many go wrong.
    """

    kind: Literal["drop", "lose_reply", "exists", "late", "fail", "delay"]
    operation: Operation | Literal["*"] = "put_if_absent"
    key: str = "*"
    skip: int = 0
    times: int = 1
    seconds: float = 0.0
    calls: int = 1

    def __post_init__(self) -> None:
        allowed = {"exists": ("put_if_absent",), "late": ("put_if_absent", "put", "delete")}.get(self.kind)
        if allowed is not None and self.operation not in allowed:
            raise ValueError(f"a fault of kind {self.kind!r} is for {', '.join(allowed)}, not for {self.operation!r}")


class FaultyStore(WrapperStore):
    """Injects faults by a schedule; the first fault that still matches a call is the one that happens.

    Args:
        inner: the store that works.
        faults: the schedule.
        sleep: how to wait, for ``delay``.
    """

    def __init__(
        self, inner: Store, faults: Iterable[Fault] = (), *, sleep: Callable[[float], Any] = time.sleep
    ) -> None:
        super().__init__(inner)
        self.faults = [*faults]
        self.injected: builtins.list[tuple[str, str, str]] = []
        self._matched = [0] * len(self.faults)
        self._late: builtins.list[tuple[int, Callable[[], Any]]] = []
        self._lock = _Lock()
        self._sleep = sleep

    def land(self) -> None:
        """Carry out everything that is still on its way."""
        with self._lock:
            due, self._late = self._late, []
        for _, effect in due:
            effect()

    def _next(self, operation: Operation, keys: builtins.list[str]) -> Fault | None:
        """Let late requests arrive whose time has come, then find the fault of this call."""
        with self._lock:
            self._late = [(calls - 1, effect) for calls, effect in self._late]
            due = [effect for calls, effect in self._late if calls < 0]
            self._late = [(calls, effect) for calls, effect in self._late if calls >= 0]
            chosen = None
            for position, fault in enumerate(self.faults):
                if fault.operation not in ("*", operation) or not any(
                    fnmatch.fnmatchcase(key, fault.key) for key in keys
                ):
                    continue
                self._matched[position] += 1
                if chosen is None and fault.skip < self._matched[position] <= fault.skip + fault.times:
                    chosen = fault
                    self.injected.append((fault.kind, operation, keys[0]))
        for effect in due:
            effect()
        return chosen

    def _run(self, operation: Operation, keys: builtins.list[str], effect: Callable[[], _T]) -> _T:
        """Carry out ``effect`` as the schedule has it. ``_Lost`` stands for a reply that never came."""
        fault = self._next(operation, keys)
        kind = fault.kind if fault else None
        what = f"injected: {operation} of {', '.join(keys[:3])!r}"
        if fault and kind == "delay":
            self._sleep(fault.seconds)
        if kind == "fail":
            raise StorageError(f"{what} was refused")
        if kind == "drop":
            raise _Lost(f"{what} was lost")
        if fault and kind == "late":
            with self._lock:
                self._late.append((fault.calls, effect))
            raise _Lost(f"{what} is late")
        result = effect()
        if kind == "lose_reply":
            raise _Lost(f"the reply was lost, {what}")
        if kind == "exists":
            raise _Resent(f"sent twice, {what}")
        return result

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        try:
            return self._run("put_if_absent", [key], lambda: self.inner.put_if_absent(key, data))
        except _Lost as error:
            return Unknown(error)
        except _Resent:
            return Exists()

    def put(self, key: str, data: bytes) -> None:
        self._run("put", [key], lambda: self.inner.put(key, data))

    @contextmanager
    def open_output(self, key: str) -> Iterator[BinaryIO]:
        check_key(key)
        stream = CollectingStream()
        yield stream
        stream.close()
        self._run("open_output", [key], lambda: self._write(key, stream.content))

    @contextmanager
    def create_output(self, key: str) -> Iterator[BinaryIO]:
        check_key(key)
        stream = CollectingStream()
        yield stream
        stream.close()
        self._run("open_output", [key], lambda: self._create(key, stream.content))

    def _write(self, key: str, data: bytes) -> None:
        with self.inner.open_output(key) as stream:
            stream.write(data)

    def _create(self, key: str, data: bytes) -> None:
        with self.inner.create_output(key) as stream:
            stream.write(data)

    def get(self, key: str) -> bytes:
        return self._run("get", [key], lambda: self.inner.get(key))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._run("get_range", [key], lambda: self.inner.get_range(key, start, length))

    def get_ranges(self, key: str, ranges: Iterable[tuple[int, int]]) -> builtins.list[bytes]:
        ranges = [*ranges]
        return self._run("get_ranges", [key], lambda: self.inner.get_ranges(key, ranges))

    def open_input(self, key: str, size: int | None = None) -> BinaryIO:
        return self._run("open_input", [key], lambda: self.inner.open_input(key, size))

    def head(self, key: str) -> ObjectInfo:
        return self._run("head", [key], lambda: self.inner.head(key))

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[ObjectInfo]:
        return self._run("list", [prefix], lambda: iter([*self.inner.list(prefix, after)]))

    def delete(self, keys: Iterable[str]) -> None:
        keys = [*keys]
        self._run("delete", keys, lambda: self.inner.delete(keys))

    def delete_unchanged(self, infos: Iterable[ObjectInfo]) -> None:
        infos = [*infos]
        if infos:
            self._run("delete", [info.key for info in infos], lambda: self.inner.delete_unchanged(infos))

    def leftovers(self) -> Iterator[ObjectInfo]:
        return self._run("leftovers", [""], lambda: iter([*self.inner.leftovers()]))

    def get_many(self, keys: Iterable[str]) -> builtins.list[bytes]:
        keys = [*keys]
        return self._run("get_many", keys, lambda: self.inner.get_many(keys))

    def steady(self) -> Store:
        return self  # the schedule counts all calls

    def hasty(self) -> Store:
        return self

    def local_path(self, key: str) -> str | None:
        # Native readers would go round the faults, unless none is for reading.
        reads = {"*", "open_input", "get", "get_range", "get_ranges"}
        return None if any(fault.operation in reads for fault in self.faults) else self.inner.local_path(key)


class _Lost(StorageError):
    """No reply came."""


class _Resent(StorageError):
    """The client sent it twice, and heard of its own first request."""


class _Lock:
    """A lock that can be pickled: what comes out is a new one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[_Lock], tuple[()]]:
        return _Lock, ()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


__all__ = [
    "CountingStore",
    "Fault",
    "FaultyStore",
    "Operation",
    "ReadOnlyStore",
    "TracingStore",
    "WrapperStore",
]
