"""Libraries that use deltalake, each by a script in an environment without it, which ``nox -s libraries`` installs."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from by_path import loaded
from refdelta_storage import open_store

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide" / "other-libraries.md"
LIBRARIES = sorted(file.stem for file in (ROOT / "tests/compat/libraries").glob("*.py"))
library = loaded(ROOT / "tests" / "compat" / "library.py")


def test_each_library_with_a_script_has_a_row_in_the_guide():
    linked = re.findall(r"tests/compat/libraries/(\w+)\.py\)", GUIDE.read_text())
    assert sorted(linked) == LIBRARIES


def test_the_engines_are_those_of_all_tables_in_a_store(tmp_path):
    for table, engine in (("a", "refdelta/1"), ("b/c", "delta-rs:py-1")):
        log = tmp_path / table / "_delta_log"
        log.mkdir(parents=True)
        (log / f"{0:020}.json").write_text(f"{json.dumps({'commitInfo': {'engineInfo': engine}})}\n{{}}\n")
        (log / f"{0:020}.crc").write_text("{}")
    assert library.commits(open_store(tmp_path)) == ["refdelta/1", "delta-rs:py-1"]


@pytest.mark.tier("nightly")  # each needs an environment of its own
@pytest.mark.parametrize("place", ["a folder", "s3"])
@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_uses_refdelta_under_the_name_of_deltalake(name, place, tmp_path, request):
    inside = ROOT / ".nox" / f"libraries-{name}" / "bin" / "python"
    if not inside.exists():
        pytest.skip(f"{name} is not installed: nox --install-only -s 'libraries({name})'")
    command, options = [inside, "-P", ROOT / "tests/compat/library.py", name], {}
    if place == "s3":
        server = request.getfixturevalue("s3_server")
        options = server.of_deltalake()
        command += [server.place().uri, json.dumps(options)]
    # The environment has the login, too: an option that a library loses must not lead to a cloud.
    environment = {**os.environ, **options}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    print(f"{done.stdout.splitlines()[-1]}, {place}")
