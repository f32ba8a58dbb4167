"""GENERATE symlink_format_manifest: lists of a table's files for engines that read Parquet and no Delta log.

Presto, Trino and Athena read such lists as tables of Hive, with ``SymlinkTextInputFormat``. They show the version of
the moment at which they were made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from refdelta.engine.parquet.files import store_errors
from refdelta.errors import UnsupportedFeatureError
from refdelta.operations.maintenance.describe import file_uris
from refdelta.pruning.partition_folders import partition_prefix

if TYPE_CHECKING:
    from refdelta.engine.log.snapshot import Snapshot

FOLDER: Final = "_symlink_format_manifest/"


def write_manifests(snapshot: Snapshot) -> list[str]:
    """Write a list of files for each partition, and delete those of partitions without files.

    Args:
        snapshot: the version that they show. Readers may see lists of two versions while it runs.

    Returns:
        The keys of the lists.

    Raises:
        UnsupportedFeatureError: files have deletion vectors, or the table has column mapping: readers of the lists
            would see deleted rows, or other columns.
        StoreError: the store refused or failed.
    """
    files = snapshot.files
    if files["deletionVector"].null_count < files.num_rows:
        hint = "reorg_purge() removes deletion vectors"
        raise UnsupportedFeatureError(("deletionVectors",), "list the files for readers of Parquet of", hint)
    if snapshot.column_mapping_mode != "none":
        raise UnsupportedFeatureError(("columnMapping",), "list the files for readers of Parquet of")
    lists: dict[str, list[str]] = {} if snapshot.partition_columns else {"": []}
    for uri, values in zip(file_uris(snapshot), files["partitionValues"].to_pylist(), strict=True):
        folder = partition_prefix(snapshot.partition_columns, dict(values)) + "/" if values else ""
        lists.setdefault(folder, []).append(uri)
    store = snapshot.store
    written = {f"{FOLDER}{folder}manifest": "".join(f"{uri}\n" for uri in uris) for folder, uris in lists.items()}
    with store_errors("write the lists of files"):
        for key, text in written.items():
            store.put(key, text.encode())
        store.delete([key for key in store.list_keys(FOLDER) if key not in written])
    return sorted(written)
