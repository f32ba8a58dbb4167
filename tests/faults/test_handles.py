"""What a handle shows after commits behind which something failed."""

from __future__ import annotations

import pyarrow as pa

from faults.writers import impatient
from refdelta import DeltaTable, write_deltalake
from refdelta.proxy.faults import FaultRule, FaultRules
from servers.proxies import ServerProxy

ROWS = pa.table({"n": pa.array([1, 2, 3], pa.int64())})


def test_a_handle_goes_on_to_its_commit_though_the_checkpoint_behind_it_fails(s3_server, caplog):
    rules = FaultRules()
    with ServerProxy(s3_server, rules) as proxy:
        place = impatient(proxy.place())
        every = {"delta.checkpointInterval": "1"}
        write_deltalake(place.uri, ROWS, configuration=every, storage_options=place.options)
        table = DeltaTable(place.uri, storage_options=place.options)
        broken = rules.add(FaultRule("500-before", "PUT", "checkpoint", times=1000))
        assert write_deltalake(table, ROWS, mode="append").version == 1
        assert broken.met > 0
        assert "version 1 is committed, but a hook after the commit failed" in caplog.text
        assert (table.version(), table.count()) == (1, 6)
        assert table.delete("n = 1").version == 2
        assert (table.version(), table.count()) == (2, 4)
