"""A table, and what others committed to it while a transaction was open: log files, without data files.

They are written as JSON, since committing ten thousand versions would take longer than all else. Of the table's files
only the log knows; nothing here reads one.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

PART_BYTES = 1_000_000
SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "part", "type": "string", "nullable": True, "metadata": {}},
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "value", "type": "double", "nullable": True, "metadata": {}},
    ],
}
MINE = "part = 'mine'"
OWN_FILES = 10


def name_of(version: int) -> str:
    """Of a commit file."""
    return f"{version:020}.json"


def _stats(first: int) -> str:
    bounds = {"id": first, "value": first / 4}, {"id": first + 999, "value": (first + 999) / 4}
    fields = {"numRecords": 1000, "minValues": bounds[0], "maxValues": bounds[1], "nullCount": {"id": 0, "value": 0}}
    return json.dumps(fields, separators=(",", ":"))


def add(path: str, part: str, first: int = 0) -> dict:
    """Of a thousand rows, whose ids begin with ``first``."""
    values = {"part": part}
    fields = {"path": path, "partitionValues": values, "size": PART_BYTES, "modificationTime": 1_700_000_000_000}
    return {"add": {**fields, "dataChange": True, "stats": _stats(first)}}


def remove(path: str, part: str) -> dict:
    """Of the same."""
    fields = {"path": path, "deletionTimestamp": 1_700_000_000_000, "dataChange": True, "extendedFileMetadata": True}
    return {"remove": {**fields, "partitionValues": {"part": part}, "size": PART_BYTES}}


def _write(file: Path, actions: list[dict]) -> None:
    file.write_text("".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions))


def write_table(log: Path, files: int) -> None:
    """Version 0: ``OWN_FILES`` files of the partition "mine", and others up to ``files``."""
    metadata = {
        "id": "00000000-0000-4000-8000-000000000000",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(SCHEMA),
        "partitionColumns": ["part"],
        # As by default in refdelta and deltalake; delta-spark's own default is the stricter level.
        "configuration": {"delta.isolationLevel": "WriteSerializable"},
        "createdTime": 1_700_000_000_000,
    }
    own = [add(f"part=mine/{number:06}.parquet", "mine") for number in range(OWN_FILES)]
    others = [
        add(f"part=p{number % 100}/{number:06}.parquet", f"p{number % 100}", number)
        for number in range(OWN_FILES, files)
    ]
    log.mkdir(parents=True)
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    _write(log / name_of(0), [protocol, {"metaData": metadata}, *own, *others])


def write_winners(folder: Path, winners: int, actions: int) -> None:
    """Versions 1 and on: each an UPDATE of other partitions, which put half of ``actions`` files into the place of
    the other half, the ones that the version before had added.
    """
    folder.mkdir(parents=True)
    half = actions // 2
    for version in range(1, winners + 1):
        info = {
            "timestamp": 1_700_000_000_000 + version,
            "operation": "UPDATE",
            "operationParameters": {"predicate": '["(id#1L = 7)"]'},
            "readVersion": version - 1,
            "isolationLevel": "WriteSerializable",
            "isBlindAppend": False,
            "operationMetrics": {"numRemovedFiles": str(half), "numAddedFiles": str(half), "numUpdatedRows": "10"},
            "engineInfo": "bench",
            "txnId": f"00000000-0000-4000-8000-{version:012}",
        }
        names = [(f"part=p{number % 100}/part-{{:08}}-{number:06}.snappy.parquet", number) for number in range(half)]
        gone = [remove(path.format(version - 1), f"p{number % 100}") for path, number in names]
        came = [add(path.format(version), f"p{number % 100}", number) for path, number in names]
        _write(folder / name_of(version), [{"commitInfo": info}, *gone, *came])


def link(source: Path, target: Path) -> None:
    """Let files of one folder be in the other too."""
    for name in os.listdir(source):  # noqa: PTH208 - ten thousand paths would take longer
        os.link(source / name, target / name)
