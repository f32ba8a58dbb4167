"""Requests are counted at a proxy before the server, and compared with what spec_notes/requests.md says."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from servers.proxies import CountingProxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from servers.proxies import ServerProxy

REGISTER = Path(__file__).parents[2] / "spec_notes" / "requests.md"


@pytest.fixture(params=["s3_server", "azure_server"])
def proxy(request: pytest.FixtureRequest) -> Iterator[ServerProxy]:
    """A proxy that counts, before each server in turn."""
    with CountingProxy(request.getfixturevalue(request.param)) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def told() -> Callable[[str], Counter[str]]:
    """What the register says of a row, such as ``{"LIST log": 1, "GET data": 4}``."""
    rows = {}
    for line in REGISTER.read_text().splitlines():
        if match := re.match(r"\| ([a-z]+-\d+) \|", line):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            rows[match[1]] = Counter(
                {kind: int(count) for count, kind in re.findall(r"(\d+) ([A-Z-]+ [a-z]+)", cells[2])}
            )
    return rows.__getitem__
