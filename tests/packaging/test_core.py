"""The core stands alone: what it loads, what its document says of it, and an engine built on it.

Tests of conformance.core_transactions.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from by_path import generator, loaded
from refdelta.conformance.cases import Case, cases
from refdelta.conformance.core_transactions import CoreTransaction
from refdelta.conformance.replay import core_session, local_session, play
from refdelta.core.commit import effects
from refdelta.errors import ConcurrentModificationError
from refdelta_storage import LocalStore

ROOT = Path(__file__).parents[2]
CORE = ROOT / "refdelta" / "core"
EXAMPLE = ROOT / "docs" / "examples" / "foreign_engine.py"
core_document = generator("core_document")


# --- what it loads --------------------------------------------------------------------------------------------------


def test_it_loads_no_library_for_files_or_sql_and_no_other_package_of_refdelta():
    code = "import sys, json, refdelta.core.commit; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = json.loads(done.stdout)
    assert not {"pyarrow", "fsspec", "sqlglot", "pandas", "pyspark", "refdelta_storage"} & {*names}
    ours = [name for name in names if name.partition(".")[0] == "refdelta"]
    others = tuple(f"refdelta.{name}" for name in ("table", "arrow", "expressions", "pruning", "engine"))
    assert not [name for name in ours if name.startswith(others)]


# --- its document ---------------------------------------------------------------------------------------------------


@pytest.mark.tier("test")
def test_the_document_is_what_the_code_says():
    text = core_document.DOCUMENT.read_text()
    assert core_document.document(text) == text, "run make generate NAME=commit-protocol"


def test_the_document_names_each_module_once_in_an_order_to_read():
    named = re.findall(
        r"^\| \[`core/([a-z_/]+)`\]\(\.\./refdelta/core/\1\.py\)", core_document.DOCUMENT.read_text(), re.MULTILINE
    )
    files = (file for part in ("log", "rows", "conflicts", "commit") for file in (CORE / part).glob("*.py"))
    there = sorted(str(file.relative_to(CORE).with_suffix("")) for file in files if file.name != "__init__.py")
    assert sorted(named) == there


def test_its_links_lead_somewhere():
    for document in (ROOT / "docs").glob("*.md"):
        for link in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            if "://" not in link:
                assert (document.parent / link).exists(), (document.name, link)


def test_its_tests_are_there():
    for name in re.findall(r"`(tests/[a-z_/]+(?:\.py)?)`", core_document.DOCUMENT.read_text()):
        assert (ROOT / name).exists(), name


def test_its_readme_names_each_effect_once_and_leads_to_documents_that_are_there():
    text = (CORE / "README.md").read_text()
    rows = re.findall(r"^\| (`.+?) \| .* \|$", text.partition("## The effects")[2], re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(kind.__name__ for kind in get_args(effects.Effect))
    for place in re.findall(r"/blob/main/([^)#\"\n]+)", text + (CORE / "pyproject.toml").read_text()):
        assert (ROOT / place).exists(), place


# --- an engine built on it ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def example():
    return loaded(EXAMPLE)


def test_the_example_imports_the_core_alone():
    imported = set(re.findall(r"^(?:from|import) ([a-z_.]+)", EXAMPLE.read_text(), re.MULTILINE))
    assert {name for name in imported if name.startswith("refdelta")} == {
        name for name in imported if name.startswith("refdelta.core.") or name == "refdelta.core"
    }


@pytest.mark.tier("test")
def test_two_processes_of_the_example_lose_nothing(tmp_path):
    command = [sys.executable, str(EXAMPLE), str(tmp_path / "shop.sqlite")]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) for _ in range(2)]
    said = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    versions = [int(number) for text in said for number in re.findall(r"^version (\d+)$", text, re.MULTILINE)]
    assert len(versions) == len(set(versions))
    assert sorted(versions) == list(range(len(versions)))
    assert len(versions) > 20


@pytest.fixture
def open_shop(example, tmp_path):
    """Opens the example's table; all connections are closed at the end, which Python 3.13 asks for."""
    with contextlib.ExitStack() as stack:

        def opened():
            shop = example.Table(str(tmp_path / "shop.sqlite"), ("id", "price"))
            stack.callback(shop.log.db.close)
            return shop

        yield opened


def test_rows_of_one_file_are_deleted_by_two(example, open_shop):
    shop = open_shop()
    shop.create()
    shop.append([{"id": number, "price": number % 3} for number in range(9)])
    # Both saw version 1: the second one's snapshot is held back.
    saw = shop.snapshot()
    late = open_shop()
    late.snapshot = lambda: saw
    assert shop.delete("price = 0") == 2
    assert late.delete("price = 1") == 3
    (add,) = shop.snapshot()[1]
    assert list(example.hidden(add.deletion_vector)) == [0, 1, 3, 4, 6, 7]
    with pytest.raises(ConcurrentModificationError) as caught:
        late.delete("id IN (4, 5)")
    assert (caught.value.conflict.rule, caught.value.conflict.version) == ("read-file-removed", 3)


class OnExample(CoreTransaction):
    """A scenario's transaction, with the example's predicates and over its log."""

    def __init__(self, module, case, path, transaction):
        self.module, self.path = module, path
        super().__init__(case, LocalStore(path, fsync=False), transaction)

    def _parse(self, words):
        text = re.sub(r"<=>", "IS", re.sub(r"AS STRING", "AS TEXT", words))
        return self.module.Where(text, ("p", "q", "a"), tuple(self.case.partition_columns))

    def _chosen(self, words):
        return list(filter(self._parse(words).may_match, self.live.values()))

    def _matching(self, add, words):
        return self._parse(words).matching(self.case.rows(add.path)) - self._hidden(add)

    def _commit(self, prepared):
        log = self.module.SqliteLog(str(self.path / "log.sqlite"))
        with contextlib.closing(log.db):
            files = sorted((self.path / "_delta_log").glob("*.json"))
            for version, file in enumerate(files[log.newest(-1) + 1 :], log.newest(-1) + 1):
                log.commit(version, file.read_bytes())
            version = self.module.commit(log, prepared, self._answer).version
            if version is not None:
                (self.path / "_delta_log" / f"{version:020d}.json").write_bytes(log.read(version, version)[0])

    def _answer(self, effect):
        effects = self.module.effects
        match effect:
            case effects.ReadVectors(descriptors):
                return effects.Vectors(tuple(map(self.module.hidden, descriptors)))
            case effects.WriteVectors(bitmaps):
                return effects.Descriptors(tuple(map(self.module.inline, bitmaps)))
            case effects.MatchRows(rows):
                return effects.Matches(tuple(self._match_rows(rows)), 0.0)
            case effects.ConfirmRows(trusted=trusted):
                return effects.Yes() if trusted else effects.No()
        return effects.Relocations({})


CASES = [case for case in cases() if case.kind == "actions"]


@pytest.mark.sample(check=12)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_scenario_ends_alike_on_the_example(example, tmp_path, case: Case):
    def verdict(outcome):
        return {name: (failure.error, failure.rule) for name, failure in outcome.failures.items()}, outcome.files

    at = tmp_path / "foreign"
    own = play(core_session(case, tmp_path / "own"))
    foreign = play(local_session(case, at, lambda transaction: OnExample(example, case, at, transaction)))
    assert verdict(foreign) == verdict(own)
