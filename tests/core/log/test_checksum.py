"""Version checksums: round trips, delta-spark's form, and files that are none."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta.core.log.actions import DomainMetadata, Format, Metadata, Protocol, Txn
from refdelta.core.log.checksum import FileSizeHistogram, VersionChecksum, decode_checksum, encode_checksum
from refdelta.errors import InvalidLogError

FILE = "_delta_log/00000000000000000007.crc"
METADATA = Metadata(
    id="i", format=Format(), schema_string='{"type":"struct","fields":[]}', partition_columns=[], configuration={}
)
PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)

counts = st.integers(0, 2**63 - 1)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
checksums = st.builds(
    VersionChecksum,
    table_size_bytes=counts,
    num_files=counts,
    metadata=st.just(METADATA),
    protocol=st.just(PROTOCOL),
    txn_id=st.none() | words,
    in_commit_timestamp=st.none() | counts,
    set_transactions=st.none()
    | st.lists(st.builds(Txn, app_id=words, version=counts, last_updated=st.none() | counts), max_size=2).map(tuple),
    domain_metadata=st.none()
    | st.lists(
        st.builds(DomainMetadata, domain=words, configuration=words, removed=st.just(value=False)), max_size=2
    ).map(tuple),
    num_deleted_records=st.none() | counts,
    num_deletion_vectors=st.none() | counts,
    deleted_record_counts=st.none() | st.lists(counts, min_size=10, max_size=10).map(tuple),
    file_size_histogram=st.none()
    | st.builds(
        FileSizeHistogram,
        sorted_bin_boundaries=st.just([0, 8]),
        file_counts=st.just([1, 2]),
        total_bytes=st.just([3, 4]),
    ),
)


@given(checksums)
def test_round_trip(checksum):
    data = encode_checksum(checksum)
    assert decode_checksum(data, FILE) == checksum
    assert None not in json.loads(data).values()


def test_the_fields_that_the_specification_requires_are_written():
    written = json.loads(
        encode_checksum(VersionChecksum(table_size_bytes=0, num_files=0, metadata=METADATA, protocol=PROTOCOL))
    )
    assert written == {
        "tableSizeBytes": 0,
        "numFiles": 0,
        "numMetadata": 1,
        "numProtocol": 1,
        "metadata": {
            "id": "i",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": '{"type":"struct","fields":[]}',
            "partitionColumns": [],
            "configuration": {},
        },
        "protocol": {"minReaderVersion": 1, "minWriterVersion": 2},
    }


def raw(**changes):
    fields = json.loads(
        encode_checksum(VersionChecksum(table_size_bytes=5, num_files=1, metadata=METADATA, protocol=PROTOCOL))
    )
    fields.update(changes)
    return json.dumps({k: v for k, v in fields.items() if v is not ...}).encode()


def test_what_delta_spark_writes_besides_is_read_or_passed_over():
    histogram = {"sortedBinBoundaries": [0, 8192], "fileCounts": [1, 0], "totalBytes": [5, 0]}
    domain = {"domain": "d", "configuration": "{}", "removed": False}
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2, "unheardOf": 1}
    data = raw(
        histogramOpt=histogram, allFiles=[{"path": "f"}], domainMetadata=[domain], setTransactions=[], protocol=protocol
    )
    checksum = decode_checksum(data, FILE)
    assert checksum.file_size_histogram.file_counts == [1, 0]
    assert checksum.domain_metadata == (DomainMetadata(domain="d", configuration="{}", removed=False),)
    assert checksum.set_transactions == ()
    assert checksum.protocol.extra == {"unheardOf": 1}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        raw()[:-3],
        raw(metadata=...),
        raw(protocol=None),
        raw(metadata={}),
        raw(numFiles="1"),
        raw(numFiles=2**63),
        raw(numMetadata=2),
        raw(setTransactions=[{}]),
    ],
)
def test_what_is_no_checksum(data):
    with pytest.raises(InvalidLogError, match=FILE):
        decode_checksum(data, FILE)
