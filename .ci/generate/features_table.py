"""``make generate NAME=features``: the table ``spec_notes/features.md``, from the registry and from
``tests/features.toml``.

The registry (``refdelta/table/features.py``) says what this engine reads and writes; the file of tests says for
each feature which tests hold that against tables of which writer. Ends with status 1 where a test does not exist.
"""

from __future__ import annotations

import ast
import functools
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from formatting import formatted

from refdelta.operations.alter.feature_removal import REMOVALS
from refdelta.table.features import REGISTRY, Feature

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests" / "features.toml"
TABLE = ROOT / "spec_notes" / "features.md"

HEAD = """# Table features

Written by `make generate NAME=features`, from the registry of the engine, [refdelta/table/features.py][registry],
and the list of tests, [tests/features.toml](../tests/features.toml); do not edit it here.

A table *supports* a feature that its protocol names or implies, and *uses* it by its properties,
its columns or its types. "Since" are the reader and writer versions that imply a feature, or those
that name it. Features that only writers must know do not prevent reading. "Unused" under "written"
means: as long as the table does not use it. Whatever is not written, or has no row, is refused by
name before anything is changed. "Dropped" says whether `alter.drop_feature` takes it out of a
protocol: "history" where the versions before still need it. A test stands under the writer whose
tables it has: delta-spark's are read and written here, refdelta's by delta-spark.

[registry]: ../refdelta/table/features.py

| feature | since | needed by | read | written | dropped | tested against |
|---|---|---|---|---|---|---|
"""


def tests_of(text: str) -> dict[str, dict[str, list[str]]]:
    """The tests by feature and by the writer whose tables they use."""
    return {name: dict(writers) for name, writers in tomllib.loads(text).items()}


def table(registry: Mapping[str, Feature], tests: Mapping[str, Mapping[str, list[str]]]) -> str:
    """The document."""
    return formatted(HEAD + "".join(_row(registry[name], tests.get(name, {})) for name in registry))


def _row(row: Feature, tests: Mapping[str, list[str]]) -> str:
    reader = row.kind == "reader_writer"
    since = row.legacy or (3 if reader else 1, 7)
    cells = [
        f"`{row.name}`",
        f"{since[0]}, {since[1]}",
        "readers and writers" if reader else "writers",
        ("yes" if row.read else "no") if reader else "",
        {"always": "yes", "inactive": "unused", "never": "no"}[row.write] + (f": {row.hint}" if row.hint else ""),
        {"plain": "yes", "history": "history"}.get(row.drop, "") if row.name in REMOVALS else "",
        "; ".join(f"{writer}: {', '.join(f'`{name}`' for name in names)}" for writer, names in tests.items()),
    ]
    return f"| {' | '.join(cells)} |\n"


def problems(registry: Mapping[str, Feature], tests: Mapping[str, Mapping[str, list[str]]]) -> Iterator[str]:
    """What the file of tests says wrongly, and the features without a test that this engine says it has."""
    for name, writers in tests.items():
        if name not in registry:
            yield f"there is no feature {name}"
        yield from (f"{name}: {test} does not exist" for some in writers.values() for test in some if not exists(test))
    for name, row in registry.items():
        if row.write == "always" and not any(tests.get(name, {}).values()):
            yield f"{name} is written, but no test is named"


def exists(test: str) -> bool:
    """Whether there is this test: ``file::name`` or ``file::class::name``."""
    file, _, inside = test.partition("::")
    path = ROOT / file
    return path.is_file() and inside.split("::")[-1].split("[")[0] in _definitions(path)


@functools.cache
def _definitions(path: Path) -> frozenset[str]:
    kinds = (ast.FunctionDef, ast.ClassDef)
    return frozenset(node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds))


def main() -> int:
    """Write the document."""
    tests = tests_of(TESTS.read_text())
    TABLE.write_text(table(REGISTRY, tests))
    wrong = list(problems(REGISTRY, tests))
    print(*wrong, sep="\n", end="\n" if wrong else "")
    written = sum(row.write == "always" for row in REGISTRY.values())
    print(f"{TABLE.relative_to(ROOT)}: {len(REGISTRY)} features, {written} written")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
