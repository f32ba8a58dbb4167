"""What the tests of catalogs share."""

import pytest

pytest.register_assert_rewrite("catalog.contract")
