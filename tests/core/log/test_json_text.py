"""JSON in strings of the log is JSON of bounded depth, or one ValueError."""

from __future__ import annotations

import pytest

from refdelta.core.log.json_text import DEEPEST, check_depth, read_json


@pytest.mark.parametrize("text", ["[" * DEEPEST + "]" * DEEPEST, '{"a":' * DEEPEST + "1" + "}" * DEEPEST, b"[1]", "7"])
def test_what_nests_as_deeply_as_is_allowed_is_read(text):
    read_json(text)


@pytest.mark.parametrize("depth", [DEEPEST + 1, 990, 20_000, 100_000])
@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"a":', "}"), ("[", "")])
def test_deeper_text_is_refused(depth, opened, closed):
    with pytest.raises(ValueError, match=r"nests|Expecting|delimiter"):
        read_json(opened * depth + ("1" if closed == "}" else "") + closed * depth)


def test_the_depth_of_a_value_is_found_without_recursion():
    value: list = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(ValueError, match=f"more than {DEEPEST} levels"):
        check_depth(value)
    while value:
        value = value[0]  # so that freeing it does not recurse either


@pytest.mark.parametrize("content", [None, 5, {"expression": {}}, ["x"], "", "nul", b"\xff"])
def test_what_is_no_json_text_is_refused(content):
    with pytest.raises(ValueError, match=r".+"):
        read_json(content)
