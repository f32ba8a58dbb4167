"""``python -m fuzz.left_out RULE TARGET SEED ...``: inputs of a target, after a rule of the Parquet reader was removed.

Ends with exit code 3 if one of them is a finding. A process of its own, since Arrow's count of memory never goes down.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from fuzz.targets import judge, target_of
from refdelta.engine.parquet import limits
from refdelta.engine.parquet.metadata import LIST, CompactReader


def _integer(self: Any, bits: int = 64) -> int:
    return _INTEGER(self, 64)


def _length(self: Any, kind: int) -> int:
    return _LENGTH(self, self._data[self._at] & 15)


def _skip_list(self: Any, kind: int) -> None:
    self._skip(LIST)


_INTEGER, _LENGTH = CompactReader.integer, CompactReader.length
RULES: dict[str, list[tuple[Any, str, Any]]] = {
    "none": [],
    "numbers of 32 bits": [(CompactReader, "integer", _integer)],
    "kinds of lists": [(CompactReader, "length", _length), (CompactReader, "skip_list", _skip_list)],
    "pages and dictionaries": [(limits._Cost, "held", property(lambda self: 0, lambda self, value: None))],
}


def main() -> int:
    """The command."""
    rule, target, *seeds = sys.argv[1:]
    for holder, name, value in RULES[rule]:
        setattr(holder, name, value)
    for seed in seeds:
        try:
            judge(target_of(target), seed.encode())
        except AssertionError as error:
            print(f"{seed}: {error}")
            return 3
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
