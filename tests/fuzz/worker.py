"""A child of a run: changes inputs of some targets and feeds them, until it has done its share or found something.

``python -m fuzz.worker SEED FOLDER TARGET=COUNT ...`` is deterministic: first come the inputs of the corpus,
then ``COUNT`` changed ones. Before an input is run it is in ``FOLDER/current``, so that the parent has it if this
process is killed: by a fault of native code, or by the alarm that ends an input which takes more processor time than
any should. A finding is left there too, with its traceback in ``FOLDER/why``. Of a target that goes on to another
library, the number of the input alone is noted, and the kind of the error.
"""

from __future__ import annotations

import mmap
import resource
import signal
import sys
import traceback
import warnings
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fuzz.targets import Target

MEMORY = 4 << 30
"""Address space of a child, in bytes: what native libraries map at their start, and some gigabytes besides."""

POOL = 400
"""Inputs of a target that are held to be changed further."""

FOUND = 3
"""The exit code of a child that found something."""


class Current:
    """The input that is being run, in a file: which target, its number there (corpus first), and its bytes."""

    HEAD = 24

    def __init__(self, path: Path, size: int):
        with path.open("w+b") as file:
            file.truncate(size + self.HEAD)
            self._map = mmap.mmap(file.fileno(), size + self.HEAD)

    def set(self, place: int, number: int, data: bytes) -> None:
        """Note an input."""
        self._map[: self.HEAD] = b"".join(one.to_bytes(8, "little") for one in (place, number, len(data)))
        self._map[self.HEAD : self.HEAD + len(data)] = data

    @classmethod
    def read(cls, path: Path) -> tuple[int, int, bytes]:
        """What a child noted last."""
        content = path.read_bytes() if path.exists() else b""
        place, number, length = (int.from_bytes(content[at : at + 8], "little") for at in (0, 8, 16))
        return place, number, content[cls.HEAD : cls.HEAD + length]


def main(seed: str, folder: Path, work: list[tuple[str, int]]) -> int:
    """Run targets one after the other. Returns 0, or ``FOUND``; prints for each how many outcomes it had."""
    from fuzz.mutate import LONGEST
    from fuzz.targets import judge, target_of

    chosen = [(target_of(name), count) for name, count in work]
    current = Current(folder / "current", LONGEST)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("error")
    for place, (target, count) in enumerate(chosen):
        outcomes: set[object] = set()
        inputs = _Inputs(target, count, Random(f"{seed} {target.name}"))
        for number, data in enumerate(inputs):
            current.set(place, number, b"" if target.outside else data)
            signal.setitimer(signal.ITIMER_PROF, target.seconds)
            try:
                outcome = judge(target, data)
            except Exception as error:
                signal.setitimer(signal.ITIMER_PROF, 0)
                why = f"another end: {type(error).__name__}" if target.outside else _why(error)
                (folder / "why").write_text(why, errors="backslashreplace")
                return FOUND
            if outcome not in outcomes:
                outcomes.add(outcome)
                inputs.keep(data)
        print(len(outcomes), flush=True)
    return 0


class _Inputs:
    """The inputs of a target: the corpus, then changes of it, and of those that were kept."""

    def __init__(self, target: Target, count: int, random: Random):
        self._target, self._count, self._random = target, count, random
        self._pool = target.inputs()

    def keep(self, data: bytes) -> None:
        """Let an input be changed further."""
        self._pool.append(data)
        if len(self._pool) > POOL:
            del self._pool[self._random.randrange(len(self._pool))]

    def __iter__(self) -> Iterator[bytes]:
        from fuzz.mutate import mutate

        yield from list(self._pool)
        for _ in range(self._count):
            data = self._random.choice(self._pool)
            yield mutate(self._random, data, self._target.kind, self._pool, self._target.tokens)


def _why(error: Exception) -> str:
    return "".join(traceback.format_exception(error, limit=-12))


if __name__ == "__main__":
    pairs = [one.split("=") for one in sys.argv[3:]]
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), [(name, int(count)) for name, count in pairs]))
