"""The proxy changes nothing and counts every request, by method and by the kind of the object."""

from __future__ import annotations

import pyarrow as pa
import pytest

from refdelta import DeltaTable, write_deltalake
from servers.proxies import ServerProxy


@pytest.fixture(params=["s3_server", "azure_server"])
def server(request):
    return request.getfixturevalue(request.param)


def test_a_table_is_the_same_by_the_proxy_and_without_it(server):
    rows = pa.table({"n": pa.array(range(1000), pa.int64())})
    with ServerProxy(server) as proxy:
        place = proxy.place()
        write_deltalake(place.uri, rows, storage_options=place.options)
        write_deltalake(place.uri, rows, mode="append", storage_options=place.options)
        by_proxy = DeltaTable(place.uri, storage_options=place.options).to_pyarrow_table()
    table = DeltaTable(place.uri, storage_options=server.options())
    assert table.version() == 1
    assert table.to_pyarrow_table().equals(by_proxy)
    assert by_proxy.num_rows == 2000
    assert proxy.counts["PUT commit"] == 2
    assert proxy.counts["PUT data"] == 2
    assert proxy.counts["LIST log"] > 0
    puts = [seen for seen in proxy.seen if seen.method == "PUT" and seen.kind != "probe"]
    assert all(seen.conditional for seen in puts if seen.kind == "commit")
    assert {seen.status for seen in puts} <= {200, 201}
    name = f"{place.uri.split('/', 3)[3]}/_delta_log/{1:020}.json"
    assert proxy.requests.count(("PUT", name)) == 1
    proxy.reset()
    assert not proxy.requests


def test_a_server_that_is_gone_cuts_the_connection(fresh_path):
    class Gone:
        scheme = "s3"
        address = "127.0.0.1", 1  # nobody may listen there

    with ServerProxy(Gone()) as proxy:
        import http.client

        client = http.client.HTTPConnection(proxy.endpoint.removeprefix("http://"), timeout=120)
        client.request("GET", "/tables/x")
        with pytest.raises(http.client.RemoteDisconnected):
            client.getresponse()
        client.close()
    assert proxy.requests == [("GET", "x")]
