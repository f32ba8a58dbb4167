"""What the tests of the model share."""

from __future__ import annotations

import pytest


@pytest.fixture
def say(capsys, request):
    """Print lines under the name of the test, whatever pytest captures."""

    def write(*lines):
        with capsys.disabled():
            print(f"\n{request.node.name}:", *lines, sep="\n  ")

    return write
