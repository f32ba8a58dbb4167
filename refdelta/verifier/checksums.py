"""Version checksums against the state of their version (PROTOCOL.md, "Version Checksum File", "State Validation")."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from refdelta.core.log.checksum import DELETED_BINS, VersionChecksum, decode_checksum
from refdelta.core.log.json_text import read_json
from refdelta.core.log.paths import checksum_key
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import DeltaError, InvalidLogError
from refdelta.table.in_commit_timestamp import kept
from refdelta.verifier.state import metadata_differences, protocol_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from refdelta.core.log.checksum import FileSizeHistogram
    from refdelta.verifier.report import Report
    from refdelta.verifier.state import State
    from refdelta_storage.base import Store


class ChecksumCheck:
    """The check of the checksum of a version.

    Args:
        store: the table's folder.
        state: the state of the version.
        report: takes the findings.
    """

    def __init__(self, store: Store, state: State, report: Report):
        self.store, self.state, self.report = store, state, report
        self.file = checksum_key(state.version)

    def find(self, clause: str, message: str) -> None:
        """Add a finding of this checksum."""
        self.report.find(clause, message, version=self.state.version, file=self.file)

    def run(self) -> None:
        """Report the differences from the state."""
        try:
            with store_errors(f"read {self.file}"):
                data = self.store.get(self.file)
            checksum = decode_checksum(data, self.file)
        except InvalidLogError as error:
            self.find("crc-4", error.reason)
            return
        except DeltaError as error:
            self.report.skip(str(error))
            return
        self._sums(checksum)
        self._actions(checksum)
        self._timestamp(checksum)
        if checksum.file_size_histogram is not None:
            self._histogram(checksum.file_size_histogram)
        if checksum.deleted_record_counts is not None:
            self._deleted(list(checksum.deleted_record_counts))
        self._all_files(data)

    def _equal(self, name: str, said: Any, found: Any) -> None:
        if said is not None and said != found:
            self.find("crc-2", f"{name} is {said}; the commits give {found}")

    def _sums(self, checksum: VersionChecksum) -> None:
        files = self.state.files
        self._equal("tableSizeBytes", checksum.table_size_bytes, files.size)
        self._equal("numFiles", checksum.num_files, len(files))
        self._equal("numDeletionVectorsOpt", checksum.num_deletion_vectors, files.vectors)
        self._equal("numDeletedRecordsOpt", checksum.num_deleted_records, files.deleted)

    def _actions(self, checksum: VersionChecksum) -> None:
        protocol, metadata = self.state.protocol, self.state.metadata
        if protocol is not None and protocol_facts(protocol) != protocol_facts(checksum.protocol):
            self.find("crc-2", f"its protocol is {checksum.protocol}; the commits give {protocol}")
        if metadata is not None:
            for name in metadata_differences(checksum.metadata, metadata):
                self.find("crc-2", f"{name} of its metadata differs from the commits")
        if checksum.set_transactions is not None:
            said = {txn.app_id: txn.version for txn in checksum.set_transactions}
            self._equal("setTransactions", said, {name: txn.version for name, txn in self.state.txns.items()})
        if checksum.domain_metadata is not None:
            domains = {one.domain: one.configuration for one in checksum.domain_metadata if not one.removed}
            found = {name: one.configuration for name, one in self.state.domains.items()}
            self._equal("domainMetadata", domains, found)

    def _timestamp(self, checksum: VersionChecksum) -> None:
        protocol, metadata = self.state.protocol, self.state.metadata
        if protocol is None or metadata is None:
            return
        said = checksum.in_commit_timestamp
        if kept(protocol, metadata) != (said is not None):
            self.find(
                "crc-5", f"inCommitTimestampOpt is {said}, and in-commit timestamps are {'off' if said else 'on'}"
            )
        elif self.state.timestamp is not None:
            self._equal("inCommitTimestampOpt", said, self.state.timestamp)

    def _histogram(self, histogram: FileSizeHistogram) -> None:
        bounds = histogram.sorted_bin_boundaries
        rising = all(low < high for low, high in pairwise(bounds))
        lengths = {len(bounds), len(histogram.file_counts), len(histogram.total_bytes)}
        if not bounds or bounds[0] != 0 or not rising or len(lengths) != 1:
            self.find("crc-6", "the histogram of file sizes does not have the specified form")
            return
        sizes = self.state.files.sizes()
        places = _places(bounds, np.maximum(sizes, 0))
        totals = np.zeros(len(bounds), np.int64)
        np.add.at(totals, places, sizes)
        self._equal("fileCounts", histogram.file_counts, np.bincount(places, minlength=len(bounds)).tolist())
        self._equal("totalBytes", histogram.total_bytes, totals.tolist())

    def _deleted(self, said: list[int]) -> None:
        places = _places(DELETED_BINS, self.state.files.deleted_counts())
        self._equal("deletedRecordCounts", said, np.bincount(places, minlength=len(DELETED_BINS)).tolist())

    def _all_files(self, data: bytes) -> None:
        try:
            listed = read_json(data).get("allFiles")
        except ValueError:
            listed = None
        if isinstance(listed, list):
            said = sorted(str(add.get("path")) for add in listed if isinstance(add, dict))
            found = sorted(path for batch in self.state.files.batches() for path in batch["path"].to_pylist())
            if said != found:
                self.find("crc-2", f"allFiles lists {len(said)} files, which are not the {len(found)} live files")


def _places(bounds: Sequence[int], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of the bin of each value; the first bound is at most the least value."""
    return np.searchsorted(bounds, values, side="right") - 1
