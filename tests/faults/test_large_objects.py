"""Objects that go up in parts and come down in ranges: one fault on the way, and they are whole or not there."""

from __future__ import annotations

import hashlib
import random

import pytest

from faults.writers import impatient
from refdelta.proxy.faults import KINDS, FaultRule, FaultRules
from refdelta_storage import ObjectNotFoundError, open_store, remote
from servers.proxies import ServerProxy

_MIB = 1 << 20
_PART = 5 * _MIB
"""S3 takes no smaller parts."""
CONTENT = random.Random(1).randbytes(2 * _PART + _MIB)
"""Just more than what goes in one piece."""


@pytest.fixture(autouse=True)
def _smaller_parts(monkeypatch):
    monkeypatch.setattr(remote, "PART", _PART)


@pytest.fixture(params=["s3", "azure", "gcs", "s3 by obstore", "azure by obstore"])
def server(request, monkeypatch):
    name, _, client = request.param.partition(" by ")
    server = request.getfixturevalue(f"{name}_server")
    if client:
        options = server.options
        monkeypatch.setattr(server, "options", lambda endpoint=None: {**options(endpoint), "client": client})
    return server


def upload(store, key):
    with store.open_output(key) as stream:
        for start in range(0, len(CONTENT), _MIB):
            stream.write(CONTENT[start : start + _MIB])


@pytest.mark.sample(test=2)
@pytest.mark.parametrize("method", ["PART", "FINISH"])
def test_uploads(server, method):
    faults = ("drop-before", "drop-after", "500-after", "late") if method == "FINISH" else ("drop-after", "cut-before")
    direct, rules = server.place(), FaultRules()
    with ServerProxy(server, rules) as proxy:
        place = impatient(proxy.through(direct), seconds=20)
        store = open_store(place.uri, place.options)
        for fault in faults:
            rule = rules.add(FaultRule(fault, method))
            upload(store, f"{fault}.bin")
            assert rule.met == 1
        lasting = rules.add(FaultRule("drop-before", method, times=1000))
        with pytest.raises(OSError, match=r"lost\.bin") as error:
            upload(store, "lost.bin")
        assert "\n" not in str(error.value)
        lasting.times = 0
        proxy.settle()
    found = open_store(direct.uri, direct.options)
    whole = hashlib.sha256(CONTENT).digest()
    for info in found.list():
        assert hashlib.sha256(found.get(info.key)).digest() == whole, info.key
    with pytest.raises(ObjectNotFoundError):
        found.get("lost.bin")


def test_ranges(server):
    direct, rules = server.place(), FaultRules()
    store = open_store(direct.uri, direct.options)
    content = CONTENT[: 4 * _MIB]
    store.put("x.bin", content)
    wanted = [(start, 300_000) for start in range(0, len(content) - 300_000, 500_000)]
    with ServerProxy(server, rules) as proxy:
        place = impatient(proxy.through(direct), seconds=20)
        by_proxy = open_store(place.uri, place.options)
        for fault in KINDS:
            if not fault.startswith(("409", "cut-before", "hang")):
                rule = rules.add(FaultRule(fault, "GET", times=2))
                found = by_proxy.get_ranges("x.bin", wanted)
                assert found == [content[start : start + length] for start, length in wanted], fault
                assert rule.met == 2
        rules.add(FaultRule("cut-after", "GET", times=1000))
        with pytest.raises(OSError, match=r"x\.bin"):
            by_proxy.get("x.bin")
