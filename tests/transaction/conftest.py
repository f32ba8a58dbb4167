"""Fixtures of the tests of transactions."""

from __future__ import annotations

import pytest

from refdelta.core.commit import intents


@pytest.fixture
def patient():
    """Intents and listings are good for a day: those of killed writers wait for a leader on a machine that stalls."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intents, "FRESH_MS", 86_400_000)
        patch.setattr(intents, "LISTING_SECONDS", 86_400.0)
        yield
