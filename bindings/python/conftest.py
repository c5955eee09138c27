"""Make kvstore available in doctests without an import. For tests only."""

import kvstore
import pytest


@pytest.fixture(autouse=True)
def _kvstore_in_doctests(doctest_namespace):  # type: ignore[no-untyped-def]
    doctest_namespace["kvstore"] = kvstore
