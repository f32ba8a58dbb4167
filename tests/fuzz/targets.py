"""What a fuzz target is, and all of them by name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refdelta.errors import DeltaError

if TYPE_CHECKING:
    from collections.abc import Callable

CORPUS = Path(__file__).parent / "corpus"


@dataclass(frozen=True)
class Target:
    """One thing that takes bytes from outside.

    Attributes:
        name: as the corpus's folder.
        run: takes an input. It returns what tells outcomes apart, raises a ``DeltaError``, or has found a fault.
        kind: what inputs are: ``json`` (lines of it), ``parquet``, ``text`` or ``bytes``.
        share: how many of a thousand inputs of a run are for it.
        seeds: inputs besides those of the corpus.
        tokens: words of the format.
        seconds: processor time that one input may take.
        outside: whether inputs go on to another library's reader of files behind our checks. Such a target runs in
            children with limits alone; its inputs are kept nowhere, and a finding is told in words.
    """

    name: str
    run: Callable[[bytes], Any]
    kind: str
    share: int
    seeds: Callable[[], list[bytes]] = list
    tokens: tuple[bytes, ...] = ()
    seconds: float = 20.0
    outside: bool = False

    def inputs(self) -> list[bytes]:
        """The seeds and the corpus, in a fixed order."""
        return [*self.seeds(), *(path.read_bytes() for path in sorted((CORPUS / self.name).glob("*")))]


def judge(target: Target, data: bytes) -> Any:
    """Run an input. Whatever is not a ``DeltaError`` with a message that can be shown goes through.

    Returns:
        What tells outcomes apart: an input whose outcome is new is worth to be changed further.
    """
    try:
        return target.run(data)
    except DeltaError as error:
        text = str(error)
        shown(text)
        frame: Any = error.__traceback__
        while frame.tb_next:
            frame = frame.tb_next
        return type(error).__name__, frame.tb_frame.f_code.co_name, frame.tb_lineno


def shown(text: str) -> None:
    """A message has one line, of a bearable length, that any terminal and any log takes."""
    assert text, "an error without a message"
    assert text.isprintable(), f"a message that is not one printable line: {text!r}"[:300]
    assert len(text) <= 2_000, f"a message of {len(text)} characters: {text[:200]!r}"


def target_of(name: str) -> Target:
    """The target of this name, the faulty ones included, by which the fuzzer itself is tried."""
    from fuzz import faults

    return faults.TARGETS[name] if name in faults.TARGETS else targets()[name]


@cache
def targets() -> dict[str, Target]:
    """All targets by name. Their modules are read when they are asked for."""
    from fuzz import compared, decoders, extremes, footers, pages, tables

    modules = (decoders, tables, footers, compared, pages, extremes)
    return {target.name: target for module in modules for target in module.TARGETS}
