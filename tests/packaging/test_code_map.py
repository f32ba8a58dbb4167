"""The map of the code is drawn from its imports, and names what is there."""

import re
from pathlib import Path

import pytest

from by_path import generator

ROOT = Path(__file__).parents[2]
map_ = generator("code_map")
PAGE = map_.PAGE.read_text()


@pytest.mark.tier("test")
def test_the_page_and_the_drawing_show_the_imports_of_the_code():
    assert map_.page(PAGE) == PAGE, "run make generate NAME=map"
    assert map_.PICTURE.read_text() == map_.drawing(), "run make generate NAME=map"


@pytest.mark.tier("test")
def test_no_two_rooms_import_each_other():
    assert len(map_.levels(map_.imports())) > 20
    with pytest.raises(ValueError, match=r"import each other: \w+ > \w+ > \w+"):
        map_.levels({"one": {"two"}, "two": {"one"}})


def test_every_module_of_a_package_lies_in_a_room_or_beside_them():
    known = map_.modules()
    beside = {name for name in known if map_.room_of(name, known) is None}
    assert {name for name in beside if name.count(".") > 1 and name.rpartition(".")[0] not in map_.DIVIDED} == set()


def test_a_line_is_left_out_where_it_follows_from_others():
    assert map_.direct({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {"a": {"b"}, "b": {"c"}, "c": set()}


def test_all_paths_that_it_names_exist():
    named = set(re.findall(r"`([a-z_]+/[\w./]+)`", PAGE))
    assert len(named) > 20
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
