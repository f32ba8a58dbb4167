"""``make generate NAME=pictures``: the picture of the guide's page on timelines, ``timeline.svg``.

Four people change one table; the log is a real one, but for its times.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa

from refdelta import CommitProperties, DeltaTable, write_deltalake
from refdelta.operations.inspection.drawing import to_svg

PICTURE = Path(__file__).with_name("timeline.svg")
_FIRST = 1_767_261_600_000  # milliseconds since 1970
_MINUTE = 60_000


def draw() -> str:
    """The picture."""
    with tempfile.TemporaryDirectory() as folder:
        rows = DeltaTable(_made(f"{folder}/stock")).timeline()._drawn  # noqa: SLF001 - the picture is made from the rows
    # Sizes depend on the version of Parquet's writer, and times on the day.
    return to_svg(
        [{**row, "timestamp": _FIRST + at * _MINUTE, "bytes_added": None} for at, row in enumerate(rows)], "stock"
    )


def _made(path: str) -> str:
    stock = pa.table({"id": [1, 2, 3, 4], "pieces": [10, 20, 30, 40]})
    write_deltalake(path, stock, configuration={"delta.enableDeletionVectors": "true"}, commit_properties=_by("ada"))
    write_deltalake(path, pa.table({"id": [5], "pieces": [50]}), mode="append", commit_properties=_by("ada"))
    bob, cleo, night = (DeltaTable(path).begin(commit_properties=_by(name)) for name in ("bob", "cleo", "night job"))
    bob.delete("id = 1")
    cleo.update({"pieces": "pieces - 1"}, predicate="id = 3")
    night.compact()
    bob.commit()
    cleo.commit()
    late = DeltaTable(path).begin(commit_properties=_by("dora", "new price"))
    late.update({"pieces": "pieces + 5"}, predicate="id = 5")
    night.commit()
    DeltaTable(path).delete("id = 2", commit_properties=_by("bob"))
    late.commit()
    return path


def _by(name: str, note: str | None = None) -> CommitProperties:
    return CommitProperties(user_metadata=note, custom_metadata={"userName": name})


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
