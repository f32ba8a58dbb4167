"""delta-spark reads the folder that an S3 server serves: what refdelta wrote there by requests."""

from __future__ import annotations

import random

import pytest

from backends.tables import VECTORS, held, opened, write
from backends.test_rows import some_statements
from refdelta.crosscheck import oracle
from row_judge import Judge, Statement, begun, listed, rows

pytestmark = pytest.mark.spark


def test_delta_spark_reads_what_requests_to_s3_left(quick_spark, s3_server):
    place, judge = s3_server.place(), Judge()
    write(place, rows(range(20), 0), configuration=VECTORS)
    table = opened(place)
    past = {0: judge.rows()}
    for step in some_statements(random.Random(5)):
        if isinstance(step, Statement):
            begun(table, step).commit()
            judge.run(step)
        elif step == "checkpoint":
            table.create_checkpoint()
        past[table.version()] = judge.rows()
    assert held(place) == judge.rows()
    folder = s3_server.path(place.uri)
    assert listed(oracle.read_table(quick_spark, folder)) == judge.rows()
    for version in sorted(past)[3::7]:
        assert listed(oracle.read_table(quick_spark, folder, version)) == past[version], version
    assert oracle.validate_checksum(quick_spark, folder)
