"""Decoders of structs are made when their modules are imported, or under a lock: never by two threads at once.

Tests of core.log.codec, catalog.delta_api.
"""

import re
from pathlib import Path

import refdelta
from refdelta.catalog import delta_api

PACKAGE = Path(refdelta.__file__).parent

CONVERTED = {
    *("core/log/codec.py", "core/log/lean.py", "core/log/segment.py", "core/rows/relocation.py"),
    *("engine/log/checkpoint.py", "operations/stream/offsets.py", "cli/inspect.py", "core/errors.py"),
}
"""Modules that convert, to structs that have a decoder since they were imported. The command line has one thread, and
so has who explains a conflict later.
"""


def test_decoders_are_made_once_and_not_at_the_first_use():
    for path in PACKAGE.rglob("*.py"):
        name, text = path.relative_to(PACKAGE).as_posix(), path.read_text()
        own = [found for found in re.findall(r"msgspec\.json\.decode\((.*)", text) if "type=" in found]
        assert all("type=list[str]" in found or "type=dict[str, Any]" in found for found in own), name
        assert name in CONVERTED or "msgspec.convert(" not in text, name


def test_a_decoder_is_made_once_and_under_a_lock(monkeypatch):
    made = []

    class Decoder:
        def __init__(self, kind):
            made.append((kind, delta_api._MAKING.locked()))

    class Kind:
        pass

    monkeypatch.setattr(delta_api, "_DECODERS", {})
    monkeypatch.setattr(delta_api.msgspec.json, "Decoder", Decoder)
    assert delta_api.decoder_of(Kind) is delta_api.decoder_of(Kind)
    assert made == [(Kind, True)]
