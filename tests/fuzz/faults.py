"""Targets with a fault behind a byte that their corpus lacks: what a fuzzer that finds nothing would miss."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING

from fuzz.targets import Target
from refdelta.errors import DeltaError

if TYPE_CHECKING:
    from collections.abc import Callable


class _TwoLinesError(DeltaError):
    def __str__(self) -> str:
        return "one\ntwo"


def _another_error(_: bytes) -> None:
    raise KeyError("x")


def _wrong_answer(data: bytes) -> None:
    assert not data


def _warning(_: bytes) -> None:
    warnings.warn("x", stacklevel=1)


def _crash(_: bytes) -> None:
    os.abort()


def _endless_loop(_: bytes) -> None:
    while True:
        pass


def _too_much_memory(_: bytes) -> None:
    bytes(1 << 40)


def _two_lines(_: bytes) -> None:
    raise _TwoLinesError


def _behind(fault: Callable[[bytes], None]) -> Callable[[bytes], None]:
    return lambda data: fault(data) if b"!" in data else None


_FAULTS = (_another_error, _wrong_answer, _warning, _crash, _endless_loop, _too_much_memory, _two_lines)


def _target(name: str, fault: Callable[[bytes], None], *, outside: bool) -> Target:
    return Target(name, _behind(fault), "text", 1, lambda: [b"seed"], (b"!",), seconds=0.5, outside=outside)


TARGETS = {fault.__name__: _target(fault.__name__, fault, outside=False) for fault in _FAULTS}
TARGETS |= {
    f"{fault.__name__}_outside": _target(f"{fault.__name__}_outside", fault, outside=True)
    for fault in (_wrong_answer, _crash)
}
