"""JSON in strings of the log is JSON of bounded depth, or one ValueError."""

from __future__ import annotations

import json

import pytest

from refdelta.core.log import json_text
from refdelta.core.log.json_text import DEEPEST, check_depth, read_json

EIGHT = ["[[[[[[[[]]]]]]]]", '{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":1}}}}}}}}', '[{"a":[{"a":[{"a":[{}]}]}]}]']


@pytest.mark.parametrize("text", [*EIGHT, b"[1]", "7"])
def test_what_nests_as_deeply_as_is_allowed_is_read(text):
    assert read_json(text, 8) == json.loads(text)


@pytest.mark.parametrize("text", EIGHT)
def test_one_level_more_is_refused(text):
    for nine in (f"[{text}]", f'{{"a":{text}}}'):
        with pytest.raises(ValueError, match="nests more than 8 levels deep"):
            read_json(nine, 8)


def test_the_limit_is_a_hundred_levels():
    assert read_json.__defaults__ == (DEEPEST,) == check_depth.__defaults__ == (100,)


def test_a_parser_whose_stack_ends_refuses_the_text(monkeypatch):
    def parse(text):
        raise RecursionError

    monkeypatch.setattr(json_text.json, "loads", parse)
    with pytest.raises(ValueError, match="it nests too deeply"):
        read_json("[]")


def test_the_depth_of_a_value_is_found_without_recursion(monkeypatch):
    calls = []

    def counted(value, deepest=DEEPEST, *, own=check_depth):
        calls.append(deepest)
        own(value, deepest)

    monkeypatch.setattr(json_text, "check_depth", counted)
    read_json("[[[[[[[[[[[[]]]]]]]]]]]]", 12)
    with pytest.raises(ValueError, match="more than 11 levels"):
        read_json("[[[[[[[[[[[[]]]]]]]]]]]]", 11)
    assert calls == [12, 11]


@pytest.mark.parametrize("content", [None, 5, {"expression": {}}, ["x"], "", "nul", b"\xff"])
def test_what_is_no_json_text_is_refused(content):
    with pytest.raises(ValueError, match=r".+"):
        read_json(content)
