"""Followers that are killed while they copy a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from kills import following


@pytest.mark.tier("test")
def test_killed_followers_miss_and_repeat_nothing(tmp_path: Path) -> None:
    between, changes = following.run(tmp_path, 8, 20261127)
    assert 0 <= between <= 8
    assert changes > 0
