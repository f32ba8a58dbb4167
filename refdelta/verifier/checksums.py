"""Version checksums against the state of their version (PROTOCOL.md, "Version Checksum File", "State Validation")."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from refdelta.core.log.checksum import DELETED_BINS, VersionChecksum, decode_checksum
from refdelta.core.log.paths import checksum_key
from refdelta.core.table.in_commit_timestamp import kept
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import DeltaError, InvalidLogError
from refdelta.verifier.state import metadata_differences, protocol_facts

if TYPE_CHECKING:
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
        sums = self.state.sums
        self._equal("tableSizeBytes", checksum.table_size_bytes, sums.size)
        self._equal("numFiles", checksum.num_files, sums.files)
        self._equal("numDeletionVectorsOpt", checksum.num_deletion_vectors, sums.vectors)
        self._equal("numDeletedRecordsOpt", checksum.num_deleted_records, sums.deleted)

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
        counts, sizes = Counter[int](), Counter[int]()
        for add in self.state.files.values():
            place = bisect_right(bounds, max(add.size, 0)) - 1
            counts[place] += 1
            sizes[place] += add.size
        self._equal("fileCounts", histogram.file_counts, [counts[i] for i in range(len(bounds))])
        self._equal("totalBytes", histogram.total_bytes, [sizes[i] for i in range(len(bounds))])

    def _deleted(self, said: list[int]) -> None:
        counts = Counter[int]()
        for add in self.state.files.values():
            vector = add.deletion_vector
            counts[bisect_right(DELETED_BINS, 0 if vector is None else vector.cardinality) - 1] += 1
        self._equal("deletedRecordCounts", said, [counts[i] for i in range(len(DELETED_BINS))])

    def _all_files(self, data: bytes) -> None:
        listed = json.loads(data).get("allFiles")
        if isinstance(listed, list):
            said = sorted(str(add.get("path")) for add in listed if isinstance(add, dict))
            found = sorted(add.path for add in self.state.files.values())
            if said != found:
                self.find("crc-2", f"allFiles lists {len(said)} files, which are not the {len(found)} live files")
