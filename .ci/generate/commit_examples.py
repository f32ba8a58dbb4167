"""``make generate NAME=commit-protocol``: the commits of ``docs/commit-protocol.md``, section 10, as this engine writes
them.

Three commits are made in a new table. Ids, times, sizes of files and the version of the engine differ from run to run,
and are replaced by fixed ones. ``tests/packaging/test_commit_examples.py`` makes them again, and compares.
"""

from __future__ import annotations

import itertools
import json
import re
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from refdelta import DeltaTable, write_deltalake
from refdelta.core.rows.deletion_vector import encode_relative, relative_key

DOCUMENT = Path(__file__).parents[2] / "docs" / "commit-protocol.md"
_BLOCK = re.compile(r"(<!-- wire: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_NAMES = {1: "append", 2: "delete", 3: "optimize"}
_TIME = 1_764_100_000_000
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SIZES = re.compile(r"size|.*Bytes|.*FileSize|executionTimeMs")


def document(text: str) -> str:
    """The page, with its commits written anew."""
    found = commits()
    return _BLOCK.sub(lambda block: f"{block[1]}\n```text\n{found[block[2]]}```\n\n{block[3]}", text)


def commits() -> dict[str, str]:
    """The files of three commits, by name, and the file of the deletion vector of the second one, in hexadecimal."""
    with tempfile.TemporaryDirectory() as folder:
        _make(folder)
        fixed = _Fixed()
        texts = [(Path(folder) / f"_delta_log/{version:020d}.json").read_text() for version in range(4)]
        written = [fixed.commit(version, text) for version, text in enumerate(texts)]
        add = json.loads(texts[2].splitlines()[-1])["add"]
        vector = Path(folder, relative_key(add["deletionVector"]["pathOrInlineDv"])).read_bytes()
        return {**{name: written[version] for version, name in _NAMES.items()}, "vector": vector.hex(" ") + "\n"}


def _make(folder: str) -> None:
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
    write_deltalake(folder, rows, configuration={"delta.enableDeletionVectors": "true"})
    write_deltalake(folder, pa.table({"id": pa.array([4, 5, 6], pa.int64())}), mode="append")
    optimize = DeltaTable(folder).begin()
    optimize.compact()
    DeltaTable(folder).delete("id = 3")
    optimize.commit()


class _Fixed:
    """The replacements: the same value is replaced by the same one in each commit."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}
        self._files: dict[str, int] = {}
        self._numbers = itertools.count(1)

    def commit(self, version: int, text: str) -> str:
        """A commit file with fixed values."""
        lines = [json.loads(line) for line in text.splitlines()]
        if "".join(_line(line) for line in lines) != text:
            raise AssertionError("a commit is not compact JSON, an action a line")
        return "".join(_line(self._value("", line, version)) for line in lines)

    def _value(self, key: str, value: Any, version: int) -> Any:
        match value:
            case dict():
                return {self._id(k): self._value(k, v, version) for k, v in self._dated(value, version)}
            case list():
                return [self._value(key, one, version) for one in value]
            case str() if key == "pathOrInlineDv":
                return self._vector(value)
            case str() if key == "engineInfo":
                return "refdelta/0.2.0"
            case int() | str() if _SIZES.fullmatch(key):
                fixed = 0 if str(value) == "0" else 34 if key == "sizeInBytes" else 1000
                return type(value)(fixed)
            case str() if key == "INSERTION_TIME":
                return str((_TIME + 1000) * 1000)
            case str():
                return self._id(value)
        return value

    def _dated(self, fields: dict[str, Any], version: int) -> Iterator[tuple[str, Any]]:
        """The fields, with fixed times: a file keeps that of the commit in which it is first."""
        for key, value in fields.items():
            if key in ("timestamp", "deletionTimestamp", "createdTime"):
                yield key, _TIME + 1000 * version
            elif key == "modificationTime":
                yield key, _TIME + 1000 * self._files.setdefault(fields["path"], version)
            else:
                yield key, value

    def _id(self, text: str) -> str:
        return _UUID.sub(lambda found: self._fixed_id(found[0]), text)

    def _fixed_id(self, known: str) -> str:
        if known not in self._ids:
            self._ids[known] = str(uuid.UUID(int=(0xA4 << 120) | (4 << 76) | (8 << 60) | next(self._numbers)))
        return self._ids[known]

    def _vector(self, known: str) -> str:
        return encode_relative(uuid.UUID(self._fixed_id(known)))


def _line(action: dict[str, Any]) -> str:
    return json.dumps(action, separators=(",", ":"), ensure_ascii=False) + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(document(DOCUMENT.read_text()))
