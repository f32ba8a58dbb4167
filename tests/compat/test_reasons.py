"""The reasons for which tests of deltalake fail on the compat module: one a test, and all of them in the guide."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "other-libraries.md"
REASONS = tomllib.loads(Path(__file__).with_name("delta_rs_reasons.toml").read_text())["reason"]


def test_the_table_of_the_guide_has_every_reason_and_adds_up():
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", GUIDE.read_text(), re.MULTILINE)
    assert {text for _, text in rows} == {reason["text"] for reason in REASONS}
    passed, ran = map(int, re.search(r"(\d+) passed, of (\d+) that ran", GUIDE.read_text()).groups())
    assert sum(int(count) for count, _ in rows) == ran - passed
    assert passed >= 600


def test_a_test_has_one_reason():
    names = [name for reason in REASONS for name in reason["tests"]]
    assert len(names) == len(set(names))
    assert all(re.match(r"test_\w+\.py::", name) for name in names)
